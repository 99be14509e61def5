"""`dst[...] = value` and `dst += value`: assignments as instructions that may fold into others."""

from __future__ import annotations

import itertools
from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import fail, refuse
from accelopt.sim.dialects.neuronxcc.index import broadcast_shapes
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelValueError, Unsupported
from accelopt.sim.mask import Mask
from accelopt.sim.program import Instruction, Tensor
from accelopt.sim.rules import indexing, kernels, operands
from accelopt.sim.tracer import Tracer, current


def assign(target: TensorView, value: Any) -> None:
    """Copies a tile or number into a view. HBM is written by nl.store only. Where an instruction's
    mask left its result undefined, the target keeps its elements (S21)."""
    if not target.on_chip:
        mend = "Bring a tile to HBM with nl.store(dst, tile)."
        fail(operands.wrong_memory("destination", repr(target), "SBUF or PSUM", mend))
    check_writable(target)
    if builder.is_number(value):
        builder.fill(target, value)
        return
    source = builder.tile(value, "value")
    if source.gathered:
        fail(indexing.copy_between_runtime_indices())
    if _goes_on(target, source):
        return
    fitted = fit(source, target.tile_shape)
    builder.copied(target, fitted, assigns=True, mask=source.written_mask)


IDENTITIES = {"add": 0, "subtract": 0, "multiply": 1}
"""What an initial value may be that changes nothing."""


def _goes_on(target: TensorView, source: TensorView) -> bool:
    """`dst[...] = nl.loop_reduce(...)`: what dst holds before the loop is the first operand (S14). A
    fresh tile takes the first iteration's value; into another one every iteration is combined, and
    then this is done and True."""
    tracer = current()
    reduction = tracer.reductions.pop(source.storage, None)
    storage = target.storage
    if reduction is None:
        return False
    # Of a tile with blocks, and of one that a reduction was assigned to before, it is not told which
    # part an earlier instruction wrote.
    filled = storage in tracer.written and not storage.block_rank
    fresh = storage.fill is None or storage.fill == IDENTITIES.get(reduction.op)
    if fresh and (not filled or storage in tracer.reduced):
        tracer.reduced.add(storage)
        return False
    if not _taken_back(tracer, source.storage):
        what = "loop_reduce into a tile with an initial value, and into another"
        mend = "Assign the result of nl.loop_reduce where it is called, to one tile."
        raise Unsupported(what, mend, running_line())
    data = fit(builder.tile(reduction.data, "x"), target.tile_shape)
    builder.of_two(reduction.op, target, target, data, reduction.mask)
    return True


def _taken_back(tracer: Tracer, made: Tensor) -> bool:
    """Takes the last instruction back, which made this tensor; False where another one did."""
    nodes = tracer.bodies[-1].nodes
    last = nodes[-1] if nodes else None
    if not isinstance(last, Instruction) or last.result.tensor is not made:
        return False
    nodes.pop()
    tracer.home.pop(made).tensors.remove(made)
    tracer.accumulators = {k: t for k, t in tracer.accumulators.items() if t is not made}
    return True


def accumulate(target: TensorView, value: Any, op: str) -> TensorView:
    """`target op= value` in place."""
    builder.tile(target, "target")
    check_writable(target)
    if isinstance(value, TensorView):
        builder.check_same_partitions(target=target, value=value)
        fitted = fit(builder.tile(value, "value"), target.tile_shape)
        builder.of_two(op, target, target, fitted, value.written_mask, assigns=op == "add")
    else:
        builder.with_operand(op, target, target, value)
    target.updated_in_place = True
    return target


def fit(value: TensorView, shape: tuple[int, ...]) -> TensorView:
    """The value with the target's shape: axes of length 1 repeat, free axes that it lacks on the right
    too; the same elements may fall into other free axes."""
    own = value.tile_shape
    if own == shape:
        return value
    if _without_ones(own) == _without_ones(shape):
        return _moved_axes(value, shape)
    lacking = len(shape) - len(own)
    repeats = all(mine in (1, wanted) for mine, wanted in zip(own, shape, strict=False))
    if lacking > 0 and repeats and value.on_chip:
        shaped = (*own, *(1,) * lacking), (*value.strides, *(0,) * lacking)
        padded = value.replaced(shape=shaped[0], strides=shaped[1])
    else:
        padded = value
    try:
        fitted = padded.broadcast_to(shape)
    except KernelValueError:
        fail(operands.destination_too_small(value.tile_shape, shape))
    fitted.written_mask = value.written_mask
    return fitted


def stored(target: TensorView, value: TensorView, mask: Mask) -> tuple[TensorView, TensorView]:
    """Both sides of a store with one shape. Axes of length 1 may stand elsewhere in HBM, which has no
    partitions: the target takes the tile's, unless the mask counts along its own."""
    alike = _without_ones(value.tile_shape) == _without_ones(target.shape)
    if alike and not target.gathered and not mask.constraints:
        target = _moved_axes(target, value.tile_shape)
    return target, fit(value, target.shape)


def common_shape(*views: TensorView) -> tuple[int, ...]:
    """The shape to which tiles of an elementwise operation are repeated. The first axis of each is
    its partitions, so that free axes are missing on the right (aws-neuron-sdk issue 1138: a tile
    (P, A) times one of (P, A, B)); where that does not fit, NumPy's rule holds. Raises
    KernelSyntaxError where neither does."""
    shapes = [view.tile_shape for view in views]
    rank = max(map(len, shapes))
    axes = [set(sizes) - {1} for sizes in itertools.zip_longest(*shapes, fillvalue=1)]
    if all(len(sizes) <= 1 for sizes in axes) and any(len(s) < rank for s in shapes):
        return tuple(next(iter(sizes), 1) for sizes in axes)
    return broadcast_shapes(*shapes, what="tiles")


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
