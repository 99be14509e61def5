"""What is combined over what lies on partitions: sums by products with ones, the largest by transposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Definition, own_axes
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At
from accelopt.kernels.nki.nests.matmul_operands import Operands
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.on_chip import ALIKE, of_one
from accelopt.kernels.nki.nests.places import Local, Round, View, Where, spans_of
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import Tile, merged
from accelopt.kernels.nki.nests.tile_names import word_of
from accelopt.kernels.nki.nests.value_graphs import inputs_of
from accelopt.kernels.nki.nests.values import Value

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.emission import Emitter

CARRIED_BANKS = 6
"""Of PSUM, that sums over all of a stage may take."""
NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -3.4028235e38, "minimum": 3.4028235e38}


class Partitions:
    """Combinations over partitions in one nest."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def as_operand(self, value: Value, each: Callable[[Where, View], None]) -> View | None:
        """A value as an operand that a later product of the stage keeps, made now: `each` is done with each
        part that is made. None where no product does."""
        for name in self.emitter.stage.members:
            found = self.emitter.reading.meanings[name].product
            if found is None or value not in (found.left, found.right):
                continue
            side = "left" if value is found.left else "right"
            definition = self.emitter.definitions[name]
            own = own_axes(definition)
            spans = {**self.emitter.round, **self.emitter.blocks[-1].spans}
            spans = {axis: span for axis, span in spans.items() if axis in own}
            where = Where(self.emitter.laid.get(name, ()), spans, own)
            where = self.emitter.clipped(where, own)
            operands = Operands(self.emitter, definition, found, where)
            if self.emitter.nest.way(name, side) == "direct":
                own = found.rows if side == "left" else found.columns
                return operands.whole(value, own, side, each)
        return None

    def across(self, value: Value, where: Where, into: View | None) -> View:
        """What is combined over what lies on partitions, on each of them: sums by a product with ones,
        the largest by transposes, there and back."""
        lying = [axis for axis in where.part if where.span(axis).width > 1]
        stays = next((axis.name for axis in lying if axis not in value.reduced), None)
        if stays or value.function not in ("add", "maximum", "minimum"):
            what = f"lies beside {stays}" if stays else "is on partitions"
            raise NotNested(f"a {value.function} runs over what {what}")
        axes = where.free(value.axes)
        source = self.on_each(value, where)
        target = into or self.emitter.new_tile(word_of(value), where, axes)
        place = Where(where.part, where.spans, axes)
        sums = value.function == "add"
        combine = self.summed_across if sums else self.largest_across

        def part(round_: Round) -> None:
            spot = round_.where
            aim = target.moved(spot, where)
            found = combine(value, spot, axes, source.moved(spot, where), aim)
            if found is not aim:
                self.emitter.copy(spot, axes, aim, found)

        bank = self.emitter.spec.psum_bank_bytes // 4
        self.emitter.each(
            place,
            self.emitter.cut(place, axes, bank if sums else self.emitter.spec.partitions),
            part,
        )
        return target

    def on_each(self, value: Value, where: Where) -> View:
        """What is combined over partitions, on each of them combined already, in SBUF."""
        inner = tuple(a for a in value.reduced if a not in where.part and where.span(a).width > 1)
        (data,) = value.arguments
        source = self.running(value, where, inner) if inner else self.emitter.view(data, where)
        if not source.tile.psum and source.tile.dtype == "float32":
            return source
        return self.emitter.converted(source, where, where.free(value.axes), "float32")

    def is_short(self, value: Value, where: Where, inner: Sequence[Axis]) -> bool:
        """Whether so little stays of what is combined on a partition that adding it up, tile by tile, takes longer
        than instructions that combine many; not of what is made for a product anyway."""
        emitter, columns = self.emitter, self.emitter.stage.columns
        products = (emitter.reading.meanings[name].product for name in emitter.stage.members)
        if any(found and value.arguments[0] in (found.left, found.right) for found in products):
            return False
        kept = math.prod(where.span(axis).width for axis in where.free(value.axes))
        added = math.prod(where.span(axis).width for axis in inner)
        together = -(-kept * added // columns) * emitter.vector_ns(min(columns, kept * added))
        return together < added * emitter.vector_ns(min(columns, kept))

    def to_rows(self, definition: Definition, where: Where, reader: Where) -> bool:
        """What is combined over what lies on partitions, for a reader that has an axis of the result there:
        sums by products with a column of ones, the largest of transposes. False where that is no such."""
        emitter, value = self.emitter, self.emitter.reading.meanings[definition.out].value
        if value is None or value.kind != "reduce":
            return False
        elsewhere = len(reader.part) == 1 and set(reader.part) <= value.axes - set(where.part)
        across = bool(where.part) and set(where.part) <= set(value.reduced)
        known = value.function in ("add", "maximum", "minimum") and not emitter.is_stored(
            definition
        )
        if not across or not elsewhere or not known:
            return False
        (row,), source = reader.part, self.on_each(value, where)
        others = tuple(axis for axis in where.free(value.axes) if axis != row)
        lying = Where((row,), where.spans, others)
        sums = value.function == "add"
        word = f"{definition.out}_sums" if sums else definition.out
        target = emitter.new_tile(word, lying, others, sums=sums)

        def one(round_: Round) -> None:
            spot = round_.where
            view, aim = source.moved(spot, where), target.moved(spot, lying)
            text = emitter.text.inside(source.tile, where.rows, view.offset, [spot.rows],
                                       [view.strides[row]])  # fmt: skip
            if sums:
                call = emitter.text.product(emitter.column(aim, spot.rows), text,
                                            f"{emitter.ones(where.rows, 1, 'float32')}[...]")  # fmt: skip
                emitter.put("", Form(call, "tensor", emitter.spec.matmul_ns(1, where.rows)))
                return
            shape = where.rows, spot.rows
            self.largest(value.function, definition.out, aim, view, shape, view.strides[row])

        emitter.each(lying, [(axis, 1) for axis in others], one)
        if sums:
            held = emitter.new_tile(definition.out, lying, others)
            emitter.copy(lying, others, held, target)
            target = held
        found = emitter.blocks[-1].locals.setdefault(definition.out, [])
        found.append(Local(target, lying, definition.axes))
        return True

    def largest(
        self, function: str, word: str, into: View, source: View, shape: tuple[int, int], step: int
    ) -> None:  # fmt: skip
        """The largest or least over partitions of elements that are `step` apart, one a partition; `shape`
        is how many partitions and elements."""
        turned = Tile(self.emitter.names.new(f"{word}_turned"), shape[1], shape[0], psum=True)
        self.emitter.declare(turned)
        self.emitter.transpose(View(turned, At(), {}), source, shape, step)
        self.emitter.reduced(function, shape[1], into, View(turned, At(), {}), [shape[0]], [1])

    def running(self, value: Value, where: Where, inner: Sequence[Axis]) -> View:
        """What is combined over axes that do not lie on partitions, element by element: as what is
        combined is made where that is made for a later product, else afterwards."""
        (data,) = value.arguments
        key = ("running", value, where.part, spans_of(where, tuple(value.axes)))
        for block in self.emitter.blocks:
            if key in block.values:
                return block.values[key]
        if self.is_short(value, where, inner):
            part = self.emitter.reading.builder.value(
                "reduce", data.axes - set(inner), arguments=(data,), function=value.function,
                reduced=tuple(inner),
            )  # fmt: skip
            found = self.emitter.blocks[-1].values[key] = self.emitter.reduce(part, where)
            return found
        total, add = self.begin_running(value, where)
        saved, self.emitter.sequential = self.emitter.sequential, True
        made: list[Where] = []

        def each(spot: Where, view: View) -> None:
            made.append(spot)
            add(spot, view)

        whole = self.as_operand(data, each)
        if not made:

            def one(round_: Round) -> None:
                spot = round_.where
                add(spot, whole.moved(spot, where) if whole else self.emitter.view(data, spot))

            most = self.emitter.cut(where, where.free(value.axes), self.emitter.stage.columns)
            self.emitter.each(where, [*((axis, 1) for axis in inner), *most], one)
        self.emitter.sequential = saved
        return total

    def begin_running(
        self, value: Value, where: Where, beside_psum: bool = False
    ) -> tuple[View, Callable[[Where, View], None]]:
        """A place for what is combined element by element, with a function that adds elements: in PSUM,
        where one bank holds it and they are not, since that is read faster beside a tile in SBUF."""
        axes = where.free(value.axes)
        width = math.prod(where.span(axis).width for axis in axes)
        psum = width * 4 <= self.emitter.spec.psum_bank_bytes and not beside_psum
        total = self.emitter.new_tile(f"{word_of(value)}_running", where, axes, psum=psum)
        self.emitter.fill(total.tile, str(NEUTRAL[value.function]))
        key = ("running", value, where.part, spans_of(where, tuple(value.axes)))
        self.emitter.blocks[-1].values[key] = total

        def add(spot: Where, view: View) -> None:
            own = total.moved(spot, where)
            self.emitter.issue(spot, spot.free(value.axes), [own, view, own], lambda dst, given, width: (
                self.emitter.two_tiles(dst, given, f"nl.{value.function}", width, (own, view, own))))  # fmt: skip

        return total, add

    def combined_of(
        self, definition: Definition, where: Where, later: Sequence[str], whole: bool
    ) -> list[Callable[[Where, View], None]]:
        """What to do with each part of a product, as it comes to PSUM, for later members that combine its
        elements over what lies on partitions; `whole` is what stands there."""
        found: list[Callable[[Where, View], None]] = []
        for name in later:
            value, lying = self.emitter.reading.meanings[name].value, self.emitter.laid.get(name)
            if value is None or value.kind != "reduce" or lying != where.part:
                continue
            (data,) = value.arguments
            if {v.array for v in inputs_of(data)} != {definition.out}:
                continue
            if not set(lying) <= set(value.reduced) or value.function not in NEUTRAL:
                continue
            own = own_axes(self.emitter.definitions[name])
            place = Where(lying, {a: s for a, s in where.spans.items() if a in own}, own)
            if len([a for a in value.reduced if place.span(a).width > 1]) > len(lying):
                plain = whole and data.kind == "input"
                _, add = self.begin_running(value, place, beside_psum=plain)
                found.append(self._taker(add, None if plain else data))
        return found

    def _taker(
        self, add: Callable[[Where, View], None], data: Value | None
    ) -> Callable[[Where, View], None]:
        """Adds a value, or without one what stands in PSUM."""
        return lambda spot, sums: add(spot, self.emitter.view(data, spot) if data else sums)

    def summed_across(
        self, value: Value, where: Where, axes: Sequence[Axis], source: View, _: View
    ) -> View:
        """The sums over all partitions of a tile, on each of them, in PSUM."""
        counts = [where.span(axis).width for axis in axes]
        sums = self.emitter.new_tile(f"{word_of(value)}_sums", where, axes, sums=True)
        sizes, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (sums, source)])
        dst, moving = (self.emitter.text.inside(v.tile, where.rows, v.offset, sizes, own)
                       for v, own in zip((sums, source), s, strict=True))  # fmt: skip
        ones = self.emitter.ones(where.rows, where.rows, "float32")
        ns = self.emitter.spec.matmul_ns(math.prod(counts), where.rows)
        self.emitter.put(
            "", Form(self.emitter.text.product(dst, f"{ones}[...]", moving), "tensor", ns)
        )
        return sums

    def largest_across(
        self, value: Value, where: Where, axes: Sequence[Axis], source: View, aim: View
    ) -> View:
        """The largest or least over all partitions of a tile, on each of them, in PSUM; in its place
        where that is there."""
        counts = [where.span(axis).width for axis in axes]
        width, rows, word = math.prod(counts), where.rows, word_of(value)
        sizes, s = merged(counts, [[source.strides.get(axis, 0) for axis in axes]])
        if len(sizes) > 1:
            source = self.emitter.converted(source, where, axes, "float32")
            sizes, s = [width], [[1]]
        column = Tile(self.emitter.names.new(word), width, 1)
        self.emitter.declare(column)
        one = View(column, At(), {})
        self.largest(value.function, word, one, source, (rows, width), s[0][0])
        beside, partition = Axis("beside", rows), Axis("partition", width)
        lying = Where((partition,), {}, (beside,))
        wide = self.emitter.new_tile(f"{word}_wide", lying, (beside,))
        self.emitter.copy(lying, (beside,), wide, one)
        _, own = merged(counts, [[aim.strides.get(axis, 0) for axis in axes]])
        in_place = aim.tile.psum and own == [[1]]
        back = aim if in_place else self.emitter.new_tile(f"{word}_rows", where, axes, psum=True)
        self.emitter.transpose(back, wide, (width, rows))
        return back

    def begin_carried(self, definition: Definition, lying: tuple[Axis, ...]) -> None:
        """Sums to which each round of the stage adds its elements: in PSUM, where a product with ones
        adds the partitions up on the way; where that is full in SBUF, a sum for each partition. One that is held
        comes to all partitions."""
        emitter = self.emitter
        meaning, value = emitter.reading.meanings[definition.out], None
        if found := meaning.product:
            plain = found.left.kind == "constant" and set(lying) == {*found.contracted}
            value, scale = found.right, found.scale
        else:
            value, scale = meaning.value, emitter.reading.builder.constant(1.0)
            plain = value is not None and (value.kind, value.function) == ("reduce", "add")
            plain = plain and value is not None and set(lying) == {*value.reduced}
            value = value.arguments[0] if value and plain else None
        if value is None or not plain:
            raise NotNested(
                f"{definition.out} runs over what lies on partitions, and is no plain sum"
            )
        place = Where((), emitter.program, definition.axes)
        width = math.prod(place.span(axis).width for axis in definition.axes)
        bank = emitter.spec.psum_bank_bytes // 4
        held = sum(
            -(-view.tile.width // bank) for view, _ in emitter.held_sums.values() if view.tile.psum
        )
        psum = held + -(-width // bank) <= CARRIED_BANKS
        rows = (
            self.rows_of(definition)
            if psum
            else math.prod(part.size for part in emitter.stage.partition)
        )
        tile = Tile(emitter.names.new(f"{definition.out}_sum"), rows, width, psum=psum)
        emitter.declare(tile, sums=psum)
        if not psum:
            emitter.fill(tile, "0.0")
        axes = place.free(set(definition.axes))
        strides = row_major([axis.extent for axis in axes])
        view = View(tile, At(), dict(zip(axes, strides, strict=True)))
        emitter.held_sums[definition.out] = view, value
        emitter.carried[definition.out] = lambda: self.finish_carried(
            definition, scale, view, place
        )

    def rows_of(self, definition: Definition) -> int:
        """On how many partitions a sum over partitions is wanted."""
        held = definition.out in self.emitter.nest.held
        return self.emitter.spec.partitions if held else 1

    def add_carried(self, definition: Definition, where: Where) -> None:
        """Adds this round's elements to the sums."""
        total, value = self.emitter.held_sums[definition.out]
        axes = where.free(set(definition.axes))
        most = (
            self.emitter.spec.psum_bank_bytes // 4
            if total.tile.psum
            else self.emitter.stage.columns
        )

        def part(round_: Round) -> None:
            spot = round_.where
            view = self.emitter.view(value, spot)
            into = total.moved(spot, Where((), {}, ()))
            own = spot.free(set(definition.axes))
            if total.tile.psum:
                self.add_ones(spot, own, view, into)
                return

            def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
                return self.emitter.two_tiles(dst, given, "nl.add", width, (into, into, view))

            self.emitter.issue(spot, own, [into, into, view], write)

        self.emitter.each(where, self.emitter.cut(where, axes, most), part)

    def add_ones(self, where: Where, axes: tuple[Axis, ...], view: View, into: View) -> None:
        """Adds the partitions of a tile up, into PSUM."""
        rows = into.tile.partitions
        ones = self.emitter.ones(where.rows, rows, "float32")
        if view.tile.dtype != "float32" or view.tile.psum:
            view = self.emitter.converted(view, where, axes, "float32")
        counts = [where.span(a).width for a in axes]
        sizes, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (into, view)])
        dst = self.emitter.text.inside(into.tile, rows, into.offset, sizes, s[0])
        moving = self.emitter.text.inside(view.tile, where.rows, view.offset, sizes, s[1])
        text = self.emitter.text.product(dst, f"{ones}[...]", moving)
        self.emitter.put(
            "", Form(text, "tensor", self.emitter.spec.matmul_ns(math.prod(sizes), rows))
        )

    def finish_carried(
        self, definition: Definition, scale: Value, sums: View, place: Where
    ) -> None:
        """Stores the sums, or keeps them, after the partitions are added up."""
        name, emitter, rows = definition.out, self.emitter, self.rows_of(definition)
        kept = name in emitter.nest.held
        if kept:
            place = Where((ALIKE,), place.spans, place.order)
        pieces = emitter.cut(place, definition.axes, emitter.spec.psum_bank_bytes // 4)

        def part(round_: Round) -> None:
            spot = round_.where
            moved = sums.moved(spot, place)
            axes = spot.free(set(definition.axes))
            if not sums.tile.psum:
                width = math.prod(spot.span(a).width for a in axes)
                psum = Tile(emitter.names.new(f"{name}_sums"), rows, width, psum=True)
                emitter.declare(psum, sums=True)
                strides = row_major([spot.span(a).width for a in axes])
                total = View(psum, At(), dict(zip(axes, strides, strict=True)))
                row = Where((Axis("row", sums.tile.partitions),), spot.spans, ())
                self.add_ones(row, axes, moved, total)
                moved = total
            if kept:
                aim = emitter.on_chip.place(definition, spot)
            else:
                out = emitter.arrays.get(name)
                aim = emitter.new_tile(name, spot, axes, out.dtype if out else "float32")
            emitter.evacuate(name, scale, spot, axes, moved, aim)
            if emitter.is_stored(definition):
                emitter.memory.store(definition, of_one(spot), aim)

        emitter.each(place, pieces, part)
