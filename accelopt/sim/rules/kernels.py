"""Rules of a kernel as a whole: its parameters, results, calls."""

from __future__ import annotations

from accelopt.sim.errors import KernelError, KernelValueError


def immutable_parameter(name: str) -> KernelError:
    """An input, or a constant, is written."""
    return KernelError(
        "err_cannot_update_immutable_parameter",
        f"'{name}' is an input of the kernel and cannot be written.",
        "Write to a new nl.shared_hbm tensor and return it, or annotate the parameter with "
        "nt.mutable_tensor.",
    )


def stack_allocator_alone() -> KernelError:
    """Documented with nki.compiler.enable_stack_allocator (SDK 2.26.1)."""
    return KernelValueError(
        "stack_allocator",
        "enable_stack_allocator must be used together with skip_middle_end_transformations.",
        "Decorate the kernel with nki.compiler.skip_middle_end_transformations too.",
    )


def mutable_not_returned(name: str) -> KernelError:
    """A parameter annotated as mutable is not among the results."""
    return KernelError(
        "err_mutable_parameter_not_returned",
        f"mutable parameter '{name}' is not returned.",
        "Return it from the kernel.",
    )


def nested_grid(name: str) -> KernelError:
    """A kernel is called with a grid inside of another kernel."""
    return KernelError(
        "err_nested_kernel_with_spmd_grid",
        f"kernel '{name}' is called with a grid inside of a kernel.",
        "Call it without a grid; the grid belongs to the outermost kernel.",
    )


def outside_of_kernel() -> KernelError:
    """An NKI API is called on the host."""
    return KernelError(
        "err_nki_api_outside_of_nki_kernel",
        "an NKI API was called outside of an NKI kernel.",
        "Call it in a function decorated with @nki.jit.",
    )


def shared_hbm_in_block() -> KernelError:
    """A shared_hbm tensor is made below the top level of the outermost kernel."""
    return KernelError(
        "err_shared_hbm_must_in_kernel_level",
        "a shared_hbm tensor is made inside a loop, a condition or a called kernel.",
        "Make it at the top level of the kernel.",
    )


def output_not_written(name: str) -> KernelError:
    """A result that no instruction writes."""
    return KernelError(
        "err_tensor_output_not_written_to",
        f"the kernel's output '{name}' is never written.",
        "nl.store into it; check that the loops around the store run at least once.",
    )


def no_output() -> KernelError:
    """A kernel that returns nothing and writes no parameter."""
    return KernelError(
        "err_tensor_output_not_written_to",
        "the kernel has no output.",
        "Return a tensor made with buffer=nl.shared_hbm.",
    )


def target_without_package(target: str) -> KernelError:
    """A kernel of neuronxcc.nki for a generation that came after that package."""
    return KernelValueError(
        "target",
        f"the package neuronxcc.nki does not compile for {target}.",
        "Trace it for trn1 or trn2, or write it with the package nki (accelopt translate --to nki).",
    )
