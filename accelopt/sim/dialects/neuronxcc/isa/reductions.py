"""Instructions that combine elements: reductions, scans, statistics, the eight largest."""

from __future__ import annotations

import math
import warnings
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import TileAxis, variable
from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa.elementwise import destination
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import elementwise, indexed, reductions
from accelopt.sim.mask import NOTHING, Mask
from accelopt.sim.operators import ARITHMETIC, BITWISE, REDUCTIONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands


@builder.api
def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
) -> TensorView:
    """The reduction of a tile over free axes on the Vector engine."""
    source = builder.tile(data, "data")
    builder.check(reductions.TENSOR_REDUCE, data=source)
    name = op_name(op, REDUCTIONS)
    checks.check_bitwise(name, source)
    if negate and name in BITWISE:
        mend = "Leave negate out."
        builder.refuse(KernelValueError("negate", "a bitwise reduction cannot be negated.", mend))
    return reduce(name, source, axis, dtype, mask, keepdims, bool(negate))


def reduce(
    op: str, source: TensorView, axis: Any, dtype: Any, mask: Any, keepdims: bool,
    negate: bool = False,
) -> TensorView:  # fmt: skip
    """The reduction over `axis`. A 2-D tile gives (P, 1), higher ranks lose the axes (S7)."""
    axes = checks.reduced_axes(source, axis)
    shape = tuple(1 if n in axes else size for n, size in enumerate(source.tile_shape))
    result = builder.emit(
        reductions.TENSOR_REDUCE,
        result=builder.new_tile(shape, dtype or source.dtype),
        inputs={"data": source},
        attributes={"op": op, "axes": axes, "negate": negate},
        mask=builder.mask_of(mask),
    )
    if keepdims:
        return result
    kept = tuple(size for n, size in enumerate(source.tile_shape) if n not in axes)
    view = result.reshape(kept if len(kept) > 1 else (kept[0], 1))
    view.written_mask = result.written_mask
    return view


@builder.api
def tensor_partition_reduce(
    op: Any, data: Any, *, mask: Any = None, dtype: Any = None
) -> TensorView:
    """The reduction of a tile over its partitions on the GpSimd engine: (1, F)."""
    source = builder.tile(data, "data")
    builder.check("tensor_partition_reduce", data=source)
    allowed = frozenset("add maximum bitwise_or bitwise_and".split())
    name = op_name(op, allowed)
    checks.check_bitwise(name, source)
    result = builder.new_tile((1, *source.tile_shape[1:]), dtype or source.dtype)
    return builder.emit(reductions.PARTITION_REDUCE, result=result, inputs={"data": source},
                attributes={"op": name}, mask=builder.mask_of(mask))  # fmt: skip


@builder.api
def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
) -> TensorView:
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis, from r[-1] = initial."""
    left, right = builder.tile(data0, "data0"), builder.tile(data1, "data1")
    builder.check(reductions.TENSOR_TENSOR_SCAN, data0=left, data1=right, initial=initial)
    if math.prod(left.tile_shape) != math.prod(right.tile_shape):
        given = {"data0": left.tile_shape, "data1": right.tile_shape}
        builder.fail(operands.different_shapes(reductions.TENSOR_TENSOR_SCAN, given))
    promoted = dtypes.promote(left.dtype, right.dtype)
    return builder.emit(
        reductions.TENSOR_TENSOR_SCAN,
        result=builder.new_tile(left.tile_shape, dtype or promoted),
        inputs={
            "data0": left,
            "data1": assignment.fit(right, left.tile_shape),
            "initial": builder.column(initial),
        },
        attributes=checks.operator_attributes(op0, reverse0, op1, reverse1, ARITHMETIC),
        mask=builder.mask_of(mask),
    )


@builder.api
def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """(P, 6): count, mean and variance * count of the even, then of the odd elements."""
    source = builder.tile(data, "data")
    builder.check(reductions.BN_STATS, data=source)
    source, condition = _without_masked_tail(source, builder.mask_of(mask).simplified())
    result = builder.new_tile((source.tile_shape[0], 6), dtype or source.dtype)
    return builder.emit(reductions.BN_STATS, result=result, inputs={"data": source}, mask=condition)


def _without_masked_tail(source: TensorView, condition: Mask) -> tuple[TensorView, Mask]:
    """A tile whose mask says that its last columns are not there, without them, and the rest of the
    mask. The documentation rules such masks out (nisa.bn_stats: "mask is not supported in the reduced
    dimension"); AWS's own layernorm tutorial has one for every width that is no multiple of 512."""
    width = TileAxis(-1, source.tile_shape[-1])
    first = -len(source.tile_shape)
    columns = [c for c in condition.constraints if any(axis.position != first for axis in c.axes)]
    kept = width.extent
    for constraint in columns:
        rest = constraint + variable(width)
        if len(source.tile_shape) != 2 or rest.axes or constraint.coefficient(width) != -1:
            mend = "Mask partitions, or the last columns (i < size), or shrink the tile."
            builder.fail(
                KernelValueError("bn_stats_mask", "bn_stats masks its reduced dimension.", mend)
            )
        kept = min(kept, number_of(TileIndex(rest)) + 1)
    if not columns:
        return source, condition
    warnings.warn(
        f"{running_line()}: bn_stats masks its reduced dimension, which the documentation does not "
        "support; the masked columns are taken to be left out.",
        stacklevel=2,
    )
    source.access(condition)  # bounds are checked with the whole mask
    rows = Mask(tuple(c for c in condition.constraints if c not in columns))
    if kept <= 0:
        return source, NOTHING
    return source.replaced(shape=(source.tile_shape[0], kept), bounds=()), rows


@builder.api
def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """(P, 2): mean and variance of the groups that bn_stats described."""
    source = builder.tile(data, "data")
    builder.check(reductions.BN_AGGR, data=source)
    checks.check_triples(source)
    result = builder.new_tile((source.tile_shape[0], 2), dtype or source.dtype)
    return builder.emit(
        reductions.BN_AGGR, result=result, inputs={"data": source}, mask=builder.mask_of(mask)
    )


@builder.api
def max8(*, src: Any, mask: Any = None, dtype: Any = None) -> TensorView:
    """(P, 8): the eight largest elements of each partition, descending."""
    source = builder.tile(src, "src")
    builder.check(indexed.MAX8, src=source)
    result = builder.new_tile((source.tile_shape[0], 8), dtype or source.dtype)
    return builder.emit(
        indexed.MAX8, result=result, inputs={"data": source}, mask=builder.mask_of(mask)
    )


@builder.api
def nc_find_index8(*, data: Any, vals: Any, mask: Any = None, dtype: Any = None) -> TensorView:
    """(P, 8): where each of eight values first occurs in its partition of data."""
    source, values = builder.tile(data, "data"), builder.tile(vals, "vals")
    builder.check("nc_find_index8", data=source, vals=values)
    element = builder.parse_dtype(dtype or dtypes.UINT32)
    if element not in (dtypes.UINT16, dtypes.UINT32):
        mend = "Use nl.uint16 or nl.uint32."
        builder.refuse(
            KernelTypeError("index_dtype", f"nc_find_index8 cannot give {element}.", mend)
        )
    return builder.emit(
        indexed.FIND_INDEX8,
        result=builder.new_tile((source.tile_shape[0], 8), element),
        inputs={"data": source, "values": values.reshape((values.tile_shape[0], 8))},
        mask=builder.mask_of(mask),
    )


@builder.api
def nc_match_replace8(
    *,
    data: Any,
    vals: Any,
    imm: Any,
    dst_idx: Any = None,
    mask: Any = None,
    dtype: Any = None,
) -> TensorView:
    """data with the first occurrence of each of eight values replaced by `imm`; the positions go
    into `dst_idx`."""
    source, values = builder.tile(data, "data"), builder.tile(vals, "vals")
    builder.check("nc_match_replace8", data=source, vals=values, dst_idx=dst_idx)
    index = destination(dst_idx, "dst_idx")
    partitions = values.tile_shape[0]
    return builder.emit(
        indexed.MATCH_REPLACE8,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "values": values.reshape((partitions, 8))},
        outputs={"indices": None if index is None else index.reshape((partitions, 8))},
        attributes={"replacement": builder.number(imm)},
        mask=builder.mask_of(mask),
    )


@builder.api
def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """data with elements zeroed at random with probability `prob`, a number or (P, 1)."""
    source = builder.tile(data, "data")
    builder.check(elementwise.DROPOUT, data=source, prob=prob)
    integers = dtypes.is_integer(source.dtype)
    if isinstance(prob, TensorView) and integers and prob.dtype != dtypes.FLOAT32:
        given = dtypes.name_of(prob.dtype)
        builder.refuse(operands.unsupported_format(elementwise.DROPOUT, "prob", given, "float32"))
    return builder.emit(
        elementwise.DROPOUT,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "probability": builder.column(prob)},
        mask=builder.mask_of(mask),
    )


@builder.api
def sequence_bounds(*, segment_ids: Any, dtype: Any = None) -> TensorView:
    """(1, 2, F): where the segment of each element starts and ends."""
    source = builder.tile(segment_ids, "segment_ids")
    builder.check(indexed.SEQUENCE_BOUNDS, segment_ids=source)
    if source.tile_shape[0] != 1:
        builder.fail(operands.dimension_too_large(indexed.SEQUENCE_BOUNDS, "segment_ids", source.tile_shape,
                                        source.tile_shape[0], 1))  # fmt: skip
    result = builder.new_tile((1, 2, math.prod(source.tile_shape[1:])), dtype or source.dtype)
    flat = source.reshape((1, math.prod(source.tile_shape[1:])))
    return builder.emit(indexed.SEQUENCE_BOUNDS, result=result, inputs={"segment_ids": flat},
                engine=Engine.GPSIMD)  # fmt: skip
