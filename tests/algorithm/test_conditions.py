"""Conditions on indices: what they are simplified to holds at the same places, and what is said to follow does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.values import (
    at_least_zero,
    coarsest,
    decided,
    everywhere,
    follows,
    needed,
    never,
)

M, N = Axis("m", 5), Axis("n", 24)
PLACES = {M: np.arange(5)[:, None], N: np.arange(24)[None, :]}


@st.composite
def indices(draw: st.DrawFn) -> Index:
    """A sum of axes, with a floor of such a sum."""
    number = st.integers(-30, 30)
    plain = [index_of(M) * draw(number) + index_of(N) * draw(number) + draw(number) for _ in "ab"]
    return plain[0] + plain[1] // draw(st.integers(2, 24)) * draw(number)


conditions = st.lists(indices(), min_size=1, max_size=3).map(tuple)


def held(some: tuple[Index, ...]) -> np.ndarray:
    """The places where all of some conditions (>= 0) hold."""
    found = [np.broadcast_to(c.evaluate(PLACES) >= 0, (5, 24)) for c in some]
    return np.logical_and.reduce([np.ones((5, 24), bool), *found])


@settings(max_examples=300, deadline=None)
@given(conditions)
def test_simplified_conditions_hold_at_the_same_places(some: tuple[Index, ...]) -> None:
    """Evidence: both are evaluated at every place."""
    each = [tuple(map(change, some)) for change in (at_least_zero, coarsest)]
    for made in (*each, decided(some), needed(some)):
        np.testing.assert_array_equal(held(made), held(some))
    assert never(some) == (not held(some).any())


@settings(max_examples=300, deadline=None)
@given(indices(), conditions, conditions)
def test_what_follows_holds(
    asked: Index, facts: tuple[Index, ...], others: tuple[Index, ...]
) -> None:
    """Evidence: both are evaluated at every place."""
    assert not follows(asked, facts) or held((asked,))[held(facts)].all()
    covered = (held((asked,)) | held(others))[held(facts)].all()
    known = {axis for c in (asked, *others) for axis in c.axes}
    whole = all(fact.axes <= known for fact in facts)
    assert everywhere(facts, ((asked,), others)) == covered or not whole


def test_what_counts_within_a_step_does_not_matter() -> None:
    """A pooling's taps that were written as one number: `k + 3 * l + 3 * m >= 6` with k below 3."""
    k, l, m = (index_of(Axis(name, size)) for name, size in (("k", 3), ("l", 3), ("m", 28)))
    assert coarsest(k + l * 3 + m * 3 - 6) == l + m - 2
    assert coarsest(k + l * 2 + m * 3 - 6) == k + l * 2 + m * 3 - 6


def test_floors_that_conditions_decide_are_numbers() -> None:
    """Evidence: rows of a padded tile begin at 62 and are 26 of 30 long, 26 of 30 in a plane."""
    m, n = index_of(Axis("m", 28)), index_of(Axis("n", 28))
    place = m * 30 + n + 838
    row = place % 900 // 30
    inside = (place // 900 - 1, row * -1 + 25, place // 900 * 900 + row * 30 - m * 30 - n - 813)
    assert set(decided(inside)) == {m * 30 + n - 62, n - 2}


def test_an_unchosen_rest_is_covered() -> None:
    """Evidence: the rim and the inside of a square are all of it; without a corner they are not."""
    m, n = index_of(M), index_of(N)
    inside = (m - 1, m * -1 + 3, n - 1)
    rim = ((m * -1,), (m - 4,), (n * -1,))
    assert everywhere((), (inside, *rim))
    assert not everywhere((), (inside, *rim[:2], (n * -1, m - 2)))
