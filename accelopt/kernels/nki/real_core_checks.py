"""What a real core would say of numbers that are simulated: less exact engines, and least times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from accelopt.evaluation import Check, Status
from accelopt.hardware import TARGETS
from accelopt.hardware.least_time import Work, least_time
from accelopt.kernels.nki.devices import Inexactness, KernelFailure
from accelopt.kernels.nki.referee.comparison import GATE
from accelopt.kernels.nki.referee.trials import Trial


def check_accuracy(inexact: Iterable[Inexactness], checks: Sequence[Check], target: str) -> None:
    """The published gate once more, with what the engines of a real core add to the error. Raises
    KernelFailure."""
    for one in inexact:
        for check in checks:
            there = math.hypot(check.amount, one.relative)
            if check.name == GATE and check.passed and there >= check.limit:
                raise KernelFailure(
                    Status.WRONG_NUMBERS,
                    f"{GATE} {there:.3g} on a real {target}, limit {check.limit:g}: "
                    f"{check.amount:.3g} here and {one.relative:.3g} of {one.where}, which is "
                    f"less exact there than on the simulated core {check.where}",
                )


def least_written(trial: Trial) -> int:
    """The bytes of a trial's outputs that every kernel writes: one that changes an argument in place need not
    write what stays in it as it was."""
    written = 0
    for output, form in zip(trial.expected, trial.forms, strict=True):
        alike = [a for a in trial.inputs if isinstance(a, np.ndarray) and a.shape == form.shape]
        before = trial.judged(alike)
        changed = (int(np.count_nonzero((old != output) & (old == old))) for old in before)
        written += min((output.size, *changed)) * output.itemsize
    return written


def check_latency(latency_ms: float, written: int, least_ms: float, target: str) -> None:
    """Nothing beats the problem's bound (`least_ms`); without one, the bytes of outputs that are `written`
    must at least pass the memory. Raises KernelFailure."""
    least = max(least_ms, least_time(Work(0, written), TARGETS[target]).latency_ms)
    if latency_ms < least:
        raise KernelFailure(
            Status.BENCHMARK_ERROR,
            f"impossible: {latency_ms:.6g} ms, and the problem takes at least {least:.6g} ms on {target}",
        )
