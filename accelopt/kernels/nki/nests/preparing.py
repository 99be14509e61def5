"""An Algorithm in the form that nests are made of: axes cut where indices need it, functions that the
engines have called by their names, roundings kept only where a matrix product takes them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.axis_names import AxisNames
from accelopt.algorithm.contraction import ONE, contraction, factors_of, product_of
from accelopt.algorithm.equal_definitions import defined_once
from accelopt.algorithm.functions import FUNCTIONS, ROUNDINGS
from accelopt.algorithm.index import Axis, Floor, Index, index_of
from accelopt.algorithm.value_nodes import ORDERED, PLACES
from accelopt.algorithm.values import narrowed
from accelopt.kernels.nki.nests.changed_elements import with_changes_alone
from accelopt.kernels.nki.nests.one_hot_removal import places_found, without_one_hot
from accelopt.kernels.nki.nests.prefix_combinations import prefixes_found
from accelopt.kernels.nki.nests.read_ranges import (
    fewer_conditions,
    in_order,
    reads_of,
    shared_conditions,
)
from accelopt.kernels.nki.nests.scale_and_shift import factor_shared, scaled_and_shifted
from accelopt.kernels.nki.nests.separable_windows import windows_separated
from accelopt.kernels.nki.nests.shared_element_functions import functions_shared
from accelopt.kernels.nki.nests.shared_expressions import (
    expressions_shared,
    reductions_shared,
    results_read,
)
from accelopt.kernels.nki.nests.term_sums import decided, is_short

RECOGNISED = ("gelu_apprx_tanh", "gelu", "gelu_apprx_sigmoid", "silu", "softplus", "mish", "sigmoid",
              "tanh", "erf", "silu_dx", "gelu_dx")  # fmt: skip
"""Functions of the Scalar engine that kernels also spell with simpler ones."""
SAMPLES = np.concatenate([np.linspace(-6.0, 6.0, 61), [-1e-3, 1e-3, 0.1234]])
CLOSE = 2e-6
"""Of two spellings of one function, whose constants are fp32."""
LARGEST_SPELLING = 40
"""Parts of an expression that may be one function."""
LEAST_IN_TWO = 2048
"""Elements that are combined into one, from which on that is done in two steps."""
PARTITIONS = 128
ROUNDS = 8
"""Of cutting axes: each cut may show the next."""
QUEUES = 16
"""Engines that carry transfers: tiles of rows go to them in turn."""
MOST_IN_ROW = 8192
"""Elements of a result with one axis that lie on one partition."""
LARGEST = 3e38
"""No number of fp32 is much larger."""
WIDE_ROUNDING = "bfloat16"
"""The rounding to a format with the exponents of fp32: no factor takes a value out of its range."""
LEAST_NARROWER = 2
"""Times as long an axis as is read of it: below that it is the axis of others, which it is computed beside."""
MOST_PIECES = 8
"""Parts of an axis for which a condition is decided one by one."""


@functools.lru_cache(maxsize=64)
def prepared(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The same Algorithm, ready for nests. Its arrays have the same names and elements, but for those of results
    that stay as an input has them."""
    algorithm = with_changes_alone(algorithm, _without_unread(algorithm, 1).definitions)
    fewer = reductions_shared(_without_unread(algorithm))
    algorithm = min(algorithm, fewer, key=lambda one: len(one.definitions))
    definitions = tuple(_rewritten(d, _recognised) for d in map(_unrounded, algorithm.definitions))
    algorithm = results_read(replace(algorithm, definitions=definitions))
    definitions = tuple(part for d in map(decided, algorithm.definitions) for part in _in_two(d))
    definitions = tuple(
        _rewritten(d, lambda e: shared_conditions(fewer_conditions(e))) for d in definitions
    )
    algorithm = windows_separated(replace(algorithm, definitions=definitions))
    algorithm = scaled_and_shifted(algorithm)
    shared = tuple(ir.with_changes(d, factor_shared) for d in algorithm.definitions)
    algorithm = replace(algorithm, definitions=shared)
    algorithm = prefixes_found(functions_shared(expressions_shared(algorithm)))
    found = _split(without_one_hot(algorithm))
    found = _without_unread(_split(_cut(found, _useful(found))))
    named = AxisNames(found.inputs, found.definitions, found.outputs).algorithm(found.name)
    named = _named_as_read(
        _summed_last(_groups(_compared_as_ranked(places_found(defined_once(named)))))
    )
    return _ordered(_scaled_last(_operands(_joint(named))))


def _named_as_read(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With axes of definitions named as all that read them have them: they can be computed in one stage."""
    for name in [d.out for d in reversed(algorithm.definitions)]:
        definition = algorithm.definition(name)
        every = (read for d in algorithm.definitions for read in ir.reads_in(d))
        reads = {read.indices for read in every if read.array == name}
        terms = [t for i in (*reads,)[:1] for index in i for t, _ in index.terms]
        axes = [term for term in terms if isinstance(term, Axis)]
        plain = reads == {tuple(index_of(t) for t in axes)} and len({*axes}) == len(axes)
        same = [a.extent for a in definition.axes] == [axis.extent for axis in axes]
        if (
            not plain
            or not same
            or isinstance(definition, ir.Scan)
            or tuple(axes) == definition.axes
        ):
            continue
        own = ir.own_axes(definition)
        called = dict(zip(definition.axes, axes, strict=True))
        taken = {a.name for d in algorithm.definitions for a in ir.own_axes(d)}
        names = (word for n in range(len(own) + len(taken)) if (word := f"r{n}") not in taken)
        for axis in own[len(definition.axes) :]:
            called[axis] = replace(axis, name=next(names)) if axis in axes else axis
        algorithm = ir.with_definition(algorithm, definition, ir.with_axes(definition, called))
    return algorithm


def _compared_as_ranked(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With a definition for what one of the largest elements is taken of: who compares elements with it
    takes the same numbers, which were rounded once."""
    for out in [d.out for d in algorithm.definitions]:
        reduce = algorithm.definition(out)
        if not isinstance(reduce, ir.Reduce) or reduce.combiner not in ORDERED:
            continue
        body, name = reduce.expression, f"{reduce.out}_of"
        if isinstance(body, ir.Read):
            continue
        read = ir.Read(name, tuple(map(index_of, ir.own_axes(reduce))))
        made = ir.Map(name, ir.own_axes(reduce), body)
        definitions = [ir.with_part(d, body, read) for d in algorithm.definitions]
        definitions.insert(algorithm.definitions.index(reduce), made)
        algorithm = replace(algorithm, definitions=tuple(definitions))
    return algorithm


def _summed_last(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With the axes that others combine a definition over behind its other ones: what is combined lies
    beside each other then."""
    results = {array.name for array in algorithm.outputs}
    last: dict[str, set[int]] = {}
    for reader in algorithm.definitions:
        if not isinstance(reader, ir.Reduce) or contraction(reader) or is_short(reader):
            continue
        for read in ir.reads_in(reader):
            places = {n for n, i in enumerate(read.indices) if i.axes & set(reader.reduced)}
            last.setdefault(read.array, set()).update(places)
    order = {
        d.out: sorted(range(len(d.axes)), key=lambda n: n in last[d.out])
        for d in algorithm.definitions
        if d.out in last and d.out not in results and not isinstance(d, ir.Scan)
    }

    def turned(read: ir.Read) -> ir.Read:
        places = order.get(read.array, range(len(read.indices)))
        return replace(read, indices=tuple(read.indices[n] for n in places))

    definitions = [ir.with_reads(d, turned) for d in algorithm.definitions]
    return replace(
        algorithm,
        definitions=tuple(
            replace(d, axes=tuple(d.axes[n] for n in order[d.out])) if d.out in order else d
            for d in definitions
        ),
    )


def _joint(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With a definition for what several others make of a matrix product first, element by element:
    it is computed where the product is."""
    for product in algorithm.definitions:
        readers = [d for d in algorithm.definitions if product.out in ir.arrays_read(d)]
        if not isinstance(product, ir.Reduce) or contraction(product) is None or len(readers) < 2:
            continue
        parts = {part for d in readers for part in ir.parts_in(d)}
        reads = {p for p in parts if isinstance(p, ir.Read) and p.array == product.out}
        first = next(iter(reads))
        if len(reads) > 1 or first.indices != tuple(map(index_of, product.axes)):
            continue
        found: ir.Expression = first
        while True:
            above = _above(found, parts)
            whole = {e for d in readers for e in ir.expressions_of(d)}
            if len(above) != 1 or found in whole or not ir.axes_of(*above) <= set(product.axes):
                break
            (found,) = above
        bare, factor = _without_factor(found)
        if bare == first:
            continue
        said = "masked" if isinstance(bare, ir.Where) else getattr(bare, "function", "of")
        made = ir.Map(f"{product.out}_{said}", product.axes, bare)
        read = ir.times(ir.Read(made.out, first.indices), factor)
        rest = [ir.with_part(d, found, read) if d in readers else d for d in algorithm.definitions]
        at = algorithm.definitions.index(product) + 1
        needed = ir.arrays_read(made)
        at = max([at, *(n + 1 for n, d in enumerate(algorithm.definitions) if d.out in needed)])
        algorithm = replace(algorithm, definitions=(*rest[:at], made, *rest[at:]))
    return algorithm


def _above(part: ir.Expression, parts: Collection[ir.Expression]) -> set[ir.Expression]:
    """Those of some parts that take a part, but for those that are taken, with it, by another of them."""
    above = {p for p in parts if part in ir.parts_of(p)}
    while inner := {p for p in above if any(p in ir.walk(q) for q in above - {p})}:
        takers = {p for p in parts if inner & {*ir.parts_of(p)}}
        if takers <= above:
            return above - inner
        above |= takers
    return above


def _groups(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With a definition for the terms of a sum over a batch of products, which are each made of one of them,
    element by element: they are computed where the products are."""
    for reader in algorithm.definitions:
        if not isinstance(reader, ir.Reduce) or contraction(reader) or reader.combiner != "add":
            continue
        product = _product_alone_in(reader.expression, reader, algorithm)
        found = contraction(product) if product else None
        if product and found and not {*reader.reduced} - {*found.batch}:
            own = ir.Map(f"{product.out}_term", product.axes, reader.expression)
            summed = replace(reader, expression=ir.Read(own.out, tuple(map(index_of, own.axes))))
            algorithm = ir.with_definition(algorithm, reader, own, summed)
    return algorithm


def _product_alone_in(
    part: ir.Expression, reader: ir.Definition, algorithm: ir.Algorithm
) -> ir.Reduce | None:
    """The product that a part of its only reader is made of, element by element; None where there is none."""
    for product in algorithm.definitions:
        reads = {p for p in ir.walk(part) if isinstance(p, ir.Read) and p.array == product.out}
        if (
            isinstance(product, ir.Reduce)
            and contraction(product) is not None
            and all(product.out != array.name for array in algorithm.outputs)
            and [d for d in algorithm.definitions if product.out in ir.arrays_read(d)] == [reader]
            and {read.indices for read in reads} == {tuple(map(index_of, product.axes))}
            and part not in reads
            and ir.axes_of(part) <= set(product.axes)
        ):
            return product
    return None


def _operands(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With a definition for an operand of a product that is computed of another product which nothing else
    reads, element by element: it is computed where that product is."""
    for reader in algorithm.definitions:
        found = contraction(reader) if isinstance(reader, ir.Reduce) else None
        if found is None or not isinstance(reader, ir.Reduce):
            continue
        sides, made = [found.left, found.right], list[ir.Map]()
        for n, operand in enumerate(sides):
            rounded = isinstance(operand, ir.Apply) and operand.function in ROUNDINGS
            bare = operand.arguments[0] if rounded and isinstance(operand, ir.Apply) else operand
            if product := _product_alone_in(bare, reader, algorithm):
                own = ir.Map(f"{product.out}_operand", product.axes, bare)
                read: ir.Expression = ir.Read(own.out, tuple(map(index_of, own.axes)))
                if rounded and isinstance(operand, ir.Apply):
                    read = ir.Apply(operand.function, (read,))
                sides[n] = read
                made.append(own)
        if made:
            scale = [found.scale] if found.scale != ONE else []
            changed = replace(reader, expression=product_of([*sides, *scale]))
            algorithm = ir.with_definition(algorithm, reader, *made, changed)
    return algorithm


def _scaled_last(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With the positive factor of what a maximum or minimum is of applied to the result by its readers."""
    results = {array.name for array in algorithm.outputs}
    for name in [d.out for d in algorithm.definitions if d.out not in results]:
        definition = algorithm.definition(name)
        if not isinstance(definition, ir.Reduce) or definition.combiner in {"add", *PLACES}:
            continue
        bare, factor = _without_factor(definition.expression)
        if factor == 1.0:
            continue
        own = replace(definition, out=f"{name}_unscaled", expression=bare)
        read = ir.Read(own.out, tuple(map(index_of, own.axes)))
        scaled = ir.Map(name, own.axes, ir.times(read, factor))
        algorithm = inlined(ir.with_definition(algorithm, definition, own, scaled), (name,))
    return algorithm


def _without_factor(expression: ir.Expression) -> tuple[ir.Expression, float]:
    """An expression, and a positive factor that its readers apply instead, with what they do anyway."""
    if isinstance(expression, ir.Where) and isinstance(expression.on_false, ir.Constant):
        rest, factor = _without_factor(expression.on_true)
        otherwise = expression.on_false.value / factor
        if abs(otherwise) < LARGEST:
            return replace(expression, on_true=rest, on_false=ir.Constant(otherwise)), factor
    elif isinstance(expression, ir.Where):
        rests = [_without_factor(part) for part in ir.parts_of(expression)]
        if rests[0][1] == rests[1][1]:
            return ir.with_parts(expression, (rest for rest, _ in rests)), rests[0][1]
    if isinstance(expression, ir.Apply) and expression.function in ("multiply", "divide"):
        value, number = expression.arguments
        if isinstance(number, ir.Constant) and number.value > 0:
            rest, factor = _without_factor(value)
            own = number.value if expression.function == "multiply" else 1.0 / number.value
            return rest, factor * own
    return expression, 1.0


def _ordered(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With plain sums and maxima before all that need not come before them: what a sum is of lies on
    the chip then for whoever takes it too."""

    def plain(definition: ir.Definition) -> bool:
        combined = isinstance(definition, ir.Reduce) and contraction(definition) is None
        return combined and not is_short(definition)

    return replace(algorithm, definitions=in_order(algorithm.definitions, plain))


def cut(algorithm: ir.Algorithm, splits: Iterable[tuple[str, int]]) -> ir.Algorithm:
    """A prepared Algorithm with axes, by name, cut in two: `NAME_1` counts parts of so many elements
    that lie beside each other, `NAME_0` the elements of one."""
    for name, size in splits:
        cuts: Cuts = {
            (definition.out, axis): (size,)
            for definition in algorithm.definitions
            for axis in ir.own_axes(definition)
            if axis.name == name and axis.extent % size == 0 and 1 < size < axis.extent
        }
        algorithm = _split(_cut(algorithm, cuts))
    return algorithm


def inlined(algorithm: ir.Algorithm, names: tuple[str, ...]) -> ir.Algorithm:
    """A prepared Algorithm with some Maps computed where they are read, and some Reduces combined there."""
    for name in names:
        definition = algorithm.definition(name)
        assert isinstance(definition, (ir.Map, ir.Reduce))
        rest = tuple(d for d in algorithm.definitions if d.out != name)

        def computed(read: ir.Read, body: ir.Map | ir.Reduce = definition) -> ir.Expression:
            if read.array != body.out:
                return read
            return moved(body.expression, dict(zip(body.axes, read.indices, strict=True)))

        made = tuple(ir.with_reads(d, computed) for d in rest)
        if isinstance(definition, ir.Reduce):
            made = tuple(
                replace(d, reduced=(*definition.reduced, *d.reduced))
                if isinstance(d, ir.Reduce) and name in ir.arrays_read(was)
                else d
                for d, was in zip(made, rest, strict=True)
            )
        algorithm = replace(algorithm, definitions=made)
    return algorithm


def combined_by_readers(name: str, algorithm: ir.Algorithm) -> bool:
    """Whether all that read a Reduce combine its elements in the same way, over other axes: in them it needs no
    definition."""
    own = algorithm.definition(name)
    readers = [d for d in algorithm.definitions if name in ir.arrays_read(d)]
    return (
        isinstance(own, ir.Reduce)
        and own.combiner not in ORDERED
        and all(
            isinstance(d, ir.Reduce)
            and d.combiner == own.combiner
            and not {a.name for a in own.reduced} & {a.name for a in ir.own_axes(d)}
            and _read_alone(d.expression, own)
            for d in readers
        )
    )


def _read_alone(expression: ir.Expression, own: ir.Reduce) -> bool:
    """Whether an expression is an element of a Reduce, or that under conditions and else what counts for nothing."""
    if isinstance(expression, ir.Where) and isinstance(expression.on_false, ir.Constant):
        counts = own.combiner == "add" and expression.on_false.value
        return not counts and _read_alone(expression.on_true, own)
    return isinstance(expression, ir.Read) and expression.array == own.out


def moved(expression: ir.Expression, values: Mapping[Axis, Index]) -> ir.Expression:
    """An expression at other places of its axes."""
    return _coarse(ir.substituted(expression, values, {}))


def _coarse(expression: ir.Expression) -> ir.Expression:
    made = ir.with_parts(expression, map(_coarse, ir.parts_of(expression)))
    if isinstance(made, ir.Where):
        return replace(made, conditions=tuple(map(coarsest, made.conditions)))
    return made


def coarsest(condition: Index) -> Index:
    """An index that is at least 0 where another is, without the digits that decide nothing."""
    for step in sorted({abs(factor) for _, factor in condition.terms}, reverse=True):
        whole = condition // step
        if step > 1 and whole.is_affine:
            return whole
    return condition


def _rewritten(
    definition: ir.Definition, change: Callable[[ir.Expression], ir.Expression]
) -> ir.Definition:
    return ir.with_expressions(definition, map(change, ir.expressions_of(definition)))


def _in_two(definition: ir.Definition) -> tuple[ir.Definition, ...]:
    """What combines many elements into a single one as parts, which can lie on partitions, and what
    combines those, times what is alike in a part."""
    if not isinstance(definition, ir.Reduce) or math.prod(a.extent for a in definition.axes) > 1:
        return (definition,)
    if definition.combiner in ORDERED:
        return (definition,)
    first, *rest = sorted(definition.reduced, key=lambda axis: definition.reduced.index(axis))
    body = definition.expression
    if first.extent * math.prod(a.extent for a in rest) < LEAST_IN_TWO:
        return (definition,)
    if not rest:
        size = max(d for d in range(1, PARTITIONS + 1) if first.extent % d == 0)
        outer, inner = Axis(f"{first.name}_1", size), Axis(f"{first.name}_0", first.extent // size)
        whole = index_of(outer) * inner.extent + index_of(inner)
        body = moved(body, {first: whole})
        first, rest = outer, [inner]
    name = f"{definition.out}_parts"
    axes = (*definition.axes, first)
    factors = list[ir.Expression]()
    if definition.combiner == "add":
        body, factors = _apart(body, {*rest})
    parts = ir.Reduce(name, axes, tuple(rest), definition.combiner, body)
    summed = product_of([ir.Read(name, tuple(map(index_of, axes))), *factors])
    return parts, replace(definition, reduced=(first,), expression=summed)


# Roundings.


def _unrounded(definition: ir.Definition) -> ir.Definition:
    """Without roundings, but for those of the factors of a sum: more precision costs nothing."""
    if not isinstance(definition, ir.Reduce) or definition.combiner != "add":
        return _rewritten(definition, _exact)
    found, factors = factors_of(definition.expression), list[ir.Expression]()
    rounded_ = [f for f in found if isinstance(f, ir.Apply) and f.function in ROUNDINGS]
    if len(found) > 2 and not rounded_:
        return _rewritten(definition, _exact)  # with the squares that it has among its factors
    for factor in found:
        if not isinstance(factor, ir.Apply) or factor.function not in ROUNDINGS:
            factors.append(_exact(factor))
            continue
        rounded, others = _exact(factor.arguments[0]), list[ir.Expression]()
        if factor.function == WIDE_ROUNDING:
            rounded, others = _apart(rounded, {*definition.reduced})
        factors += [ir.Apply(factor.function, (rounded,)), *others]
    return replace(definition, expression=product_of(factors))


def _apart(
    expression: ir.Expression, summed: set[Axis]
) -> tuple[ir.Expression, list[ir.Expression]]:
    """An expression without factors that do not depend on axes, and those: rounding is relative, so that of a
    product is that of the rest."""
    if not isinstance(expression, ir.Apply) or expression.function not in ("multiply", "divide"):
        return expression, []
    divided = expression.function == "divide"
    found = [_apart(part, summed) for part in expression.arguments[: 2 - divided]]
    if divided:
        found.append((expression.arguments[1], []))
    left, right = (rest for rest, _ in found)
    others = [other for _, of in found for other in of]
    if ir.axes_of(left) & summed and not ir.axes_of(right) & summed:
        return left, [*others, ir.Apply("reciprocal", (right,)) if divided else right]
    if ir.axes_of(right) & summed and not (divided or ir.axes_of(left) & summed):
        return right, [*others, left]
    return replace(expression, arguments=(left, right)), others


def _exact(expression: ir.Expression) -> ir.Expression:
    if isinstance(expression, ir.Apply) and expression.function in ROUNDINGS:
        return _exact(expression.arguments[0])
    return ir.with_parts(expression, map(_exact, ir.parts_of(expression)))


# Functions.


def _recognised(expression: ir.Expression) -> ir.Expression:
    """With whatever equals a function of the Scalar engine, times a number, called by its name."""
    known = _function_of_one(expression)
    if known is not None:
        return known
    if isinstance(expression, ir.Apply) and expression.function == "power":
        base, exponent = expression.arguments
        if exponent == ir.Constant(3.0):
            base = _recognised(base)
            return ir.Apply("multiply", (ir.Apply("square", (base,)), base))
    return ir.with_parts(expression, map(_recognised, ir.parts_of(expression)))


def _function_of_one(expression: ir.Expression) -> ir.Expression | None:
    if not isinstance(expression, ir.Apply):
        return None
    if len(expression.arguments) == 1 and expression.function in RECOGNISED:
        return None
    inside = list(ir.walk(expression))
    if len(inside) > LARGEST_SPELLING or len(inside) < 4:
        return None
    if not any(isinstance(p, ir.Apply) and p.function in ("tanh", "exp", "erf", "sigmoid", "log")
               for p in inside):  # fmt: skip
        return None
    for part in sorted(inside, key=_size, reverse=True):
        if (
            isinstance(part, ir.Constant)
            or part == expression
            or not _depends_only(expression, part)
        ):
            continue
        with np.errstate(all="ignore"):
            try:
                values = _sampled(expression, part)
            except (KeyError, TypeError):
                return None
            for name in RECOGNISED:
                wanted = FUNCTIONS[name](SAMPLES)
                at = int(np.argmax(np.abs(wanted)))
                factor = float(values[at] / wanted[at])
                if not math.isfinite(factor) or not factor:
                    continue
                scale = max(1.0, float(np.max(np.abs(wanted))))
                if np.all(np.abs(values / factor - wanted) < CLOSE * scale):
                    near = round(factor) if abs(factor - round(factor)) < 1e-6 else factor
                    return ir.times(ir.Apply(name, (_recognised(part),)), float(near))
    return None


@functools.lru_cache(maxsize=4096)
def _size(expression: ir.Expression) -> int:
    return 1 + sum(map(_size, ir.parts_of(expression)))


def _depends_only(expression: ir.Expression, part: ir.Expression) -> bool:
    """Whether everything but numbers stands inside of `part`."""
    if expression == part or isinstance(expression, ir.Constant):
        return True
    return isinstance(expression, ir.Apply) and all(
        _depends_only(argument, part) for argument in expression.arguments
    )


def _sampled(expression: ir.Expression, part: ir.Expression) -> np.ndarray:
    if expression == part:
        return SAMPLES
    if isinstance(expression, ir.Constant):
        return np.full(SAMPLES.shape, expression.value)
    assert isinstance(expression, ir.Apply)
    arguments = (_sampled(argument, part) for argument in expression.arguments)
    return np.asarray(FUNCTIONS[expression.function](*arguments), np.float64)


# Axes.


def _split(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With axes cut into digits, so that as many indices as possible are sums of axes."""
    for _ in range(ROUNDS):
        cuts = _cuts(algorithm)
        if not cuts:
            break
        algorithm = _cut(algorithm, cuts)
    return algorithm


Cuts = dict[tuple[str, Axis], tuple[int, ...]]
"""For an axis of a definition, the divisors that it is cut at, each a multiple of the one before."""


def _cuts(algorithm: ir.Algorithm) -> Cuts:
    wanted: dict[tuple[str, Axis], set[int]] = {}
    axes = {d.out: d.axes for d in algorithm.definitions}
    for definition in algorithm.definitions:
        for part in ir.parts_in(definition):
            for index in ir.indices_of(part):
                for axis, divisor in _floors(index):
                    wanted.setdefault((definition.out, axis), set()).add(divisor)
            if isinstance(part, ir.Read) and part.array in axes:
                for axis, index in zip(axes[part.array], part.indices, strict=True):
                    if digits := _digits(index, axis.extent):
                        wanted.setdefault((part.array, axis), set()).update(digits)
    chains: Cuts = {}
    for (out, axis), divisors in wanted.items():
        chain: list[int] = []
        for divisor in sorted(divisors):
            if axis.extent % divisor == 0 and (not chain or divisor % chain[-1] == 0):
                chain.append(divisor)
        if chain:
            chains[out, axis] = tuple(chain)
    return chains


def _useful(algorithm: ir.Algorithm) -> Cuts:
    """Cuts that indices do not need: for conditions, and for results with elements along one axis."""
    found: Cuts = {}
    combined = {d.out for d in algorithm.definitions if not (isinstance(d, ir.Map) or is_short(d))}
    combined |= {
        name for d in algorithm.definitions if d.out in combined for name in ir.arrays_read(d)
    }
    for definition in algorithm.definitions:
        # The rows of a sum are an axis of what is summed, and of what is made of the sum, too.
        alone = not combined & {definition.out, *ir.arrays_read(definition)}
        if not alone:
            combined.add(definition.out)
        shared = _read_in_digits(algorithm, definition) if isinstance(definition, ir.Map) else ()
        for axis, size in (*_pieces(definition), *shared, *(_flat(definition) if alone else ())):
            found.setdefault((definition.out, axis), (size,))
    return found


def _read_in_digits(algorithm: ir.Algorithm, definition: ir.Map) -> Iterator[tuple[Axis, int]]:
    """Where a definition reads all of a dimension of an input along one axis, that others read along the
    digits of such a one, their last step."""
    shapes = {array.name: array.shape for array in algorithm.inputs}
    whole = {
        (read.array, n): axis
        for read in ir.reads_in(definition)
        if read.array in shapes
        for n, index in enumerate(read.indices)
        for axis in definition.axes
        if index == index_of(axis) and axis.extent == shapes[read.array][n]
    }
    for other in algorithm.definitions if whole else ():
        for read in ir.reads_in(other):
            for n, index in enumerate(read.indices):
                steps = _digits(index, shapes[read.array][n]) if (read.array, n) in whole else []
                if steps:
                    yield whole[read.array, n], steps[-1]


def _flat(definition: ir.Definition) -> Iterable[tuple[Axis, int]]:
    """Where a result has elements along one axis alone, how many lie on one partition."""
    long = [axis for axis in definition.axes if axis.extent > 1]
    if not isinstance(definition, ir.Map) or len(long) != 1 or long[0].extent <= PARTITIONS:
        return
    (axis,) = long
    sizes = [d for d in range(2, min(axis.extent, MOST_IN_ROW) + 1) if axis.extent % d == 0]
    full = [d for d in sizes if axis.extent // d % PARTITIONS == 0]
    even = [
        d for d in full if d >= MOST_IN_ROW // 2 and axis.extent // d % (PARTITIONS * QUEUES) == 0
    ]
    many = [d for d in sizes if axis.extent // d >= PARTITIONS]
    if found := even or full or many or sizes[:1]:
        yield axis, found[-1]


def _pieces(definition: ir.Definition) -> Iterable[tuple[Axis, int]]:
    """Where a condition holds from one place along an axis on, parts of the axis of which each lies
    on one side."""
    for part in ir.parts_in(definition):
        for condition in part.conditions if isinstance(part, ir.Where) else ():
            if len(condition.terms) != 1 or abs(condition.terms[0][1]) != 1:
                continue
            axis, step = condition.terms[0]
            place = -condition.constant if step == 1 else condition.constant + 1
            if isinstance(axis, Axis) and 0 < place < axis.extent:
                size = math.gcd(place, axis.extent)
                if size > 1 and axis.extent // size <= MOST_PIECES:
                    yield axis, size


def _floors(index: Index) -> Iterable[tuple[Axis, int]]:
    for term, _ in index.terms:
        if isinstance(term, Floor):
            inner = term.inner
            if len(inner.terms) == 1 and not inner.constant and inner.terms[0][1] == 1:
                axis = inner.terms[0][0]
                if isinstance(axis, Axis) and 1 < term.divisor < axis.extent:
                    yield axis, term.divisor
            yield from _floors(inner)


def _digits(index: Index, extent: int) -> list[int]:
    """Where several axes count through a dimension as the digits of a number do: their steps."""
    if index.constant or not index.is_affine:
        return []
    terms = [(a, step) for a, step in index.terms if isinstance(a, Axis) and a.extent > 1]
    steps, below = [], 1
    for axis, step in sorted(terms, key=lambda term: term[1]):
        if step != below:
            return []
        steps.append(step)
        below = step * axis.extent
    return steps[1:] if below == extent else []


def _cut(algorithm: ir.Algorithm, cuts: Cuts) -> ir.Algorithm:
    digits = {key: _digit_axes(key[1], chain) for key, chain in cuts.items()}
    axes = {d.out: d.axes for d in algorithm.definitions}

    def pieces(out: str, place: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(d for a in place for d, _ in digits.get((out, a), ((a, 1),)))

    def changed(read: ir.Read) -> ir.Read:
        indices = [
            index // step % digit.extent if place else index // step
            for axis, index in zip(axes[read.array], read.indices, strict=True)
            for place, (digit, step) in enumerate(digits.get((read.array, axis), ((axis, 1),)))
        ] if read.array in axes else read.indices  # fmt: skip
        return ir.Read(read.array, tuple(indices))

    def cut(definition: ir.Definition) -> ir.Definition:
        out = definition.out
        values = {
            axis: sum((index_of(d) * step for d, step in digits[out, axis]), Index())
            for axis in ir.own_axes(definition)
            if (out, axis) in digits
        }
        made = ir.with_reads(
            _rewritten(definition, functools.partial(moved, values=values)), changed
        )
        made = replace(_rewritten(made, _placed), axes=pieces(out, definition.axes))
        if isinstance(made, ir.Reduce):
            return replace(made, reduced=pieces(out, made.reduced))
        return made

    def shaped(array: ir.Array) -> ir.Array:
        own = axes[array.name]
        shape = tuple(axis.extent for axis in pieces(array.name, own))
        steps = tuple(
            whole * step
            for axis, whole in zip(own, array.steps, strict=False)
            for _, step in digits.get((array.name, axis), ((axis, 1),))
        )
        return replace(array, shape=shape, steps=steps or array.steps)

    # A recurrence runs along a whole axis.
    scanned = {(d.out, d.along) for d in algorithm.definitions if isinstance(d, ir.Scan)}
    for key in scanned & digits.keys():
        del digits[key]
    if not digits:
        return algorithm
    definitions = tuple(map(cut, algorithm.definitions))
    return replace(
        algorithm, definitions=definitions, outputs=tuple(map(shaped, algorithm.outputs))
    )


def _without_unread(algorithm: ir.Algorithm, least: int = LEAST_NARROWER) -> ir.Algorithm:
    """With definitions as far along their axes as they are read, where these are `least` times as long or longer, under
    the conditions of those that read them: of the halves of a concatenation each is computed alone."""
    results = {array.name for array in algorithm.outputs}
    for name in [d.out for d in reversed(algorithm.definitions)]:
        definition = algorithm.definition(name)
        if name in results or isinstance(definition, ir.Scan):
            continue
        reads = [
            read
            for d in algorithm.definitions
            if d != definition
            for e in ir.expressions_of(d)
            for read in reads_of(name, e, {})
        ]
        if not reads:
            continue
        axes, lows = definition.axes, list[int]()
        kept = list[Axis]()
        for n, axis in enumerate(axes):
            low, high = min(r[n][0] for r in reads), max(r[n][1] for r in reads)
            half = (high - low + 1) * least <= axis.extent
            within = low >= 0 and high < axis.extent and half
            lows.append(low if within else 0)
            kept.append(replace(axis, extent=high - low + 1) if within else axis)
        if tuple(kept) == axes:
            continue
        places = [
            Index(low) if new.extent == 1 < old.extent else index_of(new) + low
            for old, new, low in zip(axes, kept, lows, strict=True)
        ]
        gone = {
            n
            for n, (old, new) in enumerate(zip(axes, kept, strict=True))
            if new.extent == 1 < old.extent
        }

        def left(
            read: ir.Read,
            name: str = name,
            lows: Sequence[int] = lows,
            gone: Collection[int] = gone,
        ) -> ir.Read:
            if read.array != name:
                return read
            indices = (i - lows[n] for n, i in enumerate(read.indices) if n not in gone)
            return replace(read, indices=tuple(indices))

        values = dict(zip(axes, places, strict=True))
        made = _rewritten(definition, functools.partial(moved, values=values))
        made = replace(made, axes=tuple(a for n, a in enumerate(kept) if n not in gone))
        new = [made if d is definition else ir.with_reads(d, left) for d in algorithm.definitions]
        algorithm = replace(algorithm, definitions=tuple(new))
    return algorithm


def _placed(expression: ir.Expression) -> ir.Expression:
    """With the floors in indices as they are where the conditions around them hold: `(k + 1) // 24` is 0
    where `22 >= k`."""
    expression = ir.with_parts(expression, map(_placed, ir.parts_of(expression)))
    if not isinstance(expression, ir.Where):
        return expression
    on_true, on_false = expression.on_true, expression.on_false
    for condition in expression.conditions:
        on_true = _where(condition, on_true)
    if len(expression.conditions) == 1:
        on_false = _where(expression.conditions[0] * -1 - 1, on_false)
    return replace(expression, on_true=on_true, on_false=on_false)


def _where(condition: Index, expression: ir.Expression) -> ir.Expression:
    """The expression where a condition on one axis holds: with the one element of it that is left, beside others."""
    narrow = narrowed(condition)
    if narrow is None:
        return expression
    part, back = narrow
    terms = [i.terms for p in ir.walk(expression) for i in ir.indices_of(p)]
    beside = any(term in part for own in terms if own[1:] for term, _ in own)
    if beside and [axis.extent for axis in back] == [1]:
        one = {axis: place.substitute(dict.fromkeys(back, Index())) for axis, place in part.items()}
        return ir.substituted(expression, one, {})
    if not any(isinstance(term, Floor) for own in terms for term, _ in own):
        return expression
    return ir.substituted(ir.substituted(expression, part, {}), back, {})


def _digit_axes(axis: Axis, chain: tuple[int, ...]) -> tuple[tuple[Axis, int], ...]:
    """The digits of an axis, the coarsest first, each with its step."""
    steps = (1, *chain)
    ends = (*chain, axis.extent)
    found = [
        (Axis(f"{axis.name}_{number}", end // step), step)
        for number, (step, end) in enumerate(zip(steps, ends, strict=True))
    ]
    return tuple(reversed(found))
