"""`dst[...] = value` and `dst += value`: assignments as instructions that may fold into others."""

from __future__ import annotations

from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import KernelValueError, Unsupported
from accelopt.sim.folding import ASSIGN
from accelopt.sim.nki import builder
from accelopt.sim.nki.builder import fail, refuse
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.rules import indexing, kernels, operands
from accelopt.sim.tracer import current


def assign(target: TensorView, value: Any) -> None:
    """Copies a tile or number into a view. HBM is written by nl.store only. Where an instruction's
    mask left its result undefined, the target keeps its elements (S21)."""
    if not target.on_chip:
        mend = "Use nl.store(dst, value)."
        fail(operands.wrong_memory("destination", repr(target), "SBUF or PSUM", mend))
    check_writable(target)
    if builder.is_number(value):
        builder.emit("memset", result=target, attributes={"value": builder.number(value)})
        return
    source = builder.tile(value, "value")
    if source.indirect:
        fail(indexing.copy_between_runtime_indices())
    _check_reduction(target, source)
    fitted = fit(source, target.tile_shape)
    builder.emit(
        "copy",
        result=target,
        inputs={"data": fitted},
        attributes={ASSIGN: True},
        mask=source.written_mask,
    )


IDENTITIES = {"add": 0, "subtract": 0, "multiply": 1}
"""What an initial value may be that changes nothing."""


def _check_reduction(target: TensorView, source: TensorView) -> None:
    """`dst[...] = nl.loop_reduce(...)`: what dst holds before the loop is the first operand (S14). A
    fresh tile takes the first iteration's value; another initial value is not there yet."""
    tracer = current()
    op = tracer.reductions.pop(source.storage, None)
    storage = target.storage
    if op is None:
        return
    # Of a tile with blocks, and of one that a reduction was assigned to before, it is not told which
    # part an earlier instruction wrote.
    filled = storage in tracer.written and not storage.block_rank
    if filled and storage not in tracer.reduced:
        what = "loop_reduce into a tile that an earlier instruction wrote"
    elif storage.fill is not None and storage.fill != IDENTITIES.get(op):
        what = f"loop_reduce into a tile that starts at {storage.fill}"
    else:
        tracer.reduced.add(storage)
        return
    mend = "Declare dst with nl.ndarray, and combine it with the initial value after the loop."
    raise Unsupported(what, mend, running_line())


def accumulate(target: TensorView, value: Any, op: str) -> TensorView:
    """`target op= value` in place."""
    builder.tile(target, "target")
    check_writable(target)
    if isinstance(value, TensorView):
        builder.check_same_partitions(target=target, value=value)
        builder.emit(
            "tensor_tensor",
            result=target,
            inputs={"data1": target, "data2": fit(builder.tile(value, "value"), target.tile_shape)},
            attributes={"op": op, **({ASSIGN: True} if op == "add" else {})},
            mask=value.written_mask,
        )
    else:
        builder.emit(
            "tensor_scalar",
            result=target,
            inputs={"data": target, "operand0": value},
            attributes={"op0": op, "reverse0": False},
        )
    target.updated_in_place = True
    return target


def fit(value: TensorView, shape: tuple[int, ...]) -> TensorView:
    """The value with the target's shape: axes of length 1 repeat; the same elements may fall into
    other free axes."""
    if value.tile_shape == shape:
        return value
    if _without_ones(value.tile_shape) == _without_ones(shape):
        return _moved_axes(value, shape)
    try:
        fitted = value.broadcast_to(shape)
    except KernelValueError:
        fail(operands.destination_too_small(value.tile_shape, shape))
    fitted.written_mask = value.written_mask
    return fitted


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _moved_axes(value: TensorView, shape: tuple[int, ...]) -> TensorView:
    """The axes longer than 1 in the target's positions."""
    steps = iter(s for n, s in zip(value.tile_shape, value.strides, strict=True) if n != 1)
    return value.replaced(shape=shape, strides=tuple(0 if n == 1 else next(steps) for n in shape))


def check_writable(target: TensorView) -> None:
    """Inputs are read-only unless declared mutable; constants always are."""
    tracer = current()
    storage = target.storage
    read_only = storage in tracer.arguments and storage not in tracer.mutable
    if read_only or storage.data is not None:
        refuse(kernels.immutable_parameter(storage.name))
