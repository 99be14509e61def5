"""What judging costs, in CPU seconds and as multiples of one run of the reference.

The kernel of each NKIBench problem is evaluated twice with an empty cache of its own: the first evaluation
also makes inputs and exact outputs, the second is what every later candidate costs. Both count the process
that judges and its children (of servers of interpreters, which a process starts once, their forks); one run of the reference is its get_inputs and its forward, the median of five. A full check should
cost at most 25 runs of the reference the first time, 10 afterwards, and 4 GiB. Each problem is judged in a
process of its own, with one thread for its arithmetic as a worker has, which ends after `--seconds`; what it
had found until then is printed.

    python benchmarks/referee_cost.py [PROBLEM ...] [--seconds 600] [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from accelopt.evaluation import Case, EvaluationRequest, Status
from accelopt.kernels.measurement import geometric_mean
from accelopt.kernels.nki import benchmark
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.referee.reference import Reference

RUNS = 5  # of the reference, of which the median counts
ROOT = Path(__file__).resolve().parents[1]


def cpu_seconds(work: Callable[[], object]) -> float:
    """What `work` takes, with the processes that it waits for, and those that its servers have forked."""

    def used() -> float:
        found = (
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        own = sum(one.ru_utime + one.ru_stime for one in found)
        return own + sum(map(seconds_of_children, children_of(os.getpid())))

    started = used()
    work()
    return used() - started


def children_of(process: int) -> list[int]:
    """The processes that it has started and not yet waited for, by Linux's /proc."""
    return [
        int(pid)
        for thread in Path(f"/proc/{process}/task").iterdir()
        for pid in (thread / "children").read_text().split()
    ]


def seconds_of_children(process: int) -> float:
    """What those took that a process has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def measure(case: Case, folder: str) -> None:
    """Prints the CPU seconds of one run of the reference, of the first and of a later evaluation of the
    case's own kernel, and the most memory that was resident, in GiB; each as soon as it is known."""
    request = EvaluationRequest(
        kernel=case.kernel,
        task=case.task,
        rel_tol=benchmark.relative_tolerance(case.problem),
    )

    def run_reference() -> None:
        problem = Reference(case.task)
        problem.forward(problem.inputs(0))

    def judge() -> None:
        evaluation = evaluate(request, trials=trial_store(folder))
        if evaluation.status is not Status.CORRECT:
            raise SystemExit(f"{case.case_name}: {evaluation.status.value}: {evaluation.message}")

    run_reference()  # what a process does for the first time is not the reference's
    print(statistics.median(cpu_seconds(run_reference) for _ in range(RUNS)), flush=True)
    for work in (judge, judge):
        print(cpu_seconds(work), flush=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), flush=True)


def measured_alone(problem: str, folder: str, seconds: float) -> tuple[list[float], str]:
    """What `measure` prints in a process of its own, and why that ended early, if it did."""
    command = [sys.executable, __file__, problem, "--alone", "--cache", folder]
    # A second thread that waits for the first one counts as work.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=alone)
    try:
        output, _ = child.communicate(timeout=seconds)
        reason = "" if child.returncode == 0 else f"ended with status {child.returncode}"
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
        reason = f"not finished after {seconds:g} s"
    return [float(line) for line in output.splitlines()], reason


def main() -> None:
    """Print a line a problem and the geometric means of those that finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", help="only these (default: all fourteen)")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the clock, for a problem")
    parser.add_argument("--cache", help="keep the trials here instead of in a temporary folder")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = {case.problem: case for case in benchmark.read_benchmark(ROOT).cases}
    if unknown := set(options.problems) - set(cases):
        raise SystemExit(f"no such problem: {min(unknown)}; there are {', '.join(cases)}")
    if options.alone:
        measure(cases[options.problems[0]], options.cache)
        return
    ratios: list[tuple[float, float]] = []
    print(f"{'problem':24} {'reference':>10} {'first':>16} {'later':>16} {'peak':>9}")
    for problem in options.problems or cases:
        with tempfile.TemporaryDirectory() as folder:
            found, reason = measured_alone(problem, options.cache or folder, options.seconds)
        columns = [f"{n:8.2f}s" for n in found[:1]]
        columns += [f"{n:8.1f}s {n / found[0]:5.1f}x" for n in found[1:3]]
        columns += [f"{n:5.1f} GiB" for n in found[3:]]
        print(f"{problem:24} {' '.join(columns)} {reason}", flush=True)
        if len(found) == 4:
            ratios.append((found[1] / found[0], found[2] / found[0]))
    if ratios:
        first, later = map(geometric_mean, map(list, zip(*ratios, strict=True)))
        print(f"geometric means of the multiples: {first:.1f} first, {later:.1f} later")


if __name__ == "__main__":
    main()
