"""Methods by name, and what each brought after which other: one catalog, so that what one search learned
bears on the next, whoever named its steps and on whatever kernel."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from accelopt.errors import ConfigError
from accelopt.evaluation import Row, faults, method_called
from accelopt.experience import START, Transition
from accelopt.replies import json_in, rows_in
from accelopt.store import read_text

SHRINKAGE = 3.0  # transitions that a method's own mean is worth, for the value of one of its edges
FAMILIAR = 10.0  # transitions from a method after which they count as much as the diagnosis
SUCCESS = 0.02  # of the parent's time saved, that a step counts as one that helped
LOST = -0.7  # the gain that a step counts with that led to no correct kernel
SAME_TARGET = 2  # how often a row of the same target counts

DATASET, GRAPH = "regraph_dataset.jsonl", "regraph.json"  # in the folder of a run

STOP_WORDS = frozenset("a an and apply by for in of on the to use using via with".split())
ALIASES = {
    "tensor cores": "switch_to_mma_or_wgmma",
    "tensor core mma": "switch_to_mma_or_wgmma",
    "vectorized loads": "vectorize_global_loads",
    "vectorized global loads": "vectorize_global_loads",
    "vectorized memory access": "vectorize_global_loads",
    "exp2 softmax": "softmax_math_fusion",
    "tune block sizes": "change_block_sizes",
    "block size tuning": "change_block_sizes",
    "loop invariant code motion": "keep",
    "cache blocking": "tile",
    "loop tiling": "tile",
    "loop fusion": "at",
}
"""Other names of the methods in `kernels.moves.METHODS`, in the form that `normal` gives."""


def normal(name: str) -> str:
    """A name in lower case without punctuation and stop words; two with equal ones are the same."""
    words = re.findall(r"[^\W_]+", name.lower())
    return " ".join(word for word in words if word not in STOP_WORDS)


class LabelledStep(NamedTuple):
    """What a model called something it did, with what it says of it."""

    method: str
    detail: str = ""


class Relabelled(NamedTuple):
    """A step by its name in the catalog, and whether that was there before."""

    method: str
    existed: bool


class Catalog:
    """The names that methods go by, in the order in which they came."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[str, str] = {}
        for name in names:
            self.add(name)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._names.values())

    def add(self, name: str) -> Relabelled:
        """A name by the rule: one that is there where they are equal in their normal form, or where an
        alias says so; else its own, which is there from now on. Part of a name is another name."""
        name = " ".join(name.split())
        existing = self.find(name)
        if existing is not None:
            return Relabelled(existing, True)
        self._names[normal(name)] = name
        return Relabelled(name, False)

    def find(self, name: str) -> str | None:
        """The name that is there for `name`, by the rule."""
        plain = normal(name)
        alias = ALIASES.get(plain)
        return self._names.get(plain) or (self._names.get(normal(alias)) if alias else None)

    def relabel(self, steps: Sequence[LabelledStep], reply: str = "") -> list[Relabelled]:
        """Each of `steps`, as `reply` says (a JSON list of {index, existed, method}); by the rule where
        it is unusable, for the steps that it leaves out, names twice, or says something else of than
        is true. Steps without a name have none in the catalog either."""
        said = read_reply(reply, len(steps))
        found = []
        for number, step in enumerate(steps):
            name = said.get(number, "")
            known = self.find(name) if name else None
            if known is not None:
                found.append(Relabelled(known, True))
            elif normal(step.method):
                found.append(self.add(step.method))
            else:
                found.append(Relabelled("", False))
        return found


def read_reply(reply: str, count: int) -> dict[int, str]:
    """The names that a relabeler found in the catalog, by index of the step. What it says twice, of
    steps that there are not, or in another form, is left out."""
    said: defaultdict[int, list[str]] = defaultdict(list)
    for row in rows_in(json_in(reply), "steps"):
        index = row.get("index")
        if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < count:
            existed = str(row.get("existed", "")).lower() in ("yes", "true")
            said[index].append(str(row.get("method") or "") if existed else "")
    return {index: names[0] for index, names in said.items() if len(names) == 1}


class Tally(Row):
    """How often something was done, how often it helped, and the means of reward and gain."""

    count: int = 0
    success: int = 0
    mean_reward: float = 0.0
    mean_gain: float = 0.0

    def plus(self, other: Tally) -> Tally:
        """Both together."""
        count = self.count + other.count

        def mean(mine: float, its: float) -> float:
            return (mine * self.count + its * other.count) / count if count else 0.0

        return Tally(
            count=count,
            success=self.success + other.success,
            mean_reward=mean(self.mean_reward, other.mean_reward),
            mean_gain=mean(self.mean_gain, other.mean_gain),
        )


class ReGraph(Row):
    """What methods brought, each alone and each after another. Rows that could not be read are `malformed`."""

    nodes: dict[str, Tally] = Field(default_factory=dict)
    edges: dict[str, dict[str, Tally]] = Field(default_factory=dict)
    built_at: str = Field(default="", description="what it was built of; no time of the day")
    malformed: int = 0

    def count(self, before: str) -> int:
        """How many transitions from a method are known."""
        return sum(tally.count for tally in self.edges.get(before, {}).values())

    def value(self, before: str, method: str) -> float:
        """The gain to be expected of a method after another: the mean of what it brought there, drawn
        to what it brought anywhere; of one that nobody tried, to what any brought."""
        edge = self.edges.get(before, {}).get(method, Tally())
        whole = self.nodes.get(method) or self._any
        return (edge.count * edge.mean_gain + SHRINKAGE * whole.mean_gain) / (
            edge.count + SHRINKAGE
        )

    def known(self, before: str, method: str) -> float:
        """How much is known of a method after another, 0 to 1: a transition elsewhere counts a third."""
        edge = self.edges.get(before, {}).get(method, Tally()).count
        seen = edge + max(0, self.nodes.get(method, Tally()).count - edge) / SHRINKAGE
        return seen / (seen + SHRINKAGE)

    def plus(self, other: ReGraph) -> ReGraph:
        """What both say together."""
        edges = {before: dict(after) for before, after in self.edges.items()}
        for before, after in other.edges.items():
            edges[before] = _together(edges.get(before, {}), after)
        nodes, malformed = _together(self.nodes, other.nodes), self.malformed + other.malformed
        return ReGraph(nodes=nodes, edges=edges, built_at=self.built_at, malformed=malformed)

    @property
    def _any(self) -> Tally:
        whole = Tally()
        for tally in self.nodes.values():
            whole = whole.plus(tally)
        return whole


def _together(one: Mapping[str, Tally], other: Mapping[str, Tally]) -> dict[str, Tally]:
    return {
        name: one.get(name, Tally()).plus(other.get(name, Tally()))
        for name in dict.fromkeys([*one, *other])
    }


def build_regraph(
    rows: Iterable[Transition], language: str = "", target: str = "", malformed: int = 0
) -> ReGraph:
    """What `rows` say together: those of `language` alone where it is given, of `target` doubly. A row
    counts once for its edge, and once for its method."""
    nodes: defaultdict[str, Tally] = defaultdict(Tally)
    edges: defaultdict[str, defaultdict[str, Tally]] = defaultdict(lambda: defaultdict(Tally))
    taken = 0
    for row in rows:
        if language and row.language != language:
            continue
        taken += 1
        weight = SAME_TARGET if target and row.target == target else 1
        tally = _tally(row, weight)
        nodes[row.to_method] = nodes[row.to_method].plus(tally)
        edges[row.from_method][row.to_method] = edges[row.from_method][row.to_method].plus(tally)
    return ReGraph(
        nodes=dict(nodes),
        edges={before: dict(after) for before, after in edges.items()},
        built_at=f"{taken} transitions",
        malformed=malformed,
    )


def _tally(row: Transition, weight: int) -> Tally:
    gain = LOST if row.gain is None or not row.ok else row.gain
    helped = row.ok and row.mean_ms is not None and row.parent_ms is not None
    faster = helped and row.mean_ms < (1 - SUCCESS) * row.parent_ms  # type: ignore[operator]
    reward = LOST if row.reward is None else row.reward
    return Tally(count=weight, success=weight * faster, mean_reward=reward, mean_gain=gain)


class Merged(NamedTuple):
    """Two names that became one."""

    old: str
    new: str


def merge_synonyms(regraph: ReGraph, pairs: Mapping[str, str] = {}) -> tuple[ReGraph, list[Merged]]:
    """The graph with methods of one meaning as one: those with equal normal names or aliases, and what
    `pairs` names (old to new); and which they were."""
    catalog = Catalog([name for name in regraph.nodes if name not in pairs])
    names = {START: START}
    for name in dict.fromkeys([*regraph.nodes, *regraph.edges]):
        names.setdefault(name, catalog.add(pairs.get(name, name)).method)
    nodes: dict[str, Tally] = {}
    edges: dict[str, dict[str, Tally]] = {}
    for name, tally in regraph.nodes.items():
        nodes[names[name]] = nodes.get(names[name], Tally()).plus(tally)
    for before, after in regraph.edges.items():
        for name, tally in after.items():
            row = edges.get(names[before], {})
            edges[names[before]] = _together(row, {names.get(name, name): tally})
    report = [Merged(old, new) for old, new in names.items() if old != new]
    return regraph.model_copy(update={"nodes": nodes, "edges": edges}), report


class ReGraphDataset(NamedTuple):
    """Transitions as they were evaluated, and how many lines of their file could not be read."""

    rows: tuple[Transition, ...] = ()
    malformed: int = 0

    @classmethod
    def load(cls, path: Path) -> ReGraphDataset:
        """The rows of a JSON-lines file. Raises ConfigError where it cannot be opened."""
        rows, malformed = [], 0
        for line in read_text(path).splitlines():
            if not line.strip():
                continue
            try:
                rows.append(Transition.model_validate_json(line))
            except ValidationError:
                malformed += 1
        return cls(tuple(rows), malformed)

    def append(self, *rows: Transition) -> ReGraphDataset:
        """The same with more rows."""
        return self._replace(rows=(*self.rows, *rows))

    def build(self, language: str = "", target: str = "") -> ReGraph:
        """What the rows say together."""
        return build_regraph(self.rows, language, target, self.malformed)

    def to_text(self) -> str:
        """The rows as JSON lines."""
        return "".join(row.model_dump_json() + "\n" for row in self.rows)


class Learned(NamedTuple):
    """What other searches left: their transitions, and graphs of which only the sums are there."""

    dataset: ReGraphDataset = ReGraphDataset()
    graph: ReGraph = ReGraph()

    def graph_for(self, language: str, target: str) -> ReGraph:
        """What it says of one kernel language; rows of the same target count doubly."""
        return self.dataset.build(language, target).plus(self.graph)


def read_learned(path: Path) -> Learned:
    """What another run learned: its folder, its `regraph_dataset.jsonl`, or a `regraph.json`, which does
    not say of which language and target it is and counts whole. Raises ConfigError."""
    if path.is_dir():
        if not (path / DATASET).is_file():
            raise ConfigError(f"there is no {DATASET} in {path}: a run writes one with its rounds")
        path = path / DATASET
    if path.suffix == ".jsonl":
        return Learned(ReGraphDataset.load(path))
    try:
        graph = ReGraph.model_validate_json(read_text(path))
        former = {one: method_called(one) for one in graph.nodes if method_called(one) != one}
        return Learned(graph=merge_synonyms(graph, former)[0] if former else graph)
    except ValidationError as error:
        raise ConfigError(f"{path} is no graph of methods: {faults(error)}") from None
