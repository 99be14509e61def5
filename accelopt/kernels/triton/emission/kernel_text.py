"""One kernel of a schedule as Triton.

A program has one tile of each free axis. Where an axis is walked, the loop over its tiles is written as
often as reductions along it build on each other; sums that follow a running maximum are rescaled instead.
Whatever does not depend on the walked axis is computed before the loop, and every element is loaded once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import ONE, Contraction
from accelopt.algorithm.index import Axis, Floor, Index, element_number, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.kernels.triton.emission.descriptors import block_at, blocks_of
from accelopt.kernels.triton.emission.functions import (
    COMBINED,
    FORMATS,
    OVER_AXIS,
    closed,
    number_text,
)
from accelopt.kernels.triton.emission.grid_of_segments import Packing
from accelopt.kernels.triton.emission.groups import Group, Member
from accelopt.kernels.triton.emission.running import grown, vanishes
from accelopt.kernels.triton.emission.runtime_bounds import (
    Bound,
    bound_by,
    index_in,
    sum_of,
    terms_of,
)
from accelopt.kernels.triton.emission.schedule import Kernel, NotEmitted
from accelopt.kernels.triton.emission.simplifying import conditions_of, product_in, simple
from accelopt.kernels.triton.emission.tiles import NARROW, Axes, Tiles, power_of_two
from accelopt.kernels.triton.emission.value_text import Fact, Held, Scope, Text, ValueText


class KernelText:
    """Writes one kernel. `stored` are the arrays that others read."""

    def __init__(
        self, name: str, group: Group, kernel: Kernel, arrays: Mapping[str, ir.Array],
        stored: set[str],
    ) -> None:  # fmt: skip
        self.name, self.group, self.tiles = name, group, Tiles(group, kernel, stored)
        self.kernel, self.walked = kernel, self.tiles.walked
        self.arrays, self.stored = arrays, stored
        self.blocks = blocks_of(self.tiles, arrays, stored) if kernel.descriptors else {}
        self.values = ValueText(self.tiles, arrays, self._member, self.blocks)
        own = {member.out for member in group.members}
        read = {r.array for m in group.members for r in m.reads} - own
        written = [m.out for m in group.members if m.out in stored]
        self.parameters = [*(name for name in arrays if name in read), *written]
        self.waits = False
        """All of a program's loads are done before its stores: other threads' elements lie where it stores."""

    def arguments(self) -> str:
        """What a launch gives for the parameters: arrays, or descriptors of their tiles."""
        return ", ".join(map(self._argument, self.parameters))

    def _argument(self, array: str) -> str:
        block = self.blocks.get(array)
        if block is None:
            return array
        sizes = ", ".join(str(self.tiles.sizes[axis]) for axis in block.axes)
        return f"TensorDescriptor.from_tensor({array}.view{block.shape!r}, [{sizes}])"

    # The kernel.

    def lines(self) -> list[str]:
        """The kernel as lines. Raises NotEmitted."""
        self._program()
        self._leave()
        passes = self.tiles.passes
        last = max(passes.values(), default=0) if self.walked else -1
        for number in range(last + 1):
            self._walk(number, passes)
        for member in self.group.members:
            inside = self.walked is not None and self.walked in member.every_axis
            if member.out not in self.values.outer.held and not inside:
                self._member(member)
        if self.waits:
            self.values.outer.add("tl.debug_barrier()")
        self.values.outer.end()
        names = (f"{p}_tiles" if p in self.blocks else f"{p}_at" for p in self.parameters)
        head = [f"@triton.jit\ndef {self.name}({', '.join(names)}):"]
        return head + self.values.outer.lines

    def _program(self) -> None:
        """Which tiles a program has."""
        tiles, add = self.tiles, self.values.outer.add
        wide = any(math.prod(self.arrays[name].shape) >= 1 << 31 for name in self.parameters)
        if tiles.grid:
            add("program = tl.program_id(0)" + (".to(tl.int64)" if wide else ""))
        left = "program"
        blocks: dict[Axis, str] = {}
        counts = tiles.counts
        if len(tiles.grid) == 2 and self.kernel.together > 1 and tiles.packing is None:
            rows, columns = tiles.grid
            many, several = tiles.count(columns), self.kernel.together
            add(f"first = program // {several * many} * {several}")
            add(f"height = tl.minimum({tiles.count(rows)} - first, {several})")
            blocks[rows] = f"first + program % {several * many} % height"
            blocks[columns] = f"program % {several * many} // height"
        else:
            step, longer = tiles.programs, self._longer()
            ordered = sorted(tiles.grid, key=lambda axis: axis not in longer)
            for n, axis in enumerate(ordered):
                step //= counts[axis]
                text = left if step == 1 else f"{left} // {step}"
                text = f"{text} % {counts[axis]}" if n else text
                blocks[axis] = f"{counts[axis] - 1} - {text}" if axis in longer else text
        if tiles.packing is not None:
            self._packed(tiles.packing, blocks)
        for axis in self.group.axes:
            size = tiles.sizes[axis]
            if axis == self.walked:
                continue
            block = blocks.get(axis)
            if size == 1:
                if block is not None:
                    add(f"{self.values.axis(axis)} = {block}")
                continue
            start = ""
            if block is not None:
                start = f"{self.values.axis(axis)}_start"
                add(f"{start} = {f'({block})' if ' ' in block else block} * {size}")
                start += " + "
            add(f"{self.values.axis(axis)} = {start}tl.arange(0, {size})")

    def _packed(self, packing: Packing, blocks: dict[Axis, str]) -> None:
        """Which segment a program has a tile of, and which."""
        add, size = self.values.outer.add, self.tiles.sizes[packing.places]
        add(f"segment = tl.arange(0, {power_of_two(packing.segments)})")
        ends: list[str] = []
        for number in (packing.start, packing.end):
            names = {packing.numbers: closed(f"segment * {packing.beside}")}
            ends.append("")
            for term, factor in sorted(terms_of(number)[0], key=str):
                assert isinstance(term, ir.Read)
                at = self.values.index_text(term.indices[0], names)
                inside = f"mask=segment < {packing.segments}, other=0"
                ends[-1] += (
                    f"{' + ' if factor > 0 else ' - '}tl.load({term.array}_at + {at}, {inside})"
                )
        length = f"tl.maximum({ends[1].removeprefix(' + ')} - ({ends[0].removeprefix(' + ')}), 0)"
        add(f"tiles_until = tl.cumsum(({length} * {packing.run} + {size - 1}) // {size}, 0)")
        add(f"packed = {blocks[packing.places]}")
        add("tiles_before = tl.where(tiles_until <= packed, tiles_until, 0)")
        add("own_segment = tl.sum(tl.where(tiles_until <= packed, 1, 0), 0)")
        add(f"if own_segment >= {packing.segments}:")
        add("    return")
        blocks[packing.places] = "packed - tl.max(tiles_before, 0)"
        beside = blocks[packing.numbers]
        blocks[packing.numbers] = (
            f"own_segment * {packing.beside} + {beside}" if packing.beside > 1 else "own_segment"
        )

    def _longer(self) -> set[Axis]:
        """The axes along which walks grow longer: programs with most work begin first."""
        found: set[Axis] = set()
        for member in self.group.members if self.walked is not None else ():
            for condition in (
                conditions_of(self._resolved(member)) if self.walked in member.reduced else ()
            ):
                index = index_in(condition)
                if index is None or self.walked is None or index.coefficient(self.walked) >= 0:
                    continue
                for term, factor in index.terms:
                    inner = term.inner if isinstance(term, Floor) else index_of(term)
                    found |= inner.axes & {*self.tiles.grid} if factor > 0 else set()
        return found

    def _walk(self, number: int, passes: Mapping[str, int]) -> None:
        """One walk along the walked axis."""
        assert self.walked is not None
        axis = self.walked
        sums = [m for m in self.group.members
                if axis in m.reduced and passes[m.out] == number]  # fmt: skip
        kept = [m for m in self.group.members
                if axis not in m.reduced and axis in m.every_axis and m.out in self.stored
                and passes[m.out] == number]  # fmt: skip
        if not sums and not kept:
            return
        for member in sums:
            self._begin(member)
        begin, whole, end, decided = self._range(sums, kept)
        if whole is not None:
            full = self.values.fresh("whole")
            self.values.outer.add(f"{full} = {whole}")
            self.values.known = decided
            self._loop(sums, kept, (begin, full))
            self.values.known, begin = frozenset(), full
        self._loop(sums, kept, (begin, end))
        for member in sums:
            self._end(member)

    def _loop(
        self,
        sums: Sequence[Member],
        kept: Sequence[Member],
        ends: tuple[str, str],
    ) -> None:
        """The rounds of a walk from one of its elements to another."""
        assert self.walked is not None
        outer, size, name = (
            self.values.outer,
            self.tiles.sizes[self.walked],
            self.values.axis(self.walked),
        )
        inner = self.values.inner = Scope(outer.indent + 1)
        if size > 1:
            inner.add(f"{name} = {name}_start + tl.arange(0, {size})")
        for member in self.group.members:
            if member in sums:
                self._accumulate(member, {m.out for m in sums})
            elif member in kept:
                self._member(member, stored=True)
        inner.end()
        self.values.inner = None
        step = "" if size == 1 else f", {size}"
        loop = name if size == 1 else f"{name}_start"
        outer.add(f"for {loop} in range({ends[0]}, {ends[1]}{step}):")
        outer.lines += inner.lines

    def _range(
        self, sums: Sequence[Member], kept: Sequence[Member]
    ) -> tuple[str, str | None, str, frozenset[Index | ir.Expression]]:
        """The part of the walked axis in which something is added, and up to where all of some conditions
        hold that decide that."""
        assert self.walked is not None
        axis, size = self.walked, self.tiles.sizes[self.walked]
        begin, end, whole = "0", str(axis.extent), list[str]()
        decided = set[Index | ir.Expression]()
        common = [set(conditions_of(self._resolved(m))) for m in sums]
        for condition in sorted(set.intersection(*common), key=str) if sums and not kept else ():
            if not isinstance(condition, Index):
                found = self._last(condition)
                if found is not None:
                    end = f"tl.minimum({end}, {found[0]})"
                    whole.append(found[1])
                    decided.add(condition)
                continue
            factor = condition.coefficient(axis)
            rest = condition - Index(0, ((axis, factor),))
            if abs(factor) != 1 or axis in rest.axes or not rest.axes <= set(self.group.free):
                continue
            corner, least = self._corner(rest), self._corner(rest, first=True)
            if corner is None:
                continue
            if factor < 0:
                end = f"tl.minimum({end}, {corner} + 1)"
                whole.append(f"{least} + 1")
                decided.add(condition)
            else:
                begin = f"tl.maximum({begin}, (-({corner})) // {size} * {size})"
        if begin != "0" or not whole or axis.extent % size:
            return begin, None, end, frozenset()
        full = str(axis.extent)
        for one in whole:
            full = f"tl.minimum({full}, {one})"
        return begin, f"tl.maximum({full}, 0) // {size} * {size}", end, frozenset(decided)

    def _last(self, test: ir.Expression) -> tuple[str, str] | None:
        """Where along the walked axis a test at run time holds no longer for any element of a program's tile,
        and where not for all."""
        bound = bound_by(test)
        if bound is None or self.walked is None or bound.index.coefficient(self.walked) != -1:
            return None
        rest, run, step = bound.index + index_of(self.walked), 0, 0
        for term, factor in rest.terms:  # runs of elements that lie a step apart
            if isinstance(term, Floor) and term.inner == index_of(self.walked) and factor < 0:
                run, step = term.divisor, term.divisor - factor
                rest = rest - Index(0, ((term, factor),))
        if self.walked in rest.axes:
            return None
        ends = [self._at_corner(bound, rest + 1 - bound.strict, first) for first in (False, True)]
        if run:
            ends = [
                e and f"({e}) // {step} * {run} + tl.minimum(({e}) % {step}, {run})" for e in ends
            ]
        return None if None in ends else (str(ends[0]), str(ends[1]))

    def _at_corner(self, bound: Bound, index: Index, first: bool) -> str | None:
        """The largest or the least value of a bound's terms and an index in a program's tile."""
        for term, _ in bound.terms:
            own = ir.axes_of(term)
            if self.walked in own or self.tiles.dims(own):
                return None
            if any(isinstance(p, ir.Read) and self.group.member(p.array) for p in ir.walk(term)):
                return None
        value = self.values.value(sum_of(bound.terms), (), ())
        corner = self._corner(index, first)
        return None if value.kind != "int" or corner is None else f"{value.text} + ({corner})"

    def _leave(self) -> None:
        """Ends a program that stores nothing."""
        stored = [m for m in self.group.members if m.out in self.stored]
        tests = [set(m.scatter.tests) if m.scatter is not None else set() for m in stored]
        for test in sorted(set.intersection(*tests), key=str):
            bound = bound_by(test)
            most = None if bound is None else self._at_corner(bound, bound.index, False)
            if bound is not None and most is not None:
                self.values.outer.add(f"if {most} {'<=' if bound.strict else '<'} 0:")
                self.values.outer.add("    return")

    def _corner(self, index: Index, first: bool = False) -> str | None:
        """An index is at most this in a program's tile, or at least, whose terms grow with their axes."""
        parts: list[str] = []
        for falls in (False, True):
            terms = tuple(pair for pair in index.terms if (pair[1] < 0) == falls)
            last: dict[Axis, str] = {}
            for term, _ in terms:
                inner = term.inner if isinstance(term, Floor) else Index(0, ((term, 1),))
                if len(inner.terms) != 1 or inner.terms[0][1] < 0:
                    return None
                for axis in inner.axes:
                    name, size = self.values.axis(axis), self.tiles.sizes[axis]
                    start = f"{name}_start" if axis in self.tiles.grid else "0"
                    end = start if first != falls else f"({start} + {size - 1})"
                    last[axis] = name if size == 1 else end
            part = Index(0 if falls else index.constant, terms)
            if part.terms or not falls:
                parts.append(self.values.index_text(part, last))
        return " + ".join(parts)

    def _resolved(self, member: Member) -> ir.Reduce:
        """A reduction whose summand has the choices of the elements in it that this kernel computes."""
        assert isinstance(member.definition, ir.Reduce)

        def put(expression: ir.Expression) -> ir.Expression:
            if isinstance(expression, ir.Read):
                other = self.group.member(expression.array)
                if (
                    other is not None
                    and not other.reduced
                    and not isinstance(other.definition, ir.Scan)
                ):
                    (found,) = ir.expressions_of(other.definition)
                    return put(found)
                return expression
            return ir.with_parts(expression, map(put, ir.parts_of(expression)))

        return replace(member.definition, expression=simple(put(member.definition.expression), {}))

    # Reductions.

    def _state(self, member: Member) -> Axes:
        """The dimensions of what a walk carries of a reduction: with the walked one, where that is left to
        be combined at the end."""
        assert self.walked is not None
        at_end = member.reduced if self._at_end(member) else ()
        return self.tiles.dims([*member.definition.axes, *at_end])

    def _at_end(self, member: Member) -> bool:
        """Whether tiles are combined element by element, and elements of the tile after the walk."""
        if self.tiles.product(member) is not None or self._alpha(member) is not None:
            return False
        running = [m for m in self.group.members if self._alpha(m) is not None]
        return not any(member.out in {r.array for r in m.reads} for m in running)

    def _alpha(self, member: Member) -> ir.Expression | None:
        if self.walked not in member.reduced:
            return None
        behind = self.tiles.reductions_behind(member)
        passes = self.tiles.passes
        now = {name for name in behind if passes[name] == passes[member.out]}
        return self.tiles.growth(member, now) if now else None

    def _begin(self, member: Member) -> None:
        assert isinstance(member.definition, ir.Reduce)
        dims = self._state(member)
        shape = ", ".join(str(self.tiles.sizes[a]) for a in dims)
        neutral = number_text(NEUTRAL[member.definition.combiner])
        variable = self.values.variable(member.out)
        self.values.outer.add(f"{variable} = tl.full([{shape}], {neutral}, tl.float32)")
        self.values.outer.held[member.out] = Held(variable, dims)

    def _accumulate(self, member: Member, now: set[str]) -> None:
        """Adds a tile of the walked axis."""
        definition = member.definition
        assert isinstance(definition, ir.Reduce) and self.values.inner is not None
        variable, dims = self.values.outer.held[member.out]
        alpha, product = self._alpha(member), self.tiles.product(member)
        scope = self.values.inner
        if alpha is not None:
            scale = self._rescale(alpha, now, dims)
            scope.add(f"{variable} = {variable} * {scale}")
            definition = replace(definition, expression=self._finite(definition.expression, now))
        elif any(member.out in {r.array for r in m.reads} and self._alpha(m) is not None
                 for m in self.group.members):  # fmt: skip
            scope.add(f"{variable}_before = {variable}")
        if product is not None:
            if alpha is not None:
                product = product_in(definition)
                assert product is not None
            self._dot(variable, product, dims)
            return
        value = self._tile(definition, self.tiles.dims([*definition.axes, *definition.reduced]))
        if not self._at_end(member):
            value = self._over_axes(value, definition)
        text = COMBINED[definition.combiner].format(variable, value)
        scope.add(f"{variable} = {text}")

    def _end(self, member: Member) -> None:
        definition = member.definition
        assert isinstance(definition, ir.Reduce)
        variable, dims = self.values.outer.held[member.out]
        left = [a for a in dims if a not in definition.axes]
        if left:
            text = self._over_axes(variable, definition)
            self.values.outer.add(f"{variable} = {text}")
        self.values.outer.held[member.out] = Held(variable, self.tiles.dims(definition.axes))
        self._finish(member)

    def _finish(self, member: Member, stored: bool = True) -> None:
        """What is left to do of a reduction when all is added: the scale of a product, and the store."""
        product = self.tiles.product(member)
        scope = self._scope(member)
        variable, dims = scope.held[member.out]
        if product is not None and product.scale != ONE:
            scale = self.values.value(product.scale, dims, ())
            scope.add(f"{variable} = {variable} * {self.values.single(scale)}")
        if scope is self.values.outer or stored:
            self._store(member)

    def _over_axes(self, value: str, definition: ir.Reduce) -> str:
        dims = self.tiles.dims([*definition.axes, *definition.reduced])
        for n in reversed(range(len(dims))):
            if dims[n] in definition.reduced:
                value = OVER_AXIS[definition.combiner].format(value, n)
                if definition.combiner == "multiply":
                    self.values.helpers.add("_multiplied")
        return value

    def _tile(self, definition: ir.Reduce, dims: Axes) -> str:
        """The elements that are combined, those neutral that lie behind an axis's end."""
        value = self.values.single(self.values.value(definition.expression, dims, ()))
        value = self.values.whole(value, definition.expression, dims)
        masks = self.values.overhang([a for a in dims if a in definition.reduced], dims)
        if masks:
            neutral = number_text(NEUTRAL[definition.combiner])
            value = f"tl.where({' & '.join(masks)}, {value}, {neutral})"
        return value

    def _dot(self, variable: str, product: Contraction, dims: Axes) -> None:
        """Adds the product of two operands."""
        rows, columns = self.tiles.dims(product.rows)[0], self.tiles.dims(product.columns)[0]
        inner = self.tiles.dims(product.contracted)[0]
        kinds = [self.values.format_of(side) for side in (product.left, product.right)]
        kind = kinds[0] if kinds[0] == kinds[1] and kinds[0] in NARROW else "float32"
        turned = dims == (columns, rows)
        sides = [(product.left, (rows, inner)), (product.right, (inner, columns))]
        if turned:
            sides = [(product.right, (columns, inner)), (product.left, (inner, rows))]
        texts = []
        for expression, own in sides:
            texts.append(self._operand(expression, own, inner, kind))
        scope = self.values.inner if self.values.inner is not None else self.values.outer
        precise = "" if kind != "float32" else ', input_precision="tf32"'
        scope.add(f"{variable} = tl.dot({texts[0]}, {texts[1]}, {variable}{precise})")

    def _operand(self, expression: ir.Expression, dims: Axes, inner: Axis, kind: str) -> str:
        given = self.values.value(expression, dims, ())
        text = given.text
        if given.kind != kind:
            text = f"{self.values.single(given)}"
            text = text if kind == "float32" else f"{closed(text)}.to({FORMATS[kind]})"
        text = self.values.whole(text, expression, dims)
        masks = self.values.overhang([inner], dims)
        if masks and not isinstance(expression, ir.Read):
            text = f"tl.where({masks[0]}, {text}, 0.0)"
            text = text if kind == "float32" else f"{text}.to({FORMATS[kind]})"
        return text

    def _rescale(self, alpha: ir.Expression, now: set[str], dims: Axes) -> str:
        """What a running sum is multiplied by."""
        scope = self.values.inner
        assert scope is not None
        names = sorted(
            {p.array for p in ir.walk(alpha) if isinstance(p, ir.Read) and p.array in now}
        )
        key = (alpha, "rescaled")
        if key not in scope.known:
            own = self.tiles.dims([a for n in names for a in self.values.outer.held[n].dims])
            rise = grown(_renamed(alpha, names), self._finite(alpha, now))
            text = self.values.value(ir.Apply("exp", (rise,)), own, ()).text
            if not vanishes(alpha):
                nothing = (
                    f'({self.values.outer.held[n].text}_before == float("-inf"))' for n in names
                )
                text = f"tl.where({' & '.join(nothing)}, 0.0, {text})"
            name = self.values.fresh("rescaled")
            scope.add(f"{name} = {text}")
            scope.known[key] = Text(name, "float32")
            self.values.outer.held[f"{name}@"] = Held(name, own)
        name = scope.known[key].text
        return self.values.expanded(self.values.outer.held[f"{name}@"], dims)

    def _finite(self, expression: ir.Expression, now: set[str]) -> ir.Expression:
        """With 0 in the place of a running maximum of nothing."""
        scope = self.values.inner
        assert scope is not None
        for part in list(ir.walk(expression)):
            if isinstance(part, ir.Read) and part.array in now:
                finite = f"{part.array}@finite"
                if finite not in scope.held:
                    held = self.values.outer.held[part.array]
                    name = self.values.fresh(f"{held.text}_finite")
                    scope.add(f'{name} = tl.where({held.text} == float("-inf"), 0.0, {held.text})')
                    scope.held[finite] = Held(name, held.dims)
                    before = f"{part.array}@before"
                    self.values.outer.held[before] = Held(f"{held.text}_before", held.dims)
        return _renamed(expression, now, "@finite")

    # Members that no walk accumulates.

    def _scope(self, member: Member) -> Scope:
        if self.values.inner is not None and self.values.varies_member(member):
            return self.values.inner
        return self.values.outer

    def _member(self, member: Member, stored: bool = False) -> Held:
        """Computes a member for the tile, and stores it where others read it: what is computed in each round of
        several walks in one of them, when it is `stored`."""
        definition, scope = member.definition, self._scope(member)
        variable = self.values.variable(member.out)
        dims = self.tiles.dims(definition.axes)
        if isinstance(definition, ir.Scan):
            value = self._scanned(definition, dims)
        elif isinstance(definition, ir.Reduce):
            product = self.tiles.product(member)
            if product is not None:
                shape = ", ".join(str(self.tiles.sizes[a]) for a in dims)
                scope.add(f"{variable} = tl.full([{shape}], 0.0, tl.float32)")
                scope.held[member.out] = Held(variable, dims)
                self._dot(variable, product, dims)
                self._finish(member, stored)
                return scope.held[member.out]
            tile = self._tile(definition, self.tiles.dims([*definition.axes, *definition.reduced]))
            value = self._over_axes(tile, definition)
        else:
            tests = member.scatter.tests if member.scatter is not None else ()
            facts = tuple(Fact(test, self.values.value(test, dims, ()).text) for test in tests)
            value = self.values.single(self.values.value(definition.expression, dims, facts))
            value = self.values.whole(value, definition.expression, dims)
        scope.add(f"{variable} = {value}")
        scope.held[member.out] = Held(variable, dims)
        if scope is self.values.outer or stored:
            self._store(member)
        return scope.held[member.out]

    def _scanned(self, scan: ir.Scan, dims: Axes) -> str:
        if (scan.scale, scan.combine) != ("multiply", "add"):
            raise NotEmitted(f"{scan.out} is a recurrence by {scan.scale} and {scan.combine}")
        if scan.along not in dims:
            raise NotEmitted(f"{scan.out} is a recurrence along an axis of one element")
        along = dims.index(scan.along)
        term = self.values.whole(
            self.values.single(self.values.value(scan.term, dims, ())), scan.term, dims
        )
        factor = self.values.single(self.values.value(scan.factor, dims, ()))
        if scan.factor == ir.Constant(1.0) and scan.initial == ir.Constant(0.0):
            return f"tl.cumsum({term}, {along})"
        factor = self.values.whole(factor, scan.factor, dims)
        self.values.helpers.add("_recurrence")
        pair = f"({factor}, {term})"
        scope, names = self.values.outer, [self.values.fresh(n) for n in ("scale", "scanned")]
        scope.add(f"{', '.join(names)} = tl.associative_scan({pair}, {along}, _recurrence)")
        if scan.initial == ir.Constant(0.0):
            return names[1]
        initial = self.values.single(self.values.value(scan.initial, dims, ()))
        return f"{names[1]} + {names[0]} * {initial}"

    def _store(self, member: Member) -> None:
        if member.out not in self.stored:
            return
        array, scope = self.arrays[member.out], self._scope(member)
        variable, dims = scope.held[member.out]
        index = element_number(member.place, array.shape)
        if not self.tiles.stores(member):
            raise NotEmitted(f"several programs would store the same elements of {member.out}")
        if member.out in self.blocks:
            block = block_at(index, array, self.tiles)
            tile = self.values.expanded(Held(variable, dims), block.axes)
            at = self.values.begin_of(block)
            scope.stores.append(
                f"{member.out}_tiles.store({at}, {tile}.to({FORMATS[array.dtype]}))"
            )
            return
        names, masks = self.values.names(dims), self.values.overhang(dims, dims)
        if (scatter := member.scatter) is not None:
            row = self.values.fresh("row")
            number = self.values.value(scatter.number, dims, ()).text
            scope.add(f"{row} = {number} + {self.values.index_text(scatter.offset, names)}")
            names[scatter.axis] = row
            masks += [f"({row} >= 0)", f"({row} < {scatter.axis.extent})"]
            masks += [self.values.value(test, dims, ()).text for test in scatter.tests]
        where = self.values.index_text(index, names)
        mask = f", mask={' & '.join(masks)}" if masks else ""
        scope.stores.append(f"tl.store({member.out}_at + {where}, {variable}{mask})")


def _renamed(
    expression: ir.Expression, names: Sequence[str] | set[str], end: str = "@before"
) -> ir.Expression:
    if isinstance(expression, ir.Read) and expression.array in names:
        return replace(expression, array=f"{expression.array}{end}")
    return ir.with_parts(expression, [_renamed(p, names, end) for p in ir.parts_of(expression)])
