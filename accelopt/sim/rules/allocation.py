"""Rules of initial values and of direct allocation."""

from __future__ import annotations

from accelopt.sim.errors import KernelError


def bias_required() -> KernelError:
    """An activation without a bias tile in a directly allocated kernel."""
    return KernelError(
        "err_bias_tensor_must_be_specified_in_allocation",
        "an activation in a directly allocated kernel has no bias tensor.",
        "Call nisa.activation with bias= a (partition, 1) tile of zeros that you allocated.",
    )


def initial_value_on_scratchpad() -> KernelError:
    """A directly allocated tensor is made with an initial value."""
    return KernelError(
        "err_tensor_creation_on_scratchpad_with_init_value_not_supported",
        "a directly allocated tensor is made with an initial value.",
        "Use nl.ndarray and assign the value.",
    )


def implicit_transpose() -> KernelError:
    """A Tensor-engine transpose needs an identity matrix that nobody allocated."""
    return KernelError(
        "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
        "a transpose on the Tensor engine in a directly allocated kernel.",
        "Multiply with your own identity matrix by nisa.nc_matmul, or pass "
        "engine=nisa.vector_engine for 32x32 tiles.",
    )


def initial_value_in_hbm() -> KernelError:
    """A tensor in HBM is made with an initial value."""
    return KernelError(
        "err_hbm_tensor_with_init_value_not_supported",
        "a tensor in HBM cannot be made with an initial value.",
        "Use nl.ndarray and nl.store the value.",
    )


def bad_placement(message: str, mend: str) -> KernelError:
    """A direct allocation that the memory or the ISA does not have."""
    return KernelError("direct_allocation", message, mend)


def scratch_in_hbm(names: str) -> KernelError:
    """Compiler error NKI005: HBM tensors that are neither inputs nor outputs."""
    return KernelError(
        "NKI005",
        f"Non IO HBM tensor is not supported in allocated NKI kernel: {names}.",
        "Return them, or keep the values in SBUF.",
    )


def buffer_too_large(name: str, needed: int, available: int, memory: str) -> KernelError:
    """Compiler error GCA046: one buffer that no allocation can fit."""
    return KernelError(
        "GCA046",
        f"'{name}' needs {needed} bytes a partition, more than the {available} of {memory}.",
        "Tile its free dimensions, or declare leading block dimensions.",
    )
