"""Who proposes configurations: three experts, each with a belief of its own about which way is fast.

It is held as a prior on the effects of the knobs; what was measured outweighs it by and by. Everybody
sees the same history and never proposes what was tried; who believes nothing is in `samplers`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import inf, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accelopt.knob_space import Configuration, Parameter, Space, name_of

CLOSE_BY = 0.5  # how often a proposal lies beside the best configuration so far
MOST_COMPARED = 4096  # points among which an expert chooses; of larger spaces, as many are drawn
SLOWER = 0.7  # logarithm of the time: what a configuration that fails counts above the slowest
NOISE, SPREAD = 0.05, 0.3  # of one measurement and of one effect, in logarithms
BESIDE_FORECAST = 0.1  # of a belief, where times are foretold
CURIOSITY = 0.5  # standard deviations by which what is not known looks faster than expected


class TriedValues(NamedTuple):
    """A configuration and what came of it: milliseconds, or infinity and the reason; None while it is
    under way."""

    configuration: Configuration
    latency: float | None
    reason: str = ""


Choose = Callable[[Space, Sequence[TriedValues], random.Random], Configuration | None]


class Expert(NamedTuple):
    """Who proposes: a name, what it believes in a sentence, and the rule by which it chooses."""

    name: str
    bias: str
    choose: Choose


def believing(raise_by: float, near: float = 0.0) -> Choose:
    """The rule of an expert that expects the logarithm of the time to change by `raise_by` from the
    least to the most demanding value of each knob, and by `near` for a step away from the default."""

    def choose(
        space: Space, history: Sequence[TriedValues], chance: random.Random
    ) -> Configuration | None:
        candidates = _candidates(space, history, chance)
        if not candidates:
            return None
        means, deviations = _expected(space, history, candidates, raise_by, near)
        hopes = means - CURIOSITY * deviations
        least = hopes.min()
        equals = [at for at, hope in enumerate(hopes.tolist()) if hope <= least + 1e-9]
        return candidates[chance.choice(equals)]

    return choose


EXPERTS = {
    expert.name: expert
    for expert in (
        Expert(
            "robustness",
            "Multiples that the tensor core likes, near the defaults, no edge cases.",
            believing(0.0, near=0.1),
        ),
        Expert(
            "throughput",
            "High arithmetic intensity, and latencies hidden: larger tiles, more stages and warps, "
            "operands that stay.",
            believing(-0.3),
        ),
        Expert(
            "memory",
            "Little register, shared memory or SBUF: small tiles, few stages and warps, operands "
            "that are streamed.",
            believing(0.3),
        ),
    )
}


def best_of(history: Sequence[TriedValues]) -> TriedValues | None:
    """The fastest that is correct."""
    correct = [tried for tried in history if tried.latency is not None and tried.latency < inf]
    return min(correct, key=lambda tried: tried.latency or inf, default=None)


def _candidates(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> list[Configuration]:
    """Untried points: those beside the best, or any."""
    best = best_of(history)
    if best is not None and chance.random() < CLOSE_BY:
        known = {name_of(tried.configuration) for tried in history}
        near = [p for p in space.neighbours(best.configuration) if name_of(p) not in known]
        if near:
            return near
    return untried(space, history, chance)


def untried(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> list[Configuration]:
    """The points that were not tried; of a large space so many that are drawn."""
    known = {name_of(tried.configuration) for tried in history}
    if space.size <= MOST_COMPARED:
        return [point for point in space.points() if name_of(point) not in known]
    drawn = [space.drawn(chance) for _ in range(MOST_COMPARED)]
    known_of = (point for point, _ in space.foretold)
    points = {name_of(point): point for point in [space.default, *known_of, *drawn]}
    return [point for name, point in points.items() if name not in known]


def logarithms(history: Sequence[TriedValues]) -> list[float]:
    """Of the times; what failed counts as slower than everything."""
    known = [tried.latency for tried in history if tried.latency is not None]
    worst = max((log(ms) for ms in known if ms < inf), default=0.0) + SLOWER
    return [log(ms) if ms < inf else worst for ms in known]


def _expected(
    space: Space,
    history: Sequence[TriedValues],
    candidates: Sequence[Configuration],
    raise_by: float,
    near: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation of the logarithm of the candidates' times: Bayesian linear regression on
    the knobs' places, their squares and products, from what is foretold and the expert's belief."""
    asked = _features(space, candidates)
    belief = np.zeros(asked.shape[1])
    belief[1 : 1 + len(space.knobs)] = raise_by / 2  # a place goes from -1 to 1
    away = near * _steps_from_default(space, candidates)
    if space.foretold:  # a belief decides among what is foretold to be nearly as fast
        belief, away = BESIDE_FORECAST * belief, BESIDE_FORECAST * away
    away = away + _foretold(space, candidates)
    times = logarithms(history)
    if not times:
        return asked @ belief + away, np.zeros(len(candidates))
    told = [t.configuration for t in history if t.latency is not None]
    columns, forecast = _features(space, told), _foretold(space, told)
    first = times[0] - forecast[0] - columns[0] @ belief
    precision = columns.T @ columns / NOISE**2 + np.eye(columns.shape[1]) / SPREAD**2
    precision[0, 0] -= 1 / SPREAD**2 - 1e-6  # nothing is believed of the level
    left = np.array(times) - forecast - first - columns @ belief
    spread = np.linalg.inv(precision)
    weights = belief + spread @ (columns.T @ left) / NOISE**2
    deviations = np.sqrt(np.maximum(0.0, np.einsum("ij,jk,ik->i", asked, spread, asked)))
    return first + asked @ weights + away, deviations


def _foretold(
    space: Space, configurations: Sequence[Mapping[str, Parameter]]
) -> npt.NDArray[np.float64]:
    """The logarithm of the time that is foretold for each; of others nothing good is expected."""
    known = {name_of(point): log(ms) for point, ms in space.foretold}
    worst = max(known.values(), default=0.0)
    return np.array([known.get(name_of(one), worst) for one in configurations])


def _features(
    space: Space, configurations: Sequence[Mapping[str, Parameter]]
) -> npt.NDArray[np.float64]:
    """A row for each configuration: 1, the place of each knob's value (-1 to 1), and products."""
    places = np.array(
        [[_place(knob.values, c[knob.name]) for knob in space.knobs] for c in configurations]
    ).reshape(len(configurations), len(space.knobs))
    count = places.shape[1]
    products = [places[:, i] * places[:, j] for i in range(count) for j in range(i, count)]
    return np.column_stack([np.ones(len(configurations)), places, *products])


def _place(values: Sequence[Parameter], value: Parameter) -> float:
    return 2 * values.index(value) / (len(values) - 1) - 1 if len(values) > 1 else 0.0


def _steps_from_default(
    space: Space, configurations: Sequence[Configuration]
) -> npt.NDArray[np.float64]:
    values = {knob.name: (knob.values, knob.values.index(knob.start)) for knob in space.knobs}
    return np.array(
        [
            float(sum(abs(known.index(c[name]) - start) for name, (known, start) in values.items()))
            for c in configurations
        ]
    )
