"""What is combined over windows along several axes is combined along one after the other."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

from accelopt.algorithm.ir import Reduce
from accelopt.kernels.nki.nests.nest import NotNested, default_nest, ready
from accelopt.kernels.nki.nests.preparing import combined_by_readers, prepared
from accelopt.kernels.nki.nests.primitives import Inline, applied
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim.dialects.dialect import Dialect
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift import algorithms
from tests.kernels.nki.nests.test_nests import TARGETS, check

WINDOWS = {
    "plain": ("add", {"m": 10, "n": 12, "k": 3, "l": 3}, "x[c, m + l, n + k]", True),
    "zeros around": (
        "add", {"m": 12, "n": 14, "k": 3, "l": 3},
        "x[c, m + l - 1, n + k - 1] if m + l - 1 >= 0 and n + k - 1 >= 0 and 12 - m - l >= 0 "
        "and 14 - n - k >= 0 else 0.0", True,
    ),
    "a maximum with an end": (
        "maximum", {"m": 12, "n": 12, "k": 3, "l": 3},
        "x[c, m + l - 1, n + k] if m + l - 1 >= 0 and 12 - m - l >= 0 else -1e30", True,
    ),
    "every second, dilated": (
        "add", {"m": 4, "n": 6, "k": 5, "l": 4}, "x[c, m * 2 + l, n + k * 2] * 0.5", True,
    ),
    "three that hardly overlap": (
        "maximum", {"m": 5, "n": 6, "k": 2, "l": 2}, "x[c, m * 2 + l, n * 2 + k]", False,
    ),
    "every second of three": (
        "maximum", {"m": 5, "n": 6, "k": 3, "l": 3}, "x[c, m * 2 + l, n * 2 + k]", True,
    ),
    "computed of each element": (
        "maximum", {"m": 5, "n": 6, "k": 3, "l": 3},
        "maximum(w[0, 0] * x[c, m * 2 + l - 1, n * 2 + k - 1] + w[0, 1], 0) "
        "if m * 2 + l - 1 >= 0 and n * 2 + k - 1 >= 0 else 0.0", True,
    ),
    "weighed": (
        "add", {"m": 10, "n": 12, "k": 3, "l": 3}, "x[c, m + l, n + k] * w[l, k]", False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_combined_along_one_axis_after_the_other(window: str, dialect: Dialect) -> None:
    """Where a window's elements are told by their place alone and enough windows share them; elsewhere they stay."""
    combiner, sizes, body, apart = WINDOWS[window]
    made = algorithms.written(
        "windows", {"c": 32, **sizes}, {"x": (32, 12, 14), "w": (3, 3)},
        f"out[c, m, n] = {combiner}[k, l]({body})",
    )  # fmt: skip
    definitions = [d for d in prepared(made).definitions if isinstance(d, Reduce)]
    over = [math.prod(axis.extent for axis in d.reduced) for d in definitions]
    product = sizes["k"] * sizes["l"]
    assert sum(over) <= sizes["k"] + sizes["l"] if apart else over in ([], [product])
    rng = np.random.default_rng(0)
    given = {a.name: rng.standard_normal(a.shape) for a in made.inputs}
    (wanted,), (got,) = evaluate(made, given), evaluate(prepared(made), given)
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    nests = [n for n in starting_nests(made, TARGETS[dialect]) if len(n.stages) == 1]
    together = [n for n in nests if n.inlined]
    assert bool(together) == (sum(over) != product and len(definitions) > 1)
    for nest in (nests[0], *together[:1]):
        check(made, nest, dialect)
        combined = [d for d in ready(made, nest).definitions if isinstance(d, Reduce)]
        assert len(combined) == (1 if nest.inlined else len(definitions))


def test_only_what_is_combined_on_alike_is_combined_by_who_reads_it() -> None:
    """A sum of sums, not a maximum of them, nor a sum that begins elsewhere than at 0."""
    for combiner, otherwise, alike in zip(
        ("add", "maximum", "add"), (0, 0, 1), (1, 0, 0), strict=True
    ):
        made = algorithms.written(
            "windows", {"c": 32, "r": 33, "m": 10, "n": 12, "k": 3, "l": 24}, {"x": (32, 33, 14)},
            "rows[c, r, n] = add[k](x[c, r, n + k])",
            f"out[c, m, n] = {combiner}[l](rows[c, m + l, n] if 27 - m - l >= 0 else {otherwise})",
        )  # fmt: skip
        assert combined_by_readers("rows", made) == alike
        with nullcontext() if alike else pytest.raises(NotNested, match="rows combines elements"):
            nest = applied(Inline(definition="rows"), made, default_nest(made, "trn1"), "trn1")
            check(made, nest, "neuronxcc")
