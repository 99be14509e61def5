"""The knobs of a kernel: their values, what is wrong with a configuration, and what lies near one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Literal, cast

from pydantic import Field, model_validator

from accelopt.evaluation import Row
from accelopt.replies import object_in

Parameter = str | int | float | bool
Configuration = dict[str, Parameter]
TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


class KnobSpec(Row):
    """One knob. `allowed` lists its values from the least demanding to the most: small tiles before
    large ones, streamed before resident. `default` is by default the first; `meaning` says in words what
    is set."""

    name: str
    meaning: str = ""
    type: Literal["int", "float", "str", "bool"]
    allowed: tuple[Parameter, ...]
    multiple_of: int | None = None
    default: Parameter | None = None

    @model_validator(mode="after")
    def _values_fit(self) -> KnobSpec:
        kind = TYPES[self.type]
        wrong = [value for value in self.allowed if type(value) is not kind]
        if wrong or not self.allowed or len(set(self.allowed)) < len(self.allowed):
            raise ValueError(f"{self.name}: allowed are distinct values of type {self.type}")
        if self.default is not None and self.default not in self.allowed:
            raise ValueError(f"{self.name}: the default {self.default!r} is not allowed")
        return self

    @property
    def start(self) -> Parameter:
        """The value that it has where nobody says otherwise."""
        return self.allowed[0] if self.default is None else self.default

    @property
    def values(self) -> tuple[Parameter, ...]:
        """Those of the allowed values that are a multiple, where that is asked."""
        return tuple(value for value in self.allowed if self._multiple(value))

    def fault(self, value: Parameter) -> str:
        """What is wrong with a value; empty when nothing is."""
        if type(value) is not TYPES[self.type]:
            return f"{self.name} must be of type {self.type}, not {type(value).__name__}"
        if value not in self.allowed:
            listed = ", ".join(map(str, self.allowed))
            return f"{self.name} = {value} is not allowed; allowed are {listed}"
        if not self._multiple(value):
            return f"{self.name} = {value} is no multiple of {self.multiple_of}"
        return ""

    def meant(self, value: object) -> Parameter:
        """The value of this knob that is written so, as `"3"` or 3.0 is 3; else `value` as it is."""
        text = str(value).strip().lower()
        same = (one for one in self.values if one == value or str(one).lower() == text)
        return next(same, cast(Parameter, value))

    def _multiple(self, value: Parameter) -> bool:
        step = self.multiple_of
        return step is None or (isinstance(value, (int, float)) and value % step == 0)


class Space(Row):
    """What can be set in a kernel. Whether a configuration has a kernel that works is found out by
    making it: `faults` knows of single values alone. `foretold` are points with the milliseconds that
    closed forms give them, the fastest first, where there are such forms; `standard` are the points that
    are tried first for a kernel of its kind, the best expected first."""

    kernel: str
    shape: dict[str, int] = Field(default_factory=dict)
    knobs: tuple[KnobSpec, ...]
    foretold: tuple[tuple[Configuration, float], ...] = ()
    standard: tuple[Configuration, ...] = ()

    @property
    def default(self) -> Configuration:
        """The configuration where nobody says otherwise."""
        return {knob.name: knob.start for knob in self.knobs}

    def changes(self, configuration: Mapping[str, Parameter]) -> Configuration:
        """What a configuration has otherwise than by default."""
        usual = self.default
        return {name: value for name, value in configuration.items() if usual.get(name) != value}

    @property
    def size(self) -> int:
        """How many points there are."""
        return prod(len(knob.values) for knob in self.knobs)

    def faults(self, configuration: Mapping[str, Parameter]) -> tuple[str, ...]:
        """Everything that is wrong with a configuration; empty exactly for the points."""
        names = [knob.name for knob in self.knobs]
        missing = [f"{name} is missing" for name in names if name not in configuration]
        extra = [f"there is no knob {name}" for name in configuration if name not in names]
        found = [knob.fault(configuration[knob.name]) for knob in self.knobs
                 if knob.name in configuration]  # fmt: skip
        return (*missing, *extra, *filter(None, found))

    def points(self) -> Iterator[Configuration]:
        """Every configuration, the last knob changing fastest."""
        for values in product(*(knob.values for knob in self.knobs)):
            yield {knob.name: value for knob, value in zip(self.knobs, values, strict=True)}

    def drawn(self, chance: random.Random) -> Configuration:
        """A configuration, all of them alike."""
        return {knob.name: chance.choice(knob.values) for knob in self.knobs}

    def neighbours(self, configuration: Mapping[str, Parameter]) -> list[Configuration]:
        """The configurations that differ in one knob, by one step."""
        found: list[Configuration] = []
        for knob in self.knobs:
            values, now = knob.values, configuration[knob.name]
            place = values.index(now)
            near = values[max(0, place - 1) : place + 2]
            found += [{**configuration, knob.name: value} for value in near if value != now]
        return found


def name_of(configuration: Mapping[str, Parameter]) -> str:
    """Equal for equal configurations: sorted JSON."""
    return json.dumps(dict(configuration), sort_keys=True)


def sentence(configuration: Mapping[str, Parameter]) -> str:
    """A configuration in words."""
    settings = ", ".join(f"{name} = {value}" for name, value in configuration.items())
    return f"Set {settings}." if settings else "Set all knobs to their defaults."


def values_in(reply: str, names: Iterable[str] = ()) -> dict[str, object] | None:
    """The JSON object in a reply, one with some of `names` before any other; None where there is none."""
    return object_in(reply, *names) or object_in(reply)
