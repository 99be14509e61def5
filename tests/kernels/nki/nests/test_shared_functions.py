"""A function of single elements that is taken of neighbours is computed once for each element.

Evidence: `evaluate` in fp64 of both.
"""

from __future__ import annotations

import numpy as np

from accelopt.algorithm.evaluation import evaluate
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.nests.shared_element_functions import functions_shared
from tests.kernels.nki.lift import algorithms


def test_a_function_of_neighbours_is_computed_once_for_each_element() -> None:
    """Both phases of a filter, whose rim reads no neighbour; of a row that all rows read, of a function of
    two elements, and of one that is taken in one place, nothing is shared."""
    filtered = algorithms.written(
        "filtered", {"m": 8, "k": 16, "n": 2}, {"x": (8, 16), "row": (17,)},
        "y[m, k, n] = (x[m, k] * 0.75 + exp(x[m, k + 1]) if n - 1 >= 0 else exp(x[m, k]) + x[m, k + 1] * 0.75)"
        " if 14 - k >= 0 else x[m, k] * 0.25",
        "out[m, k, n] = y[m, k, n] * y[m, 15 - k, n] + x[m, k] * y[m, k, n] + exp(row[k]) * exp(row[k + 1])",
    )  # fmt: skip
    found = functions_shared(filtered)
    assert [d.out for d in found.definitions] == ["x_exp", "x_scaled", "y", "out"]
    assert "0.25" in algorithm_text(found).split("y[")[1]
    numbers = np.random.default_rng(6)
    inputs = {"x": numbers.standard_normal((8, 16)), "row": numbers.standard_normal(17)}
    before, after = (evaluate(one, inputs)[0] for one in (filtered, found))
    np.testing.assert_array_equal(after, before)
