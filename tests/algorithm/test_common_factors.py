"""Positive factors cancel in comparisons and stand outside of maxima; what a comparison takes away is what the
opposite one leaves.

Evidence: `evaluate` in fp64 of each Algorithm and of its normal form, on numbers of both signs with equal ones.
"""

import numpy as np
import pytest

from accelopt.algorithm.equality import normal_form, same_function
from accelopt.algorithm.ir import Algorithm
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import written

TOTAL = "total[m] = add[n](exp(x[m, n]))"
P, SMALL = "(exp(x[m, n]) / total[m])", "(x[m, n] * s[m])"
HELD = {
    "a quotient by its largest": (
        [TOTAL, f"top[m] = maximum[n]({P})", f"out[m, n] = greater_equal({P}, top[m])"],
        ["top[m] = maximum[n](exp(x[m, n]))", "out[m, n] = greater_equal(exp(x[m, n]), top[m])"],
    ),
    "the second largest": (
        [TOTAL, f"top[m] = maximum[n]({P})",
         f"next[m] = maximum[n]({P} - {P} * greater_equal({P}, top[m]))",
         f"kept[m] = add[n]({P} * greater_equal({P}, next[m]))",
         f"out[m, n] = {P} * greater_equal({P}, next[m]) / kept[m]"],
        ["top[m] = maximum[n](exp(x[m, n]))",
         "next[m] = maximum[n](exp(x[m, n]) * greater(top[m], exp(x[m, n])))",
         "kept[m] = add[n](exp(x[m, n]) * less_equal(next[m], exp(x[m, n])))",
         "out[m, n] = exp(x[m, n]) * greater_equal(exp(x[m, n]), next[m]) / kept[m]"],
    ),
    "a common factor of terms": (
        ["out[m] = maximum[n](x[m, n] * exp(s[m]) - abs(x[m, n]) * exp(s[m]))"],
        ["top[m] = maximum[n](x[m, n] - abs(x[m, n]))", "out[m] = exp(s[m]) * top[m]"],
    ),
    "a factor of what a mask leaves": (
        ["out[m] = add[n](x[m, n] * s[m] if m - n >= 0 else 0.0)"],
        ["kept[m] = add[n](x[m, n] if m - n >= 0 else 0.0)", "out[m] = s[m] * kept[m]"],
    ),
    "what is left of a sum": (
        ["out[m, n] = x[m, n] + s[m] - (x[m, n] + s[m]) * less(x[m, n], 0.0)"],
        ["out[m, n] = (x[m, n] + s[m]) * less_equal(0.0, x[m, n])"],
    ),
    "one less a comparison": (
        ["out[m, n] = x[m, n] * (1.0 - equal(x[m, n], s[m]))"],
        ["out[m, n] = x[m, n] * not_equal(s[m], x[m, n])"],
    ),
}  # fmt: skip
OTHERS = {
    "of any sign in a maximum": (
        [f"out[m] = maximum[n]{SMALL}"],
        ["top[m] = maximum[n](x[m, n])", "out[m] = s[m] * top[m]"],
    ),
    "of any sign in a comparison": (
        [f"out[m, n] = greater({SMALL}, s[m])"],
        ["out[m, n] = greater(x[m, n], 1.0)"],
    ),
    "in a product of many": (
        ["out[m] = multiply[n](x[m, n] * exp(s[m]))"],
        ["all[m] = multiply[n](x[m, n])", "out[m] = exp(s[m]) * all[m]"],
    ),
    "another number of it": (
        ["out[m, n] = x[m, n] - 0.5 * x[m, n] * less(x[m, n], s[m])"],
        ["out[m, n] = x[m, n] * greater_equal(x[m, n], s[m])"],
    ),
}


def made(lines: list[str]) -> Algorithm:
    return written("rows", {"m": 4, "n": 6}, {"x": (4, 6), "s": (4,)}, *lines)


@pytest.mark.parametrize("case", [*HELD, *OTHERS])
def test_factors(case: str) -> None:
    """One normal form for equal functions alone, with the numbers of both."""
    pair = [made(lines) for lines in (HELD | OTHERS)[case]]
    assert same_function(*pair) == (case in HELD)
    draw = np.random.default_rng(5)
    x, s = np.round(draw.normal(size=(4, 6)), 1), np.array([-1.5, 0.5, 2.0, -0.25])
    found = []
    for algorithm in pair:
        (told,) = evaluate(algorithm, {"x": x, "s": s})
        form = normal_form(algorithm)
        flat = {"in0": x.ravel(), "in1": s}
        (again,) = evaluate(form, {a.name: flat[a.name].reshape(a.shape) for a in form.inputs})
        np.testing.assert_allclose(np.ravel(again), np.ravel(told), rtol=1e-12, atol=1e-15)
        found.append(np.ravel(told))
    assert np.allclose(*found) == (case in HELD)
