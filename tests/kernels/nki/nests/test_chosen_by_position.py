"""Choices by position, room beside arrays along several axes, ranges that are read, equal recurrences, and one
operand for both sides of a product.

Evidence: `evaluate` in fp64 of the Algorithm; the simulated core's numbers for all nests that a search begins with.
"""

import numpy as np
import pytest
from warm import computed

from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.nests.hbm_margins import margins_of
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.nest import Part, default_nest
from accelopt.kernels.nki.nests.preparing import prepared
from accelopt.kernels.nki.nests.primitives import Hold, Partition, Split, applied
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.sim.dialects.dialect import Dialect
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import written
from tests.kernels.nki.nests.test_nests import TARGETS

RIM = written(
    "rim", {"m": 192, "n": 40}, {"u": (192, 40)},
    "out[m, n] = u[m - 1, n] + u[m + 1, n] * 2.0"
    " if m - 1 >= 0 and 190 - m >= 0 and n - 1 >= 0 and 38 - n >= 0 else u[m, n]",
)  # fmt: skip
APPENDED = written(
    "appended", {"m": 256, "n": 32}, {"old": (200, 32), "new": (56, 32)},
    "both[m, n] = new[m - 200, n] if m - 200 >= 0 else old[m, n]",
    "out[m, n] = exp(both[m, n])",
)  # fmt: skip
WINDOWS = written(
    "windows", {"c": 64, "m": 12, "n": 10, "k": 3, "l": 3}, {"x": (64, 12, 10), "w": (64, 3, 3)},
    "out[c, m, n] = add[k, l](w[c, k, l] * (x[c, m + k - 1, n + l - 1]"
    " if m + k - 1 >= 0 and 12 - m - k >= 0 and n + l - 1 >= 0 and 10 - n - l >= 0 else 0.0))",
)  # fmt: skip
HALVES = written(
    "halves", {"m": 64, "n": 128, "k": 32}, {"a": (64, 32), "b": (32, 128), "c": (32, 128)},
    "left[m, n] = add[k](a[m, k] * b[k, n])",
    "right[m, n] = add[k](a[m, k] * c[k, n])",
    "out[m, n] = left[m, n] if 63 - n >= 0 else right[m, n]",
)  # fmt: skip
STATES = written(
    "states", {"m": 32, "n": 48, "t": 24, "i": 24, "j": 32, "k": 48}, {"x": (32, 24), "d": (48, 24)},
    "state[m, n, t] = scan[t](d[n, t], x[m, t])",
    "turned[k, j, i] = scan[i](d[k, i], x[j, i])",
    "out[m, n, t] = state[m, n, t] * turned[n, m, t]",
)  # fmt: skip
GRAM = written(
    "gram", {"m": 256, "n": 256, "k": 256}, {"x": (256, 256)},
    "out[m, n] = add[k](x[m, k] * x[n, k])",
)  # fmt: skip
CENTRED = written(
    "centred", {"m": 192, "n": 192, "k": 256}, {"x": (256, 192), "mean": (192,)},
    "out[m, n] = add[k]((x[k, m] - mean[m]) * (x[k, n] - mean[n]))",
)  # fmt: skip


@pytest.mark.parametrize(
    "whole", [RIM, APPENDED, WINDOWS, HALVES, GRAM, CENTRED], ids=lambda one: one.name
)
def test_kernels_compute_the_same(whole: Algorithm) -> None:
    """Of the nests that a search begins with, all that have other text."""
    draw = np.random.default_rng(3)
    inputs = [draw.normal(size=a.shape).astype(np.float32) for a in whole.inputs]
    (expected,) = evaluate(whole, {a.name: x.astype(np.float64) for a, x in zip(whole.inputs, inputs, strict=True)})  # fmt: skip
    nests = starting_nests(whole, "trn2")
    texts = {lower_nest(whole, nest, target="trn2", dialect="nki").source for nest in nests}
    for text in sorted(texts):
        (found,) = computed(text, inputs, "trn2")
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    if whole in (RIM, APPENDED):  # brought in parts, where one axis is on partitions not masked
        assert any("affine_select" not in text and "predicate" not in text for text in texts)
    if whole is CENTRED:  # blocks of rows are parts of what moves
        assert min(text.count("nl.subtract") for text in texts) == 1


def test_what_is_prepared() -> None:
    """Room along both axes of windows; halves as far as they are read; one recurrence of two."""
    margins = margins_of(WINDOWS, Reading(WINDOWS))["x"]
    assert margins.apart and margins.shape == (64, 14, 12)
    extents = {d.out: [a.extent for a in d.axes] for d in prepared(HALVES).definitions}
    assert extents["left"] == extents["right"] == [64, 64]
    assert [d.out for d in prepared(STATES).definitions] == ["state", "out"]


@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("step", [-2, -1, 1, 5])
def test_rows_of_other_partitions_are_brought_on_the_chip(step: int, dialect: Dialect) -> None:
    """Four successive rows on a partition, read so many rows further on, in HBM or held in SBUF: those of the next
    partitions come by a DMA from there."""
    target, other = TARGETS[dialect], f"63 - m - {step} >= 0 and m + {step} >= 0"
    whole = written(
        "steps", {"m": 64, "n": 24}, {"u": (64, 24)},
        "mid[m, n] = u[m, n] * 2.0 + 1.0",
        f"out[m, n] = mid[m, n] * 0.5 + mid[m + {step}, n] if {other} else mid[m, n]",
    )  # fmt: skip
    nest = applied(Split(definition="out", axis="m", size=4), whole, default_nest(whole, target), target)  # fmt: skip
    for name in ("mid", "out"):
        rows = Partition(definition=name, axes=(Part(axis="m_1", size=16),))
        nest = applied(rows, whole, nest, target)
    held = applied(Hold(definition="mid", memory="SBUF"), whole, nest, target)
    given = np.random.default_rng(0).normal(size=(64, 24)).astype(np.float32)
    (expected,) = evaluate(whole, {"u": given.astype(np.float64)})
    for made in (nest, held):
        text = lower_nest(whole, made, target=target, dialect=dialect).source
        (found,) = computed(text, [given], target)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert ("mid_shifted" in text) == ("private_hbm" not in text) == (made is held)
