"""Rules of operands: where they lie, what shape and format they have."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.sim.errors import (
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    Rule,
)

bias_format = Rule(
    "err_activation_bias_invalid_type",
    "the bias of an activation is {0}.",
    "Make it float32, float16 or bfloat16.",
    KernelTypeError,
)
scale_format = Rule(
    "err_activation_scale_invalid_type",
    "the scale of an activation is a {0} vector.",
    "Make it float32, or pass a number.",
    KernelTypeError,
)
scale_shape = Rule(
    "err_activation_scale_scalar_or_vector",
    "the scale of an activation has shape {0}.",
    "Pass a number or a (partition, 1) tile.",
    KernelTypeError,
)


def partition_mismatch(sizes: Mapping[str, int]) -> KernelError:
    """Operands of one instruction span different numbers of partitions."""
    listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    return KernelValueError(
        "err_num_partition_mismatch",
        f"operands have different numbers of partitions ({listed}).",
        "Give them the same partition size; nl.* functions and .broadcast_to broadcast it.",
    )


wrong_memory = Rule(
    "err_unsupported_memory",
    "operand '{0}' ({1}) must lie in {2}.",
    "{3}",
    KernelTypeError,
)
destination_too_small = Rule(
    "err_store_dst_shape_smaller_than_other_shape",
    "a value of shape {0} does not fit a destination of shape {1}.",
    "Make the shapes equal; only axes of length 1 of the value are repeated.",
    KernelValueError,
)
annotated_shape = Rule(
    "err_annotation_shape_mismatch",
    "'{0}' has shape {1}, but is annotated with {2}.",
    "Correct the annotation or the shape.",
    KernelValueError,
)
not_a_tile = Rule(
    "err_failed_to_infer_tile_from_local_tensor",
    "{0} is not a tile: {1}.",
    "Index every block dimension with a number or loop index; partitions come first.",
)


def operand_type(name: str, given: str, mend: str = "") -> KernelTypeError:
    """A value of the wrong Python type; seen in real runs, without a documented id."""
    return KernelTypeError(
        "operand_type", f"Expect operand '{name}' to be a tile, not {given}.", mend
    )


not_a_vector = Rule(
    "operand_shape",
    "{0}'s free dimension should be 1 (a vector), got {1}.",
    "Use nisa.tensor_tensor for two full tiles.",
    KernelSyntaxError,
)
"""A per-partition operand with more than one element a partition; seen in real runs."""
unsupported_format = Rule(
    "operand_dtype",
    "operand '{1}' of {0} is {2}.",
    "Convert it to one of: {3}.",
    KernelTypeError,
)
needs_microscaling = Rule(
    "microscaling",
    "{0} needs NeuronCore-v4 (trn3), and this kernel is traced for {1}.",
    "Trace it for trn3 (--target trn3), or multiply bfloat16, or float8 with perf_mode double_row.",
    KernelValueError,
)
needs_indirection = Rule(
    "indirect",
    ".indirect needs NeuronCore-v4 (trn3), and this kernel is traced for {0}.",
    "Trace it for trn3 (--target trn3), or gather with nisa.nc_n_gather or nisa.dma_copy and vector_offset.",
    KernelValueError,
)
both_in_psum = Rule(
    "err_unsupported_memory",
    "'{1}' and '{2}' of {0} both lie in PSUM.",
    "Copy one of them to SBUF with nl.copy.",
    KernelTypeError,
)


def different_shapes(
    api: str, shapes: Mapping[str, tuple[int, ...]], mend: str = "Make them equal."
) -> KernelValueError:
    """Operands that must have one shape do not."""
    listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    return KernelValueError("operand_shape", f"operands of {api} differ in shape ({listed}).", mend)
