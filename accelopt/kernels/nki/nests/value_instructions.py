"""Values as instructions: what is computed is found again in the innermost open loop that it depends on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from accelopt.algorithm.functions import COMPARISONS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Array
from accelopt.algorithm.linear import row_major
from accelopt.algorithm.value_nodes import ORDERED, PLACES, RANKED
from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.axis_positions import At, FreeNames, Span, number_text
from accelopt.kernels.nki.nests.gathering import gather
from accelopt.kernels.nki.nests.hbm_margins import Margins, is_zero_outside
from accelopt.kernels.nki.nests.instructions import Instructions
from accelopt.kernels.nki.nests.moments import Moment, moment
from accelopt.kernels.nki.nests.nest import NotNested, ReadAfterChange, Stage
from accelopt.kernels.nki.nests.places import Local, Round, View, Where, spans_of
from accelopt.kernels.nki.nests.selection import NoEngine, Selection, select
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import MOST_FREE, Tile, Writer, collected, merged
from accelopt.kernels.nki.nests.tile_names import word_of
from accelopt.kernels.nki.nests.value_graphs import Reading, inputs_of
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dtypes import parse

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.hbm_reads import Memory
    from accelopt.kernels.nki.nests.partition_reductions import Partitions

SLICE = 32
"""Elements of a row of which a mask is applied to all, or to none."""
MOST_SORTED = 16_384
"""Elements of a row of which Vector finds the largest (nki.isa.max8)."""
LEAST = -3.0e38
"""In the place of what was found already."""


class Calculation(Instructions):
    """Computes values of a reading into tiles."""

    memory: Memory
    """Brings arrays on the chip."""
    partitions: Partitions
    """Combines what lies on different partitions."""
    arrays: dict[str, Array]
    """Those in HBM."""
    outside: dict[str, str]
    """By array, what it is called in the kernel's text."""
    changed: set[str]
    """The inputs that this stage has changed in place."""
    margins: Mapping[str, Margins]
    """By array, which elements beyond its ends are read."""
    stage: Stage
    """The present one."""

    def __init__(
        self, names: FreeNames, text: Writer, spec: Hardware, results: Collection[str],
        reading: Reading, numbers: Mapping[float, str],
    ) -> None:  # fmt: skip
        super().__init__(names, text, spec, results)
        self.reading = reading
        self.numbers = numbers
        """Names of numbers that the author gave."""
        self.sums: dict[Value, tuple[View, Where]] = {}
        """What loops have summed already, and where."""
        self.moments: Mapping[Value, Moment] = {}
        """Sums of the present stage that come in pairs."""
        self.brings_beside = ""
        """The engine that brings one of two tiles that Vector takes into PSUM; empty for both in SBUF."""

    def read_outside(self, array: str) -> str:
        """The name of an array in HBM for a statement that reads it. Raises ReadAfterChange."""
        if array in self.changed:
            raise ReadAfterChange(array)
        return self.outside[array]

    def transfer(self, dst: str, src: str) -> str:
        """A DMA between HBM and the chip."""
        mode = ", dge_mode=nisa.dge_mode.none" if self.stage.static else ""
        return f"nisa.dma_copy(dst={dst}, src={src}{mode})"

    def settled(self, value: Value, where: Where, view: View, along: Collection[Axis] = ()) -> None:
        """Computes a value into a place of its own, in parts `along` axes and those with masks, as far as
        conditions are left that change along them."""
        apart = (axis for axis in self.masks if axis in value.axes and where.span(axis).runs)
        if runs := [(axis, where.span(axis).width) for axis in apart]:
            self.each(
                where,
                runs,
                lambda r: self.settled(value, r.where, view.moved(r.where, where), along),
            )
            return
        value = self.decided(value, where)
        if along and self.add_where_held(value, where, view, along):
            return
        for axis in (*along, *self.masks):
            if axis in where.part or axis not in value.axes:  # what is combined over it is one
                continue
            if where.span(axis).width == 1 or where.span(axis).start.terms:
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

    def add_where_held(
        self, value: Value, where: Where, view: View, along: Collection[Axis]
    ) -> bool:
        """Computes a sum some of whose terms are 0 but in a part of it: first the others, to which each of those is
        added in its part alone. False for any other value."""
        builder, inside, parts = self.reading.builder, list[Value](), list[tuple[Value, Where]]()
        for term in _terms(value):
            spot = where
            while term.kind == "where" and term.arguments[1] is builder.constant(0.0):
                (condition,) = term.indices
                axis = next(iter(condition.axes))
                span, step = spot.span(axis), condition.coefficient(axis)
                known = condition.is_affine and len(condition.axes) == 1 and not span.start.terms
                if not known or axis in where.part or axis not in along:
                    return False
                low, high = span.start.constant, span.start.constant + span.width
                if step > 0:
                    low = max(low, -(condition.constant // step))
                else:
                    high = min(high, condition.constant // -step + 1)
                spot, term = spot.within({axis: Span(At(low), high - low)}), term.arguments[0]
            if spot is where:
                inside.append(term)
            elif all(spot.span(axis).width > 0 for axis in along):
                parts.append((term, spot))
        if not inside or len(parts) < 2 or view.tile.psum or view.tile.dtype != "float32":
            return False
        self.settled(reduce(partial(builder.apply, "add"), inside), where, view, along)
        name = f"psum:{view.tile.name}"
        self.blocks[-1].locals[name] = [Local(view, where, tuple(view.strides))]
        before = builder.value("input", value.axes, array=name, indices=())
        for term, spot in parts:
            whole = builder.apply("add", term, before)
            self.reading.uses |= {v: 1 for v in (before, whole) if v not in self.reading.uses}
            self.settled(whole, spot, view.moved(spot, where), along)
        return True

    def changes(self, condition: Index, axis: Axis, where: Where) -> Iterator[int]:
        """Where along an axis a condition begins to hold or to fail in a place, and where that is done."""
        step, span = condition.coefficient(axis), where.span(axis)
        if not step:
            return
        for rest in set(self.ends(condition - index_of(axis) * step, where)):
            start = -(rest // step) if step > 0 else rest // -step + 1
            if axis in self.masks and len(condition.axes) > 1:
                start = start // SLICE * SLICE
            if span.start.constant < start < span.start.constant + span.width:
                yield start

    def into(self, value: Value, where: Where, view: View) -> None:
        """Computes a value into a place of its own."""
        value = self.decided(value, where)
        whole = any(meaning.value is value for meaning in self.reading.meanings.values())
        if whole and not where.is_padded(where.part) and self.memory.is_brought(value, view):
            axes = where.free(value.axes)
            own = View(view.tile, view.offset, {axis: view.strides[axis] for axis in axes})
            if self.memory.load_into(value, where, own):
                return
        fits = value.dtype in ("float32", view.tile.dtype)
        if value.kind in ("apply", "where") and fits and not self.known(value, where):
            self.compute(value, where, view)
            return
        if value.kind == "reduce" and value not in self.sums:
            self.reduce(value, where, view)
            return
        if value.kind == "gather" and value.dtype == view.tile.dtype:
            gather(self, value, where, view)
            return
        if (
            value.kind == "either"
            and value.dtype == view.tile.dtype
            and not self.known(value, where)
        ):
            self.either(value, where, view)
            return
        if value.kind == "constant" and where.rows == view.tile.partitions:
            counts = [where.span(axis).width for axis in view.strides]
            sizes, strides = merged(counts, [[*view.strides.values()]])
            text = number_text(value.constant, self.numbers)
            self.fill(view.tile, text, sizes, strides[0], view.offset)
            return
        self.copy(where, tuple(view.strides), view, self.view(value, where))

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
            elif value.kind == "reduce":
                found = self.reduce(value, where)
            elif value.kind == "gather":
                found = gather(self, value, where)
            elif value.kind == "constant":
                found = self.constant(value.constant, where)
            elif value.kind == "position":
                found = self.position(value.indices[0], where)
            elif value.kind == "choose":
                found = self.choose(value, where)
            elif value.kind == "either" or any(where.span(a).runs for a in where.free(value.axes)):
                found = self.new_tile(word_of(value), where, where.free(value.axes), value.dtype)
                self.settled(value, where, found)
            else:
                found = self.compute(value, where, None)
            self.blocks[-1].values[key] = found
        return found

    def constant(self, number: float, where: Where) -> View:
        """A number on every partition."""
        tile = self.new_tile("number", where, ())
        self.fill(tile.tile, number_text(number, self.numbers))
        return tile

    def compute(self, value: Value, where: Where, into: View | None) -> View:
        """Instructions for a value and all that it is made of and that is not there yet."""
        steps = self.steps(value, where)
        made_beside = self.made_beside(steps, where)
        for step in steps:
            final = step.value is value
            depth = self.home(where.variables(step.value.axes))
            with self.at(depth if not (final and into) else len(self.blocks) - 1):
                axes = where.free(step.value.axes)
                if final and into:
                    target, axes = into, tuple(into.strides)
                else:
                    target = self.new_tile(
                        word_of(step.value),
                        where,
                        axes,
                        step.value.dtype,
                        step.value in made_beside,
                    )
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

        def times(found: Value | None, factor: float) -> Value:
            constant = builder.constant(factor)
            return builder.apply("multiply", found, constant) if found else constant

        def is_shifted(found: Value) -> bool:
            numbers = sorted(map(is_number, found.arguments))
            tiles = [v.kind == "input" for v in found.arguments if not is_number(v)]
            shifts = found.function in ("add", "subtract") and numbers == [False, True]
            return shifts and tiles == [True]

        # Who takes a tile takes it less a number, too: that is no step of its own.
        single = {v for v in order if self.reading.uses.get(v, 1) == 1 or is_shifted(v)}
        try:
            return select(list(order), is_number, single, times, self.engine == "scalar")
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

    def operands(
        self, step: Selection, where: Where, axes: tuple[Axis, ...], target: View
    ) -> list[View]:
        """Where the tiles lie that an instruction takes."""
        tiles = step.tiles
        if step.opcode == "tensor_tensor":
            rows = [self.memory.spread(tile, where) for tile in tiles]
            found = [row or self.view(tile, where) for row, tile in zip(rows, tiles, strict=True)]
            if all(view.tile.psum for view in found):  # an operand is in SBUF
                found[0] = self.converted(found[0], where, axes, found[0].tile.dtype)
            elif not any(view.tile.psum or view.tile.spread for view in found):
                self.bring_beside(tiles, found, where)
            counts = [where.span(axis).width for axis in axes]
            _, s = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in (target, *found)])
            runs = zip(found, s[1:], strict=True)
            if self.text.nki or all(run == [1] for view, run in runs if view.tile.spread):
                return found  # what is spread with an operand is one run
        found = [self.view(tile, where) for tile in tiles]
        if len(found) > 1 and all(view.tile.psum for view in found):
            found[0] = self.converted(found[0], where, axes, found[0].tile.dtype)
        return found

    def fits_beside(self, where: Where, axes: Sequence[Axis]) -> bool:
        """Whether one of two tiles that Vector takes is to come into PSUM, and fits half of that."""
        width = math.prod(where.span(axis).width for axis in axes)
        return bool(self.brings_beside) and 1 < width <= self.spec.psum_partition_bytes // 8

    def made_beside(self, steps: Sequence[Selection], where: Where) -> set[Value]:
        """Of the values on the way, those that one instruction on two tiles alone takes, of its two at most one:
        they are written to PSUM."""
        made = [
            v
            for v in (step.value for step in steps[:-1])
            if v.dtype == "float32" and self.reading.uses.get(v, 1) == 1
            if self.fits_beside(where, where.free(v.axes))
        ]
        found: set[Value] = set()
        for step in steps:
            taken = [v for v in made if v in step.tiles]
            if step.opcode == "tensor_tensor" and step.tiles[0] is not step.tiles[1]:
                found.update(taken[-1:])
        return found

    def bring_beside(self, tiles: Sequence[Value], found: list[View], where: Where) -> None:
        """One of two tiles in SBUF comes into PSUM, where both are read at once: the one that is there already,
        or of fewer bytes, by the Scalar engine; what has 16 bits and comes from HBM by the Tensor engine as well."""
        keys = [("beside", v, where.part, spans_of(where, (*where.part, *v.axes))) for v in tiles]
        known = {k: b.values[k] for b in self.blocks for k in keys if k in b.values}
        sizes = [parse(view.tile.dtype).itemsize for view in found]
        n = next((n for n, key in enumerate(keys) if key in known), int(sizes[1] <= sizes[0]))
        axes = where.free(tiles[n].axes)
        if not self.fits_beside(where, axes):
            return
        if keys[n] not in known:
            with self.at(self.home(where.variables(tiles[n].axes))):
                known[keys[n]] = self.new_tile(
                    f"{found[n].tile.name}_beside", where, axes, psum=True
                )
                self.copy_beside(tiles[n], where, axes, known[keys[n]], found[n])
                self.blocks[-1].values[keys[n]] = known[keys[n]]
        found[n] = known[keys[n]]

    def copy_beside(
        self, value: Value, where: Where, axes: tuple[Axis, ...], into: View, source: View
    ) -> None:
        """Copies a tile into PSUM, by the Scalar engine or as a product with the identity."""
        bank = self.spec.psum_bank_bytes // 4
        pieces = self.cut(where, axes, bank)
        width = math.prod(where.span(axis).width for axis in axes)
        given = value.kind == "input" and value.array in self.arrays
        aligned = width <= bank or width % bank == 0
        if self.brings_beside == "scalar" or not (
            given and aligned and parse(source.tile.dtype).itemsize == 2
        ):
            before, self.engine = self.engine, "scalar"
            self.copy(where, axes, into, source)
            self.engine = before
            return
        square = self.identity(where.rows, source.tile.dtype)

        def part(round_: Round) -> None:
            spot = round_.where
            views = [into.moved(spot, where), source.moved(spot, where)]
            self.issue(spot, axes, views, lambda dst, texts, count: (Form(
                self.text.product(dst, square, texts[0]), "tensor",
                self.spec.matmul_ns(count, where.rows, source.tile.dtype)),))  # fmt: skip

        self.each(where, pieces, part)

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
        if step.opcode == "scalar_tensor_tensor" and not self.text.nki:
            # Of neuronxcc's instruction the tiles have one free axis (nki.isa's page of it).
            sizes, _ = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in views])
            beside = self.fits_beside(where, axes)
            if len(sizes) > 1 or beside:
                psum = beside and not views[2].tile.psum
                between = self.new_tile(word_of(step.value), where, axes, psum=psum)
                first = Selection(
                    step.value,
                    "tensor_scalar",
                    step.functions[:1],
                    step.data,
                    numbers=step.numbers[:1],
                )
                own, operation = self.said(between, data), names[:1]
                self.issue(where, axes, [between, data], lambda dst, given, width: (
                    self.scalar_form(dst, given[0], operation, numbers, False, width, own),
                    *self.on_scalar_engine(first, dst, given[0], numbers, width, own)))  # fmt: skip
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

    def decided(self, value: Value, where: Where) -> Value:
        """A value without the conditions that hold, or fail, all over a part of its domain."""

        def made(value: Value, arguments: tuple[Value, ...]) -> Value:
            if value.kind == "either":
                ends = {c: self.ends(c, where) for c in value.indices}
                if any(high < 0 for _, high in ends.values()):
                    return arguments[1]
                left = tuple(c for c, (low, _) in ends.items() if low < 0)
                return self.reading.either(value, left, arguments)
            if value.kind == "where":
                low, high = self.ends(value.indices[0], where)
                if low >= 0 or high < 0:
                    return arguments[0 if low >= 0 else 1]
                held, other = arguments
                zero = other.kind == "constant" and not other.constant
                if zero and is_zero_outside(held, value.indices[0], self.margins):
                    return held
            return self.reading.rebuilt(value, arguments)

        return self.reading.changed(value, made)

    def affine(self, index: Index, where: Where) -> tuple[At, dict[Axis, int]]:
        """An index as a place that loops give, and steps along the axes of a tile."""
        base = At(index.constant)
        steps: dict[Axis, int] = {}
        for axis, factor in index.terms:
            if not isinstance(axis, Axis):
                low, high = self.ends(axis.inner, where)
                if low // axis.divisor != high // axis.divisor:
                    raise NotNested(f"the index {index} is no sum of axes, however they are cut")
                base = base + low // axis.divisor * factor
                continue
            span = where.span(axis)
            base = base + span.start * factor
            if span.width > 1:
                steps[axis] = factor
        return collected(base), steps

    def row_step(self, where: Where, steps: Mapping[Axis, int]) -> int | None:
        """How much an index grows from a partition to the next; None where that differs."""
        counts = [where.span(axis).lanes for axis in where.part]
        sizes, strides = merged(counts, [[steps.get(axis, 0) for axis in where.part]])
        if sizes == [1]:
            return 0
        return strides[0][0] if len(sizes) == 1 else None

    def ends(self, index: Index, place: Where) -> tuple[int, int]:
        """The least and the largest value of an index in a place."""
        base, steps = self.affine(index, place)
        return self.bounds(base, {a: (place.span(a).width, s) for a, s in steps.items()})

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
            self.put("", Form(made, "gpsimd", self.gpsimd_ns(math.prod(sizes))))

        if row is not None:
            count(target, base, row, True)
            return target
        count(target, base, 0, True)
        inner = where.rows
        for axis in where.part:
            size = where.span(axis).lanes
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
        self.put("", Form(made, "gpsimd", self.gpsimd_ns(math.prod(sizes))))

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

    def either(self, value: Value, where: Where, view: View) -> None:
        """One of two values by position, into a place: each part along free axes by itself; of one along
        partitions what lies in HBM is brought over what is computed on all of them."""
        for axis in where.free(value.axes):
            span = where.span(axis)
            if span.start.terms:
                continue
            cuts = {n for c in value.indices for n in self.changes(c, axis, where)}
            first, last = span.start.constant, span.start.constant + span.width
            for start, end in itertools.pairwise((first, *sorted(cuts), last) if cuts else ()):
                part = where.within({axis: Span(At(start), end - start)})
                self.into(value, part, view.moved(part, where))
            if cuts:
                return
        (yes, no), held = value.arguments, self.rows_held(value.indices, where)
        view = View(
            view.tile,
            view.offset,
            {a: view.strides[a] for a in view.strides if a in where.free({a})},
        )
        if held and held[0] >= held[1]:
            self.into(no, where, view)
            return
        brought = [v for v in (yes, no) if self.memory.is_brought(v, view)] if held else []
        if not held or not brought:
            self.check_within(value, where)
            self.into(self.reading.chosen(value), where, view)
            return
        low, high = held
        if len(brought) < 2:
            self.into(no if yes in brought else yes, where, view)
        rows = {yes: [(low, high)], no: [(0, low), (high, where.rows)]}
        for one in brought:
            for begin, end in rows[one]:
                if begin < end:
                    self.memory.bring_rows(one, where, view, (begin, end))

    def rows_held(self, conditions: Sequence[Index], where: Where) -> tuple[int, int] | None:
        """The first and last partition, and one more, on which conditions hold; None where they differ along
        other axes, or it is not known while the kernel is written."""
        low, high = 0, where.rows
        lying = [axis for axis in where.part if where.span(axis).width > 1]
        for condition in conditions:
            base, steps = self.affine(condition, where)
            if base.terms or len(lying) != 1 or {*steps} != {*lying} or where.is_padded(lying):
                return None
            step = steps[lying[0]]
            change = -(base.constant // step) if step > 0 else base.constant // -step + 1
            low, high = (max(low, change), high) if step > 0 else (low, min(high, change))
        return low, high

    def check_within(self, value: Value, where: Where) -> None:
        """Raises NotNested where one of two values is computed beyond the ends of an array."""
        for read in (v for v in value.arguments if v.kind == "input" and v.indices):
            margins = self.margins.get(read.array)
            shape = margins.given if margins else self.arrays[read.array].shape
            ends = margins.ends if margins else ((0, 0),) * len(shape)
            for index, extent, (low, high) in zip(read.indices, shape, ends, strict=True):
                first, last = self.ends(index, where)
                if first < -low or last >= extent + high:
                    raise NotNested(
                        f"{read.array} is taken by position, in parts that a loop decides"
                    )

    def reduce(self, value: Value, where: Where, into: View | None = None) -> View:
        """What is combined over axes that lie along the free axis."""
        axes = where.free(value.axes)
        if any(axis in where.part for axis in value.reduced):
            return self.partitions.across(value, where, into)
        if (found := moment(self, value, where, into)) is not None:
            return found
        inner = tuple(a for a in value.reduced if where.span(a).width > 1)
        if self.is_ranked(value) and not axes and not into:
            return self.ranked(value, where, inner)
        target = into or self.new_tile(word_of(value), where, axes)
        if self.is_ranked(value):
            parts = [(axis, 1) for axis in axes]
            self.each(where, parts, lambda round_: (
                self.copy(round_.where, (), target.moved(round_.where, where),
                          self.ranked(value, round_.where, inner))))  # fmt: skip
            return target
        width = math.prod(where.span(axis).width for axis in inner)
        (data,) = value.arguments
        order = (*inner, *axes) if self.lies_across(data, where, inner) else (*axes, *inner)
        place = Where(where.part, where.spans, order)
        alike = math.prod(a.extent if a in self.masks else where.span(a).width for a in inner)
        parts = self.cut(place, axes, max(1, self.stage.columns // alike))

        def part(outer: Round) -> None:
            spot = Where(where.part, outer.where.spans, place.order)
            aim = target.moved(spot, place)
            whole = width <= self.stage.columns
            if whole and not any(spot.span(axis).runs for axis in inner):
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

    def is_ranked(self, value: Value) -> bool:
        """Whether a value is one of the largest of a row, or where one is."""
        return value.function in ORDERED or self.reading.with_ranks(value)

    def ranked(self, value: Value, where: Where, inner: tuple[Axis, ...]) -> View:
        """One of the largest of a row, or where it is: Vector finds eight together, then eight of those that are left."""
        (data,) = value.arguments
        counts = [where.span(axis).width for axis in inner]
        width = math.prod(counts)
        if not 8 <= width <= MOST_SORTED:
            raise NotNested(f"Vector finds the largest of 8 to {MOST_SORTED} elements, not {width}")

        def once(word: str, number: int, make: Callable[[], View]) -> View:
            key = (word, number, data, where.part, spans_of(where, (*where.part, *data.axes)))
            known = next((block.values[key] for block in self.blocks if key in block.values), None)
            return known or self.blocks[-1].values.setdefault(key, make())

        def whole() -> View:
            view = self.view(data, where)
            run = len(merged(counts, [[view.strides.get(axis, 0) for axis in inner]])[0]) == 1
            plain = run and view.tile.dtype == "float32"
            return view if plain else self.converted(view, where, inner, "float32")

        def issued(
            word: str, shape: Sequence[int], name: str, arguments: str, over: View | None = None,
            dtype: str = "float32",
        ) -> View:  # fmt: skip
            size = math.prod(shape)
            tile = over.tile if over else Tile(self.names.new(word), where.rows, size, dtype)
            if not over:
                self.declare(tile)
            dst = self.text.inside(tile, where.rows, At(), [tile.width], [1])
            call = self.text.call(dst, name, arguments)
            self.put("", Form(call, "vector", self.vector_ns(width)))
            return View(tile, At(), dict(zip(inner, row_major(shape), strict=False)))

        def text(view: View) -> str:
            sizes, s = merged(counts, [[view.strides.get(axis, 0) for axis in inner]])
            return self.text.inside(view.tile, where.rows, view.offset, sizes, s[0])

        rank = PLACES.get(value.function, RANKED.get(value.function, 1))
        group, place = divmod(rank - 1, 8)
        left = found = once("rest", 0, whole)
        for number in range(group + 1):
            if number:
                given = f"data={text(left)}, vals={found.tile.name}[...], imm={LEAST}"
                here = number > 1 and left in self.blocks[-1].values.values()
                made = partial(issued, "rest", counts, "nc_match_replace8", given)
                left = once("rest", number, partial(made, left if here else None))
            made = partial(issued, "eight_largest", [8], "max8", f"src={text(left)}")
            found = once("eight_largest", number, made)
        if value.function in PLACES:
            if not self.text.nki and rank > 1:
                raise NotNested("of equal elements neuronxcc finds one position")
            given = f"data={text(left)}, vals={found.tile.name}[...]"
            made = partial(issued, "places", [8], "nc_find_index8", given, dtype="uint32")
            whole_numbers = once("places", group, made)
            given = f"src={whole_numbers.tile.name}[...]"
            made = partial(issued, "places", [8], "tensor_copy", given)
            found = once("numbers", group, made)
        return View(found.tile, At(place), {})

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


def _terms(value: Value) -> list[Value]:
    """What a value is the sum of."""
    if value.kind == "apply" and value.function == "add":
        return [term for argument in value.arguments for term in _terms(argument)]
    return [value]
