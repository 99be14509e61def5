"""Samplers: who proposes configurations without a belief of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence

from accelopt.errors import ConfigError
from accelopt.knob_space import Configuration, Space, name_of
from accelopt.search.knob_experts import (
    EXPERTS,
    MOST_COMPARED,
    Choose,
    TriedValues,
    best_of,
    logarithms,
    untried,
)


def choose_random(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> Configuration | None:
    """Any untried point."""
    points = untried(space, history, chance)
    return chance.choice(points) if points else None


def choose_in_order(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> Configuration | None:
    """The first point that was not tried."""
    known = {name_of(tried.configuration) for tried in history}
    return next((point for point in space.points() if name_of(point) not in known), None)


def choose_along_knobs(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> Configuration | None:
    """Coordinate descent: every value of one knob at the best configuration, then of the next; any
    untried point when all of them are known."""
    if not history:
        return space.default
    known = {name_of(tried.configuration) for tried in history}
    best = best_of(history)
    for knob in space.knobs:
        for value in knob.values:
            point = {**(best.configuration if best else space.default), knob.name: value}
            if name_of(point) not in known:
                return point
    return choose_random(space, history, chance)


def choose_by_tpe(
    space: Space, history: Sequence[TriedValues], chance: random.Random
) -> Configuration | None:
    """Optuna's tree-structured Parzen estimator, told everything that was tried; what the experts
    propose is tried first."""
    try:
        import optuna
    except ImportError:
        raise ConfigError("the sampler tpe needs optuna: pip install optuna") from None
    for expert in [*EXPERTS.values()][len(history) :][:1]:
        return expert.choose(space, history, chance)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = optuna.distributions.CategoricalDistribution
    knobs = {knob.name: kinds(knob.values) for knob in space.knobs}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=chance.randrange(2**31)))
    told = [tried.configuration for tried in history if tried.latency is not None]
    for values, time in zip(told, logarithms(history), strict=True):
        trial = optuna.trial.create_trial(params=values, distributions=knobs, value=time)
        study.add_trial(trial)
    seen = {name_of(tried.configuration) for tried in history}
    for _ in range(MOST_COMPARED // 64):
        asked: Configuration = study.ask(knobs).params
        if name_of(asked) not in seen:
            return asked
    return choose_random(space, history, chance)


SAMPLERS: dict[str, Choose] = {
    "random": choose_random,
    "exhaustive": choose_in_order,
    "coordinate": choose_along_knobs,
    "tpe": choose_by_tpe,
}
