"""What a fixer is told of wrong outputs: where they differ, and how. Arithmetic on small arrays."""

import numpy as np
import pytest

from accelopt.kernels.nki.faults import describe

WANTED = np.random.default_rng(5).standard_normal((512, 1024))
LEFT, RIGHT = (np.random.default_rng(n).standard_normal(s) for n, s in ((1, (512, 256)), (2, (256, 1024))))  # fmt: skip


def changed(change):
    output = WANTED.copy()
    change(output)
    return output


def tail(output):
    output[384:] = 0


def every_block(output):
    output[:, np.arange(1024) % 512 < 128] += 1.0


def tile_of_another_place(output):
    output[:, 512:] = WANTED[:, :512]


def one_nan(output):
    output[5, 7] = np.nan


CASES = {
    "a block that nobody stored": (changed(tail), ["wrong only at 384..511", "are 0"]),
    "a factor": (WANTED * 0.5, ["0.5 times what is wanted"]),
    "an offset": (WANTED + 2.0, ["2 more than what is wanted"]),
    "a part of every block": (changed(every_block), ["0..127, 512..639", "1 more than"]),
    "the wrong block": (changed(tile_of_another_place), ["(0, 512) stands what belongs at (0, 0)"]),
    "memory never written": (changed(one_nan), ["1 of 524,288", "only at 5", "NaN, 0 infinite"]),
    "a row's own factor": (
        WANTED * np.linspace(0.5, 1.0, 512)[:, None],
        ["Each row is what is wanted times a factor of its own, 0.5 to"],
    ),
    "something unrelated": (WANTED[::-1, ::-1].copy(), ["a wrong operand, layout or index"]),
}


@pytest.mark.parametrize("name", CASES)
def test_where_and_how_outputs_differ(name):
    output, wanted = CASES[name]
    said = "\n".join(describe(output, WANTED))
    for words in wanted:
        assert words in said, said
    assert "For instance at (" in said


def test_half_of_a_sum_is_said_to_be_a_part_of_it():
    said = "\n".join(describe(LEFT[:, :128] @ RIGHT[:128], LEFT @ RIGHT))
    assert "a part of the sum is missing" in said


def test_the_transpose_of_a_square_and_nothing_of_what_is_right():
    square = WANTED[:, :512]
    assert "It is the transpose of what is wanted." in describe(square.T, square)
    assert describe(WANTED * (1 + 1e-7), WANTED) == []
    assert describe(np.full(3, np.nan), np.full(3, np.nan)) == []


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 1, 5)])
def test_any_shape_is_taken(shape):
    assert describe(np.zeros(shape), np.ones(shape))[0].endswith("wrong (100.00%).")
