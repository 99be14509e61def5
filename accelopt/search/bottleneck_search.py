"""Bottleneck search: in each round the best kernels go to workers, and each worker takes on another
bottleneck of its kernel. The strategies of the published manager, and `fsm` for the common driver."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from accelopt.errors import ConfigError
from accelopt.nodes import Job, Node, Result, Want
from accelopt.search.strategy import Settings

STILL_ROUNDS = 5  # in which nothing moves, after which a search has converged
STILL_POINTS, STILL_SHARE = 0.1, 1e-3  # of the efficiency in percent, of the time


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
        self.round = 0
        self._numbers = 0  # jobs so far
        self._jobs: list[Job] = []  # of the round
        self._left = iter(self._jobs)  # to be asked for
        self._told: list[Result] = []
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
        self._begin_round()

    def _begin_round(self) -> None:
        """What the workers of a round shall do: distinct kernels, distinct bottlenecks by rank; where there
        are fewer kernels than places, more bottlenecks of each. Nothing when nothing is left."""
        self.round += 1
        left = [node for node in self.ranked() if node.key not in self._done]
        chosen = [] if self.stop_reason else left[: self.num_top_kernels]
        each, more = divmod(self.num_workers_needed, max(len(chosen), 1))
        ranks = [(node, each + (place < more)) for place, node in enumerate(chosen)]
        focuses = [(node, str(rank + 1)) for node, most in ranks for rank in range(most)]
        self._jobs = [
            Job(number, self.round, Want.DEVELOP, node, focus=focus, workflow="machine")
            for number, (node, focus) in enumerate(focuses, self._numbers)
        ]
        self._numbers += len(self._jobs)
        self._left = iter(self._jobs)

    def ask(self) -> Job | None:
        """The next job of the round, for a worker; its focus is the bottleneck's rank."""
        return next(self._left, None)

    def tell(self, result: Result) -> None:
        """The last result of a round chooses the jobs of the next."""
        self._told.append(result)
        for node in result.nodes:
            if node.latency is not None:
                self.programs.setdefault(node.key, node)
        if len(self._told) == len(self._jobs):
            self._end_round(self._told)
            self._told = []

    def _end_round(self, results: Sequence[Result]) -> None:
        """What came of a round, failures included."""
        self._done |= {result.job.node.key for result in results if not result.nodes}
        self._note_efficiency(results)
        best = self.best
        self._history.append((self._efficiency.get(best.key, 0.0), best.latency or inf))
        self.stop_reason = self.stop_reason or self._early_stop(results)
        self._begin_round()

    @property
    def best(self) -> Node:
        """The fastest kernel so far."""
        return self.ranked()[0]

    @property
    def kept(self) -> Sequence[Node]:
        """The kernels that the next round starts from."""
        return list(dict.fromkeys(job.node for job in self._jobs))

    def state(self) -> dict[str, object]:
        """All kernels by name, the fastest first, with latency in milliseconds."""
        kernels = [{"name": n.name, "latency": n.latency} for n in self.ranked()]
        return {"kernels": kernels, "stop_reason": self.stop_reason}

    def ranked(self) -> list[Node]:
        """Every correct kernel, the fastest first, of equals the one that was first."""
        return sorted(self.programs.values(), key=lambda node: node.latency or inf)

    def _note_efficiency(self, results: Sequence[Result]) -> None:
        for result in results:
            if result.development is not None:
                self._efficiency[result.job.node.key] = result.development.efficiency_before
                for node in result.nodes:
                    self._efficiency.setdefault(node.key, result.development.efficiency_after)

    def _early_stop(self, results: Sequence[Result]) -> str:
        best = self.best
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
        best = self.best
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


def open_search(start: Node, settings: Settings, seed: int) -> BeamSearch:
    """The same for the common driver: its jobs go to the workflow `machine`. Options: `variant`
    (beam_search or greedy) and the variant's own settings. Raises ConfigError for others."""
    options = dict(settings.options)
    for key, text in options.items():
        if key != "variant" and not text.isdecimal():
            raise ConfigError(f"the strategy fsm: {key}={text} is no whole number")
    try:
        name = options.pop("variant", "beam_search")
        search = open_variant(name, **{key: int(text) for key, text in options.items()})
    except ValueError as error:
        raise ConfigError(f"the strategy fsm: {error}") from None
    search.initialize(start)
    return search
