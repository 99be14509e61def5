"""Instructions of nki.isa that combine elements, or search: those of `neuronxcc.nki`, and what came since."""

from __future__ import annotations

from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import emit, fail, fill, generation, refuse, tile
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa import reductions as shared
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.nki.call_conventions import (
    alike,
    destination,
    in_shape,
    instruction,
    member,
    scalar_or_column,
)
from accelopt.sim.dialects.nki.isa.destinations import destinations_first
from accelopt.sim.dialects.nki.isa.enums import reduce_cmd as commands
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import indexed, reductions
from accelopt.sim.operators import ARITHMETIC
from accelopt.sim.program import Engine

CORE_PARTITIONS = 16
"""Partitions of each of the GpSimd engine's eight cores."""
NEUTRAL = {
    "add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": float("-inf"), "minimum": float("inf"),
}  # fmt: skip


globals().update(destinations_first(shared, __name__))


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
    count, elements = values.free_elements, int(n)
    builder.in_reach_of_gpsimd(src=source)
    for name, view, format_ in (
        ("val_dst", values, dtypes.BFLOAT16),
        ("idx_dst", places, dtypes.UINT32),
    ):
        if view.dtype != format_ or view.free_elements != count:
            said = f"{name} of topk is {view!r}, not {count} {dtypes.name_of(format_)} a partition."
            refuse(KernelTypeError("topk", said))
    room = CORE_PARTITIONS * source.free_elements
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
    found, places = (view.free_elements for view in (source, target))
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
