"""Expressions with choices outermost and what tiles add to a problem taken away.

A tile that overhangs its axis leaves choices deep in what is lifted: `exp((x[k] if k <= 99 else -inf) - m)`.
Here that is `exp(x[k] - m) if k <= 99 else 0`, and a sum of it runs over 100 elements. What is multiplied by
0 is taken to be finite, as the kernels take it that were lifted.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from accelopt.algorithm.algorithm import (
    Algorithm,
    Apply,
    Constant,
    Definition,
    Expression,
    Position,
    Read,
    Reduce,
    Scan,
    Where,
    axes_of,
    expressions_of,
    parts_of,
    substituted,
    walk,
    with_expressions,
    with_parts,
)
from accelopt.algorithm.contraction import Contraction, contraction, factors_of, product_of
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.algorithm.values import follows

D = TypeVar("D", bound=Definition)
INFINITE = 1e38
"""Numbers that large stand for infinity."""


def simplified(algorithm: Algorithm) -> Algorithm:
    """The same Algorithm: choices outermost, sums over no more than what is added, sums of sums joined, no
    axis of one element."""
    definitions = [_without_ones(d) for d in algorithm.definitions]
    definitions = [_simple(d) for d in definitions]
    made = _joined_sums(replace(algorithm, definitions=tuple(definitions)))
    return _once(replace(made, definitions=tuple(_narrowed(d) for d in made.definitions)))


def _once(algorithm: Algorithm) -> Algorithm:
    """With what is defined twice, under other names of its axes, defined once."""
    first: dict[Definition, str] = {}
    same: dict[str, str] = {}
    kept: list[Definition] = []
    results = {array.name for array in algorithm.outputs}

    def renamed(expression: Expression) -> Expression:
        if isinstance(expression, Read) and expression.array in same:
            return replace(expression, array=same[expression.array])
        return with_parts(expression, map(renamed, parts_of(expression)))

    for definition in algorithm.definitions:
        made = with_expressions(definition, map(renamed, expressions_of(definition)))
        kept.append(made)
        if isinstance(made, Scan) or made.out in results:
            continue
        reduced = made.reduced if isinstance(made, Reduce) else ()
        names = {a: Axis(f"{n}", a.extent) for n, a in enumerate((*made.axes, *reduced))}
        moved = {a: index_of(b) for a, b in names.items()}
        bare = [substituted(e, moved, {}) for e in expressions_of(made)]
        plain = replace(
            with_expressions(made, bare), out="", axes=tuple(names[a] for a in made.axes)
        )
        if isinstance(plain, Reduce):
            plain = replace(plain, reduced=tuple(names[a] for a in reduced))
        known = first.setdefault(plain, made.out)
        if known != made.out:
            same[made.out] = known
            kept.pop()
    return replace(algorithm, definitions=tuple(kept))


def _simple(definition: D) -> D:
    done: dict[Expression, Expression] = {}
    found = (simple(e, done) for e in expressions_of(definition))
    return with_expressions(definition, found)  # type: ignore[return-value]


def _without_ones(definition: Definition) -> Definition:
    """Without the axes of one element that it reduces, and with 0 in the place of its other ones."""
    ones = {a: ZERO for e in expressions_of(definition) for a in axes_of(e) if a.extent == 1}
    found = (substituted(e, ones, {}) for e in expressions_of(definition))
    made = with_expressions(definition, found)
    if isinstance(made, Reduce):
        made = replace(made, reduced=tuple(a for a in made.reduced if a.extent > 1))
    return made


def simple(expression: Expression, done: dict[Expression, Expression]) -> Expression:
    """The expression with numbers computed and choices outermost. `done` keeps what was made before."""
    if expression not in done:
        made = with_parts(expression, [simple(part, done) for part in parts_of(expression)])
        if isinstance(made, Apply):
            made = applied(made.function, made.arguments)
        elif isinstance(made, Where):
            made = chosen(made.conditions, made.on_true, made.on_false)
        elif isinstance(made, Position) and made.index.is_constant:
            made = Constant(float(made.index.constant))
        done[expression] = made
    return done[expression]


def chosen(conditions: tuple[Index, ...], yes: Expression, no: Expression) -> Expression:
    """A choice, without the conditions that always hold and those that a choice in it repeats."""
    left = tuple(c for c in dict.fromkeys(conditions) if c.bounds[0] < 0)
    for condition in left if len(left) > 1 else ():
        others = tuple(c for c in left if c != condition)
        left = others if follows(condition, others) else left
    if any(c.bounds[1] < 0 for c in left) or yes == no:
        return no
    if isinstance(yes, Where) and yes.on_false == no:
        return chosen((*left, *yes.conditions), yes.on_true, no)
    return Where(left, yes, no) if left else yes


def applied(name: str, arguments: tuple[Expression, ...]) -> Expression:
    """A function of some expressions, which is a choice itself where one of them is and the other branch
    comes out as a number."""
    folded = _folded(name, arguments)
    if folded is not None:
        return folded
    for argument in arguments:
        if not isinstance(argument, Where):
            continue
        branches = [
            (a.on_true, a.on_false)
            if isinstance(a, Where) and a.conditions == argument.conditions
            else (a, a)
            for a in arguments
        ]
        no = applied(name, tuple(pair[1] for pair in branches))
        if isinstance(no, Constant):
            yes = applied(name, tuple(pair[0] for pair in branches))
            return chosen(argument.conditions, yes, no)
    return Apply(name, arguments)


def _folded(name: str, arguments: tuple[Expression, ...]) -> Expression | None:
    numbers = [a.value for a in arguments if isinstance(a, Constant)]
    if len(numbers) == len(arguments):
        with np.errstate(all="ignore"):
            return Constant(float(FUNCTIONS[name](*map(np.float64, numbers))))
    if name == "select" and arguments[1] == arguments[2]:
        return arguments[1]
    if name == "select" and isinstance(arguments[0], Constant):
        return arguments[1] if arguments[0].value else arguments[2]
    if name == "select" and arguments[1:] == (Constant(1.0), Constant(0.0)):
        return arguments[0] if _is_truth(arguments[0]) else None
    if len(arguments) != 2 or not numbers:
        return None
    (number,) = numbers
    left = isinstance(arguments[0], Constant)
    other = arguments[1] if left else arguments[0]
    if abs(number) >= INFINITE and name in ("add", "subtract"):
        return Constant(number if left or name == "add" else -number)
    if abs(number) >= INFINITE and name in ("maximum", "minimum"):
        return other if (number < 0) == (name == "maximum") else Constant(number)
    if name == "multiply" and number in (0.0, 1.0):
        return other if number else Constant(0.0)
    if name == "multiply" and isinstance(other, Apply) and other.function == "multiply":
        for n, part in enumerate(other.arguments):
            if isinstance(part, Constant):
                return applied("multiply", (other.arguments[1 - n], Constant(part.value * number)))
    if name == "subtract" and left and not number:
        return Apply("negative", (other,))
    if name == "divide" and left and not number:
        return Constant(0.0)
    neutral = {"add": 0.0, "subtract": 0.0, "divide": 1.0, "power": 1.0}.get(name)
    return other if number == neutral and (name == "add" or not left) else None


TRUTHS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
          "logical_or", "logical_xor", "logical_not")  # fmt: skip
"""Functions that give 1 and 0."""


def _is_truth(expression: Expression) -> bool:
    return isinstance(expression, Apply) and expression.function in TRUTHS


def _neutral(value: Expression, combiner: str) -> bool:
    if not isinstance(value, Constant):
        return False
    neutral = NEUTRAL[combiner]
    return value.value == neutral or (value.value / neutral > 0 and abs(value.value) >= INFINITE
                                      if math.isinf(neutral) else False)  # fmt: skip


def _narrowed(definition: Definition) -> Definition:
    """A reduction over those elements alone that a condition on one axis leaves."""
    if not isinstance(definition, Reduce):
        return definition
    body = definition.expression
    if not isinstance(body, Where) or not _neutral(body.on_false, definition.combiner):
        return definition
    for condition in body.conditions:
        if len(condition.terms) != 1 or condition.terms[0][0] not in definition.reduced:
            continue
        axis, factor = condition.terms[0]
        assert isinstance(axis, Axis)
        low, high = 0, axis.extent - 1
        if factor < 0:
            high = min(high, condition.constant // -factor)
        else:
            low = max(low, -(condition.constant // factor))
        part = Axis(axis.name, high - low + 1)
        if part.extent < 1:
            return definition
        moved = index_of(part) + low if part.extent > 1 else Index(low)
        made = simple(substituted(body, {axis: moved}, {}), {})
        reduced = tuple(part if a == axis else a for a in definition.reduced)
        return _narrowed(
            replace(definition, expression=made, reduced=tuple(a for a in reduced if a.extent > 1))
        )
    return definition


def _joined_sums(algorithm: Algorithm) -> Algorithm:
    """A sum of sums (or an extreme of extremes) as one over the axes of both, where nobody else reads the
    inner ones."""
    found = list(algorithm.definitions)
    results = {array.name for array in algorithm.outputs}
    for outer in list(found):
        if not isinstance(outer, Reduce):
            continue
        bare, conditions = outer.expression, tuple[Index, ...]()
        if isinstance(bare, Where) and _neutral(bare.on_false, outer.combiner):
            bare, conditions = bare.on_true, bare.conditions
        if not isinstance(bare, Read) or bare.array in results:
            continue
        inner = next((d for d in found if d.out == bare.array), None)
        readers = [d for d in found if bare.array in arrays_read(d)]
        if not isinstance(inner, Reduce) or inner.combiner != outer.combiner or len(readers) > 1:
            continue
        free = {a: Axis(f"{a.name}_{outer.out}", a.extent) for a in inner.reduced}
        moved = {a: index_of(b) for a, b in free.items()}
        moved |= dict(zip(inner.axes, bare.indices, strict=True))
        body = simple(substituted(inner.expression, moved, {}), {})
        body = chosen(conditions, body, Constant(NEUTRAL[outer.combiner]))
        made = replace(outer, expression=body, reduced=(*outer.reduced, *free.values()))
        found[found.index(outer)] = made
        found.remove(inner)
    return replace(algorithm, definitions=tuple(found))


def arrays_read(definition: Definition) -> set[str]:
    """The arrays that a definition reads, but for itself."""
    parts = (part for e in expressions_of(definition) for part in walk(e))
    return {part.array for part in parts if isinstance(part, Read)} - {definition.out}


def conditions_of(definition: Reduce) -> tuple[Index, ...]:
    """What holds of every element that counts in a reduction."""
    body = definition.expression
    held = isinstance(body, Where) and _neutral(body.on_false, definition.combiner)
    return body.conditions if held and isinstance(body, Where) else ()


def reads_of(definition: Definition) -> list[Read]:
    """Every element that a definition reads."""
    parts = (part for e in expressions_of(definition) for part in walk(e))
    return [part for part in parts if isinstance(part, Read)]


def product_in(definition: Definition) -> Contraction | None:
    """The matrix product that a definition is; a mask of the sum is one of an operand."""
    if not isinstance(definition, Reduce) or definition.combiner != "add":
        return None
    conditions = conditions_of(definition)
    if not conditions:
        return contraction(definition)
    assert isinstance(definition.expression, Where)
    factors = factors_of(definition.expression.on_true)
    asked = {axis for index in conditions for axis in index.axes}

    def fit(factor: Expression) -> tuple[int, int]:
        own = axes_of(factor)
        return len(asked - own), len(own - asked)

    masked = min(factors, key=fit)
    n = factors.index(masked)
    factors[n] = Where(conditions, masked, Constant(0.0))
    return contraction(replace(definition, expression=product_of(factors)))
