"""How the operands of a matrix product come to have the summed axis on partitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Definition, own_axes
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At, Span
from accelopt.kernels.nki.nests.hbm_margins import with_margins_read
from accelopt.kernels.nki.nests.hbm_reads import LITTLE, MOST_SHIFTED
from accelopt.kernels.nki.nests.instructions import is_one
from accelopt.kernels.nki.nests.nest import NotNested, TurnedInParts, Way
from accelopt.kernels.nki.nests.places import Round, View, Where, spans_of
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import Tile, collected, merged
from accelopt.kernels.nki.nests.tile_names import word_of
from accelopt.kernels.nki.nests.value_graphs import NARROW, Product, inputs_of
from accelopt.kernels.nki.nests.values import Value
from accelopt.kernels.nki.nests.windows import Windows, along_windows, own_windows, seen_by, spanned
from accelopt.sim.dtypes import parse

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.emission import Emitter

OPERAND_BYTES = 84 * 1024
"""Of a partition: an operand of a product that is kept whole."""
MOST_BETWEEN = 1.25
"""Times the elements of an operand that its rows may take with what lies between them."""
STARTS = 32, 64
"""Partitions of which as many others begin where engines reach them."""
SQUARE = 32
"""Rows and columns that the Vector engine transposes at once."""


class Operands:
    """How the operands of one product come to have the summed axis on partitions."""

    def __init__(
        self, emitter: Emitter, definition: Definition, found: Product, where: Where
    ) -> None:
        self.emitter = emitter
        self.definition = definition
        self.found = found
        self.pitched = dict[str, tuple[Axis, ...]]()
        laid = {axis for name in emitter.stage.members for axis in emitter.laid.get(name, ())}
        self.summed = max(found.contracted, key=lambda axis: (axis in laid, axis.extent))
        whole = min(emitter.spec.partitions, self.summed.extent)
        joined = {self.summed: 1 if self.summed in emitter.deciding else whole}
        if parts := dict(emitter.nest.contracted).get(definition.out):
            named = {axis.name: axis for axis in (*own_axes(definition), *found.contracted)}
            joined = {named[p.axis]: min(p.size, named[p.axis].extent) for p in parts}
            if decided := [a.name for a in joined if a in emitter.deciding]:
                raise NotNested(
                    f"{definition.out} is decided along {decided[0]} element by element"
                )
        self.lying = tuple(joined)
        self.heads = tuple(axis for axis in joined if axis not in found.contracted)
        """Axes of the result, of each of whose elements the operands of a product lie on partitions of their own."""
        self.where = where.within({axis: Span(At(), axis.extent) for axis in self.heads})
        self.others = [(axis, 1) for axis in found.contracted if axis not in joined]
        self.joined = list(joined.items())
        self.parts = [*self.others, *self.joined]
        self.size = math.prod(joined.values())
        self.within: Span | None = None
        self.rounds = math.prod(-(-axis.extent // size) for axis, size in self.parts)
        if self.heads:
            rows = math.prod(axis.extent for axis in found.contracted)
            whole = self.rounds == 1 and self.lying[: len(self.heads)] == self.heads
            if not whole or rows not in STARTS:
                raise NotNested(
                    f"{definition.out} sums over {rows} for each {self.heads[0].name}, not {STARTS}"
                )

    def whole(
        self, value: Value, own: tuple[Axis, ...], side: str, each: Callable[[Where, View], None]
    ) -> View | None:
        """An operand with all that is summed over, its summed axis on partitions, for who reads it beside
        the product; None where it does not fit."""
        value = self._with_margins(value)
        axes = self.own_axes(own, self.where)
        width = math.prod(self.where.span(axis).width for axis in axes)
        room = width * self.rounds * parse(self.found.dtype).itemsize
        cut = any(axis.extent > size for axis, size in self.joined) or self.heads
        if cut or room > OPERAND_BYTES or self.found.dtype != "float32":
            return None
        kept = self._kept(value, axes, self.where, "direct", side, each)
        counts = [axis.extent for axis, _ in self.others]
        strides = zip((axis for axis, _ in self.others), row_major(counts), strict=True)
        return View(kept.tile, kept.offset, {**kept.strides, **{a: s * width for a, s in strides}})

    @staticmethod
    def own_axes(own: Sequence[Axis], where: Where) -> tuple[Axis, ...]:
        """The axes of an operand that are more than one element in the loops around, then those that are
        in a place."""
        wide = [a for a in own if where.span(a).width > 1 or a in where.part]
        looped = [a for a in own if a not in wide and where.span(a).start.terms]
        return (*looped, *wide)

    def make(
        self, value: Value, own: tuple[Axis, ...], where: Where, side: str, moving: bool
    ) -> Callable[[Round, Where], View]:
        """A function that gives the operand in a round of the sum."""
        if not moving and (twin := self._twin(value, own, where, side)):
            return twin
        emitter, value = self.emitter, self._with_margins(value)
        taps = [axis for axis, _ in self.others]
        along, windows = along_windows(emitter.reading, value, own, taps)
        if windows:
            return self._in_windows(along, windows, own, where, side, moving)
        nest = emitter.nest
        if not any(self._on_chip(found) for found in inputs_of(value)):
            # Blocks that a mask empties elsewhere are brought, too: once for all rows.
            here = emitter.masks.keys() & set(self.found.contracted)
            where = replace(where, spans={a: s for a, s in where.spans.items() if a not in here})
        axes = self.own_axes(own, where)
        asked = nest.way(self.definition.out, side) if {*axes} - {*self.found.batch} else None
        single = tuple(axis for axis in axes if axis not in self.found.batch)
        way = asked or self._way(value, single, where)
        dtype = self.found.dtype
        size = parse(dtype).itemsize * self.rounds
        if value.kind == "constant":
            spans = {axis: Span(At(), size) for axis, size in self.parts}
            ones = emitter.view(value, Where(self.lying, spans, ()))
            if dtype != "float32":
                ones = emitter.converted(ones, Where((Axis("k", self.size),), {}, ()), (), dtype)
            return lambda k, place: ones
        padded = where.is_padded(axes)
        if way == "direct" and value.kind == "input" and self._on_chip(value) and not padded:
            there = {a: s for a, s in where.spans.items() if a not in self.found.contracted}
            whole = Where(self.lying, there, where.order)
            apart = bool(emitter.masks.keys() & set(self.found.contracted)) or (
                value.array in emitter.on_chip.held and value.array not in emitter.stage.members
            )
            if apart and dtype == "float32":
                return lambda k, place: emitter.view(
                    value, place.within({a: k.where.span(a) for a in self.found.contracted})
                )
            lies = emitter.view(value, whole) if not apart else None
            if lies and lies.tile.dtype == dtype:
                return lambda k, place: lies.moved(
                    Where(self.lying, {**place.spans, **{
                        a: k.where.span(a) for a in self.found.contracted}}, place.order), whole)  # fmt: skip
        base = None
        whole = where.within({a: Span(At(), a.extent) for a, _ in self.others})
        direct = way == "direct" and not padded
        if direct and self._by_batch(value, axes, replace(whole, part=self.lying)):
            return lambda k, place: self._once(value, axes, place, way, k)
        if (self.definition.out, side) not in nest.streamed:
            base = self._place(value, axes, where, size, side)
        elif not moving and size * math.prod(where.span(a).width for a in axes) <= OPERAND_BYTES:
            base = where
        if base is None:
            return lambda k, place: self._once(value, axes, place, way, k)
        depth = emitter.home(base.variables(value.axes - set(self.found.contracted)))
        with emitter.at(depth):
            kept = self._kept(value, axes, base, way, side)

        def given(k: Round, place: Where) -> View:
            view = kept.moved(place, base)
            step = base.lanes(axes)
            number = self.number(k.where, base)
            return View(view.tile, collected(view.offset + number * step), view.strides)

        return given

    def _twin(
        self, value: Value, own: tuple[Axis, ...], where: Where, side: str
    ) -> Callable[[Round, Where], View] | None:
        """What is stationary as a part of what moves, where the two are one and it is turned or computed, with what is
        the same for both sides; else None."""
        nest, name, both = self.emitter.nest, self.definition.out, ("left", "right")
        alike = self.found.alike and len({nest.way(name, s) for s in both}) == 1
        alike = alike and len({nest.memory(name, s) for s in both}) == 1
        alike = alike and len(own) == 1
        way = nest.way(name, side) or self._way(value, own, where)
        if not alike or not (way == "turned" or (way == "direct" and value.kind != "input")):
            return None
        left = side == "left"
        (row,), (column,) = own, self.found.columns if left else self.found.rows
        other = self.found.right if left else self.found.left

        def there(place: Where, span: Span) -> Where:
            spans = {axis: s for axis, s in place.spans.items() if axis not in (row, column)}
            return Where(place.part, {**spans, column: span}, place.order)

        whole = there(where, Span(At(), column.extent))
        moved = self.make(other, (column,), whole, "right" if left else "left", True)

        def given(k: Round, place: Where) -> View:
            view = moved(k, there(place, place.span(row)))
            strides = {row if axis == column else axis: s for axis, s in view.strides.items()}
            return View(view.tile, view.offset, strides)

        return given

    def _with_margins(self, value: Value) -> Value:
        """An operand without conditions that zeros around an array stand for."""
        emitter = self.emitter
        alone = emitter.alone[self.definition.out]
        return with_margins_read(emitter.reading, value, emitter.margins, alone)

    def _by_batch(self, value: Value, axes: Sequence[Axis], where: Where) -> bool:
        """Whether an array's elements are brought for all products of a batch at once."""
        if value.kind != "input" or self._on_chip(value) or value.dtype != self.found.dtype:
            return False
        batch, memory = set(self.found.batch), self.emitter.memory
        if batch & set(axes):
            each = math.prod(where.span(axis).width for axis in axes if axis not in batch)
            return self.size * self.rounds * each * parse(value.dtype).itemsize < LITTLE
        wide = memory.widened(self.emitter.arrays.get(value.array), value, where, True)
        return wide is not None and any(wide.span(a) != where.span(a) for a in batch)

    def _apart(self, value: Value, where: Where) -> set[Axis]:
        """The axes of a batch of which an operand is computed one by one: numbers differ along them, and what is
        computed with each is long."""
        free = where.free(value.axes)
        batch, rest = ({a for a in free if (a in self.found.batch) == of} for of in (True, False))
        counts = [math.prod(where.span(axis).width for axis in axes) for axes in (batch, rest)]
        known = self.emitter.known(value, where)
        one = is_one(inputs_of(value), batch, rest, (counts[0], counts[1]), self.emitter.spec)
        return set() if known or one else batch

    def number(self, where: Where, base: Where) -> At:
        """Which of the rounds of the sum a place is in, of those that begin in another."""
        number = At()
        for axis, size in self.parts:
            start = collected(where.span(axis).start + base.span(axis).start * -1)
            terms = tuple((name, factor // size) for name, factor in start.terms)
            rounds = -(-base.span(axis).width // size)
            number = number * rounds + At(start.constant // size, terms)
        return collected(number)

    def _on_chip(self, value: Value) -> bool:
        """Whether the elements of an array are there before a product reads them."""
        return value.array in {*self.emitter.stage.members, *self.emitter.on_chip.held}

    def _in_windows(
        self, value: Value, windows: Windows, own: tuple[Axis, ...], where: Where, side: str,
        moving: bool,
    ) -> Callable[[Round, Where], View]:  # fmt: skip
        """`make` of an operand along windows, of which each tap is another part."""
        taps = [axis for window in windows.values() for axis in window.axes if axis not in own]
        left = tuple(axis for axis in self.found.contracted if axis not in taps)
        one = Operands(self.emitter, self.definition, self.found._replace(contracted=left), where)
        made = one.make(
            value, own_windows(windows, own), spanned(windows, where, taps), side, moving
        )

        def given(k: Round, place: Where) -> View:
            whole = made(k, spanned(windows, place, taps))
            return seen_by(windows, whole, k.where, taps)

        return given

    def _key(
        self, value: Value, axes: tuple[Axis, ...], where: Where, way: Way
    ) -> tuple[object, ...]:
        spans = spans_of(where, (*axes, *value.axes))
        return "operand", value, axes, spans, way, tuple(self.parts), self.found.dtype

    def _place(
        self, value: Value, axes: tuple[Axis, ...], where: Where, size: int, side: str
    ) -> Where | None:
        """Where an operand is, for the outermost of the open loops for which all of it that is needed
        in the loop fits: `size` bytes for each element of its own axes. What is made of members of
        the stage is there in their round alone. None where it does not even fit for the innermost."""
        emitter = self.emitter
        made = any(found.array in emitter.stage.members for found in inputs_of(value))
        most = OPERAND_BYTES
        if (self.definition.out, side) in emitter.nest.resident:
            most = emitter.spec.sbuf_usable_bytes
        fixed = where.variables(value.axes - set(axes) - set(self.found.contracted))
        lowest = emitter.home(fixed)
        for depth, block in enumerate(emitter.blocks[lowest:] if not made else (), lowest):
            spans = {a: block.spans.get(a) or Span(At(), a.extent) for a in axes}
            spans |= {a: where.span(a) for a in axes if a in where.part and a not in block.spans}
            if emitter.home(where.within(spans).variables({*axes})) > depth:
                continue  # in loops further inside, which are in loops over what this would hold
            if size * math.prod(span.lanes for span in spans.values()) <= most:
                return where.within(spans)
        return where if size * where.lanes(axes) <= most else None

    def _way(self, value: Value, axes: tuple[Axis, ...], where: Where) -> Way:
        """Turned where what is read lies on the chip with other axes on partitions, or in memory
        along the summed axis."""
        emitter = self.emitter
        for found in inputs_of(value):
            along = set(self.found.contracted) & {
                axis for index in found.indices for axis in index.axes
            }
            apart = {axis.name for axis in along} - {part.axis for part in emitter.stage.partition}
            if found.array in emitter.stage.members and (axes or apart):
                rows = {part.axis for part in emitter.stage.partition}
                if found.array in emitter.laid:
                    rows = {axis.name for axis in emitter.laid[found.array]}
                return "direct" if {axis.name for axis in self.lying} <= rows else "turned"
        for found in inputs_of(value):
            if found.array in emitter.on_chip.held and axes:
                lying = emitter.on_chip.lying(found.array)
                own = zip(emitter.definitions[found.array].axes, found.indices, strict=True)
                there = {a for axis, index in own if axis in lying for a in index.axes}
                return "direct" if set(self.lying) <= there else "turned"
        if not axes:
            return "direct"
        for found in inputs_of(value):
            beside = {a for i in found.indices[-1:] for a, step in i.terms if step == 1}
            if beside & {*self.lying} and not beside & {*axes} and found.axes & {*axes}:
                return "turned"
        return "direct"

    def _kept(
        self, value: Value, axes: tuple[Axis, ...], where: Where, way: Way, side: str,
        each: Callable[[Where, View], None] | None = None,
    ) -> View:  # fmt: skip
        """All rounds of an operand, one after the other in one tile; `each` is done with each of them."""
        emitter = self.emitter
        key = self._key(value, axes, where, way)
        for block in emitter.blocks:
            if key in block.values:
                return block.values[key]
        pitches = self._pitches(value, axes, where) if way == "direct" else {}
        tile, strides = self._new_kept(value, axes, where, way, pitches)
        self._fill_rounds(value, axes, where, way, View(tile, At(), strides), each)
        view = View(tile, At(), strides)
        emitter.blocks[-1].values[key] = view
        return view

    def _new_kept(
        self, value: Value, axes: tuple[Axis, ...], where: Where, way: Way,
        pitches: dict[Axis, int] | None = None,
    ) -> tuple[Tile, dict[Axis, int]]:  # fmt: skip
        """A tile for all rounds of an operand, and the strides of its axes in a round."""
        sizes = [where.span(axis).lanes for axis in axes]
        name = self.emitter.names.new(f"{word_of(value)}_kept")
        width = math.prod(sizes) * self.rounds
        strides = dict(zip(axes, row_major(sizes), strict=True))
        if pitches:
            self.pitched[name] = tuple(pitches)
            outer = [axis for axis in axes if axis not in pitches]
            first = axes[len(outer)]
            width = where.span(first).width * pitches[first]
            own = row_major([*(where.span(axis).width for axis in outer), width])
            strides = {**dict(zip(outer, own, strict=False)), **pitches}
            width *= math.prod(where.span(axis).width for axis in outer)
        tile = Tile(name, self.size, width, self.found.dtype)
        self.emitter.declare(tile)
        if way == "direct" and where.is_padded(axes):
            self.emitter.fill(tile, "0", zeros=True)
        return tile, strides

    def _pitches(self, value: Value, axes: tuple[Axis, ...], where: Where) -> dict[Axis, int]:
        """Strides as in memory, for an operand of one round, of its last axes: with what lies between rows these are
        one run of elements. None where they are one without, or where that is much."""
        emitter = self.emitter
        loads = (
            value.kind == "input" and not self._on_chip(value) and value.dtype == self.found.dtype
        )
        loads = loads and not where.is_padded(axes)
        if self.rounds > 1 or not loads or len(axes) < 2:
            return {}
        value = emitter.memory.stored(value)
        if value.array in emitter.memory.unmade:
            return {}
        _, steps = emitter.memory.address(emitter.arrays[value.array], value.indices, where)
        found, last, exact = dict[Axis, int](), 1, 1
        for axis in reversed(axes):
            step, width = steps.get(axis, 0), where.span(axis).width
            if (
                step < last
                or step * width > MOST_BETWEEN * exact * width
                or not (found or step == 1)
            ):
                break
            found, last, exact = {axis: step, **found}, step * width, exact * width
        return found if last > exact else {}

    def _fill_rounds(
        self, value: Value, axes: tuple[Axis, ...], where: Where, way: Way, kept: View,
        each: Callable[[Where, View], None] | None = None, span: Span | None = None,
    ) -> None:  # fmt: skip
        """Brings all rounds of an operand into its tile, or those in a `span` of the summed axis."""
        emitter = self.emitter
        if way == "direct" and not each and not span and self._at_once(value, axes, where, kept):
            return
        if (
            way == "direct"
            and not each
            and not span
            and self._computed_at_once(value, axes, where, kept)
        ):
            return
        width = where.lanes(axes)
        extent = span.width if span else self.summed.extent
        group, outer = 1, list[tuple[Axis, int]]()
        if way != "direct" and axes:
            # What is read lies with its own axes on partitions, all of the summed axis beside it.
            lying, rest = self._lying(axes, where)
            outer = [(axis, 1) for axis in rest]
            aside = not set(lying) <= set(self.where.part)
            alike = len(self.lying) == 1 and self.summed not in emitter.deciding
            if aside and self.rounds > 1:
                outer.append((lying[0], self.emitter.spec.partitions))
            if (self.rounds > 1 or not aside) and alike:
                rows = math.prod(min(where.span(a).lanes, 128) for a in lying)
                group = self.grouped(extent, self.size, rows)
            if way == "turned" and (not aside or self._narrow(lying, where)):
                outer = self._beside(value, rest, where, lying, group)
        spans = {**where.spans, self.summed: span} if span else where.spans
        start = Where(self.lying, spans, ())
        whole = Where(self.lying, where.spans, ())

        def part(row: Round) -> None:
            def fill(k: Round) -> None:
                at = collected(self.number(k.where, whole) * width)
                into = View(kept.tile, at, kept.strides).moved(row.where, start)
                place = Where(self.lying, {**row.where.spans, **{
                    a: k.where.span(a) for a in self.found.contracted}}, where.order)  # fmt: skip
                self._fill(value, axes, place, way, into, width)
                if each:
                    each(place, View(into.tile, into.offset, kept.strides))

            parts = [*self.parts[:-1], (self.parts[-1][0], self.parts[-1][1] * group)]
            emitter.each(row.where, parts, fill)

        copied = emitter.copied
        emitter.copied = copied | self._shifted(value)
        emitter.each(start, outer, part)
        emitter.copied = copied

    def _shifted(self, value: Value) -> set[Axis]:
        """Summed axes of whose few rounds each has zeros elsewhere around what is read."""
        few = math.prod(-(-a.extent // size) for a, size in self.parts) <= MOST_SHIFTED
        return {a for a, _ in self.parts if few and self.emitter.memory.is_shifted(value, a)}

    def _at_once(self, value: Value, axes: tuple[Axis, ...], where: Where, kept: View) -> bool:
        """Brings all rounds of an operand with one DMA, where that is not much and no condition cuts them."""
        emitter, dtype = self.emitter, self.found.dtype
        number = where.lanes(axes)
        loads = value.kind == "input" and not self._on_chip(value) and value.dtype == dtype
        decided = {*emitter.deciding, *emitter.masks, *self._shifted(value)}
        even = all(a.extent % size == 0 and a not in decided for a, size in self.parts)
        much = self.size * number * self.rounds * parse(dtype).itemsize > LITTLE
        if self.rounds == 1 or not loads or not even or much:
            return False
        rounds = list[tuple[Axis, int, int, int]]()
        for axis, size in reversed(self.parts):
            rounds.append((axis, axis.extent // size, size, number))
            number *= axis.extent // size
        first = {axis: Span(At(), size) for axis, size in self.parts}
        place = Where(self.lying, {**where.spans, **first}, where.order)
        own = {axis: kept.strides[axis] for axis in place.free(set(axes))}
        return emitter.memory.load_into(value, place, View(kept.tile, At(), own), rounds)

    def _computed_at_once(
        self, value: Value, axes: tuple[Axis, ...], where: Where, kept: View
    ) -> bool:
        """Computes an operand for several rounds of the sum by one instruction, where these lie beside each other
        on a partition and no condition cuts them."""
        emitter, others = self.emitter, [axis for axis, _ in self.others]
        decided = {*emitter.deciding, *emitter.masks}
        loads = value.kind == "input" and not self._on_chip(value)
        if loads or not others or decided & {*others, *axes, *self.lying}:
            return False
        width = where.lanes(axes)
        start = Where(self.lying, where.spans, ())
        steps = row_major([axis.extent for axis in others])
        apart = width * emitter.rounds(start, self.joined)

        def fill(k: Round) -> None:
            here = {axis: k.where.span(axis) for axis in self.lying}
            spot = Where(self.lying, {**where.spans, **here}, (*others, *axes))
            own = spot.free({*others, *axes})
            strides = {axis: step * apart for axis, step in zip(others, steps, strict=True)}
            strides = {axis: {**kept.strides, **strides}[axis] for axis in own}
            view = View(kept.tile, collected(k.number * width), strides)
            self._write(value, spot, own, view)

        emitter.each(start, self.joined, fill)
        return True

    def _write(self, value: Value, where: Where, own: Sequence[Axis], view: View) -> None:
        """Computes an operand into its place, each part of its own axes in which no condition changes by itself:
        what is an array's is brought there, a number is filled in."""
        emitter = self.emitter
        cut = emitter.parts[self.definition.out].keys() & value.axes
        parts = [axis for axis in own if axis in cut and where.span(axis).width > 1]

        def part(place: Where) -> None:
            found, into = emitter.decided(value, place), view.moved(place, where)
            axes = place.free({*own})
            into = View(into.tile, into.offset, {axis: into.strides[axis] for axis in axes})
            if parts and found.kind == "constant":
                sizes, steps = merged(
                    [place.span(a).width for a in axes], [[into.strides[a] for a in axes]]
                )
                emitter.fill(into.tile, str(found.constant), sizes, steps[0], into.offset)
                return
            loads = parts and found.kind == "input" and not self._on_chip(found)
            if (
                loads
                and found.dtype == into.tile.dtype
                and emitter.memory.load_into(found, place, into)
            ):
                return
            apart = [axis for axis in axes if axis in self._apart(value, place)]
            rest = [axis for axis in axes if axis not in apart]
            emitter.each(
                place,
                [*((axis, 1) for axis in apart), *emitter.cut(place, rest, emitter.stage.columns)],
                lambda r: emitter.into(value, r.where, view.moved(r.where, where)),
            )

        def pieces(place: Where, left: Sequence[Axis]) -> None:
            if not left:
                part(place)
                return
            axis, span = left[0], place.span(left[0])
            if span.start.terms:
                raise NotNested(
                    f"{self.definition.out} is cut along {axis.name}, where conditions change"
                )
            ends = (n for n in emitter.parts[self.definition.out][axis] if n > span.start.constant)
            last = span.start.constant + span.width
            cuts = [span.start.constant, *(n for n in ends if n < last), last]
            for start, end in itertools.pairwise(cuts):
                pieces(place.within({axis: Span(At(start), end - start)}), left[1:])

        pieces(where, parts)

    def begin_rounds(self) -> Callable[[Span], None]:
        """A place for the operand that members of the stage make, for all rounds of a loop along the summed
        axis, and a function that fills the part of one. Raises NotNested."""
        name, members = self.definition.out, set(self.emitter.stage.members)
        sides: dict[str, tuple[Value, tuple[Axis, ...]]] = {
            "left": (self.found.left, self.found.rows),
            "right": (self.found.right, self.found.columns),
        }
        made = [s for s, (v, _) in sides.items() if {i.array for i in inputs_of(v)} & members]
        if len(made) != 1 or len(self.parts) > 1:
            raise NotNested(f"{name} runs over {self.summed.name}, which its stage takes in parts")
        (side,) = made
        value, own = self._with_margins(sides[side][0]), sides[side][1]
        axes = self.own_axes(own, self.where)
        way = self.emitter.nest.way(name, side) or self._way(value, axes, self.where)
        tile, strides = self._new_kept(value, axes, self.where, way)
        kept = View(tile, At(), strides)
        self.emitter.blocks[-1].values[self._key(value, axes, self.where, way)] = kept

        def fill(span: Span) -> None:
            if span.width % self.size or any(f % self.size for _, f in span.start.terms):
                raise NotNested(f"{name} takes {self.summed.name} in rounds of {self.size}")
            self.within = span
            self._fill_rounds(value, axes, self.where, way, kept, span=span)
            self.within = None

        return fill

    def _once(self, value: Value, axes: tuple[Axis, ...], place: Where, way: Way, k: Round) -> View:
        """An operand for one round of the sum."""
        emitter = self.emitter
        depth = emitter.home(place.variables(value.axes | set(axes)))
        key = ("once", value, axes, spans_of(place, (*axes, *value.axes)), way)
        for block in emitter.blocks:
            if key in block.values:
                return block.values[key]
        with emitter.at(depth):
            spot = Where(self.lying, place.spans, place.order)
            if way == "direct" and not place.is_padded(axes):
                view = emitter.view(value, spot)
                if view.tile.dtype != self.found.dtype:
                    view = emitter.converted(view, spot, spot.free(value.axes), self.found.dtype)
            else:
                strides, width = {}, 1
                for axis in reversed(axes):
                    strides[axis] = width
                    width *= place.span(axis).lanes
                name = emitter.names.new(word_of(value))
                tile = Tile(name, spot.rows, width, self.found.dtype)
                emitter.declare(tile)
                if way == "direct":
                    emitter.fill(tile, "0", zeros=True)
                view = View(tile, At(), strides)
                self._fill(value, axes, spot, way, view, width)
            emitter.blocks[-1].values[key] = view
        return view

    def _fill(
        self, value: Value, axes: tuple[Axis, ...], place: Where, way: Way, into: View,
        step: int,
    ) -> None:  # fmt: skip
        """Rounds of an operand, which are `step` elements apart, into their place."""
        emitter = self.emitter
        if way == "direct":
            own = place.free(set(axes))
            view = View(into.tile, into.offset, {a: into.strides[a] for a in own})
            loads = value.kind == "input" and not self._on_chip(value)
            if (
                loads
                and value.dtype == into.tile.dtype
                and emitter.memory.load_into(
                    value, place, view, run=self.pitched.get(into.tile.name, ())
                )
            ):
                return
            self._write(value, Where(self.lying, place.spans, own), own, view)
            return
        lying, rest = self._lying(axes, place)
        turning = _Turning(self, value, place, into, step, lying, tuple(rest))
        parts = [(a, 1) for a in rest]
        if way == "squares":
            turning.check_rows()
            emitter.each(place, [*parts, *self.joined], turning.squares)
        elif turning.aside and not self._narrow(lying, place):
            group = self.grouped(place.span(lying[0]).width, 128, 128) * 128
            emitter.each(place, [*parts, (lying[0], group)], turning.turned)
        else:
            rounds = math.prod(-(-place.span(a).width // n) for a, n in self.joined)
            emitter.each(place, self._beside(value, rest, place, lying, rounds), turning.turned)

    def _beside(
        self, value: Value, rest: Sequence[Axis], where: Where, lying: Sequence[Axis], rounds: int
    ) -> list[tuple[Axis, int]]:
        """Parts of other axes of an operand that is computed whose transposes, of so many rounds, a bank of PSUM
        holds. Of one that is brought, the first is worked on before the last is there."""
        alone = self._apart(value, Where(self.lying, where.spans, ()))
        if value.kind == "input":
            alone = set(rest) - set(self.found.batch)
        rows = math.prod(min(where.span(a).lanes, 128) for a in lying)
        room = max(self.emitter.spec.psum_bank_bytes // 4 // (rows * rounds), 1)
        parts = list[tuple[Axis, int]]()
        for axis in reversed(rest):
            width = where.span(axis).width
            fits = axis not in {*self.emitter.deciding, *self.emitter.masks, *alone}
            size = (
                max(n for n in range(1, width + 1) if width % n == 0 and n <= room) if fits else 1
            )
            room = room // size if size == width else 1
            parts.insert(0, (axis, size))
        return parts

    def _narrow(self, lying: Sequence[Axis], place: Where) -> bool:
        """Whether one transpose takes all of an operand that lies on partitions before."""
        return place.lanes(lying) <= self.emitter.spec.partitions

    def _lying(self, axes: tuple[Axis, ...], place: Where) -> tuple[tuple[Axis, ...], list[Axis]]:
        """Of an operand that is turned: what lies on partitions before, and its other axes."""
        lying = tuple(a for a in axes if a in self.where.part)
        if not lying and axes:
            most, own = self.emitter.spec.partitions, set(axes) - set(self.found.batch)
            widest = [axis for axis in reversed(axes) if axis in own or not own]
            lying = (max(widest, key=lambda axis: min(place.span(axis).width, most)),)
        return lying, [a for a in axes if a not in lying and place.span(a).width > 1]

    def grouped(self, width: int, size: int, rows: int) -> int:
        """How many transposes, each of `size` along an axis of `width`, a bank of PSUM holds."""
        if width <= size or width % size:
            return 1
        most = self.emitter.spec.psum_bank_bytes // 4 // rows
        return max(n for n in range(1, max(most, 1) + 1) if (width // size) % n == 0)


class _Turning(NamedTuple):
    """An operand that is computed with its own axes on partitions, those that are `lying`, and transposed
    into its place, where rounds of the sum are `step` elements apart; `rest` are its other axes."""

    operands: Operands
    value: Value
    place: Where
    into: View
    step: int
    lying: tuple[Axis, ...]
    rest: tuple[Axis, ...]

    @property
    def emitter(self) -> Emitter:
        """Who writes."""
        return self.operands.emitter

    @property
    def joined(self) -> list[tuple[Axis, int]]:
        """The axes that are to lie on partitions, with how much of each in a round of the sum."""
        return self.operands.joined

    def width(self, where: Where) -> int:
        """Elements of a place along those."""
        return math.prod(min(where.span(axis).width, size) for axis, size in self.joined)

    @property
    def aside(self) -> bool:
        """Whether what lies on partitions does not do so in the result, and may be more than they are."""
        return bool(self.lying) and self.lying[0] not in self.operands.where.part

    def check_rows(self) -> None:
        """Raises NotNested for an operand whose rows do not follow one another."""
        rows = row_major([self.place.span(a).lanes for a in self.lying])
        apart = any(self.into.strides[a] != n for a, n in zip(self.lying, rows, strict=True))
        if apart or not set(self.lying) <= set(self.operands.where.part):
            raise NotNested(f"an operand of {self.operands.definition.out} is not one run of rows")

    def target(self, spot: Where) -> At:
        """Where a part of the operand begins in its place."""
        offset = self.into.offset
        for axis in (*self.lying, *self.rest):
            moved = spot.span(axis).start + self.place.span(axis).start * -1
            offset = collected(offset + moved * self.into.strides.get(axis, 0))
        return offset

    def whole(self, spot: Where) -> tuple[View, Where]:
        """What a part is turned from: computed for all that is summed at once, where that is not too long, else
        for the rounds that are filled together. Raises NotNested where conditions change in it."""
        out = self.operands.definition.out
        if self.emitter.parts[out].keys() & self.value.axes:
            raise TurnedInParts(f"an operand of {out} is turned, and differs along its own axes")
        summed = [axis for axis, _ in self.operands.parts]
        short = math.prod(axis.extent for axis in summed) <= self.emitter.stage.columns
        place = self.operands.where if short and not self.operands.within else self.place
        decided = self.emitter.deciding
        wide = {axis: (self.place if axis in decided else place).span(axis) for axis in summed}
        source = Where(self.lying, {**spot.spans, **wide}, (*self.rest, *wide))
        view = self.emitter.view(self.value, source)
        for axis, _ in self.joined:
            if axis not in view.strides and wide[axis].width > 1:
                raise NotNested(f"an operand of {self.operands.definition.out} lacks {axis.name}")
        return view, source

    def step_of(self, view: View, spot: Where) -> int | None:
        """How far the elements of a part that is turned are apart; None where it must be copied first."""
        counts = [spot.span(axis).width for axis, _ in self.joined]
        steps = merged(counts, [[view.strides.get(axis, 0) for axis, _ in self.joined]])[1][0]
        plain = len(steps) == 1 and view.tile.dtype in ("float32", *NARROW)
        return steps[0] if plain and not view.tile.psum else None

    def source(self, spot: Where, of: Where) -> tuple[View, int]:
        """Where a part `of` what is turned together lies before, one run of elements, and how far these are apart."""
        view, source = self.whole(of)
        lying = Where(self.lying, spot.spans, source.order)
        view, axes = view.moved(spot, source), lying.free(self.value.axes)
        step = self.step_of(view, spot)
        if step is None:
            view = self.emitter.converted(view, lying, axes, self.operands.found.dtype)
            step = 1
        return view, step

    def turn(self, spot: Where, of: Where, psum: View) -> None:
        """One transpose by the Tensor engine."""
        view, step = self.source(spot, of)
        rows = spot.lanes(self.lying)
        self.emitter.transpose(psum, view, (rows, self.width(spot)), step)

    def squares(self, round_: Round) -> None:
        """Transposes of squares by the Vector engine, straight into the operand."""
        spot = round_.where
        view, along = self.source(spot, spot)
        width, rows = self.width(spot), spot.lanes(self.lying)
        if view.tile.dtype != self.into.tile.dtype or rows % SQUARE or width % SQUARE or along != 1:
            raise NotNested(
                f"an operand of {self.operands.definition.out} is not made of squares of {SQUARE}"
            )
        target = self.target(spot) + round_.number * self.step
        with (
            self.emitter.loop("i_row", rows // SQUARE) as i,
            self.emitter.loop("i_square", width // SQUARE) as j,
        ):
            dst = self.emitter.text.inside(
                self.into.tile, SQUARE, target + i * SQUARE, [SQUARE], [1], j * SQUARE
            )
            data = self.emitter.text.inside(
                view.tile, SQUARE, view.offset + j * SQUARE, [SQUARE], [1], i * SQUARE
            )
            call = self.emitter.text.call(
                dst, "nc_transpose", f"data={data}, engine=nisa.vector_engine"
            )
            self.emitter.put("", Form(call, "vector", self.emitter.vector_ns(SQUARE)))

    def turned(self, round_: Round) -> None:
        """Transposes beside each other in PSUM, and one copy of all of them."""
        spot = round_.where
        rows = math.prod(min(spot.span(a).lanes, 128) for a in self.lying)
        parts = list(self.joined)
        wide = self.aside and spot.span(self.lying[0]).width > 128
        parts += [(self.lying[0], 128)] if wide else []
        rest = [axis for axis in self.rest if spot.span(axis).width > 1]
        parts += [(axis, 1) for axis in rest]
        count = math.prod(-(-spot.span(a).width // n) for a, n in parts)
        dtype = self.value.dtype if self.value.dtype in NARROW else "float32"
        if not wide:
            raw, _ = self.whole(spot)
            copied = self.step_of(raw, spot) is None
            dtype = self.operands.found.dtype if copied else raw.tile.dtype
        name = self.emitter.names.new("turned")
        psum = Tile(name, self.operands.size, count * rows, dtype, psum=True)
        self.emitter.declare(psum)
        self.emitter.each(spot, parts, lambda r: self.turn(
            r.where, r.where if wide else spot, View(psum, collected(r.number * rows), {})))  # fmt: skip
        # Rounds of the sum follow one another, in PSUM as in the operand.
        aim = (*rest, *self.lying)
        widths = [spot.span(a).lanes for a in aim]
        beside = math.prod(widths[: len(rest)])
        rounds = Axis("round", count // beside) if not wide else None
        strides = dict(zip(aim, row_major(widths), strict=True))
        own = {a: self.into.strides[a] for a in aim}
        spans = {a: Span(spot.span(a).start, spot.span(a).lanes) for a in aim}
        if rounds:
            aim, strides[rounds] = (rounds, *aim), beside * rows
            own[rounds] = self.step
        where = Where((Axis("k", self.width(self.place)),), spans, aim)
        self.emitter.copy(
            where, aim, View(self.into.tile, self.target(spot), own), View(psum, At(), strides)
        )
