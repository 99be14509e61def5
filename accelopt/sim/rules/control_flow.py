"""Rules of Python's control flow in kernels."""

from __future__ import annotations

from accelopt.sim.errors import (
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    SourceLine,
)


def ambiguous_truth() -> KernelError:
    """`and`, `or`, `not` or `if` is used on a tensor."""
    return KernelValueError(
        "err_ambiguous_tensor_truth_value",
        "the truth value of a tensor is not known while tracing.",
        "Use '&', '|', '~' or nl.where on tiles, and 'is not None' for optional arguments.",
    )


def condition_on_arange() -> KernelError:
    """A Python condition depends on nl.arange or nl.mgrid."""
    return KernelError(
        "err_control_flow_condition_depending_on_arange",
        "a Python condition depends on nl.arange or nl.mgrid.",
        "Pass the comparison as mask=... instead.",
    )


def condition_on_tensor() -> KernelError:
    """A Python condition depends on what a tensor will hold."""
    return KernelError(
        "err_dynamic_control_flow_not_supported",
        "a Python condition depends on a tensor's value.",
        "Use masks, nl.where or predicated instructions.",
    )


def while_on_tensor() -> KernelError:
    """A while loop tests a run-time condition before its first iteration."""
    return KernelValueError(
        "err_while_loop_requires_unconditional_entry",
        "the condition of a while loop is a tensor.",
        "Loop a fixed number of times and mask the work.",
    )


def index_as_number() -> KernelError:
    """A list, dict, range or number in Python needs the value of a loop index or program id."""
    return KernelTypeError(
        "index_as_number",
        "a loop index is used as a Python number: NKI runs a loop's body once, for all iterations, "
        "so it has no value there.",
        "Use nl.static_range for a loop that is to be unrolled, or index a tensor instead of a list.",
    )


def changed_by_iteration(what: str) -> KernelError:
    """Python state that differs from one iteration to the next."""
    return KernelSyntaxError(
        "traced_once",
        f"{what} from one iteration to the next: NKI runs a loop's body once, for all iterations, "
        "so every iteration would see what the first one sees.",
        "Use nl.static_range, compute it from the loop index, or keep it in a tensor.",
    )


def left_early(how: str) -> KernelError:
    """A loop is left before its last iteration."""
    return KernelSyntaxError(
        "traced_once",
        f"the loop is left by {how}: NKI runs a loop's body once, for all iterations, so it cannot "
        "end early.",
        "Use nl.static_range, or mask the work that is not to be done.",
    )


def index_after_loop() -> KernelError:
    """A loop index is used after its loop."""
    return KernelSyntaxError(
        "traced_once",
        "a loop index is used after its loop, where it has no value.",
        "Write the number of the last iteration.",
    )


def undecided_extremum() -> KernelError:
    """Python's min() or max() of a loop index is used as a number."""
    return KernelTypeError(
        "index_as_number",
        "min() or max() of a loop index has no value: NKI runs a loop's body once, for all "
        "iterations.",
        "Use a mask for the part that is not there, or nl.static_range.",
    )


def bound_in_branch(name: str, line: int) -> KernelError:
    """A name that a branch on a loop index binds is used after it."""
    return KernelSyntaxError(
        "err_local_variable_used_out_of_scope",
        f"'{name}' is bound in a branch that depends on a loop index (line {line}) and used outside "
        "of it; NKI runs every branch, under a predicate.",
        "Declare a tensor with nl.ndarray before the branch and assign into it, or write a mask.",
    )


def out_of_scope(name: str, made: SourceLine, block: str) -> KernelError:
    """A tensor is used after the block that it was made in."""
    return KernelSyntaxError(
        "err_local_variable_used_out_of_scope",
        f"tensor '{name}' (made at {made}) is used outside of the {block} that it was made in.",
        "Declare it with nl.ndarray before that block and assign into it: t[...] = value.",
    )
