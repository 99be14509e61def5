"""The experience that a run leaves: each judged change is one step, from which the rows are made that other
searches learn from: findings (`findings.json`) and transitions between methods (`regraph_dataset.jsonl`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from accelopt.agents.developer_by_rule import reflexion_by_rule
from accelopt.errors import ConfigError
from accelopt.evaluation import NO_VERDICTS, Case, faults
from accelopt.experience import START, Attempt, Finding, Reflexion, Transition
from accelopt.kernels.moves import METHODS, methods_of
from accelopt.nodes import Change, Job, Node, Plan, Result, Rewrite, method_of
from accelopt.script_file_columns import Experience
from accelopt.search.graph_report import Report, Spent, report_of
from accelopt.search.method_catalog import DATASET, GRAPH, Catalog, ReGraphDataset
from accelopt.store import read_text, write_atomically, write_json

if TYPE_CHECKING:
    from accelopt.stages.run import Run
    from accelopt.stages.workshop import Workshop

FILE = "findings.json"
METRICS = "regraph_metrics.json"
LONGEST_ERROR = 2000  # characters


class Step(NamedTuple):
    """One kernel that was made in a search and judged, with the job that asked for it: the row of
    experience, of which `experience`, `finding` and `transition` are projections for files."""

    node: Node
    job: Job | None = None

    @property
    def parent(self) -> Node:
        """The kernel that it was made of."""
        assert self.node.parent is not None
        return self.node.parent

    @property
    def method(self) -> str:
        """What was done, by the name of the job's action or else of the change."""
        action, change = self.job.action if self.job else None, self.node.change
        return action.method if action else method_of(change) if change else START

    @property
    def gain(self) -> float | None:
        """ln(parent / new) of the times; None where one is not known."""
        before, after = self.parent.latency, self.node.latency
        return log(before / after) if before and after else None

    def experience(self, origin: str = "") -> Experience:
        """The two kernels, of which nothing is learned yet."""
        node, parent = self.node, self.parent
        assert node.speedup is not None
        slow, fast = (parent, node) if node.speedup >= 1 else (node, parent)
        return Experience(
            service_name=parent.name,
            case_name=node.case.case_name,
            id=node.label,
            speedup_original=node.speedup,
            speedup=max(node.speedup, 1 / node.speedup),
            slow_kernel=slow.source,
            fast_kernel=fast.source,
            origin=origin,
            change=self._change(),
        )

    def _change(self) -> str:
        """What a plan did, by its kind and the text of the lines that it names, whatever their numbers;
        by its value what a rule did."""
        change = self.node.change
        if not isinstance(change, Plan):
            return change.key if change else ""
        if not change.method or not change.places:
            return ""
        lines = self.parent.source.splitlines()
        touched = [lines[number - 1].strip() for number in change.places if number <= len(lines)]
        return "\n".join([change.method, *touched])

    def finding(self) -> Finding:
        """What the verdict says of a step on which no worker reflected."""
        node, job, change = self.node, self.job, self.node.change
        assert change is not None and job is not None
        method = job.action.method if job.action and not isinstance(change, Plan) else ""
        method = method or (change.move if isinstance(change, Rewrite) else "")
        touches = METHODS[method].touches if method in METHODS else ()
        resource = touches[0] if touches else ""
        attempt = Attempt.timed(
            self.parent.latency,
            node.latency,
            round_num=job.round,
            worker_id=job.number,
            bottleneck_category=resource,
            error_message=node.evaluation.message[:LONGEST_ERROR],
        )
        reflexion = reflexion_by_rule(attempt, method, change)
        return finding_of(self.parent, change, attempt, reflexion, method=method, resource=resource)

    def transition(self, number: int, before: str, start: Node, language: str) -> Transition:
        """The row of the step as evaluation `number` of the search from `start`: its method after the
        one `before`."""
        assert self.job is not None
        node, time, begun = self.node, self.node.latency, start.latency
        speedup = begun / time if begun and time else None
        return Transition(
            t=number,
            kernel=node.case.case_name,
            from_method=before,
            to_method=self.method,
            ok=time is not None,
            mean_ms=time,
            baseline_ms=begun,
            parent_ms=self.parent.latency,
            speedup=speedup,
            reward=log(speedup) if speedup else None,
            gain=self.gain,
            language=language,
            target=start.profile.target if start.profile else "",
            status=node.evaluation.status.value,
            candidate_id=node.name,
            variant_dir=f"{node.case.case_name}/iteration_{self.job.round}",
        )


def finding_of(
    parent: Node,
    change: Change | None,
    attempt: Attempt,
    reflexion: Reflexion | None,
    *,
    method: str,
    resource: str,
) -> Finding:
    """An attempt on `parent` as the row that it is found again by."""
    return Finding(
        problem=parent.case.problem,
        target=parent.profile.target if parent.profile else "",
        resource=resource,
        method=method,
        kernel=parent.key,
        change=change.sentence if change else "",
        attempt=attempt,
        reflexion=reflexion,
        origin=f"{parent.case.case_name}, round {attempt.round_num}",
    )


def findings_of(results: Iterable[Result]) -> Iterator[Finding]:
    """One of each kernel that was made: its worker's own, or, where no worker reflected on it, what
    its verdict says."""
    for result in results:
        if result.development is not None:
            if result.development.finding is not None:
                yield result.development.finding
            continue
        yield from (
            Step(node, result.job).finding() for node in result.nodes if node.change is not None
        )


def transitions_of(start: Node, results: Sequence[Result], language: str) -> Iterator[Transition]:
    """One row for each evaluation of a search from `start`, in the order of telling, repaired attempts
    included. A kernel that was judged before is none."""
    methods: dict[str, str] = {start.key: START}
    for result in results:
        for node in (one for made in result.nodes for one in (*made.failed, made)):
            if node.missing or node.key in methods or node.evaluation.status in NO_VERDICTS:
                continue
            step = Step(node, result.job)
            before = methods.get(step.parent.key, START)
            yield step.transition(len(methods) - 1, before, start, language)
            methods[node.key] = step.method


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


def write_experience(start: Node, results: Sequence[Result], run: Run) -> None:
    """All rows that the search from `start` leaves so far."""
    write_findings(run.folder, start.case, results)
    write_transitions(start, results, run)


def write_findings(folder: Path, case: Case, results: Sequence[Result]) -> None:
    """`findings.json` in the problem's folder, the oldest first."""
    rows = [finding.model_dump(mode="json") for finding in findings_of(results)]
    write_json(folder / case.case_name / FILE, rows)


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


def read_findings(place: Path) -> list[Finding]:
    """What a run left: `place` is its folder, or one of its files. Raises ConfigError where there is
    none, or it cannot be read."""
    paths = sorted(place.rglob(FILE)) if place.is_dir() else [place]
    if not paths:
        raise ConfigError(f"there is no {FILE} in {place}: a run writes one for each problem")
    return [finding for path in paths for finding in _read(path)]


def _read(path: Path) -> list[Finding]:
    try:
        return [Finding.model_validate(row) for row in json.loads(read_text(path))]
    except ValidationError as error:
        raise ConfigError(f"{path} does not hold findings: {faults(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} does not hold findings: {error}") from None
