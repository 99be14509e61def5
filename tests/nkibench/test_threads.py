"""The machine's processors change no number: every kernel of NKIBench by one thread and by two."""

import numpy as np
import pytest
from nkibench_problems import SMALL, in_dialect, load, reference
from one_road import assert_threads_change_nothing

from accelopt.sim.dialects.dialect import trace_kernel

DIALECTS = ("neuronxcc", "nki")


def splits(problem, dialect, sizes=None):
    """How many loops of the baseline two threads share, for its reference's inputs."""
    task = reference(problem, sizes)
    kernel = load(in_dialect(problem, dialect)).kernel
    np.random.seed(3)
    given = task.transform_to_nki_inputs(task.get_inputs())
    program = trace_kernel(kernel, given)
    arrays = [value for value in given if isinstance(value, np.ndarray) and value.ndim]
    return assert_threads_change_nothing(program, arrays)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("problem", sorted(SMALL))
def test_small_sizes(problem, dialect):
    assert splits(problem, dialect, SMALL[problem]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("problem", sorted(SMALL))
def test_full_sizes(problem, dialect):
    assert splits(problem, dialect) > 0
