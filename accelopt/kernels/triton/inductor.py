"""The Triton kernels that `torch.compile` writes for a reference, as a solution of their own.

Inductor's text names its own runtime. What stays here are its kernels, the tensors that it allocates and its
launches, with the tiles and warps that its autotuner chose as numbers of the launch, so the moves and knobs of any
other solution apply. A text that computes by anything but Triton kernels is refused in a sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.kernels.triton.configurations.source import called
from accelopt.parsing import names_read, parse_expression, parse_python

GRIDS = {"Grid1D": "x", "Grid2D": "xy", "Grid3D": "xyz"}
ORIGIN = re.compile(r"L\['(\w+)'\]((?:\.(?:size|stride)\(\)\[\d+\])?)")
HOST_CALLS = {"max", "min", "torch.empty_strided", "torch.as_strided"}
IMPORTS = """import torch
import triton
import triton.language as tl
from triton.language import math as tl_math
from triton.language.extra import libdevice

"""
EXPECT = '''
def _expect(tensor, size, stride):
    """The kernels are for these extents and this layout."""
    if tuple(tensor.size()) != tuple(size) or tuple(tensor.stride()) != tuple(stride):
        raise ValueError(f"made for tensors of {tuple(size)}, not {tuple(tensor.size())}")
'''
# What Inductor's kernels call of its runtime, in words of our own.
RUNTIME = {
    "max2": "def _max2(values, dim):\n    return tl.max(values, dim)\n",
    "min2": "def _min2(values, dim):\n    return tl.min(values, dim)\n",
    "online_softmax_combine": '''def _online_softmax_combine(largest, total, value, fast: tl.constexpr):
    top = tl.maximum(largest, value)
    base = tl.where(top == float("-inf"), 0.0, top)
    return top, total * tl.exp(largest - base) + tl.exp(value - base)
''',
    "online_softmax_reduce": '''def _online_softmax_reduce(largest, total, dim: tl.constexpr, fast: tl.constexpr):
    top = tl.max(largest, dim)
    base = tl.expand_dims(tl.where(top == float("-inf"), 0.0, top), dim)
    return top, tl.sum(total * tl.exp(largest - base), dim)
''',
    "welford_reduce": '''def _welford_reduce(value, mean, squares, count, first):
    more = count + 1
    centre = mean + (value - mean) / more
    return centre, squares + (value - mean) * (value - centre), more
''',
    "welford": '''def _welford(mean, squares, count, dim: tl.constexpr):
    more = tl.sum(count, dim)
    centre = tl.sum(mean * count, dim) / tl.where(more == 0, 1, more)
    off = mean - tl.expand_dims(centre, dim)
    return centre, tl.sum(squares + count * off * off, dim), more
''',
}  # fmt: skip


class Unread(Exception):
    """Why a text of Inductor's makes no solution, in a sentence."""


class Written(NamedTuple):
    """What Inductor made of a reference: its text, where each argument of its `call` comes from (`L['x']`), the
    tiles and launch options that its autotuner chose for each kernel, and the reference's numbers."""

    text: str
    origins: Sequence[str]
    chosen: Mapping[str, Mapping[str, int]]
    parameters: Sequence[str]
    numbers: Mapping[str, float]


def solution_source(written: Written, entry: str) -> str:
    """Take the Triton kernels that `torch.compile` writes for the reference in place of the solution's.

    The solution's function `entry` takes the reference's inputs in their order. Raises Unread.
    """
    tree = parse_python(written.text)
    kernels = {name: _Kernel(name, text) for name, text in _kernels(tree)}
    body = _host(tree, kernels, written)
    if not kernels:
        raise Unread("it has no Triton kernel")
    functions = "\n\n".join(kernel.source() for kernel in kernels.values())
    helpers = sorted({name for kernel in kernels.values() for name in kernel.runtime})
    own = "".join(f"\n@triton.jit\n{RUNTIME[name]}\n" for name in helpers)
    head = f"def {entry}({', '.join(written.parameters)}):"
    return "\n".join([IMPORTS, own, functions, EXPECT, head, *(f"    {line}" for line in body), ""])


def _kernels(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`name = async_compile.triton('name', '''source''', ...)`."""
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "async_compile.triton":
            assert isinstance(node, ast.Assign)
            yield ast.unparse(node.targets[0]), ast.literal_eval(value.args[1])


class _Kernel:
    """One of its kernels, with what its heuristics' decorator says of the grid."""

    def __init__(self, name: str, text: str) -> None:
        found = [n for n in parse_python(text).body if isinstance(n, ast.FunctionDef)]
        if len(found) != 1:
            raise Unread(f"{name} is not one function")
        self.name, self.node = name, found[0]
        said = {
            ast.literal_eval(key): value
            for decorator in self.node.decorator_list
            for inner in ast.walk(decorator)
            if isinstance(inner, ast.keyword) and isinstance(inner.value, ast.Dict)
            for key, value in zip(inner.value.keys, inner.value.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        grid = said.get("grid_type")
        if not isinstance(grid, ast.Constant) or grid.value not in GRIDS:
            raise Unread(f"the grid of {name} is {grid and ast.unparse(grid)}, which is not known")
        self.axes = GRIDS[grid.value]
        self.parameters = [argument.arg for argument in self.node.args.args]
        self.runtime: list[str] = []
        self.node.decorator_list = [parse_expression("triton.jit")]
        read = names_read(self.node)
        self.node.body = [
            one
            for one in self.node.body  # a constant that nobody reads could be set but once
            if not (isinstance(one, ast.AnnAssign) and ast.unparse(one.target) not in read)
        ]
        for inner in ast.walk(self.node):
            runtime, _, name = called(inner).rpartition(".")
            if runtime == "triton_helpers" and isinstance(inner, ast.Call):
                if name not in RUNTIME:
                    raise Unread(f"{self.name} calls triton_helpers.{name}, which is not known")
                self.runtime.append(name)
                inner.func = ast.Name(f"_{name}", ast.Load())

    def source(self) -> str:
        """Its text."""
        return ast.unparse(ast.fix_missing_locations(self.node)) + "\n"

    def launch(self, call: ast.Call, chosen: Mapping[str, int]) -> str:
        """`kernel[grid](...)` for Inductor's `kernel.run(...)`."""
        given = [ast.unparse(argument) for argument in call.args]
        bound = dict(zip(self.parameters, given, strict=False))
        options = {
            name: value for name, value in chosen.items()
            if name in self.parameters or name in ("num_warps", "num_stages")
        }  # fmt: skip
        lost = [name for name in self.parameters if name not in bound and name not in options]
        if lost:
            raise Unread(f"nobody says what {lost[0]} of {self.name} is")
        sizes = []
        for axis in self.axes:
            tile = f"{axis.upper()}BLOCK"
            step = f'META["{tile}"]' if tile in options else str(chosen.get(tile, 1))
            sizes.append(f"triton.cdiv({bound[f'{axis}numel']}, {step})")
        said = ", ".join([*given, *(f"{name}={value}" for name, value in options.items())])
        return f"{self.name}[lambda META: ({', '.join(sizes)},)]({said})"


class _Allocations(ast.NodeTransformer):
    """Inductor's names for allocations and views, as PyTorch's."""

    def __init__(self, device: str) -> None:
        self.device = device

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, words = ast.unparse(node.func), [ast.unparse(argument) for argument in node.args]
        if name == "empty_strided_cuda":
            size, stride, dtype = words
            text = f"torch.empty_strided({size}, {stride}, dtype={dtype}, device={self.device})"
            return parse_expression(text)
        if name == "reinterpret_tensor":
            base, size, stride, offset = words
            text = f"torch.as_strided({base}, {size}, {stride}, {base}.storage_offset() + {offset})"
            return parse_expression(text)
        return node


def _host(tree: ast.Module, kernels: Mapping[str, _Kernel], written: Written) -> list[str]:
    """The lines of the solution's function: its inputs by Inductor's names, then what `call` does."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if len(calls) != 1:
        raise Unread("it has no function `call`, or several")
    lines, tensors, read = [], list[str](), set[str]()
    names = _arguments(calls[0])
    if len(names) != len(written.origins):
        raise Unread(f"it takes {len(names)} arguments where {len(written.origins)} were seen")
    for name, origin in zip(names, written.origins, strict=True):
        known = ORIGIN.fullmatch(origin)
        if known is None or known[1] not in written.parameters:
            raise Unread(f"an argument of it is {origin}")
        lines.append(f"{name} = {known[1]}{known[2]}")
        read.add(known[1])
        tensors += [] if known[2] else [known[1]]
    if not tensors:
        raise Unread("it takes no tensor")
    for name, value in written.numbers.items():
        if name not in read:
            lines.append(f"if {name} != {value!r}:")
            lines.append(f'    raise ValueError("made for {name} = {value!r}")')
    renamed = _Allocations(f"{tensors[0]}.device")
    for statement in _statements(calls[0].body):
        lines += _line(renamed.visit(statement), kernels, written.chosen, set(names))
    return lines


def _arguments(call: ast.FunctionDef) -> list[str]:
    for node in call.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == "args":
            target = node.targets[0]
            assert isinstance(target, (ast.Tuple, ast.List))
            return [ast.unparse(name) for name in target.elts]
    return []


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from _statements(node.body)
        elif not isinstance(node, ast.Delete):
            yield node


def _line(
    node: ast.stmt, kernels: Mapping[str, _Kernel], chosen: Mapping[str, Mapping[str, int]],
    arguments: set[str],
) -> list[str]:  # fmt: skip
    text, value = ast.unparse(node), getattr(node, "value", None)
    if isinstance(node, ast.Assign):
        name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if ast.unparse(node.value) == "args" or name == "get_raw_stream":
            return []
    if isinstance(node, ast.Expr) and isinstance(value, ast.Call):
        name = ast.unparse(value.func)
        if name == "assert_size_stride":
            first, *said = (ast.unparse(argument) for argument in value.args[:3])
            return [f"_expect({first}, {', '.join(said)})"] if first in arguments else []
        if name in ("args.clear", "torch.cuda.set_device", "assert_alignment"):
            return []
        if name.endswith(".run") and name.removesuffix(".run") in kernels:
            kernel = kernels[name.removesuffix(".run")]
            return [kernel.launch(value, chosen.get(kernel.name, {}))]
        raise Unread(f"it calls {name}")
    if isinstance(node, ast.Return) and isinstance(value, ast.Tuple):
        text = f"return {ast.unparse(value.elts[0])}" if len(value.elts) == 1 else text
    elif not isinstance(node, (ast.Assign, ast.Return)):
        raise Unread(f"it has the statement `{text.splitlines()[0]}`")
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and not _is_plain(inner):
            raise Unread(f"it calls {ast.unparse(inner.func)}")
    return [text]


def _is_plain(call: ast.Call) -> bool:
    """A call that allocates, looks at a tensor in another way, or tells a size."""
    name = ast.unparse(call.func)
    return name in HOST_CALLS or name.rpartition(".")[2] in ("size", "stride", "storage_offset")
