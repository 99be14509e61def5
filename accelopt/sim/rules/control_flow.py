"""Rules of Python's control flow in kernels."""

from __future__ import annotations

from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelValueError, SourceLine


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


def out_of_scope(name: str, made: SourceLine, block: str) -> KernelError:
    """A tensor is used after the block that it was made in."""
    return KernelSyntaxError(
        "err_local_variable_used_out_of_scope",
        f"tensor '{name}' (made at {made}) is used outside of the {block} that it was made in.",
        "Declare it with nl.ndarray before that block and assign into it: t[...] = value.",
    )
