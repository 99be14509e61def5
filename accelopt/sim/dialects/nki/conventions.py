"""What the `nki` package asks of every instruction, and its own words for errors that it shares with
`neuronxcc.nki`, which has masks, block dimensions and loops that are traced once.
"""

from __future__ import annotations

import math
from types import MappingProxyType

from accelopt.sim.access import Access
from accelopt.sim.dialects.nki.overlapping_tiles import place_of
from accelopt.sim.dialects.nki.tensor import NkiTensor
from accelopt.sim.errors import KernelError, KernelValueError
from accelopt.sim.program import Engine, Instruction
from accelopt.sim.tracer import Conventions

QUADRANT = 32

NO_BRANCHES = (
    "Python runs while the kernel is compiled: select with nl.where, or loop on the device with "
    "nl.while_loop and a register (nisa.register_load)."
)
MENDS = MappingProxyType({
    "err_tensor_access_out_of_bound": (
        "End the slice where the tensor ends, as in x[p0 : min(p0 + 128, rows)]."
    ),
    "err_ambiguous_tensor_truth_value": NO_BRANCHES,
    "err_dynamic_control_flow_not_supported": NO_BRANCHES,
    "err_while_loop_requires_unconditional_entry": (
        "Loop on the device: nl.while_loop, or `while` on a register (nisa.register_load)."
    ),
    "err_indirect_indices_free_dim": (
        "Gather along the first dimension by .ap(..., vector_offset=...), along others with "
        "nisa.nc_n_gather."
    ),
    "err_failed_to_infer_tile_from_local_tensor": (
        "The first dimension is that of the partitions, and stays first."
    ),
    "GCA046": "Tile its free dimensions.",
    "index_type": "Use numbers, loop indices, slices or nl.ds.",
    "kernel_touches_data": (
        "Pass the number as an argument of the kernel, or load it into a register "
        "(nisa.register_load) for nl.fori_loop and .ap(scalar_offset=...)."
    ),
    "trace_too_long": "Take larger tiles, or loop on the device with nl.fori_loop.",
})  # fmt: skip


def check(instruction: Instruction) -> KernelError | None:
    """What every instruction must keep; None where it does."""
    if instruction.engine is Engine.DMA or instruction.opcode.starts_anywhere:
        return None
    for accesses in (instruction.outputs, instruction.inputs):
        for name, access in accesses.items():
            if access.tensor.buffer.on_chip and "_scale" not in name:
                error = _check_start(access)
                if error is not None:
                    return error
    return None


def _check_start(access: Access) -> KernelError | None:
    """Up to 32 partitions start at 0, 32, 64 or 96, up to 64 at 0 or 64, more at 0
    (trainium_inferentia2_arch.rst, "Data movement"). A tile without an address begins where the
    compiler wants, which is one of these."""
    count = access.shape[0] if access.strides[0] else 1
    row = math.prod(access.tensor.tile_shape[1:]) * access.tensor.dtype.itemsize
    row //= access.dtype.itemsize
    place = place_of(access.tensor)
    base = place.first if place is not None else 0
    if not access.offset.terms and access.offset.constant < row and not base:
        return None
    low, high = (base + at // row for at in access.offset.bounds)
    parts = {low}
    if low != high:
        parts |= {factor // row for _, factor in access.offset.terms if abs(factor) >= row}
    step = QUADRANT if count <= QUADRANT else 2 * QUADRANT
    if all(part % step == 0 for part in parts) and (count <= 2 * QUADRANT or high == 0):
        return None
    starts = "0, 32, 64 or 96" if step == QUADRANT else "0 or 64" if count <= 64 else "0"
    where = f"partition {low}" if low == high else f"partitions {low} to {high}"
    return KernelValueError(
        "start_partition",
        f"an engine reaches {count} partitions of '{access.tensor.name}' from {where} on.",
        f"{count} partitions start at {starts}; nisa.dma_copy moves others there.",
    )


CONVENTIONS = Conventions("nki", NkiTensor, check, MENDS)
