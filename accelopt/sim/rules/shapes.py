"""Rules of sizes: partitions, free elements, ranks."""

from __future__ import annotations

from accelopt.sim.errors import KernelSyntaxError, Rule

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
