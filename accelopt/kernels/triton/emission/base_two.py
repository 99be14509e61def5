"""Exponentials as powers of two, where their factor log2(e) costs nothing.

`exp(x)` is a multiplication by log2(e) and a power of two. In `exp(c * p - m)` with `m = max(c * p)` a factor
`c * log2(e)` in both places leaves the power of two alone. `m` is then `c * max(p)`: the maximum takes no
multiplication, and the exponent of an element is one multiplication and addition. Where `m` is a result it is held
times log2(e), and multiplied by ln(2) where it is read for anything else. Where an exponent has a term without such
a factor, `exp` stays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Set
from dataclasses import replace

from accelopt.algorithm import ir
from accelopt.algorithm.index import index_of

LN_2 = math.log(2.0)
_TERMS = ("add", "subtract", "negative", "maximum", "minimum")
_AS_IS, _BACK = "@two", "@back"
"""Behind the name of an array that is held times log2(e): where that is wanted, and where not."""


def in_base_two(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The same Algorithm, with the factor log2(e) in the constants of those exponents whose terms all have
    one: what is left of `exp` is a power of two."""
    results = {array.name for array in algorithm.outputs}
    algorithm = _without_factors(algorithm, results)
    scaled = {d.out for d in algorithm.definitions if _may_be(d, results)}
    while True:
        made = [_rewritten(d, scaled) for d in algorithm.definitions]
        reads = {read.array for definition in made for read in ir.reads_in(definition)}
        kept = {
            d.out
            for d in algorithm.definitions
            if d.out in scaled
            and _times(ir.expressions_of(d)[0], scaled) is not None
            and f"{d.out}{_AS_IS}" in reads
            and (_is_maximum(d) or f"{d.out}{_BACK}" not in reads)
        }
        if kept == scaled:
            break
        scaled = kept
    found: list[ir.Definition] = []
    for definition in made:
        out = definition.out
        definition = ir.with_reads(definition, functools.partial(_named, results=results))
        if out in scaled and out in results and isinstance(definition, ir.Reduce):
            own = ir.Read(f"{out}_two", tuple(map(index_of, definition.axes)))
            found.append(replace(definition, out=own.array))
            definition = ir.Map(
                out, definition.axes, ir.Apply("multiply", (own, ir.Constant(LN_2)))
            )
        found.append(definition)
    return replace(algorithm, definitions=tuple(found))


def _without_factors(algorithm: ir.Algorithm, results: Set[str]) -> ir.Algorithm:
    """With maxima of what a positive number multiplies taken without it, and multiplied where they are read."""
    factors: dict[str, float] = {}

    def multiplied(expression: ir.Expression) -> ir.Expression:
        if isinstance(expression, ir.Read) and expression.array in factors:
            return _product(expression, factors[expression.array])
        made = ir.with_parts(expression, map(multiplied, ir.parts_of(expression)))
        outer = factor_of(made)
        inner = factor_of(outer[0]) if outer is not None else None
        return _product(inner[0], inner[1] * outer[1]) if outer and inner else made

    found: list[ir.Definition] = []
    for definition in algorithm.definitions:
        definition = ir.with_expressions(definition, map(multiplied, ir.expressions_of(definition)))
        if (
            isinstance(definition, ir.Reduce)
            and _is_maximum(definition)
            and definition.out not in results
        ):
            body, factor = _apart(definition.expression)
            if factor > 0 and factor != 1:
                factors[definition.out] = factor
                definition = replace(definition, expression=body)
        found.append(definition)
    return replace(algorithm, definitions=tuple(found))


def _apart(expression: ir.Expression) -> tuple[ir.Expression, float]:
    """An expression without a factor of it, where it counts in a maximum, and the factor."""
    parts = ir.parts_of(expression)
    chosen = isinstance(expression, ir.Apply) and expression.function == "select"
    if (chosen or isinstance(expression, ir.Where)) and parts[-1] == ir.Constant(-math.inf):
        made, factor = _apart(parts[-2])
        return ir.with_parts(expression, [*parts[:-2], made, parts[-1]]), factor
    return factor_of(expression) or (expression, 1.0)


def _is_maximum(definition: ir.Definition) -> bool:
    return isinstance(definition, ir.Reduce) and definition.combiner == "maximum"


def _may_be(definition: ir.Definition, results: Set[str]) -> bool:
    """Whether a definition may be held times log2(e): maxima are small and may be multiplied back."""
    if isinstance(definition, ir.Scan) or _is_maximum(definition):
        return not isinstance(definition, ir.Scan)
    linear = isinstance(definition, ir.Map) or definition.combiner in ("add", "minimum")
    return linear and definition.out not in results


def _rewritten(definition: ir.Definition, scaled: Set[str]) -> ir.Definition:
    """With exponents in base two, and itself times log2(e) where it is one of those `scaled`."""
    bodies = list(ir.expressions_of(definition))
    if definition.out in scaled:
        bodies = [_times(body, scaled) or body for body in bodies]
    return ir.with_expressions(definition, [_exponents(body, scaled) for body in bodies])


def _exponents(expression: ir.Expression, scaled: Set[str]) -> ir.Expression:
    if isinstance(expression, ir.Read) and expression.array in scaled:
        back = replace(expression, array=f"{expression.array}{_BACK}")
        return _product(back, LN_2)
    if (product := factor_of(expression)) is not None:
        made = _exponents(product[0], scaled)
        inner, factor = factor_of(made) or (made, 1.0)
        return _product(inner, factor * product[1])
    if isinstance(expression, ir.Apply) and expression.function == "exp":
        (exponent,) = expression.arguments
        times = None if factor_of(exponent) is not None else _times(exponent, scaled)
        if times is not None:
            return ir.Apply("exp", (_product(_factored(_exponents(times, scaled)), LN_2),))
    return ir.with_parts(expression, [_exponents(part, scaled) for part in ir.parts_of(expression)])


def _factored(expression: ir.Expression) -> ir.Expression:
    """A difference of two terms that one number multiplies as the number times their difference, which is 0 for
    equal terms: a product and a difference in one instruction are off by what rounding takes of a large term."""
    if isinstance(expression, ir.Apply) and expression.function == "subtract":
        one, other = map(factor_of, expression.arguments)
        if one is not None and other is not None and one[1] == other[1]:
            return _product(ir.Apply("subtract", (one[0], other[0])), one[1])
    return expression


def _product(expression: ir.Expression, value: float) -> ir.Expression:
    return ir.times(expression, 1.0 if math.isclose(value, 1.0, rel_tol=1e-9) else value)


def factor_of(expression: ir.Expression) -> tuple[ir.Expression, float] | None:
    """What a number multiplies, and the number."""
    if isinstance(expression, ir.Apply) and expression.function == "multiply":
        for n, part in enumerate(expression.arguments):
            if isinstance(part, ir.Constant):
                return expression.arguments[1 - n], part.value
    return None


def _times(expression: ir.Expression, scaled: Set[str]) -> ir.Expression | None:
    """An expression times log2(e), with not an operation more; None where there is no such one."""
    if isinstance(expression, ir.Constant):
        return ir.Constant(expression.value / LN_2)
    if isinstance(expression, ir.Read) and expression.array in scaled:
        return replace(expression, array=f"{expression.array}{_AS_IS}")
    if (product := factor_of(expression)) is not None:
        return _product(product[0], product[1] / LN_2)
    if isinstance(expression, ir.Apply) and expression.function == "multiply":
        for n, part in enumerate(expression.arguments):
            times = None if isinstance(part, ir.Read) else _times(part, scaled)
            if times is not None:
                rest = expression.arguments[1 - n]
                return ir.Apply("multiply", (rest, times) if n else (times, rest))
        return None
    chosen = isinstance(expression, ir.Apply) and expression.function == "select"
    terms = isinstance(expression, ir.Apply) and expression.function in _TERMS
    if not (chosen or terms or isinstance(expression, ir.Where)):
        return None
    tests, parts = ir.parts_of(expression)[: int(chosen)], ir.parts_of(expression)[int(chosen) :]
    found = [_times(part, scaled) for part in parts]
    made = [part for part in found if part is not None]
    return ir.with_parts(expression, [*tests, *made]) if len(made) == len(found) else None


def _named(read: ir.Read, results: Set[str]) -> ir.Read:
    """With the array's own name."""
    name, _, kind = read.array.partition("@")
    return replace(read, array=f"{name}_two" if kind and name in results else name)
