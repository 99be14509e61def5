"""Rules of a kernel as a whole: its parameters, results, calls, and Python's control flow in it."""

from __future__ import annotations

from accelopt.sim.errors import KernelSyntaxError, KernelTypeError, KernelValueError, Rule

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


ambiguous_truth = Rule(
    "err_ambiguous_tensor_truth_value",
    "the truth value of a tensor is not known while tracing.",
    "Use '&', '|', '~' or nl.where on tiles, and 'is not None' for optional arguments.",
    KernelValueError,
)
condition_on_arange = Rule(
    "err_control_flow_condition_depending_on_arange",
    "a Python condition depends on nl.arange or nl.mgrid.",
    "Pass the comparison as mask=... instead.",
)
condition_on_tensor = Rule(
    "err_dynamic_control_flow_not_supported",
    "a Python condition depends on a tensor's value.",
    "Use masks, nl.where or predicated instructions.",
)
while_on_tensor = Rule(
    "err_while_loop_requires_unconditional_entry",
    "the condition of a while loop is a tensor.",
    "Loop a fixed number of times and mask the work.",
    KernelValueError,
)
index_as_number = Rule(
    "index_as_number",
    "a loop index is used as a Python number: NKI runs a loop's body once, for all "
    "iterations, so it has no value there.",
    "Use nl.static_range for a loop that is to be unrolled, or index a tensor instead of a list.",
    KernelTypeError,
)
changed_by_iteration = Rule(
    "traced_once",
    "{0} from one iteration to the next: NKI runs a loop's body once, for all iterations, so "
    "every iteration would see what the first one sees.",
    "Use nl.static_range, compute it from the loop index, or keep it in a tensor.",
    KernelSyntaxError,
)
left_early = Rule(
    "traced_once",
    "the loop is left by {0}: NKI runs a loop's body once, for all iterations, so it cannot "
    "end early.",
    "Use nl.static_range, or mask the work that is not to be done.",
    KernelSyntaxError,
)
index_after_loop = Rule(
    "traced_once",
    "a loop index is used after its loop, where it has no value.",
    "Write the number of the last iteration.",
    KernelSyntaxError,
)
undecided_extremum = Rule(
    "index_as_number",
    "min() or max() of a loop index has no value: NKI runs a loop's body once, for all iterations.",
    "Use a mask for the part that is not there, or nl.static_range.",
    KernelTypeError,
)
bound_in_branch = Rule(
    "err_local_variable_used_out_of_scope",
    "'{0}' is bound in a branch that depends on a loop index (line {1}) and used outside of "
    "it; NKI runs every branch, under a predicate.",
    "Declare a tensor with nl.ndarray before the branch and assign into it, or write a mask.",
    KernelSyntaxError,
)
out_of_scope = Rule(
    "err_local_variable_used_out_of_scope",
    "tensor '{0}' (made at {1}) is used outside of the {2} that it was made in.",
    "Declare it with nl.ndarray before that block and assign into it: t[...] = value.",
    KernelSyntaxError,
)
