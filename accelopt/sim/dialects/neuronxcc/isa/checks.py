"""What an instruction asks of its operands in either dialect: each raises or records a KernelError."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.attribute_kinds import KEPT
from accelopt.sim.dialects.neuronxcc.builder import applied, fail, new_tile, refuse, with_operand
from accelopt.sim.dialects.neuronxcc.index import TileIndex
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelError, KernelTypeError, KernelValueError
from accelopt.sim.isa import indexed
from accelopt.sim.mask import Mask
from accelopt.sim.operators import BITWISE
from accelopt.sim.program import AttributeValue
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

ALU_UNARY = frozenset({"rsqrt", "reciprocal", "abs", "invert", "logical_not"})
"""Unary operators that tensor_scalar takes as op0 or op1; their operand is ignored."""
FP32_MIN = float.fromhex("-0x1.fffffep+127")
TRANSPOSED = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""Of a DMA transpose, by rank."""


def check_bitwise(op: str, *given: Any) -> None:
    """Bitwise operators take integers."""
    if op not in BITWISE and op != "invert":
        return
    for operand in given:
        if isinstance(operand, TensorView) and not dtypes.is_integer(operand.dtype):
            allowed = "an integer format"
            refuse(operands.unsupported_format(op, "data", dtypes.name_of(operand.dtype), allowed))
        elif isinstance(operand, float):
            refuse(operands.unsupported_format(op, "operand", "float", "an integer"))


def check_format(api_name: str, name: str, view: TensorView, like: TensorView) -> None:
    """An instruction that does not convert: both tiles have one format."""
    check_has_format(api_name, name, view, like.dtype)


def check_has_format(api_name: str, name: str, view: TensorView, *allowed: np.dtype) -> None:
    """The tile has one of these formats."""
    if view.dtype not in allowed:
        given, known = dtypes.name_of(view.dtype), ", ".join(map(dtypes.name_of, allowed))
        refuse(operands.unsupported_format(api_name, name, given, known))


def check_stationary(view: TensorView) -> None:
    """On trn2 the stationary operand of a product is no tfloat32 (issue 36; one source)."""
    if view.dtype == dtypes.TFLOAT32 and current().target == "trn2":
        allowed = "float32, bfloat16, float16, float8_e4m3, float8_e5m2 (tfloat32 may be moving)"
        refuse(operands.unsupported_format("nc_matmul on trn2", "stationary", "tfloat32", allowed))


def tensor_scalar_operators(
    op0: Any, op1: Any, known: frozenset[str], data: TensorView, operand0: Any
) -> tuple[str, str | None]:
    """Names of the one or two operators, both bitwise or both arithmetic."""
    first = op_name(op0, known)
    second = None if op1 is None else op_name(op1, known)
    check_bitwise(first, data, operand0)
    if second is not None and (first in BITWISE) != (second in BITWISE):
        mend = "Use two instructions."
        problem = f"op0={first} and op1={second} are not both bitwise or both arithmetic."
        refuse(KernelTypeError("mixed_operators", problem, mend))
    return first, second


def operator_attributes(
    op0: Any, reverse0: bool, op1: Any, reverse1: bool, known: frozenset[str]
) -> dict[str, AttributeValue]:
    """One or two operators, and which of them have their operands swapped."""
    attributes: dict[str, AttributeValue] = {"op0": op_name(op0, known), "reverse0": bool(reverse0)}
    if op1 is not None:
        attributes |= {"op1": op_name(op1, known), "reverse1": bool(reverse1)}
    return attributes


def one_by_one(
    data: TensorView,
    steps: Iterable[tuple[str, Any, bool]],
    unary: frozenset[str],
    inverted: np.dtype,
    result: TensorView,
    mask: Mask,
) -> TensorView:
    """tensor_scalar with a unary operator, as an instruction an operator (name, operand, reverse).
    What lies between them is float32, or `inverted` after invert."""
    value, steps = data, list(steps)
    for number, (name, operand, reverse) in enumerate(steps, 1):
        between = inverted if name == "invert" else dtypes.FLOAT32
        made = result if number == len(steps) else new_tile(data.tile_shape, between)
        if name in unary:
            value = applied(name, made, value, mask)
        else:
            value = with_operand(name, made, value, operand, bool(reverse), mask)
    return value


def reduced_axes(source: TensorView, axis: Any) -> tuple[int, ...]:
    """The free axes that are reduced, sorted and not negative."""
    rank = len(source.tile_shape)
    given = axis if isinstance(axis, (list, tuple)) else (axis,)
    axes = tuple(sorted({int(n) % rank for n in given}))
    if any(not -rank <= int(n) < rank for n in given) or not axes:
        fail(KernelValueError("reduce_axis", f"axis {axis} of a tile with {rank} dimensions."))
    if 0 in axes:
        problem = "the partition dimension cannot be reduced on the Vector engine."
        mend = "Reduce free axes, or multiply with ones on the Tensor engine."
        fail(KernelError("reduce_axis", problem, mend))
    return axes


def check_triples(data: TensorView) -> None:
    """bn_aggr takes what bn_stats gives."""
    elements = data.free_elements
    if elements % 3:
        mend = "Pass the outputs of bn_stats: six numbers a tile."
        problem = f"bn_aggr takes triples, not {elements} elements."
        fail(KernelValueError("bn_aggr_size", problem, mend))


def shuffle_order(source: TensorView, target: TensorView, shuffle_mask: Any) -> tuple[int, ...]:
    """The mask of nc_stream_shuffle, once it and both tiles are possible."""
    order = tuple(int(n) for n in shuffle_mask)
    if len(order) != 32 or any(not (0 <= n < 32 or n == KEPT) for n in order):
        mend = "Give 32 numbers, each 0 to 31, or 255 to keep a partition."
        fail(KernelValueError("shuffle_mask", f"shuffle_mask {order} is not valid.", mend))
    check_format("nc_stream_shuffle", "src", source, target)
    if source.free_elements != target.free_elements:
        given = {"src": source.tile_shape, "dst": target.tile_shape}
        fail(operands.different_shapes("nc_stream_shuffle", given))
    _check_start_partitions(source, target)
    return order


def _check_start_partitions(source: TensorView, target: TensorView) -> None:
    """Where the quadrants may begin, by how many of them are active."""
    active = -(-max(source.tile_shape[0], target.tile_shape[0]) // 32) * 32
    allowed = {32: (0, 32, 64, 96), 64: (0, 64)}.get(active, (0,))
    for name, view in (("src", source), ("dst", target)):
        row = math.prod(view.storage.tile_shape[1:])
        low, high = view.offset.bounds
        if low // row == high // row and low // row not in allowed:
            problem = f"'{name}' starts at partition {low // row} with {active} active partitions."
            mend = f"Start at one of {allowed}."
            refuse(KernelValueError("start_partition", problem, mend))


def gathered_indices(
    source: TensorView,
    indices: TensorView,
    elements: int,
    wanted: int | None,
    result: TensorView | None = None,
) -> int:
    """How many indices a core of local_gather takes: `wanted`, or all. `result`: what the gathered
    elements are written into."""
    slots = 16 * indices.free_elements
    valid = slots if wanted is None else int(wanted)
    problem = ""
    if source.tile_shape[0] % 16:
        problem = f"{source.tile_shape[0]} partitions are not a multiple of 16"
    elif elements not in (1, 2, 4, 8, 16, 32):
        problem = f"num_elem_per_idx {elements} is not 1, 2, 4, 8, 16 or 32"
    elif not 0 <= valid <= min(slots, 4096):
        problem = f"{valid} indices a core are not 0 to {min(slots, 4096)}"
    elif result is not None and result.free_elements != valid * elements:
        problem = f"dst {result.shape} does not have {valid * elements} elements a partition"
    elif result is not None and result.dtype != source.dtype:
        problem = "dst and src_buffer have different formats"
    if problem:
        fail(KernelValueError(indexed.LOCAL_GATHER, f"{problem}."))
    return valid


def double_rows(
    stationary: tuple[int, ...], moving: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The free axes of a product whose operands have two rows a partition, without the two."""
    if stationary[:1] != (2,) or moving[:1] != (2,):
        fail(operands.different_shapes("nc_matmul", {"stationary": stationary, "moving": moving}))
    return stationary[1:], moving[1:]


def check_tiling(
    position: tuple[Any, ...],
    size: tuple[Any, ...],
    left: TensorView,
    further: Callable[[tuple[Any, ...], tuple[Any, ...]], str],
) -> None:
    """Position and size of a tile of processing elements: both or none, multiples of 32; `further`
    says what else is wrong in a dialect."""
    if not position and not size:
        return
    problem = ""
    if not position or not size:
        problem = "tile_position and tile_size must both be given"
    elif any(not _multiple_of_32(value) for value in (*position, *size)):
        problem = "tile_position and tile_size must be multiples of 32"
    elif size[0] < left.tile_shape[0] or size[1] < left.free_elements:
        problem = f"tile_size {size} is smaller than the stationary tile {left.tile_shape}"
    else:
        problem = further(position, size)
    if problem:
        mend = "See nisa.nc_matmul for the rules of tiling the Tensor engine."
        refuse(KernelValueError("tile_position", f"{problem}.", mend))


def _multiple_of_32(value: Any) -> bool:
    if isinstance(value, TileIndex):
        return (value.affine % 32).bounds == (0, 0)
    return int(value) % 32 == 0


def endpoint(value: Any, name: str, mend: str) -> TensorView:
    """One side of a DMA: in HBM or SBUF."""
    if not isinstance(value, TensorView):
        is_grid = isinstance(getattr(value, "data", None), TensorView)
        mend = "Its .data is the tile." if is_grid else ""
        fail(operands.operand_type(name, type(value).__name__, mend))
    if value.in_psum:
        fail(operands.wrong_memory(name, repr(value), "HBM or SBUF", mend))
    return value
