"""Data movement between HBM and on-chip memory, and within it."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.attribute_kinds import one_line
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.index import MaskExpression, TileIndex
from accelopt.sim.dialects.neuronxcc.isa.checks import TRANSPOSED
from accelopt.sim.dialects.neuronxcc.isa.enums import oob_mode
from accelopt.sim.dialects.neuronxcc.isa.products import in_sbuf
from accelopt.sim.dialects.neuronxcc.isa.transfers import transposed
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelValueError
from accelopt.sim.isa import indexed, movement
from accelopt.sim.rules import indexing, operands
from accelopt.sim.tracer import active, current


def _two_dimensional(view: TensorView) -> TensorView:
    """At least partitions and one free axis: a vector in HBM becomes a column (S6)."""
    while view.ndim < 2:
        view = view.expand_dims(view.ndim)
    return view


@builder.api
def load(
    src: Any, *, mask: Any = None, dtype: Any = None, mode: Any = oob_mode.error
) -> TensorView:
    """HBM to a new SBUF tile; the first dimension of the index is the partition dimension."""
    source = _two_dimensional(builder.in_hbm(src, "src"))
    repeated = source.shape[0] > 1 and source.strides[0] == 0 and not source.gathered
    if repeated and current().target != "trn1":
        mend = "Load it into one partition and use nl.broadcast_to or .broadcast_to(...) there."
        builder.refuse(
            KernelValueError("partition_stride", "a load repeats one row on all partitions.", mend)
        )
    return loaded(source, dtype, mask, mode)


def loaded(src: Any, dtype: Any, mask: Any = None, mode: Any = oob_mode.error) -> TensorView:
    """load, of rows that may be the same: `nki` has it as nisa.dma_copy into a new tile (SDK 2.32)."""
    source = _two_dimensional(builder.in_hbm(src, "src"))
    return builder.transfer(
        builder.new_tile(source.shape, dtype or source.dtype),
        source,
        oob_mode=oob_mode(mode).name,
        mask=builder.mask_of(mask),
    )


@builder.api
def store(dst: Any, value: Any, *, mask: Any = None, mode: Any = oob_mode.error) -> None:
    """SBUF (or PSUM, by an extra copy) to HBM. A number fills the destination."""
    target = _two_dimensional(builder.in_hbm(dst, "dst"))
    assignment.check_writable(target)
    condition = builder.mask_of(mask)
    if isinstance(value, TileIndex) and value.shape:
        builder.tile(value, "value")
    if builder.is_number(value):
        builder.check_partitions(target.shape)
        constant = builder.new_tile(target.shape, target.dtype)
        value = builder.fill(constant, value)
    target, source = assignment.stored(target, builder.tile(value, "value"), condition)
    builder.transfer(target, in_sbuf(source), oob_mode=oob_mode(mode).name, mask=condition)


@builder.api
def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """HBM (N, M) to a new SBUF tile (M, N)."""
    source = builder.in_hbm(src, "src")
    if source.ndim != 2:
        builder.fail(operands.too_many_dimensions("load_transpose2d", "src", source.shape, 2))
    return transposed(source, TRANSPOSED[2], "load_transpose2d", mask, dtype)


@builder.api
def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None) -> None:
    """dst = dst + value in HBM, at rows chosen at run time."""
    target = _two_dimensional(builder.in_hbm(dst, "dst"))
    assignment.check_writable(target)
    if not target.gathered:
        mend = "Index dst with a tile of row numbers, or use nl.load and nl.store."
        builder.fail(KernelValueError("atomic_rmw", "the destination has no run-time index.", mend))
    name = op_name(op, frozenset({"add"}))
    if builder.is_number(value):
        constant = builder.new_tile(target.shape, target.dtype)
        value = builder.fill(constant, value)
    builder.transfer(
        target,
        in_sbuf(assignment.fit(builder.tile(value, "value"), target.shape)),
        accumulate=name,
        mask=builder.mask_of(mask),
    )


@builder.api
def copy(src: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """A new SBUF tile with the same values."""
    source = builder.tile(src, "src")
    if source.gathered:
        builder.fail(indexing.copy_between_runtime_indices())
    result = builder.new_tile(source.tile_shape, dtype or source.dtype)
    return builder.copied(result, source, mask=builder.mask_of(mask))


@builder.api
def broadcast_to(src: Any, *, shape: Any) -> TensorView:
    """The tile repeated along axes of length 1, partitions included, as a new tile."""
    source = builder.tile(src, "src")
    wanted = tuple(int(n) for n in shape)
    if source.tile_shape == wanted:
        return source
    wide = source.broadcast_to(wanted)
    return builder.copied(builder.new_tile(wide.shape, wide.dtype), wide)


@builder.api
def expand_dims(data: Any, axis: Any) -> TensorView:
    """A view with new axes of length 1."""
    if isinstance(data, TileIndex):
        return data.expand_dims(int(axis))  # type: ignore[return-value]
    return data.expand_dims(axis)  # type: ignore[no-any-return]


@builder.api
def transpose(x: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """(P, F) to (F, P), at most 128 by 128."""
    from accelopt.sim.dialects.neuronxcc.isa.products import nc_transpose
    from accelopt.sim.program import Engine

    source = builder.tile(x, "x")
    builder.check(movement.TRANSPOSE, x=source)
    turned = nc_transpose(in_sbuf(source), mask=mask, engine=Engine.TENSOR)
    return copy(turned, dtype=dtype, mask=MaskExpression(turned.written_mask, turned.shape))


@builder.api
def gather_flattened(data: Any, indices: Any, *, mask: Any = None, dtype: Any = None) -> TensorView:
    """result[p, i] = data[p].flat[indices[p, i]]; the result has the shape of `indices`."""
    source, positions = builder.tile(data, "data"), builder.tile(indices, "indices")
    builder.check("gather_flattened", data=source, indices=positions)
    result = builder.new_tile(positions.tile_shape, dtype or source.dtype)
    return builder.emit(indexed.GATHER, result=result, inputs={"data": source, "indices": positions},
                mask=builder.mask_of(mask))  # fmt: skip


@builder.api
def device_print(prefix: str, x: Any, *, mask: Any = None) -> None:
    """Prints a tile when the Program is executed."""
    if not isinstance(x, TensorView):
        builder.fail(operands.operand_type("x", type(x).__name__))
    current().emit(
        indexed.PRINT,
        outputs={},
        inputs={"data": x.access()},
        attributes={"prefix": one_line(str(prefix))},
    )


__all__ = ["static_cast"]


def static_cast(input_data: Any, dtype: Any) -> Any:
    """A conversion: of numbers and arrays, also on the host; of a tile in a kernel."""
    if isinstance(input_data, TensorView):
        return copy(input_data, dtype=dtype)
    values = np.asarray(input_data)
    wanted = dtypes.parse(dtype) if active() is None else builder.parse_dtype(dtype)
    return values.astype(dtypes.stored(wanted))
