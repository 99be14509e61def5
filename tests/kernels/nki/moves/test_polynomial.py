"""Polynomials against plain integers."""

from hypothesis import given
from hypothesis import strategies as st

from accelopt.kernels.nki.moves.reading.polynomial import (
    Polynomial,
    Symbol,
    quotient,
    ramp,
    remainder,
)

SYMBOLS = [Symbol("i", "loop"), Symbol("j", "loop"), Symbol("n")]


@st.composite
def polynomials(draw):
    total = Polynomial.number(draw(st.integers(-9, 9)))
    for _ in range(draw(st.integers(0, 3))):
        term = Polynomial.number(draw(st.integers(-9, 9)))
        for symbol in draw(st.lists(st.sampled_from(SYMBOLS), max_size=2)):
            term = term * Polynomial.symbol(symbol)
        total = total + term
    return total


def value(polynomial, numbers):
    return polynomial.substitute({s: Polynomial.number(v) for s, v in numbers.items()}).constant


numbers = st.fixed_dictionaries({symbol: st.integers(-5, 5) for symbol in SYMBOLS})


@given(polynomials(), polynomials(), numbers)
def test_arithmetic(a, b, at):
    assert value(a + b, at) == value(a, at) + value(b, at)
    assert value(a - b, at) == value(a, at) - value(b, at)
    assert value(a * b, at) == value(a, at) * value(b, at)


@given(polynomials(), polynomials(), polynomials())
def test_equal_meaning_is_equal_form(a, b, c):
    assert (a + b) * c == b * c + c * a


@given(polynomials(), numbers)
def test_text_means_the_same(a, at):
    text = a.render(lambda symbol: symbol.name)
    assert eval(text, {symbol.name: v for symbol, v in at.items()}) == value(a, at)


@given(polynomials(), st.sampled_from(SYMBOLS), numbers)
def test_factor_and_rest(a, symbol, at):
    """Without squares, a is factor * symbol + rest."""
    if any(monomial.count(symbol) > 1 for monomial, _ in a.terms):
        return
    rebuilt = a.factor_of(symbol) * Polynomial.symbol(symbol) + a.without(symbol)
    assert rebuilt == a


@given(polynomials(), st.integers(1, 6), numbers)
def test_quotients_of_multiples_are_exact(a, divisor, at):
    by = Polynomial.number(divisor)
    assert quotient(a * by, by) == a


def test_quotients_that_are_not_exact_remember_their_loops():
    i = Polynomial.symbol(SYMBOLS[0])
    for opaque in (quotient(i, Polynomial.number(2)), remainder(i, Polynomial.number(2))):
        assert opaque.constant is None and opaque.loops == {SYMBOLS[0]}


def test_ramps_are_told_apart_by_axis_and_size():
    four, eight = Polynomial.number(4), Polynomial.number(8)
    assert ramp(four, -1) == ramp(four, -1)
    assert len({ramp(four, -1), ramp(four, -2), ramp(eight, -1)}) == 3
