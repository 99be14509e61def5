"""Rectangles of elements: what thousands of tiles reach together."""

import random

from hypothesis import given
from hypothesis import strategies as st

from accelopt.sim.compute.analysis.regions import NumberRange, joined

intervals = st.tuples(st.integers(0, 7), st.integers(1, 4)).map(lambda p: NumberRange(p[0], sum(p)))
rectangles = st.lists(st.tuples(intervals, intervals), max_size=8)


def cells(found):
    return {
        (row, column)
        for rows, columns in found
        for row in range(*rows)
        for column in range(*columns)
    }


@given(rectangles)
def test_joining_rectangles_keeps_their_elements(given_rectangles):
    assert cells(joined(given_rectangles)) == cells(given_rectangles)


def test_the_tiles_of_a_tensor_join_into_one_in_any_order():
    tiles = [
        (NumberRange(128 * row, 128 * (row + 1)), NumberRange(512 * column, 512 * (column + 1)))
        for row in range(40)
        for column in range(50)
    ]
    random.Random(0).shuffle(tiles)
    assert joined(tiles) == {(NumberRange(0, 128 * 40), NumberRange(0, 512 * 50))}
