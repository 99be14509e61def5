"""Monte-Carlo graph search: kernels are states, canonical moves are edges, and a kernel that is found
on several ways is one state, so that what was learned below it counts on all of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isqrt, log, sqrt
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.nodes import METHODS_ALONE, Action, Job, Node, Result, Want
from accelopt.search.effect_model import Effects
from accelopt.search.search_graph import LITTLE, NOTHING, Edge, Event, KernelState, Way, hopes
from accelopt.search.strategy import Settings, options_of

EXPLORATION = 0.3  # published: 1; there nothing is learned across kernels
NOISE_SHARE, NOISE_ALPHA = 0.25, 0.30  # Dirichlet noise on the priors of the baseline's edges
WIDENING_START, WIDENING_RATE = 2, 3  # edges that may be chosen, and more with the root of visits
DEEPEST = 8
WEAK_GAIN = 0.02  # a path that never brings more is tired
WEAK_SHARE = 0.25  # of the exploration that others get, for tired edges
PATIENCE = 5  # visits after which that shows
FAILED = -0.7  # reward of a kernel that is wrong or does not run


class Reward(NamedTuple):
    """What a speedup over the baseline is worth, and a kernel that failed."""

    of: Callable[[float], float]
    failed: float


REWARDS = {
    "log": Reward(log, FAILED),
    "published": Reward(lambda gain: max(0.0, gain - 1.0), 0.0),
}


class MCGS:
    """Descends along the edge of the largest upper bound to an action that nobody tried, builds it,
    and tells every edge on the way what came of it. A round is as many kernels as a beam's.

    Its option is `reward`: `log` (of the speedup over the baseline; failures cost) or `published`.
    """

    name = "mcgs"
    rewards: Mapping[str, Reward] = REWARDS
    choices: Mapping[str, Iterable[str]] = {"reward": REWARDS}  # of options; the first is default
    focus = METHODS_ALONE

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        self.options = _chosen(options_of(self.name, settings, *self.choices), self.choices)
        self.best = self.root = start
        self.round = 1
        self._reward = self.rewards[self.options["reward"]]
        self._size = settings.beam * settings.plans * settings.samples
        self._random = random.Random(seed)
        self._noise: dict[Edge, float] = {}
        self._states = {start.key: KernelState(start)}
        self._wrong: set[str] = set()
        self._building: set[str] = set()  # keys of kernels under way, on whatever edge
        self._effects = Effects()
        self._hoped: dict[Edge, float] = {}  # of what may be asked for
        self._hopes: dict[str, float] = {}  # by key of a state: the best that may lie below it
        self._ways: dict[int, Way] = {}
        self._events: list[Event] = []
        self._numbers = 0
        self._built = 0
        self._by_rule = False

    @property
    def kept(self) -> Sequence[Node]:
        """Every correct kernel, the fastest first."""
        nodes = (state.node for state in self._states.values())
        return sorted(nodes, key=lambda node: node.latency or 0.0)

    def ask(self) -> Job | None:
        """What can be done to a new kernel, else an action that nobody asked for yet."""
        for state in self._states.values():
            if not state.asked:
                state.asked = True
                return self._job(Want.ACTIONS, state.node, focus=self.focus)
        return self._next()

    def _next(self) -> Job | None:
        """The action at the end of the best way down."""
        for state in self._states.values():
            self._link(state)
        self._hoped = self._look(self._states.values())
        self._hopes = hopes(self._states, self._hoped)
        start = self._states[self.root.key]
        job = None
        if self._by_rule:  # a model that was given has the next turn
            job = self._descend(start, [], set(), words=True)
        return job or self._descend(start, [], set())

    def _look(self, states: Iterable[KernelState]) -> dict[Edge, float]:
        """The reward to be hoped for along every edge of these that may be asked for."""
        free = [(state, edge) for state in states for edge in state.edges if self._free(edge)]
        under_way = [(*way[-1][0].made, way[-1][1]) for way in self._ways.values()]
        hoped = self._effects.hopes([(*state.made, edge) for state, edge in free], under_way)
        return {edge: hope for (_, edge), hope in zip(free, hoped, strict=True)}

    def tell(self, result: Result) -> None:
        """New edges, or a new state and what it is worth for the way to it."""
        if result.job.want is Want.ACTIONS:
            self._list(self._states[result.job.node.key], result)
            return
        self._built += 1
        self.round = 1 + self._built // self._size
        way = self._ways.pop(result.job.number)
        state, edge = way[-1]
        self._building.discard(edge.action.key)
        node = result.nodes[0] if result.nodes else None
        child = self._found(state, edge, node)
        missing = node is None or node.missing
        reward = None if missing else child.worth if child else self._reward.failed
        made = child.node if child else None
        self._events.append(Event(result.job, way, result.nodes, made, reward))
        self._conclude(result.job.number, way, child, missing)

    def state(self) -> dict[str, object]:
        """The graph by keys of kernels, and what was built in the order of telling."""
        return {
            "options": self.options,
            "baseline_ms": self.root.latency,
            "best_ms": self.best.latency,
            "root_state_hash": self.root.key,
            "best_state_hash": self.best.key,
            "states": {key: state.record() for key, state in self._states.items()},
            "events": [event.record() for event in self._events],
        }

    def _list(self, state: KernelState, result: Result) -> None:
        """The actions on a state."""
        state.list(result.actions, result.diagnosis)
        if state.node is self.root:
            drawn = [self._random.gammavariate(NOISE_ALPHA, 1.0) for _ in state.edges]
            shares = (value / (sum(drawn) or 1.0) for value in drawn)
            self._noise = dict(zip(state.edges, shares, strict=True))

    def _found(self, state: KernelState, edge: Edge, node: Node | None) -> KernelState | None:
        """The state that an edge was found to lead to; None, and the edge closed, where to none."""
        if node is None or node.missing or node.latency is None:
            edge.closed = True
            self._wrong |= {edge.action.key} - {""}  # a plan in words has no key
            self._effects.add((*state.made, edge), state.worth + self._reward.failed)
            return None
        assert self.root.latency
        worth = self._reward.of(self.root.latency / node.latency)
        child = KernelState(node, worth, (*state.made, edge), last=edge.action.method)
        child = self._states.setdefault(node.key, child)
        edge.child = node.key
        self._effects.add((*state.made, edge), worth)
        self.best = min(self.best, node, key=lambda kernel: kernel.latency or 0.0)
        return child

    def _conclude(self, number: int, way: Way, child: KernelState | None, missing: bool) -> None:
        """Tell the edges of `way` what came of the last of them; a failure leaves things as they are."""
        self._arrive(way)
        if not missing:
            self._back_up(way, child.worth if child else way[-1][0].worth)

    def _descend(
        self, state: KernelState, way: Way, dead: set[str], *, words: bool = False
    ) -> Job | None:
        """A job at `state` or below it, with `words` one that a model carries out; a state that has none
        now is `dead`."""
        dead.add(state.node.key)  # also keeps every way down free of circles
        if len(way) == DEEPEST:
            return None
        for edge in self._by_bound(state):
            on = [*way, (state, edge)]
            if edge.child is None:
                if self._free(edge) and not (words and edge.action.key):
                    return self._build(on)
            elif edge.child not in dead:
                job = self._descend(self._states[edge.child], on, dead, words=words)
                if job is not None:
                    return job
        return None

    def _free(self, edge: Edge) -> bool:
        taken = edge.action.key in self._building or edge.action.key in self._states
        return edge.untried and not taken and edge.action.key not in self._wrong

    def _by_bound(self, state: KernelState) -> Iterator[Edge]:
        """Open edges by their upper bound, then those that wait, by prior."""
        edges = [edge for edge in state.edges if not edge.closed]
        priors = self._priors(state, edges)
        edges.sort(key=lambda edge: -priors[edge])
        count = max(1, WIDENING_START + isqrt(WIDENING_RATE**2 * state.visits))
        yield from self._in_order(state, edges[:count], priors)
        yield from edges[count:]

    def _in_order(
        self, state: KernelState, edges: Sequence[Edge], priors: Mapping[Edge, float]
    ) -> Sequence[Edge]:
        best = max(known.worth for known in self._states.values()) or WEAK_GAIN
        explored = EXPLORATION * sqrt(max(1, state.visits))

        def bound(edge: Edge) -> float:
            share = priors[edge] / (1 + edge.visits + edge.in_flight)
            below = self._hopes[edge.child] if edge.child else self._hoped.get(edge, NOTHING)
            return below / best + explored * share

        return sorted(edges, key=lambda edge: -bound(edge))

    def _priors(self, state: KernelState, edges: Sequence[Edge]) -> dict[Edge, float]:
        """In proportion to what is promised; edges along which nothing came for long get less. The
        baseline's are mixed with noise."""

        def appeal(edge: Edge) -> float:
            tired = edge.visits > PATIENCE and (edge.best or 0.0) < state.worth + WEAK_GAIN
            return (WEAK_SHARE if tired else 1.0) * max(edge.estimate, LITTLE)

        whole = sum(max(edge.estimate, 0.0) for edge in state.edges) or 1.0
        return {
            edge: (1 - NOISE_SHARE) * appeal(edge) / whole + NOISE_SHARE * self._noise[edge]
            if edge in self._noise
            else appeal(edge) / whole
            for edge in edges
        }

    def _link(self, state: KernelState) -> None:
        """Edges to kernels that are known need no job: each is as if gone along once."""
        for edge in state.edges:
            if not edge.untried or not edge.action.key:
                continue
            if edge.action.key in self._wrong:
                edge.closed = True
            elif edge.action.key in self._states:
                edge.child = edge.action.key
                self._back_up([(state, edge)], self._states[edge.child].worth)

    def _back_up(self, way: Way, reward: float) -> None:
        for state, edge in way:
            state.visits += 1
            edge.add(reward)

    def _arrive(self, way: Way) -> None:
        for _, edge in way:
            edge.in_flight -= 1

    def _build(self, way: Way) -> Job:
        for _, edge in way:
            edge.in_flight += 1
        state, edge = way[-1]
        self._building |= {edge.action.key} - {""}  # a plan in words has no key yet
        self._by_rule = bool(edge.action.key)
        job = self._job(Want.BUILD, state.node, edge.action)
        self._ways[job.number] = way
        return job

    def _job(self, want: Want, node: Node, action: Action | None = None, focus: str = "") -> Job:
        self._numbers += 1
        return Job(self._numbers - 1, self.round, want, node, action, focus)


def _chosen(given: Mapping[str, str], choices: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The options as given, or the first choice of each. Raises ConfigError for what is no choice."""
    chosen = {key: given.get(key, next(iter(of))) for key, of in choices.items()}
    for key, value in chosen.items():
        if value not in choices[key]:
            raise ConfigError(f"{key}={value} is unknown; there are {', '.join(choices[key])}")
    return chosen
