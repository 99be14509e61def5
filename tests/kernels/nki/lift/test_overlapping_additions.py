"""What is added to overlapping parts of one tile is a sum of reads that are 0 outside of their parts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_heads import neuronxcc_of, nki_of
from lifted_text import check_nests, lifted

from accelopt.algorithm.ir import Map, Reduce, Where, parts_in

HEADS = {"trn1": neuronxcc_of, "trn2": nki_of}


def kernel_of(target: str, shape: tuple[int, int], places: list[tuple[int, int, int]]) -> str:
    """A kernel that adds its (64, *shape) input to a tile at some places (row, column, step between both)."""
    at = [
        f"acc[:, {m}:{m + (shape[0] - 1) * s + 1}:{s}, {n}:{n + (shape[1] - 1) * s + 1}:{s}]"
        for m, n, s in places
    ]
    ends = [max(p[d] + (shape[d] - 1) * p[2] + 1 for p in places) for d in (0, 1)]
    line = {
        "trn1": "{at} = nl.add({at}, g)",
        "trn2": "nisa.tensor_tensor(dst={at}, data1={at}, data2=g, op=nl.add)",
    }[target]
    made = "g, acc = nl.load(x), nl.zeros(out.shape, dtype=nl.float32, buffer=nl.sbuf)"
    lines = [made, *(line.format(at=each) for each in at), "nl.store(out, acc)"]
    return HEADS[target]("x", shape=f"(64, {ends[0]}, {ends[1]})")("\n".join(lines))


PLACES = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 3))


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([*HEADS]), st.lists(PLACES, min_size=1, max_size=4))
def test_any_additions_are_what_the_core_computes(
    target: str, places: list[tuple[int, int, int]]
) -> None:
    x = np.random.default_rng(0).normal(size=(64, 5, 7)).astype(np.float32)
    x[:, 2, 3] = np.inf  # reaches what it is added to, and nothing else
    _, found, expected = lifted(kernel_of(target, (5, 7), places), [x], target)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [*HEADS])
@pytest.mark.parametrize("taps", [3, 4])
def test_windows_are_one_sum(target: str, taps: int) -> None:
    x = np.random.default_rng(1).uniform(1, 2, size=(64, 9, 11)).astype(np.float32)
    places = [(m, n, 1) for m in range(taps) for n in range(taps)]
    one = lifted(kernel_of(target, (9, 11), places), [x], target)
    [total] = one.algorithm.definitions
    assert isinstance(total, Reduce) and [a.extent for a in total.reduced] == [taps, taps]
    np.testing.assert_allclose(one.found, one.expected, rtol=1e-5, atol=1e-5)
    if target == "trn2":
        check_nests(one, [x], 1e-5)


def test_strided_windows_add_once_each() -> None:
    """Of taps two elements apart those that meet are terms: no more than there are taps."""
    x = np.random.default_rng(1).normal(size=(64, 9, 11)).astype(np.float32)
    places = [(m, n, 2) for m in range(3) for n in range(2)]
    one = lifted(kernel_of("trn2", (9, 11), places), [x])
    [total] = one.algorithm.definitions
    assert isinstance(total, Map)
    assert sum(isinstance(part, Where) for part in parts_in(total)) <= len(places)
    np.testing.assert_allclose(one.found, one.expected, rtol=1e-5, atol=1e-5)


def test_frames_that_overlap_are_a_sum_of_those_that_meet() -> None:
    x = np.random.default_rng(2).normal(size=(64, 1, 64)).astype(np.float32)
    text = kernel_of("trn2", (1, 64), [(0, 32 * n, 1) for n in range(8)])
    one = lifted(text, [x])
    np.testing.assert_allclose(one.found, one.expected, rtol=1e-5, atol=1e-5)
    [total] = one.algorithm.definitions
    assert isinstance(total, Reduce) and [a.extent for a in total.reduced] == [2]
