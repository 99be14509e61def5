"""Instructions of nki.isa that combine elements: reductions, scans, statistics, the eight largest."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import check, emit, fail, fill, refuse, tile
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import (
    alike,
    destination,
    generation,
    in_shape,
    instruction,
    member,
    scalar_or_column,
)
from accelopt.sim.dialects.nki.isa.enums import reduce_cmd as commands
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import elementwise, indexed, reductions
from accelopt.sim.operators import ARITHMETIC, BITWISE, REDUCTIONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands

CORE_PARTITIONS = 16
"""Partitions of each of the GpSimd engine's eight cores."""
NEUTRAL = {
    "add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": float("-inf"), "minimum": float("inf"),
}  # fmt: skip


@instruction
def tensor_reduce(
    dst: Any, op: Any, data: Any, axis: Any, negate: bool = False, keepdims: bool = False
) -> None:
    """dst = the reduction of data over its last free axes, on the Vector engine."""
    target, source = destination(dst), tile(data, "data")
    name = op_name(op, REDUCTIONS)
    checks.check_bitwise(name, source)
    if negate and name in BITWISE:
        refuse(KernelValueError("negate", "a bitwise reduction cannot be negated."))
    reduce_into(target, name, source, axis, bool(negate))


def reduce_into(
    target: TensorView, op: str, source: TensorView, axis: Any, negate: bool = False
) -> None:
    """The reduction over `axis`, which must be the last dimensions (NKI 0.3)."""
    rank = len(source.tile_shape)
    axes = checks.reduced_axes(source, axis)
    if axes != tuple(range(axes[0], rank)):
        said = f"axis {axis} of {source.shape} are not its last dimensions."
        fail(KernelValueError("reduce_axis", said, "Use .permute to move them last."))
    shape = (*source.tile_shape[: axes[0]], *(1,) * len(axes))
    builder.check_same_partitions(dst=target, data=source)
    fitted = in_shape(reductions.TENSOR_REDUCE, target, shape, "result")
    emit(reductions.TENSOR_REDUCE, result=fitted, inputs={"data": source},
         attributes={"op": op, "axes": axes, "negate": negate})  # fmt: skip


@instruction
def tensor_partition_reduce(dst: Any, op: Any, data: Any) -> None:
    """dst (1, F) = the reduction of data over its partitions, on the GpSimd engine."""
    target, source = destination(dst, psum=False), tile(data, "data")
    check("tensor_partition_reduce", data=source)
    name = op_name(op, frozenset("add maximum bitwise_or bitwise_and".split()))
    checks.check_bitwise(name, source)
    shape = (1, *source.tile_shape[1:])
    if math.prod(target.tile_shape) != math.prod(shape) or target.tile_shape[0] != 1:
        fail(operands.different_shapes("tensor_partition_reduce",
                                       {"dst": target.tile_shape, "result": shape}))  # fmt: skip
    emit(reductions.PARTITION_REDUCE, result=_shaped(target, shape), inputs={"data": source},
         attributes={"op": name})  # fmt: skip


def _shaped(view: TensorView, shape: tuple[int, ...]) -> TensorView:
    return view if view.tile_shape == shape else view.reshape(shape)


@instruction
def tensor_tensor_scan(
    dst: Any,
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
) -> None:
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axes, from r[-1] = initial."""
    left, right = tile(data0, "data0"), tile(data1, "data1")
    target, left, right = alike(
        reductions.TENSOR_TENSOR_SCAN, destination(dst), data0=left, data1=right
    )
    check(reductions.TENSOR_TENSOR_SCAN, data0=left, data1=right)
    emit(
        reductions.TENSOR_TENSOR_SCAN,
        result=target,
        inputs={
            "data0": left,
            "data1": right,
            "initial": scalar_or_column(initial, "initial", left),
        },
        attributes=checks.operator_attributes(op0, reverse0, op1, reverse1, ARITHMETIC),
    )


def _columns(target: TensorView, source: TensorView, count: int, name: str) -> TensorView:
    """A destination of `count` elements a partition, as (P, count)."""
    builder.check_same_partitions(dst=target, data=source)
    if math.prod(target.tile_shape[1:]) != count:
        wanted = (source.tile_shape[0], count)
        fail(operands.different_shapes(name, {"dst": target.tile_shape, "result": wanted}))
    return _shaped(target, (target.tile_shape[0], count))


@instruction
def bn_stats(dst: Any, data: Any) -> None:
    """dst (P, 6) = count, mean and variance * count of the even, then of the odd elements."""
    target, source = destination(dst), tile(data, "data")
    check(reductions.BN_STATS, data=source)
    emit(
        reductions.BN_STATS,
        result=_columns(target, source, 6, reductions.BN_STATS),
        inputs={"data": source},
    )


@instruction
def bn_aggr(dst: Any, data: Any) -> None:
    """dst (P, 2) = mean and variance of the groups that bn_stats described."""
    target, source = destination(dst), tile(data, "data")
    check(reductions.BN_AGGR, data=source)
    checks.check_triples(source)
    emit(
        reductions.BN_AGGR,
        result=_columns(target, source, 2, reductions.BN_AGGR),
        inputs={"data": source},
    )


@instruction
def max8(dst: Any, src: Any) -> None:
    """dst (P, 8) = the eight largest elements of each partition, descending."""
    target, source = destination(dst), tile(src, "src")
    check(indexed.MAX8, src=source)
    emit(indexed.MAX8, result=_columns(target, source, 8, indexed.MAX8), inputs={"data": source})


@instruction
def nc_find_index8(dst: Any, data: Any, vals: Any) -> None:
    """dst (P, 8) = where each of eight values first occurs in its partition of data."""
    target, source, values = destination(dst), tile(data, "data"), tile(vals, "vals")
    check("nc_find_index8", data=source, vals=values)
    if target.dtype not in (dtypes.UINT16, dtypes.UINT32):
        given = dtypes.name_of(target.dtype)
        mend = "Use nl.uint16 or nl.uint32."
        refuse(KernelTypeError("index_dtype", f"nc_find_index8 cannot give {given}.", mend))
    emit(indexed.FIND_INDEX8, result=_columns(target, source, 8, "nc_find_index8"),
         inputs={"data": source, "values": _shaped(values, (values.tile_shape[0], 8))},
         attributes={"successive": True})  # fmt: skip


@instruction
def nc_match_replace8(dst: Any, data: Any, vals: Any, imm: Any, dst_idx: Any = None) -> None:
    """dst = data with the first occurrence of each of eight values replaced by `imm`; the positions
    go into `dst_idx`."""
    target, source = alike("nc_match_replace8", destination(dst), data=tile(data, "data"))
    values = tile(vals, "vals")
    check("nc_match_replace8", data=source, vals=values, dst_idx=dst_idx)
    index = None if dst_idx is None else destination(dst_idx, "dst_idx")
    partitions = values.tile_shape[0]
    emit(
        indexed.MATCH_REPLACE8,
        result=target,
        inputs={"data": source, "values": _shaped(values, (partitions, 8))},
        outputs={"indices": None if index is None else _shaped(index, (partitions, 8))},
        attributes={"replacement": builder.number(imm), "from_last": True},
    )


@instruction
def topk(val_dst: Any, idx_dst: Any, src: Any, n: Any, sorted: Any = False) -> None:
    """The k largest of the n bfloat16 elements that each 16 partitions of src hold in turn (element e in
    partition e % 16, position e // 16), in val_dst in the same layout, and their numbers in idx_dst; k is
    how many elements val_dst has a partition, of which the first ceil(k / 16) are written.

    Ascending, of equal elements the first: so NKI 0.6 says of the order; of ties it says nothing, and of
    `sorted` (NKI 0.7) no more is known here."""
    values, places = destination(val_dst, "val_dst", psum=False), tile(idx_dst, "idx_dst")
    places, source = destination(places, "idx_dst", psum=False), tile(src, "src")
    builder.check_same_partitions(val_dst=values, idx_dst=places, src=source)
    count, elements = math.prod(values.tile_shape[1:]), int(n)
    builder.in_reach_of_gpsimd(src=source)
    for name, view, format_ in (
        ("val_dst", values, dtypes.BFLOAT16),
        ("idx_dst", places, dtypes.UINT32),
    ):
        if view.dtype != format_ or math.prod(view.tile_shape[1:]) != count:
            said = f"{name} of topk is {view!r}, not {count} {dtypes.name_of(format_)} a partition."
            refuse(KernelTypeError("topk", said))
    room = CORE_PARTITIONS * math.prod(source.tile_shape[1:])
    if source.tile_shape[0] % CORE_PARTITIONS or not 8 <= elements < 65_536 or elements > room:
        said = f"topk of n={elements} elements in a src of {source.tile_shape}."
        mend = "Give 8 to 65,535 of them, in a multiple of 16 partitions with ceil(n / 16) positions each."
        refuse(KernelValueError("topk", said, mend))
    if not 1 <= count <= min(elements, 32_767):
        refuse(KernelValueError("topk", f"topk cannot take {count} of {elements} elements."))
    each = -(-count // CORE_PARTITIONS)
    shape = (values.tile_shape[0], each)
    part = [
        in_shape("topk", view, (shape[0], count), "k").replaced(shape=shape)
        for view in (values, places)
    ]
    emit(indexed.TOPK, result=part[0], inputs={"data": source}, outputs={"indices": part[1]},
         attributes={"elements": elements, "count": count})  # fmt: skip


@instruction
def nonzero_with_count(dst: Any, src: Any, index_offset: Any = 0, padding_val: Any = -1) -> None:
    """Of partitions 0, 16, 32, ...: dst (P, F + 1) = where src is not 0 (plus `index_offset`), padding,
    and how many these are. The others stay as they are. NeuronCore-v3 and later."""
    target, source = destination(dst, psum=False), tile(src, "src")
    builder.check_same_partitions(dst=target, src=source)
    if generation() < 3:
        refuse(KernelValueError("target", "nonzero_with_count needs NeuronCore-v3."))
    builder.in_reach_of_gpsimd(src=source)
    if source.dtype not in (dtypes.FLOAT32, dtypes.INT32) or target.dtype != dtypes.INT32:
        said = f"src is {dtypes.name_of(source.dtype)}, dst is {dtypes.name_of(target.dtype)}."
        mend = "src must be float32 or int32, dst int32."
        refuse(KernelTypeError("nonzero_format", said, mend))
    found, places = (math.prod(view.tile_shape[1:]) for view in (source, target))
    if places != found + 1:
        said = f"src has {found} elements a partition and dst {places}, not one more."
        fail(KernelValueError("destination_shape", said))
    attributes: dict[str, Any] = {"offset": int(index_offset), "padding": int(padding_val)}
    for name, number in attributes.items():
        if not -(1 << 31) <= number < 1 << 31:
            said = f"{name} {number} of nonzero_with_count does not fit int32."
            fail(KernelValueError("nonzero_format", said))
    for first in range(0, source.tile_shape[0], CORE_PARTITIONS):
        core = slice(first, first + 1)
        one = {"data": subscript(source, core)}
        emit(indexed.NONZERO, result=subscript(target, core), inputs=one, attributes=attributes)


@instruction
def tensor_scalar_cumulative(
    dst: Any, src: Any, op0: Any, op1: Any, imm0: Any, imm1: Any = None,
    reduce_cmd: Any = commands.reset_reduce,
) -> None:  # fmt: skip
    """r[i] = op1(op0(src[i], imm0), r[i-1]) along the free axes, from op1's neutral element or, with
    load_reduce, from imm1."""
    target, source = alike("tensor_scalar_cumulative", destination(dst), src=tile(src, "src"))
    whole = {dtypes.INT32, dtypes.UINT32} & {target.dtype, source.dtype}
    if whole:
        mend = "Use float32."
        said = f"tensor_scalar_cumulative takes no {dtypes.name_of(whole.pop())}."
        refuse(KernelTypeError("operand_formats", said, mend))
    op = op_name(op1, frozenset(NEUTRAL))
    command = member(commands, reduce_cmd, "reduce_cmd")
    if command not in (commands.reset_reduce, commands.load_reduce):
        said = f"reduce_cmd.{command.name} of tensor_scalar_cumulative is not simulated."
        fail(KernelValueError("reduce_cmd", said, "Pass the last value as imm1 with load_reduce."))
    first = imm1 if command is commands.load_reduce else NEUTRAL[op]
    scaled = builder.new_tile(source.tile_shape, dtypes.FLOAT32)
    builder.with_operand(op_name(op0, ARITHMETIC), scaled, source,
                         scalar_or_column(imm0, "imm0", source), engine=Engine.VECTOR)  # fmt: skip
    ones = builder.new_tile(source.tile_shape, dtypes.FLOAT32)
    fill(ones, 1.0)
    emit(reductions.TENSOR_TENSOR_SCAN, result=target,
         inputs={"data0": ones, "data1": scaled, "initial": scalar_or_column(first, "imm1", source)},
         attributes=checks.operator_attributes("multiply", False, op, True, ARITHMETIC))  # fmt: skip


@instruction
def dropout(dst: Any, data: Any, prob: Any) -> None:
    """dst = data with elements zeroed at random with probability `prob`."""
    target, source = alike(elementwise.DROPOUT, destination(dst), data=tile(data, "data"))
    checks.check_format(elementwise.DROPOUT, "dst", target, source)
    emit(elementwise.DROPOUT, result=target,
         inputs={"data": source, "probability": scalar_or_column(prob, "prob", source)})  # fmt: skip


@instruction
def sequence_bounds(dst: Any, segment_ids: Any) -> None:
    """dst (1, 2, F) = where the segment of each element starts and ends."""
    target, source = destination(dst), tile(segment_ids, "segment_ids")
    check(indexed.SEQUENCE_BOUNDS, segment_ids=source)
    elements = math.prod(source.tile_shape[1:])
    if math.prod(target.tile_shape) != 2 * elements:
        fail(operands.different_shapes(indexed.SEQUENCE_BOUNDS,
                                       {"dst": target.tile_shape, "result": (1, 2, elements)}))  # fmt: skip
    emit(indexed.SEQUENCE_BOUNDS, result=_shaped(target, (1, 2, elements)),
         inputs={"segment_ids": _shaped(source, (1, elements))}, engine=Engine.GPSIMD)  # fmt: skip
