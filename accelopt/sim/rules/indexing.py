"""Rules of indices and masks. Each is one documented rule."""

from __future__ import annotations

from accelopt.sim.errors import KernelError, KernelSyntaxError, Rule, rules_in

one_dimensional_arange: Rule
assignment_to_index: Rule
copy_between_runtime_indices: Rule
runtime_index_not_supported: Rule
runtime_index_on_free_dimension: Rule
mixed_indexing: Rule
globals().update(rules_in("indexing"))

MASK_MEND = "A mask is a conjunction (&) of comparisons of nl.arange, nl.mgrid and loop indices."


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
