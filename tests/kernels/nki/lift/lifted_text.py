"""Kernels that tests give as text: their Programs, their Algorithms, and what both compute."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.ir import Algorithm
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.sim import compute
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.kernel_loading import load
from accelopt.sim.program import Program
from tests.algorithm.evaluation import evaluate


class Lifted(NamedTuple):
    """An Algorithm, what it computes of some inputs, and what the simulated core does by its kernel."""

    algorithm: Algorithm
    found: np.ndarray
    expected: np.ndarray


def traced(text: str, given: Sequence[np.ndarray], target: str = "trn2") -> Program:
    return trace_kernel(load(text, "kernel.py").kernel, given, target=target)


def lifted(text: str, given: Sequence[np.ndarray], target: str = "trn2") -> Lifted:
    """What a kernel of one result lifts to."""
    program = traced(text, given, target)
    (expected,) = compute.execute(program, [one.copy() for one in given])
    algorithm = lift(program)
    names = [array.name for array in algorithm.inputs]
    (found,) = evaluate(algorithm, dict(zip(names, given, strict=True)))
    return Lifted(algorithm, found.reshape(expected.shape), expected)


def check_nests(one: Lifted, given: Sequence[np.ndarray], rtol: float) -> None:
    """The first nests of an Algorithm compute what its kernel does."""
    for nest in list(starting_nests(one.algorithm, "trn2"))[:3]:
        source = lower_nest(one.algorithm, nest, target="trn2", dialect="nki").source
        (own,) = compute.execute(traced(source, given), [each.copy() for each in given])
        assert np.allclose(own, one.expected, rtol=rtol)
