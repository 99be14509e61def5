"""The graph that a search with canonical moves grows: a state for each kernel, an edge for each action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import NamedTuple

from accelopt.evaluation import Diagnosis
from accelopt.experience import START
from accelopt.nodes import Action, Job, Node

# The share of the time that a method is expected to save where it relieves what limits a kernel;
# any other saves LITTLE, if its rule does not promise more.
LITTLE = 0.02
NOTHING = -inf  # to be hoped where nothing is left to try

EXPECTED = {
    "switch_to_mma_or_wgmma": 0.12,
    "vectorize_global_loads": 0.10,
    "avoid_atomics_reduce": 0.10,
    "softmax_math_fusion": 0.08,
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


@dataclass(eq=False)
class KernelState:
    """A kernel that was found correct, however many ways lead to it, and its reward, with the
    diagnosis once it is known. `made` are the edges that led to it first,
    `last` is the last of their methods."""

    node: Node
    worth: float = 0.0
    made: tuple[Edge, ...] = ()
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

    def record(self) -> dict[str, object]:
        """The state as JSON."""
        return {
            "name": self.node.name,
            "latency": self.node.latency,
            "visits": self.visits,
            "last_method": self.last,
            "applied_methods": sorted({edge.action.method for edge in self.made}),
            "bottleneck": self.bottleneck,
            "ncu": self.diagnosis.counters if self.diagnosis else None,
            "edges": [edge.record() for edge in self.edges],
        }


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


def hopes(states: Mapping[str, KernelState], hoped: Mapping[Edge, float]) -> dict[str, float]:
    """For each state the largest reward to be hoped for on it, or on any state that it leads to."""
    hope = {
        key: max((hoped[edge] for edge in state.edges if edge in hoped), default=NOTHING)
        for key, state in states.items()
    }
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
