"""Rules of operands: where they lie, what shape and format they have."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelTypeError, KernelValueError


def bias_format(dtype: str) -> KernelError:
    """The bias of an activation is of another format than fp32, fp16 or bf16."""
    return KernelTypeError(
        "err_activation_bias_invalid_type",
        f"the bias of an activation is {dtype}.",
        "Make it float32, float16 or bfloat16.",
    )


def scale_format(dtype: str) -> KernelError:
    """The scale vector of an activation is not fp32."""
    return KernelTypeError(
        "err_activation_scale_invalid_type",
        f"the scale of an activation is a {dtype} vector.",
        "Make it float32, or pass a number.",
    )


def scale_shape(shape: tuple[int, ...]) -> KernelError:
    """The scale of an activation is neither a number nor one value a partition."""
    return KernelTypeError(
        "err_activation_scale_scalar_or_vector",
        f"the scale of an activation has shape {shape}.",
        "Pass a number or a (partition, 1) tile.",
    )


def partition_mismatch(sizes: Mapping[str, int]) -> KernelError:
    """Operands of one instruction span different numbers of partitions."""
    listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    return KernelValueError(
        "err_num_partition_mismatch",
        f"operands have different numbers of partitions ({listed}).",
        "Give them the same partition size; nl.* functions and .broadcast_to broadcast it.",
    )


def wrong_memory(operand: str, tile: str, allowed: str, mend: str) -> KernelError:
    """An operand lies in a memory that the API cannot reach."""
    return KernelTypeError(
        "err_unsupported_memory",
        f"operand '{operand}' ({tile}) must lie in {allowed}.",
        mend,
    )


def destination_too_small(source: tuple[int, ...], target: tuple[int, ...]) -> KernelError:
    """Several values would be written to one element of the destination."""
    return KernelValueError(
        "err_store_dst_shape_smaller_than_other_shape",
        f"a value of shape {source} does not fit a destination of shape {target}.",
        "Make the shapes equal; only axes of length 1 of the value are repeated.",
    )


def annotated_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> KernelError:
    """A value does not have the shape that its annotation promises."""
    return KernelValueError(
        "err_annotation_shape_mismatch",
        f"'{name}' has shape {shape}, but is annotated with {wanted}.",
        "Correct the annotation or the shape.",
    )


def not_a_tile(tensor: str, reason: str) -> KernelError:
    """A tensor with open block dimensions, or a view whose first axis is not the partitions."""
    return KernelError(
        "err_failed_to_infer_tile_from_local_tensor",
        f"{tensor} is not a tile: {reason}.",
        "Index every block dimension with a number or loop index; partitions come first.",
    )


def operand_type(name: str, given: str, mend: str = "") -> KernelTypeError:
    """A value of the wrong Python type; seen in real runs, without a documented id."""
    return KernelTypeError(
        "operand_type", f"Expect operand '{name}' to be a tile, not {given}.", mend
    )


def not_a_vector(name: str, elements: int) -> KernelSyntaxError:
    """A per-partition operand with more than one element a partition; seen in real runs."""
    return KernelSyntaxError(
        "operand_shape",
        f"{name}'s free dimension should be 1 (a vector), got {elements}.",
        "Use nisa.tensor_tensor for two full tiles.",
    )


def unsupported_format(api: str, operand: str, dtype: str, allowed: str) -> KernelTypeError:
    """A number format that an instruction does not take."""
    return KernelTypeError(
        "operand_dtype",
        f"operand '{operand}' of {api} is {dtype}.",
        f"Convert it to one of: {allowed}.",
    )


def needs_microscaling(what: str, target: str) -> KernelValueError:
    """Microscaling on a generation that does not have it."""
    return KernelValueError(
        "microscaling",
        f"{what} needs NeuronCore-v4 (trn3), and this kernel is traced for {target}.",
        "Trace it for trn3 (--target trn3), or multiply bfloat16, or float8 with "
        "perf_mode double_row.",
    )


def both_in_psum(api: str, first: str, second: str) -> KernelTypeError:
    """Two operands that may not both lie in PSUM do."""
    return KernelTypeError(
        "err_unsupported_memory",
        f"'{first}' and '{second}' of {api} both lie in PSUM.",
        "Copy one of them to SBUF with nl.copy.",
    )


def different_shapes(
    api: str, shapes: Mapping[str, tuple[int, ...]], mend: str = "Make them equal."
) -> KernelValueError:
    """Operands that must have one shape do not."""
    listed = ", ".join(f"{name}: {shape}" for name, shape in shapes.items())
    return KernelValueError("operand_shape", f"operands of {api} differ in shape ({listed}).", mend)
