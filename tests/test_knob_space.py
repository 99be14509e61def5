"""Knobs and configurations: every kind of fault has its message, points have none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from accelopt.knob_space import KnobSpec, Space, name_of, sentence


def knob(name, allowed, **more):
    return KnobSpec(name=name, type=type(allowed[0]).__name__, allowed=tuple(allowed), **more)


MATMUL = Space(
    kernel="matmul",
    knobs=(
        knob("block_m", (64, 128, 256), multiple_of=16, default=128),
        knob("block_n", (64, 128, 256), multiple_of=16, default=128),
        knob("block_k", (16, 32, 64), default=32),
        knob("num_warps", (2, 4, 8), default=4),
        knob("num_stages", (1, 2, 3, 4), default=2),
    ),
)


def test_the_points_of_matmul():
    points = list(MATMUL.points())
    assert len(points) == MATMUL.size == 324 == len(set(map(name_of, points)))
    assert MATMUL.default in points and MATMUL.default["block_k"] == 32


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"block_m": None}, "block_m is missing"),
        ({"block_x": 1}, "there is no knob block_x"),
        ({"block_m": "64"}, "block_m must be of type int, not str"),
        ({"num_warps": True}, "num_warps must be of type int, not bool"),
        ({"num_stages": 7}, "num_stages = 7 is not allowed; allowed are 1, 2, 3, 4"),
    ],
)
def test_every_kind_of_fault_has_its_message(change, said):
    values = {**MATMUL.default, **change}
    values = {name: value for name, value in values.items() if value is not None}
    assert MATMUL.faults(values) == (said,)


def test_what_is_no_multiple_is_no_point():
    space = Space(kernel="k", knobs=(knob("n", (8, 12, 16), multiple_of=8),))
    assert space.faults({"n": 12}) == ("n = 12 is no multiple of 8",)
    assert list(space.points()) == [{"n": 8}, {"n": 16}] and space.size == 2


SOME = st.one_of(st.integers(-2, 300), st.booleans(), st.sampled_from(["", "64"]), st.none())


@given(st.dictionaries(st.sampled_from([k.name for k in MATMUL.knobs] + ["x"]), SOME))
def test_faults_are_empty_exactly_for_points(changes):
    values = {name: v for name, v in {**MATMUL.default, **changes}.items() if v is not None}
    point = any(
        list(map(type, point.values())) == list(map(type, map(values.get, point)))
        for point in MATMUL.points()
        if point == values
    )
    assert (MATMUL.faults(values) == ()) == point


def test_neighbours_differ_by_one_step_of_one_knob():
    near = MATMUL.neighbours(MATMUL.default)
    assert {"block_m": 64, **{k: v for k, v in MATMUL.default.items() if k != "block_m"}} in near
    assert len(near) == 2 + 2 + 2 + 2 + 2
    assert all(not MATMUL.faults(point) for point in near) and MATMUL.default not in near


def test_a_knob_that_contradicts_itself_is_refused():
    for wrong in ({"allowed": ()}, {"allowed": (1, 1)}, {"allowed": (1, "a")}, {"default": 9}):
        with pytest.raises(ValidationError, match="allowed"):
            KnobSpec(**{"name": "n", "type": "int", "allowed": (1, 2), **wrong})


def test_sentences():
    assert sentence({"a": 1, "b": "x"}) == "Set a = 1, b = x."
    assert sentence({}) == "Set all knobs to their defaults."
    assert name_of({"b": 1, "a": 2}) == name_of({"a": 2, "b": 1})
