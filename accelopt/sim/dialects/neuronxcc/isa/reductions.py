"""Instructions that combine elements: reductions, scans, statistics, the eight largest."""

from __future__ import annotations

import math
import warnings
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import TileAxis, variable
from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa.shared_calls import Result, instruction
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import elementwise, indexed, reductions
from accelopt.sim.mask import NOTHING, Mask
from accelopt.sim.operators import ARITHMETIC, BITWISE, REDUCTIONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands


@instruction("op data axis")
def tensor_reduce(
    result: Result, op: Any, data: TensorView, axis: Any, negate: bool = False, keepdims: bool = False
) -> TensorView:  # fmt: skip
    """The reduction of data over free axes, in `nki` its last ones, on the Vector engine."""
    name = op_name(op, REDUCTIONS)
    checks.check_bitwise(name, data)
    if negate and name in BITWISE:
        mend = "Leave negate out."
        builder.refuse(KernelValueError("negate", "a bitwise reduction cannot be negated.", mend))
    return reduce(result, name, data, axis, keepdims, bool(negate))


def reduce(
    result: Result, op: str, source: TensorView, axis: Any, keepdims: bool = False,
    negate: bool = False,
) -> TensorView:  # fmt: skip
    """The reduction over `axis`; in `nki` these are the last dimensions (NKI 0.3). A 2-D tile gives (P, 1),
    higher ranks lose the axes (S7)."""
    axes, rank = checks.reduced_axes(source, axis), len(source.tile_shape)
    if result.in_nki and axes != tuple(range(axes[0], rank)):
        said = f"axis {axis} of {source.shape} are not its last dimensions."
        builder.fail(KernelValueError("reduce_axis", said, "Use .permute to move them last."))
    shape = tuple(1 if n in axes else size for n, size in enumerate(source.tile_shape))
    made = result.emit(
        reductions.TENSOR_REDUCE,
        result.of(reductions.TENSOR_REDUCE, shape, source.dtype, source),
        {"data": source},
        {"op": op, "axes": axes, "negate": negate},
    )
    if keepdims or result.in_nki:
        return made
    kept = tuple(size for n, size in enumerate(source.tile_shape) if n not in axes)
    view = made.reshape(kept if len(kept) > 1 else (kept[0], 1))
    view.written_mask = made.written_mask
    return view


@instruction("op data", in_sbuf=True)
def tensor_partition_reduce(result: Result, op: Any, data: TensorView) -> TensorView:
    """(1, F): the reduction of data over its partitions on the GpSimd engine."""
    name = op_name(op, frozenset("add maximum bitwise_or bitwise_and".split()))
    checks.check_bitwise(name, data)
    target = result.of("tensor_partition_reduce", (1, *data.tile_shape[1:]), data.dtype)
    return result.emit(reductions.PARTITION_REDUCE, target, {"data": data}, {"op": name})


@instruction("data0 data1 initial op0 op1 reverse0 reverse1")
def tensor_tensor_scan(
    result: Result, data0: TensorView, data1: TensorView, initial: Any, op0: Any, op1: Any,
    reverse0: bool = False, reverse1: bool = False,
) -> TensorView:  # fmt: skip
    """r, where r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axes, from r[-1] = initial."""
    promoted = dtypes.promote(data0.dtype, data1.dtype)
    target, left, right = result.alike(
        reductions.TENSOR_TENSOR_SCAN, promoted, data0=data0, data1=data1
    )
    return result.emit(
        reductions.TENSOR_TENSOR_SCAN,
        target,
        {"data0": left, "data1": right, "initial": result.column(initial, "initial", left)},
        checks.operator_attributes(op0, reverse0, op1, reverse1, ARITHMETIC),
    )


@instruction("data")
def bn_stats(result: Result, data: TensorView) -> TensorView:
    """(P, 6): count, mean and variance * count of the even, then of the odd elements."""
    if result.mask.constraints:
        data, result.mask = _without_masked_tail(data, result.mask.simplified())
    target = result.of(reductions.BN_STATS, (data.tile_shape[0], 6), data.dtype, data)
    return result.emit(reductions.BN_STATS, target, {"data": data})


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


@instruction("data")
def bn_aggr(result: Result, data: TensorView) -> TensorView:
    """(P, 2): mean and variance of the groups that bn_stats described."""
    checks.check_triples(data)
    target = result.of(reductions.BN_AGGR, (data.tile_shape[0], 2), data.dtype, data)
    return result.emit(reductions.BN_AGGR, target, {"data": data})


@instruction()
def max8(result: Result, src: TensorView) -> TensorView:
    """(P, 8): the eight largest elements of each partition, descending."""
    target = result.of(indexed.MAX8, (src.tile_shape[0], 8), src.dtype, src)
    return result.emit(indexed.MAX8, target, {"data": src})


@instruction()
def nc_find_index8(result: Result, data: TensorView, vals: TensorView) -> TensorView:
    """(P, 8): where each of eight values first occurs in its partition of data."""
    target = result.of("nc_find_index8", (data.tile_shape[0], 8), dtypes.UINT32, data)
    if target.dtype not in (dtypes.UINT16, dtypes.UINT32):
        said = f"nc_find_index8 cannot give {dtypes.name_of(target.dtype)}."
        builder.refuse(KernelTypeError("index_dtype", said, "Use nl.uint16 or nl.uint32."))
    inputs = {"data": data, "values": vals.reshape((vals.tile_shape[0], 8))}
    attributes: dict[str, Any] = {"successive": True} if result.in_nki else {}
    return result.emit(indexed.FIND_INDEX8, target, inputs, attributes)


@instruction()
def nc_match_replace8(
    result: Result, data: TensorView, vals: TensorView, imm: Any, dst_idx: Any = None
) -> TensorView:
    """data with the first occurrence of each of eight values replaced by `imm`; the positions go
    into `dst_idx`."""
    target, data = result.alike("nc_match_replace8", data.dtype, data=data)
    shape = (vals.tile_shape[0], 8)
    index = None if dst_idx is None else result.written(dst_idx, "dst_idx").reshape(shape)
    last: dict[str, Any] = {"from_last": True} if result.in_nki else {}
    return result.emit(
        indexed.MATCH_REPLACE8,
        target,
        {"data": data, "values": vals.reshape(shape)},
        {"replacement": builder.number(imm), **last},
        {"indices": index},
    )


@instruction("data prob")
def dropout(result: Result, data: TensorView, prob: Any) -> TensorView:
    """data with elements zeroed at random with probability `prob`, a number or (P, 1)."""
    target, data = result.alike(elementwise.DROPOUT, data.dtype, data=data)
    column = result.column(prob, "prob", data)
    if result.in_nki:
        checks.check_format(elementwise.DROPOUT, "dst", target, data)
    elif dtypes.is_integer(data.dtype) and isinstance(column, TensorView):
        checks.check_has_format(elementwise.DROPOUT, "prob", column, dtypes.FLOAT32)
    return result.emit(elementwise.DROPOUT, target, {"data": data, "probability": column})


@instruction(keywords="dtype")
def sequence_bounds(result: Result, segment_ids: TensorView) -> TensorView:
    """(1, 2, F): where the segment of each element starts and ends."""
    shape = segment_ids.tile_shape
    if shape[0] != 1:
        limit = (indexed.SEQUENCE_BOUNDS, "segment_ids", shape, shape[0], 1)
        builder.fail(operands.dimension_too_large(*limit))
    elements = math.prod(shape[1:])
    target = result.of(indexed.SEQUENCE_BOUNDS, (1, 2, elements), segment_ids.dtype)
    flat = {"segment_ids": segment_ids.reshape((1, elements))}
    return result.emit(indexed.SEQUENCE_BOUNDS, target, flat, engine=Engine.GPSIMD)
