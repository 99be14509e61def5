"""Random Algorithms: elementwise chains, sums over any axes, products, windows, turns, masks, scans."""

import random

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import (
    Algorithm,
    Apply,
    Array,
    Constant,
    Definition,
    Expression,
    Map,
    Position,
    Read,
    Reduce,
    Scan,
    Where,
)

UNARY = ("exp", "tanh", "sigmoid", "abs", "square", "relu", "silu", "sin")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33, 64, 100, 130, 160)
MOST_ELEMENTS = 1 << 15
MOST_WORK = 1 << 21


class Maker:
    """Makes one Algorithm, definition by definition."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.inputs: list[Array] = []
        self.definitions: list[Definition] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.seed = seed

    def algorithm(self, steps: int) -> Algorithm:
        kinds = ("map", "map", "mask", "reduce", "reduce", "product", "window", "turn", "scan",
                 "place", "joined", "max")  # fmt: skip
        for _ in range(steps):
            getattr(self, self.draw.choice(kinds))()
        read = {
            part.array
            for d in self.definitions
            for part in _reads(d)
        }  # fmt: skip
        outputs = tuple(
            Array(d.out, s, "float32", s or (1,))
            for d in self.definitions
            for s in (self.shapes[d.out],)
            if d.out not in read or self.draw.random() < 0.2
        )
        return Algorithm(
            f"random_{self.seed}", tuple(self.inputs), tuple(self.definitions), outputs
        )

    # Parts.

    def axes(self, rank: int | None = None, most: int = MOST_ELEMENTS) -> tuple[Axis, ...]:
        rank = self.draw.choice((1, 2, 2, 3)) if rank is None else rank
        found: list[Axis] = []
        size = 1
        for n in range(rank):
            fits = [s for s in SIZES if s * size <= most]
            found.append(Axis("abcdef"[n], self.draw.choice(fits)))
            size *= found[-1].extent
        return tuple(found)

    def name(self, word: str) -> str:
        return f"{word}{len(self.definitions) + len(self.inputs)}"

    def source(self, axes: tuple[Axis, ...]) -> Read:
        """An element of an array of these axes in some order: one that is there, or a new input."""
        shape = tuple(axis.extent for axis in axes)
        known = [n for n, s in self.shapes.items() if s == shape]
        if known and self.draw.random() < 0.7:
            return Read(self.draw.choice(known), tuple(map(index_of, axes)))
        order = list(axes)
        if self.draw.random() < 0.3:
            self.draw.shuffle(order)
        if len(order) > 1 and self.draw.random() < 0.3:
            order.pop(self.draw.randrange(len(order)))
        name = self.name("x")
        shape = tuple(axis.extent for axis in order)
        self.inputs.append(Array(name, shape, "float32", shape))
        self.shapes[name] = shape
        return Read(name, tuple(map(index_of, order)))

    def known(self) -> tuple[Read, tuple[Axis, ...]]:
        """An element of what is defined, and the axes of that."""
        there = [d for d in self.definitions if d.axes]
        if not there or self.draw.random() < 0.2:
            axes = self.axes()
            return self.source(axes), axes
        found = self.draw.choice(there)
        axes = tuple(Axis("abcdef"[n], extent) for n, extent in enumerate(self.shapes[found.out]))
        return Read(found.out, tuple(map(index_of, axes))), axes

    def expression(self, axes: tuple[Axis, ...], first: Expression, depth: int) -> Expression:
        made = first
        for _ in range(depth):
            roll = self.draw.random()
            if roll < 0.4:
                inner = Apply("multiply", (made, Constant(self.draw.choice((0.5, 0.25, -0.75)))))
                made = Apply(self.draw.choice(UNARY), (inner,))
            elif roll < 0.6:
                number = Constant(self.draw.choice((0.5, 2.0, -1.0, 0.1)))
                made = Apply(self.draw.choice(BINARY), (made, number))
            else:
                made = Apply(self.draw.choice(BINARY), (made, self.source(axes)))
        return made

    def define(self, definition: Definition) -> None:
        self.definitions.append(definition)
        self.shapes[definition.out] = tuple(axis.extent for axis in definition.axes)

    # Definitions.

    def map(self) -> None:
        read, axes = self.known()
        made = self.expression(axes, read, self.draw.randint(1, 4))
        self.define(Map(self.name("y"), axes, made))

    def mask(self) -> None:
        read, axes = self.known()
        condition = Index(self.draw.randint(-3, 3))
        for axis in axes:
            condition = condition + index_of(axis) * self.draw.choice((-1, 0, 1))
        conditions = (condition,)
        if self.draw.random() < 0.3:
            conditions += (index_of(axes[-1]) * -1 + axes[-1].extent // 2,)
        other = (
            Constant(self.draw.choice((-2.0, 0.0)))
            if self.draw.random() < 0.6
            else self.source(axes)
        )
        made = Where(conditions, self.expression(axes, read, 1), other)
        self.define(Map(self.name("y"), axes, made))

    def place(self) -> None:
        read, axes = self.known()
        index = Index(1)
        for axis in axes:
            index = index + index_of(axis) * self.draw.choice((-1, 1, 2))
        made = Apply("add", (read, Apply("multiply", (Position(index), Constant(0.01)))))
        self.define(Map(self.name("y"), axes, made))

    def turn(self) -> None:
        read, axes = self.known()
        order = list(axes)
        self.draw.shuffle(order)
        self.define(Map(self.name("y"), tuple(order), self.expression(axes, read, 1)))

    def joined(self) -> None:
        """Two axes as one, or one as two."""
        read, axes = self.known()
        if len(axes) > 1:
            one, two, *rest = axes
            axis = Axis("j", one.extent * two.extent)
            whole = index_of(axis)
            places = {one: whole // two.extent, two: whole % two.extent}
            indices = tuple(index.substitute(places) for index in read.indices)
            self.define(Map(self.name("y"), (axis, *rest), Read(read.array, indices)))
        else:
            self.map()

    def reduce(self, combiner: str = "add") -> None:
        read, axes = self.known()
        count = self.draw.randint(1, len(axes))
        reduced = tuple(self.draw.sample(axes, count))
        kept = tuple(axis for axis in axes if axis not in reduced)
        made = self.expression(axes, read, self.draw.randint(0, 2))
        if not set(reduced) <= _axes(made):
            made = Apply("add", (made, self.whole(axes)))
        self.define(Reduce(self.name("s"), kept, reduced, combiner, made))

    def whole(self, axes: tuple[Axis, ...]) -> Read:
        shape = tuple(axis.extent for axis in axes)
        name = self.name("x")
        self.inputs.append(Array(name, shape, "float32", shape))
        self.shapes[name] = shape
        return Read(name, tuple(map(index_of, axes)))

    def max(self) -> None:
        self.reduce(self.draw.choice(("maximum", "minimum")))

    def product(self) -> None:
        read, axes = self.known()
        summed = self.draw.choice(axes)
        column = Axis("n", self.draw.choice(SIZES))
        batch = [a for a in axes if a != summed and len(axes) == 3][:1]
        if not [a for a in axes if a != summed and a not in batch]:
            self.map()
            return
        order = [*batch, summed, column]
        if self.draw.random() < 0.4:
            self.draw.shuffle(order)
        other = self.whole(tuple(order))
        kept = [axis for axis in axes if axis != summed]
        out = (*kept, column)
        work = summed.extent * column.extent
        for axis in kept:
            work *= axis.extent
        if work > MOST_WORK or work // summed.extent > MOST_ELEMENTS:
            self.map()
            return
        left = self.expression(axes, read, self.draw.randint(0, 1))
        made = Apply("multiply", (left, other))
        self.define(Reduce(self.name("p"), out, (summed,), "add", made))

    def window(self) -> None:
        """A sum or maximum over windows along one or two axes, at a stride, with zeros around."""
        read, axes = self.known()
        along = self.draw.sample(axes, min(len(axes), self.draw.randint(1, 2)))
        places: dict[Axis, Index] = {}
        out: list[Axis] = []
        reduced: list[Axis] = []
        conditions: list[Index] = []
        pad = self.draw.choice((0, 0, 1))
        for n, axis in enumerate(axes):
            size, stride = self.draw.randint(2, 3), self.draw.randint(1, 2)
            extent = (axis.extent + 2 * pad - size) // stride + 1
            if axis in along and extent > 0:
                own, window = Axis(axis.name, extent), Axis(f"w{n}", size)
                places[axis] = index_of(own) * stride + index_of(window) - pad
                out.append(own)
                reduced.append(window)
                if pad:
                    conditions += [places[axis], places[axis] * -1 + (axis.extent - 1)]
            else:
                places[axis] = index_of(axis)
                out.append(axis)
        made: Expression = Read(read.array, tuple(i.substitute(places) for i in read.indices))
        if not reduced or not {*reduced} <= _axes(made):
            self.map()
            return
        combiner = self.draw.choice(("add", "maximum"))
        if conditions:
            made = Where(tuple(conditions), made, Constant(0.0 if combiner == "add" else -9.0))
        plain = [axis for axis in out if axis in axes]
        if combiner == "add" and plain and self.draw.random() < 0.6:  # a convolution
            summed, column = plain[0], Axis("n", self.draw.choice((2, 5, 32)))
            made = Apply("multiply", (made, self.whole((*reduced, summed, column))))
            out = [column if axis == summed else axis for axis in out]
            reduced.append(summed)
        self.define(Reduce(self.name("w"), tuple(out), tuple(reduced), combiner, made))

    def scan(self) -> None:
        read, axes = self.known()
        along = self.draw.choice(axes)
        factor = Apply("multiply", (Apply("sigmoid", (read,)), Constant(0.9)))
        term = self.whole(axes)
        self.define(
            Scan(self.name("z"), axes, along, "multiply", factor, "add", term, Constant(0.5))
        )


def _reads(definition: Definition) -> list[Read]:
    from accelopt.algorithm.ir import expressions_of, walk

    return [p for e in expressions_of(definition) for p in walk(e) if isinstance(p, Read)]


def _axes(expression: Expression) -> frozenset[Axis]:
    from accelopt.algorithm.ir import axes_of

    return axes_of(expression)


def random_algorithm(seed: int) -> Algorithm:
    """The Algorithm of a seed."""
    maker = Maker(seed)
    return maker.algorithm(maker.draw.randint(1, 5))
