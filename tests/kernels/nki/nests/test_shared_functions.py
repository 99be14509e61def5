"""A function of single elements that is taken of neighbours is computed once for each element.

Evidence: `evaluate` in fp64 of both.
"""

from dataclasses import replace

import numpy as np

from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.index import Index
from accelopt.algorithm.ir import Apply, Map, Reduce, substituted
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.nests.nest import default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.read_ranges import fewer_conditions
from accelopt.kernels.nki.nests.shared_element_functions import functions_shared
from accelopt.kernels.nki.nests.shared_expressions import expressions_shared
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.test_nests import check


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


def test_steps_that_are_written_into_each_other_are_definitions_again() -> None:
    """Of three steps, each a sum over rows or columns of the one before, scaled, what two have in common at other
    places or in other orders is computed once; a choice tile by tile is as few conditions as differ."""
    step = "(x[m, n] + y[m, n] * 0.5)"
    for name in "abc":
        step = f"({step} * exp({name}[m]) * 2.0 + {name}[n])"
    moved = step.replace("n]", "n + 1]")
    steps = algorithms.written(
        "steps", {"m": 8, "n": 7, "k": 8}, {**dict.fromkeys("xy", (8, 8)), **dict.fromkeys("abc", (8,))},
        f"y1[m, n] = {step} * {moved}", f"y2[m, n] = {step} - exp({moved})",
        "out[m, n] = y2[m, n] if 3 - m >= 0 else (y1[m, n] if 3 - n >= 0 else y1[m, n])",
    )  # fmt: skip
    found = expressions_shared(steps)
    assert len(found.definitions) > len(steps.definitions)
    numbers = np.random.default_rng(7)
    inputs = {array.name: numbers.standard_normal(array.shape) for array in steps.inputs}
    before, after = (evaluate(one, inputs)[0] for one in (steps, found))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    last = found.definitions[-1]
    assert isinstance(last, Map)
    chosen = fewer_conditions(last.expression)
    assert str(last.expression).count("Where(") == 2 and str(chosen).count("Where(") == 1
    (again,) = evaluate(
        replace(found, definitions=(*found.definitions[:-1], replace(last, expression=chosen))),
        inputs,
    )
    np.testing.assert_array_equal(again, after)


def test_results_are_read_in_place_of_what_is_equal_to_them() -> None:
    """A recurrence's new state times a number, in a sum and in a root; a result in 16 bits would be rounded. A sum up to
    a step is a product with ones, and a choice that numbers decide is none."""
    step = algorithms.written(
        "step", {"m": 8, "k": 4, "n": 4}, {"a": (8, 4), "g": (8,), "q": (8,)},
        "seen[n] = add[m](q[m] * (a[m, n] * 1.8 + g[m] * 0.2) if 7 - n >= 0 else 0.0)",
        "new[m, k] = a[m, k] * 0.9 + g[m] * 0.1", "out[m, n] = sqrt(a[m, n] * 3.6 + g[m] * 0.4)",
    )  # fmt: skip
    step = replace(step, outputs=(*step.outputs, algorithms.array("new", 8, 4)))
    found = expressions_shared(step)
    assert [d.out for d in found.definitions] == ["new", "seen", "out"]
    assert algorithm_text(found).count("a[") == 1
    numbers = np.random.default_rng(8)
    inputs = {array.name: numbers.uniform(size=array.shape) for array in step.inputs}
    for before, after in zip(evaluate(step, inputs), evaluate(found, inputs), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-12)
    narrow = tuple(replace(array, dtype="bfloat16") for array in step.outputs)
    assert expressions_shared(replace(step, outputs=narrow)).definitions == step.definitions
    upto = algorithms.written(
        "upto", {"m": 8, "k": 8, "n": 4}, {"x": (8, 4)},
        "out[m, n] = add[k](negative(exp(x[k, n])) if m - k >= 0 else 0.0)",
    ).definitions[0]  # fmt: skip
    assert isinstance(upto, Reduce) and (product := contraction(upto)) is not None
    assert [a.name for a in (*product.rows, *product.columns)] == ["m", "n"]
    first = substituted(upto.expression, {upto.reduced[0]: Index(0)}, {})
    assert isinstance(first, Apply) and first.function == "negative"


def test_halves_of_a_concatenation_share_what_they_combine() -> None:
    """Rows counted through, and by two axes, of which the second half of the result reads less: once, by both axes."""
    halves = algorithms.written(
        "halves", {"b": 4, "c": 192, "k": 384, "l": 40, "h": 192}, {"x": (15360,)},
        "total[k] = add[l](exp(x[k * 40 + l]))",
        "spread[k] = add[l](square(x[k * 40 + l] - total[k]))",
        "total2[b, c] = add[l](exp(x[b * 3840 + c * 40 + l]))",
        "out[b, h] = spread[b * 96 + h - 96] / total[b * 96 + h - 96] if h - 96 >= 0 else total2[b, h]",
    )  # fmt: skip
    assert [d.out for d in prepared(halves).definitions] == ["total", "spread", "out"]
    assert all(len(d.axes) == 2 for d in prepared(halves).definitions[:2])
    for dialect in ("neuronxcc", "nki"):
        check(halves, default_nest(halves, "trn2" if dialect == "nki" else "trn1"), dialect)


def test_a_diagonal_is_summed_on_its_own() -> None:
    """What a product has on its diagonal would cross the partitions."""
    paired = algorithms.written(
        "paired", {"m": 128, "n": 128, "l": 64}, {"a": (128, 64), "b": (128, 64)},
        "scores[m, n] = add[l](a[m, l] * b[n, l])", "own[m] = add[l](a[m, l] * b[m, l])",
        "top[m] = maximum[n](scores[m, n])", "out[m] = top[m] - own[m]",
    )  # fmt: skip
    assert "own" in {d.out for d in prepared(paired).definitions}
