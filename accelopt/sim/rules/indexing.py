"""Rules of indices and masks. Each is one documented rule."""

from __future__ import annotations

from accelopt.sim.errors import KernelError, KernelSyntaxError, Rule

MASK_MEND = "A mask is a conjunction (&) of comparisons of nl.arange, nl.mgrid and loop indices."
one_dimensional_arange = Rule(
    "err_1d_arange_not_supported",
    "a one-dimensional nl.arange indexes a tensor.",
    "Give it a place: nl.arange(n)[:, None] or nl.arange(n)[None, :].",
)
assignment_to_index = Rule(
    "err_cannot_assign_to_index",
    "an index or mask cannot be assigned to.",
    "Build another index with arithmetic, or make a tile of it with nisa.iota.",
)
copy_between_runtime_indices = Rule(
    "err_copy_dynamic_indirect_indices_not_natively_supported",
    "a tile that is indexed at run time is assigned directly.",
    "Use nisa.tensor_copy_dynamic_src (or _dst) for on-chip tiles.",
)
runtime_index_not_supported = Rule(
    "err_indirect_indices_are_not_supported_with_nki_api",
    "{0} does not take a tensor that is indexed at run time.",
    "Use nl.load or nisa.dma_copy for the indexed access, and transpose afterwards.",
)
runtime_index_on_free_dimension = Rule(
    "err_indirect_indices_free_dim",
    "a run-time index {0}.",
    "Index the partition or block dimension with idx[nl.arange(n)[:, None], 0], and the "
    "other dimensions with nl.arange.",
)


def out_of_bounds(
    tensor: str, dimension: int | None, low: int, high: int, size: int
) -> KernelError:
    """An index known while tracing leaves its tensor, and no mask excludes it; without a dimension, one of
    the flattened tensor."""
    what = f"{tensor} (flattened)" if dimension is None else f"dimension {dimension} of {tensor}"
    return KernelError(
        "err_tensor_access_out_of_bound",
        f"{what} is indexed from {low} to {high}, but has {size} elements.",
        "Shrink the tile, or give the instruction a mask that excludes the rest.",
    )


def unsupported_mask(message: str) -> KernelSyntaxError:
    """A mask that is not a conjunction of affine comparisons."""
    return KernelSyntaxError("err_unsupported_expression_in_mask", message, MASK_MEND)


mixed_indexing = Rule(
    "err_unsupported_mixing_basic_advanced_tensor_indexing",
    "{0}",
    "Use nl.arange (or nl.mgrid) for every dimension, or slices for every dimension.",
    KernelSyntaxError,
)
