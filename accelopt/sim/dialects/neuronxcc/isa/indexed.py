"""Instructions driven by positions: iota, selections, gathers, shuffles."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim.affine import Affine
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.index import (
    MaskExpression,
    TileIndex,
    broadcast_shapes,
    number_of,
)
from accelopt.sim.dialects.neuronxcc.isa.checks import FP32_MIN, gathered_indices, shuffle_order
from accelopt.sim.dialects.neuronxcc.isa.elementwise import destination
from accelopt.sim.dialects.neuronxcc.isa.enums import reduce_cmd as commands
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import indexed, movement
from accelopt.sim.mask import EVERYTHING, NOTHING
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import indexing, operands
from accelopt.sim.tracer import current


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


@builder.api
def range_select(
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = commands.idle,
    reduce_res: Any = None,
    reduce_op: Any = "maximum",
    range_start: Any = 0,
    on_false_value: Any = FP32_MIN,
    mask: Any = None,
    dtype: Any = None,
) -> TensorView:
    """on_true_tile where both comparisons of range_start + column with per-partition bounds hold,
    elsewhere the smallest float32. NeuronCore-v3 and later."""
    source = builder.tile(on_true_tile, "on_true_tile")
    builder.check(indexed.RANGE_SELECT, on_true_tile=source, bound0=builder.tile(bound0, "bound0"),
          bound1=builder.tile(bound1, "bound1"), reduce_res=reduce_res)  # fmt: skip
    if current().target == "trn1":
        mend = "Use nisa.affine_select or nl.where, or compile with platform_target='trn2'."
        builder.refuse(KernelValueError("target", "range_select needs NeuronCore-v3.", mend))
    if builder.number(on_false_value) != FP32_MIN:
        mend = "Pass nl.fp32.min."
        problem = f"on_false_value {on_false_value} is not the smallest float32."
        builder.refuse(KernelValueError("on_false_value", problem, mend))
    start = number_of(range_start)
    if start + math.prod(source.tile_shape[1:]) > 1 << 24:
        problem = "the compared positions exceed 2^24, beyond which float32 is not exact."
        builder.refuse(KernelValueError("range_start", problem))
    allowed = COMPARISONS - {"not_equal"}
    return builder.emit(
        indexed.RANGE_SELECT,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "bound0": builder.column(bound0), "bound1": builder.column(bound1)},
        outputs={"reduce_result": destination(reduce_res, "reduce_res")},
        attributes={
            "op0": op_name(comp_op0, allowed),
            "op1": op_name(comp_op1, allowed),
            "reduce_op": op_name(reduce_op, frozenset({"maximum"})),
            "reduce_cmd": commands(reduce_cmd).name,
            "range_start": start,
            "on_false": FP32_MIN,
        },
        mask=builder.mask_of(mask),
    )


@builder.api
def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = commands.idle,
    reduce_op: Any = "maximum",
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> None:
    """dst = on_true where the predicate is not zero, elsewhere on_false; optionally the maximum
    over the free axes."""
    target, where, chosen = destination(dst, "dst"), builder.tile(predicate, "predicate"), builder.tile(
        on_true, "on_true")  # fmt: skip
    assert target is not None
    builder.check(indexed.SELECT_REDUCE, dst=target, predicate=where, on_true=chosen, on_false=on_false,
          reduce_res=reduce_res)  # fmt: skip
    builder.emit(
        indexed.SELECT_REDUCE,
        result=target,
        inputs={
            "predicate": assignment.fit(where, target.tile_shape),
            "on_true": assignment.fit(chosen, target.tile_shape),
            "on_false": builder.column(on_false),
        },
        outputs={"reduce_result": destination(reduce_res, "reduce_res")},
        attributes={
            "reverse": bool(reverse_pred),
            "reduce_op": op_name(reduce_op, frozenset({"maximum"})),
            "reduce_cmd": commands(reduce_cmd).name,
        },
        mask=builder.mask_of(mask),
    )


@builder.api
def nc_stream_shuffle(
    src: Any, dst: Any, shuffle_mask: Any, *, dtype: Any = None, mask: Any = None
) -> None:
    """Partition p of each quadrant of 32 of dst takes partition shuffle_mask[p] of src; 255 leaves
    it as it is."""
    source, target = builder.tile(src, "src"), destination(dst, "dst")
    assert target is not None
    builder.check("nc_stream_shuffle", src=source, dst=target)
    order = shuffle_order(source, target, shuffle_mask)
    builder.emit(
        movement.STREAM_SHUFFLE,
        result=target,
        inputs={"source": source},
        attributes={"shuffle_mask": order},
        mask=builder.mask_of(mask),
        engine=Engine.VECTOR,
    )


@builder.api
def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: Any = None,
) -> TensorView:
    """Each group of 16 partitions gathers from its part of src_buffer by its own 16 partitions of
    indices, taken partition first: (P, F of index, 16, num_elem_per_idx)."""
    source, indices = builder.tile(src_buffer, "src_buffer"), builder.tile(index, "index")
    builder.check(indexed.LOCAL_GATHER, src_buffer=source, index=indices)
    valid = gathered_indices(source, indices, num_elem_per_idx, num_valid_indices)
    shape = (source.tile_shape[0], *indices.tile_shape[1:], 16, int(num_elem_per_idx))
    return builder.emit(
        indexed.LOCAL_GATHER,
        result=builder.new_tile(shape, source.dtype),
        inputs={"source": source, "index": indices},
        attributes={"elements_per_index": int(num_elem_per_idx), "valid_indices": valid},
        mask=builder.mask_of(mask),
    )
