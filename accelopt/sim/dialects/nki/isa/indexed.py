"""Instructions of nki.isa driven by positions: iota, selections, gathers, shuffles."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import Affine
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import check, emit, fail, refuse, tile
from accelopt.sim.dialects.neuronxcc.index import TileIndex, tile_axis
from accelopt.sim.dialects.neuronxcc.isa import indexed as shared
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import alike, destination, in_shape, instruction
from accelopt.sim.dialects.nki.isa.destinations import destinations_first
from accelopt.sim.dialects.nki.isa.enums import reduce_cmd as commands
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import indexed
from accelopt.sim.mask import Mask
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.rules import operands

globals().update(
    destinations_first(shared, __name__, range_select={"reduce_cmd": commands.reset_reduce})
)


def _pattern(
    name: str, pattern: Any, target: TensorView
) -> tuple[list[tuple[int, int]], TensorView]:
    """[[step, num], ...] as pairs, and the destination with a free axis for each of them."""
    pairs = [(int(step), int(number)) for step, number in pattern]
    if len(pairs) > 4:
        said = f"{name} takes a pattern of up to four dimensions, not {len(pairs)}."
        fail(KernelValueError("pattern", said))
    shape = (target.tile_shape[0], *(number for _, number in pairs))
    if math.prod(shape) != math.prod(target.tile_shape):
        said = f"{name}'s pattern has {math.prod(shape[1:])} elements, and dst is {target.shape}."
        fail(KernelValueError("pattern", said))
    return pairs, in_shape(name, target, shape, "pattern")


def _expression(
    pairs: list[tuple[int, int]], shape: tuple[int, ...], offset: Any, channel_multiplier: Any
) -> Affine:
    """offset + channel * multiplier + the pattern, over the axes of a tile."""
    total = offset.affine if isinstance(offset, TileIndex) else Affine(int(offset))
    total = total + tile_axis(-len(shape), shape[0]) * int(channel_multiplier)
    for at, (step, number) in enumerate(pairs):
        total = total + tile_axis(at - len(pairs), number) * step
    return total


@instruction
def iota(dst: Any, pattern: Any, offset: Any = 0, channel_multiplier: Any = 0) -> None:
    """dst = offset + partition * channel_multiplier + the pattern's steps, computed in int32."""
    target = destination(dst, psum=False)
    pairs, fitted = _pattern(indexed.IOTA, pattern, target)
    expression = _expression(pairs, fitted.tile_shape, offset, channel_multiplier)
    emit(indexed.IOTA, result=fitted, attributes={"expression": expression})


@instruction
def affine_select(
    dst: Any,
    pattern: Any,
    channel_multiplier: Any,
    on_true_tile: Any,
    on_false_value: Any,
    cmp_op: Any = "equal",
    offset: Any = 0,
) -> None:
    """dst = on_true_tile where the pattern's value compares with 0, elsewhere a number."""
    if builder.is_number(on_true_tile) and isinstance(on_false_value, TensorView):
        mend = "Since NKI 0.3 offset is a keyword: affine_select(dst, pattern, channel_multiplier, "
        fail(KernelTypeError("arguments", "affine_select() has an offset in third place.",
                             f"{mend}on_true_tile, on_false_value, offset=offset)."))  # fmt: skip
    target, source = destination(dst, psum=False), tile(on_true_tile, "on_true_tile")
    check(indexed.AFFINE_SELECT, on_true_tile=source)
    builder.in_reach_of_gpsimd(on_true_tile=source)
    pairs, fitted = _pattern(indexed.AFFINE_SELECT, pattern, target)
    fitted, source = alike(indexed.AFFINE_SELECT, fitted, on_true_tile=source)
    if fitted.tile_shape[1:] != tuple(number for _, number in pairs):
        said = f"pattern {pattern} does not follow the layout of dst {target.shape}."
        fail(KernelValueError("pattern", said))
    value = _expression(pairs, fitted.tile_shape, offset, channel_multiplier)
    predicate, negate = _compared(op_name(cmp_op, COMPARISONS), value)
    emit(
        indexed.AFFINE_SELECT,
        result=fitted,
        inputs={"data": source},
        attributes={
            "predicate": predicate,
            "negate": negate,
            "on_false": builder.number(on_false_value),
        },
    )


def _compared(op: str, value: Affine) -> tuple[Mask, bool]:
    """`value op 0` as a mask, and whether it is the mask's opposite."""
    if op in ("equal", "not_equal"):
        return Mask((value, value * -1)), op == "not_equal"
    turned = value if op in ("greater", "greater_equal") else value * -1
    return Mask((turned - 1 if op in ("greater", "less") else turned,)), False


@instruction
def nc_n_gather(dst: Any, data: Any, indices: Any) -> None:
    """dst[p, i] = data[p].flat[indices[p, i]], on the GpSimd engine."""
    target, source, places = destination(dst), tile(data, "data"), tile(indices, "indices")
    builder.in_reach_of_gpsimd(dst=target, data=source, indices=places)
    if places.dtype != dtypes.UINT32:
        given = dtypes.name_of(places.dtype)
        refuse(operands.unsupported_format("nc_n_gather", "indices", given, "uint32"))
    if target.dtype != source.dtype:
        said = f"dst is {target.dtype}, data is {source.dtype}."
        refuse(KernelTypeError("gather_format", said))
    builder.check_same_partitions(data=source)
    target, places = alike("nc_n_gather", target, indices=places)
    builder.check_same_partitions(dst=target, data=source)
    emit(indexed.GATHER, result=target, inputs={"data": source, "indices": places})
