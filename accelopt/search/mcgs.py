"""Monte-Carlo graph search: kernels are states, canonical moves are edges, and a kernel that is found
on several ways is one state, so that what was learned below it counts on all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from math import isqrt, log, sqrt

from accelopt.errors import ConfigError
from accelopt.nodes import METHODS_ALONE, Action, Job, Node, Result, Want
from accelopt.search.graph import NOTHING, Edge, Lessons, State, hopes
from accelopt.search.strategy import Settings

EXPLORATION = 0.3  # published: 1; there nothing is learned across kernels
NOISE_SHARE, NOISE_ALPHA = 0.25, 0.30  # Dirichlet noise on the priors of the baseline's edges
WIDENING_START, WIDENING_RATE = 2, 3  # edges that may be chosen, and more with the root of visits
DEEPEST = 8
WEAK_GAIN = 0.02  # a path that never brings more is tired
WEAK_SHARE = 0.25  # of the exploration that others get, for tired edges
PATIENCE = 5  # visits after which that shows
FAILED = -0.7  # reward of a kernel that is wrong or does not run

REWARDS: dict[str, tuple[Callable[[float], float], float]] = {
    "log": (log, FAILED),
    "published": (lambda gain: max(0.0, gain - 1.0), 0.0),
}


class MCGS:
    """Descends along the edge of the largest upper bound to an action that nobody tried, builds it,
    and tells every edge on the way what came of it. A round is as many kernels as a beam's.

    Its option is `reward`: `log` (of the speedup over the baseline; failures cost) or `published`.
    """

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        unknown = set(settings.options) - {"reward"}
        reward = settings.options.get("reward", "log")
        if unknown:
            raise ConfigError(f"the strategy mcgs has no option {min(unknown)!r}, but reward")
        if reward not in REWARDS:
            raise ConfigError(f"reward={reward} is unknown; there are {', '.join(REWARDS)}")
        self.best = self.root = start
        self.round = 1
        self._reward, self._failed = REWARDS[reward]
        self._size = settings.beam * settings.plans * settings.samples
        self._random = random.Random(seed)
        self._noise: dict[Edge, float] = {}
        self._states = {start.key: State(start)}
        self._wrong: set[str] = set()
        self._building: set[str] = set()  # keys of kernels under way, on whatever edge
        self._lessons = Lessons()
        self._hopes: dict[str, float] = {}  # by key of a state: the best that may lie below it
        self._paths: dict[int, list[tuple[State, Edge]]] = {}
        self._numbers = 0
        self._built = 0

    @property
    def kept(self) -> Sequence[Node]:
        """Every correct kernel, the fastest first."""
        nodes = (state.node for state in self._states.values())
        return sorted(nodes, key=lambda node: node.latency or 0.0)

    def ask(self) -> Job | None:
        """What can be done to a new kernel; else the action at the end of the best way down that nobody
        asked for yet."""
        for state in self._states.values():
            if not state.asked:
                state.asked = True
                return self._job(Want.ACTIONS, state.node, focus=METHODS_ALONE)
        for state in self._states.values():
            self._link(state)
        taken = {*self._states, *self._wrong, *self._building}
        self._hopes = hopes(self._states, self._lessons, taken)
        return self._descend(self._states[self.root.key], [], set())

    def tell(self, result: Result) -> None:
        """New edges, or a new state and what it is worth for the way to it."""
        path = self._paths.pop(result.job.number, [])
        if result.job.want is Want.ACTIONS:
            state = self._states[result.job.node.key]
            state.list(result.actions, result.diagnosis)
            self._noise |= self._drawn_noise(state) if state.node is self.root else {}
            return
        self._built += 1
        self.round = 1 + self._built // self._size
        for _, edge in path:
            edge.in_flight -= 1
        edge = path[-1][1]
        self._building.discard(edge.action.key)
        node = result.nodes[0] if result.nodes else None
        if node is None or node.missing or node.latency is None:
            edge.closed = True
            self._wrong.add(edge.action.key)
            self._lessons.add(edge.action, self._failed, failed=True)
            if node is not None and not node.missing:
                self._back_up(path, path[-1][0].worth)
            return
        assert self.root.latency
        worth = self._reward(self.root.latency / node.latency)
        before = path[-1][0]
        made = before.made | {edge.action.method}
        state = self._states.setdefault(node.key, State(node, worth, made))
        edge.child = state.node.key
        self._lessons.add(edge.action, worth - before.worth, failed=False)
        self.best = min(self.best, node, key=lambda kernel: kernel.latency or 0.0)
        self._back_up(path, state.worth)

    def state(self) -> dict[str, object]:
        """The graph by keys of kernels."""
        return {
            "root": self.root.key,
            "states": {key: state.record() for key, state in self._states.items()},
        }

    def _descend(self, state: State, path: list[tuple[State, Edge]], dead: set[str]) -> Job | None:
        """A job at `state` or below it; a state that has none now is `dead`."""
        dead.add(state.node.key)  # also keeps every way down free of circles
        if len(path) == DEEPEST:
            return None
        for edge in self._by_bound(state):
            way = [*path, (state, edge)]
            if edge.child is None:
                if not edge.in_flight and edge.action.key not in self._building:
                    return self._build(way)
            elif edge.child not in dead:
                job = self._descend(self._states[edge.child], way, dead)
                if job is not None:
                    return job
        return None

    def _by_bound(self, state: State) -> Iterator[Edge]:
        """Open edges by their upper bound, then those that wait, by prior."""
        edges = [edge for edge in state.edges if not edge.closed]
        priors = self._priors(state, edges)
        edges.sort(key=lambda edge: -priors[edge])
        count = max(1, WIDENING_START + isqrt(WIDENING_RATE**2 * state.visits))
        open_, waiting = edges[:count], edges[count:]
        best = max(known.worth for known in self._states.values()) or WEAK_GAIN
        explored = EXPLORATION * sqrt(max(1, state.visits))

        def bound(edge: Edge) -> float:
            below = self._hopes[edge.child] if edge.child else NOTHING
            hoped = edge.value(state.worth, self._lessons.gain(edge, state.made), below)
            return hoped / best + explored * priors[edge] / (1 + edge.visits + edge.in_flight)

        yield from sorted(open_, key=lambda edge: -bound(edge))
        yield from waiting

    def _priors(self, state: State, edges: Sequence[Edge]) -> dict[Edge, float]:
        """In proportion to what deserves to be explored; edges along which nothing came for long get
        less. The baseline's are mixed with noise."""

        def appeal(edge: Edge) -> float:
            tired = edge.visits > PATIENCE and (edge.best or 0.0) < state.worth + WEAK_GAIN
            return (WEAK_SHARE if tired else 1.0) * self._lessons.appeal(edge, state.made)

        appeals = {edge: appeal(edge) for edge in edges}
        whole = sum(max(edge.estimate, 0.0) for edge in state.edges) or 1.0
        return {
            edge: (1 - NOISE_SHARE) * value / whole + NOISE_SHARE * self._noise[edge]
            if edge in self._noise
            else value / whole
            for edge, value in appeals.items()
        }

    def _link(self, state: State) -> None:
        """Edges to kernels that are known need no job: each is as if gone along once."""
        for edge in state.edges:
            if not edge.untried or not edge.action.key:
                continue
            if edge.action.key in self._wrong:
                edge.closed = True
            elif edge.action.key in self._states:
                edge.child = edge.action.key
                self._back_up([(state, edge)], self._states[edge.child].worth)

    def _back_up(self, path: Sequence[tuple[State, Edge]], reward: float) -> None:
        for state, edge in path:
            state.visits += 1
            edge.visits += 1
            edge.total += reward
            edge.best = reward if edge.best is None else max(edge.best, reward)

    def _drawn_noise(self, state: State) -> dict[Edge, float]:
        drawn = [self._random.gammavariate(NOISE_ALPHA, 1.0) for _ in state.edges]
        return dict(zip(state.edges, (d / (sum(drawn) or 1.0) for d in drawn), strict=True))

    def _build(self, way: list[tuple[State, Edge]]) -> Job:
        for _, edge in way:
            edge.in_flight += 1
        state, edge = way[-1]
        self._lessons.asked(edge.action, state.made)
        self._building |= {edge.action.key} - {""}  # a plan in words has no key yet
        job = self._job(Want.BUILD, state.node, edge.action)
        self._paths[job.number] = way
        return job

    def _job(self, want: Want, node: Node, action: Action | None = None, focus: str = "") -> Job:
        self._numbers += 1
        return Job(self._numbers - 1, self.round, want, node, action, focus)
