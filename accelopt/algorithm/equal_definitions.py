"""What several definitions compute alike, computed once: alike up to names and order of axes, and up to the
order in which terms are added and factors multiplied.

before: s[m, l] = sum_k a[k, l] * a[k, m]; t[j, m] = sum_k a[k, m] * a[k, j]
after:  s alone, t[j, m] is read as s[j, m]
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.functions import COMMUTES
from accelopt.algorithm.index import Axis, Index, index_of

ASSOCIATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
MOST_ORDERS = 24
"""Orders of a definition's axes that are compared; of more, the one in which they are met."""
MOST_TERMS = 64
"""Of a sum or product that is taken apart: one that stands in itself twice has twice as many in each level."""


def defined_once(algorithm: ir.Algorithm, *, results_read: bool = True) -> ir.Algorithm:
    """The Algorithm without definitions that others compute alike, but for results. Those are read in the place of
    others that compute the same, before them or after, where `results_read`: not where memory holds them in a
    narrower format."""
    results = {array.name for array in algorithm.outputs}
    plain = {
        a.name for a in algorithm.outputs if a.dtype == "float32" and not (a.updates or a.steps)
    }
    first: dict[str, tuple[ir.Definition, tuple[int, ...]]] = {}
    same: dict[str, tuple[str, Sequence[int]]] = {}
    kept: list[ir.Definition] = []

    def renamed(read: ir.Read) -> ir.Read:
        name, places = same.get(read.array, (read.array, range(len(read.indices))))
        return ir.Read(name, tuple(read.indices[n] for n in places))

    for definition in algorithm.definitions:
        made = ir.with_reads(definition, renamed)
        if made.out in results and not results_read:
            kept.append(made)
            continue
        form, order = min(_forms(made))
        if form in first and made.out not in results:
            other, others = first[form]
            same[made.out] = other.out, tuple(order[others.index(n)] for n in range(len(order)))
        elif form in first and made.out in plain and first[form][0].out not in results:
            other, others = first[form]
            same = {other.out: (made.out, tuple(others[order.index(n)] for n in range(len(order))))}
            rest = (d for d in algorithm.definitions if d.out != made.out)
            read = (made if d.out == other.out else ir.with_reads(d, renamed) for d in rest)
            return defined_once(replace(algorithm, definitions=tuple(read)))
        else:
            first.setdefault(form, (made, order))
            kept.append(made)
    return replace(algorithm, definitions=tuple(kept))


def _forms(definition: ir.Definition) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Digests of a definition that do not depend on names, each for an order of its axes."""
    axes = definition.axes
    bound = definition.reduced if isinstance(definition, ir.Reduce) else ()
    many = math.factorial(len(axes)) * math.factorial(len(bound)) > MOST_ORDERS
    if many:
        met = _met(definition)
        orders = [tuple(sorted(range(len(axes)), key=lambda n: met.index(axes[n])))]
        bounds = [tuple(sorted(bound, key=met.index))]
    else:
        orders = list(itertools.permutations(range(len(axes))))
        bounds = list(itertools.permutations(bound))
    for order, inner in itertools.product(orders, bounds):
        names = {axes[n]: Axis(f"o{place}", axes[n].extent) for place, n in enumerate(order)}
        names |= {axis: Axis(f"r{place}", axis.extent) for place, axis in enumerate(inner)}
        values = {axis: index_of(named) for axis, named in names.items()}
        done: dict[ir.Expression, str] = {}
        parts = [_form(e, values, done) for e in ir.expressions_of(definition)]
        rest = replace(ir.with_expressions(definition, map(_nothing, parts)), out="", axes=())
        if isinstance(rest, ir.Reduce):
            rest = replace(rest, reduced=())
        if isinstance(rest, ir.Scan):
            rest = replace(rest, along=names[rest.along])
        extents = [str(axis) for axis in names.values()]
        yield digest(str(rest), *sorted(extents), *parts), order


def _met(definition: ir.Definition) -> list[Axis]:
    """The axes of a definition as one meets them, whatever they are called: those of equal definitions in one order,
    as long as no two factors or terms are alike but for their axes."""
    names = {axis: index_of(Axis("", axis.extent)) for axis in ir.own_axes(definition)}
    done: dict[ir.Expression, str] = {}
    waiting, found = [*reversed(ir.expressions_of(definition))], list[Axis]()
    while waiting:
        part = waiting.pop()
        for index in ir.indices_of(part):
            found += sorted(index.variables, key=lambda axis: -abs(index.coefficient(axis)))
        below = list(ir.parts_of(part))
        if isinstance(part, ir.Apply) and part.function in COMMUTES:
            below.sort(key=lambda one: _form(one, names, done))
        waiting += below[::-1]
    return list(dict.fromkeys([*found, *names]))


def _nothing(_: str) -> ir.Expression:
    return ir.Constant(0.0)


def _form(
    expression: ir.Expression, names: Mapping[Axis, Index], done: dict[ir.Expression, str]
) -> str:
    """A digest of an expression with other axes."""
    if expression not in done:
        function = expression.function if isinstance(expression, ir.Apply) else ""
        parts: list[ir.Expression] = list(ir.parts_of(expression))
        nested = function in ASSOCIATIVE
        while nested and len(parts) < MOST_TERMS and any(_applies(p, function) for p in parts):
            parts = [
                p
                for part in parts
                for p in (ir.parts_of(part) if _applies(part, function) else [part])
            ]
        below = [_form(part, names, done) for part in parts]
        indices = [str(index.substitute(names)) for index in ir.indices_of(expression)]
        own = ""
        if isinstance(expression, ir.Read):
            own = expression.array
        elif isinstance(expression, ir.Constant):
            own = repr(expression.value)
        elif isinstance(expression, ir.Indirect):
            own = str(expression.axis)
        if function in COMMUTES:
            below.sort()
        done[expression] = digest(type(expression).__name__, function, own, *indices, ";", *below)
    return done[expression]


def _applies(expression: ir.Expression, function: str) -> bool:
    return isinstance(expression, ir.Apply) and expression.function == function


def digest(*texts: str) -> str:
    """One for all of some texts, in order."""
    return hashlib.sha256("|".join(texts).encode()).hexdigest()
