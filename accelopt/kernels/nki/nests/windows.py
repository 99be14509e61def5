"""Operands of products that are read in windows: `x[k + m]`, summed along `k`, is `x` along one axis, of
which a part begins `k` elements later for each of the taps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.axis_positions import At, Span
from accelopt.kernels.nki.nests.places import View, Where
from accelopt.kernels.nki.nests.text import collected
from accelopt.kernels.nki.nests.value_graphs import Reading, inputs_of
from accelopt.kernels.nki.nests.values import Value, size_of

MOST_HELD = 4
"""Times the elements that are read, that a window may hold."""
Windows = Mapping[Axis, Index]
"""The index that each axis along a window stands for: own axes of an operand, and taps."""


def along_windows(
    reading: Reading, value: Value, own: Sequence[Axis], taps: Iterable[Axis]
) -> tuple[Value, Windows]:
    """An operand along its windows, where those hold at most `MOST_HELD` times as many elements as all taps of
    all of its own axes; as it is, without windows, where it is read otherwise. What lies apart along its own
    last axis is a window too: runs of elements are brought faster than single ones."""
    moved = {axis for axis in taps if axis in value.axes}
    found: dict[Index, Axis] = {}
    for read in inputs_of(value):
        for index in read.indices:
            window = _window(index, moved, {*own}, index is read.indices[-1])
            if window and window not in found and all(factor > 0 for _, factor in window.terms):
                name = "_".join((*sorted(axis.name for axis in window.axes), "window"))
                extent = 1 + sum(s * (a.extent - 1) for a, s in _terms(window))
                found[window] = Axis(name, extent)
    axes = [axis for window in found for axis in window.axes]
    held = size_of(found.values())
    if not found or len(set(axes)) < len(axes) or held > MOST_HELD * size_of(axes):
        return value, {}
    made = _exchanged(reading, value, found)
    if made.axes & set(axes):
        return value, {}
    return made, {axis: window for window, axis in found.items()}


def _window(index: Index, taps: set[Axis], own: set[Axis], last: bool) -> Index | None:
    """The part of an index along taps and own axes, where there are both, or apart along own ones."""
    terms = tuple((axis, factor) for axis, factor in _terms(index) if axis in taps | own)
    inside = {axis for axis, _ in terms}
    apart = last and terms and all(step > 1 for axis, step in terms if axis in own)
    if not index.is_affine or not inside & own or not (inside & taps or apart):
        return None
    return Index(0, terms)


def _terms(index: Index) -> list[tuple[Axis, int]]:
    return [(axis, factor) for axis, factor in index.terms if isinstance(axis, Axis)]


def _exchanged(reading: Reading, value: Value, found: Mapping[Index, Axis]) -> Value:
    """A value with an axis in the place of each window."""
    if value.kind == "input":
        indices = tuple(
            next(
                (index - w + index_of(a) for w, a in found.items() if {*w.terms} <= {*index.terms}),
                index,
            )
            for index in value.indices
        )
        made = reading.builder.input(value.array, indices, value.dtype)
        reading.uses.setdefault(made, reading.uses.get(value, 1))
        return made
    return reading.rebuilt(
        value, tuple(_exchanged(reading, part, found) for part in value.arguments)
    )


def own_windows(windows: Windows, own: Sequence[Axis]) -> tuple[Axis, ...]:
    """The own axes of an operand along its windows."""
    instead = {axis: along for along, window in windows.items() for axis in window.axes}
    return tuple(dict.fromkeys(instead.get(axis, axis) for axis in own))


def spanned(windows: Windows, where: Where, taps: Iterable[Axis]) -> Where:
    """A place with the spans of windows that hold all taps."""
    whole = where.within({axis: Span(At(), axis.extent) for axis in taps})
    spans = {}
    for along, window in windows.items():
        start, width = At(), 1
        for axis, factor in _terms(window):
            start = start + whole.span(axis).start * factor
            width += factor * (whole.span(axis).width - 1)
        spans[along] = Span(collected(start), width)
    return where.within(spans)


def seen_by(windows: Windows, view: View, where: Where, taps: Iterable[Axis]) -> View:
    """What is at some taps of a view along windows, by the axes of the product."""
    strides = {axis: s for axis, s in view.strides.items() if axis not in windows}
    offset, moved = view.offset, set(taps)
    for along, window in windows.items():
        for axis, factor in _terms(window):
            step = view.strides.get(along, 0) * factor
            if axis in moved:
                offset = offset + where.span(axis).start * step
            else:
                strides[axis] = step
    return View(view.tile, collected(offset), strides)
