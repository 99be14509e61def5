"""What judging one more candidate costs, against what only running it costs.

For each problem the kernel of NKIBench is evaluated twice with an empty cache of its own: the first
evaluation also makes inputs and reference outputs, the second is what every later candidate costs.
Beside it stand the kernel's own runs and the runs of the NumPy reference that a referee without a
cache would make, measured between the two. Ratios only: the machine is shared.

    python benchmarks/referee_cost.py [--problems silu matmul] [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from accelopt.evaluation import Case, EvaluationRequest, Status
from accelopt.kernels.measurement import geometric_mean
from accelopt.kernels.nki import benchmark
from accelopt.kernels.nki.devices import TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.trials import (
    END,
    HIDDEN,
    ONE_SIDED,
    PUBLIC,
    STRESS,
    SWEEP,
    TrialStore,
)

ROOT = Path(__file__).resolve().parents[1]
TRIALS = (*PUBLIC, HIDDEN, STRESS, ONE_SIDED, SWEEP, END)


class Cost(NamedTuple):
    """Seconds for one problem."""

    first: float
    later: float
    own_runs: float
    reference_runs: float


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(case: Case, trials: TrialStore) -> Cost:
    """The costs of one case's own kernel."""
    request = EvaluationRequest(
        kernel=case.kernel,
        task=case.task,
        rel_tol=benchmark.relative_tolerance(case.problem),
    )

    def judge() -> None:
        evaluation = evaluate(request, trials=trials)
        if evaluation.status is not Status.CORRECT:
            raise SystemExit(f"{case.case_name}: {evaluation.status.value}: {evaluation.message}")

    first = timed(judge)
    reference = Reference(case.task)
    found = [trial for name in TRIALS if (trial := trials.get(reference, name))]
    arguments = [
        TensorArgument(value.shape, value.dtype.name) if hasattr(value, "shape") else value
        for value in reference.kernel_inputs(found[0].inputs)
    ]
    executable = SimulatedDevice().compile(case.kernel, arguments)
    own = sum(
        timed(partial(executable.run, reference.kernel_inputs(trial.inputs))) for trial in found
    )
    once = timed(lambda: reference.forward(found[0].inputs))
    return Cost(first, timed(judge), own, once * len(found))


def main() -> None:
    """Print a line a problem and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", help="only these (default: all fourteen)")
    parser.add_argument("--cache", help="keep the trials here instead of in a temporary folder")
    options = parser.parse_args()
    cases = benchmark.read_benchmark(ROOT).cases
    ratios: list[float] = []
    print(
        f"{'problem':24} {'first':>8} {'later':>8} {'later/own':>10} {'later/(own+reference)':>22}"
    )
    for case in cases:
        if options.problems and case.problem not in options.problems:
            continue
        with tempfile.TemporaryDirectory() as folder:
            cost = measure(case, trial_store(options.cache or folder))
        ratio = cost.later / cost.own_runs
        ratios.append(ratio)
        uncached = cost.later / (cost.own_runs + cost.reference_runs)
        print(
            f"{case.problem:24} {cost.first:7.1f}s {cost.later:7.1f}s {ratio:10.2f} {uncached:22.2f}",
            flush=True,
        )
    print(f"geometric mean of later/own: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
