"""Programs for tiles of segments that there are, in the place of one for each tile that there could be.

Segments that add up to the rows of a result have at most as many tiles as the rows and one more each. A program
counts the tiles of all segments, which a vector holds, and finds its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.algorithm.ir import Expression, Read, axes_of, substituted
from accelopt.kernels.triton.emission.groups import Member
from accelopt.kernels.triton.emission.runtime_bounds import terms_of

MOST_SEGMENTS = 1024
"""Whose lengths a program looks at."""


@dataclass(frozen=True)
class Packing:
    """`numbers` is the axis of a program's segment, with `beside` elements of another axis in each; `places` that
    of the rows in it, each of `run` elements; `start` and `end` where a segment's rows lie among `rows`."""

    numbers: Axis
    beside: int
    places: Axis
    run: int
    start: Expression
    end: Expression
    rows: int

    @property
    def segments(self) -> int:
        """How many there are."""
        return self.numbers.extent // self.beside

    def tiles(self, size: int) -> int:
        """The most tiles of `size` places that all segments have."""
        return self.rows * self.run // size + self.segments


def packing_of(members: Iterable[Member]) -> Packing | None:
    """How programs are packed that store these members; None where they have tiles of rows as they lie."""
    scatters = [member.scatter for member in members]
    if not scatters or scatters[0] is None:
        return None
    first = scatters[0]
    if any(s is None or (s.number, s.offset) != (first.number, first.offset) for s in scatters):
        return None
    places, numbers = _run_of(first.offset), axes_of(first.number)
    if places is None or len(numbers) != 1:
        return None
    (number,) = numbers
    reads = [term for term, _ in terms_of(first.number)[0]]
    indices = [
        read.indices[0] for read in reads if isinstance(read, Read) and len(read.indices) == 1
    ]
    runs = {_run_of(index - index.constant) for index in indices if index.axes}
    if len(indices) != len(reads) or len(runs) != 1 or None in runs:
        return None
    (own,) = runs
    assert own is not None
    beside = own[1]
    following = substituted(first.number, {number: index_of(number) + beside}, {})
    packing = Packing(number, beside, *places, first.number, following, first.axis.extent)
    return packing if 1 < packing.segments <= MOST_SEGMENTS else None


def _run_of(index: Index) -> tuple[Axis, int] | None:
    """The axis that an index counts runs of, and how long they are."""
    if index.constant or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    term = index.terms[0][0]
    if isinstance(term, Axis):
        return term, 1
    if isinstance(term, Floor) and len(term.inner.terms) == 1 and not term.inner.constant:
        inner, factor = term.inner.terms[0]
        if isinstance(inner, Axis) and factor == 1:
            return inner, term.divisor
    return None
