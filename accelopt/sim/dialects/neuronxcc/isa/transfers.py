"""Instructions that move data by DMA."""

from __future__ import annotations

from typing import Any

from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.builder import api, fail, mask_of, new_tile, refuse, transfer
from accelopt.sim.dialects.neuronxcc.isa import enums
from accelopt.sim.dialects.neuronxcc.isa.checks import TRANSPOSED, endpoint
from accelopt.sim.dialects.neuronxcc.isa.enums import oob_mode as out_of_bounds
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.rules import indexing, operands
from accelopt.sim.tracer import current

COPY_FIRST = "Copy it to SBUF with nl.copy first."


@api
def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = out_of_bounds.error,
    mode: Any = None,
    dge_mode: Any = None,
) -> None:
    """dst = src (or dst += src) by DMA, between HBM and SBUF in any direction, converting."""
    target, source = endpoint(dst, "dst", COPY_FIRST), endpoint(src, "src", COPY_FIRST)
    assignment.check_writable(target)
    behaviour = out_of_bounds(oob_mode if mode is None else mode)
    accumulate = None
    if dst_rmw_op is not None:
        accumulate = op_name(dst_rmw_op, frozenset({"add"}))
        if behaviour is not out_of_bounds.error:
            mend = "Use oob_mode.error with dst_rmw_op."
            refuse(KernelValueError("oob_mode", "a read-modify-write cannot skip indices.", mend))
    check_descriptor_mode(dge_mode)
    transfer(
        target,
        assignment.fit(source, target.tile_shape),
        oob_mode=behaviour.name,
        accumulate=accumulate,
        mask=mask_of(mask),
        **descriptors(dge_mode),
    )


def descriptors(dge_mode: Any) -> dict[str, str]:
    """The attribute that says who makes a transfer's descriptors; none where the compiler chooses."""
    modes = enums.dge_mode
    named = {modes.none: "static", modes.swdge: "software", modes.hwdge: "sync"}
    return {"descriptors": named[dge_mode]} if dge_mode in named else {}


def check_descriptor_mode(dge_mode: Any) -> None:
    """Hardware descriptor generation begins with NeuronCore-v3."""
    if dge_mode == enums.dge_mode.hwdge and current().target == "trn1":
        mend = "Use nisa.dge_mode.swdge, or compile with platform_target='trn2'."
        refuse(KernelValueError("dge_mode", "hwdge needs NeuronCore-v3.", mend))


@api
def dma_transpose(
    src: Any, *, axes: Any = None, mask: Any = None, dtype: Any = None, dge_mode: Any = None
) -> TensorView:
    """A new SBUF tile with the axes of src reversed: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    source = endpoint(src, "src", COPY_FIRST)
    check_descriptor_mode(dge_mode)
    if source.itemsize > 2 and current().target != "trn1":
        mend = "Use nisa.nc_transpose or nl.load_transpose2d."
        said = f"dma_transpose moves elements of two bytes, not {source.dtype}."
        refuse(KernelTypeError("dma_transpose_dtype", said, mend))
    rank = source.ndim
    if rank not in TRANSPOSED:
        fail(operands.too_many_dimensions("dma_transpose", "src", source.shape, 4))
    if axes is not None and tuple(axes) != TRANSPOSED[rank]:
        mend = f"The axes of a {rank}-D tile are {TRANSPOSED[rank]}."
        fail(KernelTypeError("transpose_axes", f"dma_transpose cannot permute by {axes}.", mend))
    return transposed(
        source, TRANSPOSED[rank], "dma_transpose", mask, dtype, **descriptors(dge_mode)
    )


def transposed(
    source: TensorView, axes: tuple[int, ...], name: str, mask: Any, dtype: Any, **more: str
) -> TensorView:
    """One DMA that reads source in the order of the permuted axes."""
    if source.gathered:
        fail(indexing.runtime_index_not_supported(name))
    if source.open_blocks:
        fail(operands.not_a_tile(repr(source), "not every block dimension is chosen"))
    condition = mask_of(mask)
    checked = source.access(condition)  # bounds are checked before the axes move
    turned = source.replaced(
        shape=tuple(checked.shape[axis] for axis in axes),
        strides=tuple(checked.strides[axis] for axis in axes),
        bounds=(),
    )
    result = new_tile(turned.shape, dtype or source.dtype)
    turning = builder.permuted(condition, axes)
    return transfer(result, turned, transpose=True, mask=turning, **more)
