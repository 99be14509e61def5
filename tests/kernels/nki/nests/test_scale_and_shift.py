"""What numbers of fewer axes do to a result of sums is one factor and one summand.

Evidence: `evaluate` in fp64 of both; IEEE 754's roundings for what is left as it is.
"""

import itertools

import numpy as np
import pytest

from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Algorithm, Array, Expression, Map, Reduce
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.scale_and_shift import factor_shared, scaled_and_shifted
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import apply, read, times

M, N, K = Axis("m", 32), Axis("n", 48), Axis("k", 16)
A, B, C = (read(name, M) for name in "abc")
INPUTS = (
    *(Array(name, (32,), "float32", (32,)) for name in "abc"),
    Array("w", (16, 32), "float32", (16, 32)),
    Array("x", (16, 48), "float32", (16, 48)),
    Array("z", (32, 48), "float32", (32, 48)),
)


def made(of: Expression) -> Algorithm:
    """A product, and what is made of it."""
    product = Reduce("p", (M, N), (K,), "add", times(read("w", K, M), read("x", K, N)))
    out = Array("out", (32, 48), "float32", (32, 48))
    return Algorithm("made", INPUTS, (product, Map("out", (M, N), of)), (out,))


P = read("p", M, N)


@pytest.mark.parametrize(("sign", "first"), itertools.product(("add", "subtract"), (0, 1)))
def test_a_line_has_one_factor_and_one_summand(sign: str, first: int) -> None:
    """All orders and signs, and a function of the line."""
    pair = (P, B) if first == 0 else (B, P)
    algorithm = made(apply("tanh", apply(sign, C, times(apply(sign, *pair), A, apply("rsqrt", A)))))
    found = scaled_and_shifted(algorithm)
    numbers = np.random.default_rng(0)
    inputs = {array.name: numbers.uniform(0.5, 2, array.shape) for array in INPUTS}
    before, after = (evaluate(a, inputs)[0] for a in (algorithm, found))
    np.testing.assert_allclose(before, after, rtol=1e-12)
    shown = algorithm_text(found)
    assert "tanh(p[m, n] * a[m] * rsqrt(a[m])" in shown and shown.count("p[m, n] *") == 1
    assert shown.count("a[m] * rsqrt(a[m])") == 2  # of p and of b, one value that is made once


def test_what_an_input_is_taken_from_stays() -> None:
    """(x - mean) * rstd loses nothing of x near its mean, where x * rstd - mean * rstd does; and two steps are
    one instruction as they are."""
    of_input = apply("subtract", C, times(apply("subtract", B, read("z", M, N)), A))
    for algorithm in (made(of_input), made(times(apply("subtract", P, B), A))):
        assert scaled_and_shifted(algorithm) == algorithm


def test_one_number_that_all_elements_have_stands_outside() -> None:
    """Logits by a temperature: what is subtracted is one operation, whatever numbers of fewer axes there are besides;
    elements that have different numbers stay."""
    z, y = read("z", M, N), read("z", M, 0)
    for other, changed in ((0.5, True), (0.25, False)):
        first = apply("add", times(z, 0.5), apply("log", A))
        term = apply(
            "subtract", apply("subtract", first, times(y, 0.5)), times(apply("exp", z), other)
        )
        found = factor_shared(term)
        assert (found is not None) == changed
        algorithm = made(term)
        inputs = {a.name: np.random.default_rng(0).uniform(0.5, 2, a.shape) for a in INPUTS}
        before, after = (evaluate(a, inputs)[0] for a in (algorithm, made(found or term)))
        np.testing.assert_allclose(before, after, rtol=1e-12, atol=1e-12)
        assert ("z[m, n] - exp(z[m, n])" in algorithm_text(prepared(algorithm))) == changed


def test_a_factor_of_a_rounded_operand_follows_the_product() -> None:
    """bfloat16 rounds relatively and has the exponents of fp32, so e / total is rounded as e is; a factor that
    is summed over stays, as do those of float16, which has other exponents."""
    for name, outside in (("bfloat16", True), ("float16", False)):
        weighted = apply(name, apply("divide", times(read("w", K, M), read("w", K, 0)), A))
        sums = Reduce("out", (M, N), (K,), "add", times(weighted, read("x", K, N)))
        out = Array("out", (32, 48), "float32", (32, 48))
        shown = algorithm_text(prepared(Algorithm("made", INPUTS, (sums,), (out,))))
        assert ("* reciprocal(a[" in shown) == outside, shown
        assert f"{name}(w[" in shown and shown.count("w[") == 2


def test_a_square_among_factors_stays_one() -> None:
    """The Scalar engine squares on the way, beside Vector, which would multiply twice (a focal loss: 0.110 ms
    predicted, 0.120 before)."""
    square = apply("square", apply("subtract", read("z", M, N), read("x", 0, N)))
    sums = Reduce(
        "out", (M,), (N,), "add", times(square, read("z", M, N), apply("exp", read("x", 1, N)))
    )
    out = Array("out", (32,), "float32", (32,))
    shown = algorithm_text(prepared(Algorithm("made", INPUTS, (sums,), (out,))))
    assert shown.count(")**2") == 1 and shown.count("z[") == 2, shown
