"""Rules of operands: where they lie, what shape, size and format they have, what is in them at first, and where
the kernel puts them itself (direct allocation)."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.sim.errors import KernelError, KernelTypeError, KernelValueError, Rule, rules_in

too_many_dimensions: Rule
too_many_partitions: Rule
dimension_too_large: Rule
leading_dimension: Rule
insufficient_rank: Rule  # On-chip tensors have a partition and a free dimension; seen in real runs.
bias_required: Rule
initial_value_on_scratchpad: Rule
implicit_transpose: Rule
initial_value_in_hbm: Rule
bad_placement: Rule
scratch_in_hbm: Rule  # Compiler error NKI005: HBM tensors that are neither inputs nor outputs.
buffer_too_large: Rule  # Compiler error GCA046: one buffer that no allocation can fit.
bias_format: Rule
scale_format: Rule
scale_shape: Rule
wrong_memory: Rule
destination_too_small: Rule
annotated_shape: Rule
not_a_tile: Rule
not_a_vector: Rule  # A per-partition operand is not (P, 1); seen in real runs.
unsupported_format: Rule
needs_microscaling: Rule
needs_indirection: Rule
both_in_psum: Rule
globals().update(rules_in("operands"))


def partition_mismatch(sizes: Mapping[str, int]) -> KernelError:
    """Operands of one instruction span different numbers of partitions."""
    listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    return KernelValueError(
        "err_num_partition_mismatch",
        f"operands have different numbers of partitions ({listed}).",
        "Give them the same partition size; nl.* functions and .broadcast_to broadcast it.",
    )


def operand_type(name: str, given: str, mend: str = "") -> KernelTypeError:
    """A value of the wrong Python type; seen in real runs, without a documented id."""
    return KernelTypeError(
        "operand_type", f"Expect operand '{name}' to be a tile, not {given}.", mend
    )


def different_shapes(
    api: str, shapes: Mapping[str, tuple[int, ...]], mend: str = "Make them equal."
) -> KernelValueError:
    """Operands that must have one shape do not."""
    listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    return KernelValueError("operand_shape", f"operands of {api} differ in shape ({listed}).", mend)
