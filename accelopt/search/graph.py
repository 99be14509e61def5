"""The graph that a search with canonical moves grows: a state for each kernel, an edge for each action."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import NamedTuple

from accelopt.evaluation import Diagnosis
from accelopt.findings import START
from accelopt.nodes import Action, Job, Node

# The share of the time that a method is expected to save where it relieves what limits a kernel;
# any other saves LITTLE, if its rule does not promise more.
LITTLE = 0.02
BEST_SHARE = 0.5
CHANGE_VISITS = 2  # that the method's own mean is worth beside what the very change brought
FORSAKEN = LITTLE / 8
NOVEL_GAIN = 0.2  # to be hoped of a change, for each method that it was never tried beside
NOVEL_APPEAL = 0.05  # least share of exploration of one that ran, beside any of those
NOTHING = -inf  # to be hoped where nothing is left to try
VIRTUAL_VISITS = 2  # visits at its first estimate that an edge begins with

EXPECTED = {
    "enable_async_pipeline": 0.18,
    "switch_to_mma_or_wgmma": 0.12,
    "vectorize_global_loads": 0.10,
    "avoid_atomics_reduce": 0.10,
    "softmax_math_fusion": 0.08,
    "grouped_gemm_colmajor": 0.06,
    "cache_policy_cg": 0.04,
    "change_block_sizes": 0.04,
    "pad_tail_and_mask": 0.02,
}


@dataclass(eq=False)
class Edge:
    """An action on a state: what it is expected to save of the time, the sum and the best of the rewards
    below it, and how often it was gone along."""

    action: Action
    estimate: float
    visits: int = 0
    total: float = 0.0
    best: float | None = None
    in_flight: int = 0
    child: str | None = None
    closed: bool = False

    @property
    def untried(self) -> bool:
        """Whether nobody knows its kernel, or is making it along this edge."""
        return not self.closed and self.child is None and not self.in_flight

    def value(self, worth: float, gain: float, hope: float = NOTHING) -> float:
        """The reward to be hoped for along it, on a state of `worth` where its action is expected to
        bring `gain`: half the best that was found below it, or is hoped for there, since that is what
        a search keeps, half the mean. Jobs under way count as visits that gained nothing."""
        visits = VIRTUAL_VISITS + self.visits + self.in_flight
        before = VIRTUAL_VISITS * (worth + gain) + self.in_flight * worth
        mean = (before + self.total) / visits
        best = max(hope, NOTHING if self.best is None else self.best)
        return mean if best == NOTHING else BEST_SHARE * best + (1 - BEST_SHARE) * mean

    def add(self, reward: float) -> None:
        """Somebody went along it to `reward`."""
        self.visits += 1
        self.total += reward
        self.best = reward if self.best is None else max(self.best, reward)

    def record(self) -> dict[str, object]:
        """The edge as JSON."""
        return {
            "method": self.action.method,
            "action": self.action.sentence,
            "visits": self.visits,
            "total": round(self.total, 6),
            "child": self.child,
            "closed": self.closed,
        }


@dataclass
class MethodRecord:
    """What a method, or one change by it, brought wherever it was tried: the sum of its gains, how many
    they are, and the methods that it was tried beside."""

    total: float = 0.0
    count: int = 0
    failed: int = 0
    company: set[str] = field(default_factory=set)

    def novel(self, made: frozenset[str]) -> int:
        """Beside how many of the methods `made` it was never tried: it may do there what it does not
        do alone."""
        return len(made - self.company)

    def expect(self, estimate: float, visits: float) -> float:
        """The gain to be expected of it, where without this `estimate` was expected as firmly as
        after so many visits."""
        return (visits * estimate + self.total) / (visits + self.count)

    def add(self, gain: float, failed: bool) -> None:
        """It brought `gain`."""
        self.total += gain
        self.count += 1
        self.failed += failed


class Lessons:
    """What was learned of methods and of single changes, on whatever kernel."""

    def __init__(self) -> None:
        self._methods: defaultdict[str, MethodRecord] = defaultdict(MethodRecord)
        self._changes: defaultdict[str, MethodRecord] = defaultdict(MethodRecord)

    def asked(self, action: Action, made: frozenset[str]) -> None:
        """An action is under way on a kernel that the methods `made` had made: no other job needs to
        find out how it does beside them."""
        self._methods[action.method].company |= made
        self._changes[action.sentence].company |= made

    def add(self, action: Action, gain: float, failed: bool) -> None:
        """An action brought `gain`."""
        self._methods[action.method].add(gain, failed)
        self._changes[action.sentence].add(gain, failed)

    def expected(self, edge: Edge) -> float:
        """What an edge is expected to bring: its estimate, then what its method brought elsewhere, then
        what this very change did, the nearer the stronger."""
        method, change = self._methods[edge.action.method], self._changes[edge.action.sentence]
        return change.expect(method.expect(edge.estimate, VIRTUAL_VISITS), CHANGE_VISITS)

    def gain(self, edge: Edge, made: frozenset[str]) -> float:
        """What may be hoped of it on a kernel that the methods `made` had made. Any two changes may pay
        together alone, so one beside many that it was never tried beside finds out most at once;
        what always failed is expected to fail."""
        change, expected = self._changes[edge.action.sentence], self.expected(edge)
        fails = change.count and change.count == change.failed
        return expected if fails else max(expected, NOVEL_GAIN * change.novel(made))

    def appeal(self, edge: Edge, made: frozenset[str]) -> float:
        """How much an edge deserves to be explored: by what it is expected to bring. What lost is
        not given up for good where it meets methods that it was never tried beside."""
        change = self._changes[edge.action.sentence]
        if not change.novel(made):
            return max(self.expected(edge), FORSAKEN)
        ran = change.count > change.failed
        return max(self.expected(edge), NOVEL_APPEAL if ran else LITTLE)


@dataclass(eq=False)
class KernelState:
    """A kernel that was found correct, however many ways lead to it, and its reward, with the
    diagnosis once it is known. `made` are the methods that made it, `last` the last of them."""

    node: Node
    worth: float = 0.0
    made: frozenset[str] = frozenset()
    last: str = START
    visits: int = 0
    diagnosis: Diagnosis | None = None
    edges: list[Edge] = field(default_factory=list)
    listed: bool = False
    asked: bool = False

    @property
    def bottleneck(self) -> str:
        """The resource that limits it; empty where nothing is known."""
        found = self.diagnosis.bottleneck if self.diagnosis else None
        return found.resource if found else ""

    def list(self, actions: tuple[Action, ...], diagnosis: Diagnosis | None) -> None:
        """The actions on it, each with what it is expected to save."""
        self.listed, self.diagnosis = True, diagnosis
        self.edges = [
            Edge(action, max(action.promise, self._expected(action)))
            for action in actions
            if action.key != self.node.key
        ]

    def relieves(self, action: Action) -> bool:
        """Whether an action touches what limits the kernel; overlap helps every resource."""
        return self.bottleneck in action.touches or "overlap" in action.touches

    def _expected(self, action: Action) -> float:
        always = action.method == "change_block_sizes"
        relieves = always or self.relieves(action)
        return EXPECTED.get(action.method, LITTLE) if relieves else LITTLE

    def hope(self, gain: Gain, taken: frozenset[str]) -> float:
        """The largest reward to be hoped of what is untried on it, but for kernels that are `taken`."""
        edges = (edge for edge in self.edges if edge.untried and edge.action.key not in taken)
        return max((self.worth + gain(self, edge) for edge in edges), default=NOTHING)

    def record(self) -> dict[str, object]:
        """The state as JSON."""
        return {
            "name": self.node.name,
            "latency": self.node.latency,
            "visits": self.visits,
            "last_method": self.last,
            "applied_methods": sorted(self.made),
            "bottleneck": self.bottleneck,
            "edges": [edge.record() for edge in self.edges],
        }


Gain = Callable[[KernelState, Edge], float]
Way = list[tuple[KernelState, Edge]]
"""From the baseline down: each state with the edge that was taken there."""


class Event(NamedTuple):
    """A kernel that was asked for at the end of `way`, and what it was worth: None where nobody made
    it. `child` is the kernel where it is correct; `rollout` is the number of the job that it follows."""

    job: Job
    way: Way
    nodes: tuple[Node, ...]
    child: Node | None
    reward: float | None
    rollout: int | None = None

    def record(self) -> dict[str, object]:
        """The event as JSON."""
        state, edge = self.way[-1]
        node = self.nodes[0] if self.nodes else None
        return {
            "job_id": self.job.number,
            "path": [state.node.key for state, _ in self.way],
            "leaf_state": state.node.key,
            "action": edge.action.sentence,
            "canonical_method": edge.action.method,
            "from_method": state.last,
            "candidate_id": candidate_id(edge.action),
            "mean_ms": node.latency if node else None,
            "status": node.evaluation.status.value if node else "missing",
            "reward": self.reward,
            "ok": self.child is not None,
            "child_state": self.child.key if self.child else None,
            "worker_child_hash": node.key if node and node.source else None,
            "name": node.name if node else None,
            "rollout_of": self.rollout,
        }


def candidate_id(action: Action) -> str:
    """16 hex digits: equal for the same method with the same source, or in the same words."""
    text = f"{action.method}\n{action.key or action.sentence}"
    return sha256(text.encode()).hexdigest()[:16]


def hopes(states: Mapping[str, KernelState], gain: Gain, taken: Iterable[str]) -> dict[str, float]:
    """For each state the largest reward to be hoped for on it, or on any state that it leads to."""
    known = frozenset(taken)
    hope = {key: state.hope(gain, known) for key, state in states.items()}
    ways = [
        (key, edge.child) for key, state in states.items() for edge in state.edges if edge.child
    ]
    changed = True
    while changed:
        changed = False
        for key, child in ways:
            if hope[child] > hope[key]:
                hope[key], changed = hope[child], True
    return hope
