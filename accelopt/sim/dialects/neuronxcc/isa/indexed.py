"""Instructions driven by positions: iota, selections, gathers, shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim.affine import Affine
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.index import (
    MaskExpression,
    TileIndex,
    broadcast_shapes,
    number_of,
)
from accelopt.sim.dialects.neuronxcc.isa.checks import FP32_MIN, gathered_indices, shuffle_order
from accelopt.sim.dialects.neuronxcc.isa.shared_calls import Result, instruction
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import indexed, movement
from accelopt.sim.mask import EVERYTHING, NOTHING
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import indexing, operands

MAXIMUM = frozenset({"maximum"})


@builder.api
def iota(expr: Any, dtype: Any, *, mask: Any = None) -> TensorView:
    """A tile of the values of an affine index expression, computed in int32."""
    if isinstance(expr, (int, float)):
        expr = TileIndex(Affine(int(expr)))
    if not isinstance(expr, TileIndex):
        mend = "Pass an expression of nl.arange and loop indices."
        builder.fail(KernelTypeError("iota_expression", f"iota of a {type(expr).__name__}.", mend))
    shape = expr.shape if expr.ndim >= 2 else (1,) * (2 - expr.ndim) + expr.shape
    return builder.emit(
        indexed.IOTA,
        result=builder.new_tile(shape, dtype),
        attributes={"expression": expr.affine},
        mask=builder.mask_of(mask),
    )


@builder.api
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None
) -> TensorView:
    """on_true_tile where one affine comparison holds, elsewhere a number."""
    source = builder.tile(on_true_tile, "on_true_tile")
    builder.check(indexed.AFFINE_SELECT, on_true_tile=source)
    if isinstance(pred, TileIndex):
        pred = pred > 0
    if isinstance(pred, bool):
        pred = MaskExpression(EVERYTHING if pred else NOTHING, ())
    if not isinstance(pred, MaskExpression) or pred.combined:
        problem = "the predicate of affine_select is not a single affine comparison."
        builder.fail(indexing.unsupported_mask(problem))
    if broadcast_shapes(pred.shape, source.tile_shape) != source.tile_shape:
        given = {"pred": pred.shape, "on_true_tile": source.tile_shape}
        builder.fail(operands.different_shapes(indexed.AFFINE_SELECT, given))
    return builder.emit(
        indexed.AFFINE_SELECT,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source},
        attributes={
            "predicate": pred.mask,
            "negate": pred.negated,
            "on_false": builder.number(on_false_value),
        },
        mask=builder.mask_of(mask),
    )


@instruction()
def range_select(
    result: Result,
    on_true_tile: TensorView,
    comp_op0: Any,
    comp_op1: Any,
    bound0: TensorView,
    bound1: TensorView,
    reduce_cmd: Any = None,
    reduce_res: Any = None,
    reduce_op: Any = "maximum",
    range_start: Any = 0,
    on_false_value: Any = FP32_MIN,
) -> TensorView:
    """on_true_tile where both comparisons of range_start + column with per-partition bounds hold,
    elsewhere the smallest float32. NeuronCore-v3 and later."""
    target, data = result.alike(indexed.RANGE_SELECT, on_true_tile.dtype, on_true_tile=on_true_tile)
    if builder.generation() < 3:
        mend = "Use nisa.affine_select or nl.where, or compile with platform_target='trn2'."
        builder.refuse(KernelValueError("target", "range_select needs NeuronCore-v3.", mend))
    if np.float32(builder.number(on_false_value)) != np.float32(FP32_MIN):
        problem = f"on_false_value {on_false_value} is not the smallest float32."
        builder.refuse(KernelValueError("on_false_value", problem, "Leave it out."))
    start = number_of(range_start)
    if start + data.free_elements > 1 << 24:
        problem = "the compared positions exceed 2^24, beyond which float32 is not exact."
        builder.refuse(KernelValueError("range_start", problem))
    allowed = COMPARISONS - {"not_equal"}
    total, reduction = result.accumulation(reduce_res, reduce_cmd, reduce_op, MAXIMUM)
    bounds = {"bound0": bound0, "bound1": bound1}
    return result.emit(
        indexed.RANGE_SELECT,
        target,
        {"data": data} | {name: result.column(b, name, data) for name, b in bounds.items()},
        {
            "op0": op_name(comp_op0, allowed),
            "op1": op_name(comp_op1, allowed),
            **reduction,
            "range_start": start,
            "on_false": FP32_MIN,
        },
        {"reduce_result": total},
    )


@instruction(in_place=True)
def select_reduce(
    result: Result,
    predicate: TensorView,
    on_true: TensorView,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = None,
    reduce_op: Any = "maximum",
    reverse_pred: bool = False,
) -> None:
    """dst = on_true where the predicate is not zero, elsewhere on_false; optionally the maximum
    over the free axes."""
    target, where, chosen = result.alike(
        indexed.SELECT_REDUCE, on_true.dtype, predicate=predicate, on_true=on_true
    )
    total, reduction = result.accumulation(reduce_res, reduce_cmd, reduce_op, MAXIMUM)
    otherwise = result.column(on_false, "on_false", target)
    result.emit(
        indexed.SELECT_REDUCE,
        target,
        {"predicate": where, "on_true": chosen, "on_false": otherwise},
        {"reverse": bool(reverse_pred), **reduction},
        {"reduce_result": total},
    )


@instruction("src dst shuffle_mask", in_place=True)
def nc_stream_shuffle(result: Result, src: TensorView, shuffle_mask: Any) -> None:
    """Partition p of each quadrant of 32 of dst takes partition shuffle_mask[p] of src; 255 leaves
    it as it is."""
    order: dict[str, Any] = {"shuffle_mask": shuffle_order(src, result.named, shuffle_mask)}
    result.emit(movement.STREAM_SHUFFLE, result.named, {"source": src}, order, engine=Engine.VECTOR)


@instruction("src_buffer index num_elem_per_idx num_valid_indices", "mask")
def local_gather(
    result: Result, src_buffer: TensorView, index: TensorView, num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
) -> TensorView:  # fmt: skip
    """(P, F of index, 16, num_elem_per_idx): each group of 16 partitions gathers from its part of src_buffer
    by its own 16 partitions of indices, taken partition first."""
    each = int(num_elem_per_idx)
    valid = gathered_indices(src_buffer, index, num_elem_per_idx, num_valid_indices, result.dst)
    shape = (src_buffer.tile_shape[0], *index.tile_shape[1:], 16, each)
    target = builder.new_tile(shape, src_buffer.dtype) if result.dst is None else result.dst
    attributes: dict[str, Any] = {"elements_per_index": each, "valid_indices": valid}
    inputs = {"source": src_buffer, "index": index}
    return result.emit(indexed.LOCAL_GATHER, target, inputs, attributes)
