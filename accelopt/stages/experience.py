"""What methods brought in a run, as rows for other searches, and what this one learns from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import TYPE_CHECKING

from accelopt.evaluation import NO_VERDICTS, Case
from accelopt.findings import START, Transition
from accelopt.kernels.moves import methods_of
from accelopt.nodes import Node, Plan, Result, method_of
from accelopt.search.catalog import DATASET, GRAPH, Catalog, ReGraphDataset
from accelopt.search.graph_report import Report, Spent, report_of
from accelopt.store import write_atomically, write_json

if TYPE_CHECKING:
    from accelopt.stages.run import Run
    from accelopt.stages.workshop import Workshop

METRICS = "regraph_metrics.json"


def transitions_of(start: Node, results: Sequence[Result], language: str) -> Iterator[Transition]:
    """One row for each evaluation of a search from `start`, in the order of telling, repaired attempts
    included. A kernel that was judged before is none."""
    methods: dict[str, str] = {start.key: START}
    begun = start.latency
    for result in results:
        action, parent = result.job.action, result.job.node
        for node in (one for made in result.nodes for one in (*made.failed, made)):
            if node.missing or node.key in methods or node.evaluation.status in NO_VERDICTS:
                continue
            method = action.method if action else method_of(node.change) if node.change else START
            time, before = node.latency, parent.latency
            speedup = begun / time if begun and time else None
            yield Transition(
                t=len(methods) - 1,
                kernel=node.case.case_name,
                from_method=methods.get(parent.key, START),
                to_method=method,
                ok=time is not None,
                mean_ms=time,
                baseline_ms=begun,
                parent_ms=before,
                speedup=speedup,
                reward=log(speedup) if speedup else None,
                gain=log(before / time) if before and time else None,
                language=language,
                target=start.profile.target if start.profile else "",
                status=node.evaluation.status.value,
                candidate_id=node.name,
                variant_dir=f"{node.case.case_name}/iteration_{result.job.round}",
            )
            methods[node.key] = method


def metrics_of(start: Node, results: Sequence[Result], run: Run) -> Report:
    """How a search through a graph of methods went, and what what it knew before was worth."""
    workshop = run.workshop
    rows = tuple(transitions_of(start, results, workshop.language.name))
    catalog = catalog_of(workshop, start.case)
    before = len(catalog.names)
    named = [
        (action.method, catalog.add(action.method).existed)
        for result in results
        for action in result.actions
        if isinstance(action.change, Plan) and action.change.method
    ]
    built = sum(not node.missing for result in results for node in result.nodes)
    total = workshop.ledger.total
    spent = Spent(total.input_tokens + total.output_tokens, total.money)
    learned = workshop.archive.known_graph(start.case)
    again = built - len(rows)
    touched = {
        result.job.node.key: result.diagnosis.missed
        for result in results
        if result.diagnosis is not None and result.diagnosis.missed is not None
    }
    return report_of(
        rows, learned, named, catalog.names[:before], max(0, again), spent, touched.values()
    )


def catalog_of(workshop: Workshop, case: Case) -> Catalog:
    """The names that methods had before a search: all moves of its language, and what was learned."""
    learned = workshop.archive.known_graph(case)
    return Catalog([*methods_of(workshop.language.name), *learned.nodes])


def write_transitions(start: Node, results: Sequence[Result], run: Run) -> None:
    """The rows of all problems of a run in one file, and the graph of methods that they make."""
    path, case = run.folder / DATASET, start.case.case_name
    found = ReGraphDataset.load(path) if path.exists() else ReGraphDataset()
    others = tuple(row for row in found.rows if row.kernel != case)
    mine = tuple(transitions_of(start, results, run.workshop.language.name))
    if run.settings.strategy == "regraph":
        write_json(run.folder / case / METRICS, metrics_of(start, results, run).record())
    rows = sorted((*others, *mine), key=lambda row: (row.kernel, row.t))
    dataset = ReGraphDataset(tuple(rows))
    write_atomically(path, dataset.to_text())
    write_atomically(run.folder / GRAPH, dataset.build().model_dump_json(indent=1) + "\n")
