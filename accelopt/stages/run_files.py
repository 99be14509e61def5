"""Files made from what a run knows: tables for people and for the scripts, rewritten at will."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelopt.agents.budget import Ledger
from accelopt.evaluation import Case, to_json
from accelopt.kernels.moves import METHODS, methods_of, what_it_does
from accelopt.nodes import Node
from accelopt.script_file_columns import (
    CANDIDATE_COLUMNS,
    CandidateRow,
    PlannerResult,
    ResultRow,
    ServiceResult,
)
from accelopt.search.graph_report import events_text, trace_text
from accelopt.search.strategy import Strategy
from accelopt.stages.candidate_files import origin, write_candidate, write_winner
from accelopt.stages.record_files import write_records, write_table
from accelopt.stages.run import Iteration, Outcome, Run
from accelopt.store import content_key, write_atomically, write_json


def write_iteration(history: Sequence[Iteration], kept: Sequence[Node], run: Run) -> None:
    """The tables of the last round, as the shell loop would have them. `kept` go on from it."""
    iteration, earlier = history[-1], history[-2].expanded if len(history) > 1 else []
    expanded, language = iteration.expanded, run.workshop.language
    case = expanded[0].case
    folder = run.folder_of(case, iteration.number)
    candidates = write_kernels(expanded, earlier, iteration.number, run)
    write_table(
        folder / "candidates" / "profile_results.csv",
        [profiled_row(candidate) for candidate in candidates],
        [*CANDIDATE_COLUMNS, "profile"],
    )
    reference = language.reference(case)
    results = [ServiceResult.of(iteration.of(node), reference) for node in expanded]
    plans = [
        PlannerResult(
            service_name=result.service_name,
            plans=list(
                dict.fromkeys(sample.plan for sample in result.samples.values() if sample.plan)
            ),
        )
        for result in results
    ]
    write_records(folder / "planner_results.json", plans)
    records = [result.to_record() for result in results]
    write_json(folder / "executor_results.json", {"executor_results": records}, indent=4)
    write_records(folder / "rewrites" / "aggregated_rewrites_list.json", iteration.experiences)
    origins = [(*origin(node, expanded), repr(node.latency)) for node in kept]
    columns = ("parent", "plan_id", "latency")
    chosen = [dict(zip(columns, cells, strict=True)) for cells in origins]
    write_table(folder / "beam.csv", chosen, columns)


def write_kernels(
    nodes: Sequence[Node], staying: Sequence[Node], iteration: int, run: Run
) -> list[CandidateRow]:
    """The kernels as files of a round, and their rows; `staying` were there a round before."""
    language = run.workshop.language
    return [
        write_candidate(
            node,
            staying,
            language.reference(node.case),
            run.folder_of(node.case, iteration) / "candidates",
        )
        for node in nodes
    ]


def write_state(case: Case, strategy: Strategy, ended: str, run: Run) -> None:
    """`search_state.json`: the search as its strategy sees it, for people and for drawings. What a
    search through a graph built is in `events.jsonl` and `trace.md` beside it."""
    found, folder = strategy.state(), run.folder / case.case_name
    events: Any = found.pop("events", None)
    if events is not None:
        name, baseline = case.case_name, [*strategy.best.lineage()][-1].latency
        write_atomically(folder / "events.jsonl", events_text(events, name))
        write_atomically(folder / "trace.md", trace_text(events, name, baseline, ended))
    state = {
        "strategy": run.settings.strategy,
        "graph_version": graph_version(),
        "round": strategy.round,
        "best": {"name": strategy.best.name, "latency": strategy.best.latency},
        "ended": ended,
        **found,
    }
    write_json(folder / "search_state.json", state)


def profiled_row(candidate: CandidateRow) -> dict[str, str]:
    """A row of profile_results.csv."""
    metadata = candidate.profile.to_metadata() if candidate.profile else {}
    return {**candidate.to_row(), "profile": to_json(metadata)}


def write_best(best: Node, run: Run) -> None:
    """`best.py`, and `best.diff` from the starting kernel: the best so far, for whoever stops early."""
    folder = run.folder / best.case.case_name
    start = run.workshop.language.source(best.case)
    write_winner(folder, best.source, start, best.case.kernel)


def write_outcomes(outcomes: Sequence[Outcome], run: Run) -> None:
    """`results.csv`, and for each problem its best kernel and the difference to the start."""
    write_table(
        run.folder / "results.csv", [_row(o)._asdict() for o in outcomes], ResultRow._fields
    )
    for outcome in outcomes:
        name = outcome.start.case.case_name
        if outcome.best is not None:
            write_best(outcome.best, run)
            write_summary(name, outcome, "best.py", run.folder / name)
    write_tactics(run.folder, run.workshop.language.name)


def write_summary(name: str, outcome: Outcome, place: str, folder: Path) -> None:
    """`best_summary.json`: what the search of one kernel came to; the best lies at `place`."""
    best, confirmation = outcome.best or outcome.start, outcome.confirmation
    write_json(folder / "best_summary.json", {
        "name": name,
        "baseline_ms": outcome.start.latency,
        "best_ms": best.latency,
        "speedup": outcome.speedup,
        "variant_dir": place,
        "state_hash": best.key,
        "confirmed": None if confirmation is None else confirmation.confirmed,
        "verified": outcome.best is not None,
        "changes": outcome.changes,
        "failure": outcome.failure or None,
    })  # fmt: skip


def write_tactics(folder: Path, language: str) -> None:
    """`global_tactic_graph.json`: the methods of a language, what they touch and do, and a version that
    is another when they are."""
    methods = {
        name: {"touches": method.touches, "does": what_it_does(name, language)}
        for name, method in methods_of(language).items()
    }
    write_json(
        folder / "global_tactic_graph.json", {"graph_version": graph_version(), language: methods}
    )


def graph_version() -> str:
    """A name for the vocabulary of methods."""
    return content_key(*(f"{name} {' '.join(m.touches)}" for name, m in METHODS.items()))[:16]


def write_spending(ledger: Ledger, run: Run) -> None:
    """`spending.json`: calls, tokens, dollars and seconds, in total, by role and by iteration."""
    spending = {
        "total": asdict(ledger.total),
        "by_role": {role: asdict(sum_) for role, sum_ in sorted(ledger.by_role.items())},
        "by_iteration": {
            str(number): asdict(sum_) for number, sum_ in sorted(ledger.by_iteration.items())
        },
    }
    write_json(run.folder / "spending.json", spending)


def _row(outcome: Outcome) -> ResultRow:
    before = outcome.start.profile
    after = outcome.best.profile if outcome.best else None
    return ResultRow(
        case_name=outcome.start.case.case_name,
        baseline_latency=_number(before.latency if before else None),
        best_latency=_number(after.latency if after else None),
        speedup=_number(outcome.speedup),
        baseline_percent_of_peak=_number(outcome.before.percent_of_peak),
        percent_of_peak=_number(outcome.after.percent_of_peak),
        confirmed=str(outcome.confirmation.confirmed) if outcome.confirmation else "",
        target=before.target if before else "",
        simulated=str(before.simulated) if before else "",
        samples=str(len(outcome.nodes)),
        correct=str(outcome.correct),
        changes=to_json(outcome.changes),
        kernel=f"{outcome.start.case.case_name}/best.py" if outcome.best else "",
        failure=outcome.failure,
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
