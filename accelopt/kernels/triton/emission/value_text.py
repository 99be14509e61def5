"""Expressions of an Algorithm as Triton: the elements of a tile.

A value has one dimension an axis of the tile that it is asked for, of length 1 where it does not depend on it.
Whatever does not change along the walked axis is computed before the loop, and every element is loaded once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.algorithm import ir
from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis, Floor, Index, element_number, index_of
from accelopt.kernels.triton.emission.base_two import LN_2, factor_of
from accelopt.kernels.triton.emission.descriptors import Block, block_at
from accelopt.kernels.triton.emission.functions import (
    COMPARISONS,
    FORMATS,
    LOGICAL,
    closed,
    float_text,
    is_name,
    is_number,
    is_whole,
    number_text,
    power_text,
)
from accelopt.kernels.triton.emission.groups import Member
from accelopt.kernels.triton.emission.schedule import NotEmitted
from accelopt.kernels.triton.emission.simplifying import tests_of, unguarded
from accelopt.kernels.triton.emission.tiles import Axes, Tiles

LONGEST = 76
"""Of a text that stands inside of another one."""
RESERVED = ("torch", "triton", "tl", "program", "first", "height", "TensorDescriptor", "segment",
            "packed", "tiles_until", "tiles_before", "own_segment")  # fmt: skip
"""Names that the kernels have for other things than arrays."""


class Text(NamedTuple):
    """A value in Triton and what it is: a format by NumPy's name, "int" or "bool"."""

    text: str
    kind: str


class Held(NamedTuple):
    """A variable with the elements of a tile; its dimensions are those axes."""

    text: str
    dims: Axes


class Fact(NamedTuple):
    """A condition under which alone a value is asked for, and its text."""

    test: object
    text: str


Facts = tuple[Fact, ...]


@dataclass
class Scope:
    """Lines of a block, and what they have computed."""

    indent: int
    lines: list[str] = field(default_factory=list)
    known: dict[object, Text] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    tiles: dict[object, tuple[Text, Axes]] = field(default_factory=dict)
    stores: list[str] = field(default_factory=list)
    """At the end: a result may lie in the memory of what is read."""

    def end(self) -> None:
        """Writes the stores."""
        for store in self.stores:
            self.add(store)

    def add(self, line: str) -> None:
        """Writes a line."""
        self.lines.append("    " * self.indent + line)


class ValueText:
    """Writes values into the block of a kernel that is being written: `outer`, or `inner` within a loop, where
    the conditions `known` hold. `computed` writes a definition of the kernel's group; descriptors move tiles
    of the arrays in `blocks`."""

    def __init__(
        self, tiles: Tiles, arrays: Mapping[str, ir.Array], computed: Callable[[Member], Held],
        blocks: Mapping[str, Block],
    ) -> None:  # fmt: skip
        self.tiles, self.arrays, self._computed = tiles, arrays, computed
        self.blocks = blocks
        self.helpers: set[str] = set()
        self.outer = Scope(1)
        self.inner: Scope | None = None
        self.known: frozenset[Index | ir.Expression] = frozenset()
        self._numbers: Counter[str] = Counter()
        self._bound: dict[Axis, Text] = {}
        self._zeroing = False  # loads are 0 where the conditions around them do not hold
        self._moving: set[Axis | None] = {tiles.walked}  # with the numbers that change along it
        self._uses: Counter[ir.Expression] = Counter()
        self._axis_names: dict[Axis, str] = {}
        ends = ("", "_at", "_tiles")
        self._taken = {*(f"{array}{end}" for array in arrays for end in ends), *RESERVED}
        for axis in tiles.group.axes:
            plain = re.sub(r"\W", "_", axis.name)
            name = next(
                n for n in (plain, *(f"{plain}_{k}" for k in range(99))) if n not in self._taken
            )
            self._axis_names[axis] = name
            self._taken |= {name, f"{name}_start"}
        for member in tiles.group.members:
            expressions = ir.expressions_of(member.definition)
            self._uses.update(expressions)
            for expression in {p for e in expressions for p in ir.walk(e)}:
                self._uses.update(ir.parts_of(expression))

    def held(self, array: str) -> Held | None:
        """The variable with the elements of an array, where it is known here."""
        if self.inner is not None and array in self.inner.held:
            return self.inner.held[array]
        return self.outer.held.get(array)

    def varies_member(self, member: Member) -> bool:
        """Whether a member, that the walk does not reduce, changes along it."""
        return self.tiles.walked not in member.reduced and any(
            self.varies(e) for e in ir.expressions_of(member.definition)
        )

    def varies(self, expression: ir.Expression) -> bool:
        """Whether a value changes along the walk that is being written."""
        if self.inner is None:
            return False
        if not self._moving.isdisjoint(ir.axes_of(expression)):
            return True
        for part in ir.walk(expression):
            if isinstance(part, ir.Read):
                if "@" in part.array or part.array in self.inner.held:
                    return True
                member = self.tiles.group.member(part.array)
                if (
                    member is not None
                    and part.array not in self.outer.held
                    and self.varies_member(member)
                ):
                    return True
        return False

    def value(self, expression: ir.Expression, dims: Axes, facts: Facts) -> Text:
        """The elements of a tile, one dimension an axis of `dims`, of length 1 where the value does not
        depend on it. `facts` are conditions under which alone it is asked for. Raises NotEmitted."""
        if isinstance(expression, ir.Constant):
            return Text(number_text(expression.value), "float32")
        varies = self.varies(expression)
        scope = self.inner if varies and self.inner is not None else self.outer
        shape = tuple(a if a in self._dimensions(expression) else None for a in dims)
        shape = shape if any(shape) else ()
        key = (expression, shape, facts if self._guarded(expression) else (), *self._bound.items())
        found = scope.known.get(key) or self.outer.known.get(key)
        if found is not None:
            return found
        tile = self._tile_key(expression, shape, key[2:])
        made = self._known_tile(scope, tile, dims) or self._made(expression, dims, facts)
        load = isinstance(expression, ir.Read) and self.held(expression.array) is None
        again = self._uses[expression] > 1 and not isinstance(expression, (ir.Read, ir.Position))
        hoisted = self._is_hoisted(expression) and not isinstance(expression, ir.Position)
        if (load or again or hoisted or len(made.text) > LONGEST) and not is_name(made.text):
            made = self._named(made, expression, scope)
        scope.known[key] = made
        if tile is not None and is_name(made.text):
            scope.tiles[tile] = made, self._first_alike(dims)
        return made

    def _tile_key(
        self, expression: ir.Expression, shape: Sequence[Axis | None], around: tuple[object, ...]
    ) -> object:
        """What is the same of two tiles of the same elements, one of which may have columns for rows; None for what is
        not loaded as a tile."""
        axes = self._first_alike([axis for axis in shape if axis is not None])
        if _loaded(expression) is None or len({*axes}) < 2 or len({*axes}) < len(shape):
            return None
        facts = frozenset(self._as_first(fact.test) for fact in around[0])  # type: ignore[attr-defined]
        return self._as_first(expression), frozenset(axes), facts, around[1:]

    def _known_tile(self, scope: Scope, tile: object, dims: Axes) -> Text | None:
        if tile is None or tile not in scope.tiles:
            return None
        (text, kind), own = scope.tiles[tile]
        return Text(self.expanded(Held(text, own), self._first_alike(dims)), kind)

    def _first_alike(self, axes: Sequence[Axis]) -> Axes:
        first = (self.tiles.alike.get(axis, index_of(axis)) for axis in axes)
        return tuple(axis for index in first for axis in index.axes)

    def _as_first(self, test: object) -> object:
        """An expression or a condition with the first of several axes that are alike."""
        if isinstance(test, Index):
            return test.substitute(self.tiles.alike)
        return test if isinstance(test, tuple) else ir.substituted(test, self.tiles.alike, {})  # type: ignore[arg-type]

    def _named(self, made: Text, expression: ir.Expression, scope: Scope) -> Text:
        hint = expression.array if isinstance(expression, ir.Read) else "part"
        if isinstance(expression, ir.Apply) and expression.function in (
            "exp",
            "rsqrt",
            "sqrt",
            "log",
        ):
            hint = expression.function
        name = self.fresh(hint.partition("@")[0])
        scope.add(f"{name} = {made.text}")
        return Text(name, made.kind)

    def _guarded(self, expression: ir.Expression) -> bool:
        """Whether a value is loaded under the conditions around it: an address may lie outside."""
        return any(isinstance(p, ir.Read) and self.held(p.array) is None and not self._is_hoisted(p)
                   and (self._zeroing or not self._inside(p)) for p in ir.walk(expression))  # fmt: skip

    def _is_hoisted(self, expression: ir.Expression) -> bool:
        """Whether a value stands before the walk that is being written, whose conditions it does not have."""
        return self.inner is not None and not self.varies(expression)

    def _is_loaded(self, expression: ir.Expression) -> bool:
        """Whether a value is 0 where the conditions around it do not hold: those are in its mask."""
        read = _loaded(expression)
        return read is not None and self._guarded(read)

    def _inside(self, read: ir.Read) -> bool:
        shape = self.arrays[read.array].shape if read.array in self.arrays else ()
        return all(
            i.bounds[0] >= 0 and i.bounds[1] < n for i, n in zip(read.indices, shape, strict=False)
        )

    def _made(self, expression: ir.Expression, dims: Axes, facts: Facts) -> Text:
        if isinstance(expression, ir.Read):
            return self._read(expression, dims, facts)
        if isinstance(expression, ir.Position):
            return Text(closed(self.index_text(expression.index, self.names(dims))), "int")
        if isinstance(expression, ir.Indirect):
            return self._gathered(expression, dims, facts)
        if isinstance(expression, ir.Where):
            left = [c for c in expression.conditions if c not in self.known]
            if not left:
                return self.value(expression.on_true, dims, facts)
            tests = [f"({self.index_text(c, self.names(dims))} >= 0)" for c in left]
            facts_then = (*facts, *map(Fact, left, tests))
            if expression.on_false == ir.Constant(0.0):
                axes = frozenset(axis for condition in left for axis in condition.axes)
                zeroed = self._zeroed(expression.on_true, dims, facts_then, axes)
                if zeroed is not None:
                    return zeroed
            yes = self.value(expression.on_true, dims, facts_then)
            test = " & ".join(tests)
            otherwise = Fact(("not", *left), f"(({test}) == 0)")
            no = self.value(expression.on_false, dims, (*facts, otherwise))
            return self._choice(test, yes, no)
        assert isinstance(expression, ir.Apply)
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
                Text(self.single(t), "float32") if kind == "float32" else t for t in (yes, no)
            )
            if kind != "float32":
                text = f"tl.where({test}, {yes.text}, {no.text}).to({FORMATS[kind]})"
                return Text(text, kind)
        return Text(f"tl.where({test}, {yes.text}, {no.text})", yes.kind)

    def _applied(self, expression: ir.Apply, dims: Axes, facts: Facts) -> Text:
        name = expression.function
        if name == "select" and self.known.issuperset(tests_of(expression.arguments[0])):
            return self.value(expression.arguments[1], dims, facts)
        if name == "select":
            test = self._truth(self.value(expression.arguments[0], dims, facts))
            held, chosen, other = expression.arguments
            facts_then = (*facts, Fact(held, test))
            if other == ir.Constant(0.0):
                zeroed = self._zeroed(chosen, dims, facts_then, self._dimensions(held))
                if zeroed is not None:
                    return zeroed
            yes = self.value(chosen, dims, facts_then)
            no = self.value(other, dims, (*facts, Fact(("not", held), f"({test} == 0)")))
            return self._choice(test, yes, no)
        power = self._power_of_two(expression, dims, facts)
        if power is not None:
            return Text(power, "float32")
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
            text = closed(self.single(given[0]))
            if name == "float32":
                return Text(text, name)
            if is_number(text):
                return Text(text, "float32")
            return Text(f"{text}.to({FORMATS[name]})", name)
        if all(g.kind == "int" or is_whole(g.text) for g in given) and name in (
            "add", "subtract", "multiply"):  # fmt: skip
            sign = {"add": "+", "subtract": "-", "multiply": "*"}[name]
            parts = self._alike(given)
            return Text(f"({parts[0]} {sign} {parts[1]})", "int")
        texts = [self.single(g) for g in given]
        if name == "power" and is_number(texts[1]):
            base = self._once(texts[0], expression)
            return Text(power_text(base, float(texts[1].strip("()"))), "float32")
        if name in _REPEATING:
            texts = [self._once(text, expression) for text in texts]
        text = float_text(name, texts)
        self.helpers |= {helper for helper in _HELPERS if f"{helper}(" in text}
        return Text(text, "float32")

    def _zeroed(
        self, expression: ir.Expression, dims: Axes, facts: Facts, asked: Set[Axis]
    ) -> Text | None:
        """What is loaded and 0 where conditions with the axes `asked` do not hold: those are in its mask. None for
        what is not loaded under them, or loaded without them elsewhere."""
        if self._is_loaded(expression):
            return self.value(expression, dims, facts)
        read = _loaded(expression)
        own = self._dimensions(expression)
        if read is None or self.held(read.array) is not None or self._is_hoisted(expression):
            return None
        if (
            read.array in self.blocks
            or self._uses[expression] > 1
            or not {*dims} & asked <= {*dims} & own
        ):
            return None
        before, self._zeroing = self._zeroing, True
        try:
            return self.value(expression, dims, facts)
        finally:
            self._zeroing = before

    def _power_of_two(self, expression: ir.Apply, dims: Axes, facts: Facts) -> str | None:
        """exp and sigmoid by a power of two, where that takes a factor in, and a factor of a logarithm."""
        name, argument = expression.function, expression.arguments[0]
        product = factor_of(argument if name in ("exp", "sigmoid") else expression)
        if product is None:
            return None
        inner, factor = product
        if name in ("exp", "sigmoid"):
            text = closed(self.single(self.value(inner, dims, facts)))
            scale = _times((-factor if name == "sigmoid" else factor) / LN_2)
            power = f"tl.exp2({text}{scale})"
            return power if name == "exp" else f"(1.0 / (1.0 + {power}))"
        if not isinstance(inner, ir.Apply) or inner.function != "log":
            return None
        text = self.single(self.value(inner.arguments[0], dims, facts))
        return f"tl.log2({text}){_times(factor * LN_2)}"

    def _once(self, text: str, expression: ir.Expression) -> str:
        """A text that may stand twice."""
        if is_name(text) or is_number(text):
            return text
        scope = self.inner if self.varies(expression) and self.inner is not None else self.outer
        name = self.fresh("part")
        scope.add(f"{name} = {text}")
        return name

    def _alike(self, given: Sequence[Text]) -> list[str]:
        if all(g.kind == "int" or is_whole(g.text) for g in given):
            return [
                str(int(float(g.text.strip("()")))) if is_number(g.text) else g.text for g in given
            ]
        return [self.single(g) for g in given]

    def _truth(self, given: Text) -> str:
        return given.text if given.kind == "bool" else f"({given.text} != 0)"

    def single(self, given: Text) -> str:
        """A value in fp32."""
        if given.kind == "float32":
            return given.text
        if given.kind == "bool":
            return f"tl.where({given.text}, 1.0, 0.0)"
        if given.kind == "int":
            return f"({given.text} * 1.0)"
        return f"{closed(given.text)}.to(tl.float32)"

    def _read(self, read: ir.Read, dims: Axes, facts: Facts) -> Text:
        held = self.held(read.array)
        member = self.tiles.group.member(read.array)
        if held is None and member is not None:
            held = self._computed(member)
        if held is not None:
            return Text(self.expanded(held, dims), "float32")
        array = self.arrays[read.array]
        if array.dtype not in FORMATS:
            raise NotEmitted(f"{read.array} is {array.dtype}, which the kernels do not compute in")
        index = element_number(read.indices, array.shape)
        if read.array in self.blocks:
            block = block_at(index, array, self.tiles)
            text = self.fresh(read.array)
            scope = self.inner if self.varies(read) and self.inner is not None else self.outer
            scope.add(f"{text} = {read.array}_tiles.load({self.begin_of(block)})")
            return Text(self.expanded(Held(text, block.axes), dims), array.dtype)
        names = self.names(dims)
        masks = self.overhang([a for a in dims if a in index.axes], dims)
        if self._inside(read):
            numbers = [(self._bound[a].text, a.extent) for a in index.axes if a in self._bound]
            masks += [f"({number} >= 0)" for number, _ in numbers]
            masks += [f"({number} < {extent})" for number, extent in numbers]
            if self._zeroing and not self._is_hoisted(read):
                masks += [fact.text for fact in facts if fact.text not in masks]
        elif self._is_hoisted(read):
            for i, n in zip(read.indices, array.shape, strict=True):
                text, known = self.index_text(i, names), i.axes.isdisjoint(self._bound)
                masks += [f"({text} >= 0)"] if i.bounds[0] < 0 or not known else []
                masks += [f"({text} < {n})"] if i.bounds[1] >= n or not known else []
        else:  # a sum with a number that is read: the conditions around it say where it is inside
            masks += [fact.text for fact in facts if fact.text not in masks]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        where = self.index_text(index, names)
        text = f"tl.load({read.array}_at + {where}{mask})"
        if array.dtype == "bool":
            return Text(f"({text} != 0)", "bool")
        kind = "int" if "int" in array.dtype else array.dtype
        return Text(text, kind)

    def begin_of(self, block: Block) -> str:
        """Where a tile begins in its matrix."""
        starts = (self.begin_text(axis) for axis in block.axes)
        texts = [self.index_text(place, self.names(())) for place in (block.row, block.column)]
        pairs = zip(texts, starts, strict=True)
        whole = [start if text == "0" else text if start == "0" else f"{text} + {start}"
                 for text, start in pairs]  # fmt: skip
        return f"[{', '.join(whole)}]"

    def begin_text(self, axis: Axis) -> str:
        """The first element that a program, or a round of its loop, has of an axis."""
        moves = axis in self.tiles.grid or axis == self.tiles.walked
        return f"{self.axis(axis)}_start" if moves else "0"

    def _gathered(self, expression: ir.Indirect, dims: Axes, facts: Facts) -> Text:
        zeroing, self._zeroing = self._zeroing, False
        at = self.value(expression.at, dims, facts)
        self._zeroing = zeroing
        text = at.text if at.kind == "int" else f"{closed(self.single(at))}.to(tl.int32)"
        before, moving = dict(self._bound), set(self._moving)
        self._bound[expression.axis] = Text(self._once(text, expression.at), "int")
        if self.varies(expression.at):
            self._moving.add(expression.axis)
        try:
            return self.value(expression.element, dims, facts)
        finally:
            self._bound, self._moving = before, moving

    def expanded(self, held: Held, dims: Axes) -> str:
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

    def names(self, dims: Axes) -> dict[Axis, str]:
        """How axes are written in a tile with these dimensions."""
        found = {axis: text.text for axis, text in self._bound.items()}
        for axis in self.tiles.group.axes:
            found[axis] = self.axis(axis)
            if axis in dims and len(dims) > 1:
                places = ", ".join(":" if a == axis else "None" for a in dims)
                found[axis] = f"{self.axis(axis)}[{places}]"
        return found

    def overhang(self, axes: Sequence[Axis], dims: Axes) -> list[str]:
        """Conditions that tell elements of an axis from what lies behind its end in the last tile."""
        names = self.names(dims)
        return [f"({names[a]} < {a.extent})" for a in axes
                if self.tiles.sizes[a] > 1 and a.extent % self.tiles.sizes[a]]  # fmt: skip

    def index_text(self, index: Index, names: Mapping[Axis, str]) -> str:
        """An index. A floor of what may be negative is taken of something larger: integers divide
        towards 0."""
        pieces = [str(index.constant)] if index.constant or not index.terms else []
        for term, factor in index.terms:
            if isinstance(term, Floor):
                inner, low = term.inner, term.inner.bounds[0]
                more = -(low // term.divisor) if low < 0 else 0
                text = f"({self.index_text(inner + more * term.divisor, names)}) // {term.divisor}"
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

    def variable(self, array: str) -> str:
        """A name for the elements of an array."""
        return (
            self.fresh(array)
            if array in self._taken and self._numbers[array]
            else self._first(array)
        )

    def _first(self, array: str) -> str:
        self._numbers[array] += 1
        return array

    def fresh(self, hint: str) -> str:
        """A name that nothing has."""
        while True:
            self._numbers[hint] += 1
            name = f"{hint}_{self._numbers[hint]}"
            if name not in self._taken:
                return name

    def axis(self, axis: Axis) -> str:
        """The name of an axis."""
        return self._axis_names[axis]

    def whole(self, value: str, expression: ir.Expression, dims: Axes) -> str:
        """The value with all of its dimensions filled."""
        if self._dimensions(expression) >= set(dims):
            return value
        shape = ", ".join(str(self.tiles.sizes[a]) for a in dims)
        if not dims:
            return value
        if not self._dimensions(expression) & set(dims):
            return f"tl.full([{shape}], 0.0, tl.float32) + {value}"
        return f"tl.broadcast_to({value}, [{shape}])"

    def _dimensions(self, expression: ir.Expression) -> set[Axis]:
        found: set[Axis] = set()
        for axis in ir.axes_of(expression):
            found.add(axis)
        for part in ir.walk(expression):
            held = self.held(part.array) if isinstance(part, ir.Read) else None
            if held is not None:
                found |= set(held.dims)
        return found

    def format_of(self, expression: ir.Expression) -> str:
        """The format in which an operand of a product is there: of what is loaded, or rounded to."""
        expression = unguarded(expression, 0.0)
        if isinstance(expression, ir.Apply) and expression.function in ROUNDINGS:
            return expression.function
        if isinstance(expression, ir.Indirect):
            return self.format_of(expression.element)
        held = isinstance(expression, ir.Read) and self.held(expression.array) is not None
        if (
            isinstance(expression, ir.Read)
            and not held
            and self.tiles.group.member(expression.array) is None
        ):
            return self.arrays[expression.array].dtype
        return "float32"


def _loaded(expression: ir.Expression) -> ir.Read | None:
    """The element that a value is, looked up or not."""
    while isinstance(expression, ir.Indirect):
        expression = expression.element
    return expression if isinstance(expression, ir.Read) else None


def _times(factor: float) -> str:
    return "" if abs(factor - 1) < 1e-7 else f" * {number_text(factor)}"


_REPEATING = {
    "silu", "square", "mod", "fmod", "sign", "silu_dx", "gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid",
    "gelu_dx", "erf_dx", "tan", "mish", "trunc",
}  # fmt: skip
_HELPERS = ("_sigmoid", "_tanh", "_softplus")
