"""Rules of Python's control flow in kernels."""

from __future__ import annotations

from accelopt.sim.errors import KernelSyntaxError, KernelTypeError, KernelValueError, Rule

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
