"""What schedules make of the kernels of benchmark folders, without a model.

    python benchmarks/offline.py [CHECKOUTS...] [--problems silu matmul] [--verify] [--interval]

For each case: the predicted milliseconds of its kernel and of the fastest schedule, both as share of
the problem's bound, how many schedules were priced in closed form and timed, and the seconds taken.
All times are simulated, for one NeuronCore of trn1. With `--verify` the full referee judges the
winner, and one that fails counts as no gain. With `--interval` the gain is also given at its low end:
the least that the kernel can take, by decisions of the compiler that cannot be inferred, over the most
that the winner can; and of the schedules offered that lie within the interval of the fastest, the
winner is the one whose gain has the highest low end. CHECKOUTS are folders that hold NKIBench; ours by default.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NamedTuple

from accelopt.evaluation import Case
from accelopt.hardware import TARGETS
from accelopt.kernel_wrapper import NKIKernel
from accelopt.kernels.measurement import gain_between, geometric_mean
from accelopt.kernels.nki.arguments import by_parameter
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.kernels.nki.devices.protocol import KernelArgument, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.requests import case_bound, made_arguments
from accelopt.kernels.nki.rescheduling.schedule_candidates import (
    ScheduledKernel,
    ScheduledKernels,
    offered,
)
from accelopt.sim import timing

ROOT = Path(__file__).resolve().parents[1]
TARGET = "trn1"
EPSILON = 1e-5  # stands for a plain argument: no time depends on it


class Row(NamedTuple):
    """One case."""

    problem: str
    before_ms: float
    after_ms: float
    low_gain: float | None
    bound_ms: float | None
    counts: dict[str, int]
    seconds: float
    remark: str

    @property
    def gain(self) -> float:
        """How many times as fast."""
        return self.before_ms / self.after_ms

    def text(self) -> str:
        """One line of the table."""
        shares = ["   -"] * 2
        if self.bound_ms:
            shares = [f"{self.bound_ms / ms:4.0%}" for ms in (self.before_ms, self.after_ms)]
        low = "" if self.low_gain is None else f"{self.low_gain:6.2f}"
        return (
            f"{self.problem:24} {self.before_ms:9.4f} {self.after_ms:9.4f} {self.gain:6.2f} {low}"
            f" {shares[0]} > {shares[1]} {self.counts.get('priced', 0):7} "
            f"{self.counts.get('timed', 0):5} {self.seconds:7.1f}  {self.remark}"
        )


def main() -> None:
    """Prints the table, a line as soon as it is known."""
    options = _options()
    low = f"{'low':>6}" if options.interval else ""
    heads = f"{'problem':24} {'before':>9} {'after':>9} {'gain':>6} {low}   of bound   priced timed seconds"
    print(heads)
    rows: list[Row] = []
    for folder in options.checkouts or [ROOT]:
        for case in read_benchmark(folder).cases:
            if not options.problems or case.problem in options.problems:
                rows.append(measure(case, options))
                print(rows[-1].text(), flush=True)
    mean = geometric_mean([row.gain for row in rows])
    print(f"geometric mean {mean:.3f} over {len(rows)} kernels, simulated {TARGET}")


def measure(case: Case, options: Namespace) -> Row:
    """Lifts, searches and, where that is wanted, verifies one case."""
    begin = time.monotonic()
    kernel, task = Path(case.kernel), Path(case.task)
    source = kernel.read_text(encoding="utf-8")
    given = by_parameter(source, made_arguments(task).arguments)
    arguments: list[KernelArgument] = [
        TensorArgument(what.shape, what.dtype) if what.shape else EPSILON for what in given.values()
    ]
    before = _profile(kernel, arguments)
    found: ScheduledKernels = offered(source, kernel, given, TARGET)
    faster = [offer for offer in found.offers if offer.predicted_ms < before.latency_ms]
    remark, after, low = found.refusal, before.latency_ms, None
    with tempfile.TemporaryDirectory() as folder:
        if faster:
            path = Path(folder, "kernel.py")
            winner = faster[0]
            if options.interval:
                winner, low = _surest(before, faster, path, arguments)
            path.write_text(winner.source, encoding="utf-8")
            remark = _fault(path, task) if options.verify else ""
            after = before.latency_ms if remark else winner.predicted_ms
    bound = case_bound(case, SimulatedDevice(TARGET))
    return Row(
        case.problem,
        before.latency_ms,
        after,
        low,
        bound.latency_ms if bound else None,
        dict(found.counts),
        time.monotonic() - begin,
        remark,
    )


def _surest(
    before: timing.KernelProfile,
    offers: list[ScheduledKernel],
    path: Path,
    arguments: list[KernelArgument],
) -> tuple[ScheduledKernel, float]:
    """Of the offers within the interval of the first, the one that gains most at the least, with
    that gain. `path` is where their kernels are written."""
    theirs, spread = _outcomes(before), before.run.spec.gain_spread
    sure = []
    for offer in offers:
        path.write_text(offer.source, encoding="utf-8")
        ours = _outcomes(_profile(path, arguments))
        sure.append((offer, gain_between(ours, theirs, spread)[0]))
    first = offers[0].predicted_ms
    within = [(offer, low) for offer, low in sure if offer.predicted_ms <= first * spread]
    return max(within, key=lambda pair: pair[1])


def _outcomes(found: timing.KernelProfile) -> tuple[float, dict[str, float]]:
    """The latency in ms, and by every other outcome of what the compiler decides."""
    scenarios = timing.interval(found).scenarios
    return found.latency_ms, {one.question: one.latency_ms for one in scenarios}


def _profile(kernel: Path, arguments: list[KernelArgument]) -> timing.KernelProfile:
    program = SimulatedDevice(TARGET).compile(str(kernel), arguments).program
    return timing.profile(program, TARGETS[TARGET])


def _fault(kernel: Path, task: Path) -> str:
    """What the full referee finds wrong; empty for a correct kernel."""
    verdict = NKIKernel(str(kernel), str(task)).profile()
    return "" if verdict.correct else f"refused: {verdict.metadata}"


def _options() -> Namespace:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--problems", nargs="*", default=[])
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--interval", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
