"""What several definitions compute alike of whole arrays is a definition, where an Algorithm would be far longer
without: the steps of an iteration, which lifting writes into each other.

before: s[i] = sum_j e[i, j] / c[j]; t[j] = sum_i e[i, j] / s[i]; u[i] = sum_j e[i, j] / c[j] / (t[j] / c[j])
after:  with d[j] = 1 / c[j], and what else stands twice, at whatever places
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import product_of
from accelopt.algorithm.equal_definitions import digest
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.axis_positions import free_name
from accelopt.kernels.nki.nests.read_ranges import ends_of, in_order, made_of, reads_of
from accelopt.kernels.nki.nests.shared_element_functions import word_of

LEAST_LONG = 40
"""Expressions of an Algorithm in which something may be shared."""
LEAST_READ = 2
"""Functions that a result is made of which others read instead of computing them."""
LEAST_SHORTER = 1.8
"""Times as many expressions as with what is shared: an Algorithm that is said otherwise."""
MOST_APART = 1e6
"""Of the coefficients of a sum, of which one is taken out: more is a mask."""
LAST = 10**6
"""Behind all definitions."""
DIGITS = 12
"""Of numbers that are equal."""


def expressions_shared(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with definitions for what stands in it more than once, where that makes it much shorter, and with
    reads of results in the place of what others compute like them."""
    if _length(algorithm) > LEAST_LONG:
        orders = dict.fromkeys(_in_order(algorithm, inputs) for inputs in (0, LAST))
        made = min((_shared(one) for one in orders), key=_length)
        algorithm = made if _length(made) * LEAST_SHORTER < _length(algorithm) else algorithm
    return results_read(algorithm)


def results_read(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm with results in fp32 read by those that compute the same, or that times a number."""
    depth = partial(_depth, {d.out: n + 1 for n, d in enumerate(algorithm.definitions)}, 0)
    form, skeletons = cache(lambda e: _apart(_ordered(e, depth))), dict[ir.Expression, str]()
    exact = {
        a.name for a in algorithm.outputs if a.dtype == "float32" and not (a.partial or a.steps)
    }
    for name in [d.out for d in algorithm.definitions if isinstance(d, ir.Map) and d.out in exact]:
        own, plain = algorithm.definition(name), list[bool]()
        ((scale, pattern),), kept = map(form, ir.expressions_of(own)), made_of(algorithm, name)
        if not scale or operations(pattern) < LEAST_READ or ir.axes_of(pattern) != {*own.axes}:
            continue

        def changed(
            expression: ir.Expression, own: ir.Definition = own, scale: float = scale,
            pattern: ir.Expression = pattern, plain: list[bool] = plain,
        ) -> ir.Expression | None:  # fmt: skip
            number, rest = form(expression)
            alike = _skeleton(rest, skeletons) == _skeleton(pattern, skeletons)
            if not alike or (at := _bound(pattern, rest)) is None:
                return None
            there = {axis: next(iter(index.axes), axis) for axis, index in at.items()}
            plain += [at[a] == index_of(b) and a.extent == b.extent for a, b in there.items()]
            return ir.times(ir.Read(own.out, tuple(at[axis] for axis in own.axes)), number / scale)

        others = (d for d in algorithm.definitions if d.out not in {name, *kept})
        made = {d.out: ir.with_changes(d, changed) for d in others}
        if all(plain):  # else all would be computed in digits of the axes
            definitions = in_order(made.get(d.out, d) for d in algorithm.definitions)
            algorithm = replace(algorithm, definitions=definitions)
    return algorithm


def reductions_shared(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm without reductions that others compute at some of their places: of the halves of a concatenation
    each may have what it reads along its own axes."""
    results = {array.name for array in algorithm.outputs}
    for one, other in itertools.permutations([d.out for d in algorithm.definitions], 2):
        made = {d.out: d for d in algorithm.definitions}
        if (
            {one, other} & results
            or not {one, other} <= made.keys()
            or other in made_of(algorithm, one)
        ):
            continue
        own, found = made[other], _read_of(made[one], made[other])
        if found is None:
            continue

        def changed(read: ir.Read, own: ir.Definition = own, found: ir.Read = found) -> ir.Read:
            if read.array != own.out:
                return read
            places = dict(zip(own.axes, read.indices, strict=True))
            return ir.Read(found.array, tuple(i.substitute(places) for i in found.indices))

        rest = (ir.with_reads(d, changed) for d in algorithm.definitions if d is not own)
        algorithm = replace(algorithm, definitions=in_order(rest))
    return algorithm


def _read_of(wide: ir.Definition, own: ir.Definition) -> ir.Read | None:
    """Where a reduction has what another comes to; None where it has not."""
    if not (isinstance(wide, ir.Reduce) and isinstance(own, ir.Reduce)):
        return None
    wanted, given = ((d.combiner, *(a.extent for a in d.reduced)) for d in (wide, own))
    if wanted != given:
        return None
    summed = dict(zip(wide.reduced, map(index_of, own.reduced), strict=True))
    pattern = ir.substituted(wide.expression, summed, {})
    if operations(pattern) < 0 or _skeleton(pattern, {}) != _skeleton(own.expression, {}):
        return None
    at = _bound(pattern, own.expression, own.reduced) or {}
    ends = [(axis, *ends_of(place, {})) for axis, place in at.items()]
    if {*at} != {*wide.axes} or any(low < 0 or high >= axis.extent for axis, low, high in ends):
        return None
    # A diagonal crosses the partitions: less work than to bring it there is to compute it on its own.
    places = [term for index in at.values() for term, _ in index.terms if isinstance(term, Axis)]
    if len(places) > len({*places}):
        return None
    return ir.Read(wide.out, tuple(at[axis] for axis in wide.axes))


def _in_order(algorithm: ir.Algorithm, inputs: int) -> ir.Algorithm:
    """The Algorithm with factors and terms in one order, those of inputs alone as if defined at `inputs`."""
    depth = partial(_depth, {d.out: n + 1 for n, d in enumerate(algorithm.definitions)}, inputs)
    ordered = (
        ir.with_expressions(d, [_ordered(e, depth) for e in ir.expressions_of(d)])
        for d in algorithm.definitions
    )
    return replace(algorithm, definitions=tuple(ordered))


def _shared(made: ir.Algorithm) -> ir.Algorithm:
    """The ordered Algorithm with definitions for all that stands in it more than once."""
    depth = {d.out: n + 1 for n, d in enumerate(made.definitions)}
    taken = {array.name for array in made.inputs}.union(depth)
    refused = set[ir.Expression]()
    while (found := next(_repeated(made, refused), None)) is not None:
        pattern, axes = found
        reads = [p.array for p in ir.walk(pattern) if isinstance(p, ir.Read)]
        last = max(sorted(reads), key=lambda array: depth.get(array, 0))
        name = free_name(f"{last}_{word_of(pattern)}", taken)
        shorter = _with(made, ir.Map(name, axes, pattern))
        if shorter is None:
            refused.add(pattern)
            taken.discard(name)
        else:
            made = shorter
            depth[name] = depth.get(last, 0)
    return made


def _length(algorithm: ir.Algorithm) -> int:
    """How many expressions an Algorithm is made of, different ones in each definition."""
    return sum(sum(1 for _ in ir.parts_in(definition)) for definition in algorithm.definitions)


# One order of factors and terms.


Depth = Callable[[ir.Expression], tuple[int, str]]


def _depth(of_arrays: Mapping[str, int], inputs: int, expression: ir.Expression) -> tuple[int, str]:
    """How late what an expression reads is defined: factors and terms stand in that order."""
    reads = (p.array for p in ir.walk(expression) if isinstance(p, ir.Read))
    return max((of_arrays.get(name, 0) for name in reads), default=0) or inputs, str(expression)


def _ordered(expression: ir.Expression, depth: Depth) -> ir.Expression:
    """The same in real numbers, with factors by their axes and terms in the order in which they are defined: what
    one step makes of the step before stands in the next as it is."""
    inside = ir.with_parts(expression, (_ordered(part, depth) for part in ir.parts_of(expression)))
    number, rest = _scaled(inside, depth)
    return ir.times(rest, number)


def _scaled(expression: ir.Expression, depth: Depth) -> tuple[float, ir.Expression]:
    """An expression, its parts in order, as a number times another."""
    function = expression.function if isinstance(expression, ir.Apply) else ""
    if function in ("multiply", "divide"):
        return _product(_factors(expression), depth)
    if function in ("add", "subtract", "negative"):
        return _sum(list(terms_of(expression)), expression, depth)
    if isinstance(expression, ir.Where):
        (a, true), (b, false) = (_apart(part) for part in ir.parts_of(expression))
        if a == b != 1.0:
            return a, ir.Where(expression.conditions, true, false)
    return 1.0, expression


def _apart(expression: ir.Expression) -> tuple[float, ir.Expression]:
    """The number that an ordered expression is multiplied by, and the rest."""
    if isinstance(expression, ir.Apply) and expression.function == "multiply":
        value, number = expression.arguments
        if isinstance(number, ir.Constant):
            return number.value, value
    return 1.0, expression


def _factors(expression: ir.Expression, inverse: bool = False) -> list[tuple[ir.Expression, bool]]:
    if isinstance(expression, ir.Apply) and expression.function in ("multiply", "divide"):
        first, second = expression.arguments
        turned = inverse != (expression.function == "divide")
        return [*_factors(first, inverse), *_factors(second, turned)]
    if isinstance(expression, ir.Apply) and expression.function == "reciprocal":
        return _factors(expression.arguments[0], not inverse)
    return [(expression, inverse)]


def _product(
    factors: Sequence[tuple[ir.Expression, bool]], depth: Depth
) -> tuple[float, ir.Expression]:
    """Factors of the same axes are multiplied first, those that are defined last at the end."""
    number, groups = 1.0, defaultdict[frozenset[Axis], list[ir.Expression]](list)
    for factor, inverse in factors:
        if isinstance(factor, ir.Constant) and (factor.value or not inverse):
            number *= 1 / factor.value if inverse else factor.value
        else:
            made = ir.Apply("reciprocal", (factor,)) if inverse else factor
            groups[ir.axes_of(factor)].append(made)
    products = [
        product_of(sorted(group, key=depth))
        for _, group in sorted(groups.items(), key=lambda g: (-len(g[0]), min(map(depth, g[1]))))
    ]
    return (number, product_of(products)) if products else (1.0, ir.Constant(number))


def terms_of(
    expression: ir.Expression, factor: float = 1.0
) -> Iterator[tuple[float, ir.Expression]]:
    """What an expression is the sum of, each as a number times another."""
    function = expression.function if isinstance(expression, ir.Apply) else ""
    if function in ("add", "subtract"):
        first, second = ir.parts_of(expression)
        yield from terms_of(first, factor)
        yield from terms_of(second, -factor if function == "subtract" else factor)
    elif function == "negative":
        yield from terms_of(ir.parts_of(expression)[0], -factor)
    else:
        number, rest = _apart(expression)
        if number != 1.0:
            yield from terms_of(rest, factor * number)
        else:
            yield factor, expression


def _sum(
    terms: Sequence[tuple[float, ir.Expression]], whole: ir.Expression, depth: Depth
) -> tuple[float, ir.Expression]:
    """Terms, those that are defined later added to those before times a number, with their largest coefficient
    before all: a step as it stands in later ones."""
    number = sum(factor * t.value for factor, t in terms if isinstance(t, ir.Constant))
    rest = sorted(
        ((f, t) for f, t in terms if not isinstance(t, ir.Constant)), key=lambda t: depth(t[1])
    )
    sizes = [abs(factor) for factor, _ in rest]
    if not rest or not min(sizes) or max(sizes) > MOST_APART * min(sizes):
        return 1.0, whole
    steps = [list(group) for _, group in itertools.groupby(rest, lambda t: depth(t[1])[0])]
    scale, made = 0.0, None
    for step in steps:
        before: list[tuple[float, ir.Expression]] = [(scale, made)] if made else []
        own = max(abs(factor) for factor, _ in step)
        own = -own if all(factor < 0 for factor, _ in (*before, *step)) else own
        made = None
        for factor, term in [*before, *step]:
            ratio = float(f"{factor / own:.{DIGITS}g}")
            if made is not None and ratio == -1.0:
                made = ir.Apply("subtract", (made, term))
            else:
                term = ir.times(term, ratio)
                made = ir.Apply("add", (made, term)) if made is not None else term
        scale = own
    assert made is not None
    if not number:
        return scale, made
    return 1.0, ir.Apply("add", (ir.times(made, scale), ir.Constant(number)))


# What stands more than once.


def _repeated(
    algorithm: ir.Algorithm, refused: set[ir.Expression]
) -> Iterator[tuple[ir.Expression, tuple[Axis, ...]]]:
    """Expressions that stand at several places, or in several definitions, the largest first, with their axes."""
    skeletons = dict[ir.Expression, str]()
    alike = defaultdict[str, dict[ir.Expression, set[str]]](lambda: defaultdict(set))
    sizes = dict[str, int]()
    for definition in algorithm.definitions:
        for part in ir.parts_in(definition):
            size = operations(part)
            if size > 1 and (not isinstance(definition, ir.Map) or part != definition.expression):
                key = _skeleton(part, skeletons)
                alike[key][part].add(definition.out)
                sizes[key] = size
    order = {d.out: n for n, d in enumerate(algorithm.definitions)}
    for key in sorted(alike, key=lambda key: (-sizes[key], key)):
        found = alike[key]
        if sum(map(len, found.values())) < 2:
            continue
        for pattern in sorted(found, key=lambda e: (min(order[n] for n in found[e]), str(e))):
            uses = [e for e in found if _bound(pattern, e) is not None]
            if pattern not in refused and sum(len(found[e]) for e in uses) > 1:
                yield pattern, tuple(sorted(ir.axes_of(pattern), key=lambda axis: axis.name))


@lru_cache(maxsize=65536)
def operations(expression: ir.Expression) -> int:
    """How many functions an expression is made of; 0 for one with indices that are computed."""
    below = list(map(operations, ir.parts_of(expression)))
    if isinstance(expression, ir.Indirect):
        return -(10**9)
    return sum(below) + isinstance(expression, ir.Apply)


def _skeleton(expression: ir.Expression, done: dict[ir.Expression, str]) -> str:
    """A digest of what expressions have in common that differ in places alone."""
    if expression not in done:
        own = type(expression).__name__
        if isinstance(expression, (ir.Apply, ir.Read)):
            own = (
                expression.function if isinstance(expression, ir.Apply) else f"[{expression.array}]"
            )
        elif isinstance(expression, ir.Constant):
            own = repr(expression.value)
        below = (_skeleton(part, done) for part in ir.parts_of(expression))
        done[expression] = digest(own, str(len(ir.indices_of(expression))), *below)
    return done[expression]


def _bound(
    pattern: ir.Expression, expression: ir.Expression, fixed: Collection[Axis] = ()
) -> dict[Axis, Index] | None:
    """The places of its axes, but for `fixed` ones, at which a pattern is an expression of the same skeleton; None
    where it is not."""
    own = ir.axes_of(pattern).difference(fixed)
    unknown = {axis: Axis(f"?{axis.name}", axis.extent) for axis in own}
    axes = {named: axis for axis, named in unknown.items()}
    pairs: list[tuple[Index, Index]] = []
    waiting = [
        (ir.substituted(pattern, {a: index_of(n) for a, n in unknown.items()}, {}), expression)
    ]
    while waiting:
        one, other = waiting.pop()
        pairs += zip(ir.indices_of(one), ir.indices_of(other), strict=True)
        waiting += zip(ir.parts_of(one), ir.parts_of(other), strict=True)
    found = dict[Axis, Index]()
    while pairs:
        left = list[tuple[Index, Index]]()
        for index, wanted in pairs:
            there = index.substitute({a: found[o] for a, o in axes.items() if o in found})
            free = [(term, step) for term, step in there.terms if term in axes]
            if len(free) == 1 and len(there.axes & axes.keys()) == 1:
                (axis, step), rest = free[0], wanted - (there - index_of(free[0][0]) * free[0][1])
                if any(n % step for n in (rest.constant, *(n for _, n in rest.terms))):
                    return None
                terms = tuple((term, n // step) for term, n in rest.terms)
                found[axes[axis]] = Index(rest.constant // step, terms)
            elif there.axes & axes.keys():
                left.append((index, wanted))
            elif there != wanted:
                return None
        if len(left) == len(pairs):
            return None
        pairs = left
    return found


def _with(algorithm: ir.Algorithm, shared: ir.Map) -> ir.Algorithm | None:
    """The Algorithm with a definition that is read wherever it is computed; None where its elements at some
    places are read of nothing."""
    skeletons = dict[ir.Expression, str]()
    wanted, done = _skeleton(shared.expression, skeletons), dict[ir.Expression, ir.Expression]()

    def changed(expression: ir.Expression) -> ir.Expression:
        if expression not in done:
            at = None
            if _skeleton(expression, skeletons) == wanted:
                at = _bound(shared.expression, expression)
            if at is not None:
                done[expression] = ir.Read(shared.out, tuple(at[axis] for axis in shared.axes))
            else:
                done[expression] = ir.with_parts(expression, map(changed, ir.parts_of(expression)))
        return done[expression]

    made = [
        ir.with_expressions(d, map(changed, ir.expressions_of(d))) for d in algorithm.definitions
    ]
    reads = [r for d in made for e in ir.expressions_of(d) for r in reads_of(shared.out, e, {})]
    ends = [(0, max(r[n][1] for r in reads)) for n in range(len(shared.axes))]
    if any(low < 0 for r in reads for low, _ in r):
        return None
    known = dict(zip(shared.axes, ends, strict=True))
    shapes = {array.name: array.shape for array in algorithm.inputs}
    shapes |= {d.out: tuple(axis.extent for axis in d.axes) for d in algorithm.definitions}
    beyond = {
        axis
        for part in ir.walk(shared.expression)
        if isinstance(part, ir.Read)
        for index, extent in zip(part.indices, shapes[part.array], strict=True)
        if not 0 <= ends_of(index, known)[0] <= ends_of(index, known)[1] < extent
        for axis in index.axes
    }
    whole = [n for n, axis in enumerate(shared.axes) if axis in beyond]
    if not any(all(r[n] == ends[n] for n in whole) for r in reads):
        return None
    axes = tuple(Axis(f"{shared.out}_{n}", high + 1) for n, (_, high) in enumerate(ends))
    places = {old: index_of(new) for old, new in zip(shared.axes, axes, strict=True)}
    own = ir.Map(shared.out, axes, ir.substituted(shared.expression, places, {}))
    first = min(n for n, d in enumerate(made) if any(
        isinstance(p, ir.Read) and p.array == shared.out for e in ir.expressions_of(d) for p in ir.walk(e)))  # fmt: skip
    return replace(algorithm, definitions=(*made[:first], own, *made[first:]))
