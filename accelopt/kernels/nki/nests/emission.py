"""Writes a nest: its stages one after the other, each walked once.

What is computed is appended to the innermost of the open loops that it depends on, and is found there
again by whoever needs it: what does not change in a loop stands before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.algorithm.algorithm import (
    Algorithm,
    Array,
    Definition,
    Reduce,
    Scan,
    expressions_of,
    walk,
)  # fmt: skip
from accelopt.algorithm.algorithm import Where as Condition
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.hardware import Hardware
from accelopt.kernels.nki.lift.emission.blocks import number_text
from accelopt.kernels.nki.lift.emission.graph import GraphValue
from accelopt.kernels.nki.lift.emission.nest import Comment, For, Form, Line, NestNode, line
from accelopt.kernels.nki.lift.emission.prices import matmul_ns
from accelopt.kernels.nki.lift.emission.selection import NoEngine, Selection, select
from accelopt.kernels.nki.lift.emission.tile_names import word_of
from accelopt.kernels.nki.lift.emission.value_locations import At, FreeNames, Span, variable
from accelopt.kernels.nki.nests.gathering import gather
from accelopt.kernels.nki.nests.margins import Margins, margins_of
from accelopt.kernels.nki.nests.nest import Nest, NotNested, Stage, Way
from accelopt.kernels.nki.nests.preparing import MOST_PIECES, own_axes
from accelopt.kernels.nki.nests.reading import NARROW, Product, Reading, inputs_of
from accelopt.kernels.nki.nests.text import MOST_FREE, Tile, Writer, collected, merged
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.dtypes import parse

KEPT_BYTES = 32 * 1024
"""Of a partition: what is brought for all rounds of a loop instead of again in each."""
OPERAND_BYTES = 84 * 1024
"""Of a partition: an operand of a product that is kept whole."""
SQUARE = 32
"""Rows and columns that the Vector engine transposes at once."""
BESIDE_BANKS = 4
"""Of PSUM, that the sums of a product may take side by side."""
CARRIED_BANKS = 6
"""Of PSUM, that sums over all of a stage may take."""
EFFICIENT_RUN = 512
"""Bytes side by side from which on a DMA is at its best."""
NEUTRAL = {"add": 0.0, "multiply": 1.0, "maximum": -3.4028235e38, "minimum": 3.4028235e38}


@dataclass(frozen=True)
class Where:
    """The part of a definition's domain that is worked on: which axes lie on partitions, and the span
    of each axis that is not whole; `order` is the order of free axes in tiles."""

    part: tuple[Axis, ...]
    spans: Mapping[Axis, Span]
    order: tuple[Axis, ...]

    def span(self, axis: Axis) -> Span:
        """Where along an axis."""
        return self.spans.get(axis) or Span(At(), axis.extent)

    @property
    def rows(self) -> int:
        """Partitions."""
        return math.prod(self.span(axis).width for axis in self.part)

    def free(self, axes: frozenset[Axis] | set[Axis]) -> tuple[Axis, ...]:
        """Those of some axes that lie along the free axis, in order."""
        found = [a for a in axes if a not in self.part and self.span(a).width > 1]
        place = {axis: n for n, axis in enumerate(self.order)}
        return tuple(sorted(found, key=lambda a: (place.get(a, len(place)), a.name)))

    def within(self, changes: Mapping[Axis, Span]) -> Where:
        """With other spans for some axes."""
        return Where(self.part, {**self.spans, **changes}, self.order)

    def variables(self, axes: frozenset[Axis] | set[Axis]) -> set[str]:
        """The loop variables that the spans of some axes depend on."""
        return {name for axis in axes for name, _ in self.span(axis).start.terms}


@dataclass(frozen=True)
class View:
    """Elements of a tile: an offset, and a stride for each free axis that it varies along."""

    tile: Tile
    offset: At
    strides: Mapping[Axis, int]

    def moved(self, where: Where, by: Where) -> View:
        """The part at `where` of a view that was made at `by`, in which the axes begin."""
        offset = self.offset
        for axis, stride in self.strides.items():
            step = where.span(axis).start + by.span(axis).start * -1
            offset = offset + step * stride
        return View(self.tile, collected(offset), self.strides)


@dataclass
class Local:
    """A definition's tile on the chip: it holds the definition's elements at `where`."""

    view: View
    where: Where
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Box:
    """A part of an array from HBM on the chip: where it begins along each dimension, and how far."""

    view: View
    starts: Sequence[At]
    sizes: Sequence[int]
    strides: Sequence[int]


@dataclass
class Block:
    """The body of an open loop: statements, and what is known in it."""

    variable: str | None
    nodes: list[NestNode]
    values: dict[object, View] = field(default_factory=dict)
    locals: dict[str, list[Local]] = field(default_factory=dict)
    boxes: dict[object, list[Box]] = field(default_factory=dict)
    spans: Mapping[Axis, Span] = field(default_factory=dict)


class Round(NamedTuple):
    """One round of loops over parts of axes: where, and its number."""

    where: Where
    number: At


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
        self.reading = Reading(algorithm)
        self.definitions = {d.out: d for d in algorithm.definitions}
        self.names = FreeNames(taken)
        self.text = Writer(dialect, self.names)
        self.arrays: dict[str, Array] = {a.name: a for a in (*algorithm.inputs, *algorithm.outputs)}
        self.outside: dict[str, str] = {a.name: a.name for a in self.arrays.values()}
        for array in algorithm.outputs:
            if array.given != (array.shape or (1,)):
                self.outside[array.name] = self.names.new(f"{array.name}_view")
        self.results = {array.name for array in algorithm.outputs}
        self.margins = margins_of(algorithm, self.reading)
        self.blocks = [Block(None, [])]
        self.stage = nest.stages[0]
        self.carried: dict[str, Callable[[], None]] = {}
        self.held_sums: dict[str, View] = {}
        self.last: dict[str, Definition] = {}
        self.sums: dict[GraphValue, tuple[View, Where]] = {}
        self.sequential = False
        self.engine = ""
        self.readers = {name: self.readers_of(name) for name in self.definitions}
        self.deciding = deciding(algorithm)

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
        self.blocks[-1].nodes.append(For(unique, rounds, block.nodes, kind))

    def each(self, where: Where, parts: Sequence[tuple[Axis, int]],
             body: Callable[[Round], None], number: At | None = None) -> None:  # fmt: skip
        """Does `body` for all parts of some axes, in loops as far as they are alike."""
        if not parts:
            body(Round(where, number or At()))
            return
        (axis, size), rest = parts[0], parts[1:]
        start, width = where.span(axis).start, where.span(axis).width
        size = min(size, width)
        if axis in self.deciding and width > 1:
            for n in range(width):
                own = where.within({axis: Span(collected(start + n), 1)})
                self.each(own, rest, body, (number or At()) * width + n)
            return
        whole, left = divmod(width, size)
        before = (number or At()) * (whole + bool(left))
        if whole == 1:
            self.each(where.within({axis: Span(start, size)}), rest, body, before)
        elif whole:
            with self.loop(f"i_{axis.name}", whole) as at:
                spot = where.within({axis: Span(collected(start + at * size), size)})
                self.blocks[-1].spans = spot.spans
                self.each(spot, rest, body, before + at)
        if left:
            spot = where.within({axis: Span(collected(start + whole * size), left)})
            self.each(spot, rest, body, before + whole)

    def cut(self, where: Where, axes: Sequence[Axis], most: int) -> list[tuple[Axis, int]]:
        """Parts of axes with no more than `most` elements together: the outer axes one by one, as far
        as is needed."""
        parts: list[tuple[Axis, int]] = []
        room = most
        for axis in reversed(axes):
            width = where.span(axis).width
            size = max(1, min(width, room)) if axis not in self.deciding else 1
            even = max(d for d in range(1, size + 1) if width % d == 0)
            size = even if even * 2 > size else size
            if size < width:
                parts.append((axis, size))
            room = max(1, room // size)
        return list(reversed(parts))

    # Stages.

    def emit_stage(self, stage: Stage) -> None:
        """One loop nest with the tiles of its members."""
        self.stage = stage
        members = [self.definitions[name] for name in stage.members]
        axes = {axis.name: axis for d in members for axis in own_axes(d)}
        for name in {p.axis for p in (*stage.partition, *stage.loops)} - axes.keys():
            raise NotNested(f"{stage.members[0]} has no axis {name}")
        self.blocks[0].values.clear()
        self.blocks[0].locals.clear()
        self.blocks[0].boxes.clear()
        self.put_comment(members)
        lying = tuple(axes[part.axis] for part in stage.partition)
        looped = {axes[part.axis] for part in stage.loops} - set(lying)
        summing = [
            d for d in members
            if isinstance(d, Reduce) and looped & set(d.reduced)
            and not self.reading.meanings[d.out].product
        ]  # fmt: skip
        inner = looped & {axis for d in summing for axis in d.reduced}
        parts = [(axes[p.axis], p.size) for p in (*stage.loops, *stage.partition)]
        self.carried, self.held_sums, self.sums = {}, {}, {}
        carried = [d for d in members if isinstance(d, Reduce) and set(lying) & set(d.reduced)]
        self.sequential = bool(carried)
        for definition in carried:
            self.begin_carried(definition, lying)
        rounds = [part for part in parts if part[0] in inner]

        def body(round_: Round) -> None:
            if rounds:
                self.accumulate(members, summing, round_.where, rounds)
            else:
                self.emit_members(members, round_.where)

        self.each(Where(lying, {}, ()), [part for part in parts if part[0] not in inner], body)
        self.sequential, self.engine = False, ""
        for finish in self.carried.values():
            finish()

    def accumulate(
        self, members: Sequence[Definition], summing: Sequence[Definition], where: Where,
        rounds: Sequence[tuple[Axis, int]],
    ) -> None:  # fmt: skip
        """Members up to the last that combines elements of a loop's rounds, round by round; then, with
        what all rounds came to, those and the rest."""
        found: list[tuple[GraphValue, View, Where]] = []
        for definition in summing:
            value = self.reading.meanings[definition.out].value
            assert value is not None
            place = Where(where.part, {a: s for a, s in where.spans.items()
                          if a in definition.axes}, own_axes(definition))  # fmt: skip
            for part in reductions_of(value):
                total = self.new_tile(word_of(part, {}), place, place.free(part.axes))
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
                       if a in part.axes or a in part.reduced}  # fmt: skip
                self.accumulated(part, Where(place.part, own, place.order), total, place)

        self.each(where, rounds, one)
        self.sequential = saved
        self.sums = {part: (total, place) for part, total, place in found}
        self.emit_members([d for d in members if d in summing or d not in first], where)

    def accumulated(self, part: GraphValue, where: Where, total: View, place: Where) -> None:
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
            view = self.reduce(data, spot) if left else self.view(data, spot)
            into = total.moved(spot, place)
            self.issue(spot, spot.free(part.axes), [into, into, view], lambda dst, given, width: (
                self.two_tiles(dst, given, name, width, self.said(into, view))))  # fmt: skip

        self.each(where, self.cut(where, axes, self.stage.columns), add)

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
            place = Where(where.part, spans, own_axes(definition))
            if missing := [axis.name for axis in where.part if axis not in own]:
                raise NotNested(
                    f"{definition.out} does not depend on {missing[0]}, which lies on partitions"
                )
            if definition.out not in self.carried and (
                cut := [a.name for a in spans if a not in definition.axes]
            ):
                raise NotNested(
                    f"{definition.out} runs over {cut[0]}, which its stage takes in parts"
                )
            self.engine = dict(self.nest.engines).get(definition.out, "")
            if definition.out in self.carried:
                self.add_carried(definition, place)
                continue
            with self.at(self.home(place.variables(own))):
                try:
                    self.emit_member(definition, place)
                except NotNested as refusal:
                    named = str(refusal).startswith(f"{definition.out} ")
                    raise refusal if named else NotNested(f"{definition.out}: {refusal}") from None

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
        key = (definition.out, _spans(where, where.order))
        if any(key in block.values for block in self.blocks):
            return
        meaning = self.reading.meanings[definition.out]
        axes = where.free(set(definition.axes))
        later = self.stage.members[self.stage.members.index(definition.out) + 1 :]
        local = bool(self.readers[definition.out] & set(later))
        stored = self.is_stored(definition)
        out = self.arrays.get(definition.out)
        dtype = out.dtype if out and not local else "float32"
        held: View | None = None
        if local:
            held = self.new_tile(definition.out, where, axes, dtype)

        def target(spot: Where) -> View:
            return held.moved(spot, where) if held else self.new_tile(
                definition.out, spot, spot.free(set(definition.axes)), dtype
            )  # fmt: skip

        def finish(spot: Where, view: View) -> None:
            if stored:
                self.store(definition, spot, view)

        if product:
            self.product(source, product, where, target, finish)
        elif meaning.scan:
            self.scan(definition, meaning.scan, where, target, finish)
        else:
            assert meaning.value is not None
            self.map(definition, meaning.value, where, target, finish)
        if held:
            last = self.blocks[-1]
            last.locals.setdefault(definition.out, []).append(Local(held, where, definition.axes))
        self.blocks[-1].values[key] = held or View(Tile("", 0, 0), At(), {})

    def is_stored(self, definition: Definition) -> bool:
        """Whether a definition's elements go to HBM: results, and what other stages read."""
        name = definition.out
        result = any(array.name == name for array in self.algorithm.outputs)
        return result or bool(self.readers[name] - set(self.stage.members))

    def map(
        self, definition: Definition, value: GraphValue, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A definition whose elements are computed each by itself, or of what reductions give."""
        axes = where.free(set(definition.axes))

        def part(round_: Round) -> None:
            view = target(round_.where)
            self.into(value, round_.where, view)
            finish(round_.where, view)

        self.each(where, self.cut(where, axes, self.stage.columns), part)

    # Tiles.

    def new_tile(self, name: str, where: Where, axes: Sequence[Axis], dtype: str = "float32",
) -> View:  # fmt: skip
        """A new tile with some free axes, row-major."""
        strides: dict[Axis, int] = {}
        width = 1
        for axis in reversed(axes):
            strides[axis] = width
            width *= where.span(axis).width
        tile = Tile(self.names.new(name), where.rows, width, dtype)
        self.declare(tile)
        return View(tile, At(), dict(reversed(strides.items())))

    def declare(self, tile: Tile, sums: bool = False) -> None:
        """Makes a tile. Raises NotNested for one that is larger than its memory."""
        size = tile.width * parse(tile.dtype).itemsize
        room = self.spec.psum_partition_bytes if tile.psum else self.spec.sbuf_usable_bytes
        if size > room:
            memory = "PSUM" if tile.psum else "SBUF"
            raise NotNested(f"{tile.name} takes {size} of {room} bytes of {memory} a partition")
        self.put(self.text.on_chip(tile, sums))

    def store(self, definition: Definition, where: Where, view: View) -> None:
        """Brings a definition's tile to HBM."""
        name = definition.out
        margins = None if name in self.results else self.margins.get(name)
        if name not in self.arrays:
            shape = tuple(axis.extent for axis in definition.axes) or (1,)
            self.declare_outside(
                name, name, margins.shape if margins else shape, "float32", margins
            )
        array = self.arrays[name]
        if parse(view.tile.dtype) != parse(array.dtype):
            rounded = self.new_tile(name, where, where.free(set(definition.axes)), array.dtype)
            self.copy(where, where.free(set(definition.axes)), rounded, view)
            view = rounded
        indices = tuple(index_of(axis) for axis in definition.axes)
        indices = margins.place(indices) if margins else indices
        offset, steps = self.address(array, indices, where)
        axes = where.free(set(definition.axes))
        rows = [(where.span(a).width, steps.get(a, 0)) for a in where.part]
        dims = [(where.span(a).width, steps[a], view.strides[a]) for a in axes]
        self.transfer(name, view, offset, rows, dims, store=True)

    # Values.

    def into(self, value: GraphValue, where: Where, view: View) -> None:
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

    def column(self, view: View, rows: int) -> str:
        """One element a partition."""
        return self.text.inside(view.tile, rows, view.offset, [1], [1])

    def view(self, value: GraphValue, where: Where) -> View:
        """Where a value lies, computed now unless it was before."""
        if value in self.sums:
            total, place = self.sums[value]
            return total.moved(where, place)
        value = self.decided(value, where)
        key = (value, where.part, _spans(where, (*where.part, *value.axes)))
        for block in self.blocks:
            if key in block.values:
                return block.values[key]
        depth = self.home(where.variables(value.axes))
        with self.at(depth):
            if value.kind == "input":
                found = self.read(value, where)
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

    def compute(self, value: GraphValue, where: Where, into: View | None) -> View:
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
                    target = self.new_tile(word_of(step.value, {}), where, axes, step.value.dtype)
                self.step(step, where, axes, target)
                if not (final and into):
                    key = (step.value, where.part, _spans(where, (*where.part, *step.value.axes)))
                    self.blocks[-1].values[key] = target
        return target

    def steps(self, value: GraphValue, where: Where) -> list[Selection]:
        """The instructions that give a value, of what is there already. Of a value with free axes,
        those without are numbers; of one without, constants alone."""
        order: dict[GraphValue, None] = {}
        narrow = not where.free(value.axes)

        def visit(found: GraphValue) -> None:
            same = narrow or bool(where.free(found.axes))
            known = found is not value and self.known(found, where)
            if found.kind in ("apply", "where") and same and not known and found not in order:
                for argument in found.arguments:
                    visit(argument)
                order[found] = None

        visit(value)
        builder = self.reading.builder

        def is_number(found: GraphValue) -> bool:
            return found.kind == "constant" or not (narrow or where.free(found.axes))

        def times(found: GraphValue, factor: float) -> GraphValue:
            return builder.apply("multiply", found, builder.constant(factor))

        single = {v for v in order if self.reading.uses.get(v, 1) == 1}
        try:
            return select(list(order), is_number, single, times)
        except NoEngine as error:
            raise NotNested(str(error)) from None

    def known(self, value: GraphValue, where: Where) -> bool:
        """Whether a value is there already."""
        if value in self.sums:
            return True
        key = (value, where.part, _spans(where, (*where.part, *value.axes)))
        return any(key in block.values for block in self.blocks)

    def number(self, value: GraphValue | None, where: Where, tile: bool = False) -> str:
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

    def step(self, step: Selection, where: Where, axes: tuple[Axis, ...], target: View) -> None:
        """One instruction."""
        data = self.view(step.data, where)
        views = [target, data]
        if step.other is not None:
            views.append(self.view(step.other, where))
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
                between = self.new_tile(word_of(step.value, {}), where, axes)
                self.issue(where, axes, [between, data], lambda dst, given, width: (
                    self.scalar_form(dst, given[0], names[:1], numbers, False, width, ""),))  # fmt: skip
                views[1], names = between, names[1:]
                step = Selection(step.value, "tensor_tensor", step.functions[1:], step.data)

        def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
            two = self.vector_ns(int(width * self.spec.two_input_cycles_per_element))
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
                return (Form(call(dst, "scalar_tensor_tensor", text, said), "vector", two),)
            return self.two_tiles(dst, given, names[0], width, said)

        self.issue(where, axes, views, write)

    def two_tiles(
        self, dst: str, given: Sequence[str], name: str, width: int, said: str
    ) -> tuple[Form, ...]:
        """A tensor_tensor, on either engine that has it."""
        text = f"data1={given[0]}, data2={given[1]}, op={name}"
        cycles = self.spec.two_input_cycles_per_element * width
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

    def decided(self, value: GraphValue, where: Where) -> GraphValue:
        """A value without the conditions that hold, or fail, all over a part of its domain."""
        if not self.reading.conditional(value):
            return value
        arguments = tuple(self.decided(argument, where) for argument in value.arguments)
        if value.kind == "where":
            base, steps = self.affine(value.indices[0], where)
            low, high = self.bounds(base, {a: (where.span(a).width, s) for a, s in steps.items()})
            if low >= 0 or high < 0:
                return arguments[0 if low >= 0 else 1]
        return self.reading.rebuilt(value, arguments)

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
        if data.tile.psum:
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

    def choose(self, value: GraphValue, where: Where) -> View:
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

    def reduce(self, value: GraphValue, where: Where, into: View | None = None) -> View:
        """What is combined over axes that lie along the free axis."""
        axes = where.free(value.axes)
        if any(axis in where.part for axis in value.reduced):
            raise NotNested(f"a {value.function} runs over what lies on partitions")
        target = into or self.new_tile(word_of(value, {}), where, axes)
        inner = tuple(a for a in value.reduced if where.span(a).width > 1)
        width = math.prod(where.span(axis).width for axis in inner)
        (data,) = value.arguments
        place = Where(where.part, where.spans, (*axes, *inner))
        parts = self.cut(place, axes, max(1, self.stage.columns // width))

        def part(outer: Round) -> None:
            spot = Where(where.part, outer.where.spans, place.order)
            aim = target.moved(spot, place)
            if width <= self.stage.columns:
                self.combine(value, data, spot, inner, aim)
                return
            pieces = self.cut(spot, inner, self.stage.columns)
            count = math.prod(-(-spot.span(axis).width // size) for axis, size in pieces)
            name = self.names.new(f"{word_of(value, {})}_parts")
            tile = Tile(name, spot.rows, count)
            self.declare(tile)

            def piece(round_: Round) -> None:
                into = View(tile, round_.number, {})
                self.combine(value, data, round_.where, inner, into)

            self.each(spot, pieces, piece)
            self.reduced(value.function, spot.rows, aim, View(tile, At(), {}), [count], [1])

        self.each(place, parts, part)
        return target

    def combine(
        self, value: GraphValue, data: GraphValue, where: Where, inner: tuple[Axis, ...], into: View
    ) -> None:
        """One instruction that combines a tile over axes; the sum of what the Scalar engine makes
        comes with it."""
        axes = where.free(value.axes)
        data = self.decided(data, where)
        inner = tuple(axis for axis in inner if where.span(axis).width > 1)
        if data.kind == "apply" and not axes and value.function == "add":
            key = (data, where.part, _spans(where, (*where.part, *data.axes)))
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

    def summed(
        self, value: GraphValue, data: GraphValue, where: Where, into: View, key: object
    ) -> bool:
        """The Scalar engine's function with its sum on the way, where the value is one."""
        steps = self.steps(data, where)
        step = steps[-1]
        if step.value is not data or step.opcode != "activation":
            return False
        source = self.view(step.data, where)
        axes = where.free(data.axes)
        target = self.new_tile(word_of(data, {}), where, axes, data.dtype)
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

    def address(
        self, array: Array, indices: Sequence[Index], where: Where
    ) -> tuple[At, dict[Axis, int]]:
        """An element of an array in HBM, counted row by row: where it is, and steps along axes."""
        base, steps = At(), dict[Axis, int]()
        for n, index in enumerate(indices):
            own, along = self.affine(index, where)
            stride = math.prod(array.shape[n + 1 :])
            base = base + own * stride
            for axis, factor in along.items():
                steps[axis] = steps.get(axis, 0) + factor * stride
        return collected(base), steps

    def read(self, value: GraphValue, where: Where) -> View:
        """An array's elements on the chip: a member's tile, or brought from HBM."""
        if value.array.startswith("psum:"):
            return next(
                b.locals[value.array][-1].view for b in self.blocks if value.array in b.locals
            )
        found = self.local(value, where)
        if found is not None:
            return found
        if value.array in self.definitions and value.array in self.stage.members:
            raise NotNested(
                f"{value.array} is read at other places than its tile of the same round holds"
            )
        return self.load(value, where)

    def local(self, value: GraphValue, where: Where) -> View | None:
        """Where a member's tile holds what is read; None where it does not."""
        for block in reversed(self.blocks):
            for local in reversed(block.locals.get(value.array, ())):
                if found := self.held(local, value, where):
                    return found
        return None

    def held(self, local: Local, value: GraphValue, where: Where) -> View | None:
        """The part of a member's tile that is read; None where it holds something else."""
        offset = local.view.offset
        strides: dict[Axis, int] = {}
        lying: list[Axis] = []
        for axis, index in zip(local.axes, value.indices, strict=True):
            span = local.where.span(axis)
            if axis in local.where.part:
                single = len(index.terms) == 1 and not index.constant and index.terms[0][1] == 1
                if not single or not isinstance(index.terms[0][0], Axis):
                    return None
                other = index.terms[0][0]
                mine = where.span(other)
                if _differs(mine.start, span.start) or mine.width != span.width:
                    return None
                lying.append(other)
                continue
            base, steps = self.affine(index, where)
            if any(a in where.part for a in steps):
                return None
            begin = collected(base + span.start * -1)
            low, high = self.bounds(begin, {a: (where.span(a).width, s) for a, s in steps.items()})
            if low < 0 or high >= span.width:
                return None
            stride = local.view.strides.get(axis, 0)
            offset = offset + begin * stride
            for a, s in steps.items():
                strides[a] = strides.get(a, 0) + s * stride
        wide = [a for a in lying if where.span(a).width > 1]
        if wide != [a for a in where.part if where.span(a).width > 1]:
            return None
        return View(local.view.tile, collected(offset), strides)

    def bounds(self, base: At, steps: Mapping[Axis, tuple[int, int]]) -> tuple[int, int]:
        """The least and the largest value of a place over loops and axes."""
        ends = [f * (self.text.reach[v] - 1) for v, f in base.terms]
        ends += [(width - 1) * step for width, step in steps.values()]
        low = base.constant + sum(min(end, 0) for end in ends)
        return low, base.constant + sum(max(end, 0) for end in ends)

    def load(self, value: GraphValue, where: Where) -> View:
        """Brings what is read of an array: the box around it where that is not much more, else its
        elements. What other rounds of a loop need too is brought at once, where it fits."""
        wide = self.widened(self.arrays.get(value.array), value, where)
        if wide is not None:
            return self.view(value, wide).moved(where, wide)
        value = self.stored(value)
        array = self.arrays[value.array]
        dims = [self.affine(index, where) for index in value.indices] or [(At(), {})]
        shape = array.shape or (1,)
        axes = where.free(value.axes)
        rows = [(where.span(a).width, sum(s.get(a, 0) * _step(shape, n)
                 for n, (_, s) in enumerate(dims))) for a in where.part]  # fmt: skip
        exact = math.prod(where.span(a).width for a in axes)
        sizes = [
            1 + sum(abs(s) * (where.span(a).width - 1) for a, s in steps.items() if a in axes)
            for _, steps in dims
        ]
        backwards = any(s < 0 for _, steps in dims for a, s in steps.items() if a in axes)
        if math.prod(sizes) <= 4 * exact and not backwards:
            return self.box(value, where, dims, sizes, rows, shape)
        return self.elements(value, where, axes, rows)

    def box(self, value: GraphValue, where: Where, dims: Sequence[tuple[At, dict[Axis, int]]],
            sizes: list[int], rows: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> View:  # fmt: skip
        """All elements of an array between the first and the last one that is read of it."""
        key = (value.array, tuple(rows))
        starts = [base for base, _ in dims]
        for block in self.blocks:
            for box in block.boxes.get(key, ()):
                moved = self.inside_box(box, starts, sizes)
                if moved is not None:
                    return self.boxed(moved, box.strides, dims, where)
        first = starts
        starts, sizes = self.union(value, where, first, sizes, rows)
        strides = row_major(sizes)
        array = self.arrays[value.array]
        name = self.names.new(f"{value.array}_tile")
        tile = Tile(name, where.rows, math.prod(sizes), array.dtype)
        self.declare(tile)
        view = View(tile, At(), {})
        base = At()
        for n, start in enumerate(starts):
            base = base + start * _step(shape, n)
        parts = [(size, _step(shape, n), strides[n]) for n, size in enumerate(sizes)]
        self.transfer(value.array, view, collected(base), rows, parts)
        self.blocks[-1].boxes.setdefault(key, []).append(Box(view, starts, sizes, strides))
        moved = self.inside_box(self.blocks[-1].boxes[key][-1], first, [1] * len(first))
        assert moved is not None
        return self.boxed(moved, strides, dims, where)

    def union(
        self, value: GraphValue, where: Where, starts: list[At], sizes: list[int],
        rows: Sequence[tuple[int, int]],
    ) -> tuple[list[At], list[int]]:  # fmt: skip
        """The box around all that the members of a stage read of an array beside each other."""
        array = self.arrays[value.array]
        shape = array.shape or (1,)
        bound = {part.axis for part in (*self.stage.partition, *self.stage.loops)}
        spans = {axis: span for axis, span in where.spans.items() if axis.name in bound}
        place = Where(where.part, spans, ())
        for member in self.stage.members:
            for root in self.reading.meanings[member].roots:
                for found in inputs_of(root):
                    named = self.stored_name(found.array)
                    if found.kind != "input" or named != value.array or not found.indices:
                        continue
                    other = self.stored(found)
                    dims = [self.affine(index, place) for index in other.indices]
                    own = [
                        (place.span(a).width, sum(s.get(a, 0) * _step(shape, n)
                         for n, (_, s) in enumerate(dims))) for a in place.part
                    ]  # fmt: skip
                    steps = [
                        collected(b + first * -1)
                        for (b, _), first in zip(dims, starts, strict=True)
                    ]
                    widths = [
                        1
                        + sum(
                            s * (place.span(a).width - 1)
                            for a, s in d.items()
                            if a not in place.part
                        )
                        for _, d in dims
                    ]
                    if own != list(rows) or any(step.terms for step in steps):
                        continue
                    if any(s < 0 for _, d in dims for s in d.values()) or any(
                        not 0 <= low <= high < extent
                        for (b, d), extent in zip(dims, shape, strict=True)
                        for low, high in [
                            self.bounds(b, {a: (place.span(a).width, s) for a, s in d.items()})
                        ]
                    ):
                        continue
                    lows = [min(0, step.constant) for step in steps]
                    highs = [
                        max(size, step.constant + width)
                        for size, step, width in zip(sizes, steps, widths, strict=True)
                    ]
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
            low, high = self.bounds(step, {})
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

    def load_into(self, value: GraphValue, where: Where, view: View) -> bool:
        """Brings what is read straight into its place, where its elements are there once."""
        value = self.stored(value)
        array = self.arrays[value.array]
        base, steps = self.address(array, value.indices, where)
        if any(axis not in steps for axis in view.strides):
            return False
        rows = [(where.span(a).width, steps.get(a, 0)) for a in where.part]
        dims = [(where.span(a).width, steps[a], view.strides[a]) for a in view.strides]
        self.transfer(value.array, view, base, rows, dims)
        return True

    def elements(
        self,
        value: GraphValue,
        where: Where,
        axes: tuple[Axis, ...],
        rows: Sequence[tuple[int, int]],
    ) -> View:
        """Just the elements that are read, those nearest in memory beside each other."""
        array = self.arrays[value.array]
        base, steps = self.address(array, value.indices, where)
        ordered = sorted(axes, key=lambda axis: -abs(steps.get(axis, 0)))
        view = self.new_tile(f"{value.array}_tile", where, ordered, array.dtype)
        parts = [(where.span(a).width, steps.get(a, 0), view.strides[a]) for a in ordered]
        self.transfer(value.array, view, base, rows, parts)
        return view

    def widened(self, array: Array | None, value: GraphValue, where: Where) -> Where | None:
        """Where to read for all rounds of loops that only its free axes run in; None where that saves
        nothing or does not fit."""
        axes = [a for a in value.axes if a not in where.part and where.span(a).start.terms]
        if not axes or array is None:
            return None
        fixed = value.axes - set(axes)
        now, then = self.home(where.variables(value.axes)), self.home(where.variables(fixed))
        loops = {v for a in axes for v, _ in where.span(a).start.terms}
        between = {b.variable for b in self.blocks[then + 1 : now]} - loops
        others = [where.span(a).width for a in fixed if a not in where.part]
        size = math.prod(a.extent for a in axes) * math.prod(others) * parse(array.dtype).itemsize
        readers = self.readers_of(array.name) & set(self.stage.members)
        if (not between and len(readers) < 2) or size > KEPT_BYTES:
            return None
        return where.within({axis: Span(At(), axis.extent) for axis in axes})

    def readers_of(self, array: str) -> set[str]:
        """The definitions that read an array."""
        return {
            out
            for out, meaning in self.reading.meanings.items()
            if any(value.array == array for root in meaning.roots for value in inputs_of(root))
        }

    def stored(self, value: GraphValue) -> GraphValue:
        """An input as it lies in HBM: of an array that is read beyond its ends, with room there."""
        margins = self.margins.get(value.array)
        if margins is None:
            return value
        name = self.stored_name(value.array)
        if name not in self.arrays:
            self.copy_with_margins(self.arrays[value.array], name, margins)
        return self.reading.builder.input(name, margins.place(value.indices), value.dtype)

    def stored_name(self, array: str) -> str:
        """What is read in the place of an array: of what has its own shape in HBM, a copy."""
        own = array in self.definitions and array not in self.results
        return array if own or array not in self.margins else f"{array}_with_margins"

    def copy_with_margins(self, array: Array, name: str, margins: Margins) -> None:
        """A copy in HBM with room at the ends, made before anything else of the stage."""
        with self.at(0):
            self.declare_outside(name, f"{array.name}_padded", margins.shape, array.dtype, margins)
            size = math.prod(margins.shape) // margins.outer - margins.low - margins.high
            rows = max(d for d in range(1, self.spec.partitions + 1) if size % d == 0)
            counts, strides = [rows, size // rows], [size // rows, 1]
            with self.loop("i_copy", margins.outer) as at:
                dst, src = (
                    self.text.outside(self.outside[which], shape, start, counts, strides)
                    for which, shape, start in (
                        (name, margins.shape, at * margins.step + margins.low),
                        (array.name, array.shape, at * size),
                    )
                )
                moved = 2 * size * parse(array.dtype).itemsize
                ns = self.dma_ns(moved, [counts[1]], [[1], [1]], array.dtype)
                self.put("", Form(f"nisa.dma_copy(dst={dst}, src={src})", "dma", ns), moved=moved)

    def declare_outside(
        self, name: str, wanted: str, shape: tuple[int, ...], dtype: str,
        margins: Margins | None = None,
    ) -> None:  # fmt: skip
        """Makes an array in HBM, with zeros in its margins."""
        self.arrays[name] = Array(name, shape, dtype, shape)
        self.outside[name] = unique = self.names.new(wanted)
        made = f"{unique} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.private_hbm)"
        self.text.first.append(line(made))
        if margins is not None:
            with self.at(0):
                self.put_zeros(name, margins, dtype)

    def put_zeros(self, name: str, margins: Margins, dtype: str) -> None:
        """Zeros in the margins of an array, many rows of a tile at once."""
        most = max(margins.low, margins.high)
        width = min(2048, most)
        rows = min(self.spec.partitions, most // width)
        if margins.outer > 1:
            rows = self.spec.partitions
            rows = max(d for d in range(1, rows + 1) if margins.outer % d == 0)
        zeros = View(Tile(self.names.new("zeros"), rows, width, dtype), At(), {})
        self.declare(zeros.tile)
        dst = self.text.inside(zeros.tile, rows, At(), [width], [1])
        fill = self.text.filled(dst, (rows, width), "0", dtype)
        self.put("", Form(fill, "vector", self.vector_ns(width)))

        def put(start: At, count: int, size: int, step: int) -> None:
            self.transfer(name, zeros, start, [(count, step)], [(size, 1, 1)], True)

        ends = ((0, margins.low), (margins.step - margins.high, margins.high))
        for begin, length in (end for end in ends if end[1]):
            several = margins.outer > 1
            block = width if several else rows * width
            with self.loop("i_zero", margins.outer // rows if several else 1) as at:
                start = at * (rows * margins.step) + begin
                if length // block:
                    with self.loop("i_block", length // block) as part:
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
        self, array: str, view: View, offset: At, rows: Sequence[tuple[int, int]],
        dims: Sequence[tuple[int, int, int]], store: bool = False,
    ) -> None:  # fmt: skip
        """One DMA, or loops of it where addresses are not a few strides. `rows` has count and step in
        HBM of each axis on partitions, `dims` count and both steps of each free axis."""
        counts, steps = merged([c for c, _ in rows], [[s for _, s in rows]])
        self._transfer(
            array, view, offset, list(zip(counts, steps[0], strict=True)), dims, At(), store
        )

    def _transfer(
        self, array: str, view: View, offset: At, rows: list[tuple[int, int]],
        dims: Sequence[tuple[int, int, int]], low: At, store: bool,
    ) -> None:  # fmt: skip
        if len(rows) > 1:
            (count, step), inside = rows[0], math.prod(c for c, _ in rows[1:])
            with self.loop("i_row", count) as at:
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
            with self.loop("i_part", counts[bad]) as at:
                moved = View(view.tile, view.offset + at * strides[1][bad], {})
                self._transfer(array, moved, offset + at * strides[0][bad], rows, left, low, store)
            return
        ((partitions, step),) = rows
        on_chip = self.text.inside(view.tile, partitions, view.offset, counts, strides[1], low)
        own = self.arrays[array]
        shape = own.shape or (1,)
        outside = self.text.outside(
            self.outside[array], shape, offset, [partitions, *counts], [step, *strides[0]]
        )
        dst, src = (outside, on_chip) if store else (on_chip, outside)
        moved_bytes = partitions * math.prod(counts) * parse(own.dtype).itemsize
        text = f"nisa.dma_copy(dst={dst}, src={src})"
        ns = self.dma_ns(moved_bytes, counts, strides, own.dtype)
        self.put("", Form(text, "dma", ns), moved=moved_bytes)

    def dma_ns(
        self, size: int, counts: Sequence[int], strides: Sequence[Sequence[int]], dtype: str
    ) -> float:
        """Nanoseconds of a DMA of some bytes; runs of elements side by side on both sides go faster."""
        runs = [c for c, *s in zip(counts, *strides, strict=True) if s == [1, 1]] or [1]
        slow = max(1.0, EFFICIENT_RUN / (runs[-1] * parse(dtype).itemsize))
        return float(size * slow / self.spec.dma_peak_bytes_per_ns)

    # Products.

    def product(
        self, definition: Definition, found: Product, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A matrix product: what lies on partitions is stationary, the other axes move."""
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
        summed = max(found.contracted, key=lambda axis: axis.extent)
        others = [(axis, 1) for axis in found.contracted if axis != summed]
        size = min(self.spec.partitions, summed.extent)
        operand = _Operands(self, definition, found, where, summed, size, others)
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
                sizes = [spot.span(axis).width for axis in lying]
                sums = View(
                    Tile(self.names.new(f"{definition.out}_sums"), spot.rows, math.prod(sizes),
                         psum=True),
                    At(), dict(zip(lying, row_major(sizes), strict=True)),
                )  # fmt: skip
                self.declare(sums.tile, sums=True)
                width = math.prod(spot.span(axis).width for axis in columns)

                def add(k: Round) -> None:
                    def row(own: Round) -> None:
                        spans = {**own.where.spans,
                                 **{a: k.where.span(a) for a in found.contracted}}  # fmt: skip
                        at = Where((summed,), spans, spot.order)
                        texts = []
                        for view, axes in (
                            (stationary(k, at), where.part),
                            (moved(k, at), columns),
                        ):
                            counts = [spot.span(a).width for a in axes]
                            sizes, s = merged(counts, [[view.strides.get(a, 0) for a in axes]])
                            texts.append(self.text.inside(
                                view.tile, k.where.span(summed).width, view.offset, sizes, s[0]))  # fmt: skip
                        into = sums.moved(own.where, spot)
                        dst = self.text.inside(sums.tile, spot.rows, into.offset, [width], [1])
                        ns = matmul_ns(self.spec, width, spot.rows, found.dtype)
                        self.put("", Form(self.text.product(dst, *texts), "tensor", ns))

                    self.each(spot, beside, row)

                def out(own: Round) -> None:
                    self.evacuate(
                        definition.out, found.scale, own.where, own.where.free(set(definition.axes)),
                        sums.moved(own.where, spot), aim.moved(own.where, spot),
                    )  # fmt: skip

                self.each(Where((summed,), spot.spans, ()), [*others, (summed, size)], add)
                self.each(spot, beside, out)

            self.each(place, pieces, wide)

        self.each(where, outer, batch)

    def evacuate(
        self, product: str, scale: GraphValue, where: Where, axes: tuple[Axis, ...], sums: View,
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
        self.into(value, where, aim)

    # Sums over what lies on partitions.

    def begin_carried(self, definition: Definition, lying: tuple[Axis, ...]) -> None:
        """Sums to which each round of the stage adds its elements: in PSUM, where a product with ones
        adds the partitions up on the way; where that is full in SBUF, a sum for each partition."""
        found = self.reading.meanings[definition.out].product
        if found is None or found.left.kind != "constant" or set(lying) != {*found.contracted}:
            raise NotNested(
                f"{definition.out} runs over what lies on partitions, and is no plain sum"
            )
        width = math.prod(axis.extent for axis in definition.axes)
        bank = self.spec.psum_bank_bytes // 4
        held = sum(
            -(-view.tile.width // bank) for view in self.held_sums.values() if view.tile.psum
        )
        psum = held + -(-width // bank) <= CARRIED_BANKS
        rows = 1 if psum else math.prod(part.size for part in self.stage.partition)
        tile = Tile(self.names.new(f"{definition.out}_sum"), rows, width, psum=psum)
        self.declare(tile, sums=psum)
        if not psum:
            dst = self.text.inside(tile, rows, At(), [width], [1])
            fill = self.text.filled(dst, (rows, width), "0.0", "float32")
            self.put("", Form(fill, "vector", self.vector_ns(width)))
        place = Where((), {}, definition.axes)
        strides = row_major([axis.extent for axis in definition.axes])
        view = View(tile, At(), dict(zip(definition.axes, strides, strict=True)))
        self.held_sums[definition.out] = view
        self.carried[definition.out] = lambda: self.finish_carried(definition, found, view, place)

    def add_carried(self, definition: Definition, where: Where) -> None:
        """Adds this round's elements to the sums."""
        found = self.reading.meanings[definition.out].product
        assert found is not None
        total = self.held_sums[definition.out]
        axes = where.free(set(definition.axes))
        most = self.spec.psum_bank_bytes // 4 if total.tile.psum else self.stage.columns

        def part(round_: Round) -> None:
            spot = round_.where
            view = self.view(found.right, spot)
            into = total.moved(spot, Where((), {}, ()))
            own = spot.free(set(definition.axes))
            if total.tile.psum:
                self.add_ones(spot, own, view, into)
                return

            def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
                return self.two_tiles(dst, given, "nl.add", width, self.said(into, view))

            self.issue(spot, own, [into, into, view], write)

        self.each(where, self.cut(where, axes, most), part)

    def add_ones(self, where: Where, axes: tuple[Axis, ...], view: View, into: View) -> None:
        """Adds the partitions of a tile up, into PSUM."""
        ones = self.constant_at_first(1.0, where)
        if view.tile.dtype != "float32" or view.tile.psum:
            view = self.converted(view, where, axes, "float32")
        counts = [where.span(a).width for a in axes]
        sizes, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (into, view)])
        dst = self.text.inside(into.tile, 1, into.offset, sizes, s[0])
        moving = self.text.inside(view.tile, where.rows, view.offset, sizes, s[1])
        text = self.text.product(dst, self.column(ones, where.rows), moving)
        self.put("", Form(text, "tensor", matmul_ns(self.spec, math.prod(sizes), 1)))

    def constant_at_first(self, number: float, where: Where) -> View:
        """A number on every partition, made before all loops."""
        value = self.reading.builder.constant(number)
        return self.view(value, Where((Axis("row", where.rows),), {}, ()))

    def finish_carried(
        self, definition: Definition, found: Product, sums: View, place: Where
    ) -> None:
        """Stores the sums, after the partitions are added up."""
        pieces = self.cut(place, definition.axes, self.spec.psum_bank_bytes // 4)

        def part(round_: Round) -> None:
            spot = round_.where
            moved = sums.moved(spot, place)
            axes = spot.free(set(definition.axes))
            if not sums.tile.psum:
                width = math.prod(spot.span(a).width for a in axes)
                psum = Tile(self.names.new(f"{definition.out}_sums"), 1, width, psum=True)
                self.declare(psum, sums=True)
                strides = row_major([spot.span(a).width for a in axes])
                total = View(psum, At(), dict(zip(axes, strides, strict=True)))
                row = Where((Axis("row", sums.tile.partitions),), spot.spans, ())
                self.add_ones(row, axes, moved, total)
                moved = total
            out = self.arrays.get(definition.out)
            aim = self.new_tile(definition.out, spot, axes, out.dtype if out else "float32")
            self.evacuate(definition.out, found.scale, spot, axes, moved, aim)
            self.store(definition, spot, aim)

        self.each(place, pieces, part)

    # Recurrences.

    def scan(
        self, definition: Definition, parts: tuple[GraphValue, GraphValue, GraphValue], where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A recurrence along a free axis, part after part."""
        assert isinstance(definition, Scan)
        along = definition.along
        if along in where.part:
            raise NotNested(f"{definition.out} runs along {along.name}, which lies on partitions")
        if where.span(along).width < along.extent:
            raise NotNested(
                f"{definition.out} runs along {along.name}, which its stage takes in parts"
            )
        others = [(a, 1) for a in definition.axes if a != along and a not in where.part
                  and where.span(a).width > 1]  # fmt: skip
        factor, term, initial = parts

        def one(round_: Round) -> None:
            spot = round_.where
            size = min(self.stage.columns, along.extent)
            state: View | None = None
            for start in range(0, along.extent, size):
                width = min(size, along.extent - start)
                place = spot.within({along: Span(At(start), width)})
                first = self.initial(initial, spot.within({along: Span(At(), 1)}), state)
                view = target(place)
                views = [view, *(self.tile_along(v, place, along) for v in (factor, term))]
                names = (definition.scale, definition.combine)

                def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
                    text = (
                        f"data0={given[0]}, data1={given[1]}, initial={first}, "  # noqa: B023
                        f"op0=nl.{names[0]}, op1=nl.{names[1]}"  # noqa: B023
                    )
                    call = self.text.call(dst, "tensor_tensor_scan", text, self.said(*views))  # noqa: B023
                    return (Form(call, "vector", self.vector_ns(2 * width)),)

                self.issue(place, (along,), views, write)
                finish(place, view)
                last = view.offset + view.strides.get(along, 0) * (width - 1)
                state = View(view.tile, last, {})

        self.each(where, others, one)

    def initial(self, value: GraphValue, where: Where, state: View | None) -> str:
        """What a part of a recurrence begins with."""
        if state is None:
            return self.number(value, where)
        if state.tile.dtype != "float32":
            state = self.converted(state, where, (), "float32")
        return self.column(state, where.rows)

    def tile_along(self, value: GraphValue, where: Where, axis: Axis) -> View:
        """A value with an element for each place along an axis, in SBUF."""
        view = self.view(value, where)
        if view.strides.get(axis) is None:
            made = self.new_tile("repeated", where, (axis,))
            self.copy(where, (axis,), made, view)
            return made
        return view


COMPARISONS = frozenset("less less_equal greater greater_equal equal not_equal".split())


class _Operands:
    """How the operands of one product come to have the summed axis on partitions."""

    def __init__(
        self, emitter: Emitter, definition: Definition, found: Product, where: Where, summed: Axis,
        size: int, others: list[tuple[Axis, int]],
    ) -> None:  # fmt: skip
        self.emitter = emitter
        self.definition = definition
        self.found = found
        self.where = where
        self.summed = summed
        self.size = size
        self.others = others
        self.rounds = math.prod(a.extent for a, _ in others) * -(-summed.extent // size)

    def make(
        self, value: GraphValue, own: tuple[Axis, ...], where: Where, side: str, moving: bool
    ) -> Callable[[Round, Where], View]:
        """A function that gives the operand in a round of the sum."""
        emitter = self.emitter
        nest = emitter.nest
        axes = tuple(a for a in own if where.span(a).width > 1 or a in where.part)
        way = nest.way(self.definition.out, side) or self._way(value, axes, where)
        if not axes:
            way = "direct"
        dtype = self.found.dtype
        size = parse(dtype).itemsize * self.rounds
        if value.kind == "constant":
            ones = emitter.view(
                value, Where((self.summed,), {self.summed: Span(At(), self.size)}, ())
            )
            if dtype != "float32":
                ones = emitter.converted(ones, Where((Axis("k", self.size),), {}, ()), (), dtype)
            return lambda k, place: ones
        base = None
        if (self.definition.out, side) not in nest.streamed:
            base = self._place(value, axes, where, size)
        elif not moving and size * math.prod(where.span(a).width for a in axes) <= OPERAND_BYTES:
            base = where
        if base is None:
            return lambda k, place: self._once(value, axes, place, way, k)
        depth = emitter.home(base.variables(value.axes - set(self._summed)))
        with emitter.at(depth):
            kept = self._kept(value, axes, base, way, side)

        def given(k: Round, place: Where) -> View:
            view = kept.moved(place, base)
            step = math.prod(base.span(a).width for a in axes)
            return View(view.tile, collected(view.offset + k.number * step), view.strides)

        return given

    def _place(
        self, value: GraphValue, axes: tuple[Axis, ...], where: Where, size: int
    ) -> Where | None:
        """Where an operand is, for the outermost of the open loops for which all of it that is needed
        in the loop fits: `size` bytes for each element of its own axes. None where it does not even
        fit for the innermost."""
        emitter = self.emitter
        fixed = where.variables(value.axes - set(axes) - set(self._summed))
        for block in emitter.blocks[emitter.home(fixed) :]:
            spans = {a: block.spans.get(a) or Span(At(), a.extent) for a in axes}
            spans |= {a: where.span(a) for a in axes if a in where.part and a not in block.spans}
            if size * math.prod(span.width for span in spans.values()) <= OPERAND_BYTES:
                return where.within(spans)
        here = size * math.prod(where.span(a).width for a in axes)
        return where if here <= OPERAND_BYTES else None

    @property
    def _summed(self) -> tuple[Axis, ...]:
        return (self.summed, *(axis for axis, _ in self.others))

    def _way(self, value: GraphValue, axes: tuple[Axis, ...], where: Where) -> Way:
        """Turned where what is read lies on the chip with other axes on partitions, or in memory
        along the summed axis."""
        emitter = self.emitter
        if not axes:
            return "direct"
        for found in inputs_of(value):
            if found.array in emitter.stage.members:
                return "turned"
        for found in inputs_of(value):
            if found.indices and self.summed in {a for a, s in found.indices[-1].terms if s == 1}:
                return "turned"
        return "direct"

    def _kept(
        self, value: GraphValue, axes: tuple[Axis, ...], where: Where, way: Way, side: str
    ) -> View:
        """All rounds of an operand, one after the other in one tile."""
        emitter = self.emitter
        key = ("operand", value, axes, _spans(where, (*axes, *value.axes)), way, self._summed)
        for block in emitter.blocks:
            if key in block.values:
                return block.values[key]
        width = math.prod(where.span(a).width for a in axes)
        word = word_of(value, {})
        tile = Tile(
            emitter.names.new(f"{word}_kept"), self.size, width * self.rounds, self.found.dtype
        )
        emitter.declare(tile)
        strides, step = {}, 1
        for axis in reversed(axes):
            strides[axis] = step
            step *= where.span(axis).width

        group, outer = 1, list[tuple[Axis, int]]()
        if way != "direct" and axes:
            # What is read lies with its own axes on partitions, all of the summed axis beside it.
            lying, rest = self._lying(axes, where)
            outer = [(axis, 1) for axis in rest]
            if set(lying) <= set(self.where.part):
                rows = math.prod(where.span(a).width for a in lying)
                group = self._grouped(self.summed.extent, self.size, rows)
        start = Where((self.summed,), where.spans, ())

        def part(row: Round) -> None:
            def fill(k: Round) -> None:
                into = View(tile, k.number * (group * width), strides).moved(row.where, start)
                place = Where((self.summed,), {**row.where.spans, **{
                    a: k.where.span(a) for a in self._summed}}, where.order)  # fmt: skip
                self._fill(value, axes, place, way, into, width)

            emitter.each(row.where, [*self.others, (self.summed, self.size * group)], fill)

        emitter.each(start, outer, part)
        view = View(tile, At(), strides)
        emitter.blocks[-1].values[key] = view
        return view

    def _once(
        self, value: GraphValue, axes: tuple[Axis, ...], place: Where, way: Way, k: Round
    ) -> View:
        """An operand for one round of the sum."""
        emitter = self.emitter
        depth = emitter.home(place.variables(value.axes | set(axes)))
        key = ("once", value, axes, _spans(place, (*axes, *value.axes)), way)
        for block in emitter.blocks:
            if key in block.values:
                return block.values[key]
        with emitter.at(depth):
            spot = Where((self.summed,), place.spans, place.order)
            if way == "direct":
                view = emitter.view(value, spot)
                if view.tile.dtype != self.found.dtype:
                    view = emitter.converted(view, spot, spot.free(value.axes), self.found.dtype)
            else:
                strides, width = {}, 1
                for axis in reversed(axes):
                    strides[axis] = width
                    width *= place.span(axis).width
                name = emitter.names.new(word_of(value, {}))
                tile = Tile(name, spot.rows, width, self.found.dtype)
                emitter.declare(tile)
                view = View(tile, At(), strides)
                self._fill(value, axes, spot, way, view, width)
            emitter.blocks[-1].values[key] = view
        return view

    def _fill(
        self, value: GraphValue, axes: tuple[Axis, ...], place: Where, way: Way, into: View,
        step: int,
    ) -> None:  # fmt: skip
        """Rounds of an operand, which are `step` elements apart, into their place."""
        emitter = self.emitter
        if way == "direct":
            own = place.free(set(axes))
            view = View(into.tile, into.offset, {a: into.strides[a] for a in own})
            loads = value.kind == "input" and value.array not in emitter.stage.members
            if loads and value.dtype == into.tile.dtype and emitter.load_into(value, place, view):
                return
            spot = Where((self.summed,), place.spans, own)
            emitter.each(
                spot,
                emitter.cut(spot, own, emitter.stage.columns),
                lambda r: emitter.into(value, r.where, view.moved(r.where, spot)),
            )
            return
        lying, rest = self._lying(axes, place)
        k = place.span(self.summed)

        def source_at(spot: Where) -> tuple[View, At, int]:
            # The value is computed for all of the summed axis at once, where that is not too long.
            long = self.summed.extent <= emitter.stage.columns
            own = spot.span(self.summed)
            wide = Span(At(), self.summed.extent) if long else own
            source = Where(lying, {**spot.spans, self.summed: wide}, (*rest, self.summed))
            view = emitter.view(value, source)
            start = collected(own.start + wide.start * -1)
            if view.strides.get(self.summed) is None:
                raise NotNested(f"an operand of {self.definition.out} lacks {self.summed.name}")
            if view.tile.psum or view.tile.dtype not in ("float32", "bfloat16", "float16"):
                view = emitter.converted(view, source, source.free(value.axes), self.found.dtype)
            offset = collected(view.offset + start * view.strides[self.summed])
            return view, offset, source.rows

        def turn(spot: Where, psum: View) -> None:
            view, offset, rows = source_at(spot)
            width = spot.span(self.summed).width
            data = emitter.text.inside(
                view.tile, rows, offset, [width], [view.strides[self.summed]]
            )
            dst = emitter.text.inside(psum.tile, width, psum.offset, [rows], [1])
            ns = matmul_ns(emitter.spec, rows, width, view.tile.dtype)
            emitter.put("", Form(emitter.text.transposed(dst, data), "tensor", ns))

        def squares(round_: Round) -> None:
            """Transposes of squares by the Vector engine, straight into the operand."""
            spot = round_.where
            view, offset, rows = source_at(spot)
            width, along = spot.span(self.summed).width, view.strides[self.summed]
            if view.tile.dtype != into.tile.dtype or rows % SQUARE or width % SQUARE or along != 1:
                raise NotNested(
                    f"an operand of {self.definition.out} is not made of squares of {SQUARE}"
                )
            target = into.offset + round_.number * step
            for axis in (*lying, *rest):
                moved = spot.span(axis).start + place.span(axis).start * -1
                target = collected(target + moved * into.strides.get(axis, 0))
            with (
                emitter.loop("i_row", rows // SQUARE) as i,
                emitter.loop("i_square", width // SQUARE) as j,
            ):
                dst = emitter.text.inside(
                    into.tile, SQUARE, target + i * SQUARE, [SQUARE], [1], j * SQUARE
                )
                data = emitter.text.inside(
                    view.tile, SQUARE, offset + j * SQUARE, [SQUARE], [1], i * SQUARE
                )
                call = emitter.text.call(
                    dst, "nc_transpose", f"data={data}, engine=nisa.vector_engine"
                )
                emitter.put("", Form(call, "vector", emitter.vector_ns(SQUARE)))

        def turned(round_: Round) -> None:
            """Transposes beside each other in PSUM, and one copy of all of them."""
            spot = round_.where
            rows = math.prod(min(spot.span(a).width, 128) for a in lying)
            parts = [(self.summed, self.size)]
            wide = lying[0] not in self.where.part
            parts += [(lying[0], 128)] if wide else []
            count = math.prod(-(-spot.span(a).width // n) for a, n in parts)
            dtype = value.dtype if value.dtype in NARROW else "float32"
            psum = Tile(emitter.names.new("turned"), self.size, count * rows, dtype, psum=True)
            emitter.declare(psum)
            emitter.each(spot, parts, lambda r: turn(
                r.where, View(psum, collected(r.number * rows), {})))  # fmt: skip
            target = into
            for axis in (*lying, *rest):
                moved = spot.span(axis).start + place.span(axis).start * -1
                offset = collected(target.offset + moved * into.strides.get(axis, 0))
                target = View(target.tile, offset, target.strides)
            # Rounds of the sum follow one another, in PSUM as in the operand.
            rounds = Axis("round", count) if not wide else None
            strides = dict(zip(lying, row_major([spot.span(a).width for a in lying]), strict=True))
            own = {a: into.strides[a] for a in lying}
            spans = {a: spot.span(a) for a in lying}
            aim = (*lying,)
            if rounds:
                aim, strides[rounds] = (rounds, *lying), rows
                own[rounds] = step
            where = Where((Axis("k", min(self.size, k.width)),), spans, aim)
            emitter.copy(
                where, aim, View(target.tile, target.offset, own), View(psum, At(), strides)
            )

        parts = [(a, 1) for a in rest]
        if way == "squares":
            if any(into.strides[a] != n for a, n in zip(
                lying, row_major([place.span(a).width for a in lying]), strict=True
            )) or not set(lying) <= set(self.where.part):  # fmt: skip
                raise NotNested(f"an operand of {self.definition.out} is not one run of rows")
            emitter.each(place, [*parts, (self.summed, self.size)], squares)
            return
        if lying and lying[0] not in self.where.part:
            width = place.span(lying[0]).width
            emitter.each(place, [*parts, (lying[0], self._grouped(width, 128, 128) * 128)], turned)
        else:
            emitter.each(place, parts, turned)

    def _lying(self, axes: tuple[Axis, ...], place: Where) -> tuple[tuple[Axis, ...], list[Axis]]:
        """Of an operand that is turned: what lies on partitions before, and its other axes."""
        lying = tuple(a for a in axes if a in self.where.part) or axes[-1:]
        return lying, [a for a in axes if a not in lying and place.span(a).width > 1]

    def _grouped(self, width: int, size: int, rows: int) -> int:
        """How many transposes, each of `size` along an axis of `width`, a bank of PSUM holds."""
        if width <= size or width % size:
            return 1
        most = self.emitter.spec.psum_bank_bytes // 4 // rows
        return max(n for n in range(1, max(most, 1) + 1) if (width // size) % n == 0)


def deciding(algorithm: Algorithm) -> set[Axis]:
    """Short axes along which conditions change, each part of which is written on its own."""
    found: set[Axis] = set()
    for definition in algorithm.definitions:
        for expression in expressions_of(definition):
            for part in walk(expression):
                for condition in part.conditions if isinstance(part, Condition) else ():
                    found |= condition.axes if len(condition.axes) == 1 else frozenset()
    return {axis for axis in found if axis.extent <= MOST_PIECES}


def reductions_of(value: GraphValue) -> list[GraphValue]:
    """What a value combines, the outermost."""
    if value.kind == "reduce":
        return [value]
    return [found for argument in value.arguments for found in reductions_of(argument)]


def row_major(sizes: Sequence[int]) -> list[int]:
    """The strides of elements that follow one another."""
    return [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]


def _key(at: At) -> tuple[object, ...]:
    found = collected(at)
    return (found.constant, *sorted(found.terms))


def _spans(where: Where, axes: Sequence[Axis] | tuple[Axis, ...]) -> tuple[object, ...]:
    """What tells the spans of axes from others."""
    return tuple(
        (axis, _key(where.span(axis).start), where.span(axis).width) for axis in sorted(set(axes))
    )


def _differs(one: At, other: At) -> bool:
    difference = collected(one + other * -1)
    return bool(difference.constant or difference.terms)


def _step(shape: tuple[int, ...], n: int) -> int:
    return math.prod(shape[n + 1 :])
