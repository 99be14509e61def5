"""What a reference works out row by row: blocks of it that fit into the processor's cache, and a part
that stands for all of a large problem.

Rows lie along an axis of the outputs and of some inputs, and the reference makes of some of them what it
makes of all, there. That is tried, not derived. No kernel knows which rows a part has: they are drawn with
the user's secret, one from each run of neighbours, so that every tile of 128 has some.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.norms import blocks, row_norms, row_width
from accelopt.kernels.nki.referee.precision import NARROW, in_double, in_single, is_float
from accelopt.kernels.nki.referee.reference import Reference

BLOCK_OF_ROWS = 1 << 15  # elements
MADE_AGAIN = 1 << 23  # elements at once, of outputs that are not kept
ROWS_THAT_SHARE = 512  # in a block that shares much with the others
SAME, FEW_TIES = 1e-5, 1e-3  # of the largest: what rounding makes of it; and of elements
LEAST_ROWS = 64  # on which it is tried whether they are separate
# By which the other rows of one input, and of the next, are larger where it is tried whether they count.
LARGER = 2.0**10, 2.0**20
LEAST_DRAWN = 32  # of a part
MOST_NEIGHBOURS = 32  # of which one is in a part: of a tile of 128, four

Place = tuple["slice | np.ndarray", ...]
Cuts = tuple["int | None", ...]  # of each input the axis that is cut, None for one that all share


class Rows(NamedTuple):
    """The `places` of some of the `total` rows along an axis of every output."""

    axis: int
    total: int
    places: np.ndarray

    def __str__(self) -> str:
        return f" ({len(self.places)} of {self.total} rows)"

    def of(self, output: np.ndarray) -> np.ndarray:
        """These rows of a whole output."""
        return np.take(output, self.places, self.axis)

    def shape(self, output: np.ndarray) -> tuple[int, ...]:
        """The shape of these rows of a whole output."""
        return (*output.shape[: self.axis], len(self.places), *output.shape[self.axis + 1 :])

    def whole(self, output: np.ndarray) -> np.ndarray:
        """An array of the shape and format of the output of which `output` has these rows; its values say
        nothing."""
        shape = [*output.shape]
        shape[self.axis] = self.total
        return np.broadcast_to(np.zeros((), output.dtype), shape)

    def apart(
        self,
        outputs: Sequence[np.ndarray],
        wanted: Sequence[np.ndarray],
        errors: Sequence[np.ndarray] = (),
        least: float = 0.0,
    ) -> np.ndarray:
        """How far each row of whole outputs is from the wanted one, as a part of its largest element;
        infinite where only the wanted one is finite, zero where no element is off by more than `least`. Into `errors`,
        of shapes without the last axis, go the norms of the differences along that axis."""
        far = np.zeros(self.total)
        for number, (output, want) in enumerate(zip(outputs, wanted, strict=True)):
            others = tuple(axis for axis in range(want.ndim) if axis != self.axis)
            step = max(1, BLOCK_OF_ROWS * self.total // max(1, want.size))
            for some in blocks(self.total, step):
                place = (slice(None),) * self.axis + (some,)
                found, true = (
                    np.asarray(in_single(one[place]), np.float32) for one in (output, want)
                )
                with np.errstate(all="ignore"):
                    error = found - true
                    most = np.abs(error, out=error).max(axis=others, initial=0)
                    same = not most.any()
                    for norms in errors[number : number + 1]:
                        norms[place] = 0 if same else row_norms(error).reshape(error.shape[:-1])
                    if same:
                        continue
                    largest = (size := np.abs(true)).max(axis=others, initial=0)
                    if not np.isfinite(largest).all():
                        there = np.isfinite(true)
                        most = error.max(axis=others, initial=0, where=there)
                        largest = size.max(axis=others, initial=0, where=there)
                    ratio = np.where(most > least, most / largest, 0)
                far[some] = np.maximum(far[some], np.where(np.isnan(most), np.inf, ratio))
        return far

    def place(self, place: tuple[int, ...]) -> tuple[int, ...]:
        """Where an element of the part stands in the whole."""
        return tuple(
            int(self.places[at]) if axis == self.axis else at for axis, at in enumerate(place)
        )


class Part(NamedTuple):
    """Rows of the outputs, and where they lie in the inputs."""

    rows: Rows
    cuts: Cuts

    def of(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs that give these rows."""
        return _cut(inputs, self.cuts, self.rows.places)

    def has_order(self, inputs: Sequence[Any]) -> bool:
        """True where integers along the rows are sorted, or all different, as those of some rows among
        the others would not stay."""
        own = (np.ravel(v) for v, c in zip(inputs, self.cuts, strict=True) if c is not None)
        return any(
            v.dtype.kind in "iu" and (len(np.unique(v)) == v.size or (np.diff(v) >= 0).all())
            for v in own
        )

    def compares(self, outputs: Sequence[np.ndarray], inputs: Sequence[Any]) -> bool:
        """True of whole outputs of which each block has rows of its own in memory too, and of whose shapes no input
        is, which they may have changed in part."""
        shapes, axis = [*map(np.shape, inputs)], self.rows.axis
        own = (one.shape for one in outputs if one.shape not in shapes)
        return [axis < len(s) - 1 and row_width(s) == s[-1] for s in own] == [True] * len(outputs)

    def compared(
        self, reference: Reference, inputs: Sequence[Any], outputs: Sequence[np.ndarray]
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Of whole outputs the norms of their rows' errors, as `row_norms` gives them, and how far `apart` they
        are from the reference's, which are made again in blocks. Raises ConfigError."""
        axis, total, _ = self.rows
        errors, far = [np.empty(one.shape[:-1]) for one in outputs], np.empty(total)
        for some in blocks(total, max(1, MADE_AGAIN * total // max(one.size for one in outputs))):
            place = (slice(None),) * axis + (some,)
            wanted = reference.forward(_cut(inputs, self.cuts, some))
            found = [one[place] for one in outputs]
            own = self.rows._replace(total=some.stop - some.start)
            far[some] = own.apart(found, wanted, [one[place] for one in errors])
        return tuple(map(np.ravel, errors)), far

    def put(self, inputs: Sequence[Any], part: Sequence[Any]) -> list[Any]:
        """`inputs` with these rows, and all that rows share, as in `part`."""
        found = list(part)
        for number, cut in enumerate(self.cuts):
            if cut is not None:
                found[number] = np.array(inputs[number], dtype=part[number].dtype)
                found[number][(slice(None),) * cut + (self.rows.places,)] = part[number]
        return found


def separate(
    reference: Reference,
    inputs: Sequence[Any],
    expected: Sequence[np.ndarray],
    tried: int = LEAST_ROWS,
) -> Part | None:
    """Some rows along the first axis of the outputs whose rows the reference works out one by one, `tried` of
    twice as many and more; None where there is no such axis."""
    axes = range(min((one.ndim for one in expected), default=0))
    for axis in () if reference.agreement.rules else axes:
        count = expected[0].shape[axis]
        if count < 2 * tried or any(one.shape[axis] != count for one in expected):
            continue
        for cuts in _cuts(inputs, axis, count):
            part = Part(Rows(axis, count, np.arange(tried) * count // tried), cuts)
            wanted = [part.rows.of(one) for one in expected]
            if _agrees(reference, part.of(inputs), wanted) and not _share(
                reference, part, inputs, wanted
            ):
                return part
    return None


def _share(
    reference: Reference, part: Part, inputs: Sequence[Any], wanted: Sequence[np.ndarray]
) -> bool:
    """True where the part's rows are others beside as many that are far larger: what all rows share, as the norm
    of a whole gradient that clips it, need not show where rows are alike."""
    axis, count, places = part.rows
    twice = np.arange(2 * len(places)) * count // (2 * len(places))
    beside = part._replace(rows=part.rows._replace(places=twice)).of(inputs)
    for number, cut in enumerate(part.cuts):
        if cut is not None and is_float(beside[number].dtype):
            others = (slice(None),) * cut + (slice(1, None, 2),)
            beside[number] = np.array(beside[number])
            beside[number][others] *= beside[number].dtype.type(LARGER[number % len(LARGER)])
    try:
        found = reference.forward(beside)
    except ConfigError:
        return False
    own = (np.take(one, range(0, len(twice), 2), axis) for one in found)
    return not all(map(_same, own, wanted))


def still_separate(
    reference: Reference, part: Part, inputs: Sequence[Any], exact: Sequence[np.ndarray]
) -> bool:
    """True where some of the part's rows are on these inputs what they are among the others, as which they
    are `exact`, NaN where nothing is judged. In float64: where rounding is magnified, as before a softmax, other blocks of a product
    round otherwise."""
    places, axis = part.rows.places, part.rows.axis
    some = range(0, len(places), max(2, len(places) // LEAST_ROWS))
    fewer = part._replace(rows=part.rows._replace(places=places[some]))
    alone = [np.take(one, some, axis) for one in exact]
    return _agrees(reference, list(map(in_double, fewer.of(inputs))), alone)


def some_of(part: Part, neighbours: int, generator: np.random.Generator) -> Part | None:
    """One of so many neighbouring rows each, the first and the last among them; None for all rows."""
    count = part.rows.total
    number = max(LEAST_DRAWN, count // min(neighbours, MOST_NEIGHBOURS))
    if 2 * number > count:
        return None
    starts = np.arange(number + 1) * count // number
    places = generator.integers(starts[:-1], starts[1:])
    places[0], places[-1] = 0, count - 1
    return part._replace(rows=part.rows._replace(places=places))


def row_blocks(
    reference: Reference, inputs: list[Any], expected: Sequence[np.ndarray]
) -> Iterator[tuple[tuple[slice, ...], list[Any]]]:
    """`inputs` in blocks of rows, each with its place in the outputs, that stay in the processor's cache
    and are enough for what all share to be little of the work. Else all of them at once."""
    largest = max(map(np.size, [*expected, *inputs]), default=0)
    few = max((max(one.shape, default=1) for one in expected), default=1) <= ROWS_THAT_SHARE
    part = None if few and largest <= BLOCK_OF_ROWS else separate(reference, inputs, expected)
    if part is None:
        yield (), inputs
        return
    axis, count, _ = part.rows
    shares = [(np.size(v), c is None) for v, c in zip(inputs, part.cuts, strict=True)]
    own = max(one.size for one in expected)
    own = max([own, *(size for size, shared in shares if not shared)])
    many = any(shared and size > BLOCK_OF_ROWS for size, shared in shares)
    rows = max(1, count * BLOCK_OF_ROWS // max(1, own), ROWS_THAT_SHARE if many else 1)
    for start in range(0, count, rows):
        some = slice(start, start + rows)
        yield (slice(None),) * axis + (some,), _cut(inputs, part.cuts, some)


def _cuts(inputs: Sequence[Any], axis: int, count: int) -> Iterator[Cuts]:
    """Which inputs may have their part in the `count` rows along an output's axis: all that have so
    many at the same axis, the first of them, the first that has so many at any, all that have."""
    shapes = [np.shape(value) for value in inputs]
    same = [axis if shape[axis : axis + 1] == (count,) else None for shape in shapes]
    any_axis = [shape.index(count) if count in shape else None for shape in shapes]
    found = [tuple(same)]
    for places in (same, any_axis):
        first = next((number for number, place in enumerate(places) if place is not None), -1)
        found.append(tuple(p if n == first else None for n, p in enumerate(places)))
    found.append(tuple(any_axis))
    yield from (cuts for cuts in dict.fromkeys(found) if any(cut is not None for cut in cuts))


def _cut(inputs: Sequence[Any], cuts: Cuts, some: slice | np.ndarray) -> list[Any]:
    return [
        value if cut is None else value[(slice(None),) * cut + (some,)]
        for value, cut in zip(inputs, cuts, strict=True)
    ]


def _agrees(reference: Reference, inputs: Sequence[Any], wanted: Sequence[np.ndarray]) -> bool:
    try:
        found = reference.forward(inputs)
    except ConfigError:
        return False
    return len(found) == len(wanted) and all(map(_same, found, wanted))


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """True for what differs by a rounding at most, where the other is a number."""
    if one.shape != other.shape or other.dtype.kind in "iub":
        return np.array_equal(one, other)
    step = 2 * NARROW[one.dtype.name].unit if one.dtype.name in NARROW else 0
    with np.errstate(all="ignore"):
        far = np.abs(one.astype(other.dtype, copy=False) - other)
        near = far <= SAME * np.abs(other).max(initial=0, where=np.isfinite(other))
        near |= (one == other) | np.isnan(other)
        ties = ~near & (far <= step * np.abs(other))  # which go either way in formats of few bits
        return bool((near | ties).all()) and np.count_nonzero(ties) <= FEW_TIES * ties.size
