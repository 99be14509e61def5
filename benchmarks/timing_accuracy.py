"""Predicted against measured, and how far off it is where the constants have not seen the kernels.

    python benchmarks/timing_accuracy.py [--target trn2]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] [--metrics]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] --fit [--instructions 30000]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] --record

The first makes the tables from this repository alone: from what was measured (`accelopt/measured/`) and
what the last `--record` predicted (`timing_record.py`). The second predicts anew and prints every kernel,
the mean error and the pairs in order of each family (`timing_corpus.py` says what the FOLDERs are). The
third fits the constants that the table marks as fitted, once with all families and once without each:
bounded least squares over the logarithms of predicted over measured, with the change of every prediction
by every constant taken at the table's values; a kernel is compiled once and scheduled for every constant.
What it prints for a family is the error and the order that the constants have which were fitted on all
others, and how many measurements its intervals hold. The fourth does both and keeps the predictions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear
from timing_corpus import SOURCES, Measured, corpus
from timing_record import Recorded, model_name, read_record, write_record

from accelopt.hardware import TARGETS, Hardware
from accelopt.sim import standin
from accelopt.sim.program import Loop, ProgramNode
from accelopt.sim.timing import latencies, profile

APART = 1.05
"""Pairs whose measurements differ by less have no order."""
TIED = 1e-3
STEP = 0.05
"""Part of a constant by which it is changed to see what depends on it."""
FREEDOM = 2.0
"""How many times larger or smaller than the table's a fitted constant may be."""
HOLD = 0.3
"""Weight of the table's values: of the logarithm of a constant against that of a prediction."""


class Case(NamedTuple):
    """One kernel, predicted."""

    family: str
    name: str
    measured_ms: float
    predicted_ms: float
    summary: dict[str, float]
    figures: dict[str, float]
    seconds: float
    changes: tuple[float, ...] = ()  # d log(predicted) / d log(constant)

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_ms / self.measured_ms


class Order(NamedTuple):
    """Pairs of kernels whose measurements differ, and how many are predicted in that order."""

    right: int
    pairs: int


def order(cases: list[tuple[float, float]]) -> Order:
    """Of measured and predicted latencies."""
    right = pairs = 0
    for (m1, p1), (m2, p2) in combinations(cases, 2):
        if max(m1, m2) / min(m1, m2) >= APART:
            pairs += 1
            right += (m1 - m2) * (p1 - p2) > 0 and abs(p1 / p2 - 1) > TIED
    return Order(right, pairs)


def fitted(core: Hardware) -> list[str]:
    """The constants of a generation that the table marks as fitted."""
    return [
        name
        for name in Hardware.constants()
        if core.source(name).status == "fitted" and isinstance(getattr(core, name), float)
    ]


def instructions(nodes: tuple[ProgramNode, ...]) -> int:
    """How many instructions the loops stand for."""
    return sum(
        node.variable.trips * instructions(node.body) if isinstance(node, Loop) else 1
        for node in nodes
    )


def predict(task: tuple[str, list[Path], int, bool, int]) -> Case:
    """One kernel of a corpus by its number; with `fit` also what each constant changes."""
    target, folders, number, fit, most = task
    standin.install()
    case = list(corpus(target, folders))[number]
    assert case.program is not None
    core = TARGETS[target]
    program = case.program()
    fit = fit and instructions(program.body) <= most
    began = process_time()
    found = profile(program, core, case.compiler)
    spent = process_time() - began
    changes: list[float] = []
    if fit:
        others = [
            replace(core, **{name: getattr(core, name) * (1 + STEP)}) for name in fitted(core)
        ]
        base, *changed = latencies(program, [core, *others], case.compiler)
        changes = [float(np.log(one / base) / np.log(1 + STEP)) for one in changed]
    return Case(case.family, case.name, case.figures["latency"], found.latency_ms, found.summary,
                case.figures, spent, tuple(changes))  # fmt: skip


def fit(cases: list[Case]) -> np.ndarray:
    """Logarithms of the factors by which the constants meet the kernels best. A family counts as
    one, however many versions of a kernel it has."""
    matrix = np.array([case.changes for case in cases])
    missing = -np.log([case.ratio for case in cases])
    sizes = {f: sum(case.family == f for case in cases) for f in {case.family for case in cases}}
    weight = np.array([sizes[case.family] ** -0.5 for case in cases])
    held = HOLD * np.eye(matrix.shape[1])
    bound = np.log(FREEDOM)
    found = lsq_linear(
        np.vstack((matrix * weight[:, None], held)),
        np.concatenate((missing * weight, np.zeros(matrix.shape[1]))),
        bounds=(-bound, bound),
    )
    factors: np.ndarray = found.x
    return factors


def left_out(cases: list[Case]) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """By family: measured latencies, and those predicted by constants fitted on all others."""
    for family in dict.fromkeys(case.family for case in cases):
        factors = fit([case for case in cases if case.family != family])
        yield (
            family,
            [
                (case.measured_ms, case.predicted_ms * float(np.exp(case.changes @ factors)))
                for case in cases
                if case.family == family
            ],
        )


def print_families(families: list[tuple[str, list[tuple[float, float]]]]) -> None:
    """Mean error, level and order of each family and of all."""
    print(f"{'family':24s} {'kernels':>7s} {'error':>7s} {'p/m':>6s} {'pairs in order':>15s}")
    right = pairs = 0
    for family, cases in families:
        errors = [abs(p / m - 1) for m, p in cases]
        level = statistics.geometric_mean(p / m for m, p in cases)
        found = order(cases)
        right, pairs = right + found.right, pairs + found.pairs
        print(f"{family:24s} {len(cases):7d} {statistics.mean(errors):7.1%} {level:6.2f} "
              f"{f'{found.right} of {found.pairs}':>15s}")  # fmt: skip
    every = [abs(p / m - 1) for _, cases in families for m, p in cases]
    low, high = np.quantile(_misses(families), (0.1, 0.9))
    print(f"{'all':24s} {len(every):7d} {statistics.mean(every):7.1%} {'':6s} "
          f"{f'{right} of {pairs}':>15s}")  # fmt: skip
    print(f"80% of the measurements lie between {low:.2f} and {high:.2f} times the prediction\n")


def _misses(families: list[tuple[str, list[tuple[float, float]]]]) -> list[float]:
    return [m / p for _, cases in families for m, p in cases]


def print_coverage(core: Hardware, families: list[tuple[str, list[tuple[float, float]]]]) -> None:
    """How many measurements lie where predictions by constants fitted on the other families say:
    between the table's factors, and between those that the other families alone give."""
    every = _misses(families)
    table = np.mean([core.least_measured <= one <= core.most_measured for one in every])
    inside = 0
    for number, family in enumerate(families):
        others = families[:number] + families[number + 1 :]
        low, high = np.quantile(_misses(others), (0.1, 0.9))
        inside += sum(low <= one <= high for one in _misses([family]))
    print(f"{table:.0%} of the measurements lie within the table's interval, "
          f"{inside / len(every):.0%} within what the other families give\n")  # fmt: skip


def print_kernels(cases: list[Case]) -> None:
    """Every kernel by itself."""
    print(f"{'kernel':44s} {'predicted':>10s} {'measured':>10s} {'ratio':>6s} {'s':>6s}")
    for case in cases:
        print(f"{case.name:44s} {case.predicted_ms:10.3f} {case.measured_ms:10.3f} "
              f"{case.ratio:6.3f} {case.seconds:6.2f}")  # fmt: skip
    print()


def print_metrics(cases: list[Case]) -> None:
    """Predicted, measured and ratio of every counter that was measured."""
    gaps: list[float] = []
    for case in cases:
        print(case.name)
        for key, value in case.figures.items():
            if key in ("latency", "min_ms", "max_ms"):
                continue
            ours = case.summary.get(key, float("nan"))
            ratio = ours / value if value else float("nan" if ours else 1.0)
            print(f"  {key:42s} {ours:18.6g} {value:18.6g} {ratio:8.3f}")
            if key.endswith("active_time_percent") and not key.startswith("gpsimd"):
                gaps.append(abs(ours - value))
    if gaps:
        print(f"mean gap of the engines' active fractions {statistics.mean(gaps):.1%}")


def print_measured(known: list[Measured]) -> None:
    """What was measured: by family the kernels, their latencies, the pairs that have an order."""
    print(f"{'family':24s} {'kernels':>7s} {'fastest, ms':>12s} {'slowest, ms':>12s} {'pairs':>6s}")
    for family in dict.fromkeys(one.family for one in known):
        times = [one.figures["latency"] for one in known if one.family == family]
        pairs = order([(time, time) for time in times]).pairs
        print(f"{family:24s} {len(times):7d} {min(times):12.4g} {max(times):12.4g} {pairs:6d}")
    print("\nNo prediction of these is recorded.")


def recorded(target: str) -> list[Case]:
    """The cases of the last record. Says by which model they were predicted."""
    rows, now = read_record(target), model_name()
    if not rows:
        print_measured(list(corpus(target, [])))
    models = {row.model for row in rows}
    whose = "the model of today" if models <= {now} else f"an earlier model ({', '.join(models)})"
    if rows:
        print(f"{target}: {len(rows)} kernels, predicted by {whose} when its record was made.")
    print("The kernels are others'; to predict them anew give FOLDERs with checkouts of:")
    for source in SOURCES:
        print(f"  {source}")
    print()
    return [
        Case(row.family, row.kernel, row.measured_ms, row.predicted_ms, {}, {}, 0.0,
             tuple(row.changes.get(name, 0.0) for name in fitted(TARGETS[target]))
             if row.changes else ())
        for row in rows
    ]  # fmt: skip


def predicted(options: argparse.Namespace) -> list[Case]:
    """The cases whose kernels are in the folders, predicted now."""
    standin.install()
    fit = options.fit or options.record
    tasks = [
        (options.target, options.folders, number, fit, options.instructions)
        for number, case in enumerate(corpus(options.target, options.folders))
        if options.only in case.name and case.program is not None
    ]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        return pool.map(predict, tasks, chunksize=1)


def record(target: str, cases: list[Case], model: str) -> None:
    """Keep the predictions of `cases` by the model of that name."""
    constants = fitted(TARGETS[target])
    rows = [
        Recorded(case.family, case.name, case.measured_ms, case.predicted_ms, model,
                 dict(zip(constants, case.changes, strict=False)))
        for case in cases
    ]  # fmt: skip
    print(f"recorded in {write_record(target, rows)}")


def print_fit(target: str, cases: list[Case]) -> None:
    """What constants fitted on other families predict, and what is fitted on all."""
    core = TARGETS[target]
    print(f"{target}, every family with constants fitted on the others")
    families = list(left_out(cases))
    print_families(families)
    print_coverage(core, families)
    print("fitted on all:")
    for name, factor in zip(fitted(core), np.exp(fit(cases)), strict=True):
        value = getattr(core, name)
        print(f"  {name:36s} {value:10.4g} -> {value * factor:10.4g}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--target", default="trn1", choices=("trn1", "trn2"))
    parser.add_argument("--metrics", action="store_true", help="print every counter as well")
    parser.add_argument("--fit", action="store_true", help="fit with each family left out")
    parser.add_argument("--record", action="store_true", help="keep what is predicted")
    parser.add_argument("--instructions", type=int, default=30_000,
                        help="leave kernels that have more of them out of the fit")  # fmt: skip
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.record and (options.only or not options.folders):
        parser.error("--record is for all kernels that some FOLDERs hold")
    model = model_name()  # as it is before the work, which takes minutes
    cases = predicted(options) if options.folders else recorded(options.target)
    cases = [case for case in cases if options.only in case.name]
    if not cases and not options.folders:
        return
    if not cases:
        parser.error(f"none of the kernels that were measured on {options.target} is there")
    families = {
        family: [(c.measured_ms, c.predicted_ms) for c in cases if c.family == family]
        for family in dict.fromkeys(case.family for case in cases)
    }
    print_kernels(cases)
    print(f"{options.target}, constants of the table")
    print_families(list(families.items()))
    if options.metrics:
        print_metrics(cases)
    with_changes = [case for case in cases if case.changes]
    if with_changes and (options.fit or options.record or not options.folders):
        print_fit(options.target, with_changes)
    if options.record:
        record(options.target, cases, model)


if __name__ == "__main__":
    main()
