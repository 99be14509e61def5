"""The graph that a search with canonical moves grows: a state for each kernel, an edge for each action."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from accelopt.evaluation import Diagnosis
from accelopt.nodes import Action, Node

# The share of the time that a method is expected to save where it relieves what limits a kernel;
# any other saves LITTLE, if its rule does not promise more.
LITTLE = 0.02
BEST_SHARE = 0.5
CHANGE_VISITS = 2  # that the method's own mean is worth beside what the very change brought
FORSAKEN = LITTLE / 8
NOVEL_GAIN = 0.05  # to be hoped of what was slower, for each method that it was never tried beside
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

    def value(self, worth: float, gain: float) -> float:
        """The reward to be hoped for along it, on a state of `worth` where its action is expected to
        bring `gain`: half the best that was found below it, for that is what a search keeps, half the
        mean. Jobs under way count as visits that gained nothing."""
        visits = VIRTUAL_VISITS + self.visits + self.in_flight
        before = VIRTUAL_VISITS * (worth + gain) + self.in_flight * worth
        mean = (before + self.total) / visits
        return mean if self.best is None else BEST_SHARE * self.best + (1 - BEST_SHARE) * mean

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
class Experience:
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

    def add(self, gain: float, made: frozenset[str], failed: bool) -> None:
        """It brought `gain` beside the methods `made`."""
        self.total += gain
        self.count += 1
        self.failed += failed
        self.company |= made


class Lessons:
    """What was learned of methods and of single changes, on whatever kernel."""

    def __init__(self) -> None:
        self._methods: defaultdict[str, Experience] = defaultdict(Experience)
        self._changes: defaultdict[str, Experience] = defaultdict(Experience)

    def add(self, action: Action, gain: float, made: frozenset[str], failed: bool) -> None:
        """An action brought `gain` on a kernel that the methods `made` had made."""
        self._methods[action.method].add(gain, made, failed)
        self._changes[action.sentence].add(gain, made, failed)

    def gain(self, edge: Edge, made: frozenset[str]) -> float:
        """What an edge is expected to bring on a kernel that the methods `made` had made: its estimate,
        then what its method brought, then what this very change did, the nearer the stronger. What
        was slower may pay in company that it was never tried in, where nothing is expected of it;
        what failed is expected to fail."""
        method, change = self._methods[edge.action.method], self._changes[edge.action.sentence]
        gain = change.expect(method.expect(edge.estimate, VIRTUAL_VISITS), CHANGE_VISITS)
        return (
            max(gain, NOVEL_GAIN) if change.count > change.failed and change.novel(made) else gain
        )

    def appeal(self, edge: Edge, made: frozenset[str]) -> float:
        """How much an edge deserves to be explored: by what it is expected to bring. What lost is
        not given up for good where it meets methods that it was never tried beside."""
        novel = self._changes[edge.action.sentence].novel(made)
        return max(self.gain(edge, made), LITTLE if novel else FORSAKEN)


@dataclass(eq=False)
class State:
    """A kernel that was found correct, however many ways lead to it, and its reward, with the
    diagnosis once it is known."""

    node: Node
    worth: float = 0.0
    made: frozenset[str] = frozenset()
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

    def record(self) -> dict[str, object]:
        """The state as JSON."""
        return {
            "name": self.node.name,
            "latency": self.node.latency,
            "visits": self.visits,
            "bottleneck": self.bottleneck,
            "edges": [edge.record() for edge in self.edges],
        }
