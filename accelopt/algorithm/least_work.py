"""The work that no way of solving a problem avoids, from its Algorithm.

It is the same for every kernel of a problem, however that orders, tiles, rounds or rewrites it, so it
counts only what no rewriting saves: elements of inputs that decide an output, and outputs, once; products
of matrices in the cheapest order of multiplication, in the fastest format; one instruction for each element
of the largest array that a nonlinear function makes, and of the largest recurrence. What conditions on
axes exclude is not counted, nor what an index or a comparison chooses at run time. Assumed: nobody
multiplies matrices with fewer products than their definition has (Strassen, Winograd, Fourier)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import ml_dtypes
import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.functions import CONVERSIONS, ROUNDINGS
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.linear import row_major
from accelopt.hardware import TRN1
from accelopt.hardware.least_time import Lanes, Work

SUMS = frozenset({"add", "subtract"})
PLAIN = frozenset({"negative", "copy", *ROUNDINGS, *CONVERSIONS})
SEPARABLE = frozenset({"divide", "reciprocal", "sqrt", "rsqrt", "square", "power"})
"""Functions that a product may be taken out of, factor by factor."""
COMPARISONS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "select"}
)
ELEMENTWISE = Lanes(frozenset({"vector", "scalar", "gpsimd"}), narrow=True)
RECURRENT = Lanes(frozenset({"vector", "gpsimd"}), narrow=True)

MOST_POINTS = 1 << 25
"""What conditions exclude of more elements, or all indices reach, is not worked out: nothing is counted."""
MOST_PLACES = 1 << 18
MOST_VISITS = 5_000
MOST_FACTORS = 8
MOST_TERMS = 16

Axes = frozenset[Axis]
Cases = frozenset[tuple[tuple[Index, ...], bool]]
"""Whether conditions all hold, of several conditions each."""
ALWAYS: Cases = frozenset()
NO_AXES: Axes = frozenset()


def least_work(algorithm: ir.Algorithm, in_place: frozenset[int] = frozenset()) -> Work:
    """What computing an Algorithm takes at least, of which each Map is an output, as of one that was
    lifted. `in_place` are the numbers of outputs that are inputs as well: what stays in them as it is need
    not move."""
    return _Problem(algorithm).work(in_place)


class _Term(NamedTuple):
    """A product, summed over some axes, where some conditions hold."""

    factors: tuple[ir.Expression, ...] = ()
    summed: Axes = NO_AXES
    cases: Cases = ALWAYS


class _Matrices(NamedTuple):
    """A product of matrices: the inputs that it depends on, and where those that stand in it are read."""

    flops: float
    leaves: frozenset[str]
    spans: dict[str, list[tuple[int, int]]]

    def overlaps(self, other: _Matrices) -> bool:
        """Whether both may multiply the same elements."""
        return self.leaves == other.leaves and not any(
            one[1] < two[0] or two[1] < one[0]
            for name in self.spans.keys() & other.spans
            for one, two in zip(self.spans[name], other.spans[name], strict=True)
        )


class _Problem:
    def __init__(self, algorithm: ir.Algorithm) -> None:
        self.algorithm = algorithm
        self.defined = {definition.out: definition for definition in algorithm.definitions}
        self.inputs = {array.name: array for array in algorithm.inputs}
        self.reached: dict[str, np.ndarray] = {}  # of each input, the elements that are used
        self.shares: dict[
            str, float
        ] = {}  # of each definition, the part that is asked for at least
        self.products: list[_Matrices] = []
        self.nonlinear = self.recurrent = 0
        self._seen: set[tuple[ir.Expression, Cases]] = set()
        self._fresh = 0
        self._left = MOST_POINTS
        self._once = self._read_once()
        self._leaves = {
            name: frozenset({name}) for name in self.inputs
        }  # what each array depends on
        for definition in algorithm.definitions:
            below = (self._leaves[read.array] for read in ir.reads_in(definition))
            self._leaves[definition.out] = frozenset[str]().union(*below)

    def work(self, in_place: frozenset[int]) -> Work:
        """All of it."""
        written = copied = 0
        for number, output in enumerate(self.algorithm.outputs):
            definition = self.defined[output.name]
            self.shares[output.name] = 1.0
            size = _bytes(output.dtype)
            written += math.prod(axis.extent for axis in definition.axes) * size
            for expression, cases in _branches(definition):
                points = _points(frozenset(definition.axes), cases)
                if number in in_place and not output.steps and isinstance(expression, ir.Read):
                    written -= points * size
                    continue
                copied += points * size if self._is_copy(expression) else 0
                self._visit(expression, cases)
            self._count_scan(definition, 1.0)
        for definition in self.algorithm.definitions:
            if self.shares.get(definition.out) and definition.out not in self._once:
                self._count_products(definition, self.shares[definition.out])
        read = sum(
            int(np.count_nonzero(used)) * _bytes(self.inputs[name].dtype)
            for name, used in self.reached.items()
        )
        lanes = ((ELEMENTWISE, self.nonlinear), (RECURRENT, self.recurrent))
        columns = tuple((who, -(-points // TRN1.partitions)) for who, points in lanes)
        return Work(read, written, copied, 0, self._distinct_flops(), columns)

    # What is asked for: from the outputs back to elements of inputs.

    def _visit(self, expression: ir.Expression, cases: Cases) -> None:
        """All that an expression reads where `cases` hold."""
        if (expression, cases) in self._seen or len(self._seen) > MOST_VISITS:
            return
        self._seen.add((expression, cases))
        if isinstance(expression, ir.Read):
            if expression.array in self.inputs:
                self._reach(expression, cases)
            else:
                self._ask(self.defined[expression.array], expression.indices, cases)
            return
        if isinstance(
            expression, ir.Indirect
        ):  # as many elements as numbers, or all: no two are alike
            self._visit(expression.at, cases)
            self._fresh += 1
            count = min(_points(ir.axes_of(expression.at), cases), expression.axis.extent)
            first = {expression.axis: index_of(Axis(f"@{self._fresh}", count))}
            self._visit(ir.substituted(expression.element, first, {}), cases)
            return
        chosen = NO_AXES
        if isinstance(expression, ir.Apply):
            self._count_nonlinear(expression, cases)
            if expression.function in ("multiply", "select"):
                chosen = chosen.union(*map(_chosen, expression.arguments))
        for part, where in _children(expression, cases):
            if not chosen or _chosen(part):
                self._visit(part, where)
                continue
            for read in ir.walk(part):  # an element that is chosen may be found in place of all
                if isinstance(read, ir.Read) and ir.axes_of(read).isdisjoint(chosen):
                    self._visit(read, where)

    def _ask(self, definition: ir.Definition, indices: tuple[Index, ...], cases: Cases) -> None:
        """The elements of a definition at some indices."""
        share = 0.0
        if _are_digits(indices):
            points = _points(NO_AXES.union(*(index.axes for index in indices)), cases)
            share = points / math.prod(axis.extent for axis in definition.axes)
        self.shares[definition.out] = max(self.shares.get(definition.out, 0.0), share)
        self._count_scan(definition, share)
        moved = self._inside(definition, indices)
        for expression in ir.expressions_of(definition):
            self._visit(ir.substituted(expression, moved, {}), cases)

    def _inside(self, definition: ir.Definition, indices: tuple[Index, ...]) -> dict[Axis, Index]:
        """What the axes of a definition are where it is read, those that it sums over being new ones;
        an element of a recurrence takes all before it."""
        own = definition.reduced if isinstance(definition, ir.Reduce) else ()
        own = (definition.along,) if isinstance(definition, ir.Scan) else own
        self._fresh += 1
        new = {a: index_of(Axis(f"{a.name}_{self._fresh}", a.extent)) for a in own}
        return dict(zip(definition.axes, indices, strict=True)) | new

    def _reach(self, read: ir.Read, cases: Cases) -> None:
        """Marks the elements of an input that are read. Axes that conditions join, or indices that are
        no plain sums or may lie outside, are gone through together, all others by their strides."""
        array = self.inputs[read.array]
        used = self.reached.setdefault(array.name, np.zeros(array.shape, bool))
        if used.all() or not used.size:
            return
        strides = row_major(array.shape)
        dimensions = list(zip(read.indices, array.shape, strides, strict=True))
        axes = NO_AXES.union(*(index.axes for index in read.indices))
        joined = NO_AXES.union(*map(_axes_of_case, _linked(axes, cases))) & axes
        for index, extent, _ in dimensions:
            if not index.is_affine or index.bounds[0] < 0 or index.bounds[1] >= extent:
                joined |= index.axes
        joined = joined.union(*(i.axes for i in read.indices if i.axes & joined))
        self._left -= math.prod(axis.extent for axis in joined)
        grid, holds = _grid(joined), _projected(cases, joined)
        if grid is None or holds is None or self._left < 0:
            return
        place: np.ndarray = np.zeros(holds.shape, np.int64)
        steps: dict[Axis, int] = {}
        start = 0
        for index, extent, stride in dimensions:
            if index.axes & joined or not index.axes:
                value = index.evaluate(grid)
                holds = holds & (value >= 0) & (value < extent)
                place = place + value * stride
                continue
            start += index.constant * stride
            for axis, coefficient in index.terms:
                assert isinstance(axis, Axis)
                steps[axis] = steps.get(axis, 0) + coefficient * stride
        start += sum(min(step, 0) * (axis.extent - 1) for axis, step in steps.items())
        shape, sizes = tuple(axis.extent for axis in steps), tuple(map(abs, steps.values()))
        flat, places = used.reshape(-1), place[holds]
        if not steps:
            flat[places] = True
            return
        for at in np.unique(places).tolist()[:MOST_PLACES]:
            np.lib.stride_tricks.as_strided(flat[start + at :], shape, sizes)[...] = True

    def _is_copy(self, expression: ir.Expression) -> bool:
        """True for what DMA alone can move: elements of inputs and sums of some."""
        if isinstance(expression, ir.Apply):
            moves = expression.function in {"add", "copy", *ROUNDINGS}
            return moves and all(map(self._is_copy, expression.arguments))
        if isinstance(expression, ir.Indirect):
            return self._is_copy(expression.at) and self._is_copy(expression.element)
        return isinstance(expression, ir.Read) and expression.array in self.inputs

    # Work element by element.

    def _count_nonlinear(self, expression: ir.Apply, cases: Cases) -> None:
        if expression.function in SUMS | PLAIN | {"multiply"}:
            return
        linear = SUMS | PLAIN | ({"multiply"} if expression.function in SEPARABLE else set())
        for part in expression.arguments[expression.function == "divide" :]:
            for piece, where in _pieces(part, cases, linear):
                if any(isinstance(below, ir.Read) for below in ir.walk(piece)):
                    points = _points(ir.axes_of(piece), where | _support(piece))
                    self.nonlinear = max(self.nonlinear, points)

    def _count_scan(self, scan: ir.Definition, share: float) -> None:
        """A recurrence whose factors are all different. With fewer it may be products of matrices."""
        if not isinstance(scan, ir.Scan) or (scan.scale, scan.combine) != ("multiply", "add"):
            return
        if ir.axes_of(scan.factor) >= frozenset(scan.axes):
            points = math.prod(axis.extent for axis in scan.axes)
            self.recurrent = max(self.recurrent, int(points * share))

    # Products of matrices.

    def _read_once(self) -> frozenset[str]:
        """The sums that are used in one place, all of them: their factors may be multiplied in another
        order with those around them."""
        uses: Counter[str] = Counter({array.name: 2 for array in self.algorithm.outputs})
        for definition in self.algorithm.definitions:
            known: dict[ir.Expression, Counter[str]] = {}
            for expression in ir.expressions_of(definition):
                uses.update(_occurrences(expression, known))
        sums = (d.out for d in self.defined.values() if isinstance(d, ir.Reduce) and _adds(d))
        return frozenset(name for name in sums if uses[name] == 1)

    def _count_products(self, definition: ir.Definition, share: float) -> None:
        adds = _adds(definition)
        for expression in ir.expressions_of(definition):
            terms = self._terms(expression, ALWAYS, share)
            if isinstance(definition, ir.Reduce) and adds:
                summed = frozenset(definition.reduced)
                terms = [term._replace(summed=term.summed | summed) for term in terms]
            self._count(terms, share)

    def _count(self, terms: Iterable[_Term], share: float) -> None:
        """Adds the products of a sum of terms of which a part is asked for. Terms that share a factor may
        be added up before its last product: (w + a b) x."""
        costs = [(*_multiplied(term, share), term) for term in terms if term.summed]
        before: set[str] = set()
        for whole, without_last, term in sorted(costs, key=lambda cost: -cost[0]):
            names = {r.array for f in term.factors for r in ir.walk(f) if isinstance(r, ir.Read)}
            cost = without_last if names & before else whole
            self.products.append(self._matrices(cost, term))
            before |= names

    def _matrices(self, cost: float, term: _Term) -> _Matrices:
        reads = [r for f in term.factors for r in ir.walk(f) if isinstance(r, ir.Read)]
        spans: dict[str, list[tuple[int, int]]] = {}
        for read in reads:
            if read.array in self.inputs:
                own = [index.bounds for index in read.indices]
                hull = zip(spans.get(read.array, own), own, strict=True)
                spans[read.array] = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in hull]
        return _Matrices(
            cost, frozenset[str]().union(*(self._leaves[read.array] for read in reads)), spans
        )

    def _distinct_flops(self) -> int:
        """The products of matrices, of those that may be parts of one another only some: a kernel that
        treats blocks in several ways defines one product several times."""
        kept: list[_Matrices] = []
        for one in sorted(self.products, key=lambda one: -one.flops):
            if not any(one.overlaps(other) for other in kept):
                kept.append(one)
        return int(sum(one.flops / self._at_once(one) for one in kept))

    def _at_once(self, product: _Matrices) -> int:
        """Rows that a product of fp8 may take at once (trainium2_arch.rst: 158 TFLOPS in double-row mode)."""
        eight = {name for name in product.leaves if self.inputs[name].dtype.startswith("float8")}
        return 2 if len(eight) >= 2 or eight == product.leaves != frozenset() else 1

    def _terms(self, expression: ir.Expression, cases: Cases, share: float) -> list[_Term]:
        """An expression as a sum of products; products of matrices below functions are counted."""
        if isinstance(expression, ir.Constant):
            return [_Term(cases=cases)]
        if isinstance(expression, ir.Read) and expression.array in self._once:
            if _are_digits(expression.indices):
                definition = self.defined[expression.array]
                assert isinstance(definition, ir.Reduce)
                moved = self._inside(definition, expression.indices)
                found = self._terms(ir.substituted(definition.expression, moved, {}), cases, share)
                summed = NO_AXES.union(*(moved[axis].axes for axis in definition.reduced))
                return [term._replace(summed=term.summed | summed) for term in found]
        elif isinstance(expression, ir.Where) and expression.on_false == ir.Constant(0.0):
            [held, _] = _children(expression, cases)
            return self._terms(*held, share)
        elif isinstance(expression, ir.Apply):
            parts = expression.arguments
            if expression.function in SUMS | PLAIN:
                return [term for part in parts for term in self._terms(part, cases, share)]
            if expression.function == "multiply":
                return self._product(parts, cases, share)
            if expression.function == "divide":
                inverse = ir.Apply("reciprocal", parts[1:])
                return self._product((parts[0], inverse), cases, share)
        for part, where in _children(expression, cases):
            self._count(self._terms(part, where, share), share)
        return [_Term((expression,), cases=cases)]

    def _product(self, parts: Sequence[ir.Expression], cases: Cases, share: float) -> list[_Term]:
        result = [_Term(cases=cases)]
        for part in parts:
            terms = self._terms(part, cases, share)
            if len(terms) > 1 and not any(term.summed for term in terms):
                terms = [_Term((part,), cases=cases)]  # a sum of elements is one factor
            result = [
                _Term(one.factors + two.factors, one.summed | two.summed, one.cases | two.cases)
                for one in result
                for two in terms
            ]
        return result if len(result) <= MOST_TERMS else []


def _multiplied(term: _Term, share: float) -> tuple[float, float]:
    """Multiplications and additions of a term in the cheapest order, and those without the last product;
    of its elements only a part is asked for. A product with a vector is none of matrices."""
    axes: list[Axes] = []
    for own in sorted(map(ir.axes_of, term.factors), key=len, reverse=True):
        if not any(own <= other for other in axes):
            axes.append(own)
    cases = term.cases.union(*map(_support, term.factors))
    if len(axes) > MOST_FACTORS or any(map(_chosen, term.factors)) or (cases and share < 1):
        return 0.0, 0.0
    every = (1 << len(axes)) - 1

    def joined(chosen: int) -> Axes:
        return NO_AXES.union(*(own for n, own in enumerate(axes) if chosen >> n & 1))

    def left(chosen: int) -> Axes:
        return joined(chosen) - (term.summed - joined(every ^ chosen))

    @cache
    def cheapest(chosen: int) -> tuple[float, float]:
        if not chosen & (chosen - 1):
            return 0.0, 0.0
        whole = rest = math.inf
        part = (chosen - 1) & chosen
        while part:
            one, other = left(part), left(chosen ^ part)
            below = cheapest(part)[0] + cheapest(chosen ^ part)[0]
            inside = one <= other or other <= one
            step = 0.0 if inside else 2 * share * _points(one | other, cases)
            whole, rest = min(whole, below + step), min(rest, below)
            part = (part - 1) & chosen
        return whole, rest

    return cheapest(every)


def _adds(definition: ir.Definition) -> bool:
    return isinstance(definition, ir.Reduce) and definition.combiner == "add"


def _branches(definition: ir.Definition) -> Iterator[tuple[ir.Expression, Cases]]:
    """The expressions of a definition, those that conditions choose among by themselves."""
    for expression in ir.expressions_of(definition):
        yield from _pieces(expression, ALWAYS, frozenset())


def _pieces(
    expression: ir.Expression, cases: Cases, linear: Iterable[str]
) -> Iterator[tuple[ir.Expression, Cases]]:
    """What an expression is made of by some functions, and where: a function of the largest piece is a
    function of each of its elements, whatever is done with those of fewer axes."""
    if isinstance(expression, ir.Where) or (
        isinstance(expression, ir.Apply) and expression.function in linear
    ):
        for part, where in _children(expression, cases):
            yield from _pieces(part, where, linear)
    else:
        yield expression, cases


def _children(expression: ir.Expression, cases: Cases) -> list[tuple[ir.Expression, Cases]]:
    """The expressions right below one, and where they are evaluated."""
    if isinstance(expression, ir.Where):
        return [
            (expression.on_true, cases | {(expression.conditions, True)}),
            (expression.on_false, cases | {(expression.conditions, False)}),
        ]
    return [(part, cases) for part in ir.parts_of(expression)]


def _chosen(expression: ir.Expression) -> Axes:
    """The axes of places that are compared with data, which a gather can stand for."""
    found = NO_AXES
    for part in ir.walk(expression):
        if isinstance(part, ir.Apply) and part.function in COMPARISONS:
            below = tuple(ir.walk(part))
            if any(isinstance(one, ir.Read) for one in below):
                found |= NO_AXES.union(*(p.index.axes for p in below if isinstance(p, ir.Position)))
    return found


def _support(expression: ir.Expression) -> Cases:
    """Where an expression is not a number: conditions with a constant on their other side."""
    return frozenset(
        (part.conditions, True)
        for part in ir.walk(expression)
        if isinstance(part, ir.Where) and isinstance(part.on_false, ir.Constant)
    )


def _occurrences(
    expression: ir.Expression, known: dict[ir.Expression, Counter[str]]
) -> Counter[str]:
    """How often each array is read in an expression that is written out."""
    if expression not in known:
        found = Counter([expression.array] if isinstance(expression, ir.Read) else ())
        for part in ir.parts_of(expression):
            found.update(_occurrences(part, known))
        known[expression] = found
    return known[expression]


# Counting points.


def _bytes(dtype: str) -> int:
    return np.dtype(getattr(ml_dtypes, dtype, dtype)).itemsize


def _axes_of_case(case: tuple[tuple[Index, ...], bool]) -> Axes:
    return NO_AXES.union(*(condition.axes for condition in case[0]))


def _are_digits(indices: Sequence[Index]) -> bool:
    """True where different points have different indices: none shares an axis, and each is made of its
    axes like a number of its digits."""
    axes: list[Axis] = []
    for index in indices:
        run = 1
        for term, coefficient in sorted(index.terms, key=lambda pair: abs(pair[1])):
            if not isinstance(term, Axis) or abs(coefficient) < run:
                return False
            axes.append(term)
            run = abs(coefficient) * term.extent
    return len(axes) == len(set(axes))


def _grid(axes: Axes) -> dict[Axis, np.ndarray] | None:
    """The values of some axes, open against each other; None for too many points."""
    order = sorted(axes)
    if math.prod(axis.extent for axis in order) > MOST_POINTS:
        return None
    ranges = [np.arange(axis.extent) for axis in order]
    return dict(zip(order, np.ix_(*ranges) if ranges else (), strict=True))


def _linked(axes: Axes, cases: Cases) -> Cases:
    """The cases that depend on some axes, by way of others too."""
    found: Cases = ALWAYS
    while joining := frozenset(c for c in cases - found if _axes_of_case(c) & axes):
        found |= joining
        axes = axes.union(*map(_axes_of_case, joining))
    return found


def _projected(cases: Cases, axes: Axes) -> np.ndarray | None:
    """At which points of some axes (bool, a dimension each, of its extent) there are values of all
    others for which the cases are; None for too many points."""
    order = sorted(axes)
    result: np.ndarray = np.ones(tuple(axis.extent for axis in order), bool)
    while cases:
        group = _linked(_axes_of_case(next(iter(cases))), cases)
        cases -= group
        reached = NO_AXES.union(*map(_axes_of_case, group))
        grid = _grid(reached)
        if grid is None:
            return None
        holds: np.ndarray = np.ones(tuple(axis.extent for axis in grid), bool)
        for conditions, wanted in group:
            every: np.ndarray = np.ones((1,) * holds.ndim, bool)
            for condition in conditions:
                every = every & (condition.evaluate(grid) >= 0)
            holds = holds & (every == wanted)
        holds = np.any(holds, axis=tuple(n for n, axis in enumerate(grid) if axis not in axes))
        result = result & holds.reshape([a.extent if a in reached else 1 for a in order])
    return result


@cache
def _points(axes: Axes, cases: Cases) -> int:
    """At how many points of some axes the cases are, whatever further axes of theirs may be."""
    free = axes.difference(*map(_axes_of_case, cases))
    holds = _projected(cases, axes - free)
    count = 0 if holds is None else int(np.count_nonzero(holds))
    return count * math.prod(axis.extent for axis in free)
