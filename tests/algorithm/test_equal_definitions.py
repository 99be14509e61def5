"""Definitions that are alike up to axes' names and order, and up to the order of terms and factors, are one.

Evidence: `evaluate` in fp64 of both.
"""

from dataclasses import replace

import numpy as np

from accelopt.algorithm.equal_definitions import defined_once
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms


def test_what_is_alike_is_defined_once() -> None:
    """A Gram matrix twice, a product and its transpose, a difference and its negative, one norm of two."""
    axes = {"i": 16, "j": 16, "k": 8, "l": 16, "m": 16, "n": 16}
    algorithm = algorithms.written(
        "alike", axes, {"a": (8, 16), "b": (8, 16)},
        "gram[m, l] = add[k](a[k, l] * a[k, m])",
        "gram2[j, m] = add[k](a[k, m] * a[k, j])",
        "product[l, n] = add[k](a[k, l] * b[k, n] * 2.0)",
        "product2[n, i] = add[k](b[k, n] * (a[k, i] * 2.0))",
        "apart[m, n] = maximum[k](a[k, m] - b[k, n])",
        "apart2[m, n] = maximum[k](a[k, n] - b[k, m])",
        "other[m, n] = maximum[k](b[k, m] - a[k, n])",
        "out[m, n] = gram[m, n] + 2.0 * gram2[n, m] + 3.0 * product[m, n] + 5.0 * product2[m, n]"
        " + 7.0 * apart[m, n] + 11.0 * apart2[m, n] + 13.0 * other[m, n]",
    )  # fmt: skip
    found = defined_once(algorithm)
    assert [d.out for d in found.definitions] == ["gram", "product", "apart", "other", "out"]
    numbers = np.random.default_rng(4)
    inputs = {name: numbers.standard_normal((8, 16)) for name in "ab"}
    before, after = (evaluate(one, inputs)[0] for one in (algorithm, found))
    np.testing.assert_allclose(after, before, rtol=1e-12)


def test_a_result_stands_for_what_is_alike_before_it() -> None:
    """Not where memory rounds it; axes of both and what was alike before are taken along."""
    algorithm = algorithms.written(
        "result", {"k": 8, "m": 16, "n": 16}, {"a": (8, 16), "b": (8, 16)},
        "total[m] = add[k](a[k, m])",
        "apart[m, n] = maximum[k](a[k, m] - b[k, n])",
        "total2[n] = add[k](a[k, n])",
        "out[n, m] = apart[m, n] * total[m] - total2[n]",
        "whole[n, m] = maximum[k](a[k, m] - b[k, n])",
        "sums[n] = add[k](a[k, n])",
        results=("out", "whole", "sums"),
    )  # fmt: skip
    numbers = np.random.default_rng(4)
    inputs = {name: numbers.standard_normal((8, 16)) for name in "ab"}
    for dtype, names in (
        ("float32", ["sums", "whole", "out"]),
        ("bfloat16", ["total", "apart", "out", "whole", "sums"]),
    ):
        outputs = tuple(replace(one, dtype=dtype) for one in algorithm.outputs)
        found = defined_once(replace(algorithm, outputs=outputs))
        assert [d.out for d in found.definitions] == names
        for before, after in zip(evaluate(algorithm, inputs), evaluate(found, inputs), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-12)
