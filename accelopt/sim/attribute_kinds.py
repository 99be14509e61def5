"""What an attribute of an instruction may be: the kinds that an entry of `isa/` gives to names.

A kind accepts Python values of one sort, each alike in every process: what the tracer emits, what a
Program's bytes hold and what the rooms behind read are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from accelopt.sim import dtypes
from accelopt.sim.affine import Affine
from accelopt.sim.mask import Mask
from accelopt.sim.operators import BINARY, COMBINATIONS, COMPARISONS, REDUCTIONS, UNARY

MAX_INTEGER = 1 << 48
"""No address, size or constant of an index is larger, so sums of their products fit 64 bits twice."""
MAX_TEXT = 4096
SHUFFLED = 32
KEPT = 255  # in a shuffle mask: the partition keeps what it has


class Kind(NamedTuple):
    """The values that an attribute takes; `name` says in words what they are."""

    name: str
    accepts: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A number that arithmetic takes; infinite and undefined ones are numbers, too."""
    if isinstance(value, int):
        return abs(value) <= MAX_INTEGER
    return isinstance(value, float)


def is_line(value: Any) -> bool:
    """A line of printable text of bounded length."""
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()


def one_line(text: str) -> str:
    """The text as a line that a Program may hold: what is not printable becomes a space."""
    if is_line(text):
        return text
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])


def _is_integer(value: Any) -> bool:
    return type(value) is int and abs(value) <= MAX_INTEGER


def _is_count(value: Any) -> bool:
    return _is_integer(value) and value >= 0


def _are_integers(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_integer, value))


def _are_axes(value: Any) -> bool:
    return _are_integers(value) and len(set(value)) == len(value) and min(value, default=0) >= 0


def _is_shuffle(value: Any) -> bool:
    fits = _are_integers(value) and len(value) == SHUFFLED
    return fits and all(0 <= item < SHUFFLED or item == KEPT for item in value)


def _one_of(what: str, names: Iterable[str]) -> Kind:
    known = frozenset(names)
    return Kind(what, lambda value: isinstance(value, str) and value in known)


TRUTH = Kind("True or False", lambda value: value is True or value is False)
NUMBER = Kind("a number", is_number)
INTEGER = Kind("a whole number", _is_integer)
COUNT = Kind("a whole number of 0 or more", _is_count)
WIDTH = Kind("a whole number of 1 or more", lambda value: _is_count(value) and value > 0)
TEXT = Kind("a line of text", is_line)
FORMAT = _one_of("the name of a number format", dtypes.FORMATS)

BINARY_OPERATOR = _one_of("an operator of two arguments", BINARY)
UNARY_OPERATOR = _one_of("a function of one argument", UNARY)
OPERATOR = _one_of("an operator", BINARY | UNARY)
COMPARISON = _one_of("a comparison", COMPARISONS)
REDUCTION = _one_of("a reduction", REDUCTIONS)
COMBINATION = _one_of("a reduction of two", COMBINATIONS)
REGISTER_COMMAND = _one_of("a reduce_cmd", ("idle", "reset", "reduce", "reset_reduce"))

ACCUMULATION = Kind(
    "add, maximum, minimum or None", lambda value: value in (None, "add", "maximum", "minimum")
)
DESCRIPTORS = _one_of("who makes descriptors", ("static", "software", "sync", "scalar"))
OUT_OF_BOUNDS = _one_of("an oob_mode", ("error", "skip"))
PERFORMANCE_MODE = _one_of("a perf_mode", ("double_row_gen3",))
AXES = Kind("axes from the front, each once", _are_axes)
LOOPS = Kind("ids of loop variables", _are_integers)
SHUFFLE = Kind("32 partitions, each 0 to 31, or 255", _is_shuffle)
EXPRESSION = Kind("an affine expression", lambda value: isinstance(value, Affine))
PREDICATE = Kind("affine constraints", lambda value: isinstance(value, Mask))
POSITION = Kind(
    "a whole number or an affine expression",
    lambda value: _is_integer(value) or isinstance(value, Affine),
)
