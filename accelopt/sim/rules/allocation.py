"""Rules of initial values and of direct allocation."""

from __future__ import annotations

from accelopt.sim.errors import Rule

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
