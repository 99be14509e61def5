"""One kernel of a schedule as Triton.

A program has one tile of each free axis. Where an axis is walked, the loop over its tiles is written as
often as reductions along it build on each other; sums that follow a running maximum are rescaled instead.
Whatever does not depend on the walked axis is computed before the loop, and every element is loaded once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from accelopt.algorithm.algorithm import (
    Apply,
    Array,
    Constant,
    Expression,
    Indirect,
    Position,
    Read,
    Reduce,
    Scan,
    Where,
    axes_of,
    expressions_of,
    parts_of,
    walk,
    with_parts,
)
from accelopt.algorithm.contraction import ONE, Contraction
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, Floor, Index
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.kernels.triton.emission.functions import (
    COMBINED,
    COMPARISONS,
    FORMATS,
    LOGICAL,
    OVER_AXIS,
    bare,
    closed,
    float_text,
    is_name,
    is_number,
    is_whole,
    number_text,
    power_text,
)
from accelopt.kernels.triton.emission.groups import Group, Member, address
from accelopt.kernels.triton.emission.running import grown, vanishes
from accelopt.kernels.triton.emission.schedule import Kernel, NotEmitted
from accelopt.kernels.triton.emission.simplifying import (
    bound_by,
    conditions_of,
    product_in,
    simple,
    tests_of,
    unguarded,
)
from accelopt.kernels.triton.emission.tiles import NARROW, Axes, Tiles

LONGEST = 72
"""Of a text that stands inside of another one."""
RESERVED = ("torch", "triton", "tl", "program", "first", "height")
"""Names that the kernels have for other things than arrays."""


class Text(NamedTuple):
    """A value in Triton and what it is: a format by NumPy's name, "int" or "bool"."""

    text: str
    kind: str


class Held(NamedTuple):
    """A variable with the elements of a tile; its dimensions are those axes."""

    text: str
    dims: Axes


@dataclass
class Scope:
    """Lines of a block, and what they have computed."""

    indent: int
    lines: list[str] = field(default_factory=list)
    known: dict[object, Text] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    stores: list[str] = field(default_factory=list)
    """At the end: a result may lie in the memory of what is read."""

    def end(self) -> None:
        """Writes the stores."""
        for store in self.stores:
            self.add(store)

    def add(self, line: str) -> None:
        """Writes a line."""
        self.lines.append("    " * self.indent + line)


class KernelText:
    """Writes one kernel. `stored` are the arrays that others read."""

    def __init__(
        self, name: str, group: Group, kernel: Kernel, arrays: Mapping[str, Array],
        stored: set[str], precision: str,
    ) -> None:  # fmt: skip
        self.name, self.group, self.kernel = name, group, kernel
        self.tiles = Tiles(group, kernel)
        self.arrays, self.stored, self.precision = arrays, stored, precision
        self.walked = self.tiles.walked
        self.helpers: set[str] = set()
        self._outer = Scope(1)
        self._inner: Scope | None = None
        self._known: frozenset[Index | Expression] = frozenset()
        self._numbers: Counter[str] = Counter()
        self._bound: dict[Axis, Text] = {}
        self._uses: Counter[Expression] = Counter()
        self._axis_names: dict[Axis, str] = {}
        self._taken = {*arrays, *(f"{array}_at" for array in arrays), *RESERVED}
        for axis in group.axes:
            plain = re.sub(r"\W", "_", axis.name)
            name = next(
                n for n in (plain, *(f"{plain}_{k}" for k in range(99))) if n not in self._taken
            )
            self._axis_names[axis] = name
            self._taken |= {name, f"{name}_start"}
        own = {member.out for member in group.members}
        read = {r.array for m in group.members for r in m.reads} - own
        written = [m.out for m in group.members if m.out in stored]
        self.parameters = [*(name for name in arrays if name in read), *written]
        for member in group.members:
            expressions = expressions_of(member.definition)
            self._uses.update(expressions)
            for expression in {p for e in expressions for p in walk(e)}:
                self._uses.update(parts_of(expression))

    # The kernel.

    def lines(self) -> list[str]:
        """The kernel as lines. Raises NotEmitted."""
        self._program()
        passes = self.tiles.passes
        last = max(passes.values(), default=0) if self.walked else -1
        for number in range(last + 1):
            self._walk(number, passes)
        for member in self.group.members:
            inside = self.walked is not None and self.walked in member.every_axis
            if member.out not in self._outer.held and not inside:
                self._member(member)
        self._outer.end()
        head = [f"@triton.jit\ndef {self.name}({', '.join(f'{p}_at' for p in self.parameters)}):"]
        return head + self._outer.lines

    def _program(self) -> None:
        """Which tiles a program has."""
        tiles, add = self.tiles, self._outer.add
        wide = any(math.prod(array.shape) >= 1 << 31 for array in self.arrays.values())
        if tiles.grid:
            add("program = tl.program_id(0)" + (".to(tl.int64)" if wide else ""))
        left = "program"
        blocks: dict[Axis, str] = {}
        if len(tiles.grid) == 2 and self.kernel.together > 1:
            rows, columns = tiles.grid
            many, several = tiles.count(columns), self.kernel.together
            add(f"first = program // {several * many} * {several}")
            add(f"height = tl.minimum({tiles.count(rows)} - first, {several})")
            blocks[rows] = f"first + program % {several * many} % height"
            blocks[columns] = f"program % {several * many} // height"
        else:
            step = tiles.programs
            for n, axis in enumerate(tiles.grid):
                step //= tiles.count(axis)
                text = left if step == 1 else f"{left} // {step}"
                blocks[axis] = f"{text} % {tiles.count(axis)}" if n else text
        for axis in self.group.axes:
            size = tiles.sizes[axis]
            if axis == self.walked:
                continue
            block = blocks.get(axis)
            if size == 1:
                if block is not None:
                    add(f"{self._axis(axis)} = {block}")
                continue
            start = ""
            if block is not None:
                start = f"{self._axis(axis)}_start"
                add(f"{start} = {f'({block})' if ' ' in block else block} * {size}")
                start += " + "
            add(f"{self._axis(axis)} = {start}tl.arange(0, {size})")

    def _axis(self, axis: Axis) -> str:
        return self._axis_names[axis]

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
            full = self._fresh("whole")
            self._outer.add(f"{full} = {whole}")
            self._known = decided
            self._loop(sums, kept, (begin, full))
            self._known, begin = frozenset(), full
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
        outer, size, name = self._outer, self.tiles.sizes[self.walked], self._axis(self.walked)
        inner = self._inner = Scope(outer.indent + 1)
        if size > 1:
            inner.add(f"{name} = {name}_start + tl.arange(0, {size})")
        for member in self.group.members:
            if member in sums:
                self._accumulate(member, {m.out for m in sums})
            elif member in kept:
                self._member(member, stored=True)
        inner.end()
        self._inner = None
        step = "" if size == 1 else f", {size}"
        loop = name if size == 1 else f"{name}_start"
        outer.add(f"for {loop} in range({ends[0]}, {ends[1]}{step}):")
        outer.lines += inner.lines

    def _range(
        self, sums: Sequence[Member], kept: Sequence[Member]
    ) -> tuple[str, str | None, str, frozenset[Index | Expression]]:
        """The part of the walked axis in which something is added, and up to where all of some conditions
        hold that decide that."""
        assert self.walked is not None
        axis, size = self.walked, self.tiles.sizes[self.walked]
        begin, end, whole = "0", str(axis.extent), list[str]()
        decided = set[Index | Expression]()
        common = [set(conditions_of(self._resolved(m))) for m in sums]
        for condition in sorted(set.intersection(*common), key=str) if sums and not kept else ():
            if not isinstance(condition, Index):
                last = self._last(condition)
                if last is not None:
                    end = f"tl.minimum({end}, {last})"
                    whole.append(last)
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
        return begin, f"{full} // {size} * {size}", end, frozenset(decided)

    def _last(self, test: Expression) -> str | None:
        """Where along the walked axis a test at run time holds no longer, alike for a program's tile."""
        found = bound_by(test)
        if found is None or self.walked is None:
            return None
        index, bound, more = found
        if index - Index(0, ((self.walked, 1),)) != Index() or self.walked in axes_of(bound):
            return None
        if self.tiles.dims(axes_of(bound)) or any(
            self.group.member(part.array) for part in walk(bound) if isinstance(part, Read)
        ):
            return None
        value = self.value(bound, (), ())
        if value.kind != "int":
            return None
        return f"{value.text} + {more}" if more else value.text

    def _corner(self, rest: Index, first: bool = False) -> str | None:
        """The largest value of an index in a program's tile, whose terms grow with their axes, or the
        least."""
        last: dict[Axis, str] = {}
        for term, factor in rest.terms:
            inner = term.inner if isinstance(term, Floor) else Index(0, ((term, 1),))
            if factor < 0 and any(self.tiles.sizes[a] > 1 for a in inner.axes):
                return None
            if len(inner.terms) != 1 or inner.terms[0][1] < 0:
                return None
        for axis in rest.axes:
            name, size = self._axis(axis), self.tiles.sizes[axis]
            start = f"{name}_start" if axis in self.tiles.grid else "0"
            last[axis] = name if size == 1 else start if first else f"({start} + {size - 1})"
        return self._index_text(rest, last)

    def _resolved(self, member: Member) -> Reduce:
        """A reduction whose summand has the choices of the elements in it that this kernel computes."""
        assert isinstance(member.definition, Reduce)

        def put(expression: Expression) -> Expression:
            if isinstance(expression, Read):
                other = self.group.member(expression.array)
                if (
                    other is not None
                    and not other.reduced
                    and not isinstance(other.definition, Scan)
                ):
                    (found,) = expressions_of(other.definition)
                    return put(found)
                return expression
            return with_parts(expression, map(put, parts_of(expression)))

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

    def _alpha(self, member: Member) -> Expression | None:
        if self.walked not in member.reduced:
            return None
        behind = self.tiles.reductions_behind(member)
        passes = self.tiles.passes
        now = {name for name in behind if passes[name] == passes[member.out]}
        return self.tiles.growth(member, now) if now else None

    def _begin(self, member: Member) -> None:
        assert isinstance(member.definition, Reduce)
        dims = self._state(member)
        shape = ", ".join(str(self.tiles.sizes[a]) for a in dims)
        neutral = number_text(NEUTRAL[member.definition.combiner])
        variable = self._variable(member.out)
        self._outer.add(f"{variable} = tl.full([{shape}], {neutral}, tl.float32)")
        self._outer.held[member.out] = Held(variable, dims)

    def _accumulate(self, member: Member, now: set[str]) -> None:
        """Adds a tile of the walked axis."""
        definition = member.definition
        assert isinstance(definition, Reduce) and self._inner is not None
        variable, dims = self._outer.held[member.out]
        alpha, product = self._alpha(member), self.tiles.product(member)
        scope = self._inner
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
        scope.add(f"{variable} = {bare(text)}")

    def _end(self, member: Member) -> None:
        definition = member.definition
        assert isinstance(definition, Reduce)
        variable, dims = self._outer.held[member.out]
        left = [a for a in dims if a not in definition.axes]
        if left:
            text = self._over_axes(variable, definition)
            self._outer.add(f"{variable} = {text}")
        self._outer.held[member.out] = Held(variable, self.tiles.dims(definition.axes))
        self._finish(member)

    def _finish(self, member: Member, stored: bool = True) -> None:
        """What is left to do of a reduction when all is added: the scale of a product, and the store."""
        product = self.tiles.product(member)
        scope = self._scope(member)
        variable, dims = scope.held[member.out]
        if product is not None and product.scale != ONE:
            scale = self.value(product.scale, dims, ())
            scope.add(f"{variable} = {variable} * {self._single(scale)}")
        if scope is self._outer or stored:
            self._store(member)

    def _over_axes(self, value: str, definition: Reduce) -> str:
        dims = self.tiles.dims([*definition.axes, *definition.reduced])
        for n in reversed(range(len(dims))):
            if dims[n] in definition.reduced:
                value = OVER_AXIS[definition.combiner].format(value, n)
                if definition.combiner == "multiply":
                    self.helpers.add("_multiplied")
        return value

    def _tile(self, definition: Reduce, dims: Axes) -> str:
        """The elements that are combined, those neutral that lie behind an axis's end."""
        value = self._single(self.value(definition.expression, dims, ()))
        value = self._whole(value, definition.expression, dims)
        masks = self._overhang([a for a in dims if a in definition.reduced], dims)
        if masks:
            neutral = number_text(NEUTRAL[definition.combiner])
            value = f"tl.where({' & '.join(masks)}, {bare(value)}, {neutral})"
        return value

    def _whole(self, value: str, expression: Expression, dims: Axes) -> str:
        """The value with all of its dimensions filled."""
        if self._dimensions(expression) >= set(dims):
            return value
        shape = ", ".join(str(self.tiles.sizes[a]) for a in dims)
        if not dims:
            return value
        if not self._dimensions(expression) & set(dims):
            return f"tl.full([{shape}], 0.0, tl.float32) + {value}"
        return f"tl.broadcast_to({bare(value)}, [{shape}])"

    def _dimensions(self, expression: Expression) -> set[Axis]:
        found: set[Axis] = set()
        for axis in axes_of(expression):
            found.add(axis)
        for part in walk(expression):
            held = self._held(part.array) if isinstance(part, Read) else None
            if held is not None:
                found |= set(held.dims)
        return found

    def _dot(self, variable: str, product: Contraction, dims: Axes) -> None:
        """Adds the product of two operands."""
        rows, columns = self.tiles.dims(product.rows)[0], self.tiles.dims(product.columns)[0]
        inner = self.tiles.dims(product.contracted)[0]
        kinds = [self._format_of(side) for side in (product.left, product.right)]
        kind = kinds[0] if kinds[0] == kinds[1] and kinds[0] in NARROW else "float32"
        turned = dims == (columns, rows)
        sides = [(product.left, (rows, inner)), (product.right, (inner, columns))]
        if turned:
            sides = [(product.right, (columns, inner)), (product.left, (inner, rows))]
        texts = []
        for expression, own in sides:
            texts.append(self._operand(expression, own, inner, kind))
        scope = self._inner if self._inner is not None else self._outer
        precise = "" if kind != "float32" else f', input_precision="{self.precision}"'
        scope.add(f"{variable} = tl.dot({texts[0]}, {texts[1]}, {variable}{precise})")

    def _operand(self, expression: Expression, dims: Axes, inner: Axis, kind: str) -> str:
        given = self.value(expression, dims, ())
        text = given.text
        if given.kind != kind:
            text = f"{self._single(given)}"
            text = text if kind == "float32" else f"{closed(text)}.to({FORMATS[kind]})"
        text = self._whole(text, expression, dims)
        masks = self._overhang([inner], dims)
        if masks and not isinstance(expression, Read):
            text = f"tl.where({masks[0]}, {bare(text)}, 0.0)"
            text = text if kind == "float32" else f"{text}.to({FORMATS[kind]})"
        return bare(text)

    def _format_of(self, expression: Expression) -> str:
        expression = unguarded(expression, 0.0)
        if isinstance(expression, Apply) and expression.function in ROUNDINGS:
            return expression.function
        if isinstance(expression, Indirect):
            return self._format_of(expression.element)
        held = isinstance(expression, Read) and self._held(expression.array) is not None
        if (
            isinstance(expression, Read)
            and not held
            and self.group.member(expression.array) is None
        ):
            return self.arrays[expression.array].dtype
        return "float32"

    def _rescale(self, alpha: Expression, now: set[str], dims: Axes) -> str:
        """What a running sum is multiplied by."""
        scope = self._inner
        assert scope is not None
        names = sorted({p.array for p in walk(alpha) if isinstance(p, Read) and p.array in now})
        key = (alpha, "rescaled")
        if key not in scope.known:
            own = self.tiles.dims([a for n in names for a in self._outer.held[n].dims])
            rise = grown(_renamed(alpha, names), self._finite(alpha, now))
            text = self.value(Apply("exp", (rise,)), own, ()).text
            if not vanishes(alpha):
                nothing = (f'({self._outer.held[n].text}_before == float("-inf"))' for n in names)
                text = f"tl.where({' & '.join(nothing)}, 0.0, {bare(text)})"
            name = self._fresh("rescaled")
            scope.add(f"{name} = {bare(text)}")
            scope.known[key] = Text(name, "float32")
            self._outer.held[f"{name}@"] = Held(name, own)
        name = scope.known[key].text
        return self._expanded(self._outer.held[f"{name}@"], dims)

    def _finite(self, expression: Expression, now: set[str]) -> Expression:
        """With 0 in the place of a running maximum of nothing."""
        scope = self._inner
        assert scope is not None
        for part in list(walk(expression)):
            if isinstance(part, Read) and part.array in now:
                finite = f"{part.array}@finite"
                if finite not in scope.held:
                    held = self._outer.held[part.array]
                    name = self._fresh(f"{held.text}_finite")
                    scope.add(f'{name} = tl.where({held.text} == float("-inf"), 0.0, {held.text})')
                    scope.held[finite] = Held(name, held.dims)
                    before = f"{part.array}@before"
                    self._outer.held[before] = Held(f"{held.text}_before", held.dims)
        return _renamed(expression, now, "@finite")

    # Members that no walk accumulates.

    def _scope(self, member: Member) -> Scope:
        if self._inner is not None and self._varies_member(member):
            return self._inner
        return self._outer

    def _member(self, member: Member, stored: bool = False) -> Held:
        """Computes a member for the tile, and stores it where others read it: what is computed in each round of
        several walks in one of them, when it is `stored`."""
        definition, scope = member.definition, self._scope(member)
        variable = self._variable(member.out)
        dims = self.tiles.dims(definition.axes)
        if isinstance(definition, Scan):
            value = self._scanned(definition, dims)
        elif isinstance(definition, Reduce):
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
            value = self._single(self.value(definition.expression, dims, ()))
            value = self._whole(value, definition.expression, dims)
        scope.add(f"{variable} = {bare(value)}")
        scope.held[member.out] = Held(variable, dims)
        if scope is self._outer or stored:
            self._store(member)
        return scope.held[member.out]

    def _scanned(self, scan: Scan, dims: Axes) -> str:
        if (scan.scale, scan.combine) != ("multiply", "add"):
            raise NotEmitted(f"{scan.out} is a recurrence by {scan.scale} and {scan.combine}")
        if scan.along not in dims:
            raise NotEmitted(f"{scan.out} is a recurrence along an axis of one element")
        along = dims.index(scan.along)
        term = self._whole(self._single(self.value(scan.term, dims, ())), scan.term, dims)
        factor = self._single(self.value(scan.factor, dims, ()))
        if scan.factor == Constant(1.0) and scan.initial == Constant(0.0):
            return f"tl.cumsum({bare(term)}, {along})"
        factor = self._whole(factor, scan.factor, dims)
        self.helpers.add("_recurrence")
        pair = f"({bare(factor)}, {bare(term)})"
        scope, names = self._outer, [self._fresh(n) for n in ("scale", "scanned")]
        scope.add(f"{', '.join(names)} = tl.associative_scan({pair}, {along}, _recurrence)")
        if scan.initial == Constant(0.0):
            return names[1]
        initial = self._single(self.value(scan.initial, dims, ()))
        return f"{names[1]} + {names[0]} * {initial}"

    def _store(self, member: Member) -> None:
        if member.out not in self.stored:
            return
        array, scope = self.arrays[member.out], self._scope(member)
        variable, dims = scope.held[member.out]
        index = address(member.place, array.shape)
        where = self._index_text(index, self._names(dims))
        masks = self._overhang(dims, dims)
        if {*self.tiles.grid} - {*member.definition.axes}:
            raise NotEmitted(f"several programs would store the same elements of {member.out}")
        mask = f", mask={' & '.join(masks)}" if masks else ""
        scope.stores.append(f"tl.store({member.out}_at + {where}, {variable}{mask})")

    # Expressions.

    def _held(self, array: str) -> Held | None:
        if self._inner is not None and array in self._inner.held:
            return self._inner.held[array]
        return self._outer.held.get(array)

    def _varies_member(self, member: Member) -> bool:
        return self.walked not in member.reduced and any(
            self._varies(e) for e in expressions_of(member.definition)
        )

    def _varies(self, expression: Expression) -> bool:
        """Whether a value changes along the walk that is being written."""
        if self._inner is None:
            return False
        if self.walked in axes_of(expression):
            return True
        for part in walk(expression):
            if isinstance(part, Read):
                if "@" in part.array or part.array in self._inner.held:
                    return True
                member = self.group.member(part.array)
                if (
                    member is not None
                    and part.array not in self._outer.held
                    and self._varies_member(member)
                ):
                    return True
        return False

    def value(self, expression: Expression, dims: Axes, facts: tuple[str, ...]) -> Text:
        """The elements of a tile, one dimension an axis of `dims`, of length 1 where the value does not
        depend on it. `facts` are conditions under which alone it is asked for. Raises NotEmitted."""
        if isinstance(expression, Constant):
            return Text(number_text(expression.value), "float32")
        varies = self._varies(expression)
        scope = self._inner if varies and self._inner is not None else self._outer
        key = (expression, dims, facts if self._guarded(expression) else (), *self._bound.items())
        found = scope.known.get(key) or self._outer.known.get(key)
        if found is not None:
            return found
        made = self._made(expression, dims, facts)
        load = isinstance(expression, Read) and self._held(expression.array) is None
        again = self._uses[expression] > 1 and not isinstance(expression, (Read, Position))
        hoisted = not varies and self._inner is not None and not isinstance(expression, Position)
        if (load or again or hoisted or len(made.text) > LONGEST) and not is_name(made.text):
            made = self._named(made, expression, scope)
        scope.known[key] = made
        return made

    def _named(self, made: Text, expression: Expression, scope: Scope) -> Text:
        hint = expression.array if isinstance(expression, Read) else "part"
        if isinstance(expression, Apply) and expression.function in ("exp", "rsqrt", "sqrt", "log"):
            hint = expression.function
        name = self._fresh(hint.partition("@")[0])
        scope.add(f"{name} = {bare(made.text)}")
        return Text(name, made.kind)

    def _guarded(self, expression: Expression) -> bool:
        """Whether a value is loaded under the conditions around it: an address may lie outside."""
        return any(isinstance(p, Read) and self._held(p.array) is None and not self._inside(p)
                   for p in walk(expression))  # fmt: skip

    def _inside(self, read: Read) -> bool:
        shape = self.arrays[read.array].shape if read.array in self.arrays else ()
        return all(
            i.bounds[0] >= 0 and i.bounds[1] < n for i, n in zip(read.indices, shape, strict=False)
        )

    def _made(self, expression: Expression, dims: Axes, facts: tuple[str, ...]) -> Text:
        if isinstance(expression, Read):
            return self._read(expression, dims, facts)
        if isinstance(expression, Position):
            return Text(closed(self._index_text(expression.index, self._names(dims))), "int")
        if isinstance(expression, Indirect):
            return self._gathered(expression, dims, facts)
        if isinstance(expression, Where):
            left = [c for c in expression.conditions if c not in self._known]
            if not left:
                return self.value(expression.on_true, dims, facts)
            tests = [f"({self._index_text(c, self._names(dims))} >= 0)" for c in left]
            yes = self.value(expression.on_true, dims, (*facts, *tests))
            test = " & ".join(tests)
            otherwise = f"(({test}) == 0)"
            no = self.value(expression.on_false, dims, (*facts, otherwise))
            return self._choice(test, yes, no)
        assert isinstance(expression, Apply)
        return self._applied(expression, dims, facts)

    def _choice(self, test: str, yes: Text, no: Text) -> Text:
        if yes.kind == "int" and is_whole(no.text):
            no = Text(str(int(float(no.text.strip("()")))), "int")
        if no.kind == "int" and is_whole(yes.text):
            yes = Text(str(int(float(yes.text.strip("()")))), "int")
        if yes.kind != no.kind:
            kind = yes.kind if is_number(no.text) else no.kind if is_number(yes.text) else "float32"
            kind = "float32" if kind in ("int", "bool") else kind
            yes, no = (
                Text(self._single(t), "float32") if kind == "float32" else t for t in (yes, no)
            )
            if kind != "float32":
                text = f"tl.where({test}, {bare(yes.text)}, {bare(no.text)}).to({FORMATS[kind]})"
                return Text(text, kind)
        return Text(f"tl.where({test}, {bare(yes.text)}, {bare(no.text)})", yes.kind)

    def _applied(self, expression: Apply, dims: Axes, facts: tuple[str, ...]) -> Text:
        name = expression.function
        if name == "select" and self._known.issuperset(tests_of(expression.arguments[0])):
            return self.value(expression.arguments[1], dims, facts)
        if name == "select":
            test = self._truth(self.value(expression.arguments[0], dims, facts))
            yes = self.value(expression.arguments[1], dims, (*facts, test))
            no = self.value(expression.arguments[2], dims, (*facts, f"({test} == 0)"))
            return self._choice(test, yes, no)
        given = [self.value(argument, dims, facts) for argument in expression.arguments]
        if name in COMPARISONS:
            left, right = self._alike(given)
            return Text(f"({left} {COMPARISONS[name]} {right})", "bool")
        if name in LOGICAL:
            return Text(
                f"({self._truth(given[0])} {LOGICAL[name]} {self._truth(given[1])})", "bool"
            )
        if name == "logical_not":
            return Text(f"({self._truth(given[0])} == 0)", "bool")
        if name in ROUNDINGS:
            if given[0].kind == name:
                return given[0]
            text = closed(self._single(given[0]))
            if name == "float32":
                return Text(text, name)
            if is_number(text):
                return Text(text, "float32")
            return Text(f"{text}.to({FORMATS[name]})", name)
        if all(g.kind == "int" or is_whole(g.text) for g in given) and name in (
            "add", "subtract", "multiply"):  # fmt: skip
            sign = {"add": "+", "subtract": "-", "multiply": "*"}[name]
            parts = [
                str(int(float(g.text.strip("()")))) if is_number(g.text) else g.text for g in given
            ]
            return Text(f"({parts[0]} {sign} {parts[1]})", "int")
        texts = [self._single(g) for g in given]
        if name == "power" and is_number(texts[1]):
            base = self._once(texts[0], dims, expression)
            return Text(power_text(base, float(texts[1].strip("()"))), "float32")
        if name == "exp":
            return Text(
                self._exponential(expression.arguments[0], texts[0], dims, facts), "float32"
            )
        if name in _REPEATING:
            texts = [self._once(text, dims, expression) for text in texts]
        text = float_text(name, texts)
        self.helpers |= {helper for helper in _HELPERS if f"{helper}(" in text}
        return Text(text, "float32")

    def _exponential(self, given: Expression, text: str, dims: Axes, facts: tuple[str, ...]) -> str:
        """exp, by a power of two where that takes a factor in."""
        if isinstance(given, Apply) and given.function == "multiply":
            for n, part in enumerate(given.arguments):
                if isinstance(part, Constant):
                    factor = part.value / math.log(2)
                    inner = self._single(self.value(given.arguments[1 - n], dims, facts))
                    scale = "" if abs(factor - 1) < 1e-7 else f" * {number_text(factor)}"
                    return f"tl.exp2({bare(inner) if not scale else inner}{scale})"
        return f"tl.exp({bare(text)})"

    def _once(self, text: str, dims: Axes, expression: Expression) -> str:
        """A text that may stand twice."""
        if is_name(text) or is_number(text):
            return text
        scope = self._inner if self._varies(expression) and self._inner is not None else self._outer
        name = self._fresh("part")
        scope.add(f"{name} = {bare(text)}")
        return name

    def _alike(self, given: Sequence[Text]) -> list[str]:
        if all(g.kind == "int" or is_whole(g.text) for g in given):
            return [
                str(int(float(g.text.strip("()")))) if is_number(g.text) else g.text for g in given
            ]
        return [self._single(g) for g in given]

    def _truth(self, given: Text) -> str:
        return given.text if given.kind == "bool" else f"({given.text} != 0)"

    def _single(self, given: Text) -> str:
        """A value in fp32."""
        if given.kind == "float32":
            return given.text
        if given.kind == "bool":
            return f"tl.where({bare(given.text)}, 1.0, 0.0)"
        if given.kind == "int":
            return f"({given.text} * 1.0)"
        return f"{closed(given.text)}.to(tl.float32)"

    def _read(self, read: Read, dims: Axes, facts: tuple[str, ...]) -> Text:
        held = self._held(read.array)
        member = self.group.member(read.array)
        if held is None and member is not None:
            held = self._member(member)
        if held is not None:
            return Text(self._expanded(held, dims), "float32")
        array = self.arrays[read.array]
        if array.dtype not in FORMATS:
            raise NotEmitted(f"{read.array} is {array.dtype}, which the kernels do not compute in")
        index = address(read.indices, array.shape)
        names = self._names(dims)
        masks = self._overhang([a for a in dims if a in index.axes], dims)
        masks += [f"({self._bound[a].text} >= 0)" for a in index.axes if a in self._bound]
        masks += [f"({self._bound[a].text} < {a.extent})" for a in index.axes if a in self._bound]
        if not self._inside(read):
            masks += [fact for fact in facts if fact not in masks]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        where = self._index_text(index, names)
        text = f"tl.load({read.array}_at + {where}{mask})"
        if array.dtype == "bool":
            return Text(f"({text} != 0)", "bool")
        kind = "int" if "int" in array.dtype else array.dtype
        return Text(text, kind)

    def _gathered(self, expression: Indirect, dims: Axes, facts: tuple[str, ...]) -> Text:
        at = self.value(expression.at, dims, facts)
        text = at.text if at.kind == "int" else f"{closed(self._single(at))}.to(tl.int32)"
        before = dict(self._bound)
        self._bound[expression.axis] = Text(self._once(text, dims, expression.at), "int")
        try:
            return self.value(expression.element, dims, facts)
        finally:
            self._bound = before

    def _expanded(self, held: Held, dims: Axes) -> str:
        """A variable with other dimensions around its own."""
        own = [a for a in dims if a in held.dims]
        text = held.text
        if set(held.dims) - set(dims):
            raise NotEmitted(f"{held.text} has a dimension more than what is made of it")
        if tuple(own) != held.dims:
            order = ", ".join(str(held.dims.index(a)) for a in own)
            text = f"tl.permute({text}, ({order}))" if len(own) != 2 else f"tl.trans({text})"
        if len(own) == len(dims) or not own:
            return text
        return f"{text}[{', '.join(':' if a in own else 'None' for a in dims)}]"

    def _names(self, dims: Axes) -> dict[Axis, str]:
        """How axes are written in a tile with these dimensions."""
        found = {axis: text.text for axis, text in self._bound.items()}
        for axis in self.group.axes:
            found[axis] = self._axis(axis)
            if axis in dims and len(dims) > 1:
                places = ", ".join(":" if a == axis else "None" for a in dims)
                found[axis] = f"{self._axis(axis)}[{places}]"
        return found

    def _overhang(self, axes: Sequence[Axis], dims: Axes) -> list[str]:
        """Conditions that tell elements of an axis from what lies behind its end in the last tile."""
        names = self._names(dims)
        return [f"({names[a]} < {a.extent})" for a in axes
                if self.tiles.sizes[a] > 1 and a.extent % self.tiles.sizes[a]]  # fmt: skip

    def _index_text(self, index: Index, names: Mapping[Axis, str]) -> str:
        """An index. A floor of what may be negative is taken of something larger: integers divide
        towards 0."""
        pieces = [str(index.constant)] if index.constant or not index.terms else []
        for term, factor in index.terms:
            if isinstance(term, Floor):
                inner, low = term.inner, term.inner.bounds[0]
                more = -(low // term.divisor) if low < 0 else 0
                text = f"({self._index_text(inner + more * term.divisor, names)}) // {term.divisor}"
                text = f"({text} - {more})" if more else text
                text = f"({text})"
            else:
                if term not in names:
                    raise NotEmitted(
                        f"the index {index} has the axis {term.name}, which nothing has"
                    )
                text = names[term]
            pieces.append(text if factor == 1 else f"{text} * {factor}")
        return " + ".join(pieces)

    def _variable(self, array: str) -> str:
        return (
            self._fresh(array)
            if array in self._taken and self._numbers[array]
            else self._first(array)
        )

    def _first(self, array: str) -> str:
        self._numbers[array] += 1
        return array

    def _fresh(self, hint: str) -> str:
        """A name that nothing has."""
        while True:
            self._numbers[hint] += 1
            name = f"{hint}_{self._numbers[hint]}"
            if name not in self._taken:
                return name


_REPEATING = {
    "silu", "square", "mod", "fmod", "sign", "silu_dx", "gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid",
    "gelu_dx", "erf_dx", "tan", "mish", "trunc",
}  # fmt: skip
_HELPERS = ("_sigmoid", "_tanh", "_softplus")


def _renamed(
    expression: Expression, names: Sequence[str] | set[str], end: str = "@before"
) -> Expression:
    if isinstance(expression, Read) and expression.array in names:
        return replace(expression, array=f"{expression.array}{end}")
    return with_parts(expression, [_renamed(p, names, end) for p in parts_of(expression)])
