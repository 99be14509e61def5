"""Inputs of which those elements decide that a kernel leaves out.

Which elements reach none of a kernel's results is told from its addresses (`sim/coverage`). Where the
reference makes no more of them, they may be left out. Otherwise there are inputs, equal to others in
all that the kernel uses, for which the reference gives something else: those are found here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.precision import in_single
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.stress import changeable

Unused = Sequence[np.ndarray | None]

FACTORS = (30.0, -30.0, 1e3, -1e3, 1e6)  # of the largest element: as large, and as small, as shows
SHOWS = 0.1  # of an output's element: what decides changes one by more


def words(unused: Unused) -> str:
    """What is left out, and where it begins."""
    count = sum(int(left.sum()) for left in unused if left is not None)
    number, first = next((n, left) for n, left in enumerate(unused) if left is not None)
    place = tuple(map(int, np.argwhere(first)[0]))
    return (
        f"{count} elements of the inputs reach no result, the first of argument {number} at {place}"
    )


def deciding(reference: Reference, drawn: Sequence[Any], unused: Unused) -> list[Any] | None:
    """`drawn` with other values where the kernel's arguments are `unused` (bools of the shape of each
    array that it is given, None for all used); None where nothing of that matters."""
    with contextlib.suppress(ConfigError):
        places = _places(reference, drawn, unused)
        before = reference.forward(drawn)
        for changed in _changed(drawn, places):
            if _same_otherwise(reference, drawn, changed, unused) and _differ(
                before, reference.forward(changed)
            ):
                return changed
    return None


def _places(reference: Reference, drawn: Sequence[Any], unused: Unused) -> list[np.ndarray]:
    """Of every input the elements, counted flat, that lie where the kernel does not look: numbers in
    place of values go the same way to the kernel."""
    numbers, count, starts = [], 0, []
    for value in drawn:
        starts.append(count)
        if isinstance(value, np.ndarray) and value.ndim:
            numbers.append(np.arange(count, count + value.size).reshape(value.shape))
            count += value.size
        else:
            numbers.append(value)
    given = _arrays(reference.kernel_inputs(numbers))
    found = [
        np.rint(array[left]).astype(np.int64)
        for array, left in zip(given, unused, strict=True)
        if left is not None and array.shape == left.shape
    ]
    flat = np.unique(np.concatenate([np.empty(0, np.int64), *found]))
    return [
        flat[(flat >= start) & (flat < start + np.size(value))] - start
        if isinstance(value, np.ndarray)
        else np.empty(0, np.int64)
        for start, value in zip(starts, drawn, strict=True)
    ]


def _arrays(values: Sequence[Any]) -> list[np.ndarray]:
    return [value for value in values if isinstance(value, np.ndarray) and value.ndim]


def _changed(drawn: Sequence[Any], places: Sequence[np.ndarray]) -> Iterator[list[Any]]:
    able = [len(at) > 0 and changeable(in_single(v)) for v, at in zip(drawn, places, strict=True)]
    if not any(able):
        return
    for factor in FACTORS:
        changed = list(drawn)
        for number, (value, at) in enumerate(zip(drawn, places, strict=True)):
            if able[number]:
                copy = np.array(value)
                largest = float(np.abs(in_single(value)).max()) or 1.0
                copy.reshape(-1)[at] = factor * largest
                changed[number] = copy
        yield changed


def _same_otherwise(
    reference: Reference, drawn: Sequence[Any], changed: Sequence[Any], unused: Unused
) -> bool:
    """True where the kernel is given the same but for what it does not use."""
    pairs = zip(
        _arrays(reference.kernel_inputs(drawn)),
        _arrays(reference.kernel_inputs(changed)),
        unused,
        strict=True,
    )
    return all(
        np.array_equal(one, other) if left is None else np.array_equal(one[~left], other[~left])
        for one, other, left in pairs
    )


def _differ(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> bool:
    for one, other in zip(before, after, strict=True):
        with np.errstate(all="ignore"):
            apart = np.abs(one.astype(np.float64) - other)
            larger = np.maximum(np.abs(one.astype(np.float64)), np.abs(other))
            if (apart > SHOWS * larger).any():
                return True
    return False
