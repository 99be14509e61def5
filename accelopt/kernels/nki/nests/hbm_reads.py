"""What a nest reads from HBM and brings there, and where its tiles hold what is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Array, Definition, Map
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At, Span
from accelopt.kernels.nki.nests.gathering import scatter
from accelopt.kernels.nki.nests.hbm_margins import Margins
from accelopt.kernels.nki.nests.nest import NotNested, evenly
from accelopt.kernels.nki.nests.places import (
    Box,
    Local,
    Round,
    View,
    Where,
    differs,
    spans_of,
    stride_of,
)
from accelopt.kernels.nki.nests.statements import Form, line
from accelopt.kernels.nki.nests.text import MOST_FREE, Tile, collected, merged
from accelopt.kernels.nki.nests.value_graphs import inputs_of
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dtypes import parse

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.emission import Emitter

KEPT_BYTES = 32 * 1024
"""Of a partition: what is brought for all rounds of a loop instead of again in each."""
LITTLE = 256 * 1024
"""Bytes of a DMA that takes longer than they do."""
MOST_SHIFTED = 16
"""Parts of one array that lie on partitions of their own, each brought by itself."""
EFFICIENT_RUN = 512
"""Bytes side by side from which on a DMA is at its best."""


def rows_of(
    dims: Sequence[tuple[At, dict[Axis, int]]], where: Where, shape: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """`Where.rows_at`, by the steps along the dimensions of an array."""
    axes = where.part
    return where.rows_at(
        {a: sum(s.get(a, 0) * stride_of(shape, n) for n, (_, s) in enumerate(dims)) for a in axes}
    )


def backwards(steps: Mapping[Axis, int], where: Where) -> int:
    """How far before the first element that is read the least one lies, along the free axes: 0 or less."""
    return sum(
        min(0, s) * (where.span(a).width - 1) for a, s in steps.items() if a not in where.part
    )


def _inside(start: int, step: int, count: int, extent: int) -> tuple[int, int]:
    """Of elements `step` apart, the number of the first in an array's extent, and of the first behind it."""
    return max(0, -(start // step)), min(count, (extent - 1 - start) // step + 1)


class _Piece(NamedTuple):
    """A part of an array for some partitions: where its first element is, which may lie before the array, its
    rows, as `Memory.transfer` has them, from partition `low` on, and of some dimensions the number of the first
    element `inside` of the array and of the first behind it."""

    base: At
    rows: Sequence[tuple[int, int, int]]
    low: int
    inside: Mapping[int, tuple[int, int]]


class Memory:
    """Transfers of one nest."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.unmade: dict[str, tuple[Array, Margins]] = {}
        """Arrays that would have margins in HBM, and of which no copy has been needed yet."""

    def address(
        self, array: Array, indices: Sequence[Index], where: Where
    ) -> tuple[At, dict[Axis, int]]:
        """An element of an array in HBM, counted row by row: where it is, and steps along axes."""
        base, steps = At(array.first), dict[Axis, int]()
        for n, index in enumerate(indices):
            own, along = self.emitter.affine(index, where)
            stride = array.steps[n] if array.steps else math.prod(array.shape[n + 1 :])
            base = base + own * stride
            for axis, factor in along.items():
                steps[axis] = steps.get(axis, 0) + factor * stride
        return collected(base), steps

    def read(self, value: Value, where: Where) -> View:
        """An array's elements on the chip: a member's tile, or brought from HBM."""
        if value.array.startswith("psum:"):
            blocks = (b for b in self.emitter.blocks if value.array in b.locals)
            psum = next(blocks).locals[value.array][-1]
            return psum.view.moved(where, psum.where)
        self.emitter.emit_now(value.array, where)
        found = self.local(value, where) or self.emitter.on_chip.read(value, where)
        found = found or self.turned(value, where)
        if found is not None:
            return found
        if (found := self.across(value, where)) is not None:
            return found
        if value.array in self.emitter.definitions and value.array in self.emitter.stage.members:
            raise NotNested(
                f"{value.array} is read at other places than its tile of the same round holds"
            )
        return self.load(value, where)

    def local(self, value: Value, where: Where) -> View | None:
        """Where a member's tile holds what is read; None where it does not."""
        for block in reversed(self.emitter.blocks):
            for local in reversed(block.locals.get(value.array, ())):
                if found := self.held(local, value, where):
                    return found
        return None

    def held(self, local: Local, value: Value, where: Where) -> View | None:
        """The part of a member's tile that is read; None where it holds something else."""
        offset = local.view.offset
        strides: dict[Axis, int] = {}
        lying: dict[Axis, Axis] = {}
        for axis, index in zip(local.axes, value.indices, strict=True):
            span = local.where.span(axis)
            if axis in local.where.part:
                single = len(index.terms) == 1 and not index.constant and index.terms[0][1] == 1
                if not single or not isinstance(index.terms[0][0], Axis):
                    return None
                other = index.terms[0][0]
                mine = where.span(other)
                if differs(mine.start, span.start) or mine.width != span.width:
                    return None
                lying[axis] = other
                continue
            base, steps = self.emitter.affine(index, where)
            if any(a in where.part for a in steps):
                return None
            begin = collected(base + span.start * -1)
            low, high = self.emitter.bounds(
                begin, {a: (where.span(a).width, s) for a, s in steps.items()}
            )
            if low < 0 or high >= span.width:
                return None
            stride = local.view.strides.get(axis, 0)
            offset = offset + begin * stride
            for a, s in steps.items():
                strides[a] = strides.get(a, 0) + s * stride
        rows = [lying[axis] for axis in local.where.part if axis in lying]
        wide = [a for a in rows if where.span(a).width > 1]
        if not set(local.axes) & set(local.where.part) and where.rows <= local.where.rows:
            return View(local.view.tile, collected(offset), strides)  # the same on every partition
        if wide != [a for a in where.part if where.span(a).width > 1]:
            return None
        return View(local.view.tile, collected(offset), strides)

    def turned(self, value: Value, where: Where) -> View | None:
        """A member's tile with another of its axes on partitions, after transposes by the Tensor engine, in
        PSUM; None where no tile has one axis there and that one beside it, or a bank does not hold it."""
        emitter, axes = self.emitter, where.free(value.axes)
        for local in (one for b in emitter.blocks for one in b.locals.get(value.array, ())):
            plain = value.indices == tuple(map(index_of, local.axes))
            starts = (where.span(a).start + local.where.span(a).start * -1 for a in local.axes)
            within = (
                low >= 0 and high + where.span(a).width <= local.where.span(a).width
                for a, start in zip(local.axes, starts, strict=True)
                for low, high in [self.emitter.bounds(collected(start), {})]
            )
            if not plain or not all(within) or len(local.where.part) != 1 or len(where.part) != 1:
                continue
            (lying,), (row,) = local.where.part, where.part
            wide = math.prod(where.span(axis).width for axis in axes)
            if lying not in axes or not local.view.strides.get(row) or where.rows != row.extent:
                continue
            if where.span(lying).width != lying.extent or wide * 4 > emitter.spec.psum_bank_bytes:
                continue
            axes = (*(axis for axis in axes if axis != lying), lying)
            dtype = local.view.tile.dtype
            target = emitter.new_tile(f"{value.array}_turned", where, axes, dtype, True)

            def one(round_: Round) -> None:
                source = local.view.moved(round_.where, local.where)  # noqa: B023
                into, shape = target.moved(round_.where, where), (lying.extent, where.rows)  # noqa: B023
                emitter.transpose(into, source, shape, source.strides[row])  # noqa: B023

            emitter.each(where, [(axis, 1) for axis in axes[:-1]], one)
            return target
        return None

    def across(self, value: Value, where: Where) -> View | None:
        """An array that has elements side by side in HBM where partitions are, brought as it lies there, with
        another axis on partitions, and transposed by the Tensor engine; None where the nest does not say so."""
        emitter, most = self.emitter, self.emitter.spec.partitions
        pairs = {(name, value.array) for name in emitter.stage.members}
        lying = [axis for axis in where.part if where.span(axis).width > 1]
        turned = pairs & {*emitter.nest.turned} and not where.is_padded(lying)
        if not turned or len(lying) != 1 or not value.indices:
            return None
        *first, last = value.indices
        free = [a for a in where.free(value.axes) if sum(a in i.axes for i in first) == 1]
        free = [a for a in free if a not in last.axes]
        if last.coefficient(lying[0]) != 1 or not free:
            return None
        row = max(free, key=lambda axis: min(where.span(axis).width, most))
        span = where.span(row)
        size = evenly(span.width, most)
        if any(n % size for n in (span.width, row.extent, span.start.constant)) or any(
            factor % size for _, factor in span.start.terms
        ):
            raise NotNested(f"{value.array} is not transposed in equal parts of {row.name}")
        low, high = Axis(f"{row.name}_low", size), Axis(f"{row.name}_high", row.extent // size)
        digits = index_of(high) * size + index_of(low) + index_of(row) * -1
        indices = tuple(i + digits * i.coefficient(row) for i in value.indices)
        start = At(span.start.constant // size, tuple((v, f // size) for v, f in span.start.terms))
        spans = {a: s for a, s in where.spans.items() if a != row}
        source = Where((low,), {**spans, high: Span(start, span.width // size)}, where.order)
        data = emitter.view(
            emitter.reading.builder.input(value.array, indices, value.dtype), source
        )
        others = (*(a for a in where.free(value.axes) if a != row), high)
        place, axes = Where(where.part, source.spans, ()), (*others, low)
        bank = emitter.spec.psum_bank_bytes // 4
        parts = emitter.cut(place, others, max(1, bank // size))
        name, dtype = f"{value.array}_turned", data.tile.dtype
        whole = emitter.new_tile(name, place, axes, dtype, psum=not parts)

        def part(round_: Round) -> None:
            spot = round_.where
            psum = emitter.new_tile(name, spot, axes, dtype, psum=True) if parts else whole

            def one(round_: Round) -> None:
                from_, into = data.moved(round_.where, source), psum.moved(round_.where, spot)
                emitter.transpose(into, from_, (size, where.rows), from_.strides[lying[0]])

            emitter.each(spot, [(axis, 1) for axis in others], one)
            if parts:
                emitter.copy(spot, axes, whole.moved(spot, place), psum)

        emitter.each(place, parts, part)
        strides = {axis: whole.strides[axis] for axis in others if axis != high}
        return View(whole.tile, whole.offset, {**strides, row: 1})

    def load(self, value: Value, where: Where) -> View:
        """Brings what is read of an array: the box around it where that is not much more, else its
        elements. What other rounds of a loop need too is brought at once, where it fits."""
        wide = self.widened(self.emitter.arrays.get(value.array), value, where)
        if wide is not None:
            return self.emitter.view(value, wide).moved(where, wide)
        value = self.stored(value)
        array = self.emitter.arrays[value.array]
        dims = [self.emitter.affine(index, where) for index in value.indices] or [(At(), {})]
        shape = array.shape or (1,)
        axes = where.free(value.axes)
        rows = rows_of(dims, where, shape)
        exact = math.prod(where.span(a).width for a in axes)
        sizes = [
            1 + sum(abs(s) * (where.span(a).width - 1) for a, s in steps.items() if a in axes)
            for _, steps in dims
        ]
        if math.prod(sizes) <= 4 * exact:
            return self.box(value, where, dims, sizes, rows, shape)
        return self.elements(value, where, axes, rows)

    def box(self, value: Value, where: Where, dims: Sequence[tuple[At, dict[Axis, int]]],
            sizes: list[int], rows: Sequence[tuple[int, int, int]], shape: tuple[int, ...]) -> View:  # fmt: skip
        """All elements of an array between the first and the last one that is read of it."""
        key = (value.array, tuple(rows))
        first, ones = [base for base, _ in dims], [1] * len(dims)
        starts = [base + backwards(steps, where) for base, steps in dims]
        for block in self.emitter.blocks:
            for box in block.boxes.get(key, ()):
                moved = self.inside_box(box, starts, sizes) and self.inside_box(box, first, ones)
                if moved is not None:
                    return self.boxed(moved, box.strides, dims, where)
        starts, sizes = self.union(value, where, starts, sizes, rows)
        strides = row_major(sizes)
        array = self.emitter.arrays[value.array]
        name = self.emitter.names.new(f"{value.array}_tile")
        tile = Tile(name, where.rows, math.prod(sizes), array.dtype)
        self.emitter.declare(tile)
        view = View(tile, At(), {})
        if where.is_padded(where.part):
            self.emitter.fill(tile, "0", zeros=True)
        if not self.with_zeros(value.array, view, where, starts, sizes, dims):
            base = At()
            for n, start in enumerate(starts):
                base = base + start * stride_of(shape, n)
            parts = [(size, stride_of(shape, n), strides[n]) for n, size in enumerate(sizes)]
            self.transfer(value.array, view, collected(base), rows, parts)
        self.emitter.blocks[-1].boxes.setdefault(key, []).append(Box(view, starts, sizes, strides))
        moved = self.inside_box(self.emitter.blocks[-1].boxes[key][-1], first, ones)
        assert moved is not None
        return self.boxed(moved, strides, dims, where)

    def with_zeros(
        self, name: str, view: View, where: Where, starts: Sequence[At], sizes: Sequence[int],
        dims: Sequence[tuple[At, dict[Axis, int]]],
    ) -> bool:  # fmt: skip
        """Brings a box of an array with margins from the array without, with zeros around it on the chip,
        where it is the same part of dimensions with margins in every round and on every partition."""
        unmade = self.unmade.get(name)
        if unmade is None:
            return False
        array, margins = unmade
        sides = [(0, extent, 0) for extent in margins.given[: margins.first]] + [*margins.inner]
        strides, shape = row_major(list(sizes)), tuple(extent for _, extent, _ in sides)
        base, parts, inside = At(), list[tuple[int, int, int]](), dict[int, tuple[int, int]]()
        for n, ((low, extent, high), start) in enumerate(zip(sides, starts, strict=True)):
            if low or high:
                if start.terms or any(axis in where.part for axis in dims[n][1]):
                    return False
                inside[n] = _inside(start.constant - low, 1, sizes[n], extent)
            base = base + (start + -low) * stride_of(shape, n)
            parts.append((sizes[n], stride_of(shape, n), strides[n]))
        piece = _Piece(collected(base), rows_of(dims, where, shape), 0, inside)
        return self.between_zeros(array.name, view, where.rows, parts, [piece])

    def between_zeros(
        self, name: str, view: View, rows: int, dims: Sequence[tuple[int, int, int]], pieces: Sequence[_Piece],
    ) -> bool:  # fmt: skip
        """Brings what lies inside of an array of some pieces alike, each for partitions of its own, and zeros to
        all `rows` where one of them begins or ends beyond it."""
        left, at, fills = [*dims], view.offset, list[tuple[list[int], list[int], At]]()
        for n in pieces[0].inside:
            firsts, stops = zip(*(piece.inside[n] for piece in pieces), strict=True)
            count, _, stride = left[n]
            for begin, stop in ((0, max(firsts)), (min(stops), count)):
                around = [*left[:n], (stop - begin, 0, stride), *left[n + 1 :]]
                around.sort(key=lambda dim: -dim[2])
                counts, steps = merged([d[0] for d in around], [[d[2] for d in around]])
                fills += [(counts, steps[0], at + begin * stride)] * (begin < stop)
            left[n] = max(stops) - min(firsts), 0, stride
            at = at + min(firsts) * stride
        some = all(first < stop for piece in pieces for first, stop in piece.inside.values())
        if not some or any(len(counts) > MOST_FREE for counts, *_ in fills):
            return False
        for sizes, apart, start in fills:
            self.emitter.fill(view.tile._replace(partitions=rows), "0", sizes, apart, start)
        for base, own_rows, low, inside in pieces:
            own, at = [*dims], view.offset
            for n, (first, stop) in inside.items():
                _, step, stride = own[n]
                own[n] = stop - first, step, stride
                base, at = base + first * step, at + first * stride
            own.sort(key=lambda dim: -dim[2])
            moved = View(view.tile, collected(at), {})
            self.transfer(name, moved, collected(base), own_rows, own, low=low)
        return True

    def placed_between_zeros(
        self, value: Value, where: Where, view: View,
        rounds: Sequence[tuple[Axis, int, int, int]],
    ) -> bool:  # fmt: skip
        """`load_into` from the array without margins, with zeros around it on the chip, where it is the same part
        of dimensions with margins in every round. Partitions for which it is another have a piece of their own."""
        array, margins = self.unmade[self.stored_name(value.array)]
        apart = row_major([extent for _, extent, _ in margins.inner])
        sides = [*zip(margins.along(value.indices), margins.inner, apart, strict=True)]
        shifted = [a for a in where.part if where.span(a).width > 1 and self.is_shifted(value, a)]
        numbers = [*itertools.product(*(range(where.span(a).width) for a in shifted))]
        if len(numbers) > MOST_SHIFTED or any(self.is_shifted(value, a) for a, *_ in rounds):
            return False
        whole = where.within({axis: Span(At(), axis.extent) for axis, *_ in rounds})
        steps = self.address(array, value.indices, where)[1]
        steps |= self.address(array, value.indices, whole)[1]
        rows = dict(zip(where.part, where.rows_at(steps), strict=True))
        own_rows = [(1, *row[1:]) if axis in shifted else row for axis, row in rows.items()]
        dims, pieces, seen = list[tuple[int, int, int]](), list[_Piece](), set[Axis]()
        for number in numbers:
            at = dict(zip(shifted, number, strict=True))
            spot = where.within({a: Span(where.span(a).start + n, 1) for a, n in at.items()})
            dims, inside, seen = [], {}, set()
            for index, (low, extent, high), far in sides:
                if not low and not high:
                    continue
                start, along = self.emitter.affine(index, spot)
                order = sorted(along, key=lambda axis: -along[axis])
                once = all(steps[axis] == along[axis] * far for axis in order)
                if start.terms or not once or not {*order} <= {*view.strides} - seen:
                    return False
                strides = [[along[a] for a in order], [view.strides[a] for a in order]]
                counts, (own, places) = merged([where.span(a).width for a in order], strides)
                if len(own) > 1 or own[0] < 1:
                    return False
                inside[len(dims)] = _inside(start.constant, own[0], counts[0], extent)
                dims.append((counts[0], own[0] * far, places[0]))
                seen |= {*order}
            base, _ = self.address(array, value.indices, spot)
            low = sum(rows[a][2] * n for a, n in at.items())
            pieces.append(_Piece(base, own_rows, low, inside))
        free = view.strides.keys() - seen
        dims += [(where.span(a).width, steps[a], view.strides[a]) for a in free]
        dims += [(count, steps[a] * size, stride) for a, count, size, stride in rounds]
        return self.between_zeros(array.name, view, where.rows, dims, pieces)

    def is_shifted(self, value: Value, axis: Axis) -> bool:
        """Whether what is read of an array, with zeros on the chip around it, begins elsewhere along a dimension
        with margins for each element of an axis."""
        margins = self.emitter.margins.get(value.array) if value.kind == "input" else None
        if margins is None or self.stored_name(value.array) == value.array:
            return False
        if self.stored(value).array not in self.unmade:
            return False
        sides = zip(margins.along(value.indices), margins.inner, strict=True)
        return any(axis in index.axes for index, (low, _, high) in sides if low or high)

    def inputs_read(self) -> Iterator[Value]:
        """Each element of an array that members of the stage take."""
        for name in self.emitter.stage.members:
            for root in self.emitter.reading.meanings[name].roots:
                yield from (found for found in inputs_of(root) if found.indices)

    def union(
        self, value: Value, where: Where, starts: list[At], sizes: list[int],
        rows: Sequence[tuple[int, int, int]],
    ) -> tuple[list[At], list[int]]:  # fmt: skip
        """The box around all that the members of a stage read of an array beside each other."""
        array = self.emitter.arrays[value.array]
        shape = array.shape or (1,)
        bound = {part.axis for part in (*self.emitter.stage.partition, *self.emitter.stage.loops)}
        bound.update(axis.name for axis in self.emitter.program)
        spans = {axis: span for axis, span in where.spans.items() if axis.name in bound}
        place = Where(where.part, spans, ())
        for found in self.inputs_read():
            if found.kind != "input" or self.stored_name(found.array) != value.array:
                continue
            dims = [self.emitter.affine(index, place) for index in self.stored(found).indices]
            lowest = [b + backwards(own, place) for b, own in dims]
            steps = [collected(b + first * -1) for b, first in zip(lowest, starts, strict=True)]
            if rows_of(dims, place, shape) != list(rows) or any(step.terms for step in steps):
                continue
            counts = [{a: (place.span(a).width, s) for a, s in d.items()} for _, d in dims]
            ends = [self.emitter.bounds(b, n) for (b, _), n in zip(dims, counts, strict=True)]
            within = all(a >= 0 and b < n for (a, b), n in zip(ends, shape, strict=True))
            if not within:
                continue
            widths = (1 + sum((n - 1) * abs(s) for a, (n, s) in own.items() if a not in place.part)
                      for own in counts)  # fmt: skip
            lows = [min(0, step.constant) for step in steps]
            stops = (step.constant + width for step, width in zip(steps, widths, strict=True))
            highs = map(max, sizes, stops)
            wide = [high - low for low, high in zip(lows, highs, strict=True)]
            if math.prod(wide) * parse(array.dtype).itemsize <= KEPT_BYTES:
                starts = [collected(s + low) for s, low in zip(starts, lows, strict=True)]
                sizes = wide
        return starts, sizes

    def inside_box(self, box: Box, starts: Sequence[At], sizes: Sequence[int]) -> View | None:
        """Where a box begins in another that holds it; None where that does not."""
        offset = box.view.offset
        for n, (start, size) in enumerate(zip(starts, sizes, strict=True)):
            step = collected(start + box.starts[n] * -1)
            low, high = self.emitter.bounds(step, {})
            if low < 0 or high + size > box.sizes[n]:
                return None
            offset = offset + step * box.strides[n]
        return View(box.view.tile, collected(offset), {})

    def boxed(
        self, view: View, strides: Sequence[int], dims: Sequence[tuple[At, dict[Axis, int]]],
        where: Where,
    ) -> View:  # fmt: skip
        """The elements of a box along the axes that they are read by."""
        own: dict[Axis, int] = {}
        for n, (_, steps) in enumerate(dims):
            for axis, step in steps.items():
                if axis not in where.part:
                    own[axis] = own.get(axis, 0) + step * strides[n]
        return View(view.tile, view.offset, own)

    def load_into(
        self, value: Value, where: Where, view: View,
        rounds: Sequence[tuple[Axis, int, int, int]] = (), run: Sequence[Axis] = (), low: int = 0,
    ) -> bool:  # fmt: skip
        """Brings what is read straight into its place, where its elements are there once; with it that of
        `rounds`: an axis, how many rounds there are along it, of so many elements, and their step on the chip.
        Along the axes of a `run` it lies as in memory, and comes with what lies between."""
        bare, value = value, self.stored(value)
        array = self.emitter.arrays[value.array]
        base, steps = self.address(array, value.indices, where)
        whole = where.within({axis: Span(At(), axis.extent) for axis, *_ in rounds})
        steps |= self.address(array, value.indices, whole)[1]
        if any(axis not in steps for axis in (*view.strides, *(a for a, *_ in rounds))):
            return False
        first = value.array in self.unmade and not run and not low
        if first and self.placed_between_zeros(bare, where, view, rounds):
            return True
        rows = where.rows_at(steps)
        dims = [(where.span(a).width, steps[a], s) for a, s in view.strides.items() if a not in run]
        if run:
            dims.append((1 + sum((where.span(a).width - 1) * steps[a] for a in run), 1, 1))
        dims += [(count, steps[a] * size, stride) for a, count, size, stride in rounds]
        dims.sort(key=lambda dim: -dim[2])
        self.transfer(value.array, view, base, rows, dims, low=low)
        return True

    def is_brought(self, value: Value, view: View) -> bool:
        """Whether what is read comes from HBM straight into a place, element by element."""
        emitter = self.emitter
        on_chip = {*emitter.stage.members, *emitter.on_chip.held}
        there = value.kind == "input" and not value.array.startswith("psum:")
        if not there or value.array in on_chip or value.dtype != view.tile.dtype:
            return False
        return not view.tile.psum and {*view.strides} <= value.axes

    def bring_rows(self, value: Value, where: Where, view: View, rows: tuple[int, int]) -> None:
        """Brings what is read by some of the partitions alone."""
        (axis,) = (a for a in where.part if where.span(a).width > 1)
        begin, end = rows
        span = Span(where.span(axis).start + begin, end - begin)
        done = self.load_into(value, where.within({axis: span}), view, low=begin)
        assert done

    def elements(
        self,
        value: Value,
        where: Where,
        axes: tuple[Axis, ...],
        rows: Sequence[tuple[int, int, int]],
    ) -> View:
        """Just the elements that are read, those nearest in memory beside each other."""
        array = self.emitter.arrays[value.array]
        base, steps = self.address(array, value.indices, where)
        ordered = sorted(axes, key=lambda axis: -abs(steps.get(axis, 0)))
        view = self.emitter.new_tile(f"{value.array}_tile", where, ordered, array.dtype)
        if where.is_padded(where.part):
            self.emitter.fill(view.tile, "0", zeros=True)
        parts = [(where.span(a).width, steps.get(a, 0), view.strides[a]) for a in ordered]
        self.transfer(value.array, view, base, rows, parts)
        return view

    def widened(
        self, array: Array | None, value: Value, where: Where, inner: bool = False
    ) -> Where | None:
        """Where to read for all rounds of loops that only its free axes run in; None where that saves
        nothing or does not fit. What is read alike by all is brought for the rounds of `inner` loops alone, those
        inside of the stage's: of what one reads, where each would bring little."""
        bound = {part.axis for part in (*self.emitter.stage.partition, *self.emitter.stage.loops)}
        bound.update(axis.name for axis in self.emitter.program)
        axes = [a for a in value.axes if a not in where.part and where.span(a).start.terms
                and not (inner and a.name in bound)]  # fmt: skip
        if not axes or array is None:
            return None
        fixed = value.axes - set(axes)
        now, then = (
            self.emitter.home(where.variables(value.axes)),
            self.emitter.home(where.variables(fixed)),
        )
        loops = {v for a in axes for v, _ in where.span(a).start.terms}
        if not loops <= {b.variable for b in self.emitter.blocks[then + 1 :]}:
            return None  # what is brought inside of these loops is brought again in each of their rounds
        between = {b.variable for b in self.emitter.blocks[then + 1 : now]} - loops
        others = [where.span(a).width for a in fixed if a not in where.part]
        wide = where.within({axis: Span(At(), axis.extent) for axis in axes})
        for axis in self.emitter.deciding.keys() & set(axes):  # no other part of it may be read
            low, high = self.emitter.bounds(where.span(axis).start, {})
            spread = high - low + where.span(axis).width
            wide = wide.within({axis: Span(At(low), spread)})
        exact = math.prod(wide.span(a).width for a in axes) * math.prod(others)
        hull = math.prod(
            1
            + sum(
                abs(s) * (wide.span(a).width - 1) for a, s in steps.items() if a not in where.part
            )
            for _, steps in (self.emitter.affine(index, wide) for index in value.indices)
        )  # windows that overlap
        readers = self.emitter.reading.readers[array.name] & set(self.emitter.stage.members)
        size, once = parse(array.dtype).itemsize, len(readers) < 2
        if not inner and not between and hull >= exact and (once or self.is_read_alike(array.name)):
            return self.widened(array, value, where, True)
        little = where.rows * math.prod(others) * size < LITTLE
        fits = min(exact, hull) * size <= KEPT_BYTES
        return wide if fits and (little or not inner or not once) else None

    def is_read_alike(self, array: str) -> bool:
        """Whether members of the stage read the same elements of an array in a round of its loops."""
        return len({found.indices for found in self.inputs_read() if found.array == array}) < 2

    def stored(self, value: Value) -> Value:
        """An input as it lies in HBM: of an array that is read beyond its ends, with room there."""
        margins = self.emitter.margins.get(value.array)
        if margins is None:
            return value
        name = self.stored_name(value.array)
        if name not in self.emitter.arrays:
            array = self.emitter.arrays[value.array]
            self.emitter.arrays[name] = Array(name, margins.shape, array.dtype, margins.shape)
            self.unmade[name] = array, margins
        return self.emitter.reading.builder.input(name, margins.place(value.indices), value.dtype)

    def stored_name(self, array: str) -> str:
        """What is read in the place of an array: of what has its own shape in HBM, a copy."""
        own = array in self.emitter.definitions and array not in self.emitter.results
        return array if own or array not in self.emitter.margins else f"{array}_with_margins"

    def copy_with_margins(self, name: str) -> None:
        """A copy in HBM with room at the ends, made before anything else of the stage."""
        array, margins = self.unmade.pop(name)
        with self.emitter.at(0):
            self.declare_outside(name, f"{array.name}_padded", margins.shape, array.dtype, margins)
            if margins.apart:
                self.copy_apart(name, array, margins)
                return
            size = math.prod(margins.shape) // margins.outer - margins.low - margins.high
            # Partitions take whole outer parts, or where there are few of those, pieces of one.
            most = range(1, self.emitter.spec.partitions + 1)
            together = max(d for d in most if margins.outer % d == 0)
            rows = max(d for d in most if size % d == 0)
            few = together * 8 < rows
            together = 1 if few else together
            counts = [rows, size // rows] if few else [together, size]
            inner = [size // rows, 1]
            with self.emitter.loop("i_copy", margins.outer // together) as at:
                dst, src = (
                    self.emitter.text.outside(
                        self.emitter.read_outside(which), shape, start, counts,
                        inner if few else [step, 1],
                    )
                    for which, shape, start, step in (
                        (name, margins.shape, at * (together * margins.step) + margins.low, margins.step),
                        (array.name, array.shape, at * (together * size), size),
                    )
                )  # fmt: skip
                moved = 2 * together * size * parse(array.dtype).itemsize
                ns = self.dma_ns(moved, [counts[1]], [[1], [1]], array.dtype)
                self.emitter.put("", Form(self.emitter.transfer(dst, src), "dma", ns), moved=moved)

    def copy_apart(self, name: str, array: Array, margins: Margins) -> None:
        """What `copy_with_margins` brings into room along several dimensions."""
        most = range(1, self.emitter.spec.partitions + 1)
        together = max(d for d in most if margins.outer % d == 0)
        counts = [together, *(extent for _, extent, _ in margins.inner)]
        wide = row_major([sum(side) for side in margins.inner])
        low = sum(side[0] * step for side, step in zip(margins.inner, wide, strict=True))
        size = math.prod(counts[1:])
        with self.emitter.loop("i_copy", margins.outer // together) as at:
            dst, src = (
                self.emitter.text.outside(
                    self.emitter.read_outside(which), shape, start, counts, steps
                )
                for which, shape, start, steps in (
                    (
                        name,
                        margins.shape,
                        at * (together * margins.step) + low,
                        [margins.step, *wide],
                    ),
                    (array.name, array.shape, at * (together * size), row_major(counts)),
                )
            )
            moved = 2 * together * size * parse(array.dtype).itemsize
            ns = self.dma_ns(moved, counts[-1:], [[1], [1]], array.dtype)
            self.emitter.put("", Form(self.emitter.transfer(dst, src), "dma", ns), moved=moved)

    def declare_outside(
        self, name: str, wanted: str, shape: tuple[int, ...], dtype: str,
        margins: Margins | None = None,
    ) -> None:  # fmt: skip
        """Makes an array in HBM, with zeros in its margins."""
        self.emitter.arrays[name] = Array(name, shape, dtype, shape)
        self.emitter.outside[name] = unique = self.emitter.names.new(wanted)
        memory = "shared_hbm" if name in self.emitter.exchanged else "private_hbm"
        made = f"{unique} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.{memory})"
        self.emitter.text.first.append(line(made))
        if margins is not None and (margins.low or margins.high):
            with self.emitter.at(0):
                self.put_zeros(name, margins, dtype)

    def put_zeros(self, name: str, margins: Margins, dtype: str) -> None:
        """Zeros in the margins of an array, many rows of a tile at once; all over one with several."""
        if margins.apart:
            margins = Margins((margins.outer, 0), 1, margins.step, 0)
        most = max(margins.low, margins.high)
        width = min(2048, most)
        rows = min(self.emitter.spec.partitions, most // width)
        if margins.outer > 1:
            rows = self.emitter.spec.partitions
            rows = max(d for d in range(1, rows + 1) if margins.outer % d == 0)
        zeros = View(Tile(self.emitter.names.new("zeros"), rows, width, dtype), At(), {})
        self.emitter.declare(zeros.tile)
        self.emitter.fill(zeros.tile, "0")

        def put(start: At, count: int, size: int, step: int) -> None:
            self.transfer(name, zeros, start, [(count, step, 1)], [(size, 1, 1)], True)

        ends = ((0, margins.low), (margins.step - margins.high, margins.high))
        for begin, length in (end for end in ends if end[1]):
            several = margins.outer > 1
            block = width if several else rows * width
            with self.emitter.loop("i_zero", margins.outer // rows if several else 1) as at:
                start = at * (rows * margins.step) + begin
                if length // block:
                    with self.emitter.loop("i_block", length // block) as part:
                        put(start + part * block, rows, width, margins.step if several else width)
                left = length % block
                start = start + (length - left)
                if several and left:
                    put(start, rows, left, margins.step)
                elif left:
                    if left // width:
                        put(start, left // width, width, width)
                    if left % width:
                        put(start + (left - left % width), 1, left % width, 0)

    def transfer(
        self, array: str, view: View, offset: At, rows: Sequence[tuple[int, int, int]],
        dims: Sequence[tuple[int, int, int]], store: bool = False, low: int = 0,
    ) -> None:  # fmt: skip
        """One DMA, or loops of it where addresses are not a few strides. `rows` has count and both steps of each
        axis on partitions, from number `low` on, `dims` those of each free axis."""
        if array in self.unmade:
            self.copy_with_margins(array)
        counts, steps = merged([row[0] for row in rows], [[row[n] for row in rows] for n in (1, 2)])
        dims = [dim for dim in dims if dim[0] > 1]
        if self.emitter.stage.parts and not store and (size := self.part(array, rows, dims)):
            (count, step, stride), *rest = dims
            with self.emitter.loop("i_part", count // size) as at:
                moved = View(view.tile, view.offset + at * (size * stride), {})
                own = [(size, step, stride), *rest]
                self.transfer(array, moved, offset + at * (size * step), rows, own, low=low)
            return
        own_rows = list(zip(counts, *steps, strict=True))
        if own_rows[-1][2] != 1:  # each is the first of several partitions
            own_rows.append((1, 0, 1))
        self._transfer(array, view, offset, own_rows, dims, At(low), store)

    def part(
        self, array: str, rows: Sequence[tuple[int, int, int]], dims: Sequence[tuple[int, int, int]]
    ) -> int:
        """How many elements along the first free axis one DMA of a tile brings, where that is several: work
        on the first parts begins while the last are brought. 0 for a tile that comes at once."""
        count = dims[0][0] if dims else 1
        one = (
            math.prod(c for c, *_ in (*rows, *dims))
            * parse(self.emitter.arrays[array].dtype).itemsize
        )
        return next((d for d in range(1, count // 2 + 1)
                     if count % d == 0 and one // count * d >= LITTLE), 0)  # fmt: skip

    def _transfer(
        self, array: str, view: View, offset: At, rows: list[tuple[int, int, int]],
        dims: Sequence[tuple[int, int, int]], low: At, store: bool,
    ) -> None:  # fmt: skip
        if len(rows) > 1:
            count, step, inside = rows[0]
            with self.emitter.loop("i_row", count) as at:
                self._transfer(array, view, offset + at * step, rows[1:], dims,
                               low + at * inside, store)  # fmt: skip
            return
        counts, strides = merged([d[0] for d in dims], [[d[1] for d in dims], [d[2] for d in dims]])
        bad = next((n for n, s in enumerate(strides[0]) if s < 0 or s == 0), None)
        if counts == [1]:
            bad = None
        if bad is None and len(counts) > MOST_FREE:
            bad = 0
        if bad is not None:
            left = list(zip(counts, *strides, strict=True))
            del left[bad]
            with self.emitter.loop("i_part", counts[bad]) as at:
                moved = View(view.tile, view.offset + at * strides[1][bad], {})
                self._transfer(array, moved, offset + at * strides[0][bad], rows, left, low, store)
            return
        ((partitions, step, _),) = rows
        on_chip = self.emitter.text.inside(
            view.tile, partitions, view.offset, counts, strides[1], low
        )
        name = self.emitter.in_place.get(array, array)
        own = self.emitter.arrays[name]
        shape = own.shape or (1,)
        known = (
            self.emitter.outside[name]
            if store or name != array
            else self.emitter.read_outside(name)
        )
        outside = self.emitter.text.outside(
            known, shape, offset, [partitions, *counts], [step, *strides[0]]
        )
        if store and name != array and not self.emitter.arrays[array].steps:
            self.emitter.changed.add(name)
        dst, src = (outside, on_chip) if store else (on_chip, outside)
        moved_bytes = partitions * math.prod(counts) * parse(own.dtype).itemsize
        text = self.emitter.transfer(dst, src)
        ns = self.dma_ns(moved_bytes, counts, strides, own.dtype)
        self.emitter.put("", Form(text, "dma", ns), moved=moved_bytes)

    def dma_ns(
        self, size: int, counts: Sequence[int], strides: Sequence[Sequence[int]], dtype: str
    ) -> float:
        """Nanoseconds of a DMA of some bytes; runs of elements side by side on both sides go faster."""
        runs = [c for c, *s in zip(counts, *strides, strict=True) if s == [1, 1]] or [1]
        slow = max(1.0, EFFICIENT_RUN / (runs[-1] * parse(dtype).itemsize))
        return float(size * slow / self.emitter.spec.dma_peak_bytes_per_ns)

    def store(self, definition: Definition, where: Where, view: View) -> None:
        """Brings a definition's tile to HBM."""
        name = definition.out
        margins = None if name in self.emitter.results else self.emitter.margins.get(name)
        if name not in self.emitter.arrays:
            shape = tuple(axis.extent for axis in definition.axes) or (1,)
            self.declare_outside(
                name, name, margins.shape if margins else shape, "float32", margins
            )
        array = self.emitter.arrays[name]
        if parse(view.tile.dtype) != parse(array.dtype):
            rounded = self.emitter.new_tile(
                name, where, where.free(set(definition.axes)), array.dtype
            )
            self.emitter.copy(where, where.free(set(definition.axes)), rounded, view)
            view = rounded
        if isinstance(definition, Map) and (at := self.emitter.reading.meanings[name].at):
            scatter(self.emitter, array, definition, at, where, view)
            return
        indices = tuple(index_of(axis) for axis in definition.axes)
        indices = margins.place(indices) if margins else indices
        offset, steps = self.address(array, indices, where)
        axes = where.free(set(definition.axes))
        turned = name in self.emitter.laid or (name, name) in self.emitter.nest.turned
        turned = turned and not where.is_padded(where.part)
        if turned and axes and definition.axes[-1] in where.part:
            self.store_turned(definition, where, axes, view, indices)
            return
        rows = where.rows_at(steps)
        dims = [(where.span(a).width, steps[a], view.strides[a]) for a in axes]
        self.transfer(name, view, offset, rows, dims, store=True)

    def store_turned(
        self, definition: Definition, where: Where, axes: Sequence[Axis], view: View,
        indices: Sequence[Index],
    ) -> None:  # fmt: skip
        """Brings a tile whose rows in HBM lie across the partitions there, after transposes."""
        emitter, array = self.emitter, self.emitter.arrays[definition.out]
        counts = [where.span(axis).width for axis in where.part]
        most = emitter.spec.partitions
        # As many transposes as a bank of PSUM holds come to HBM together.
        parts = emitter.cut(where, axes, emitter.spec.psum_bank_bytes // 4 // where.rows * most)

        def part(round_: Round) -> None:
            spot = round_.where
            blocks = emitter.cut(spot, axes, most)
            if any(spot.span(axis).width % size for axis, size in blocks):
                emitter.each(spot, blocks, lambda r: together(r.where, []))
            else:
                together(spot, blocks)

        def together(spot: Where, blocks: Sequence[tuple[Axis, int]]) -> None:
            sizes = dict(blocks)
            number = Axis("block", emitter.rounds(spot, blocks))
            lying = [(a, sizes.get(a, spot.span(a).width)) for a in axes]
            lying = [(a, width) for a, width in lying if width > 1]
            width = math.prod(width for _, width in lying)
            turned = Tile(
                emitter.names.new("turned"), width, number.extent * where.rows, array.dtype, psum=True
            )  # fmt: skip
            emitter.declare(turned)

            def one(round_: Round) -> None:
                source = view.moved(round_.where, where)
                steps = [[source.strides[a] for a, _ in lying]]
                found, s = merged([width for _, width in lying], steps)
                if len(found) > 1:
                    raise NotNested(f"{definition.out} has no run of elements to transpose")
                into = View(turned, round_.number * where.rows, {})
                emitter.transpose(into, source, (where.rows, width), s[0][0])

            emitter.each(spot, blocks, one)
            own = Where((Axis("k", width),), spot.spans, ())
            aim = (number, *where.part)
            strides = dict(zip(aim, row_major([number.extent, *counts]), strict=True))
            out = emitter.new_tile(definition.out, own, aim, array.dtype)
            emitter.copy(own, aim, out, View(turned, At(), strides))
            offset, steps = self.address(array, indices, spot)
            apart = row_major([width for _, width in lying])
            rows = [(n, steps.get(a, 0), s) for (a, n), s in zip(lying, apart, strict=True)]
            rows = rows or [(1, 0, 1)]
            among = [spot.span(a).width // size for a, size in blocks]
            dims = [
                (count, steps[a] * size, n * where.rows)
                for (a, size), count, n in zip(blocks, among, row_major(among), strict=True)
            ]
            dims += [(spot.span(a).width, steps.get(a, 0), strides[a]) for a in where.part]
            self.transfer(definition.out, out, offset, rows, dims, store=True)

        emitter.each(where, parts, part)

    def spread(self, value: Value, where: Where) -> View | None:
        """A row that all partitions read alike, brought to one of them and spread by the Tensor engine,
        for an operand of a tensor_tensor; None where the nest does not say so."""
        pairs = ((name, value.array) for name in self.emitter.stage.members)
        lying = {axis for axis in where.part if where.span(axis).width > 1}
        if value.kind != "input" or where.rows == 1 or not {*pairs} & {*self.emitter.nest.spread}:
            return None
        if value.axes & lying or value.array in self.emitter.stage.members:
            return None
        spans = {axis: span for axis, span in where.spans.items() if axis not in where.part}
        row = Where((), spans, where.order)
        if not self.emitter.text.nki:  # there it is said with the operand
            view = self.emitter.view(value, row)
            return View(view.tile._replace(spread=where.rows), view.offset, view.strides)
        key = ("spread", value, where.rows, spans_of(where, tuple(value.axes)))
        for block in self.emitter.blocks:
            if key in block.values:
                return block.values[key]
        with self.emitter.at(self.emitter.home(where.variables(value.axes))):
            found = self.emitter.blocks[-1].values[key] = self.spread_now(value, where, row)
        return found

    def spread_now(self, value: Value, where: Where, row: Where) -> View:
        """Ones times a row, into PSUM."""
        axes = row.free(value.axes)
        view = self.emitter.new_tile(f"{value.array}_rows", where, axes, psum=True)
        ones = self.emitter.ones(1, where.rows, value.dtype)
        bank = self.emitter.spec.psum_bank_bytes // 4

        def part(round_: Round) -> None:
            spot, aim = round_.where, view.moved(round_.where, row)
            data = self.emitter.view(value, row).moved(spot, row)
            counts = [spot.span(a).width for a in axes]
            found, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (aim, data)])
            dst = self.emitter.text.inside(view.tile, where.rows, aim.offset, found, s[0])
            moving = self.emitter.text.inside(data.tile, 1, data.offset, found, s[1])
            ns = self.emitter.spec.matmul_ns(math.prod(found), where.rows, value.dtype)
            self.emitter.put(
                "", Form(self.emitter.text.product(dst, f"{ones}[...]", moving), "tensor", ns)
            )

        self.emitter.each(row, self.emitter.cut(row, axes, bank), part)
        return view
