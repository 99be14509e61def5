"""Strategies ask for jobs and are told what came of them; nothing else.

A strategy is one class in one file of this folder and one line in `STRATEGIES`. It calls no model,
file or device, draws from a generator with the run's seed, and does not know the budget: a run of
32 evaluations contains the run of 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, runtime_checkable

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Evaluation, Status
from accelopt.nodes import Job, Node, Result
from accelopt.search.experience_list import MemorySettings
from accelopt.search.method_catalog import ReGraph

STRATEGIES = {
    "beam": "accelopt.search.beam:Beam",
    "random": "accelopt.search.random_walk:RandomWalk",
    "mcgs": "accelopt.search.mcgs:MCGS",
    "regraph": "accelopt.search.regraph:ReGraphSearch",
    "fsm": "accelopt.search.bottleneck_search:open_search",
    "experts": "accelopt.search.knob_search:Experts",
}


UNBOUNDED = 10**9  # rounds: something else ends the search


class Settings(NamedTuple):
    """T rounds of a beam of B kernels, N plans for each, K samples a plan, F repair rounds.

    `options` are the strategy's own, as KEY=VALUE. `evaluations` bounds the distinct kernels that
    are judged, None is no bound. `window` jobs are under way at once, on whatever machine. Actions of
    which less than the share `least_gain` of the time is expected are not offered.
    """

    iterations: int = 16
    beam: int = 6
    plans: int = 12
    samples: int = 2
    fixer_steps: int = 2
    selection: str = "elitist"
    memory: MemorySettings = MemorySettings()
    strategy: str = "beam"
    options: Mapping[str, str] = {}
    evaluations: int | None = None
    window: int = 4
    least_gain: float = 0.0


class Strategy(Protocol):
    """Decides what is worth the next evaluations."""

    best: Node
    """The fastest kernel so far; never slower than before."""

    round: int
    """The number of the present round, from 1; what was told within a round is learned together."""

    def ask(self) -> Job | None:
        """The next job; None when there is nothing to ask now. With no job under way, that is the
        end of the search."""

    def tell(self, result: Result) -> None:
        """What came of a job, in the order of asking."""

    @property
    def kept(self) -> Sequence[Node]:
        """The kernels that further jobs may start from, for the tables."""

    def state(self) -> dict[str, object]:
        """The search as plain JSON, for people; never read back."""


@runtime_checkable
class Learns(Protocol):
    """A strategy that uses what others found out."""

    def learn(self, regraph: ReGraph) -> None:
        """Before the first job: what methods brought on other kernels."""


def open_strategy(start: Node, settings: Settings, seed: int = 0) -> Strategy:
    """The strategy that `settings` name, from the baseline `start`.

    Raises ConfigError for an unknown name or option.
    """
    place = STRATEGIES.get(settings.strategy, settings.strategy)
    if ":" not in place:
        known = ", ".join(STRATEGIES)
        raise ConfigError(f"there is no strategy {settings.strategy!r}; choose from {known}")
    module, _, name = place.partition(":")
    strategy: Strategy = getattr(import_module(module), name)(start, settings, seed)
    return strategy


def refuse_wrong_options(case: Case, settings: Settings) -> None:
    """Raises ConfigError for options that the strategy does not take, before anything is measured."""
    open_strategy(Node(case, "", Evaluation(status=Status.MISSING)), settings)


def options_of(strategy: str, settings: Settings, *known: str) -> dict[str, str]:
    """What is given of a strategy's own options, which are `known`. Raises ConfigError for others."""
    if unknown := set(settings.options) - set(known):
        others = f", but {', '.join(known)}" if known else ""
        raise ConfigError(f"the strategy {strategy} has no option {min(unknown)!r}{others}")
    return dict(settings.options)
