"""What a kernel gives back: returned tensors, or the parameters that an older kernel writes."""

from __future__ import annotations

import ast
import itertools
import math
import textwrap
from collections.abc import Callable
from typing import Any

from accelopt.algorithm.linear import row_major
from accelopt.parsing import source_lines
from accelopt.sim.affine import ZERO
from accelopt.sim.dialects.neuronxcc.builder import fail, transfer
from accelopt.sim.dialects.neuronxcc.poison import Poison
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.errors import KernelTypeError
from accelopt.sim.program import Buffer, Tensor
from accelopt.sim.rules import kernels, operands
from accelopt.sim.tracer import Returned, Tracer


def returns_something(function: Callable[..., Any]) -> bool:
    """True unless the source shows that the function returns nothing."""
    try:
        tree = ast.parse(textwrap.dedent("".join(source_lines(function)[0])))
    except (OSError, TypeError, SyntaxError):
        return True
    definition = tree.body[0]
    inner = [node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef)][1:]
    hidden = {node for function in inner for node in ast.walk(function)}
    return any(
        isinstance(node, ast.Return) and node.value is not None and node not in hidden
        for node in ast.walk(definition)
    )


def collect(tracer: Tracer, returned: Any, *, legacy: bool, on_chip_allowed: bool) -> Returned:
    """The Program's results."""
    if tracer.demanded:  # the trace starts again
        return Returned()
    leaves = [leaf for leaf in _leaves(returned) if not isinstance(leaf, Poison)]
    found = [_result(tracer, leaf, on_chip_allowed) for leaf in leaves]
    shapes = [_new_shape(leaf) for leaf in leaves]
    if all(tensor is None for tensor in found):
        found, shapes = [], []
        if legacy:
            found = [tensor for tensor in tracer.arguments if tensor in tracer.written]
        if not found:
            tracer.refuse(kernels.no_output())
    for tensor in tracer.arguments:
        if tensor in tracer.must_return and tensor not in found:
            tracer.refuse(kernels.mutable_not_returned(tensor.name))
    for result in found:
        unwritten = result is not None and result not in tracer.written and not tracer.broken
        if unwritten and result not in tracer.must_return:
            tracer.refuse(kernels.output_not_written(result.name if result else ""))
    reshaped = tuple(shapes) if any(shapes) else ()
    return Returned(tuple(found), reshaped, isinstance(returned, (tuple, list)))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return list(itertools.chain.from_iterable(_leaves(item) for item in value))
    return [value]


def _result(tracer: Tracer, leaf: Any, on_chip_allowed: bool) -> Tensor | None:
    if leaf is None:
        return None
    if not isinstance(leaf, TensorView):
        mend = "Return tensors made with buffer=nl.shared_hbm."
        problem = f"the kernel returns a {type(leaf).__name__}, not a tensor."
        fail(KernelTypeError("return_type", problem, mend))
    if not leaf.on_chip:
        if not _is_whole(leaf):
            mend = "Return the whole tensor, or store the part into a tensor of its own."
            problem = f"the kernel returns a part of tensor '{leaf.name}' {leaf.storage.shape}."
            fail(KernelTypeError("return_type", problem, mend))
        return leaf.storage
    if not on_chip_allowed:
        mend = "nl.store it into a tensor made with buffer=nl.shared_hbm and return that."
        fail(operands.wrong_memory("return value", repr(leaf), "HBM", mend))
    # The simulation mode hands out on-chip tiles as they are.
    out = whole(
        tracer.declare(leaf.shape, leaf.dtype, Buffer.HBM, name=leaf.name, body=tracer.bodies[0])
    )
    transfer(out, leaf)
    return out.storage


def _is_whole(view: TensorView) -> bool:
    """True when a view of a tensor in HBM has all its elements in order."""
    long = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    expected = row_major(tuple(n for n, _ in long))
    return (
        math.prod(view.shape) == math.prod(view.storage.shape)
        and view.offset == ZERO
        and tuple(stride for _, stride in long) == expected
        and view.dtype == view.storage.dtype
        and not view.gathered
    )


def _new_shape(leaf: Any) -> tuple[int, ...] | None:
    """The shape of a result that the kernel reshaped before it returned it."""
    if not isinstance(leaf, TensorView) or leaf.on_chip or leaf.shape == leaf.storage.shape:
        return None
    return leaf.shape
