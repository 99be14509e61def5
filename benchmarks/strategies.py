"""Ways to search, compared at equal numbers of evaluations.

    python benchmarks/strategies.py [CHECKOUT] [--strategies all] [--problems all] [--evaluations 32]
                                    [--seeds 3] [--judge timing|full] [--no-verify] [--workers 2] [--out FOLDER]

Every strategy, without a model, on each problem of a folder: NKIBench's (ours by default), or one with a
folder of `kernel.py` and `reference.py` for each problem. An evaluation
is a distinct kernel judged; failures count, the baseline and repeats do not. Nothing is simulated to
find out what to try: actions are ranked by closed forms alone. With `--judge timing` the simulated core
is asked for the time alone, and every winner then passes the full referee, or counts as no gain and is
listed. `offline` is the schedule search with simulated lookahead, which is not bounded by evaluations.

Writes curves.csv (a row an evaluation), summary.md and, where plotly is there, curves.html to the folder.
Run again, it continues. All times are simulated, for one NeuronCore of trn1, or of
trn2 for kernels in the `nki` dialect.
"""

from __future__ import annotations

import asyncio
import csv
import math
import os
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from accelopt.agents.proposer import Proposer
from accelopt.api import own_kernel
from accelopt.errors import AcceloptError
from accelopt.evaluation import Case, Evaluation
from accelopt.kernel_wrapper import NKIKernel
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.kernels.nki.default_target import default_target
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.language import NKI
from accelopt.kernels.nki.requests import case_bound
from accelopt.loop import search
from accelopt.nodes import Node, Result
from accelopt.search.strategy import STRATEGIES, UNBOUNDED, Settings, open_strategy
from accelopt.stages.baseline_and_winner import measure
from accelopt.stages.run import Run
from accelopt.stages.workshop import WorkshopOptions, open_workshop
from accelopt.store import content_key

ROOT = Path(__file__).resolve().parents[1]
WIDTH = Settings(iterations=UNBOUNDED, beam=3, plans=4, samples=1)
AT = (4, 8, 16, 32, 64)  # evaluations at which the summary looks
OFFLINE, RANDOM = "offline", "random"
TIMED = f"{Path(__file__).stem}:Timed"


class Timed(NKI):
    """NKI where a verdict is the simulated time alone."""

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """What the simulated core says without running the kernel, with what strategies ask next."""
        return await self.inspector.inspect(case, source, ranked=True)


class Point(NamedTuple):
    """The best after so many evaluations; `speedup` over the baseline."""

    strategy: str
    problem: str
    seed: int
    evaluations: int
    best_ms: float
    speedup: float
    percent_of_bound: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what was asked for; say each search as it ends, and the summary last."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    cases = _cases(options)
    points, failed = list[Point](), list[str]()
    for case in cases:
        offline = asyncio.run(offline_ms(case, options))
        points += offline
        for name in options.strategies:
            for seed in range(options.seeds):
                before = sum(os.times()[:4])
                found = asyncio.run(run_one(name, case, seed, options))
                seconds = sum(os.times()[:4]) - before
                points += found.points
                failed += found.failed
                last = found.points[-1]
                print(
                    f"{case.problem:22s} {name:8s} seed {seed}: {last.speedup:.3f}x after "
                    f"{last.evaluations}, {seconds:.0f} s of CPU",
                    flush=True,
                )
                write(points, failed, options)
    print((options.out / "summary.md").read_text())


class Searched(NamedTuple):
    """One search: its curve, and why its winner does not count, if so."""

    points: list[Point]
    failed: list[str]


async def run_one(name: str, case: Case, seed: int, options: Namespace) -> Searched:
    """One search of one strategy; its folder keeps what was paid for."""
    folder = options.out / "runs" / f"{name}_{seed}"
    place = "nki" if options.judge == "full" else TIMED
    language = LanguageOptions(folder / "kernels", place, target=_target(case), lookahead=False)
    async with open_workshop(folder, WorkshopOptions(language, workers=options.workers)) as shop:
        proposer = Proposer(shop.offline, shop.offline, shop.offline)
        settings = WIDTH._replace(strategy=name, evaluations=options.evaluations)
        run = Run(shop, proposer, settings, folder, seed=seed)
        start = await measure(case, run)
        if start.latency is None:
            raise AcceloptError(f"{case.problem}: {start.evaluation.message}")
        strategy = open_strategy(start, settings, seed)
        history, _ = await search(strategy, start, run)
        results = [result for round_ in history for result in round_.results]
    points = curve(name, case, seed, start, results, options.evaluations)
    failed: list[str] = []
    if options.verify and options.judge == "timing" and strategy.best.source != start.source:
        why = refused(strategy.best, case, options.out)
        if why:
            failed.append(f"{case.problem}, {name}, seed {seed}: {why}")
            points = [p._replace(best_ms=start.latency, speedup=1.0) for p in points]
    return Searched(points, failed)


def refused(best: Node, case: Case, folder: Path) -> str:
    """Why the full referee does not accept a winner; empty when it does. Each kernel is asked once,
    whoever found it."""
    path = folder / "winners" / f"{case.problem}_{content_key(best.source)[:16]}.py"
    known = path.with_suffix(".verdict")
    if not known.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(best.source)
        found = NKIKernel(path, case.task).profile(())
        errors = [str(v) for k, v in found.metadata.items() if k.endswith("_error")]
        known.write_text("" if found.correct else (errors or ["no verdict"])[0])
    return known.read_text()


def curve(
    name: str, case: Case, seed: int, start: Node, results: Iterable[Result], most: int
) -> list[Point]:
    """The best after each distinct kernel, by job, then by rank; flat after the last one."""
    assert start.latency
    best, seen, found = start.latency, {start.source}, list[float]()
    for node in (node for result in results for node in result.nodes):
        if node.missing or node.source in seen:
            continue
        seen.add(node.source)
        best = min(best, node.latency or best)
        found.append(best)
    found = [start.latency, *found, *[best] * (most - len(found))][: most + 1]
    return [_point(name, case, seed, n, start.latency, ms) for n, ms in enumerate(found)]


async def offline_ms(case: Case, options: Namespace) -> list[Point]:
    """What the schedule search with simulated lookahead promises, as one point."""
    folder = options.out / "runs" / OFFLINE
    language = LanguageOptions(folder / "kernels", TIMED, target=_target(case))
    async with open_workshop(folder, WorkshopOptions(language, workers=options.workers)) as shop:
        proposer = Proposer(shop.offline, shop.offline, shop.offline)
        start = await measure(case, Run(shop, proposer, WIDTH, folder))
        if start.latency is None:
            raise AcceloptError(f"{case.problem}: {start.evaluation.message}")
        actions = await shop.language.actions(start)
    predicted = [a.predicted for a in actions if a.predicted is not None]
    best = min([start.latency, *predicted])
    return [_point(OFFLINE, case, 0, 0, start.latency, best)]


def write(points: Sequence[Point], failed: Sequence[str], options: Namespace) -> None:
    """The files, whole, after every search."""
    with (options.out / "curves.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(Point._fields)
        rows.writerows(points)
    (options.out / "summary.md").write_text(summarise(points, failed))
    draw(points, options.out / "curves.html")


def summarise(points: Sequence[Point], failed: Sequence[str] = ()) -> str:
    """The table of strategies, over the problems that all of them were tried on."""
    searched = [p for p in points if p.strategy != OFFLINE]
    strategies = list(dict.fromkeys(p.strategy for p in searched))
    problems = [
        name
        for name in dict.fromkeys(p.problem for p in searched)
        if {p.strategy for p in searched if p.problem == name} == set(strategies)
    ]
    most = max((p.evaluations for p in searched), default=0)
    at = [n for n in AT if n <= most]
    offline = {p.problem: math.log(p.speedup) for p in points if p.strategy == OFFLINE}
    heads = [f"at {n}" for n in at]
    lines = [
        f"{len(problems)} problems ({', '.join(problems)}); geometric mean speedup "
        "over the baselines after so many evaluations.",
        "",
        f"| strategy | {' | '.join(heads)} | area | of offline | of bound | better than random |",
        "|" + "---|" * (len(heads) + 5),
    ]
    logs = _logs(searched, problems)
    for name in strategies:
        means = [_over(logs, name, problems, lambda curve, n=n: curve[n]) for n in at]
        area = _over(logs, name, problems, lambda curve: mean(curve[1:]))
        whole = sum(offline.get(problem, 0.0) for problem in problems)
        share = _over(logs, name, problems, lambda curve: curve[-1]) * len(problems)
        peak = [p.percent_of_bound for p in searched
                if p.strategy == name and p.problem in problems and p.evaluations == most]  # fmt: skip
        cells = [f"{math.exp(value):.3f}" for value in means]
        known = peak and not any(map(math.isnan, peak))
        cells += [f"{area:.3f}", f"{share / whole:.0%}" if whole else "-"]
        cells.append(f"{mean(peak):.0%}" if known else "-")
        lines.append(f"| {name} | {' | '.join(cells)} | {_wins(logs, name, problems)} |")
    if offline and problems:
        reached = math.exp(mean(offline[problem] for problem in problems))
        lines += ["", f"The schedule search with simulated lookahead reaches {reached:.3f}."]
    lines += ["", *(f"- The winner failed the full referee: {text}" for text in failed)]
    return "\n".join(lines).rstrip() + "\n"


Logs = dict[tuple[str, str, int], list[float]]


def _logs(points: Sequence[Point], problems: Sequence[str]) -> Logs:
    """The logarithm of the speedup after 0, 1, ... evaluations, by strategy, problem and seed."""
    found: Logs = defaultdict(list)
    for point in sorted(points, key=lambda p: p.evaluations):
        if point.problem in problems:
            found[point.strategy, point.problem, point.seed].append(math.log(point.speedup))
    return found


def _over(logs: Logs, name: str, problems: Sequence[str], of) -> float:  # type: ignore[no-untyped-def]
    """The mean over problems of the mean over seeds."""
    by_problem = [[of(curve) for key, curve in logs.items() if key[:2] == (name, problem)]
                  for problem in problems]  # fmt: skip
    return mean(mean(values) for values in by_problem)


def _wins(logs: Logs, name: str, problems: Sequence[str]) -> str:
    """Searches with a larger area than random's of the same problem and seed, and the probability of
    so many by chance (two-sided sign test, ties left out)."""
    if name == RANDOM or not any(key[0] == RANDOM for key in logs):
        return "-"
    pairs = [(mean(curve[1:]), mean(logs[(RANDOM, *key[1:])][1:])) for key, curve in logs.items()
             if key[0] == name and (RANDOM, *key[1:]) in logs]  # fmt: skip
    won, lost = sum(a > b + 1e-9 for a, b in pairs), sum(a < b - 1e-9 for a, b in pairs)
    return f"{won} of {won + lost} (p = {sign_test(won, lost):.2g})"


def sign_test(won: int, lost: int) -> float:
    """The probability that a fair coin falls at least as unevenly."""
    count, least = won + lost, min(won, lost)
    tail = sum(math.comb(count, n) for n in range(least + 1)) / 2**count if count else 1.0
    return min(1.0, 2 * tail)


def draw(points: Sequence[Point], path: Path) -> None:
    """The mean curve of each strategy, as a page; nothing without plotly."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        return
    by_count: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        if point.strategy != OFFLINE:
            by_count[point.strategy][point.evaluations].append(math.log(point.speedup))
    figure = go.Figure()
    for name, counts in by_count.items():
        xs = sorted(counts)
        figure.add_scatter(x=xs, y=[math.exp(mean(counts[x])) for x in xs], name=name)
    figure.update_layout(xaxis_title="evaluations", yaxis_title="geometric mean speedup")
    figure.write_html(path, include_plotlyjs="cdn")


def _point(name: str, case: Case, seed: int, count: int, before: float, best: float) -> Point:
    bound = _bound_ms(case.model_dump_json())
    peak = bound / best
    return Point(name, case.problem, seed, count, best, before / best, peak)


@cache
def _bound_ms(case: str) -> float:
    parsed = Case.model_validate_json(case)
    bound = case_bound(parsed, SimulatedDevice(_target(parsed)))
    return bound.latency_ms if bound else math.nan


def _target(case: Case) -> str:
    return default_target(Path(case.kernel))


def _cases(options: Namespace) -> Iterator[Case]:
    own = sorted(path.parent for path in options.checkout.glob("*/kernel.py"))
    if own:
        cases = tuple(_own(folder) for folder in own)
    else:
        cases, _ = read_benchmark(options.checkout)
    unknown = {*options.problems} - {c.problem for c in cases} - {"all"}
    if unknown:
        sys.exit(f"error: no problem {min(unknown)!r} in {options.checkout}")
    named = [c for c in cases if c.problem in options.problems or "all" in options.problems]
    order = {name: place for place, name in enumerate(options.problems)}
    return iter(sorted(named, key=lambda case: order.get(case.problem, 0)))


def _own(folder: Path) -> Case:
    case = own_kernel(folder / "kernel.py", folder / "reference.py")
    names = {"case_name": folder.name, "problem": folder.name, "service_name": f"{folder.name}_ID0"}
    return case.model_copy(update=names)


def _options(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT / "NKIBench")
    parser.add_argument("--strategies", nargs="+", default=["all"])
    parser.add_argument("--problems", nargs="+", default=["all"])
    parser.add_argument("--evaluations", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--judge", choices=("timing", "full"), default="timing")
    parser.add_argument("--no-verify", dest="verify", action="store_false")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/strategies"))
    options = parser.parse_args(arguments)
    if options.strategies == ["all"]:
        options.strategies = [*STRATEGIES]
    if unknown := [name for name in options.strategies if name not in STRATEGIES]:
        parser.error(f"no strategy {unknown[0]!r}; there are {', '.join(STRATEGIES)}")
    return options


if __name__ == "__main__":
    main()
