"""What judging costs, in CPU seconds and as multiples of one run of the reference.

The kernel of each NKIBench problem is evaluated twice with an empty cache of its own: the first evaluation
also makes inputs and exact outputs, the second is what every later candidate costs. Both count our process
and its children. A full check should cost at most 25 runs of the reference the first time, 10 afterwards,
and 4 GiB.

    python benchmarks/referee_cost.py [--problems silu matmul] [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from accelopt.evaluation import Case, EvaluationRequest, Status
from accelopt.kernels.measurement import geometric_mean
from accelopt.kernels.nki import benchmark
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.trials import TrialStore

ROOT = Path(__file__).resolve().parents[1]


class Cost(NamedTuple):
    """CPU seconds for one problem, and the most memory that was resident so far, in GiB."""

    reference: float
    first: float
    later: float
    memory: float


def cpu_seconds(work: Callable[[], object]) -> float:
    """What `work` takes, with the processes that it waits for."""

    def used() -> float:
        found = (
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return sum(one.ru_utime + one.ru_stime for one in found)

    started = used()
    work()
    return used() - started


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

    problem = Reference(case.task)
    inputs = problem.inputs(0)
    once = cpu_seconds(partial(problem.forward, inputs))
    first, later = cpu_seconds(judge), cpu_seconds(judge)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return Cost(once, first, later, peak)


def main() -> None:
    """Print a line a problem and the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", help="only these (default: all fourteen)")
    parser.add_argument("--cache", help="keep the trials here instead of in a temporary folder")
    options = parser.parse_args()
    cases = benchmark.read_benchmark(ROOT).cases
    ratios: list[tuple[float, float]] = []
    print(f"{'problem':24} {'reference':>10} {'first':>16} {'later':>16} {'peak':>9}")
    for case in cases:
        if options.problems and case.problem not in options.problems:
            continue
        with tempfile.TemporaryDirectory() as folder:
            cost = measure(case, trial_store(options.cache or folder))
        times = cost.first / cost.reference, cost.later / cost.reference
        ratios.append(times)
        first, later = (f"{n:.1f}s {r:6.1f}x" for n, r in zip(cost[1:3], times, strict=True))
        print(
            f"{case.problem:24} {cost.reference:9.2f}s {first:>16} {later:>16} {cost.memory:5.1f} GiB",
            flush=True,
        )
    means = (geometric_mean(list(column)) for column in zip(*ratios, strict=True))
    print("geometric means of the multiples: " + ", ".join(f"{mean:.1f}" for mean in means))


if __name__ == "__main__":
    main()
