"""What nests are written with: places in memory and instructions, as text of either dialect.

A tile on the chip is one run of elements a partition; a part of it is an offset and strides over free
axes, as the hardware addresses it. `neuronxcc.nki` says that with slices or nl.mgrid, `nki` with slices
or `.ap`; there an instruction also names its destination first, where the other returns a tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At, FreeNames
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.statements import NestNode, line
from accelopt.sim.dialects.dialect import Dialect

MOST_FREE = 4
"""Free axes that one access has."""


class Tile(NamedTuple):
    """A tile on the chip: `width` elements on each of its partitions. What lies on one partition alone
    can be read as if it lay on all of `spread` (neuronxcc): its compiler has the Tensor engine do that."""

    name: str
    partitions: int
    width: int
    dtype: str = "float32"
    psum: bool = False
    spread: int = 0


def collected(at: At) -> At:
    """The place with every variable once."""
    if not at.terms or (len(at.terms) == 1 and at.terms[0][1]):
        return at
    terms: dict[str, int] = {}
    for name, factor in at.terms:
        terms[name] = terms.get(name, 0) + factor
    return At(at.constant, tuple((n, f) for n, f in terms.items() if f))


def merged(
    counts: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Axes without those of length 1, and with neighbours that follow one another in all accesses as
    one. `strides` has a row for each access."""
    kept = [n for n, count in enumerate(counts) if count != 1]
    sizes: list[int] = []
    rows: list[list[int]] = [[] for _ in strides]
    for n in kept:
        follows = sizes and all(
            row[-1] == own[n] * counts[n] for row, own in zip(rows, strides, strict=True)
        )
        if follows:
            sizes[-1] *= counts[n]
            for row, own in zip(rows, strides, strict=True):
                row[-1] = own[n]
        else:
            sizes.append(counts[n])
            for row, own in zip(rows, strides, strict=True):
                row.append(own[n])
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, rows


class Writer:
    """Text in one dialect. Declarations for all of the kernel are collected in `first`; `reach` has
    the number of values of each loop variable."""

    def __init__(
        self, dialect: Dialect, names: FreeNames, given: Mapping[str, tuple[int, ...]] = {}
    ) -> None:
        self.dialect = dialect
        self.names = names
        self.first: list[NestNode] = []
        self.reach: dict[str, int] = {}
        self.explicit = False
        """Whether all of a tile is said as a part of one is: bodies that repeat each other are alike."""
        self._grids: dict[tuple[int, ...], tuple[str, ...]] = {}
        self.given = given
        """The shapes of tensors in HBM that a nest has others for."""
        self._views: dict[tuple[str, tuple[int, ...]], str] = {}
        self._lanes: dict[tuple[int, int], str] = {}

    @property
    def nki(self) -> bool:
        """Whether the dialect is the one of the `nki` package."""
        return self.dialect == "nki"

    # Tensors.

    def on_chip(self, tile: Tile, sums: bool = False) -> str:
        """The declaration of a tile; `sums` in PSUM are added to from zero."""
        buffer = "nl.psum" if tile.psum else "nl.sbuf"
        rows = str(tile.partitions) if self.nki else f"nl.par_dim({tile.partitions})"
        make = "nl.zeros" if sums and not self.nki else "nl.ndarray"
        shape = f"({rows}, {tile.width})"
        return f"{tile.name} = {make}({shape}, dtype=nl.{tile.dtype}, buffer={buffer})"

    def grid(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Names of the positions in a tile, one for each of its axes (neuronxcc)."""
        if shape not in self._grids:
            words = ("i_p", "i_x", "i_y", "i_z", "i_w")
            names = tuple(self.names.new(word) for word in words[: len(shape)])
            self._grids[shape] = names
            ranges = ", ".join(f"0:{size}" for size in shape)
            self.first.append(line(f"{', '.join(names)} = nl.mgrid[{ranges}]"))
        return self._grids[shape]

    def inside(self, tile: Tile, rows: int, offset: At, counts: Sequence[int],
               strides: Sequence[int], low: At | int = 0, repeat: bool = False) -> str:  # fmt: skip
        """A part of a tile: `rows` of its partitions from `low`, `counts` elements at `strides`; one that
        stands for all is said to `repeat`, where it is not read beside others."""
        offset = collected(offset)
        low = At(low) if isinstance(low, int) else collected(low)
        if tile.spread:
            if len(counts) > 1 or (strides[0] != 1 and counts[0] != 1):
                raise NotNested(
                    f"the elements of {tile.name} that are spread do not lie in one run"
                )
            row = f"{tile.name}[0:1, {self._range(offset, counts[0])}]"
            return f"{row}.broadcast_to(({rows}, {counts[0]}))"
        whole = (rows, *counts) == (tile.partitions, tile.width) and offset == low == At()
        if whole and (not self.explicit or tile.width == 1):
            return f"{tile.name}[...]"
        if len(counts) == 1 and (strides[0] == 1 or counts[0] == 1):
            return f"{tile.name}[{self._range(low, rows)}, {self._range(offset, counts[0])}]"
        if self.nki:
            start = collected(At() + offset + low * tile.width)
            pattern = [[tile.width, rows], *([s, n] for n, s in zip(counts, strides, strict=True))]
            return f"{tile.name}.ap({pattern}, offset={self.said(start)})"
        grid = self.grid((rows, *counts))
        first = _sum(low, [(grid[0], 1)])
        place = _sum(offset, zip(grid[1:], strides, strict=True), keep=repeat)
        return f"{tile.name}[{first}, {place}]"

    def _range(self, start: At, count: int) -> str:
        if not start.terms:
            return f"{start.constant}:{start.constant + count}"
        return f"nl.ds({self.said(start)}, {count})"

    def said(self, at: At) -> str:
        """A place as text; with its number even where that is 0, if all is said."""
        return f"{at} + 0" if self.explicit and at.terms and not at.constant else str(at)

    def outside(
        self, name: str, shape: tuple[int, ...], offset: At, counts: Sequence[int],
        strides: Sequence[int],
    ) -> str:  # fmt: skip
        """A part of a tensor in HBM, which counts its elements row by row: slices of it, or of a view of its `shape`
        in the nest, where there are some, else the addresses."""
        offset = collected(offset)
        given = self.given.get(name, shape)
        for own in dict.fromkeys((given, shape)):
            sliced = self._slices(own, offset, counts, strides) if own else None
            if sliced is not None:
                return f"{name if own == given else self.view(name, own)}[{', '.join(sliced)}]"
        if self.nki:
            pattern = [[s, n] for n, s in zip(counts, strides, strict=True)]
            return f"{name}.ap({pattern}, offset={self.said(offset)})"
        whole, grid = (math.prod(shape),), self.grid(tuple(counts))
        flat = name if whole == given else self.view(name, whole, "flat")
        return f"{flat}[{_sum(offset, zip(grid, strides, strict=True), keep=True)}]"

    def view(self, name: str, shape: tuple[int, ...], called: str = "view") -> str:
        """The name of a tensor in HBM in another shape."""
        if (name, shape) not in self._views:
            self._views[name, shape] = made = self.names.new(f"{name}_{called}")
            self.first.append(line(f"{made} = {name}.reshape({shape})"))
        return self._views[name, shape]

    def rows(
        self, name: str, shape: tuple[int, ...], size: int, numbers: Tile, at: At, partitions: int,
        offset: At, counts: Sequence[int], strides: Sequence[int],
    ) -> str:  # fmt: skip
        """A part of a row of `size` elements of a tensor in HBM for each partition, whose number stands
        at `at` in a tile."""
        offset, at = collected(offset), collected(at)
        count = math.prod(shape) // size
        if (count, size) != self.given.get(name, shape):
            name = f"{name}.reshape(({count}, {size}))"
        if self.nki:
            pattern = [[size, partitions], *([s, n] for n, s in zip(counts, strides, strict=True))]
            column = self.inside(numbers, partitions, at, [1], [1]).replace("...", ":, :")
            return f"{name}.ap({pattern}, offset={offset}, vector_offset={column}, indirect_dim=0)"
        grid = self.grid((partitions, *counts))
        place = _sum(offset, zip(grid[1:], strides, strict=True), keep=True)
        return f"{name}[{numbers.name}[{self.lanes(partitions, len(grid))}, {at}], {place}]"

    def lanes(self, count: int, rank: int) -> str:
        """The name of the numbers of partitions, which stand for the first of some axes (neuronxcc)."""
        if (count, rank) not in self._lanes:
            self._lanes[count, rank] = name = self.names.new("i_row")
            self.first.append(line(f"{name} = nl.arange({count})[:{', None' * (rank - 1)}]"))
        return self._lanes[count, rank]

    def _slices(
        self, shape: tuple[int, ...], offset: At, counts: Sequence[int], strides: Sequence[int]
    ) -> list[str] | None:
        steps = row_major(shape)
        starts = [At() for _ in shape]
        for variable, factor in ((None, offset.constant), *offset.terms):
            for n, step in enumerate(steps):
                whole, factor = divmod(factor, step)
                starts[n] += (
                    At(0, ((variable, whole),))
                    if variable and whole
                    else At(0 if variable else whole)
                )
        taken: dict[int, int] = {}
        for count, stride in zip(counts, strides, strict=True):
            if count == 1:
                continue
            after = max(taken, default=-1)
            at = next((n for n in range(after + 1, len(shape)) if steps[n] == stride), None)
            if at is None:
                return None
            taken[at] = count
        if not taken:
            taken[len(shape) - 1] = 1
        if counts[0] == 1 and len(counts) > 1:  # what is on one partition has an axis for it
            lead = min(taken) - 1
            if lead < 0:
                return None
            taken[lead] = 1
        pieces = []
        for n, start in enumerate(starts):
            count = taken.get(n, 1)
            ends = [f * (self.reach[v] - 1) for v, f in start.terms]
            low = start.constant + sum(min(end, 0) for end in ends)
            high = start.constant + sum(max(end, 0) for end in ends)
            if low < 0 or high + count > shape[n]:
                return None
            if n not in taken:
                pieces.append(self.said(start))
            elif count == shape[n] and not self.explicit:
                pieces.append(":")
            else:
                pieces.append(self._range(start, count))
        return pieces

    # Instructions.

    def call(self, dst: str, name: str, arguments: str, dtype: str = "") -> str:
        """`dst = nisa.name(arguments)`; `dtype` is said where it does not go without saying."""
        if self.nki:
            return f"nisa.{name}(dst={dst}, {arguments})"
        said = f", dtype=nl.{dtype}" if dtype else ""
        return f"{dst} = nisa.{name}({arguments}{said})"

    def filled(
        self, dst: str, shape: tuple[int, ...], value: str, dtype: str, engine: str = ""
    ) -> str:
        """A tile of one number."""
        said = f", engine=nisa.{engine}_engine" if engine else ""
        if self.nki:
            return f"nisa.memset(dst={dst}, value={value}{said})"
        return f"{dst} = nisa.memset({shape}, {value}, dtype=nl.{dtype}{said})"

    def product(self, dst: str, stationary: str, moving: str) -> str:
        """A product that adds to what is in PSUM."""
        if self.nki:
            return f"nisa.nc_matmul(dst={dst}, stationary={stationary}, moving={moving})"
        return f"{dst} += nisa.nc_matmul({stationary}, {moving})"

    def transposed(self, dst: str, data: str) -> str:
        """A transpose on the Tensor engine."""
        return self.call(dst, "nc_transpose", f"data={data}, engine=nisa.tensor_engine")

    def positions(self, dst: str, rows: int, base: At, row: int, counts: Sequence[int],
                  strides: Sequence[int], dtype: str) -> str:  # fmt: skip
        """A tile of `base + row * partition + strides * positions`."""
        base = collected(base)
        if self.nki:
            pattern = [[s, n] for n, s in zip(counts, strides, strict=True)]
            return (
                f"nisa.iota(dst={dst}, pattern={pattern}, offset={base}, channel_multiplier={row})"
            )
        grid = self.grid((rows, *counts))
        total = _sum(base, zip(grid, (row, *strides), strict=True), keep=True)
        return f"{dst} = nisa.iota({total}, dtype=nl.{dtype})"

    def selected(self, dst: str, data: str, otherwise: str, rows: int, base: At, row: int,
                 counts: Sequence[int], strides: Sequence[int], dtype: str) -> str:  # fmt: skip
        """The data where `base + row * partition + strides * positions >= 0`, else a number."""
        base = collected(base)
        if self.nki:
            pattern = [[s, n] for n, s in zip(counts, strides, strict=True)]
            return (
                f"nisa.affine_select(dst={dst}, pattern={pattern}, offset={base}, "
                f"channel_multiplier={row}, on_true_tile={data}, on_false_value={otherwise}, "
                "cmp_op=nl.greater_equal)"
            )
        grid = self.grid((rows, *counts))
        total = _sum(base, zip(grid, (row, *strides), strict=True), keep=True)
        said = f", dtype=nl.{dtype}" if dtype else ""
        return (
            f"{dst} = nisa.affine_select(pred={total} >= 0, on_true_tile={data}, "
            f"on_false_value={otherwise}{said})"
        )


def _sum(base: At, terms: object, keep: bool = False) -> str:
    """`base` plus multiples of names; with `keep` the first name stays even where it counts for
    nothing, for its shape."""
    pairs: list[tuple[str, int]] = list(terms)  # type: ignore[call-overload]
    used = [(name, factor) for name, factor in pairs if factor]
    if keep and not used and pairs:
        used = [(pairs[0][0], 0)]
    terms = sorted((*base.terms, *used), key=lambda term: term[1] < 0)
    pieces = [n if f == 1 else f"-{n}" if f == -1 else f"{n} * {f}" for n, f in terms]
    if base.constant or not pieces:
        pieces.append(str(base.constant))
    return " + ".join(pieces).replace("+ -", "- ")
