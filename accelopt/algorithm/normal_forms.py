"""Functions that kernels write out, by their names: `x / (1 + exp(-x))` is `silu(x)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelopt.algorithm.common_factors import compared
from accelopt.algorithm.functions import COMPARISONS
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.value_nodes import (
    INFINITE,
    Application,
    Choice,
    Product,
    Sum,
    Undefined,
    Value,
)

if TYPE_CHECKING:
    from accelopt.algorithm.values import Values


def common_factor(value: Sum) -> float:
    """The number that all terms are multiplied by, up to their signs; 1 where it is not one."""
    sizes = {abs(c) for _, c in value.terms} | ({abs(value.constant)} if value.constant else set())
    return math.copysign(sizes.pop(), value.terms[0][1]) if len(sizes) == 1 else 1.0


Factors = dict[Value, float]

ONE, ZERO = Constant(1.0), Constant(0.0)

_POWERS = {"square": 2.0, "reciprocal": -1.0, "sqrt": 0.5, "rsqrt": -0.5}
_NAMES = {0.5: "sqrt", -0.5: "rsqrt"}
_CUBIC = 0.044715
_CLOSE = 1e-4  # constants of approximations are written with four to seven digits


def apply(values: Values, function: str, arguments: Sequence[Value]) -> Value:
    """A function of values, in the form that all its spellings share."""
    first = arguments[0]
    if any(isinstance(argument, Undefined) for argument in arguments):
        return next(argument for argument in arguments if isinstance(argument, Undefined))
    if function == "copy":
        return first
    if function in _POWERS:
        return values.product([(first, _POWERS[function])])
    if function == "negative":
        return values.product([(first, 1.0)], -1.0)
    if function in ("add", "subtract"):
        return values.sum([(first, 1.0), (arguments[1], 1.0 if function == "add" else -1.0)])
    if function in ("multiply", "divide"):
        return values.product(
            [(first, 1.0), (arguments[1], 1.0 if function == "multiply" else -1.0)]
        )
    if function == "power" and isinstance(arguments[1], Constant):
        power = arguments[1].value
        if power == int(power) or power in _NAMES:
            return values.product([(first, power)])
    if function in ("maximum", "minimum"):
        return _extremum(values, function, first, arguments[1])
    if function == "select":
        if isinstance(first, Choice) and {first.on_true, first.on_false} == {ONE, ZERO}:
            pair = arguments[1:] if first.on_true == ONE else arguments[:0:-1]
            return values.where(first.conditions, pair[0], pair[1])
        if isinstance(first, Constant):
            return arguments[1] if first.value else arguments[2]
        if arguments[1] == ZERO and _vanishes(first, arguments[2]):
            return arguments[2]
    if function in COMPARISONS:
        return compared(values, function, *arguments)
    if function == "log":
        return _logarithm(values, first)
    if function == "exp" and isinstance(first, Sum):
        return _exponential(values, first)
    if function == "relu":
        return _extremum(values, "maximum", first, values.number(0))
    return values.same(Application(function, tuple(arguments)))


def _vanishes(test: Value, value: Value) -> bool:
    """Whether a value is 0 where a test holds: an exponential of what is -inf there. The test is there for
    what it is less, another -inf, and then nothing is added up."""
    if not isinstance(value, Application) or value.function != "exp":
        return False
    if not isinstance(test, Application) or test.function != "equal":
        return False
    (exponent,), (part, number) = value.arguments, test.arguments
    least = isinstance(number, Constant) and number.value <= -INFINITE
    terms = exponent.terms if isinstance(exponent, Sum) else ()
    return least and any(term == part and factor > 0 for term, factor in terms)


def _logarithm(values: Values, value: Value) -> Value:
    """The logarithm of exponentials times a rest: their arguments, and the rest's logarithm, that of 1 / x as
    -log(x), for both may be out of fp32's range where the result is not. A factor that is alone in the rest is
    positive wherever the logarithm is a number."""
    whole = value if isinstance(value, Product) else Product(1.0, ((value, 1.0),))
    exponents = [
        (f, p) for f, p in whole.factors if isinstance(f, Application) and f.function == "exp"
    ]
    if not exponents:
        return values.same(Application("log", (value,)))
    terms = [(exponent.arguments[0], power) for exponent, power in exponents]
    rest = [pair for pair in whole.factors if pair not in exponents]
    sign = -1.0 if len(rest) == 1 and rest[0][1] < 0 else 1.0
    left = values.product([(f, p * sign) for f, p in rest], whole.coefficient**sign)
    if left != ONE:
        terms.append((values.same(Application("log", (left,))), sign))
    return values.sum(terms)


def _exponential(values: Values, value: Sum) -> Value:
    """The exponential of a sum, over what the sum has the negative logarithm of, which is positive where that is a number."""
    under = {
        term: term.arguments[0]
        for term, factor in value.terms
        if factor == -1.0 and isinstance(term, Application) and term.function == "log"
    }
    if not under:
        return values.same(Application("exp", (value,)))
    rest = values.sum([pair for pair in value.terms if pair[0] not in under], value.constant)
    over = apply(values, "exp", [rest])
    return values.product([(over, 1.0), *((total, -1.0) for total in under.values())])


def _extremum(values: Values, function: str, first: Value, second: Value) -> Value:
    if first == second:
        return first
    if isinstance(first, Constant) and not isinstance(second, Constant):
        first, second = second, first
    if isinstance(second, Constant):
        limit = second.value if function == "minimum" else -second.value
        if limit >= INFINITE:  # no finite number is beyond it
            return first
        if isinstance(first, Constant):
            choose = max if function == "maximum" else min
            return values.number(choose(first.value, second.value))
    pair = sorted((first, second), key=values.key)
    if isinstance(second, Constant):
        pair = [first, second]
    return values.same(Application(function, tuple(pair)))


def named_factors(values: Values, factors: Factors) -> float:
    """Gives groups of factors the name of the function that they are, in place. Returns what the
    product is to be multiplied by for that."""
    scale = 1.0
    for factor in list(factors):
        if factors.get(factor) == -1 and isinstance(factor, Sum):
            exponent = _one_plus(factor, "exp")
            if exponent is not None:
                del factors[factor]
                argument = values.product([(exponent, 1.0)], -1.0)
                gate = values.same(Application("sigmoid", (argument,)))
                factors[gate] = factors.get(gate, 0.0) + 1
    for factor in list(factors):
        if factors.get(factor) != 1:
            continue
        if isinstance(factor, Application) and factor.function == "sigmoid":
            argument = factor.arguments[0]
            scale *= _gated(values, factors, factor, argument)
        elif isinstance(factor, Sum):
            scale *= _gelu(values, factors, factor)
    return scale


def _one_plus(value: Sum, function: str) -> Value | None:
    """x where the value is 1 + function(x)."""
    if value.constant != 1 or len(value.terms) != 1:
        return None
    term, coefficient = value.terms[0]
    if coefficient != 1 or not isinstance(term, Application) or term.function != function:
        return None
    return term.arguments[0]


def _gated(values: Values, factors: Factors, gate: Value, argument: Value) -> float:
    """x * sigmoid(x), x * sigmoid(1.702 * x) and the sigmoid that is nearly a gelu."""
    taken = _taken(values, factors, argument)
    if taken is not None:
        return _named(values, factors, gate, "silu", argument) * taken
    plain = values.product([(argument, 1.0)], 1 / 1.702)
    taken = _taken(values, factors, plain)
    if taken is not None:
        return _named(values, factors, gate, "gelu_apprx_sigmoid", plain) * taken
    cubic = _cubic(values, argument)
    if cubic is not None and math.isclose(cubic[1], 2 * math.sqrt(2 / math.pi), rel_tol=_CLOSE):
        taken = _taken(values, factors, cubic[0])
        if taken is not None:
            return _named(values, factors, gate, "gelu_apprx_tanh", cubic[0]) * taken
    return 1.0


def _gelu(values: Values, factors: Factors, gate: Sum) -> float:
    """x * (1 + erf(x / sqrt(2))), and x * (1 + tanh(...)), each twice a gelu."""
    inner = _one_plus(gate, "erf")
    if inner is not None:
        argument = values.product([(inner, 1.0)], math.sqrt(2))
        argument = _rounded(values, argument)
        taken = _taken(values, factors, argument)
        return 1.0 if taken is None else 2 * _named(values, factors, gate, "gelu", argument) * taken
    inner = _one_plus(gate, "tanh")
    cubic = None if inner is None else _cubic(values, inner)
    if cubic is not None and math.isclose(cubic[1], math.sqrt(2 / math.pi), rel_tol=_CLOSE):
        taken = _taken(values, factors, cubic[0])
        if taken is not None:
            return 2 * _named(values, factors, gate, "gelu_apprx_tanh", cubic[0]) * taken
    return 1.0


def _rounded(values: Values, value: Value) -> Value:
    """A value without a factor that is 1 but for rounding."""
    if isinstance(value, Product) and math.isclose(value.coefficient, 1, rel_tol=1e-6):
        return values.product(value.factors)
    return value


def _cubic(values: Values, value: Value) -> tuple[Value, float] | None:
    """x and a where the value is a * (x + 0.044715 * x**3)."""
    if isinstance(value, Product):  # x * (1 + 0.044715 * x**2), scaled
        for part, power in value.factors:
            if power == 1 and isinstance(part, Sum) and part.constant == 1 and len(part.terms) == 1:
                square, coefficient = part.terms[0]
                if math.isclose(coefficient, _CUBIC, rel_tol=_CLOSE):
                    rest = [pair for pair in value.factors if pair[0] is not part]
                    x = values.product(rest)
                    if square == values.product([(x, 2.0)]):
                        return x, value.coefficient
        return None
    if not isinstance(value, Sum):
        return None
    for cube, b in value.terms:
        if isinstance(cube, Product) and len(cube.factors) == 1 and cube.factors[0][1] == 3:
            x = cube.factors[0][0]
            linear = values.sum([p for p in value.terms if p[0] is not cube], value.constant)
            a = _times(linear, x)
            if a is not None and math.isclose(b / a, _CUBIC, rel_tol=_CLOSE):
                return x, a
    return None


def _times(value: Value, part: Value) -> float | None:
    """What `part` is multiplied by to be the value, but for rounding."""
    if isinstance(value, Product) and isinstance(part, Product):
        return value.coefficient / part.coefficient if value.factors == part.factors else None
    if isinstance(value, Product):
        return value.coefficient if value.factors == ((part, 1.0),) else None
    if not isinstance(value, Sum) or not isinstance(part, Sum):
        return 1.0 if value == part else None
    own, other = dict(value.terms), dict(part.terms)
    if own.keys() != other.keys() or bool(value.constant) != bool(part.constant):
        return None
    ratios = [own[term] / other[term] for term in own]
    ratios += [value.constant / part.constant] if part.constant else []
    close = all(math.isclose(ratio, ratios[0], rel_tol=1e-6) for ratio in ratios)
    return ratios[0] if close else None


def _taken(values: Values, factors: Factors, value: Value) -> float | None:
    """What the product is divided by more than the value's factors, when they are all there."""
    whole = values.product([(value, 1.0)])
    parts: list[tuple[Value, float]] = [(whole, 1.0)]
    coefficient = 1.0
    if isinstance(whole, Product):
        parts, coefficient = list(whole.factors), whole.coefficient
    elif isinstance(whole, Sum):
        coefficient = common_factor(whole)
        parts = [(values.scaled(whole, 1 / coefficient), 1.0)]
    if all(factors.get(factor, 0.0) >= power > 0 for factor, power in parts):
        return 1 / coefficient
    return None


def _named(values: Values, factors: Factors, gate: Value, name: str, argument: Value) -> float:
    whole = values.product([(argument, 1.0)])
    parts: list[tuple[Value, float]] = [(whole, 1.0)]
    if isinstance(whole, Product):
        parts = list(whole.factors)
    if isinstance(whole, Sum):
        parts = [(values.scaled(whole, 1 / common_factor(whole)), 1.0)]
    for factor, power in parts:
        factors[factor] -= power
    del factors[gate]
    named = values.same(Application(name, (argument,)))
    factors[named] = factors.get(named, 0.0) + 1
    return 1.0
