"""Sums and products of all elements up to a place, however they are put together, as recurrences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accelopt.algorithm import ir
from accelopt.algorithm.index import Index, index_of

LEAST = 8
"""Elements of an axis along which there is a recurrence."""
Places = npt.NDArray[np.int64]


class _Run(NamedTuple):
    """What is combined of elements of `base` along an axis: by place those from `low` to `high`, each once."""

    base: str
    function: str
    axis: int
    low: Places
    high: Places


def prefixes_found(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with recurrences in the place of Maps that combine all elements up to each place.

    before: b[n] = a[n - 1] * a[n] if n >= 1 else a[n]
            c[n] = b[n - 2] * b[n] if n >= 2 else b[n]
    after:  c[n] = c[n - 1] * a[n], over at most four elements
    """
    runs: dict[str, _Run] = {}
    definitions = list(algorithm.definitions)
    for at, definition in enumerate(definitions):
        if not isinstance(definition, ir.Map) or not isinstance(definition.expression, ir.Where):
            continue
        for n, axis in enumerate(definition.axes):
            run = _run(definition, n, runs) if axis.extent >= LEAST else None
            if run is None:
                continue
            runs[definition.out] = run
            if not run.low.any():
                element = ir.Read(run.base, tuple(map(index_of, definition.axes)))
                one, product = ir.Constant(1.0), run.function == "multiply"
                factor, term = (element, ir.Constant(0.0)) if product else (one, element)
                definitions[at] = ir.Scan(
                    definition.out, definition.axes, axis, "multiply", factor, "add", term,
                    ir.Constant(float(product)),
                )  # fmt: skip
            break
    if definitions == [*algorithm.definitions]:
        return algorithm
    read = {array.name for array in algorithm.outputs}
    kept: list[ir.Definition] = []
    for definition in reversed(definitions):
        if definition.out in read:
            kept.insert(0, definition)
            read |= ir.arrays_read(definition)
    return replace(algorithm, definitions=tuple(kept))


def _run(definition: ir.Map, axis: int, runs: Mapping[str, _Run]) -> _Run | None:
    """What a definition combines along one of its axes, up to each place; None where it is no such run."""
    functions = {p.function for p in ir.walk(definition.expression) if isinstance(p, ir.Apply)}
    if len(functions) != 1 or not functions <= {"add", "multiply"}:
        return None
    (function,) = functions
    bases: set[str] = set()
    places = np.arange(definition.axes[axis].extent)

    def valued(index: Index) -> Places | None:
        own = definition.axes[axis]
        return index.constant + index.coefficient(own) * places if index.axes <= {own} else None

    def terms(part: ir.Expression) -> list[ir.Expression]:
        inner = part.arguments if isinstance(part, ir.Apply) else ()
        return [one for argument in inner for one in terms(argument)] or [part]

    def found(part: ir.Expression) -> tuple[Places, Places] | None:
        """The first and the last place that a part combines; where it is no run, last places before the first."""
        if isinstance(part, ir.Read):
            own = [*map(index_of, definition.axes)]
            own[axis : axis + 1] = part.indices[axis : axis + 1]
            at = valued(own[axis]) if tuple(own) == part.indices else None
            if at is None:
                return None
            known = runs.get(part.array)
            known = known if known and (known.function, known.axis) == (function, axis) else None
            bases.add(known.base if known else part.array)
            inside = (at >= 0) & (at < len(places))
            at = np.where(inside, at, 0)
            low, high = (known.low[at], known.high[at]) if known else (at, at)
            return np.where(inside, low, 0), np.where(inside, high, -2)
        if isinstance(part, ir.Where):
            kept = [valued(condition) for condition in part.conditions]
            both = found(part.on_true), found(part.on_false)
            if any(k is None for k in kept) or both[0] is None or both[1] is None:
                return None
            true = np.all([k >= 0 for k in kept if k is not None], axis=0)
            return np.where(true, both[0][0], both[1][0]), np.where(true, both[0][1], both[1][1])
        if isinstance(part, ir.Apply):
            taken = [found(argument) for argument in terms(part)]
            if any(one is None for one in taken):
                return None
            low, high = (np.array([one[n] for one in taken if one]) for n in (0, 1))
            order = np.argsort(low, axis=0)
            low, high = (np.take_along_axis(one, order, axis=0) for one in (low, high))
            apart = (high < low).any(axis=0) | (high[:-1] + 1 != low[1:]).any(axis=0)
            return low[0], np.where(apart, -2, high[-1])
        return None

    ends = found(definition.expression)
    if ends is None or len(bases) != 1 or (ends[1] != places).any():
        return None
    return _Run(bases.pop(), function, axis, *ends)
