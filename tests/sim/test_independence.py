"""Whether parallel iterations need each other, decided from the addresses alone.

Evidence: SDK 2.26.1 documentation of nl.affine_range ("iterations can run in any order and in
parallel, loop-carried dependences are not allowed") and of SPMD launches, whose programs are unordered.
"""

from pathlib import Path

import numpy as np
import pytest

from accelopt.sim import standin
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.independence import dependences

X = np.zeros((512, 256), np.float32)


@pytest.fixture(scope="module")
def kernels():
    standin.install(always=True)
    from accelopt.kernels.nki.referee.reference import load_module

    return load_module(Path(__file__).with_name("parallel_kernels.py"))


def found(kernel) -> list[str]:
    return [str(dependence) for dependence in dependences(trace_kernel(kernel, (X,), {}))]


@pytest.mark.parametrize(
    "name",
    ["the one before", "a shared slot", "overlapping columns", "by an inner loop", "programs"],
)
def test_iterations_that_need_each_other_are_told(kernels, name):
    (sentence,) = found(kernels.DEPENDENT[name])
    assert "reads at" in sentence and "writes to" in sentence


@pytest.mark.parametrize(
    "name", ["in order", "a sum", "its own slot", "halves", "a mask", "two loops"]
)
def test_iterations_that_do_not_are_left_alone(kernels, name):
    assert found(kernels.INDEPENDENT[name]) == []


def test_every_kernel_is_asked(kernels):
    assert len(kernels.DEPENDENT) + len(kernels.INDEPENDENT) == 11
