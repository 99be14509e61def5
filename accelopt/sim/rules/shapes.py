"""Rules of sizes: partitions, free elements, ranks."""

from __future__ import annotations

from accelopt.sim.errors import KernelError, KernelSyntaxError


def too_many_dimensions(api: str, operand: str, shape: tuple[int, ...], most: int) -> KernelError:
    """An operand has more dimensions than the API takes."""
    return KernelSyntaxError(
        "err_exceed_max_supported_dimension",
        f"operand '{operand}' {shape} of {api} exceeds the maximum of {most} dimensions.",
        "Reshape it, or work on one slice at a time.",
    )


def too_many_partitions(size: int, most: int) -> KernelError:
    """More partitions than the memory has."""
    return KernelSyntaxError(
        "err_num_partition_exceed_arch_limit",
        f"{size} partitions exceed the limit of {most}.",
        "Tile the partition dimension.",
    )


def dimension_too_large(
    api: str, operand: str, shape: tuple[int, ...], size: int, most: int
) -> KernelError:
    """An operand is larger than the instruction can take."""
    return KernelSyntaxError(
        "err_size_of_dimension_exceed_arch_limit",
        f"operand '{operand}' {shape} of {api} has {size} elements in a dimension limited to "
        f"{most}.",
        "Tile that dimension.",
    )


def leading_dimension(tensor: str, wanted: tuple[int, ...]) -> KernelError:
    """A view would put something else than the partitions first."""
    return KernelSyntaxError(
        "err_leading_dimension_of_tensor_must_be_partition",
        f"{tensor} cannot become {wanted}: the first dimension of an on-chip tensor is its "
        "partition dimension.",
        "Keep the first dimension; only free dimensions can be split or merged.",
    )


def insufficient_rank(shape: tuple[int, ...]) -> KernelError:
    """On-chip tensors have a partition and a free dimension; seen in real runs."""
    return KernelSyntaxError(
        "insufficient_rank",
        f"Insufficient rank: on-chip shape {shape} needs a partition and a free dimension.",
        "Add a free dimension of length 1.",
    )
