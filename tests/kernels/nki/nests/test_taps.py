"""Products by taps: convolutions whose operand is read at other places for each tap, with zeros around it.

Evidence: `evaluate` in fp64 of the Algorithm; the simulated core's numbers for nests that a search begins with.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warm import computed

from accelopt.algorithm.addresses import GuardedAddress, view_of
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.nests.axis_positions import FreeNames
from accelopt.kernels.nki.nests.loop_rerolling import folded
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.rendering import rendered
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.nests.statements import line
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import written


def taps(
    count: int, dilation: int, stride: int, ends: tuple[int, int], extent: int, channels: int,
    turned: bool = False, flat: bool = True,
) -> Algorithm:  # fmt: skip
    """A convolution of three images; of two axes, the first has 5 elements, three taps and one zero at each end."""
    length = (extent + sum(ends) - dilation * (count - 1) - 1) // stride + 1
    axes = {"m": 3, "j": 40, "n": length, "k": count, "i": channels}
    at = f"n * {stride} + k * {dilation} - {ends[0]}"
    test = f"{at} >= 0 and n * -{stride} + k * -{dilation} + {extent - 1 + ends[0]} >= 0"
    out, dims, summed, place = "n, j" if turned else "j, n", (), "k", at
    if not flat:
        axes |= {"h": 5, "l": 3}
        out, dims, summed = f"h, {out}" if turned else "j, h, n", (5,), "l, k"
        place, test = f"h + l - 1, {at}", f"{test} and h + l - 1 >= 0 and h * -1 + l * -1 + 5 >= 0"
    return written(
        "taps", axes,
        {"x": (3, channels, *dims, extent), "w": (*(3 for _ in dims), count, channels, 40)},
        f"out[m, {out}] = add[{summed}, i](w[{summed}, i, j] * (x[m, i, {place}] if {test} else 0.0))",
    )  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_kernels_compute_the_same(data: st.DataObject) -> None:
    """Of random taps, dilations, strides and zeros at both ends, the positions on either side of the product, in
    both dialects: every fourth of the nests that a search begins with."""
    draw = data.draw
    sizes = [draw(st.integers(*ends)) for ends in ((2, 4), (1, 3), (1, 2), (0, 4), (0, 4))]
    extent, channels = draw(st.sampled_from((12, 24, 37))), draw(st.sampled_from((32, 48, 64)))
    whole = taps(*sizes[:3], (sizes[3], sizes[4]), extent, channels, draw(st.booleans()), draw(st.booleans()))  # fmt: skip
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=a.shape).astype(np.float32) for a in whole.inputs]
    named = {a.name: x.astype(np.float64) for a, x in zip(whole.inputs, inputs, strict=True)}
    (expected,) = evaluate(whole, named)
    target, dialect = draw(st.sampled_from((("trn2", "nki"), ("trn1", "neuronxcc"))))
    nests = [*starting_nests(whole, target)][draw(st.integers(0, 3)) :: 4]
    for text in {lower_nest(whole, nest, target=target, dialect=dialect).source for nest in nests}:
        (found,) = computed(text, inputs, target)
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("channels", [64, 96])
def test_zeros_are_set_on_chip(flat: bool, channels: int) -> None:
    """No nest that a search begins with makes a copy in HBM or chooses element by element, also where two taps
    share the partitions."""
    whole = taps(3, 2, 1, (4, 0), 24, channels, flat=flat)
    nests = starting_nests(whole, "trn2")
    texts = [lower_nest(whole, nest, target="trn2", dialect="nki").source for nest in nests]
    assert not any("private_hbm" in text or "select" in text for text in texts)


def test_rows_are_found_beside_a_dilation() -> None:
    """A dilation that divides the size of an array but no row is no dimension of it."""
    b, k, i, n = (Axis(*pair) for pair in (("b", 6), ("k", 5), ("i", 128), ("n", 401)))
    inside = index_of(k) * 3 + index_of(n) - 6
    address = index_of(b) * 51328 + index_of(i) * 401 + inside
    given = GuardedAddress(address, (inside, inside * -1 + 400))
    assert view_of([given], (6, 128, 401)) == (6, 128, 401)


def test_a_row_begins_where_its_guards_leave_it() -> None:
    """Elements 22 and 23 of rows of 24, read 300 places further on: 300 is no multiple of a row."""
    m, n = Axis("m", 64), Axis("n", 325)
    place = index_of(n) - 322
    given = GuardedAddress(index_of(m) * 24 + index_of(n) - 300, (place, place * -1 + 1))
    assert view_of([given], (64, 24)) == (64, 24)


def test_names_that_others_use_are_given_where_they_were() -> None:
    """Statements that name patterns of places are alike and stay apart, since those after them use the names."""
    count = 16
    named = [line(f"i_p_{n}, i_x_{n} = nl.mgrid[0:128, 0:{n * n}]") for n in range(2, count)]
    used = [line(f"out[i_p_{n}, i_x_{n}] = x[i_p_{n}, i_x_{n}]") for n in range(2, count)]
    text = "\n".join(rendered(folded([*named, *used], FreeNames(set()))))
    assert all(
        text.index(f"i_p_{n}, i_x_{n} = nl") < text.rindex(f"i_p_{n}") for n in range(2, count)
    )
