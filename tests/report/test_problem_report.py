"""What `accelopt explain` says of a kernel: its problem, its loops by axis, its tiles, its limits."""

import pytest

from accelopt.report.explain_text import problem_text
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from tests.sim.timing.timing_kernels import timed


def product(left, right):
    """left (K, M), right (K, N): the right operand is read again for every block of rows."""
    depth, rows = left.shape
    out = nl.ndarray((rows, right.shape[1]), dtype=left.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(rows // 128):
        lefts = nl.ndarray((depth // 128, nl.par_dim(128), 128), dtype=left.dtype, buffer=nl.sbuf)
        for k in nl.affine_range(depth // 128):
            lefts[k] = nl.load(left[nl.ds(k * 128, 128), nl.ds(m * 128, 128)])
        total = nl.zeros((128, right.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(depth // 128):
            total += nisa.nc_matmul(lefts[k], nl.load(right[nl.ds(k * 128, 128), :]))
        nl.store(out[nl.ds(m * 128, 128), :], nl.copy(total))
    return out


def doubling(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), nl.rand(x.shape)))
    return out


def explained(kernel, *shapes):
    return problem_text(timed(kernel, *shapes))


@pytest.fixture(scope="module")
def text():
    return explained(product, (512, 1024), (512, 512))


def test_the_problem_stands_first(text):
    assert text.startswith("What it computes\n  given left: 512 x 1024 float32\n")
    assert "\n    out[m, n] = sum_k left[k, m] * right[k, n]\n" in text
    assert "# matrix product, 1024 x 512 by 512 x 512: 0.5369 Gflop" in text
    assert max(map(len, text.splitlines())) <= 80


def test_loops_are_named_by_the_axis_that_they_run_along(text):
    said = [line.rsplit("line", 1)[0].strip() for line in text.splitlines()]
    assert "for m in 8 steps of 128:" in said
    assert said.count("for k in 4 steps of 128:") == 2
    assert "load 128 x 512 of right (256 KiB)" in said
    assert "total += 128 x 128 by 128 x 512 (tensor engine)" in said


def test_tiles_say_how_long_they_are_needed(text):
    (line,) = (line for line in text.splitlines() if line.strip().startswith("lefts "))
    assert line.split()[3:6] == ["SBUF", "2", "KiB"] and "one step of m" in line


def test_what_is_read_again_and_what_limits():
    """A right operand of 32 MiB stays nowhere, so every block of rows loads it again."""
    text = explained(product, (16384, 256), (16384, 512))
    (line,) = (line for line in text.splitlines() if line.startswith("  right "))
    assert line.split() == ["right", "32", "MiB", "64", "MiB", "2"]
    assert "ms, simulated trn1, SDK 2.21 front end." in text and "of bound" in text


def turns(x, gain):
    """Four rounds of Python's loop, each of two instructions, and nothing of `gain`."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for at in nl.static_range(4):
        nl.store(out[nl.ds(at * 128, 128), :], nl.load(x[nl.ds(at * 128, 128), :]))
    return out


def test_rounds_that_are_written_out_stand_once_and_unread_inputs_are_named():
    text = explained(turns, (512, 64), (4, 4))
    assert text.count("load 128 x 64 of x") == 1 and "4 times, written out:" in text
    assert "Nothing is read of gain.\nNo input is read more than once.\n" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_kernel_without_an_algorithm_says_why_and_is_shown(capsys):
    text = explained(doubling, (128, 64))
    assert text.startswith("What it computes has no closed form that could be found:\n  line ")
    assert "it draws random numbers" in text and "load 128 x 64 of x (32 KiB)" in text
