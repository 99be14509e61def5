"""Rules of a kernel as a whole: its parameters, results, calls, and Python's control flow in it."""

from __future__ import annotations

from accelopt.sim.errors import Rule, rules_in

immutable_parameter: Rule
stack_allocator_alone: Rule  # Documented with nki.compiler.enable_stack_allocator (SDK 2.26.1).
mutable_not_returned: Rule
nested_grid: Rule
outside_of_kernel: Rule
shared_hbm_in_block: Rule
output_not_written: Rule
no_output: Rule
target_without_package: Rule
ambiguous_truth: Rule
condition_on_arange: Rule
condition_on_tensor: Rule
while_on_tensor: Rule
index_as_number: Rule
changed_by_iteration: Rule
left_early: Rule
index_after_loop: Rule
undecided_extremum: Rule
bound_in_branch: Rule
out_of_scope: Rule
globals().update(rules_in("kernels"))
