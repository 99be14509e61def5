"""What it means for an output to agree with the reference's, where that is not equal values in equal
places. A reference says so by output number, in `compare`:

    compare = {
        0: {"rel_tol": 1e-3},  # a bound of its own
        1: {"indices_into": 0},  # of elements of input 0: of equal ones any will do
        2: {"order": "any"},  # along the last axis
    }

Outputs of the kernel and of the reference are brought into one form, and those forms are compared:
an index becomes the element that it names, what has no order is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError

from accelopt.errors import ConfigError
from accelopt.evaluation import Row, faults
from accelopt.kernels.nki.referee.precision import in_single, is_float

INDEX_FORMATS = ("uint32", "int32", "uint16", "int16", "uint8", "int8")


class Disagreement(Exception):
    """An output that cannot be brought into the form that is compared, and the place."""


class Rule(Row):
    """How one output agrees. `indices_into` is the number of an input, or a function of the inputs
    that gives the array which is indexed, along `axis`; `distinct` says whether the indices in a line
    must differ."""

    rel_tol: float | None = Field(default=None, gt=0, lt=1)
    order: Literal["given", "any"] = "given"
    indices_into: int | Callable[..., Any] | None = None
    axis: int = -1
    distinct: bool = True


AS_GIVEN = Rule()


class Agreement(NamedTuple):
    """How a problem's outputs agree: rules by the output's number."""

    rules: Mapping[int, Rule] = {}

    def rule(self, number: int) -> Rule:
        """The rule of one output; by default, equal values in equal places."""
        return self.rules.get(number, AS_GIVEN)

    def compared(
        self, inputs: Sequence[Any], outputs: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, ...]:
        """The outputs in the form that is compared, of their own shapes. Raises Disagreement for
        indices that name no element, or the same one twice."""
        if not self.rules:
            return tuple(outputs)
        if beyond := [number for number in self.rules if number >= len(outputs)]:
            raise Disagreement(f"compare speaks of output {beyond[0]}; there are {len(outputs)}")
        found = [
            _elements(number, output, self.rule(number), inputs)
            for number, output in enumerate(outputs)
        ]
        for group in self._unordered(outputs):
            order = _sorted([(self.rule(n), found[n]) for n in group], group[0])
            for number in group:
                found[number] = np.take_along_axis(found[number], order, axis=-1)
        return tuple(found)

    def _unordered(self, outputs: Sequence[np.ndarray]) -> Iterator[list[int]]:
        """Outputs whose order does not matter; those of one shape belong together, as the values and
        the indices of a top-k do."""
        free = [number for number in sorted(self.rules) if self.rule(number).order == "any"]
        for shape in dict.fromkeys(outputs[number].shape for number in free):
            yield [number for number in free if outputs[number].shape == shape]


def agreement_of(said: object) -> Agreement:
    """What a reference's `compare` says. Raises ConfigError."""
    if not isinstance(said, Mapping):
        raise ConfigError(f"compare is {type(said).__name__}, not a dict of output numbers")
    rules: dict[int, Rule] = {}
    for number, rule in said.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ConfigError(f"compare has the key {number!r}, which is no output's number")
        try:
            rules[number] = Rule.model_validate(rule)
        except ValidationError as error:
            raise ConfigError(f"compare[{number}]: {faults(error)}") from error
    return Agreement(rules)


def _elements(number: int, output: np.ndarray, rule: Rule, inputs: Sequence[Any]) -> np.ndarray:
    """`output`, or the elements that it names."""
    if rule.indices_into is None:
        return output
    source, name = _source(rule.indices_into, inputs)
    where = f"output {number}"
    try:
        axis = range(source.ndim)[rule.axis]
    except IndexError:
        raise Disagreement(f"{where}: {name} has no axis {rule.axis}") from None
    many = output.ndim == source.ndim
    wanted = [size for at, size in enumerate(source.shape) if at != axis]
    own = [size for at, size in enumerate(output.shape) if not many or at != axis]
    if own != wanted:
        raise Disagreement(
            f"{where}: indices of shape {output.shape} cannot name elements of {name}, which is "
            f"{source.shape}, along axis {axis}"
        )
    indices = output if many else np.expand_dims(output, axis)
    count = source.shape[axis]
    with np.errstate(all="ignore"):
        outside = ~((indices >= 0) & (indices < count) & (indices == np.floor(indices)))
    if outside.any():
        place = _first(outside)
        raise Disagreement(
            f"{where}: at {place} it is {indices[place]:g}; the indices of {name} go from 0 to "
            f"{count - 1}"
        )
    indices = indices.astype(np.int64)
    if rule.distinct:
        _refuse_repeats(indices, axis, where)
    found: np.ndarray = np.take_along_axis(source, indices, axis)
    return found if many else np.squeeze(found, axis)


def _source(into: int | Callable[..., Any], inputs: Sequence[Any]) -> tuple[np.ndarray, str]:
    if callable(into):
        given = [np.array(v, subok=True) if isinstance(v, np.ndarray) else v for v in inputs]
        return np.asarray(
            into(*map(in_single, given))
        ), f"what {getattr(into, '__name__', 'the function')} gives"
    if not 0 <= into < len(inputs) or not isinstance(inputs[into], np.ndarray):
        raise Disagreement(f"compare names input {into}, which is no array")
    return np.asarray(in_single(inputs[into])), f"input {into}"


def _refuse_repeats(indices: np.ndarray, axis: int, where: str) -> None:
    """The largest eight are eight: without this, naming the largest one eight times would do where
    all are equal."""
    ordered = np.sort(indices, axis=axis)
    repeated = np.diff(ordered, axis=axis) == 0
    if repeated.any():
        place = _first(repeated)
        line = tuple(at for number, at in enumerate(place) if number != axis)
        raise Disagreement(
            f"{where}: index {ordered[place]} is there twice, at {line} along axis {axis}; where that "
            'is no matter, compare says "distinct": False'
        )


def _first(where: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(where)), where.shape))


def _sorted(group: Sequence[tuple[Rule, np.ndarray]], number: int) -> np.ndarray:
    """The order of a group's elements along the last axis: by what is exact, then by numbers, which
    may be rounded, then by the elements that indices name."""
    if not group[0][1].ndim:
        raise Disagreement(f"output {number} has one element, which has no order")

    def rank(entry: tuple[Rule, np.ndarray]) -> int:
        rule, output = entry
        return 2 if rule.indices_into is not None else int(is_float(output.dtype))

    keys = [output for _, output in sorted(group, key=rank)]
    order: np.ndarray = np.lexsort(keys[::-1], axis=-1)
    return order


def tie_note(
    inputs: Sequence[Any], number: int, place: tuple[int, ...], got: int, wanted: int
) -> str:
    """What the inputs hold where an output that may be an index has `got` and the reference `wanted`,
    in words; empty where no input can be meant."""
    for source, value in enumerate(inputs):
        if not (isinstance(value, np.ndarray) and is_float(value.dtype)):
            continue
        rows = place[:-1] if value.ndim == len(place) else place
        if value.ndim - 1 != len(rows) or any(
            at >= size for at, size in zip(rows, value.shape[:-1], strict=True)
        ):
            continue
        if not (0 <= got < value.shape[-1] and 0 <= wanted < value.shape[-1]):
            continue
        here, there = (*rows, got), (*rows, wanted)
        mine, theirs = float(value[here]), float(value[there])
        if mine != theirs:
            return f"; input {source} is {mine:.9g} there, and {theirs:.9g} where it is expected"
        return (
            f"; a tie: input {source} is {mine:.9g} at both {here} and {there}. Where either is right, "
            f'the reference says compare = {{{number}: {{"indices_into": {source}}}}}'
        )
    return ""
