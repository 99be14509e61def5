"""Bottleneck search: in each round the best kernels go to workers, and each worker takes on another
bottleneck of its kernel. The strategies of the published manager, and `fsm` for the common driver."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.nodes import Job, Node, Result, Want
from accelopt.search.strategy import Settings

STILL_ROUNDS = 5  # in which nothing moves, after which a search has converged
STILL_POINTS, STILL_SHARE = 0.1, 1e-3  # of the efficiency in percent, of the time


class Assignment(NamedTuple):
    """A kernel for a worker, and the rank from 1 of the bottleneck that it shall take on."""

    node: Node
    bottleneck_id: int = 1


class BeamSearch:
    """The `num_top_kernels` fastest kernels, `num_bottlenecks` workers on each, in all rounds.

    A kernel on which nothing is left to do makes place for the next. It ends early when the best is at
    the roofline, or when for five rounds neither its efficiency nor its time has moved.
    """

    def __init__(self, num_top_kernels: int = 2, num_bottlenecks: int = 2) -> None:
        for name, count in (("top kernels", num_top_kernels), ("bottlenecks", num_bottlenecks)):
            if count < 1:
                raise ValueError(f"{count} {name}: at least 1 is needed")
        self.num_top_kernels = num_top_kernels
        self.num_bottlenecks = num_bottlenecks
        self.stop_reason = ""
        self.programs: dict[str, Node] = {}
        self._done: set[str] = set()  # keys of kernels on which nothing is left
        self._efficiency: dict[str, float] = {}  # percent of peak by key, where it is known
        self._history: list[tuple[float, float]] = []  # efficiency and time of the best by round

    @property
    def num_workers_needed(self) -> int:
        """Workers of one round."""
        return self.num_top_kernels * self.num_bottlenecks

    def initialize(self, start: Node) -> None:
        """Begin with the kernel `start`, which was found correct."""
        self.programs = {start.key: start}

    def add(self, result: Result) -> None:
        """Know the correct kernels of one result, before its round is over."""
        for node in result.nodes:
            if node.latency is not None:
                self.programs.setdefault(node.key, node)

    def select_candidates(self, round_num: int) -> list[Assignment]:
        """What the workers of a round shall do: distinct kernels, distinct bottlenecks; where there
        are fewer kernels than places, more bottlenecks of each. None when nothing is left."""
        left = [node for node in self.ranked() if node.key not in self._done]
        chosen = left[: self.num_top_kernels]
        if not chosen:
            return []
        each, more = divmod(self.num_workers_needed, len(chosen))
        return [
            Assignment(node, rank)
            for place, node in enumerate(chosen)
            for rank in range(1, each + (place < more) + 1)
        ]

    def update_with_results(self, results: Sequence[Result], round_num: int) -> None:
        """What came of a round, failures included."""
        for result in results:
            if not result.nodes:
                self._done.add(result.job.node.key)
            self.add(result)
        self._note_efficiency(results)
        best = self.get_best_program()
        self._history.append((self._efficiency.get(best.key, 0.0), best.latency or inf))
        self.stop_reason = self.stop_reason or self._early_stop(results)

    def get_best_program(self) -> Node:
        """The fastest kernel so far."""
        return self.ranked()[0]

    def ranked(self) -> list[Node]:
        """Every correct kernel, the fastest first, of equals the one that was first."""
        return sorted(self.programs.values(), key=lambda node: node.latency or inf)

    def should_terminate(self, round_num: int, max_rounds: int | None = None) -> bool:
        """Whether no round follows; `stop_reason` then says why."""
        if not self.stop_reason and max_rounds is not None and round_num >= max_rounds:
            done = "round is" if round_num == 1 else "rounds are"
            self.stop_reason = f"{round_num} {done} done"
        return bool(self.stop_reason)

    def _note_efficiency(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.development is not None:
                self._efficiency[result.job.node.key] = result.development.efficiency_before
                for node in result.nodes:
                    self._efficiency.setdefault(node.key, result.development.efficiency_after)

    def _early_stop(self, results: Sequence[Result]) -> str:
        best = self.get_best_program()
        for result in results:
            mine = any(node.key == best.key for node in result.nodes)
            if mine and result.development and result.development.stop:
                return result.development.stop
        return self._standstill(results)

    def _standstill(self, results: Sequence[Result]) -> str:
        """Why it is of no use to go on; empty when it may be."""
        efficiencies, times = zip(*self._history[-STILL_ROUNDS:], strict=True)
        if len(times) < STILL_ROUNDS or not all(efficiencies):
            return ""
        still = max(efficiencies) - min(efficiencies) < STILL_POINTS
        if still and times[-1] > times[0] * (1 - STILL_SHARE):
            return (
                f"converged: for {STILL_ROUNDS} rounds the best kernel stood at "
                f"{efficiencies[-1]:.1f}% of peak"
            )
        return ""


class Greedy(BeamSearch):
    """One worker on the best kernel, until `max_no_improvement` rounds in a row brought nothing."""

    def __init__(self, max_no_improvement: int = 5) -> None:
        super().__init__(1, 1)
        self.max_no_improvement = max_no_improvement
        self._vain = 0

    def _standstill(self, results: Sequence[Result]) -> str:
        """A round without a faster kernel counts, also one without any."""
        best = self.get_best_program()
        self._vain = 0 if any(best in result.nodes for result in results) else self._vain + 1
        if self._vain < self.max_no_improvement:
            return ""
        return f"{self._vain} rounds in a row brought no faster kernel"


VARIANTS: dict[str, type[BeamSearch]] = {"beam_search": BeamSearch, "greedy": Greedy}


def open_variant(name: str, **config: int) -> BeamSearch:
    """The strategy called `name`. Raises ValueError for an unknown name or setting."""
    if name not in VARIANTS:
        raise ValueError(f"no strategy {name!r}; there are {', '.join(VARIANTS)}")
    try:
        return VARIANTS[name](**config)
    except TypeError:
        raise ValueError(f"the strategy {name} has no setting {', '.join(config)}") from None


class BottleneckSearch:
    """The same for the common driver: its jobs go to the workflow `machine`.

    Options: `variant` (beam_search or greedy) and the variant's own settings.
    """

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        options = dict(settings.options)
        for key, text in options.items():
            if key != "variant" and not text.isdecimal():
                raise ConfigError(f"the strategy fsm: {key}={text} is no whole number")
        try:
            name = options.pop("variant", "beam_search")
            self.search = open_variant(name, **{key: int(text) for key, text in options.items()})
        except ValueError as error:
            raise ConfigError(f"the strategy fsm: {error}") from None
        self.search.initialize(start)
        self.round = 1
        self._numbers = 0
        self._queue = self.search.select_candidates(self.round)
        self._asked = 0
        self._told: list[Result] = []

    @property
    def best(self) -> Node:
        """The fastest kernel so far."""
        return self.search.get_best_program()

    @property
    def kept(self) -> Sequence[Node]:
        """The kernels that the next round starts from."""
        return list(dict.fromkeys(candidate.node for candidate in self._queue))

    def ask(self) -> Job | None:
        """The next candidate of the round."""
        if self._asked == len(self._queue):
            return None
        candidate = self._queue[self._asked]
        self._asked += 1
        self._numbers += 1
        return job_of(candidate, self._numbers - 1, self.round)

    def tell(self, result: Result) -> None:
        """The last result of a round chooses the next candidates."""
        self.search.add(result)
        self._told.append(result)
        if len(self._told) < len(self._queue):
            return
        self.search.update_with_results(self._told, self.round)
        self._told, self._asked = [], 0
        self.round += 1
        stop = self.search.should_terminate(self.round - 1)
        self._queue = [] if stop else self.search.select_candidates(self.round)

    def state(self) -> dict[str, object]:
        """All kernels by name, the fastest first, with latency in milliseconds."""
        kernels = [{"name": n.name, "latency": n.latency} for n in self.search.ranked()]
        return {"kernels": kernels, "stop_reason": self.search.stop_reason}


def job_of(candidate: Assignment, number: int, round_num: int) -> Job:
    """A candidate as a job for a worker; its focus is the bottleneck's rank."""
    focus = str(candidate.bottleneck_id)
    return Job(number, round_num, Want.DEVELOP, candidate.node, focus=focus, workflow="machine")
