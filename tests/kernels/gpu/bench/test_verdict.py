"""Statuses from errors and from the package's logs; statistics; what is kept."""

import pytest

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.judging.verdict import status_of_error, status_of_trace
from accelopt.kernels.gpu.bench.process.timing import summarise

COMPILE_LOG = """Traceback (most recent call last):
  File "main.py", line 20, in run
triton.compiler.errors.CompilationError: at 6:12:
    pid = tl.program_idx(0)
AttributeError("module has no attribute")
"""
RUN_LOG = """Traceback (most recent call last):
  File "main.py", line 3, in run
RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered
"""


@pytest.mark.parametrize(
    "status, log, expected",
    [
        ("PASSED", "", Status.CORRECT),
        ("COMPILE_ERROR", "", Status.COMPILE_ERROR),
        ("RUNTIME_ERROR", COMPILE_LOG, Status.COMPILE_ERROR),
        ("RUNTIME_ERROR", "triton.runtime.errors.OutOfResources: out of resource: shared memory",
         Status.COMPILE_ERROR),
        ("RUNTIME_ERROR", RUN_LOG, Status.RUN_ERROR),
        ("RUNTIME_ERROR", "", Status.RUN_ERROR),
        ("INCORRECT_SHAPE", "", Status.WRONG_SHAPE),
        ("INCORRECT_DTYPE", "", Status.WRONG_DTYPE),
        ("INCORRECT_NUMERICAL", "", Status.WRONG_NUMBERS),
        ("TIMEOUT", "timed out", Status.TIMEOUT),
        ("TIMEOUT", "Worker process died unexpectedly", Status.CRASH),
    ],
)  # fmt: skip
def test_package_statuses_map_to_ours(status, log, expected):
    assert status_of_trace(status, log) is expected


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
