"""Rules of operands: where they lie, what shape, size and format they have, what is in them at first, and where
the kernel puts them itself (direct allocation)."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.sim.errors import (
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    Rule,
)

too_many_dimensions = Rule(
    "err_exceed_max_supported_dimension",
    "operand '{1}' {2} of {0} exceeds the maximum of {3} dimensions.",
    "Reshape it, or work on one slice at a time.",
    KernelSyntaxError,
)
too_many_partitions = Rule(
    "err_num_partition_exceed_arch_limit",
    "{0} partitions exceed the limit of {1}.",
    "Tile the partition dimension.",
    KernelSyntaxError,
)
dimension_too_large = Rule(
    "err_size_of_dimension_exceed_arch_limit",
    "operand '{1}' {2} of {0} has {3} elements in a dimension limited to {4}.",
    "Tile that dimension.",
    KernelSyntaxError,
)
leading_dimension = Rule(
    "err_leading_dimension_of_tensor_must_be_partition",
    "{0} cannot become {1}: the first dimension of an on-chip tensor is its partition dimension.",
    "Keep the first dimension; only free dimensions can be split or merged.",
    KernelSyntaxError,
)
insufficient_rank = Rule(
    "insufficient_rank",
    "Insufficient rank: on-chip shape {0} needs a partition and a free dimension.",
    "Add a free dimension of length 1.",
    KernelSyntaxError,
)
"""On-chip tensors have a partition and a free dimension; seen in real runs."""


bias_required = Rule(
    "err_bias_tensor_must_be_specified_in_allocation",
    "an activation in a directly allocated kernel has no bias tensor.",
    "Call nisa.activation with bias= a (partition, 1) tile of zeros that you allocated.",
)
initial_value_on_scratchpad = Rule(
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported",
    "a directly allocated tensor is made with an initial value.",
    "Use nl.ndarray and assign the value.",
)
implicit_transpose = Rule(
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
    "a transpose on the Tensor engine in a directly allocated kernel.",
    "Multiply with your own identity matrix by nisa.nc_matmul, or pass "
    "engine=nisa.vector_engine for 32x32 tiles.",
)
initial_value_in_hbm = Rule(
    "err_hbm_tensor_with_init_value_not_supported",
    "a tensor in HBM cannot be made with an initial value.",
    "Use nl.ndarray and nl.store the value.",
)
bad_placement = Rule(
    "direct_allocation",
    "{0}",
    "{1}",
)
scratch_in_hbm = Rule(
    "NKI005",
    "Non IO HBM tensor is not supported in allocated NKI kernel: {0}.",
    "Return them, or keep the values in SBUF.",
)
"""Compiler error NKI005: HBM tensors that are neither inputs nor outputs."""
buffer_too_large = Rule(
    "GCA046",
    "'{0}' needs {1} bytes a partition, more than the {2} of {3}.",
    "Tile its free dimensions, or declare leading block dimensions.",
)
"""Compiler error GCA046: one buffer that no allocation can fit."""


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
