"""Sums that are rescaled while the maximum that they are taken relative to still grows.

`total = sum exp(x - largest)` needs `largest` first, and so a walk of its own over `x`. Where the summand is
a product with a factor `exp(a + b)`, `b` made of results of the same walk and of numbers alone, what was
summed with the old ones is `exp(b_new - b_old)` of what it would be with the new ones: one walk is enough.
"""

from __future__ import annotations

from collections.abc import Set

from accelopt.algorithm.contraction import factors_of
from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Apply, Constant, Expression, Read, Where, axes_of, walk
from accelopt.kernels.triton.emission.base_two import factor_of
from accelopt.kernels.triton.emission.simplifying import applied, unguarded


def growth(summand: Expression, running: Set[str], along: Axis | None) -> Expression | None:
    """`b`, where a summand reads what the arrays `running` hold in such a factor alone, which changes along
    the axis that is walked."""
    summand = unguarded(summand)
    found: Expression | None = None
    for factor in factors_of(summand):
        if not reads_any(factor, running):
            continue
        if along not in axes_of(factor):
            return None
        factor = unguarded(factor, 0.0)
        if isinstance(factor, Apply) and factor.function in ("bfloat16", "float16"):
            factor = factor.arguments[0]
        if found is not None or not isinstance(factor, Apply) or factor.function != "exp":
            return None
        found = _part(factor.arguments[0], running)
        if found is None:
            return None
    return found


def reads_any(expression: Expression, arrays: Set[str]) -> bool:
    """Whether an expression reads one of some arrays."""
    return any(isinstance(part, Read) and part.array in arrays for part in walk(expression))


def _part(expression: Expression, running: Set[str]) -> Expression | None:
    """The terms of a sum that read some arrays, which read nothing else; None where they do."""
    if not reads_any(expression, running):
        return Constant(0.0)
    if isinstance(expression, Apply):
        parts = expression.arguments
        if expression.function in ("add", "subtract", "negative"):
            found = [_part(part, running) for part in parts]
            if any(part is None for part in found):
                return None
            return applied(expression.function, tuple(p for p in found if p is not None))
        if expression.function == "multiply":
            for n, part in enumerate(parts):
                if isinstance(parts[1 - n], Constant):
                    inner = _part(part, running)
                    return inner and applied("multiply", (inner, parts[1 - n]))
    alone = all(part.array in running for part in walk(expression) if isinstance(part, Read))
    plain = not any(isinstance(part, Where) for part in walk(expression))
    return expression if alone and plain else None


def grown(b: Expression, new: Expression) -> Expression:
    """`b_new - b`, where `new` is `b` of the new values."""
    if isinstance(b, Apply) and isinstance(new, Apply):
        if b.function == "negative":
            return Apply("subtract", (b.arguments[0], new.arguments[0]))
        if b.function == "multiply" and isinstance(b.arguments[1], Constant):
            return Apply("multiply", (grown(b.arguments[0], new.arguments[0]), b.arguments[1]))
    return Apply("subtract", (new, b))


def vanishes(b: Expression) -> bool:
    """Whether `exp(b_new - b)` is 0 where the old maximum is that of nothing: `b` falls as it grows."""
    negative = False
    while isinstance(b, Apply):
        if b.function == "negative" and not negative:
            negative, b = True, b.arguments[0]
        elif (product := factor_of(b)) is not None and product[1] > 0:
            b = product[0]
        else:
            return False
    return negative and isinstance(b, Read)
