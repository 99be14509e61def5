"""Choices of what is computed together, made on the definitions before a nest of them: a sum as one more
column of a product, and a definition again for some of its readers.

before:  total[l] = sum_j f(k[j, l]); state[n, l] = sum_j v[j, n] * f(k[j, l])
append:  state[n, l] = sum_j (v[j, n] if 63 >= n else 1) * f(k[j, l]), of one n more; total[l] is state[64, l]

before:  largest[m] = max_k p[m, k]; largest2[k] = max_m p[m, k]
repeat:  p_again[k, m] as p[m, k]; largest2[k] = max_m p_again[k, m]

before:  largest = max_mn f(x[m, n]); y[m, n] = f(x[m, n]) / largest
share:   largest_shared[m, n] as f(x[m, n]), which both read

before:      y[m, n] = sum_k a[m, k] * b[k, n] + 2 * sum_l c[m, l] * d[l, n]
accumulate:  the second sum goes on where the first, with 1/2 of a, has come to; y is twice that
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import ONE, contraction, factors_of, product_of
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.value_nodes import ORDERED
from accelopt.kernels.nki.nests.read_ranges import in_order, made_of
from accelopt.kernels.nki.nests.shared_expressions import LEAST_READ, operations, terms_of

SAME = 1e-5
"""Of a number that was summed in fp32."""


class NotTogether(Exception):
    """Definitions that are not computed so: the text names them and says why."""


def appended(algorithm: ir.Algorithm, name: str, product: str) -> ir.Algorithm:
    """With a sum as one more column of a product. Raises NotTogether."""
    total, wide = algorithm.definition(name), algorithm.definition(product)
    results = {array.name for array in algorithm.outputs} & {name, product}
    if results:
        raise NotTogether(f"{min(results)} is a result, whose shape is given")
    found = _shared(total, wide)
    if found is None or not isinstance(wide, ir.Reduce):
        raise NotTogether(f"{name} sums nothing that {product} multiplies, over the same")
    (columns,) = (axis for axis in wide.axes if axis not in total.axes)
    more = Axis(f"{columns.name}_more", columns.extent + 1)
    column = ir.substituted(found.operand, {columns: index_of(more)}, {})
    if ir.substituted(found.operand, {columns: Index(columns.extent)}, {}) != found.own:
        column = ir.Where((index_of(more) * -1 + (columns.extent - 1),), column, found.own)
    made: ir.Definition = replace(
        wide, axes=tuple(more if axis == columns else axis for axis in wide.axes),
        expression=product_of([*found.shared, column]),
    )  # fmt: skip
    places = [Index(columns.extent) if a == columns else index_of(a) for a in wide.axes]
    missing = ir.Constant(found.missing)

    def changed(expression: ir.Expression) -> ir.Expression | None:
        if isinstance(expression, ir.Apply) and expression.function == "add" and found.missing:
            part, number = expression.arguments
            known = isinstance(number, ir.Constant) and math.isclose(
                number.value, missing.value, rel_tol=SAME
            )
            if isinstance(part, ir.Read) and part.array == name and known:
                return placed(part)
        if isinstance(expression, ir.Read) and expression.array == name:
            if found.missing:
                raise NotTogether(f"{name} lacks {found.missing:g} of what {product} multiplies")
            return placed(expression)
        return None

    def placed(read: ir.Read) -> ir.Read:
        values = dict(zip(total.axes, read.indices, strict=True))
        return ir.Read(product, tuple(index.substitute(values) for index in places))

    rest = [made if d is wide else d for d in algorithm.definitions if d is not total]
    kept = [ir.with_changes(d, changed) for d in rest]
    try:
        return replace(algorithm, definitions=in_order(kept))
    except ValueError:
        raise NotTogether(f"{product} is made of {name}") from None


class _Shared(NamedTuple):
    """What a sum and a product share: factors, the `operand` in whose place the sum has its `own`, and how much
    is `missing` of the sum where a summand of the shared factor was taken out of it."""

    shared: list[ir.Expression]
    operand: ir.Expression
    own: ir.Expression
    missing: float


def _shared(total: ir.Definition, wide: ir.Definition) -> _Shared | None:
    if (
        not isinstance(total, ir.Reduce)
        or total.combiner != "add"
        or not isinstance(wide, ir.Reduce)
    ):
        return None
    found = contraction(wide)
    if found is None or {*total.reduced} != {*found.contracted} or found.scale != ONE:
        return None
    for operand, other, own in (
        (found.right, found.left, found.columns),
        (found.left, found.right, found.rows),
    ):
        factors, shared, missing = factors_of(total.expression), factors_of(other), 0.0
        if len(own) != 1 or {*total.axes} != {*wide.axes} - {*own}:
            continue
        if (
            isinstance(other, ir.Apply)
            and other.function == "add"
            and factors == [other.arguments[0]]
        ):
            number = other.arguments[1]
            if isinstance(number, ir.Constant):
                missing = number.value * math.prod(axis.extent for axis in total.reduced)
                factors = [other]
        if all(factors.count(factor) >= shared.count(factor) for factor in shared):
            for factor in shared:
                factors.remove(factor)
            rest = product_of(factors)
            if ir.axes_of(rest) <= {*found.batch, *found.contracted}:
                return _Shared(shared, operand, rest, missing)
    return None


def appending(algorithm: ir.Algorithm) -> Iterator[tuple[str, str]]:
    """Sums that could be columns, each with its product."""
    for total, wide in itertools.permutations(algorithm.definitions, 2):
        try:
            appended(algorithm, total.out, wide.out)
        except NotTogether:
            continue
        yield total.out, wide.out


def repeated(algorithm: ir.Algorithm, name: str, readers: Sequence[str]) -> ir.Algorithm:
    """With a definition computed again for some of its readers, with the axes that those keep before those
    that they combine. Raises NotTogether."""
    definition, again = algorithm.definition(name), f"{name}_again"
    reading = [d for d in algorithm.definitions if d.out in readers]
    names = {d.out for d in algorithm.definitions}
    if isinstance(definition, ir.Scan) or again in names:
        raise NotTogether(
            f"{name} is a recurrence" if again not in names else f"there is {again} already"
        )
    others = {d.out for d in readers_of(algorithm, name)}
    if not reading or not {*readers} < others:
        raise NotTogether(f"{', '.join(readers)} are not some of those that read {name}")
    if any(isinstance(d, ir.Reduce) and d.combiner in ORDERED for d in readers_of(algorithm, name)):
        raise NotTogether(
            f"{name} is compared with its largest, and computed again it may round otherwise"
        )
    order = _order(definition, reading)

    def changed(read: ir.Read) -> ir.Read:
        return ir.Read(again, tuple(read.indices[n] for n in order)) if read.array == name else read

    made = replace(definition, out=again, axes=tuple(definition.axes[n] for n in order))
    rest = [d for d in algorithm.definitions if d not in reading]
    moved = [ir.with_reads(d, changed) for d in reading]
    return replace(algorithm, definitions=in_order([*rest, made, *moved]))


def again_of(
    algorithm: ir.Algorithm, repeats: Sequence[tuple[str, Sequence[str]]]
) -> dict[str, tuple[str, ...]]:
    """For the definitions that are computed again, and those that read them, the axes that are kept there."""
    found: dict[str, tuple[str, ...]] = {}
    for name, readers in repeats:
        again = algorithm.definition(f"{name}_again")
        kept = [d.axes for d in map(algorithm.definition, readers) if isinstance(d, ir.Reduce)]
        for one in (again.out, *readers):
            if kept and set(kept[0]) <= set(algorithm.definition(one).axes):
                found[one] = tuple(axis.name for axis in kept[0])
    return found


def readers_of(algorithm: ir.Algorithm, name: str) -> list[ir.Definition]:
    """The definitions that read one."""
    return [d for d in algorithm.definitions if name in ir.arrays_read(d)]


def _order(definition: ir.Definition, readers: Sequence[ir.Definition]) -> list[int]:
    combined: set[int] = set()
    for reader in readers:
        summed = set(reader.reduced) if isinstance(reader, ir.Reduce) else set()
        for read in ir.reads_in(reader):
            if read.array == definition.out:
                combined |= {n for n, index in enumerate(read.indices) if index.axes & summed}
    return sorted(range(len(definition.axes)), key=lambda n: n in combined)


def repeating(algorithm: ir.Algorithm) -> Iterator[tuple[tuple[str, tuple[str, ...]], ...]]:
    """Products, with what is computed of them element by element, again for those that combine them over
    the axes that others keep."""
    for product in algorithm.definitions:
        if not isinstance(product, ir.Reduce) or contraction(product) is None:
            continue
        chain = [product.out]
        while len(reading := readers_of(algorithm, chain[-1])) == 1 and isinstance(
            reading[0], ir.Map
        ):
            if {*reading[0].axes} != {*product.axes}:
                break
            chain.append(reading[0].out)
        groups: dict[frozenset[int], list[str]] = {}
        for reader in reading:
            if isinstance(reader, ir.Reduce) and contraction(reader) is None:
                own = algorithm.definition(chain[-1])
                kept = frozenset(_order(own, [reader])[: len(reader.axes)])
                groups.setdefault(kept, []).append(reader.out)
        if len(groups) < 2:
            continue
        for group in groups.values():
            with_it = [
                d.out for d in reading
                if d.out in group or any(d in readers_of(algorithm, one) for one in group)
            ]  # fmt: skip
            steps = [(chain[-1], tuple(with_it))]
            steps += [(before, (f"{after}_again",)) for before, after in itertools.pairwise(chain)][
                ::-1
            ]
            try:
                made = algorithm
                for name, readers in steps:
                    made = repeated(made, name, readers)
            except NotTogether:
                continue
            yield tuple(steps)


def shared(algorithm: ir.Algorithm, name: str, reader: str) -> ir.Algorithm:
    """With a definition for the longest expression that a definition and a reader of what it comes to both have; what
    waits for fewer sums comes first. Raises NotTogether."""
    one, other, own = algorithm.definition(name), algorithm.definition(reader), f"{name}_shared"
    alike = {*ir.parts_in(one)} & {*ir.parts_in(other)}
    found = max(alike, key=lambda e: (operations(e), str(e)), default=ONE)
    if name not in made_of(algorithm, reader) or operations(found) < LEAST_READ:
        raise NotTogether(f"{reader} computes nothing that {name}, which it waits for, does too")
    if own in {d.out for d in algorithm.definitions}:
        raise NotTogether(f"there is {own} already")
    axes = tuple(axis for axis in ir.own_axes(one) if axis in ir.axes_of(found))
    read = ir.Read(own, tuple(map(index_of, axes)))
    rest = [ir.with_part(d, found, read) for d in algorithm.definitions]
    sums, waits = {d.out for d in rest if isinstance(d, ir.Reduce)}, dict[str, int]()
    for d in (ordered := in_order([ir.Map(own, axes, found), *rest])):
        before = ir.arrays_read(d) & waits.keys()
        waits[d.out] = max((waits[a] + (a in sums) for a in before), default=0)
    return replace(algorithm, definitions=tuple(sorted(ordered, key=lambda d: waits[d.out])))


def sharing(algorithm: ir.Algorithm) -> Iterator[tuple[str, str]]:
    """Sums, each with what computes the same of whole arrays when one number has been made of them."""
    numbers = {d.out for d in algorithm.definitions if not d.axes}
    for one, other in itertools.permutations(algorithm.definitions, 2) if numbers else ():
        if isinstance(one, ir.Reduce) and numbers & made_of(algorithm, other.out):
            with suppress(NotTogether):
                made = shared(algorithm, one.out, other.out)
                if {*made.definition(f"{one.out}_shared").axes} == {*ir.own_axes(one)}:
                    yield one.out, other.out


def brought(algorithm: ir.Algorithm, name: str) -> ir.Algorithm:
    """With a definition for an input of which several definitions read the same elements, each at one place: it
    may stay on the chip for all of them. Raises NotTogether."""
    places, first = dict[str, tuple[Axis, ...]](), ir.Read(name, ())
    for definition in algorithm.definitions:
        reads = [*{read for read in ir.reads_in(definition) if read.array == name}]
        terms = [term for read in reads[:1] for index in read.indices for term, _ in index.terms]
        axes = tuple(dict.fromkeys(term for term in terms if isinstance(term, Axis)))
        if len(reads) > 1 or len(axes) < len(terms):
            raise NotTogether(f"{definition.out} reads {name} at several places")
        if reads:
            first, own = (first, next(iter(places.values()))) if places else (reads[0], axes)
            there = ir.substituted(first, dict(zip(own, map(index_of, axes), strict=False)), {})
            if there != reads[0] or [a.extent for a in own] != [a.extent for a in axes]:
                raise NotTogether(f"{definition.out} reads {name} at other places than others")
            places[definition.out] = axes
    if not places:
        raise NotTogether(f"{name} is not read")
    made = ir.Map(f"{name}_here", next(iter(places.values())), first)

    def here(read: ir.Read, axes: tuple[Axis, ...]) -> ir.Read:
        return ir.Read(made.out, tuple(map(index_of, axes))) if read.array == name else read

    rest = [
        ir.with_reads(d, functools.partial(here, axes=places.get(d.out, ())))
        for d in algorithm.definitions
    ]
    return replace(algorithm, definitions=(made, *rest))


def accumulating(algorithm: ir.Algorithm) -> Iterator[tuple[str, str]]:
    """Products of which another definition takes nothing but their sum, each with the last of them."""
    order = {d.out: n for n, d in enumerate(algorithm.definitions)}
    results = {array.name for array in algorithm.outputs}
    seen = set[str]()
    for reader in algorithm.definitions:
        for part in ir.parts_in(reader):  # the longest sums first
            reads = {
                term.array: factor
                for factor, term in terms_of(part)
                if isinstance(term, ir.Read) and term.array in order and factor
                if _alone(algorithm, term, reader)
            }
            names = sorted(reads.keys() - results - seen, key=order.__getitem__)
            seen.update(names)
            for name in names[:-1]:
                if set(algorithm.definition(name).axes) == set(
                    algorithm.definition(names[-1]).axes
                ):
                    yield name, names[-1]


def _alone(algorithm: ir.Algorithm, read: ir.Read, reader: ir.Definition) -> bool:
    """Whether a product's elements are read at their own places, there and by one definition alone."""
    product = algorithm.definition(read.array)
    if not isinstance(product, ir.Reduce) or contraction(product) is None:
        return False
    parts = [*ir.parts_in(reader)]
    above = [p for p in parts if read in ir.parts_of(p)]
    others = [d for d in readers_of(algorithm, read.array) if d is not reader]
    own = {p for p in parts if isinstance(p, ir.Read) and p.array == read.array}
    return read.indices == tuple(map(index_of, product.axes)) and own == {read} and (
        not others and len(above) == 1)  # fmt: skip


@functools.lru_cache(maxsize=256)
def accumulated(
    algorithm: ir.Algorithm, pairs: tuple[tuple[str, str], ...]
) -> tuple[ir.Algorithm, dict[str, list[tuple[str, float]]]]:
    """The definitions as who computes products in one sum reads them: the last stands for all. With it, by the
    last, the others and the number that each is multiplied by. Raises NotTogether."""
    into: dict[str, list[tuple[str, float]]] = {}
    for name, last in pairs:
        if (name, last) not in {*accumulating(algorithm)}:
            raise NotTogether(f"no definition takes just a sum of {name} and {last}")

        def changed(expression: ir.Expression, name: str = name, last: str = last) -> ir.Expression:
            terms = list(terms_of(expression))
            factors = {t.array: f for f, t in terms if isinstance(t, ir.Read)}
            if not {name, last} <= factors.keys():
                return ir.with_parts(expression, (changed(p) for p in ir.parts_of(expression)))
            into.setdefault(last, []).append((name, factors[name] / factors[last]))
            left = [(f, t) for f, t in terms if not isinstance(t, ir.Read) or t.array != name]
            made = [ir.times(t, f) for f, t in left]
            return functools.reduce(lambda a, b: ir.Apply("add", (a, b)), made)

        rest = [
            ir.with_expressions(d, map(changed, ir.expressions_of(d)))
            for d in algorithm.definitions
        ]
        algorithm = replace(algorithm, definitions=tuple(rest))
    return algorithm, into
