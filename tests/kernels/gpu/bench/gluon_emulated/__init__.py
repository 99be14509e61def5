"""Runs Gluon kernels on NumPy, one program of the grid after the other, without a GPU or Triton.

    namespace = emulated(text)
    launch(namespace, "kernel", (4,), num_warps=8, x_ptr=flat_array, n=7, BLOCK=64)

What Triton 3.6 refuses to compile (layouts that differ, a tensor in place of a constant) and what a
Hopper GPU would get wrong (a copy or product that was not waited for, a missing fence, an address
out of range) raises `Fault`. Fresh shared memory is NaN. Time and threads are not modelled.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np

from gluon_emulated.machine import Machine, SharedMemory
from gluon_emulated.values import (
    DTYPES,
    Accumulator,
    BlockedLayout,
    DotOperandLayout,
    DType,
    Fault,
    NVMMADistributedLayout,
    NVMMASharedLayout,
    Operand,
    Pointer,
    SliceLayout,
    SwizzledSharedLayout,
    Tensor,
    as_tensor,
    binary,
    cdiv,
    constant,
    expand_dims,
    fma,
    load,
    reduction,
    require,
    store,
    unary,
    where,
)

__all__ = ["Fault", "emulated", "launch"]


def runtime_value(value: Any) -> Any:
    """What `x = value` makes of a value: numbers become scalars, layouts are refused."""
    if isinstance(value, (tuple, list)):
        return tuple(map(runtime_value, value))
    kept = value is None or isinstance(value, (Accumulator, SharedMemory, DType))
    return value if kept else as_tensor(value)


def runtime_range(*bounds: Operand) -> Iterator[Tensor]:
    return map(as_tensor, range(*(int(as_tensor(bound).value) for bound in bounds)))


def known_types(names: Mapping[str, Any]) -> dict[str, Any]:
    """What the compiler knows of the tensors among a function's names."""

    def known(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(known, value))
        return (
            (type(value).__name__, value.type) if isinstance(value, (Tensor, Accumulator)) else ()
        )

    return {name: known(value) for name, value in names.items() if known(value)}


def check_types(before: Mapping[str, Any], names: Mapping[str, Any], test: Any = None) -> None:
    """Raises where a step of a loop, or a branch that no constant decides, changes a name's type."""
    after = known_types(names) if test is None or isinstance(test, Tensor) else before
    for name, was in before.items():
        require(after.get(name) == was, f"{name} changes its type: {was} to {after.get(name)}")


class Compiled(ast.NodeTransformer):
    """Has Python do with assignments and loops what Triton's compiler does."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        node.value = ast.Call(ast.Name("runtime_value", ast.Load()), [node.value], [])
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if is_constexpr(ast.unparse(node.annotation)) or node.value is None:
            return self.generic_visit(node)
        return self.visit_Assign(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        left = ast.parse(ast.unparse(node.target), mode="eval").body
        value = ast.BinOp(left, node.op, node.value)
        return self.visit_Assign(ast.Assign([node.target], value, lineno=node.lineno))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name("runtime_range" if node.id == "range" else node.id, node.ctx)

    def visit_For(self, node: ast.For | ast.While) -> ast.stmt:
        unrolled = isinstance(node, ast.For) and "static_range" in ast.unparse(node.iter)
        self.generic_visit(node)
        if not unrolled:
            first = ast.parse(f"types_{node.lineno} = known_types(locals())").body
            last = ast.parse(f"check_types(types_{node.lineno}, locals())").body
            node.body = [*first, *node.body, *last]
        return node

    visit_While = visit_For

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        self.generic_visit(node)
        test, before = f"test_{node.lineno}", f"types_{node.lineno}"
        first = ast.parse(
            f"{test} = {ast.unparse(node.test)}; {before} = known_types(locals())"
        ).body
        last = ast.parse(f"check_types({before}, locals(), {test})").body
        node.test = ast.Name(test, ast.Load())
        return [*first, node, *last]


def is_constexpr(annotation: Any) -> bool:
    return str(getattr(annotation, "__name__", annotation)).endswith("constexpr")


def constexpr(value: Any) -> Any:
    return constant(value)


def constexpr_function(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(lambda *values: function(*map(constant, values)))


@dataclass(frozen=True)
class JitFunction:
    """A function of a kernel's text."""

    machine: Machine
    function: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


def module(name: str, members: Iterable[Any] = (), **named: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update({member.__name__: member for member in members}, **named)
    return made


def modules(machine: Machine) -> dict[str, Any]:
    """What stands for the modules of Gluon, and for torch and Triton, which the host's code uses."""
    of_floats = (np.exp, np.exp2, np.log, np.log2, np.sqrt, np.sin, np.cos, np.floor, np.ceil)
    language = module(
        "language",
        (
            expand_dims, where, fma, cdiv, load, store, constexpr, machine.program_id,
            machine.num_programs, machine.num_warps, machine.arange, machine.full, machine.zeros,
            machine.convert_layout, machine.allocate_shared_memory, BlockedLayout, SliceLayout,
            NVMMADistributedLayout, DotOperandLayout, NVMMASharedLayout, SwizzledSharedLayout,
        ),
        **{dtype.name: dtype for dtype in DTYPES.values()},
        **{operation.__name__: unary(operation, floats=True) for operation in of_floats},
        rsqrt=unary(lambda x: 1 / np.sqrt(x), floats=True), abs=unary(np.abs),
        minimum=binary(np.fmin), maximum=binary(np.fmax), sum=reduction(np.sum, widens=False),
        min=reduction(np.fmin.reduce, widens=True), max=reduction(np.fmax.reduce, widens=True),
        static_range=lambda *bounds: range(*map(constant, bounds)),
        static_assert=lambda condition, text="": require(constant(condition), f"static: {text}"),
        thread_barrier=lambda: None,
    )  # fmt: skip
    groups = (machine.async_copy_global_to_shared, machine.commit_group, machine.wait_group)
    products = (machine.warpgroup_mma, machine.warpgroup_mma_init, machine.warpgroup_mma_wait)
    copies = module("async_copy", groups)
    jit = functools.partial(JitFunction, machine)
    gluon = module("gluon", (constexpr_function,), jit=jit, language=language)
    of_host = ("torch", "torch.nn", "torch.nn.functional", "triton", "triton.language")
    within = "triton.experimental.gluon.language"
    return {
        **{name: MagicMock() for name in of_host},
        "triton.experimental": module("experimental", gluon=gluon),
        "triton.experimental.gluon": gluon,
        within: language,
        f"{within}.nvidia": module("nvidia"),
        f"{within}.nvidia.ampere": module("ampere", async_copy=copies),
        f"{within}.nvidia.ampere.async_copy": copies,
        f"{within}.nvidia.hopper": module("hopper", (machine.fence_async_shared, *products)),
    }


def emulated(text: str) -> dict[str, Any]:
    """The names of a module's text, whose `@gluon.jit` functions `launch` runs."""
    tree = ast.parse(text)
    for place, node in enumerate(tree.body):
        if "gluon.jit" in map(ast.unparse, getattr(node, "decorator_list", ())):
            tree.body[place] = Compiled().visit(node)
    written_in = (runtime_value, runtime_range, known_types, check_types)
    namespace: dict[str, Any] = {function.__name__: function for function in written_in}
    with patch.dict(sys.modules, modules(Machine())):
        exec(compile(ast.fix_missing_locations(tree), "<gluon>", "exec"), namespace)
    return namespace


def launch(
    namespace: dict[str, Any],
    kernel_name: str,
    grid: Sequence[int],
    *,
    num_warps: int = 4,
    **given: Any,
) -> None:
    """Runs a kernel's programs in order: flat arrays are pointers, numbers scalars or constants."""
    kernel = namespace[kernel_name]
    parameters, arguments = inspect.signature(kernel.function).parameters, dict(given)
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            assert value.ndim == 1 and value.dtype in DTYPES, f"{name} is no flat array of a dtype"
            arguments[name] = Tensor(0, Pointer(value))
        elif not is_constexpr(parameters[name].annotation):
            arguments[name] = runtime_value(value)
    extents = (*grid, 1, 1)[:3]
    for place in itertools.product(*map(range, extents)):
        kernel.machine.start(place, extents, num_warps)
        with np.errstate(all="ignore"):
            kernel(**arguments)
        kernel.machine.finish()
