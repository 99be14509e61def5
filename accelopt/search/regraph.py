"""Graph search that knows what methods brought after which other on other kernels, and follows what
succeeded a few steps further before it judges the way there.

Everything else is `mcgs`, its bound too: on planted graphs it is better than the published one, which
holds with `reward=published`. No state is twice on a way down, so the published penalty for circles
is never due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt

from accelopt.knob_space import Space, sentence
from accelopt.nodes import CANDIDATES, Action, Job, KnobSetting, Node, Result, Want
from accelopt.search.knob_experts import EXPERTS, TriedValues
from accelopt.search.mcgs import FAILED, MCGS, Reward
from accelopt.search.method_catalog import FAMILIAR, ReGraph
from accelopt.search.search_graph import Edge, KernelState, Way
from accelopt.search.strategy import Settings

EPSILON_SELECT, EPSILON_ROLLOUT = 0.05, 0.10  # how often an edge is drawn blindly
LAMBDA_REG = 0.50  # what a prior of 1 is worth, on an edge that nobody went along
ROLLOUT_MAX_STEPS = 2  # published: 4; there edges of a rollout are expected to bring nothing
MOST_SWEPT = 32
SWEEPER, KNOBS = "robustness", "set_knobs"  # who sets knobs, one step from where they are
TRUST = 0.5  # of what is known elsewhere, before any of it came true here
MOST = 0.7  # of a gain, either way, that counts for that
FIRM = 0.1**2  # how firmly: as if one transition had been foretold a gain of a tenth

REWARDS = {
    "log": Reward(log, FAILED),
    "published": Reward(lambda gain: gain if gain >= 1 else gain - 1, -1.0),
}


@dataclass(eq=False)
class Rollout:
    """What follows a success before it is judged: the way that waits for the best reward; other settings
    of the kernel's knobs, `sweeps` of them at most; steps further, and how far they are."""

    number: int
    way: Way
    found: KernelState
    at: KernelState
    best: float
    sweeps: int = 0
    space: Space | None = None
    tried: list[TriedValues] = field(default_factory=list)
    steps: int = 0
    under_way: bool = False


class ReGraphSearch(MCGS):
    """Its options are `reward`; `filter`: whether the learned graph is a prior (`soft`), leaves out
    what never followed a method (`hard`), or is not used (`off`); and `sweep`: how many settings of its
    knobs are tried of a kernel before the way to it is judged, so that a method is not blamed for tiles."""

    name = "regraph"
    rewards = REWARDS
    choices: Mapping[str, Iterable[str]] = {
        "reward": REWARDS,
        "filter": ("soft", "hard", "off"),
        "sweep": tuple(map(str, range(MOST_SWEPT + 1))),
    }
    focus = CANDIDATES

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        super().__init__(start, settings, seed)
        self.learned = ReGraph()
        self._published = self.options["reward"] == "published"
        self._sweeps = int(self.options["sweep"])
        self._asked_for: dict[int, Rollout] = {}  # knobs, by number of a job
        self._used: Counter[str] = Counter()
        self._promised: dict[
            Edge, tuple[KernelState, float]
        ] = {}  # the estimates without the graph
        self._foretold, self._came = FIRM, TRUST * FIRM
        self._rollouts: list[Rollout] = []
        self._steps: dict[int, Rollout] = {}  # by number of a job

    def learn(self, regraph: ReGraph) -> None:
        """Use what other searches found out; before the first job."""
        if self.options["filter"] != "off":
            self.learned = regraph

    def tell(self, result: Result) -> None:
        """The same as without rollouts; one goes on, or ends with its first failure."""
        if result.job.want is Want.SPACE:
            swept = self._asked_for.pop(result.job.number)
            swept.space, swept.under_way = result.space, False
            if swept.space is None:
                swept.sweeps = 0
            else:
                swept.tried.append(TriedValues(swept.space.default, swept.found.node.latency))
            return
        super().tell(result)
        rollout = self._steps.pop(result.job.number, None)
        if rollout is not None:
            self._events[-1] = self._events[-1]._replace(rollout=rollout.number)

    def _next(self) -> Job | None:
        for rollout in [one for one in self._rollouts if not one.under_way]:
            job = self._sweep(rollout) if rollout.sweeps else None
            if job is None and rollout.at.listed:
                job = self._step(rollout)
            if job is not None:
                return job
        return super()._next()

    def _sweep(self, rollout: Rollout) -> Job | None:
        """The next setting of a kernel's knobs, or the question which it has; None at the end."""
        if rollout.space is None:
            rollout.under_way = True
            job = self._job(Want.SPACE, rollout.found.node)
            self._asked_for[job.number] = rollout
            return job
        rollout.sweeps -= 1
        values = EXPERTS[SWEEPER].choose(rollout.space, rollout.tried, self._random)
        if values is None:
            rollout.sweeps = 0
            return None
        rollout.under_way = True
        rollout.tried.append(TriedValues(values, None))
        change = KnobSetting(values=values, sentence=sentence(rollout.space.changes(values)))
        edge = Edge(Action(change=change, method=KNOBS), 0.0)
        rollout.found.edges.append(edge)
        job = self._build([(rollout.found, edge)])
        self._steps[job.number] = rollout
        return job

    def _step(self, rollout: Rollout) -> Job | None:
        """The next job of a rollout; None, and it is over, where there is none."""
        state = rollout.at
        edges = [
            edge
            for edge in self._allowed(state)
            if self._free(edge) and edge.action.key not in {*self._states, *self._wrong}
        ]
        if not edges or rollout.steps == ROLLOUT_MAX_STEPS:
            self._end(rollout)
            return None
        if self._random.random() < EPSILON_ROLLOUT:
            edge = self._random.choice(edges)
        else:
            hoped = {} if self._published else self._look([state])
            edge = max(edges, key=lambda e: (hoped.get(e, 0.0), -self._used[e.action.method]))
        rollout.under_way = True
        rollout.steps += 1
        job = self._build([(state, edge)])
        self._steps[job.number] = rollout
        return job

    def _conclude(self, number: int, way: Way, child: KernelState | None, missing: bool) -> None:
        rollout = self._steps.get(number)
        if not missing:
            self._compare(*way[-1], child)
        if rollout is None and child is not None:
            self._rollouts.append(Rollout(number, way, child, child, child.worth, self._sweeps))
            return
        super()._conclude(number, way, child, missing)
        if rollout is None:
            return
        rollout.under_way = False
        tried = rollout.tried[-1] if rollout.tried else None
        if tried is not None and tried.latency is None:
            latency = child.node.latency if child else inf
            rollout.tried[-1] = tried._replace(latency=latency)
            rollout.best = max(rollout.best, child.worth if child else rollout.best)
        elif child is None:
            self._end(rollout)
        else:
            rollout.at, rollout.best = child, max(rollout.best, child.worth)

    def _end(self, rollout: Rollout) -> None:
        """The best reward of a success and of what followed it, for the way to it."""
        self._rollouts.remove(rollout)
        self._arrive(rollout.way)
        self._back_up(rollout.way, rollout.best)

    def _build(self, way: Way) -> Job:
        self._used[way[-1][1].action.method] += 1
        return super()._build(way)

    def _list(self, state: KernelState, result: Result) -> None:
        """The actions on a state, of equal kernels the first."""
        state.list(result.actions, result.diagnosis)
        kept: dict[str, Edge] = {}
        for edge in state.edges:
            kept.setdefault(edge.action.key or edge.action.sentence, edge)
        state.edges = list(kept.values())
        for edge in state.edges if self.learned.nodes else ():
            self._promised[edge] = state, edge.estimate
            self._estimate(edge)

    @property
    def trust(self) -> float:
        """How much of what is known elsewhere holds here: the slope of the gains that came on those that
        were foretold, 0 to 1."""
        return min(1.0, max(0.0, self._came / self._foretold))

    def _compare(self, state: KernelState, edge: Edge, child: KernelState | None) -> None:
        """Hold what was foretold of an edge against what came of it."""
        method = edge.action.method
        foretold = self.learned.known(state.last, method) * self.learned.value(state.last, method)
        came = child.worth - state.worth if child else self._reward.failed
        self._foretold += foretold**2
        self._came += foretold * max(-MOST, min(MOST, came))
        for known in self._promised if foretold else ():
            self._estimate(known)

    def _estimate(self, edge: Edge) -> None:
        state, promised = self._promised[edge]
        trust = self.trust * self.learned.known(state.last, edge.action.method)
        value = self.learned.value(state.last, edge.action.method)
        edge.estimate = promised + trust * (value - promised)

    def _allowed(self, state: KernelState) -> list[Edge]:
        """The edges that are not closed; with a `hard` filter those alone that ever followed the last
        method, where there are any."""
        edges = [edge for edge in state.edges if not edge.closed]
        if self.options["filter"] != "hard":
            return edges
        after = self.learned.edges.get(state.last, {})
        return [edge for edge in edges if edge.action.method in after] or edges

    def _in_order(
        self, state: KernelState, edges: Sequence[Edge], priors: Mapping[Edge, float]
    ) -> Sequence[Edge]:
        allowed = set(self._allowed(state))
        edges = [edge for edge in edges if edge in allowed]
        ordered = list(super()._in_order(state, edges, priors))
        if self._published:
            bounds = {edge: upper_bound(edge, state.visits, priors[edge]) for edge in edges}
            ordered = sorted(
                edges, key=lambda edge: (-bounds[edge], self._used[edge.action.method])
            )
        if len(ordered) > 1 and self._random.random() < EPSILON_SELECT:
            drawn = self._random.choice(ordered)
            ordered = [drawn, *(edge for edge in ordered if edge is not drawn)]
        return ordered

    def _priors(self, state: KernelState, edges: Sequence[Edge]) -> dict[Edge, float]:
        """The diagnosis at first; the more is known of the last method, the more what followed it."""
        profile = super()._priors(state, edges)
        count = self.learned.count(state.last)
        share = self.trust * count / (count + FAMILIAR)
        value = self.learned.value
        gains = {edge: max(0.0, value(state.last, edge.action.method)) for edge in edges}
        whole, all_gains = sum(profile.values()) or 1.0, sum(gains.values()) or 1.0
        return {e: (1 - share) * profile[e] / whole + share * gains[e] / all_gains for e in edges}


def upper_bound(edge: Edge, visits: int, prior: float) -> float:
    """The published bound: what an edge may be worth at most, on a state with so many `visits`."""
    mean = edge.total / edge.visits if edge.visits else 0.0
    explored = sqrt(2 * log(visits + 1) / (edge.visits + edge.in_flight + 1))
    return mean + explored + LAMBDA_REG * prior / (1 + edge.visits)
