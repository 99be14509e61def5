"""What a stage of a nest computes, as a graph of values, each there once, whoever uses it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from accelopt.algorithm.index import Axis, Index


@dataclass(frozen=True, eq=False)
class Value:
    """A scalar that depends on axes, however it is laid out. `kind` is `input` (an element of
    `array`), `constant`, `apply` (`function` of the arguments), `reduce` (`function` over `reduced`),
    `where` (an argument where the `indices` are at least zero, else a number), `either` (an argument where they
    are, else the other, each brought or computed where it is taken alone), `choose` (by its first argument), `position` (an index as a number) or `gather` (an element of `array` in whose `indices` the
    axes `reduced` are the arguments). `dtype` is the format of its tiles."""

    number: int
    kind: str
    axes: frozenset[Axis]
    arguments: tuple[Value, ...] = ()
    function: str = ""
    constant: float = 0.0
    array: str = ""
    indices: tuple[Index, ...] = ()
    reduced: tuple[Axis, ...] = ()
    dtype: str = "float32"


def size_of(axes: Iterable[Axis]) -> int:
    """How many elements some axes span."""
    return math.prod(axis.extent for axis in axes)
