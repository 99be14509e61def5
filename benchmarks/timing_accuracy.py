"""Predicted against measured, and how far off it is where the constants have not seen the source.

    python benchmarks/timing_accuracy.py [--target trn2]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] [--metrics]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] --fit [--instructions 30000]
    python benchmarks/timing_accuracy.py FOLDER... [--target trn2] --record

A source is a project that timed kernels, with one clock; it has families of kernels. The first makes the
tables from this repository alone: from what was measured (`accelopt/measured/`) and what the last
`--record` predicted (`timing_record.py`). The second predicts anew and prints every kernel, the mean error
and the pairs in order of each family (`timing_corpus.py` says what the FOLDERs are). The third fits the
constants that the table marks as fitted, once with all sources and once without each: bounded least
squares over the logarithms of predicted over measured, with the change of every prediction by every
constant taken at the table's values; a kernel is compiled once and scheduled for every constant. What it
prints for a source is the error and the order that the constants have which were fitted on all others, and
how many of its measurements lie in intervals that the other sources alone give (`timing_intervals.py`; the
other generation's are taken from its record). The fourth does both and keeps the predictions.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from scipy.optimize import lsq_linear
from timing_corpus import SOURCES, Measured, corpus
from timing_intervals import (
    Timed,
    gain_factors,
    gain_misses,
    in_order,
    latency_factors,
    latency_misses,
)
from timing_record import Recorded, model_name, read_record, write_record

from accelopt.hardware import TARGETS, Hardware
from accelopt.sim import standin
from accelopt.sim.program import Loop, ProgramNode
from accelopt.sim.timing import latencies, profile

APART = 1.05
"""Pairs whose measurements differ by less have no order."""
TIED = 1e-3
GENERATIONS = ("trn1", "trn2")
"""Those on which kernels were measured."""
STEP = 0.05
"""Part of a constant by which it is changed to see what depends on it."""
FREEDOM = 2.0
"""How many times larger or smaller than the table's a fitted constant may be."""
HOLD = 0.3
"""Weight of the table's values: of the logarithm of a constant against that of a prediction."""


class Case(NamedTuple):
    """One kernel, predicted."""

    source: str
    family: str
    name: str
    measured_ms: float
    predicted_ms: float
    summary: dict[str, float]
    figures: dict[str, float]
    seconds: float
    changes: tuple[float, ...] = ()  # d log(predicted) / d log(constant)
    versions_of: str = ""
    first_ms: float | None = None

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_ms / self.measured_ms


class Order(NamedTuple):
    """Pairs of kernels whose measurements differ, and how many are predicted in that order."""

    right: int
    pairs: int


def order(timed: list[Timed]) -> Order:
    """Of measured and predicted latencies of versions of one kernel."""
    right = pairs = 0
    for (m1, p1, v1), (m2, p2, v2) in combinations(timed, 2):
        if v1 == v2 and max(m1, m2) / min(m1, m2) >= APART:
            pairs += 1
            right += (m1 - m2) * (p1 - p2) > 0 and abs(p1 / p2 - 1) > TIED
    return Order(right, pairs)


def fitted(core: Hardware) -> list[str]:
    """The constants of a generation that the table marks as fitted."""
    return [
        name
        for name in core.constants()
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
    assert case.programs is not None
    core = TARGETS[target]
    programs = case.programs()
    fit = fit and sum(instructions(program.body) for program in programs) <= most
    began = process_time()
    found = [profile(program, core, case.compiler) for program in programs]
    spent = process_time() - began
    predicted_ms = sum(one.latency_ms for one in found)
    changes: list[float] = []
    if fit:
        others = [
            replace(core, **{name: getattr(core, name) * (1 + STEP)}) for name in fitted(core)
        ]
        timed = [latencies(program, [core, *others], case.compiler) for program in programs]
        base, *changed = np.sum(timed, axis=0)
        changes = [float(np.log(one / base) / np.log(1 + STEP)) for one in changed]
    return Case(case.source, case.family, case.name, case.figures["latency"], predicted_ms,
                found[0].summary, case.figures, spent, tuple(changes), case.versions_of,
                case.first_ms)  # fmt: skip


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


def families_of(cases: list[Case]) -> list[str]:
    """In the order of their first kernels."""
    return list(dict.fromkeys(case.family for case in cases))


def sources_of(cases: list[Case]) -> list[str]:
    """In the order of their first kernels."""
    return list(dict.fromkeys(case.source for case in cases))


def without(cases: list[Case], family: str, *left_out: str) -> list[Timed]:
    """A family's kernels as predicted by constants fitted on all sources but its own and those
    `left_out`; those that were too large for a fit as predicted."""
    own = next(case.source for case in cases if case.family == family)
    factors = fit([case for case in cases if case.source not in (own, *left_out) and case.changes])
    return [
        Timed(case.measured_ms,
              case.predicted_ms * float(np.exp(case.changes @ factors if case.changes else 0.0)),
              case.versions_of)
        for case in cases
        if case.family == family
    ]  # fmt: skip


def unseen(cases: list[Case], family: str, *left_out: str) -> list[Timed]:
    """The same, with what was predicted when the family was first seen, where that is known."""
    mine = [case for case in cases if case.family == family]
    if all(case.first_ms for case in mine):
        return [Timed(c.measured_ms, c.first_ms or 0.0, c.versions_of) for c in mine]
    return without(cases, family, *left_out)


def print_families(families: dict[str, list[Timed]]) -> None:
    """Mean error, those within 25%, level and order of each family and of all."""
    print(f"{'family':24s} {'kernels':>7s} {'error':>7s} {'in 25%':>7s} {'p/m':>6s} "
          f"{'pairs in order':>15s}")  # fmt: skip
    right = pairs = 0
    for family, timed in families.items():
        errors = [abs(one.predicted_ms / one.measured_ms - 1) for one in timed]
        level = statistics.geometric_mean(one.predicted_ms / one.measured_ms for one in timed)
        found = order(timed)
        right, pairs = right + found.right, pairs + found.pairs
        near = statistics.mean(error <= 0.25 for error in errors)
        print(f"{family:24s} {len(timed):7d} {statistics.mean(errors):7.1%} {near:7.0%} {level:6.2f} "
              f"{f'{found.right} of {found.pairs}':>15s}")  # fmt: skip
    every = [abs(t.predicted_ms / t.measured_ms - 1) for timed in families.values() for t in timed]
    near = statistics.mean(error <= 0.25 for error in every)
    print(f"{'all':24s} {len(every):7d} {statistics.mean(every):7.1%} {near:7.0%} {'':6s} "
          f"{f'{right} of {pairs}':>15s}\n")  # fmt: skip


QUESTIONS = {
    "latencies": (latency_factors, latency_misses),
    "gains": (gain_factors, gain_misses),
}


def print_coverage(target: str, known: dict[str, list[Case]]) -> None:
    """How many latencies and gains of each source lie in intervals that the other sources give, and
    the factors that all give together, beside the table's."""
    core = TARGETS[target]
    print("measured over predicted, as the other sources have it, and what of a source lies within")
    print(f"{'source':24s} {'latencies':>12s} {'within':>12s} {'gains':>12s} {'within':>14s}")
    inside, asked = dict.fromkeys(QUESTIONS, 0), dict.fromkeys(QUESTIONS, 0)
    for source in sources_of(known[target]):
        mine = _unseen_families(known[target], lambda case, s=source: case.source == s)
        others, row = _others(known, target, source), ""
        for name, (factors_of, misses_of) in QUESTIONS.items():
            factors = factors_of(others)
            misses = [miss for family in mine for miss in misses_of(family)]
            held = factors.hold(misses)
            inside[name], asked[name] = inside[name] + held, asked[name] + len(misses)
            row += f" {f'{factors.low:.2f} to {factors.high:.2f}':>12s}"
            row += f" {f'{held} of {len(misses)}' if misses else '':>14s}"
        print(f"{source:24s}{row}")
    for name in QUESTIONS:
        print(f"{inside[name] / asked[name]:.0%} of {asked[name]} {name} on {target} lie within")
    every = [unseen(cases, family) for cases in known.values() for family in families_of(cases)]
    latency, gain = latency_factors(every), gain_factors(every)
    print(f"out of all {len(every)} families: latencies {latency.low:.3f} to {latency.high:.3f} (table: "
          f"{core.least_measured} to {core.most_measured}), gains {gain.low:.3f} to {gain.high:.3f} "
          f"(table: {core.gain_spread} either way)")  # fmt: skip
    right = in_order(every)
    print(f"of versions predicted 5% apart or more {statistics.mean(right):.0%} measure in that order, "
          f"by families; {sum(right) / (len(right) + 1):.0%} if the next one has none\n")  # fmt: skip


def _unseen_families(
    cases: list[Case], chosen: Callable[[Case], bool], *left_out: str
) -> list[list[Timed]]:
    families = families_of([case for case in cases if chosen(case)])
    return [unseen(cases, family, *left_out) for family in families]


def _others(known: dict[str, list[Case]], target: str, source: str) -> list[list[Timed]]:
    return [
        family
        for where, cases in known.items()
        for family in _unseen_families(
            cases,
            lambda case, w=where: (w, case.source) != (target, source),
            *([source] if where == target else []),
        )
    ]


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
        pairs = order([Timed(time, time) for time in times]).pairs
        print(f"{family:24s} {len(times):7d} {min(times):12.4g} {max(times):12.4g} {pairs:6d}")
    print("\nNo prediction of these is recorded.")


def recorded(target: str) -> list[Case]:
    """The cases of the last record."""
    constants = fitted(TARGETS[target])
    return [
        Case(row.source, row.family, row.kernel, row.measured_ms, row.predicted_ms, {}, {}, 0.0,
             tuple(row.changes.get(name, 0.0) for name in constants) if row.changes else (),
             row.versions_of, row.first_ms)
        for row in read_record(target)
    ]  # fmt: skip


def print_record(target: str) -> None:
    """Of how many kernels there is a record, by which model, and what it takes to predict anew."""
    rows = read_record(target)
    if not rows:
        print_measured(list(corpus(target, [])))
    models = {row.model for row in rows}
    today = models <= {model_name()}
    whose = "the model of today" if today else f"an earlier model ({', '.join(models)})"
    if rows:
        print(f"{target}: {len(rows)} kernels, predicted by {whose} when its record was made.")
    print("The kernels are others'; to predict them anew give FOLDERs with checkouts of:")
    for source in SOURCES:
        print(f"  {source}")
    print()


def predicted(options: argparse.Namespace) -> list[Case]:
    """The cases whose kernels are in the folders, predicted now."""
    standin.install()
    fit = options.fit or options.record
    tasks = [
        (options.target, options.folders, number, fit, options.instructions)
        for number, case in enumerate(corpus(options.target, options.folders))
        if options.only in case.name and case.programs is not None
    ]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        return pool.map(predict, tasks, chunksize=1)


def record(target: str, cases: list[Case], model: str) -> None:
    """Keep the predictions of `cases` by the model of that name."""
    constants = fitted(TARGETS[target])
    rows = [
        Recorded(case.source, case.family, case.name, case.versions_of, case.measured_ms, case.first_ms,
                 case.predicted_ms, model, dict(zip(constants, case.changes, strict=False)))
        for case in cases
    ]  # fmt: skip
    print(f"recorded in {write_record(target, rows)}")


def print_fit(target: str, every: list[Case]) -> None:
    """What constants fitted on other families predict, and what is fitted on all."""
    core, cases = TARGETS[target], [case for case in every if case.changes]
    print(f"{target}, every source with constants fitted on the other sources")
    print_families({
        source: [
            timed
            for family in families_of([case for case in cases if case.source == source])
            for timed in without(cases, family)
        ]
        for source in sources_of(cases)
    })  # fmt: skip
    others = {other: recorded(other) for other in GENERATIONS if other != target}
    print_coverage(target, {target: every, **others})
    print("fitted on all:")
    for name, factor in zip(fitted(core), np.exp(fit(cases)), strict=True):
        value = getattr(core, name)
        print(f"  {name:36s} {value:10.4g} -> {value * factor:10.4g}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--target", default="trn1", choices=GENERATIONS)
    parser.add_argument("--metrics", action="store_true", help="print every counter as well")
    parser.add_argument("--fit", action="store_true", help="fit with each source left out")
    parser.add_argument("--record", action="store_true", help="keep what is predicted")
    parser.add_argument("--instructions", type=int, default=30_000,
                        help="leave kernels that have more of them out of the fit")  # fmt: skip
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.record and (options.only or not options.folders):
        parser.error("--record is for all kernels that some FOLDERs hold")
    model = model_name()  # as it is before the work, which takes minutes
    if not options.folders:
        print_record(options.target)
    cases = predicted(options) if options.folders else recorded(options.target)
    cases = [case for case in cases if options.only in case.name]
    if not cases and not options.folders:
        return
    if not cases:
        parser.error(f"none of the kernels that were measured on {options.target} is there")
    families = {
        family: [
            Timed(c.measured_ms, c.predicted_ms, c.versions_of) for c in cases if c.family == family
        ]
        for family in families_of(cases)
    }
    print_kernels(cases)
    print(f"{options.target}, constants of the table")
    print_families(families)
    if options.metrics:
        print_metrics(cases)
    if any(case.changes for case in cases) and (
        options.fit or options.record or not options.folders
    ):
        print_fit(options.target, cases)
    if options.record:
        record(options.target, cases, model)


if __name__ == "__main__":
    main()
