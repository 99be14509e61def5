"""Which elements of a kernel's inputs reach no result, told from a Program's addresses."""

from pathlib import Path

import numpy as np
import pytest

from accelopt.sim import standin
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.unused_inputs import unused

X = np.zeros((256, 64), np.float32)
BELOW = [(r, c) for r in range(128, 256) for c in range(64)]


@pytest.fixture(scope="module")
def kernels():
    standin.install(always=True)
    from accelopt.kernels.nki.referee.reference import load_module

    return load_module(Path(__file__).with_name("leaving_kernels.py"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", []),
        ("a column", [(row, 20) for row in range(256)]),
        ("an element", [divmod(9000, 64)]),
        ("triangles", [(r, c) for r in range(256) for c in range(64) if c < r % 128]),
        ("rows that are not loaded", BELOW),
        ("rows that are read for nothing", BELOW),
    ],
)
def test_what_reaches_no_result(kernels, name, expected):
    (found,) = unused(trace_kernel(kernels.LEAVING[name], (X,), {}))
    places = [] if found is None else [tuple(map(int, place)) for place in np.argwhere(found)]
    assert places == expected


def test_what_an_index_of_the_run_picks_counts_as_used(kernels):
    program = trace_kernel(kernels.picking, (X, np.zeros((128, 1), np.int32)), {})
    assert unused(program) == (None, None)
