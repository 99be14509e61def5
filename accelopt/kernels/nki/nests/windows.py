"""Operands of products that are read in windows: `x[k + m]`, summed along `k`, is `x` along one axis, of
which a part begins `k` elements later for each of the taps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.locations import At, Span
from accelopt.kernels.nki.nests.places import View, Where
from accelopt.kernels.nki.nests.reading import Reading, inputs_of
from accelopt.kernels.nki.nests.text import collected
from accelopt.kernels.nki.nests.values import Value, size_of

Windows = Mapping[Axis, Index]
"""The index that each axis along a window stands for: own axes of an operand, and taps."""


def along_windows(
    reading: Reading, value: Value, own: Sequence[Axis], taps: Iterable[Axis]
) -> tuple[Value, Windows]:
    """An operand along its windows, where those hold no more elements than all taps of all of its own axes;
    as it is, without windows, where it is read otherwise."""
    moved = {axis for axis in taps if axis in value.axes}
    found: dict[Index, Axis] = {}
    for read in inputs_of(value):
        for index in read.indices:
            window = _window(index, moved)
            if window and window not in found and all(factor > 0 for _, factor in window.terms):
                name = "_".join(axis.name for axis in sorted(window.axes, key=lambda a: a.name))
                extent = 1 + sum(s * (a.extent - 1) for a, s in _terms(window))
                found[window] = Axis(name, extent)
    axes = [axis for window in found for axis in window.axes]
    held = size_of(found.values())
    if not found or len(set(axes)) < len(axes) or held > size_of(axes):
        return value, {}
    made = _exchanged(reading, value, found, moved)
    if made.axes & set(axes) or not set(axes) <= moved | set(own):
        return value, {}
    return made, {axis: window for window, axis in found.items()}


def _window(index: Index, taps: set[Axis]) -> Index | None:
    """The part of an index that varies, where taps and other axes do so."""
    if not index.is_affine or not index.axes & taps or index.axes <= taps:
        return None
    return index - index.constant


def _terms(index: Index) -> list[tuple[Axis, int]]:
    return [(axis, factor) for axis, factor in index.terms if isinstance(axis, Axis)]


def _exchanged(
    reading: Reading, value: Value, found: Mapping[Index, Axis], taps: set[Axis]
) -> Value:
    """A value with an axis in the place of each window."""
    if value.kind == "input":
        indices = tuple(
            index_of(found[window]) + index.constant if window in found else index
            for index in value.indices
            for window in [_window(index, taps) or index]
        )
        made = reading.builder.input(value.array, indices, value.dtype)
        reading.uses.setdefault(made, reading.uses.get(value, 1))
        return made
    return reading.rebuilt(
        value, tuple(_exchanged(reading, part, found, taps) for part in value.arguments)
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
