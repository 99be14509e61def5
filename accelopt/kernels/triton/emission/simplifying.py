"""Expressions with choices outermost and what tiles add to a problem taken away.

A tile that overhangs its axis leaves choices deep in what is lifted: `exp((x[k] if k <= 99 else -inf) - m)`.
Here that is `exp(x[k] - m) if k <= 99 else 0`, and a sum of it runs over 100 elements. What is multiplied by
0 is taken to be finite, as the kernels take it that were lifted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction, contraction, factors_of, product_of
from accelopt.algorithm.equal_definitions import defined_once
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import ZERO, Axis, Index, index_of
from accelopt.algorithm.value_nodes import NEUTRAL
from accelopt.algorithm.values import follows
from accelopt.kernels.triton.emission.base_two import in_base_two
from accelopt.kernels.triton.emission.runtime_bounds import implies

D = TypeVar("D", bound=ir.Definition)
INFINITE = 1e30
"""Numbers that large stand for infinity."""


def simplified(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The same Algorithm: choices outermost, sums over no more than what is added, sums of sums joined, no
    axis of one element, what lies beside each other added last."""
    definitions = [_without_ones(d) for d in algorithm.definitions]
    definitions = [_simple(d) for d in definitions]
    made = _joined_sums(replace(algorithm, definitions=tuple(definitions)))
    made = replace(made, definitions=tuple(_by_steps(_narrowed(d)) for d in made.definitions))
    return in_base_two(defined_once(_as_read(made), results_read=False))


def _by_steps(definition: D) -> D:
    """With the axes that are summed in the order of their steps in memory, the largest first."""
    if not isinstance(definition, ir.Reduce):
        return definition
    last: dict[Axis, tuple[int, int]] = {}
    for read in ir.reads_in(definition):
        for place, index in enumerate(read.indices, -len(read.indices)):
            for axis in index.axes:
                step = place, -abs(index.coefficient(axis))
                last[axis] = max(last.get(axis, step), step)
    ordered = sorted(definition.reduced, key=lambda axis: last.get(axis, (0, 0)))
    return replace(definition, reduced=tuple(ordered))


def _as_read(algorithm: ir.Algorithm) -> ir.Algorithm:
    """With no more elements of a definition than others read: tiles leave some behind its end."""
    results = {array.name for array in algorithm.outputs}
    found = list(algorithm.definitions)
    for number in reversed(range(len(found))):
        own = found[number]
        reads = [read for later in found for read in ir.reads_in(later) if read.array == own.out]
        if own.out in results or isinstance(own, ir.Scan) or not reads:
            continue
        most = [max(read.indices[n].bounds[1] for read in reads) + 1 for n in range(len(own.axes))]
        fewer = {
            a: Axis(a.name, n) for a, n in zip(own.axes, most, strict=True) if 0 < n < a.extent
        }
        moved = {a: index_of(b) if b.extent > 1 else ZERO for a, b in fewer.items()}
        bodies = [simple(ir.substituted(e, moved, {}), {}) for e in ir.expressions_of(own)]
        axes = tuple(fewer.get(axis, axis) for axis in own.axes)
        found[number] = replace(ir.with_expressions(own, bodies), axes=axes)
    return replace(algorithm, definitions=tuple(found))


def _simple(definition: D) -> D:
    done: dict[ir.Expression, ir.Expression] = {}
    found = [simple(e, done) for e in ir.expressions_of(definition)]
    if isinstance(definition, ir.Reduce) and definition.combiner in ("maximum", "minimum"):
        found = [_with_neutral(e, definition.combiner) for e in found]
    return ir.with_expressions(definition, found)  # type: ignore[return-value]


def _with_neutral(expression: ir.Expression, combiner: str) -> ir.Expression:
    """A choice in an extreme, with what is neutral in the place of numbers that stand for it."""
    if not _test(expression) or not _neutral(branch(expression, False), combiner):
        return expression
    yes, no = _with_neutral(branch(expression), combiner), ir.Constant(NEUTRAL[combiner])
    if isinstance(expression, ir.Where):
        return chosen(expression.conditions, yes, no)
    return selected([t for t in _test(expression) if isinstance(t, ir.Apply)], yes, no)


def _without_ones(definition: ir.Definition) -> ir.Definition:
    """Without the axes of one element that it reduces, and with 0 in the place of its other ones."""
    ones = {a: ZERO for e in ir.expressions_of(definition) for a in ir.axes_of(e) if a.extent == 1}
    found = (ir.substituted(e, ones, {}) for e in ir.expressions_of(definition))
    made = ir.with_expressions(definition, found)
    if isinstance(made, ir.Reduce):
        made = replace(made, reduced=tuple(a for a in made.reduced if a.extent > 1))
    return made


def simple(expression: ir.Expression, done: dict[ir.Expression, ir.Expression]) -> ir.Expression:
    """The expression with numbers computed and choices outermost. `done` keeps what was made before."""
    if expression not in done:
        made = ir.with_parts(expression, [simple(part, done) for part in ir.parts_of(expression)])
        if isinstance(made, ir.Apply):
            made = applied(made.function, made.arguments)
        elif isinstance(made, ir.Where):
            made = chosen(made.conditions, made.on_true, made.on_false)
        elif isinstance(made, ir.Position) and made.index.is_constant:
            made = ir.Constant(float(made.index.constant))
        done[expression] = made
    return done[expression]


def chosen(conditions: tuple[Index, ...], yes: ir.Expression, no: ir.Expression) -> ir.Expression:
    """A choice, without the conditions that always hold and those that a choice in it repeats."""
    left = tuple(c for c in dict.fromkeys(conditions) if c.bounds[0] < 0)
    for condition in left if len(left) > 1 else ():
        others = tuple(c for c in left if c != condition)
        left = others if follows(condition, others) else left
    if any(c.bounds[1] < 0 for c in left) or yes == no:
        return no
    if isinstance(yes, ir.Where) and yes.on_false == no:
        return chosen((*left, *yes.conditions), yes.on_true, no)
    return ir.Where(left, yes, no) if left else yes


def applied(name: str, arguments: tuple[ir.Expression, ...]) -> ir.Expression:
    """A function of some expressions, which is a choice itself where one of them is and the other branch
    comes out as a number."""
    folded = _folded(name, arguments)
    if folded is not None:
        return folded
    for argument in arguments:
        test = _test(argument)
        if not test:
            continue
        pairs = [(a, a) if _test(a) != test else (branch(a), branch(a, False)) for a in arguments]
        no = applied(name, tuple(pair[1] for pair in pairs))
        if isinstance(no, ir.Constant):
            yes = applied(name, tuple(pair[0] for pair in pairs))
            if isinstance(argument, ir.Where):
                return chosen(argument.conditions, yes, no)
            return selected([t for t in test if isinstance(t, ir.Apply)], yes, no)
    if name == "select" and isinstance(arguments[2], ir.Constant):
        return selected(tests_of(arguments[0]), arguments[1], arguments[2])
    return ir.Apply(name, arguments)


def _test(expression: ir.Expression) -> tuple[Index | ir.Expression, ...]:
    """What a choice is made by whose other branch is a number: conditions, or what is found at run time."""
    if isinstance(expression, ir.Where) and isinstance(expression.on_false, ir.Constant):
        return expression.conditions
    if not isinstance(expression, ir.Apply) or expression.function != "select":
        return ()
    by_number = isinstance(expression.arguments[2], ir.Constant)
    return tuple(tests_of(expression.arguments[0])) if by_number else ()


def branch(choice: ir.Expression, holds: bool = True) -> ir.Expression:
    """What a choice is where it holds, or where it does not."""
    if isinstance(choice, ir.Where):
        return choice.on_true if holds else choice.on_false
    assert isinstance(choice, ir.Apply)
    return choice.arguments[1 if holds else 2]


def tests_of(expression: ir.Expression) -> list[ir.Expression]:
    """What must all be true for an expression to be."""
    if isinstance(expression, ir.Apply) and expression.function == "logical_and":
        return [test for part in expression.arguments for test in tests_of(part)]
    if isinstance(expression, ir.Apply) and expression.function == "select":
        test, yes, no = expression.arguments
        if no == ir.Constant(0.0) and _is_truth(yes):
            return [*tests_of(test), *tests_of(yes)]
    if isinstance(expression, ir.Apply) and expression.function == "logical_not":
        (held,) = expression.arguments
        if isinstance(held, ir.Apply) and held.function == "logical_or":
            return [
                test for one in held.arguments for test in tests_of(applied("logical_not", (one,)))
            ]
    return [expression]


def selected(
    given: Sequence[ir.Expression], yes: ir.Expression, no: ir.Expression
) -> ir.Expression:
    """A choice by what is found at run time, one for several within each other, without the tests that
    follow from others."""
    tests = list(dict.fromkeys(given))
    yes = _under(yes, frozenset(tests), {})
    while isinstance(yes, ir.Apply) and yes.function == "select" and yes.arguments[2] == no:
        tests = list(dict.fromkeys([*tests, *tests_of(yes.arguments[0])]))
        yes = _under(yes.arguments[1], frozenset(tests), {})
    if yes == no:
        return no
    for test in list(tests):
        if any(other != test and implies(other, test) for other in tests):
            tests.remove(test)
    made = tests[0]
    for test in tests[1:]:
        made = ir.Apply("logical_and", (made, test))
    return ir.Apply("select", (made, yes, no))


def _under(
    expression: ir.Expression,
    tests: frozenset[ir.Expression],
    done: dict[ir.Expression, ir.Expression],
) -> ir.Expression:
    """The expression where some tests hold."""
    if expression not in done:
        own = _test(expression)
        if own and not isinstance(expression, ir.Where) and tests.issuperset(own):
            done[expression] = _under(branch(expression), tests, done)
        else:
            parts = [_under(part, tests, done) for part in ir.parts_of(expression)]
            done[expression] = ir.with_parts(expression, parts)
    return done[expression]


def unguarded(expression: ir.Expression, no: float | None = None) -> ir.Expression:
    """What a choice is where it holds, as long as its other branch is a number (`no`, where it is given)."""
    while _test(expression) and (no is None or branch(expression, False) == ir.Constant(no)):
        expression = branch(expression)
    return expression


def _folded(name: str, arguments: tuple[ir.Expression, ...]) -> ir.Expression | None:
    numbers = [a.value for a in arguments if isinstance(a, ir.Constant)]
    if len(numbers) == len(arguments):
        with np.errstate(all="ignore"):
            return ir.Constant(float(FUNCTIONS[name](*map(np.float64, numbers))))
    if name == "select" and arguments[1] == arguments[2]:
        return arguments[1]
    if name == "select" and isinstance(arguments[0], ir.Constant):
        return arguments[1] if arguments[0].value else arguments[2]
    if name == "select" and _is_truth(arguments[0]):
        if arguments[1:] == (ir.Constant(1.0), ir.Constant(0.0)):
            return arguments[0]
        if arguments[1:] == (ir.Constant(0.0), ir.Constant(1.0)):
            return ir.Apply("logical_not", (arguments[0],))
        if arguments[1] == ir.Constant(1.0) and _is_truth(arguments[2]):
            return ir.Apply("logical_or", (arguments[0], arguments[2]))
    if len(arguments) != 2 or not numbers:
        return None
    (number,) = numbers
    left = isinstance(arguments[0], ir.Constant)
    other = arguments[1] if left else arguments[0]
    if abs(number) >= INFINITE and name in ("add", "subtract"):
        return ir.Constant(number if left or name == "add" else -number)
    if abs(number) >= INFINITE and name in ("maximum", "minimum"):
        return other if (number < 0) == (name == "maximum") else ir.Constant(number)
    if name == "multiply" and number in (0.0, 1.0):
        return other if number else ir.Constant(0.0)
    if name == "multiply" and isinstance(other, ir.Apply) and other.function == "multiply":
        for n, part in enumerate(other.arguments):
            if isinstance(part, ir.Constant):
                return applied(
                    "multiply", (other.arguments[1 - n], ir.Constant(part.value * number))
                )
    if name == "subtract" and left and not number:
        return ir.Apply("negative", (other,))
    if name == "divide" and left and not number:
        return ir.Constant(0.0)
    neutral = {"add": 0.0, "subtract": 0.0, "divide": 1.0, "power": 1.0}.get(name)
    return other if number == neutral and (name == "add" or not left) else None


TRUTHS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
          "logical_or", "logical_xor", "logical_not")  # fmt: skip
"""Functions that give 1 and 0."""


def _is_truth(expression: ir.Expression) -> bool:
    return isinstance(expression, ir.Apply) and expression.function in TRUTHS


def _neutral(value: ir.Expression, combiner: str) -> bool:
    if not isinstance(value, ir.Constant):
        return False
    neutral = NEUTRAL[combiner]
    large = math.isinf(neutral) and abs(value.value) >= INFINITE
    return value.value == neutral or (large and value.value * neutral > 0)


def _narrowed(definition: ir.Definition) -> ir.Definition:
    """A reduction over those elements alone that a condition on one axis leaves."""
    if not isinstance(definition, ir.Reduce):
        return definition
    body = definition.expression
    if not isinstance(body, ir.Where) or not _neutral(body.on_false, definition.combiner):
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
        made = simple(ir.substituted(body, {axis: moved}, {}), {})
        reduced = tuple(part if a == axis else a for a in definition.reduced)
        return _narrowed(
            replace(definition, expression=made, reduced=tuple(a for a in reduced if a.extent > 1))
        )
    return definition


def _joined_sums(algorithm: ir.Algorithm) -> ir.Algorithm:
    """A sum of sums (or an extreme of extremes) as one over the axes of both, where nobody else reads the
    inner ones."""
    found = list(algorithm.definitions)
    results = {array.name for array in algorithm.outputs}
    for outer in list(found):
        if not isinstance(outer, ir.Reduce):
            continue
        neutral = NEUTRAL[outer.combiner]
        bare = unguarded(outer.expression, neutral)
        if not isinstance(bare, ir.Read) or bare.array in results:
            continue
        inner = next((d for d in found if d.out == bare.array), None)
        readers = [d for d in found if bare.array in ir.arrays_read(d)]
        if not isinstance(inner, ir.Reduce) or inner.combiner != outer.combiner or len(readers) > 1:
            continue
        if any(isinstance(t, ir.Apply) and t.function == "equal" for t in conditions_of(outer)):
            continue  # it says where an element lies
        free = {a: Axis(f"{a.name}_{outer.out}", a.extent) for a in inner.reduced}
        moved = {a: index_of(b) for a, b in free.items()}
        moved |= dict(zip(inner.axes, bare.indices, strict=True))
        body = simple(ir.substituted(inner.expression, moved, {}), {})
        body = _reguarded(outer.expression, bare, body)
        made = replace(outer, expression=body, reduced=(*outer.reduced, *free.values()))
        found[found.index(outer)] = made
        found.remove(inner)
    return replace(algorithm, definitions=tuple(found))


def _reguarded(
    expression: ir.Expression, bare: ir.Expression, body: ir.Expression
) -> ir.Expression:
    """Another expression behind the choices that stand around one."""
    if expression == bare:
        return body
    inner, no = _reguarded(branch(expression), bare, body), branch(expression, False)
    if isinstance(expression, ir.Where):
        return chosen(expression.conditions, inner, no)
    if isinstance(inner, ir.Where) and inner.on_false == no:
        tests = [t for t in _test(expression) if isinstance(t, ir.Apply)]
        return chosen(inner.conditions, selected(tests, inner.on_true, no), no)
    return selected([t for t in _test(expression) if isinstance(t, ir.Apply)], inner, no)


def conditions_of(definition: ir.Reduce) -> tuple[Index | ir.Expression, ...]:
    """What holds of every element that counts in a reduction: conditions, and tests at run time."""
    body, found = definition.expression, list[Index | ir.Expression]()
    while (test := _test(body)) and _neutral(branch(body, False), definition.combiner):
        found += test
        body = branch(body)
    return tuple(found)


def product_in(definition: ir.Definition) -> Contraction | None:
    """The matrix product that a definition is; a mask of the sum is one of an operand."""
    if not isinstance(definition, ir.Reduce) or definition.combiner != "add":
        return None
    factors = factors_of(unguarded(definition.expression, 0.0))
    conditions = conditions_of(definition)
    if not conditions:
        return contraction(definition)
    for condition in conditions:
        asked = condition.axes if isinstance(condition, Index) else ir.axes_of(condition)

        def fit(factor: ir.Expression, asked: frozenset[Axis] = asked) -> tuple[int, int]:
            own = ir.axes_of(factor)
            return len(asked - own), len(own - asked)

        masked = min(factors, key=fit)
        for n, factor in enumerate(factors):
            beyond = asked <= ir.axes_of(factor) and any(
                isinstance(p, ir.Indirect) for p in ir.walk(factor)
            )
            if factor is not masked and not beyond:  # what is read there may lie outside
                continue
            if isinstance(condition, Index):
                factors[n] = chosen((condition,), factor, ir.Constant(0.0))
            else:
                factors[n] = selected([condition], factor, ir.Constant(0.0))
    return contraction(replace(definition, expression=product_of(factors)))
