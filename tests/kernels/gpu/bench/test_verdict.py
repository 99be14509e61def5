"""Statuses from errors; statistics; what is kept."""

import pytest

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.judging.verdict import status_of_error
from accelopt.kernels.gpu.bench.process.timing import summarise


@pytest.mark.parametrize(
    "error, message, expected",
    [
        ("triton.compiler.errors.CompilationError", "at 1:1", Status.COMPILE_ERROR),
        ("triton.runtime.errors.OutOfResources", "shared memory", Status.COMPILE_ERROR),
        ("builtins.RuntimeError", "PassManager::run failed", Status.COMPILE_ERROR),
        ("builtins.RuntimeError", "CUDA error: misaligned address", Status.RUN_ERROR),
        ("builtins.AssertionError", "", Status.RUN_ERROR),
    ],
)
def test_exceptions_map_to_statuses(error, message, expected):
    assert status_of_error(error, message) is expected


def test_the_interval_encloses_the_median_and_shrinks():
    few = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
    assert few.low <= few.median == 3.0 <= few.high
    many = summarise([1.0, 2.0, 3.0, 4.0, 5.0] * 40)
    assert many.high - many.low < few.high - few.low
    assert summarise([2.0]).low == summarise([2.0]).high == 2.0
    with pytest.raises(ValueError):
        summarise([])
