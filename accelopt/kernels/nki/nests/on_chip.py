"""Definitions of which all elements stay in SBUF from their stage on: later stages read them there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.ir import Definition, arrays_read
from accelopt.kernels.nki.nests.axis_positions import At, Span
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.places import View, Where
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import Tile, collected, merged
from accelopt.kernels.nki.nests.values import Value

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.emission import Emitter


ALIKE = Axis("partition", 128)
"""Stands on partitions in the place of axes, where all partitions have the same."""


def of_one(where: Where) -> Where:
    """The place on one partition, of one that is the same on all."""
    return Where((), where.spans, where.order) if where.part == (ALIKE,) else where


class _Held(NamedTuple):
    """All of a definition: `lying` are the axes on partitions, with how many elements of each; parts of
    one that is longer follow one another, `step` elements apart. Of the others, what is read beyond their
    ends is there too: `ends` are how many elements before and after."""

    tile: Tile
    axes: tuple[Axis, ...]
    lying: dict[Axis, int]
    strides: dict[Axis, int]
    step: int
    ends: dict[Axis, tuple[int, int]]

    @property
    def lies(self) -> tuple[object, ...]:
        """All of this but for its name."""
        maps = (tuple(found.items()) for found in (self.lying, self.strides, self.ends))
        return (*self.tile[1:], self.step, *maps)

    @property
    def first(self) -> int:
        """The place of the first element, behind those before the ends."""
        return sum(low * self.strides[axis] for axis, (low, _) in self.ends.items())


class OnChip:
    """The definitions of one nest that stay on the chip."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.held: dict[str, _Held] = {}

    def lying(self, array: str) -> set[Axis]:
        """The axes of a definition that lie on partitions; none of one that is not there."""
        return set(self.held[array].lying) if array in self.held else set()

    def place(self, definition: Definition, where: Where) -> View:
        """Where a part of a definition stays."""
        name = definition.out
        if name not in self.held:
            self.held[name] = self._made(definition, where)
        found = self.held[name]
        if found.axes and found.lying and tuple(found.lying) != where.part:
            raise NotNested(f"{name} stays on the chip, and its parts lie there in two ways")
        offset = At(found.first)
        for axis in definition.axes:
            if axis in found.lying:
                offset = offset + self._round(found, axis, where) * found.step
            else:
                offset = offset + where.span(axis).start * found.strides[axis]
        axes = where.free(set(definition.axes))
        return View(found.tile, collected(offset), {a: found.strides[a] for a in axes})

    def _made(self, definition: Definition, where: Where) -> _Held:
        name, emitter = definition.out, self.emitter
        alike = where.part == (ALIKE,)
        if definition.axes and not alike and not set(where.part) <= set(definition.axes):
            raise NotNested(f"{name} is combined over partitions, and no part of it stays there")
        lying = {a: where.span(a).lanes for a in where.part if definition.axes and not alike}
        cut = [axis for axis, size in lying.items() if size < axis.extent]
        if len(cut) > 1 or any(axis.extent % lying[axis] for axis in cut):
            raise NotNested(f"{name} does not lie on partitions in equal parts of one axis")
        strides, step = dict[Axis, int](), 1
        found = emitter.ends_of(definition, where)
        ends = {axis: found[axis] for axis in found.keys() - lying.keys()}
        for axis in reversed([axis for axis in definition.axes if axis not in lying]):
            own = axis not in emitter.program
            strides[axis] = step if own else 0
            step *= axis.extent + sum(ends.get(axis, ())) if own else 1
        rounds = math.prod(axis.extent // lying[axis] for axis in cut)
        tile = Tile(emitter.names.new(name), where.rows, step * rounds, "float32")
        taken = 4 * sum(one.width for one in (tile, *self._read_later()))
        if taken > emitter.spec.sbuf_usable_bytes // 2:
            raise NotNested(f"{name} does not fit half of SBUF, with what stays there")
        held = _Held(tile, definition.axes, lying, strides, step, ends)
        with emitter.at(0):
            emitter.declare(tile)
            whole = Where(where.part, emitter.program, definition.axes)
            spans = {a: Span(At(-low), low + a.extent + high) for a, (low, high) in ends.items()}
            before = emitter.recurrences.begins(definition, where)
            for n in range(rounds if ends else 0):
                view = View(tile, At(n * step), strides)
                emitter.fill_ends(view, whole.within(spans), whole, [*reversed(strides)], before)
        return held

    def _read_later(self) -> Iterator[Tile]:
        """What stays for the present stage or later ones."""
        stages = self.emitter.nest.stages
        later = stages[stages.index(self.emitter.stage) :]
        read = {
            a for s in later for m in s.members for a in arrays_read(self.emitter.definitions[m])
        }
        return (found.tile for name, found in self.held.items() if name in read)

    def _round(self, found: _Held, axis: Axis, where: Where) -> At:
        """In which of its parts an axis is at a place. Raises NotNested where that is in none."""
        size, span = found.lying[axis], where.span(axis)
        start = collected(span.start)
        if start.constant % size or any(factor % size for _, factor in start.terms):
            raise NotNested(f"{found.tile.name} lies on partitions in other parts of {axis.name}")
        terms = tuple((name, factor // size) for name, factor in start.terms)
        return At(start.constant // size, terms)

    def read(self, value: Value, where: Where) -> View | None:
        """The elements of a definition that stays on the chip; None for another array. Raises NotNested
        where they do not lie as they are read."""
        found = self.held.get(value.array)
        if found is None:
            return None
        offset, strides, lying = At(found.first), dict[Axis, int](), dict[Axis, Axis]()
        if not found.axes and where.rows <= found.tile.partitions:
            return View(found.tile, offset, strides)  # the same on every partition
        alike = not found.lying and where.rows <= found.tile.partitions
        for axis, index in zip(found.axes, value.indices, strict=True):
            if axis not in found.lying:
                base, steps = self.emitter.affine(index, where)
                widths = {a: (where.span(a).width, s) for a, s in steps.items()}
                low, high = self.emitter.bounds(base, widths)
                before, after = found.ends.get(axis, (0, 0))
                if set(steps) & set(where.part) or low < -before or high >= axis.extent + after:
                    raise NotNested(f"{value.array} is read across the partitions that hold it")
                offset = offset + base * found.strides[axis]
                for other, step in steps.items():
                    strides[other] = strides.get(other, 0) + step * found.strides[axis]
                continue
            row = next((a for a in where.part if index == index_of(a)), None)
            if row is None and (moved := self._shifted(found, value, axis, where)):
                return moved
            span, most = where.span(row or axis), found.lying[axis]
            fits = span.lanes == most or (span.lanes < most and span.width < axis.extent)
            if row is None or not fits:
                raise NotNested(
                    f"{value.array} has {axis.name} on partitions, and is read elsewhere"
                )
            own = where.within({axis: where.span(row)})
            offset = offset + self._round(found, axis, own) * found.step
            lying[axis] = row
        rows = [lying[axis] for axis in found.lying]
        if not alike and [a for a in rows if where.span(a).width > 1] != [
            a for a in where.part if where.span(a).width > 1
        ]:
            raise NotNested(f"{value.array} lies on other partitions than those that read it")
        return View(found.tile, collected(offset), strides)

    def _shifted(self, found: _Held, value: Value, axis: Axis, where: Where) -> View | None:
        """What lies so many partitions after those that read it, brought there by a DMA, and zeros for those after
        the last; None where that is not all of it."""
        emitter, number = self.emitter, list(found.axes).index(axis)
        base, steps = emitter.affine(value.indices[number], where)
        after, own = base.constant, tuple(where.part)
        if (
            base.terms
            or own != tuple(found.lying)
            or steps != {axis: 1}
            or where.rows != axis.extent
        ):
            return None
        indices = tuple(index_of(axis) if n == number else i for n, i in enumerate(value.indices))
        held = self.read(replace(value, indices=indices), where)
        if held is None or not after:
            return held
        if abs(after) >= where.rows:
            return None
        axes = where.free(value.axes)
        target = emitter.new_tile(f"{value.array}_shifted", where, axes)
        emitter.fill(target.tile, "0", zeros=True)
        counts = [where.span(a).width for a in axes]
        sizes, (into, of) = merged(
            counts, [[view.strides[a] for a in axes] for view in (target, held)]
        )
        rows = where.rows - abs(after)
        dst, src = (
            emitter.text.inside(view.tile, rows, view.offset, sizes, own_steps, At(low))
            for view, own_steps, low in (
                (target, into, max(0, -after)), (held, of, max(0, after)),
            )
        )  # fmt: skip
        moved = rows * target.tile.width * 4
        emitter.put("", Form(emitter.transfer(dst, src), "dma", 0.0), moved=2 * moved)
        return target
