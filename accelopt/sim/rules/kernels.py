"""Rules of a kernel as a whole: its parameters, results, calls."""

from __future__ import annotations

from accelopt.sim.errors import KernelValueError, Rule

immutable_parameter = Rule(
    "err_cannot_update_immutable_parameter",
    "'{0}' is an input of the kernel and cannot be written.",
    "Write to a new nl.shared_hbm tensor and return it, or annotate the parameter with "
    "nt.mutable_tensor.",
)
stack_allocator_alone = Rule(
    "stack_allocator",
    "enable_stack_allocator must be used together with skip_middle_end_transformations.",
    "Decorate the kernel with nki.compiler.skip_middle_end_transformations too.",
    KernelValueError,
)
"""Documented with nki.compiler.enable_stack_allocator (SDK 2.26.1)."""
mutable_not_returned = Rule(
    "err_mutable_parameter_not_returned",
    "mutable parameter '{0}' is not returned.",
    "Return it from the kernel.",
)
nested_grid = Rule(
    "err_nested_kernel_with_spmd_grid",
    "kernel '{0}' is called with a grid inside of a kernel.",
    "Call it without a grid; the grid belongs to the outermost kernel.",
)
outside_of_kernel = Rule(
    "err_nki_api_outside_of_nki_kernel",
    "an NKI API was called outside of an NKI kernel.",
    "Call it in a function decorated with @nki.jit.",
)
shared_hbm_in_block = Rule(
    "err_shared_hbm_must_in_kernel_level",
    "a shared_hbm tensor is made inside a loop, a condition or a called kernel.",
    "Make it at the top level of the kernel.",
)
output_not_written = Rule(
    "err_tensor_output_not_written_to",
    "the kernel's output '{0}' is never written.",
    "nl.store into it; check that the loops around the store run at least once.",
)
no_output = Rule(
    "err_tensor_output_not_written_to",
    "the kernel has no output.",
    "Return a tensor made with buffer=nl.shared_hbm.",
)
target_without_package = Rule(
    "target",
    "the package neuronxcc.nki does not compile for {0}.",
    "Trace it for trn1 or trn2, or write it with the package nki (accelopt translate --to nki).",
    KernelValueError,
)
