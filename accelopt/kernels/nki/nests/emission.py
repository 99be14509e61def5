"""Writes a nest: its stages one after the other, each walked once.

What is computed is appended to the innermost of the open loops that it depends on, and is found there
again by whoever needs it: what does not change in a loop stands before it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from accelopt.algorithm.algorithm import (
    Algorithm,
    Array,
    Definition,
    Map,
    Reduce,
    Scan,
)
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.conditions import deciding, parts_along
from accelopt.kernels.nki.nests.gathering import gather
from accelopt.kernels.nki.nests.locations import At, FreeNames, Span, number_text, variable
from accelopt.kernels.nki.nests.margins import is_zero_outside, margins_of
from accelopt.kernels.nki.nests.memory import KEPT_BYTES, LITTLE, Memory
from accelopt.kernels.nki.nests.nest import Nest, NotNested, Stage, evenly
from accelopt.kernels.nki.nests.on_chip import OnChip
from accelopt.kernels.nki.nests.operands import Operands
from accelopt.kernels.nki.nests.partitions import NEUTRAL, Partitions
from accelopt.kernels.nki.nests.places import (
    Block,
    Local,
    Round,
    View,
    Where,
    one_ahead,
    row_major,
    spans_of,
)
from accelopt.kernels.nki.nests.preparing import own_axes
from accelopt.kernels.nki.nests.prices import matmul_ns
from accelopt.kernels.nki.nests.reading import Product, Reading, inputs_of
from accelopt.kernels.nki.nests.recurrences import Recurrences
from accelopt.kernels.nki.nests.selection import NoEngine, Selection, select
from accelopt.kernels.nki.nests.skipping import masks_that_empty
from accelopt.kernels.nki.nests.statements import Comment, For, Form, Line, NestNode, line
from accelopt.kernels.nki.nests.text import MOST_FREE, Tile, Writer, collected, merged
from accelopt.kernels.nki.nests.tile_names import word_of
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.dtypes import parse

MOST_COPIES = 8
"""Of a stage's body, each with the blocks that a mask leaves there."""
SLICE = 32
"""Elements of a row of which a mask is applied to all, or to none."""
BESIDE_BANKS = 4
"""Of PSUM, that the sums of a product may take side by side."""


class Emitter:
    """Writes one nest of a prepared Algorithm."""

    def __init__(
        self, algorithm: Algorithm, nest: Nest, spec: Hardware, dialect: Dialect,
        numbers: Mapping[float, str], taken: set[str],
    ) -> None:  # fmt: skip
        self.algorithm = algorithm
        self.nest = nest
        self.spec = spec
        self.numbers = numbers
        self.reading = Reading(algorithm, {name for name, _, _ in nest.ways})
        self.definitions = {d.out: d for d in algorithm.definitions}
        self.names = FreeNames(taken)
        self.text = Writer(dialect, self.names)
        self.arrays: dict[str, Array] = {a.name: a for a in (*algorithm.inputs, *algorithm.outputs)}
        self.outside: dict[str, str] = {a.name: a.name for a in self.arrays.values()}
        for array in algorithm.outputs:
            if array.given != (array.shape or (1,)):
                self.outside[array.name] = self.names.new(f"{array.name}_view")
        self.results = {array.name for array in algorithm.outputs}
        self.deciding = deciding(algorithm.definitions)
        self.parts = self._parts()
        self.margins = margins_of(algorithm, self.reading, lambda name: (
            self.deciding.keys() | self.parts[name].keys()))  # fmt: skip
        self.blocks = [Block(None, [])]
        self.stage = nest.stages[0]
        self.carried: dict[str, Callable[[], None]] = {}
        self.held_sums: dict[str, View] = {}
        self.last: dict[str, Definition] = {}
        self.sums: dict[Value, tuple[View, Where]] = {}
        self.sequential = False
        self.scanned: set[Axis] = set()
        self.masks: dict[Axis, tuple[Index, ...]] = {}
        self.copied: set[Axis] = set()
        self.round: Mapping[Axis, Span] = {}
        self.laid: dict[str, tuple[Axis, ...]] = {}
        self.pending: dict[str, tuple[Definition, Where]] = {}
        self.states: dict[object, Tile] = {}
        self.engine = ""
        self.memory = Memory(self)
        self.partitions = Partitions(self)
        self.recurrences = Recurrences(self)
        self.on_chip = OnChip(self)
        self.readers = {name: self.readers_of(name) for name in self.definitions}

    def _parts(self) -> dict[str, Mapping[Axis, tuple[int, ...]]]:
        """By definition, where parts of axes begin that conditions change along, of those that lie whole
        beside each other in its stage."""
        found: dict[str, Mapping[Axis, tuple[int, ...]]] = {}
        for stage in self.nest.stages:
            taken = {part.axis for part in (*stage.partition, *stage.loops)} | {
                name for _, names in stage.laid for name in names
            }
            for name in stage.members:
                definition = self.definitions[name]
                along = parts_along([definition]) if isinstance(definition, Map) else {}
                found[name] = {a: s for a, s in along.items() if a.name not in taken}
        return found

    def emit(self) -> list[NestNode]:
        """The statements of the kernel's body, but for its parameters' shapes and results."""
        for stage in self.nest.stages:
            self.emit_stage(stage)
        return [*self.text.first, *self.blocks[0].nodes]

    # Blocks and loops.

    def put(self, text: str, *forms: Form, moved: int = 0) -> None:
        """Appends a statement to the innermost block: a text, or forms of one for several engines."""
        forms = tuple(f for f in forms if f.engine == self.engine) or forms
        made = Line(forms, moved) if forms else line(text)
        self.blocks[-1].nodes.append(made)

    def home(self, variables: set[str]) -> int:
        """The depth of the innermost open loop among some variables'."""
        return max((n for n, b in enumerate(self.blocks) if b.variable in variables), default=0)

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """What is appended within stands in the block of that depth, before loops opened since."""
        saved = self.blocks
        self.blocks = saved[: depth + 1]
        try:
            yield
        finally:
            self.blocks = saved

    @contextmanager
    def loop(self, name: str, rounds: int, sequential: bool = False) -> Iterator[At]:
        """A loop, where there is more than one round; yields its variable."""
        if rounds == 1:
            yield At()
            return
        unique = self.names.new(name)
        self.text.reach[unique] = rounds
        block = Block(unique, [])
        self.blocks.append(block)
        yield variable(unique)
        self.blocks.pop()
        kind = "sequential_range" if sequential or self.sequential else "affine_range"
        made = For(unique, rounds, block.nodes, kind)
        self.blocks[-1].nodes.append(one_ahead(made, block) if block.carried else made)

    @contextmanager
    def next_round(self) -> Iterator[None]:
        """What is appended to the innermost block within is done for the next round of its loop."""
        block = self.blocks[-1]
        now = block.nodes, block.values, block.locals, block.boxes
        block.nodes, block.values, block.locals, block.boxes = block.ahead, {}, {}, {}
        try:
            yield
        finally:
            block.nodes, block.values, block.locals, block.boxes = now

    def each(self, where: Where, parts: Sequence[tuple[Axis, int]],
             body: Callable[[Round], None], number: At | None = None) -> None:  # fmt: skip
        """Does `body` for all parts of some axes, in loops as far as they are alike."""
        if not parts:
            body(Round(where, number or At()))
            return
        (axis, size), rest = parts[0], parts[1:]
        before = (number or At()) * self.rounds(where, parts[:1])
        for start, width in self.pieces(axis, where):
            whole, left = divmod(width, min(size, width))
            step = min(size, width)
            if axis in self.copied:
                for n in range(whole):
                    own = where.within({axis: Span(collected(start + n * step), step)})
                    self.each(own, rest, body, before + n)
            elif whole == 1:
                self.each(where.within({axis: Span(start, step)}), rest, body, before)
            elif whole:
                with self.loop(f"i_{axis.name}", whole, axis in self.scanned) as at:
                    spot = where.within({axis: Span(collected(start + at * step), step)})
                    self.blocks[-1].spans = spot.spans
                    self.each(spot, rest, body, before + at)
            if left:
                spot = where.within({axis: Span(collected(start + whole * step), left)})
                self.each(spot, rest, body, before + whole)
            before = before + whole + bool(left)

    def pieces(self, axis: Axis, where: Where) -> list[tuple[At, int]]:
        """Where parts of a short axis begin in a place, in which no condition changes, and how many
        elements they have; of another axis all."""
        start, width = where.span(axis).start, where.span(axis).width
        if axis not in self.deciding or width == 1 or start.terms:
            return [(start, width)]
        first, last = start.constant, start.constant + width
        inside = (n for n in self.deciding[axis] if first < n < last)
        return [(At(n), end - n) for n, end in itertools.pairwise((first, *inside, last))]

    def rounds(self, where: Where, parts: Sequence[tuple[Axis, int]]) -> int:
        """How many rounds `each` has for parts of some axes."""
        return math.prod(
            sum(-(-width // size) for _, width in self.pieces(axis, where)) for axis, size in parts
        )

    def cut(self, where: Where, axes: Sequence[Axis], most: int) -> list[tuple[Axis, int]]:
        """Parts of axes with no more than `most` elements together: the outer axes one by one, as far
        as is needed."""
        parts: list[tuple[Axis, int]] = []
        room = most
        for axis in reversed(axes):
            width = where.span(axis).width
            size = evenly(width, max(1, min(width, room)))
            if size < width or len(self.pieces(axis, where)) > 1:
                parts.append((axis, size))
            # Copies of a body with blocks of their own are cut alike.
            whole = axis.extent if axis in self.masks else size
            room = max(1, room // max(size, min(whole, most)))
        return list(reversed(parts))

    # Stages.

    def emit_stage(self, stage: Stage) -> None:
        """One loop nest with the tiles of its members."""
        self.stage = stage
        members = [self.definitions[name] for name in stage.members]
        self.deciding = deciding(members)
        axes = {axis.name: axis for d in members for axis in own_axes(d)}
        named = {p.axis for p in (*stage.partition, *stage.loops)} | set(stage.skipped)
        for name in named - axes.keys():
            raise NotNested(f"{stage.members[0]} has no axis {name}")
        self.blocks[0].values.clear()
        self.blocks[0].locals.clear()
        self.blocks[0].boxes.clear()
        self.put_comment(members)
        lying = tuple(axes[part.axis] for part in stage.partition)
        self.laid = {name: self.axes_laid(name, names) for name, names in stage.laid}
        looped = {axes[part.axis] for part in stage.loops} - set(lying)
        summing = [
            d for d in members if isinstance(d, Reduce) and looped & set(d.reduced)
        ]  # fmt: skip
        inner = looped & {axis for d in summing for axis in d.reduced}
        parts = [(axes[p.axis], p.size) for p in (*stage.loops, *stage.partition)]
        self.carried, self.held_sums, self.sums, self.states = {}, {}, {}, {}
        stored = [d.out for d in members if self.is_stored(d)]
        self.masks = {
            axes[name]: masks_that_empty(members, axes[name], stored) for name in stage.skipped
        }
        self.text.explicit = bool(self.masks)
        masked = {axis for masks in self.masks.values() for mask in masks for axis in mask.axes}
        self.copied = {axis for axis, size in parts if axis in masked and size < axis.extent}
        copies = math.prod(-(-a.extent // size) for a, size in parts if a in self.copied)
        if copies > MOST_COPIES:
            raise NotNested(f"{stage.members[-1]} has {copies} parts with blocks of their own")
        self.scanned = {d.along for d in members if isinstance(d, Scan)}
        carried = [d for d in members if isinstance(d, Reduce) and set(lying) & set(d.reduced)]
        self.sequential = bool(carried)
        for definition in carried:
            self.partitions.begin_carried(definition, lying)
        rounds = [part for part in parts if part[0] in inner]

        def body(round_: Round) -> None:
            copied, self.copied, self.round = self.copied, set(), round_.where.spans
            if rounds:
                self.accumulate(members, summing, round_.where, rounds)
            else:
                self.emit_members(members, round_.where)
            self.copied = copied

        self.each(Where(lying, {}, ()), [part for part in parts if part[0] not in inner], body)
        self.sequential, self.engine = False, ""
        for finish in self.carried.values():
            finish()

    def axes_laid(self, name: str, names: Sequence[str]) -> tuple[Axis, ...]:
        """The axes that lie on partitions for a member that has other ones there than its stage."""
        taken = {part.axis for part in (*self.stage.partition, *self.stage.loops)}
        own = {axis.name: axis for axis in own_axes(self.definitions[name])}
        for axis in names:
            if axis not in own:
                raise NotNested(f"{name} has no axis {axis}")
            if axis in taken:
                raise NotNested(f"{name} cannot lie along {axis}, which its stage takes in parts")
        if math.prod(own[axis].extent for axis in names) > self.spec.partitions:
            raise NotNested(f"{name} has more elements along {', '.join(names)} than partitions")
        return tuple(own[axis] for axis in names)

    def accumulate(
        self, members: Sequence[Definition], summing: Sequence[Definition], where: Where,
        rounds: Sequence[tuple[Axis, int]],
    ) -> None:  # fmt: skip
        """Members up to the last that combines elements of a loop's rounds, round by round; then, with
        what all rounds came to, those and the rest."""
        found: list[tuple[Value, View, Where]] = []
        operands: list[tuple[Axis, Callable[[Span], None]]] = []
        for definition in summing:
            meaning = self.reading.meanings[definition.out]
            lying = self.laid.get(definition.out, where.part)
            place = Where(lying, {a: s for a, s in where.spans.items()
                          if a in definition.axes}, own_axes(definition))  # fmt: skip
            if meaning.product:
                made = Operands(self, definition, meaning.product, place)
                operands.append((made.summed, made.begin_rounds()))
                continue
            value = meaning.value
            assert value is not None
            for part in reductions_of(value):
                total = self.new_tile(word_of(part), place, place.free(part.axes))
                dst = self.text.inside(total.tile, place.rows, At(), [total.tile.width], [1])
                neutral = str(NEUTRAL[part.function])
                fill = self.text.filled(dst, (place.rows, total.tile.width), neutral, "float32")
                self.put("", Form(fill, "vector", self.vector_ns(total.tile.width)))
                found.append((part, total, place))
        first = members[: 1 + max(members.index(definition) for definition in summing)]
        saved, self.sequential = self.sequential, True

        def one(round_: Round) -> None:
            self.emit_members([d for d in first if d not in summing], round_.where)
            for part, total, place in found:
                own = {a: s for a, s in round_.where.spans.items()
                       if a in part.axes or a in part.reduced or a in place.part}  # fmt: skip
                self.accumulated(part, Where(place.part, own, place.order), total, place)
            for axis, fill in operands:
                fill(round_.where.span(axis))

        self.each(where, rounds, one)
        self.sequential = saved
        self.sums = {part: (total, place) for part, total, place in found}
        self.emit_members([d for d in members if d in summing or d not in first], where)

    def accumulated(self, part: Value, where: Where, total: View, place: Where) -> None:
        """Combines one round's elements with what the rounds before came to."""
        (data,) = part.arguments
        left = tuple(axis for axis in part.reduced if where.span(axis).width > 1)
        if left:
            data = self.reading.builder.value(
                "reduce", data.axes - set(left), arguments=(data,), function=part.function,
                reduced=left,
            )  # fmt: skip
        axes = where.free(part.axes)
        name = {"maximum": "nl.maximum", "minimum": "nl.minimum"}.get(
            part.function, f"nl.{part.function}"
        )

        def add(round_: Round) -> None:
            spot = round_.where
            view = self.reduce(data, spot) if left else self.beside_sum(data, spot)
            into = total.moved(spot, place)
            self.issue(spot, spot.free(part.axes), [into, into, view], lambda dst, given, width: (
                self.two_tiles(dst, given, name, width, (into, into, view))))  # fmt: skip

        self.each(where, self.cut(where, axes, self.stage.columns), add)

    def beside_sum(self, data: Value, where: Where) -> View:
        """What is added to a sum in SBUF: in PSUM, where that is read faster beside it and holds it."""
        axes = where.free(data.axes)
        width = math.prod(where.span(axis).width for axis in axes)
        slow = self.spec.two_input_cycles_per_element > self.spec.vector_cycles_per_element
        if not slow or width * 4 > self.spec.psum_bank_bytes or data.kind != "apply":
            return self.view(data, where)
        strides = row_major([where.span(axis).width for axis in axes])
        tile = Tile(self.names.new(word_of(data)), where.rows, width, psum=True)
        self.declare(tile)
        view = View(tile, At(), dict(zip(axes, strides, strict=True)))
        self.into(data, where, view)
        return view

    def put_comment(self, members: Sequence[Definition]) -> None:
        """Says what a stage computes, where it is one of several."""
        if len(self.nest.stages) == 1:
            return
        self.blocks[0].nodes.append(Comment(f"{', '.join(d.out for d in members)}."))

    def emit_members(self, members: Sequence[Definition], where: Where) -> None:
        """The tiles of all members in one round of a stage's loops."""
        members, self.last = self.with_last(members)
        for definition in members:
            own = set(own_axes(definition))
            spans = {axis: span for axis, span in where.spans.items() if axis in own}
            lying = self.laid.get(definition.out, where.part)
            place = Where(lying, spans, own_axes(definition))
            if missing := [axis.name for axis in lying if axis not in own]:
                raise NotNested(
                    f"{definition.out} does not depend on {missing[0]}, which lies on partitions"
                )
            if definition.out not in self.carried and (
                cut := [a.name for a in spans if a not in definition.axes]
            ):
                raise NotNested(
                    f"{definition.out} runs over {cut[0]}, which its stage takes in parts"
                )
            place = self.clipped(place, own)
            self.pending[definition.out] = definition, place
            value = self.reading.meanings[definition.out].value
            across = value and value.kind == "reduce" and set(lying) & set(value.reduced)
            if across and value and definition.out not in self.carried:
                # Partitions are combined when somebody reads it: others work meanwhile.
                inner = tuple(
                    a for a in value.reduced if a not in lying and place.span(a).width > 1
                )
                if inner:
                    with self.at(self.home(place.variables(own))):
                        self.partitions.running(value, place, inner)
            else:
                self.emit_now(definition.out)
        for name in list(self.pending):
            self.emit_now(name)

    def clipped(self, place: Where, own: Collection[Axis]) -> Where:
        """A place without the ends of axes, in whole tiles, that masks empty there."""
        for axis, masks in self.masks.items():
            low, high = 0, axis.extent
            for mask in masks if axis in own else ():
                step = mask.coefficient(axis)
                _, most = self.ends(mask - index_of(axis) * step, place)
                if step < 0:
                    high = min(high, most // -step + 1)
                else:
                    low = max(low, -(most // step))
            tile = self.spec.partitions if axis.extent % self.spec.partitions == 0 else 1
            low, high = low // tile * tile, -(-high // tile) * tile
            if low or high < axis.extent:
                place = place.within({axis: Span(At(low), high - low)})
        return place

    def ends(self, index: Index, place: Where) -> tuple[int, int]:
        """The least and the largest value of an index in a place."""
        base, steps = self.affine(index, place)
        return self.bounds(base, {a: (place.span(a).width, s) for a, s in steps.items()})

    def emit_now(self, name: str, reader: Where | None = None) -> None:
        """A member's tile, where it is not there yet: as its first `reader` has it on partitions, if that
        is elsewhere."""
        if name not in self.pending:
            return
        definition, place = self.pending.pop(name)
        engine, self.engine = self.engine, dict(self.nest.engines).get(name, "")
        around, self.deciding = (
            self.deciding,
            deciding((definition, self.last.get(name, definition))),
        )
        if name in self.carried and name in self.nest.held:
            raise NotNested(f"{name} is combined over partitions, and no part of it stays there")
        if name in self.carried:
            self.partitions.add_carried(definition, place)
        else:
            with self.at(self.home(place.variables(set(own_axes(definition))))):
                try:
                    if reader is None or name in self.nest.held or not self.partitions.to_rows(
                        definition, place, reader
                    ):  # fmt: skip
                        self.emit_member(definition, place)
                except NotNested as refusal:
                    named = str(refusal).startswith(f"{name} ")
                    raise refusal if named else NotNested(f"{name}: {refusal}") from None
        self.engine, self.deciding = engine, around

    def with_last(
        self, members: Sequence[Definition]
    ) -> tuple[list[Definition], dict[str, Definition]]:
        """Members in an order in which each product stands right before the Map that alone takes it,
        element by element, and those Maps by product: they are computed of what stands in PSUM."""
        order, last = list(members), dict[str, Definition]()
        names = {d.out for d in members}
        for product in members:
            readers = self.readers[product.out]
            if not self.reading.meanings[product.out].product or len(readers) != 1:
                continue
            (name,) = readers
            reader, value = self.definitions[name], self.reading.meanings[name].value
            if name not in names or value is None or self.is_stored(product):
                continue
            plain = tuple(map(index_of, product.axes))
            reads = [v for v in inputs_of(value) if v.array == product.out]
            if (
                reductions_of(value)
                or self.laid.get(name) != self.laid.get(product.out)
                or set(reader.axes) != set(product.axes)
                or any(v.indices != plain for v in reads)
                or any(found.out in last and last[found.out] is reader for found in order)
            ):
                continue
            order.remove(product)
            order.insert(order.index(reader), product)
            last[product.out] = reader
        return [d for d in order if d not in last.values()], last

    def emit_member(self, definition: Definition, where: Where) -> None:
        """One definition's tile, in the block that depends on what it does."""
        product = self.reading.meanings[definition.out].product
        source, definition = definition, self.last.get(definition.out, definition)
        key = (definition.out, spans_of(where, where.order))
        if any(key in block.values for block in self.blocks):
            return
        meaning = self.reading.meanings[definition.out]
        axes = where.free(set(definition.axes))
        if definition.out in self.laid:  # the axes of the stage's loops lie beside each other
            axes = tuple(sorted(axes, key=lambda axis: axis in where.spans))
        later = self.stage.members[self.stage.members.index(definition.out) + 1 :]
        local = bool(self.readers[definition.out] & set(later))
        stored = self.is_stored(definition)
        out = self.arrays.get(definition.out)
        dtype = out.dtype if out and not local else "float32"
        batch = where.free(set(product.batch)) if product and stored else ()
        together = bool(batch) and self.is_stored_together(definition, where, batch)
        held: View | None = None
        wide = where
        if definition.out in self.nest.held:
            held = self.on_chip.place(definition, where)
        elif local or together or self.recurrences.begins(definition, where) is not None:
            wide = self.with_ends(definition, where)
            held = self.new_tile(
                definition.out, wide, axes, dtype, self.is_read_fast(definition, where)
            )
            self.fill_ends(held, wide, where, axes, self.recurrences.begins(definition, where))

        def target(spot: Where) -> View:
            return held.moved(spot, wide) if held else self.new_tile(
                definition.out, spot, spot.free(set(definition.axes)), dtype
            )  # fmt: skip

        def finish(spot: Where, view: View) -> None:
            if stored and not together:
                self.memory.store(definition, spot, view)

        if product:
            whole = source is definition and product.scale is self.reading.builder.constant(1.0)
            adds = self.partitions.combined_of(definition, where, later, whole) if held else []
            if held and adds:
                self.blocks[-1].locals.setdefault(definition.out, []).append(
                    Local(held, wide, definition.axes)
                )
            saved, self.sequential = self.sequential, self.sequential or bool(adds)
            self.product(source, product, where, target, finish, adds)
            self.sequential = saved
        elif meaning.scan:
            self.recurrences.scan(definition, meaning.scan, where, target, finish)
        else:
            assert meaning.value is not None
            self.map(definition, meaning.value, where, target, finish)
        if held and together:
            self.memory.store(definition, where, held.moved(where, wide))
        if held:
            last = self.blocks[-1]
            last.locals.setdefault(definition.out, []).append(Local(held, wide, definition.axes))
        self.blocks[-1].values[key] = held or View(Tile("", 0, 0), At(), {})

    def is_stored_together(
        self, definition: Definition, where: Where, batch: Sequence[Axis]
    ) -> bool:
        """Whether what the products of a batch come to is brought to HBM at once, since each is little."""
        size = math.prod(where.span(axis).width for axis in where.free(set(definition.axes))) * 4
        each = size // math.prod(where.span(axis).width for axis in batch) * where.rows
        return size <= KEPT_BYTES and each < LITTLE

    def with_ends(self, definition: Definition, where: Where) -> Where:
        """A place with the room beyond the ends of axes that is read there, of those that are whole."""
        margins = self.margins.get(definition.out)
        ends = dict(zip(definition.axes, margins.ends, strict=True)) if margins else {}
        if isinstance(definition, Scan) and self.recurrences.begins(definition, where) is not None:
            low, high = ends.get(definition.along, (0, 0))
            ends[definition.along] = max(low, 1), high
        spans = {
            axis: Span(At(-low), low + axis.extent + high)
            for axis, (low, high) in ends.items()
            if (low or high) and axis in where.free({axis})
            if where.span(axis) == Span(At(), axis.extent)
        }
        return where.within(spans)

    def fill_ends(
        self, view: View, wide: Where, where: Where, axes: Sequence[Axis], number: float | None
    ) -> None:
        """Zeros, or another number, where a tile has room beyond the ends of axes."""
        for axis in axes:
            own, inner = wide.span(axis), where.span(axis)
            if own == inner:
                continue
            first, stop = own.start.constant, own.start.constant + own.width
            for begin, end in ((first, 0), (inner.width, stop)):
                if begin == end:
                    continue
                part = wide.within({axis: Span(At(begin), end - begin)})
                counts = [part.span(a).width for a in axes]
                sizes, strides = merged(counts, [[view.strides[a] for a in axes]])
                offset = view.moved(part, wide).offset
                dst = self.text.inside(view.tile, where.rows, offset, sizes, strides[0])
                fill = self.text.filled(
                    dst, (where.rows, *sizes), str(number or 0), view.tile.dtype
                )
                self.put("", Form(fill, "vector", self.vector_ns(math.prod(sizes))))

    def is_read_fast(self, definition: Definition, where: Where) -> bool:
        """Whether what is the same on all partitions lies in PSUM: beside a tile in SBUF it is read
        faster there, and one bank holds it."""
        width = math.prod(where.span(axis).width for axis in where.free(set(definition.axes)))
        across = definition.out in self.laid and not set(where.part) & set(definition.axes)
        fits = width * 4 <= self.spec.psum_bank_bytes and not self.is_stored(definition)
        return across and fits and isinstance(definition, Reduce)

    def is_stored(self, definition: Definition) -> bool:
        """Whether a definition's elements go to HBM: results, and what other stages read."""
        name = definition.out
        result = any(array.name == name for array in self.algorithm.outputs)
        later = self.readers[name] - set(self.stage.members)
        return result or bool(later and name not in self.nest.held)

    def map(
        self, definition: Definition, value: Value, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A definition whose elements are computed each by itself, or of what reductions give."""
        axes, along = where.free(set(definition.axes)), self.parts[definition.out]
        parts = self.cut(where, [a for a in axes if a not in along], self.stage.columns)

        def part(round_: Round) -> None:
            whole = round_.where
            view = target(whole)
            decided = [(axis, size) for axis, size in parts if axis in self.deciding]
            self.each(
                whole,
                decided,
                lambda r: self.settled(value, r.where, view.moved(r.where, whole), along),
            )
            finish(whole, view)

        self.each(where, [(axis, size) for axis, size in parts if axis not in self.deciding], part)

    def settled(self, value: Value, where: Where, view: View, along: Collection[Axis] = ()) -> None:
        """Computes a value into a place of its own, in parts `along` axes and those with masks, as far as
        conditions are left that change along them."""
        value = self.decided(value, where)
        for axis in (*along, *self.masks):
            if axis in where.part or where.span(axis).width == 1 or where.span(axis).start.terms:
                continue
            starts = {
                start
                for c in self.reading.conditions(value)
                for start in self.changes(c, axis, where)
            }
            if starts:
                span = where.span(axis)
                first, last = span.start.constant, span.start.constant + span.width
                for start, end in itertools.pairwise((first, *sorted(starts), last)):
                    own = where.within({axis: Span(At(start), end - start)})
                    self.settled(value, own, view.moved(own, where), along)
                return
        self.into(value, where, view)

    def changes(self, condition: Index, axis: Axis, where: Where) -> Iterator[int]:
        """Where along an axis a condition begins to hold or to fail in a place, and where that is done."""
        step, span = condition.coefficient(axis), where.span(axis)
        if not step:
            return
        for rest in set(self.ends(condition - index_of(axis) * step, where)):
            start = -(rest // step) if step > 0 else rest // -step + 1
            if axis in self.masks:
                start = start // SLICE * SLICE
            if span.start.constant < start < span.start.constant + span.width:
                yield start

    # Tiles.

    def new_tile(
        self, name: str, where: Where, axes: Sequence[Axis], dtype: str = "float32",
        psum: bool = False, sums: bool = False,
    ) -> View:  # fmt: skip
        """A new tile with some free axes, row-major; `sums` in PSUM are added to."""
        strides: dict[Axis, int] = {}
        width = 1
        for axis in reversed(axes):
            strides[axis] = width
            width *= where.span(axis).width
        name = self.names.new(f"{name}_tile" if name in self.results else name)
        tile = Tile(name, where.rows, width, dtype, psum or sums)
        self.declare(tile, sums)
        return View(tile, At(), dict(reversed(strides.items())))

    def declare(self, tile: Tile, sums: bool = False) -> None:
        """Makes a tile. Raises NotNested for one that is larger than its memory."""
        size = tile.width * parse(tile.dtype).itemsize
        room = self.spec.psum_partition_bytes if tile.psum else self.spec.sbuf_usable_bytes
        if size > room:
            memory = "PSUM" if tile.psum else "SBUF"
            raise NotNested(f"{tile.name} takes {size} of {room} bytes of {memory} a partition")
        self.put(self.text.on_chip(tile, sums))

    # Values.

    def into(self, value: Value, where: Where, view: View) -> None:
        """Computes a value into a place of its own."""
        value = self.decided(value, where)
        if value.kind in ("apply", "where"):
            self.compute(value, where, view)
            return
        if value.kind == "reduce" and value not in self.sums:
            self.reduce(value, where, view)
            return
        if value.kind == "gather" and value.dtype == view.tile.dtype:
            gather(self, value, where, view)
            return
        self.copy(where, tuple(view.strides), view, self.view(value, where))

    def copy(self, where: Where, axes: Sequence[Axis], target: View, source: View) -> None:
        """Copies, converts, repeats along free axes."""

        def write(dst: str, data: list[str], width: int) -> tuple[Form, ...]:
            said = self.said(target, source)
            vector = self.text.call(
                dst, "tensor_copy", f"{data[0]}, engine=nisa.vector_engine".replace(
                    data[0], f"src={data[0]}", 1), said)  # fmt: skip
            scalar = self.text.call(dst, "activation", f"op=nl.copy, data={data[0]}", said)
            return (
                Form(vector, "vector", self.vector_ns(width)),
                Form(scalar, "scalar", self.scalar_ns(width)),
            )

        self.issue(where, axes, [target, source], write)

    def said(self, target: View, *sources: View) -> str:
        """The format to say with an instruction, where it is not fp32 all along."""
        formats = {view.tile.dtype for view in (target, *sources)}
        return "" if formats == {"float32"} else target.tile.dtype

    def vector_ns(self, width: int) -> float:
        """Nanoseconds of the Vector engine for elements a partition."""
        return (width + self.spec.access_cycles) / self.spec.vector_ghz

    def scalar_ns(self, width: int) -> float:
        """Nanoseconds of the Scalar engine for elements a partition."""
        return (width + self.spec.access_cycles) / self.spec.scalar_ghz

    def issue(
        self, where: Where, axes: Sequence[Axis], views: Sequence[View],
        write: Callable[[str, list[str], int], tuple[Form, ...]],
    ) -> None:  # fmt: skip
        """One instruction on parts of tiles, or a loop of it where they have more free axes than an
        access can. `write` gets the text of the first view, those of the others, and the width."""
        counts = [where.span(axis).width for axis in axes]
        sizes, strides = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in views])
        rows = where.rows
        self._issue(rows, sizes, strides, views, write)

    def _issue(
        self, rows: int, sizes: list[int], strides: list[list[int]], views: Sequence[View],
        write: Callable[[str, list[str], int], tuple[Form, ...]],
    ) -> None:  # fmt: skip
        if len(sizes) > MOST_FREE:
            with self.loop("i_part", sizes[0]) as at:
                moved = [
                    View(v.tile, v.offset + at * s[0], {})
                    for v, s in zip(views, strides, strict=True)
                ]
                self._issue(rows, sizes[1:], [s[1:] for s in strides], moved, write)
            return
        texts = [
            self.text.inside(v.tile, rows, v.offset, sizes, s)
            for v, s in zip(views, strides, strict=True)
        ]
        forms = write(texts[0], texts[1:], math.prod(sizes))
        if any(view.tile.psum for view in views):  # out of reach of the GpSimd engine
            forms = tuple(form for form in forms if form.engine != "gpsimd") or forms
        self.put("", *forms)

    def transpose(self, into: View, source: View, shape: tuple[int, int], step: int = 1) -> None:
        """Elements `step` apart, by the Tensor engine to partitions; `shape` is from how many partitions,
        and how many elements of each."""
        rows, width = shape
        data = self.text.inside(source.tile, rows, source.offset, [width], [step])
        dst = self.text.inside(into.tile, width, into.offset, [rows], [1])
        ns = matmul_ns(self.spec, rows, width, source.tile.dtype)
        self.put("", Form(self.text.transposed(dst, data), "tensor", ns))

    def column(self, view: View, rows: int) -> str:
        """One element a partition."""
        return self.text.inside(view.tile, rows, view.offset, [1], [1])

    def view(self, value: Value, where: Where) -> View:
        """Where a value lies, computed now unless it was before."""
        if value in self.sums:
            total, place = self.sums[value]
            return total.moved(where, place)
        value = self.decided(value, where)
        key = (value, where.part, spans_of(where, (*where.part, *value.axes)))
        for block in self.blocks:
            if key in block.values:
                return block.values[key]
        depth = self.home(where.variables(value.axes))
        with self.at(depth):
            if value.kind == "input":
                found = self.memory.read(value, where)
            elif value.kind == "gather":
                found = gather(self, value, where)
            elif value.kind == "constant":
                found = self.constant(value.constant, where)
            elif value.kind == "position":
                found = self.position(value.indices[0], where)
            elif value.kind == "choose":
                found = self.choose(value, where)
            elif value.kind == "reduce":
                found = self.reduce(value, where)
            else:
                found = self.compute(value, where, None)
            self.blocks[-1].values[key] = found
        return found

    def constant(self, number: float, where: Where) -> View:
        """A number on every partition."""
        tile = self.new_tile("number", where, ())
        text = number_text(number, self.numbers)
        dst = self.column(tile, where.rows)
        made = self.text.filled(dst, (where.rows, 1), text, "float32")
        self.put("", Form(made, "vector", self.vector_ns(1)))
        return tile

    def compute(self, value: Value, where: Where, into: View | None) -> View:
        """Instructions for a value and all that it is made of and that is not there yet."""
        steps = self.steps(value, where)
        for step in steps:
            final = step.value is value
            depth = self.home(where.variables(step.value.axes))
            with self.at(depth if not (final and into) else len(self.blocks) - 1):
                axes = where.free(step.value.axes)
                if final and into:
                    target, axes = into, tuple(into.strides)
                else:
                    target = self.new_tile(word_of(step.value), where, axes, step.value.dtype)
                self.step(step, where, axes, target)
                if not (final and into):
                    key = (step.value, where.part, spans_of(where, (*where.part, *step.value.axes)))
                    self.blocks[-1].values[key] = target
        return target

    def steps(self, value: Value, where: Where) -> list[Selection]:
        """The instructions that give a value, of what is there already. Of a value with free axes,
        those without are numbers; of one without, constants alone."""
        order: dict[Value, None] = {}
        narrow = not where.free(value.axes)

        def visit(found: Value) -> None:
            same = narrow or bool(where.free(found.axes))
            known = found is not value and self.known(found, where)
            if found.kind in ("apply", "where") and same and not known and found not in order:
                for argument in found.arguments:
                    visit(argument)
                order[found] = None

        visit(value)
        builder = self.reading.builder

        def is_number(found: Value) -> bool:
            return found.kind == "constant" or not (narrow or where.free(found.axes))

        def times(found: Value, factor: float) -> Value:
            return builder.apply("multiply", found, builder.constant(factor))

        single = {v for v in order if self.reading.uses.get(v, 1) == 1}
        try:
            return select(list(order), is_number, single, times)
        except NoEngine as error:
            raise NotNested(str(error)) from None

    def known(self, value: Value, where: Where) -> bool:
        """Whether a value is there already."""
        if value in self.sums:
            return True
        key = (value, where.part, spans_of(where, (*where.part, *value.axes)))
        return any(key in block.values for block in self.blocks)

    def number(self, value: Value | None, where: Where, tile: bool = False) -> str:
        """A number or one element a partition, as the operand of an instruction."""
        if value is None:
            return ""
        if value.kind == "constant" and not tile:
            return number_text(value.constant, self.numbers)
        view = self.view(value, where)
        if view.tile.dtype != "float32":
            view = self.converted(view, where, (), "float32")
        return self.column(view, where.rows)

    def converted(self, view: View, where: Where, axes: Sequence[Axis], dtype: str) -> View:
        """The same elements in another format."""
        made = self.new_tile(f"{view.tile.name}_{dtype}", where, axes, dtype)
        self.copy(where, axes, made, view)
        return made

    def operands(
        self, step: Selection, where: Where, axes: tuple[Axis, ...], target: View
    ) -> list[View]:
        """Where the tiles lie that an instruction takes."""
        tiles = step.tiles
        if step.opcode == "tensor_tensor":
            rows = [self.memory.spread(tile, where) for tile in tiles]
            found = [row or self.view(tile, where) for row, tile in zip(rows, tiles, strict=True)]
            counts = [where.span(axis).width for axis in axes]
            _, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (target, *found)])
            runs = zip(found, s[1:], strict=True)
            if self.text.nki or all(run == [1] for view, run in runs if view.tile.spread):
                return found  # what is spread with an operand is one run
        return [self.view(tile, where) for tile in tiles]

    def step(self, step: Selection, where: Where, axes: tuple[Axis, ...], target: View) -> None:
        """One instruction."""
        views = [target, *self.operands(step, where, axes, target)]
        data = views[1]
        said = self.said(*views)
        names = [f"nl.{name}" for name in step.functions]
        if step.opcode == "select":
            self.select(step, where, axes, target, data)
            return
        if step.opcode == "copy":
            self.copy(where, axes, target, data)
            return
        if step.opcode == "activation":
            # A bias is a tile; before generation 3 it has to be.
            scale, bias = step.numbers
            numbers = [self.number(scale, where), self.number(bias, where, tile=True)]
        else:
            numbers = [self.number(number, where) for number in step.numbers]
        call = self.text.call
        counts = [where.span(axis).width for axis in axes]
        if step.opcode == "scalar_tensor_tensor":
            sizes, _ = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in views])
            if len(sizes) > 1:
                between = self.new_tile(word_of(step.value), where, axes)
                self.issue(where, axes, [between, data], lambda dst, given, width: (
                    self.scalar_form(dst, given[0], names[:1], numbers, False, width, ""),))  # fmt: skip
                views[1], names = between, names[1:]
                step = Selection(step.value, "tensor_tensor", step.functions[1:], step.data)

        def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
            if step.opcode == "activation":
                parts = [f"op={names[0]}", f"data={given[0]}"]
                parts += [f"bias={numbers[1]}"] * bool(numbers[1])
                parts += [f"scale={numbers[0]}"] * bool(numbers[0])
                made = [Form(call(dst, "activation", ", ".join(parts), said), "scalar",
                             self.scalar_ns(width))]  # fmt: skip
                if step.functions[0] == "reciprocal" and not any(numbers):
                    text = call(dst, "reciprocal", f"data={given[0]}", said)
                    cycles = self.spec.reciprocal_cycles_per_element * width
                    made.insert(0, Form(text, "vector", self.vector_ns(int(cycles))))
                return tuple(made)
            if step.opcode == "tensor_scalar":
                vector = self.scalar_form(dst, given[0], names, numbers, step.reversed, width, said)
                return (vector, *self.on_scalar_engine(step, dst, given[0], numbers, width, said))
            if step.opcode == "scalar_tensor_tensor":
                text = (
                    f"data={given[0]}, op0={names[0]}, operand0={numbers[0]}, "
                    f"op1={names[1]}, operand1={given[1]}"
                )
                two = self.two_tiles(dst, given, names[1], width, views)[0].ns
                return (Form(call(dst, "scalar_tensor_tensor", text, said), "vector", two),)
            return self.two_tiles(dst, given, names[0], width, views)

        self.issue(where, axes, views, write)

    def two_tiles(
        self, dst: str, given: Sequence[str], name: str, width: int, views: Sequence[View]
    ) -> tuple[Form, ...]:
        """A tensor_tensor, on either engine that has it; `views` are its result and its operands."""
        text, said = f"data1={given[0]}, data2={given[1]}, op={name}", self.said(*views)
        fast = any(view.tile.psum or view.tile.spread for view in views[1:])
        cycles = (1.0 if fast else self.spec.two_input_cycles_per_element) * width
        slow = self.spec.gpsimd_start_cycles + self.spec.gpsimd_cycles_per_element * width
        engines = [("vector", self.vector_ns(int(cycles))), ("gpsimd", slow / self.spec.gpsimd_ghz)]
        if name == "nl.power":
            del engines[0]
        elif self.spec.vector_gpsimd_exclusive:  # one waits for the other
            del engines[1]
        return tuple(
            Form(
                self.text.call(dst, "tensor_tensor", f"{text}, engine=nisa.{engine}_engine", said),
                engine, ns,
            )
            for engine, ns in engines
        )  # fmt: skip

    def scalar_form(
        self, dst: str, data: str, names: Sequence[str], numbers: Sequence[str], reverse: bool,
        width: int, said: str,
    ) -> Form:  # fmt: skip
        """A tensor_scalar on the Vector engine."""
        text = f"data={data}, op0={names[0]}, operand0={numbers[0]}"
        text += ", reverse0=True" if reverse else ""
        if len(names) > 1:
            text += f", op1={names[1]}, operand1={numbers[1]}"
        call = self.text.call(dst, "tensor_scalar", f"{text}, engine=nisa.vector_engine", said)
        return Form(call, "vector", self.vector_ns(width))

    def on_scalar_engine(
        self, step: Selection, dst: str, data: str, numbers: Sequence[str], width: int, said: str
    ) -> tuple[Form, ...]:
        """`x * scale + bias` as an activation, where the bias is a tile or nothing."""
        scale = bias = ""
        if step.functions == ("multiply",):
            scale = numbers[0]
        elif step.functions == ("multiply", "add"):
            scale, bias = numbers
        elif step.functions == ("add",):
            bias = numbers[0]
        else:
            return ()
        last = step.numbers[-1]
        if bias and last is not None and last.kind == "constant":
            return ()
        text = f"op=nl.copy, data={data}"
        text += f", bias={bias}" if bias else ""
        text += f", scale={scale}" if scale else ""
        call = self.text.call(dst, "activation", text, said)
        return (Form(call, "scalar", self.scalar_ns(width)),)

    # Positions and conditions.

    def decided(self, value: Value, where: Where) -> Value:
        """A value without the conditions that hold, or fail, all over a part of its domain."""
        found: dict[Value, Value] = {}  # values share their parts

        def visit(value: Value) -> Value:
            if value not in found:
                found[value] = made(value) if self.reading.conditional(value) else value
            return found[value]

        def made(value: Value) -> Value:
            arguments = tuple(map(visit, value.arguments))
            if value.kind == "where":
                low, high = self.ends(value.indices[0], where)
                if low >= 0 or high < 0:
                    return arguments[0 if low >= 0 else 1]
                held, other = arguments
                zero = other.kind == "constant" and not other.constant
                if zero and is_zero_outside(held, value.indices[0], self.margins):
                    return held
            return self.reading.rebuilt(value, arguments)

        return visit(value)

    def affine(self, index: Index, where: Where) -> tuple[At, dict[Axis, int]]:
        """An index as a place that loops give, and steps along the axes of a tile."""
        base = At(index.constant)
        steps: dict[Axis, int] = {}
        for axis, factor in index.terms:
            if not isinstance(axis, Axis):
                raise NotNested(f"the index {index} is no sum of axes, however they are cut")
            span = where.span(axis)
            base = base + span.start * factor
            if span.width > 1:
                steps[axis] = factor
        return collected(base), steps

    def row_step(self, where: Where, steps: Mapping[Axis, int]) -> int | None:
        """How much an index grows from a partition to the next; None where that differs."""
        counts = [where.span(axis).width for axis in where.part]
        sizes, strides = merged(counts, [[steps.get(axis, 0) for axis in where.part]])
        if sizes == [1]:
            return 0
        return strides[0][0] if len(sizes) == 1 else None

    def position(self, index: Index, where: Where) -> View:
        """An index as numbers, in fp32."""
        base, steps = self.affine(index, where)
        axes = where.free(index.axes)
        row = self.row_step(where, steps)
        target = self.new_tile("place", where, axes)

        def count(target: View, base: At, row: int, free: bool) -> None:
            counts = [where.span(axis).width for axis in axes]
            own = [steps[a] if free else 0 for a in axes]
            sizes, strides = merged(counts, [list(target.strides.values()), own])
            dst = self.text.inside(target.tile, where.rows, target.offset, sizes, strides[0])
            made = self.text.positions(dst, where.rows, base, row, sizes, strides[1], "float32")
            cycles = self.spec.gpsimd_start_cycles + math.prod(sizes)
            self.put("", Form(made, "gpsimd", cycles / self.spec.gpsimd_ghz))

        if row is not None:
            count(target, base, row, True)
            return target
        count(target, base, 0, True)
        inner = where.rows
        for axis in where.part:
            size = where.span(axis).width
            inner //= size
            if not steps.get(axis) or size == 1:
                continue
            # The partition's number, of which this axis is a digit.
            digit = self.new_tile("digit", where, ())
            dst = self.column(digit, where.rows)
            self.put("", Form(self.text.positions(dst, where.rows, At(), 1, [1], [1], "float32"),
                              "gpsimd", 100.0))  # fmt: skip
            rest = self.new_tile("digit_rest", where, ())
            below = self.column(rest, where.rows)
            for a, b, text in (
                (dst, dst, f"op0=nl.mod, operand0={float(inner * size)}"),
                (below, dst, f"op0=nl.mod, operand0={float(inner)}"),
            ):
                call = self.text.call(
                    a, "tensor_scalar", f"data={b}, {text}, engine=nisa.vector_engine"
                )
                self.put("", Form(call, "vector", self.vector_ns(1)))
            call = self.text.call(
                dst, "tensor_tensor", f"data1={dst}, data2={below}, op=nl.subtract"
            )
            self.put("", Form(call, "vector", self.vector_ns(1)))
            text = (
                f"data={dst}, op0=nl.divide, operand0={float(inner)}, op1=nl.multiply, "
                f"operand1={float(steps[axis])}, engine=nisa.vector_engine"
            )
            call = self.text.call(dst, "tensor_scalar", text)
            self.put("", Form(call, "vector", self.vector_ns(1)))
            self.issue(where, axes, [target, target], lambda into, given, width: (
                self.scalar_form(into, given[0], ["nl.add"], [dst], False, width, ""),))  # fmt: skip  # noqa: B023
        return target

    def select(self, step: Selection, where: Where, axes: tuple[Axis, ...], target: View,
               data: View) -> None:  # fmt: skip
        """A tile where a condition holds, else a number."""
        if data.tile.psum and self.text.nki:  # there the GpSimd engine does not reach it
            data = self.converted(data, where, axes, "float32")
        (condition,) = step.value.indices
        base, steps = self.affine(condition, where)
        row = self.row_step(where, steps)
        (other,) = step.numbers
        assert other is not None
        counts = [where.span(axis).width for axis in axes]
        own = [steps.get(a, 0) for a in axes]
        sizes, strides = merged(
            counts, [[v.strides.get(a, 0) for a in axes] for v in (target, data)] + [own]
        )
        if row is None or len(sizes) > MOST_FREE or other.kind != "constant":
            builder = self.reading.builder
            holds = builder.apply(
                "greater_equal", self.reading.index(condition), builder.constant(0.0)
            )
            value = builder.value("choose", step.value.axes, arguments=(holds, step.data, other))
            self.copy(where, axes, target, self.view(value, where))
            return
        rows = where.rows
        texts = [self.text.inside(v.tile, rows, v.offset, sizes, s)
                 for v, s in zip((target, data), strides, strict=False)]  # fmt: skip
        number = number_text(other.constant, self.numbers)
        said = self.said(target, data)
        made = self.text.selected(
            texts[0], texts[1], number, rows, base, row, sizes, strides[2], said
        )
        cycles = self.spec.gpsimd_start_cycles + (
            self.spec.gpsimd_cycles_per_element * math.prod(sizes)
        )
        self.put("", Form(made, "gpsimd", cycles / self.spec.gpsimd_ghz))

    def choose(self, value: Value, where: Where) -> View:
        """One of two values, by a third that is not zero."""
        condition, yes, no = value.arguments
        axes = where.free(value.axes)
        target = self.new_tile("chosen", where, axes)
        self.copy(where, axes, target, self.view(no, where))
        builder = self.reading.builder
        flag = builder.apply("not_equal", condition, builder.constant(0.0))
        if condition.kind == "apply" and condition.function in COMPARISONS:
            flag = condition
        mask = self.new_tile("holds", where, axes, "uint8")
        self.copy(where, axes, mask, self.view(flag, where))
        chosen = self.view(yes, where)
        if chosen.tile.dtype != "float32":
            chosen = self.converted(chosen, where, where.free(yes.axes), "float32")

        def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
            text = f"nisa.tensor_copy_predicated(src={given[0]}, dst={dst}, predicate={given[1]})"
            return (Form(text, "vector", self.vector_ns(2 * width)),)

        self.issue(where, axes, [target, chosen, mask], write)
        return target

    # Reductions along the free axis.

    def reduce(self, value: Value, where: Where, into: View | None = None) -> View:
        """What is combined over axes that lie along the free axis."""
        axes = where.free(value.axes)
        if any(axis in where.part for axis in value.reduced):
            return self.partitions.across(value, where, into)
        target = into or self.new_tile(word_of(value), where, axes)
        inner = tuple(a for a in value.reduced if where.span(a).width > 1)
        width = math.prod(where.span(axis).width for axis in inner)
        (data,) = value.arguments
        order = (*inner, *axes) if self.lies_across(data, where, inner) else (*axes, *inner)
        place = Where(where.part, where.spans, order)
        alike = math.prod(a.extent if a in self.masks else where.span(a).width for a in inner)
        parts = self.cut(place, axes, max(1, self.stage.columns // alike))

        def part(outer: Round) -> None:
            spot = Where(where.part, outer.where.spans, place.order)
            aim = target.moved(spot, place)
            if width <= self.stage.columns:
                self.combine(value, data, spot, inner, aim)
                return
            pieces = self.cut(spot, inner, self.stage.columns)
            count = self.rounds(spot, pieces)
            name = self.names.new(f"{word_of(value)}_parts")
            tile = Tile(name, spot.rows, count)
            self.declare(tile)

            def piece(round_: Round) -> None:
                into = View(tile, round_.number, {})
                self.combine(value, data, round_.where, inner, into)

            self.each(spot, pieces, piece)
            self.reduced(value.function, spot.rows, aim, View(tile, At(), {}), [count], [1])

        self.each(place, parts, part)
        return target

    def lies_across(self, data: Value, where: Where, inner: Collection[Axis]) -> bool:
        """Whether what is combined over axes has others beside each other in memory, by its largest input."""

        def size(found: Value) -> int:
            return math.prod(where.span(axis).width for axis in found.axes)

        found = max((v for v in inputs_of(data) if v.indices), key=size, default=None)
        steps = found.indices[-1].terms if found else ()
        return bool(steps) and not any(axis in inner and step == 1 for axis, step in steps)

    def combine(
        self, value: Value, data: Value, where: Where, inner: tuple[Axis, ...], into: View
    ) -> None:
        """One instruction that combines a tile over axes; the sum of what the Scalar engine makes
        comes with it."""
        axes = where.free(value.axes)
        data = self.decided(data, where)
        inner = tuple(axis for axis in inner if where.span(axis).width > 1)
        if data.kind == "apply" and not axes and value.function == "add":
            key = (data, where.part, spans_of(where, (*where.part, *data.axes)))
            known = any(key in block.values for block in self.blocks)
            if not known and self.summed(value, data, where, into, key):
                return
        view = self.view(data, where)
        if not inner:
            self.copy(where, axes, into, view)
            return
        kept = list(axes)
        out_counts = [where.span(a).width for a in kept]
        in_counts = [where.span(a).width for a in inner]
        outer, o = merged(out_counts, [[view.strides.get(a, 0) for a in kept],
                                       [into.strides.get(a, 0) for a in kept]])  # fmt: skip
        summed, s = merged(in_counts, [[view.strides.get(a, 0) for a in inner]])
        if outer == [1]:
            outer, o = [], [[], []]
        if len(outer) + len(summed) <= MOST_FREE:
            self.reduced(value.function, where.rows, into, view, [*outer, *summed],
                         [*o[0], *s[0]], len(summed), o[1])  # fmt: skip
            return
        axis = kept[0] if kept else inner[0]
        if not kept:
            raise NotNested(f"a {value.function} runs over {len(summed)} axes that lie apart")
        with self.loop(f"i_{axis.name}", where.span(axis).width) as at:
            spot = where.within({axis: Span(where.span(axis).start + at, 1)})
            moved = View(into.tile, into.offset + at * into.strides[axis],
                         {a: s for a, s in into.strides.items() if a != axis})  # fmt: skip
            self.combine(value, data, spot, inner, moved)

    def reduced(
        self, function: str, rows: int, into: View, view: View, sizes: list[int],
        strides: list[int], inner: int = 1, out: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """A tensor_reduce over the last `inner` axes of an access."""
        data = self.text.inside(view.tile, rows, view.offset, sizes, strides)
        outer = sizes[: len(sizes) - inner]
        dst = self.text.inside(into.tile, rows, into.offset, outer or [1], list(out) or [1])
        over = [n + 1 for n in range(len(outer), len(sizes))]
        name = {"maximum": "nl.max", "minimum": "nl.min"}.get(function, f"nl.{function}")
        if self.text.nki:
            name = f"nl.{function}"
        said = self.said(into, view)
        text = f"op={name}, data={data}, axis={over}, keepdims=True"
        call = self.text.call(dst, "tensor_reduce", text, said)
        forms = [Form(call, "vector", self.vector_ns(math.prod(sizes)))]
        if function == "add" and not outer and into.tile.dtype == "float32":
            # The Scalar engine sums what it copies.
            scratch = Tile(self.names.new("copied"), rows, math.prod(sizes))
            copied = self.text.inside(scratch, rows, At(), sizes, row_major(sizes))
            text = f"op=nl.copy, data={data}, reduce_op=nl.add, reduce_res={dst}"
            call = self.text.call(copied, "activation_reduce", text, "float32" if said else "")
            made = f"{self.text.on_chip(scratch)}\n{call}"
            forms.append(Form(made, "scalar", self.scalar_ns(math.prod(sizes))))
        self.put("", *forms)

    def summed(self, value: Value, data: Value, where: Where, into: View, key: object) -> bool:
        """The Scalar engine's function with its sum on the way, where the value is one."""
        steps = self.steps(data, where)
        step = steps[-1]
        if step.value is not data or step.opcode != "activation":
            return False
        source = self.view(step.data, where)
        axes = where.free(data.axes)
        target = self.new_tile(
            word_of(data), where, axes, self.reading.narrowed(data) or data.dtype
        )
        scale, bias = step.numbers
        numbers = [self.number(scale, where), self.number(bias, where, tile=True)]
        counts = [where.span(axis).width for axis in axes]
        sizes, _ = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (target, source)])
        if len(sizes) > MOST_FREE:
            return False

        def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
            text = f"op=nl.{step.functions[0]}, data={given[0]}, reduce_op=nl.add, "
            text += f"reduce_res={self.column(into, where.rows)}"
            text += f", bias={numbers[1]}" if numbers[1] else ""
            text += f", scale={numbers[0]}" if numbers[0] else ""
            call = self.text.call(dst, "activation_reduce", text, self.said(target, source))
            return (Form(call, "scalar", self.scalar_ns(width)),)

        self.issue(where, axes, [target, source], write)
        self.blocks[-1].values[key] = target
        return True

    # Memory outside.

    def bounds(self, base: At, steps: Mapping[Axis, tuple[int, int]]) -> tuple[int, int]:
        """The least and the largest value of a place over loops and axes."""
        ends = [f * (self.text.reach[v] - 1) for v, f in base.terms]
        ends += [(width - 1) * step for width, step in steps.values()]
        low = base.constant + sum(min(end, 0) for end in ends)
        return low, base.constant + sum(max(end, 0) for end in ends)

    def ones(self, rows: int, count: int, dtype: str) -> str:
        """The name of a tile of ones, made before all loops."""
        key = ("ones", rows, count, dtype)
        if key not in self.blocks[0].values:
            with self.at(0):
                tile = Tile(self.names.new("ones"), rows, count, dtype)
                self.declare(tile)
                fill = self.text.filled(f"{tile.name}[...]", (rows, count), "1.0", dtype)
                self.put("", Form(fill, "vector", self.vector_ns(count)))
                self.blocks[0].values[key] = View(tile, At(), {})
        return self.blocks[0].values[key].tile.name

    def readers_of(self, array: str) -> set[str]:
        """The definitions that read an array."""
        return {
            out
            for out, meaning in self.reading.meanings.items()
            if any(value.array == array for root in meaning.roots for value in inputs_of(root))
        }

    # Products.

    def product(
        self, definition: Definition, found: Product, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
        takers: Sequence[Callable[[Where, View], None]] = (),
    ) -> None:  # fmt: skip
        """A matrix product: what lies on partitions is stationary, the other axes move. `takers` get
        each part that is summed, too, and where it is in PSUM."""
        rows, columns = found.rows, found.columns
        left, right, sides = found.left, found.right, ("left", "right")
        if where.part and set(where.part) <= set(columns):
            rows, columns, left, right, sides = columns, rows, right, left, ("right", "left")
        if not set(where.part) <= set(rows):
            odd = next(axis.name for axis in where.part if axis not in rows)
            raise NotNested(f"{definition.out} is a product, and both its operands depend on {odd}")
        single = [(axis, 1) for axis in (*found.batch, *rows) if axis not in where.part
                  and where.span(axis).width > 1]  # fmt: skip
        moving = [a for a in columns if where.span(a).width > 1]
        bank = self.spec.psum_bank_bytes // 4
        pieces = self.cut(where, moving, max(bank, self.stage.columns))
        # Rows that share what moves are summed side by side, as far as PSUM has banks for them.
        outer, beside, banks = list(single), list[tuple[Axis, int]](), BESIDE_BANKS
        while outer and outer[-1][0] in rows and where.span(outer[-1][0]).width <= banks:
            banks //= where.span(outer[-1][0]).width
            beside.insert(0, outer.pop())
        operand = Operands(self, definition, found, where)
        lying = (*(axis for axis, _ in beside), *columns)

        def batch(round_: Round) -> None:
            place = round_.where
            stationary = operand.make(left, rows, place, sides[0], moving=False)

            def wide(round_: Round) -> None:
                whole = round_.where
                aim = target(whole)
                parts = self.cut(whole, moving, bank)
                self.each(whole, parts, lambda r: part(r.where, aim.moved(r.where, whole)))
                finish(whole, aim)

            def part(spot: Where, aim: View) -> None:
                moved = operand.make(right, tuple(columns), spot, sides[1], moving=True)
                sums = self.new_tile(f"{definition.out}_sums", spot, lying, sums=True)
                width = math.prod(spot.span(axis).width for axis in columns)

                def add(k: Round) -> None:
                    def row(own: Round) -> None:
                        spans = {**own.where.spans,
                                 **{a: k.where.span(a) for a in found.contracted}}  # fmt: skip
                        at = Where(operand.lying, spans, spot.order)
                        texts = []
                        for view, axes in (
                            (stationary(k, at), where.part),
                            (moved(k, at), columns),
                        ):
                            counts = [spot.span(a).width for a in axes]
                            sizes, s = merged(counts, [[view.strides.get(a, 0) for a in axes]])
                            texts.append(self.text.inside(
                                view.tile, at.rows, view.offset, sizes, s[0]))  # fmt: skip
                        into = sums.moved(own.where, spot)
                        dst = self.text.inside(sums.tile, spot.rows, into.offset, sizes, row_major(sizes))  # fmt: skip
                        ns = matmul_ns(self.spec, width, spot.rows, found.dtype)
                        self.put("", Form(self.text.product(dst, *texts), "tensor", ns))

                    self.each(spot, beside, row)

                def out(own: Round) -> None:
                    self.evacuate(
                        definition.out, found.scale, own.where, own.where.free(set(definition.axes)),
                        sums.moved(own.where, spot), aim.moved(own.where, spot),
                    )  # fmt: skip
                    for taker in takers:
                        taker(own.where, sums.moved(own.where, spot))

                self.each(Where(operand.lying, spot.spans, ()), operand.parts, add)
                self.each(spot, beside, out)

            self.each(place, pieces, wide)

        self.each(where, outer, batch)

    def evacuate(
        self, product: str, scale: Value, where: Where, axes: tuple[Axis, ...], sums: View,
        aim: View,
    ) -> None:  # fmt: skip
        """Brings a product out of PSUM, times its factor, and through what alone takes it."""
        builder = self.reading.builder
        name = f"psum:{sums.tile.name}"
        inside = frozenset((*axes, *where.part, *self.definitions[product].axes))
        psum = builder.value("input", inside, array=name, indices=())
        self.blocks[-1].locals[name] = [Local(sums, where, axes)]
        value = builder.apply("multiply", psum, scale)
        if reader := self.last.get(product):
            wanted = self.reading.meanings[reader.out].value
            assert wanted is not None
            value = self.reading.exchanged(wanted, product, value)
        self.reading.uses.setdefault(psum, 1)
        self.settled(value, where, aim)


COMPARISONS = frozenset("less less_equal greater greater_equal equal not_equal".split())


def reductions_of(value: Value) -> list[Value]:
    """What a value combines, the outermost."""
    if value.kind == "reduce":
        return [value]
    return [found for argument in value.arguments for found in reductions_of(argument)]
