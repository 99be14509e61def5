"""Statuses from errors; statistics; what is kept."""

import pytest

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.judging.verdict import status_of_error
from accelopt.kernels.gpu.bench.process.comparison import SPARED_ROWS
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


def test_rows_that_rounding_turns_into_others_are_not_judged(torch):
    """Evidence: on an H100, attention's rows whose two largest logits nearly tie at 1e8 differ by 3 in
    relative L2 between kernels and reference that sum in another order; all other rows by less than 0.01."""
    from accelopt.kernels.gpu.bench.process.comparison import all_rows, steady_rows

    values = torch.eye(3)
    logits = torch.tensor([[9e7, 9e7 + 8, 0.0], [9e7, 5e7, 0.0], [1.0, 2.0, 3.0]])
    wanted = torch.softmax(logits, -1) @ values
    disturbed = [torch.softmax(logits * torch.tensor([1 + by, 1 - by, 1.0]), -1) @ values
                 for by in (2.0**-9, -(2.0**-9))]  # fmt: skip
    steady = steady_rows(wanted, disturbed)
    assert steady.rows.squeeze(-1).tolist() == [False, True, True]
    assert 0 <= steady.allowance < 0.01
    assert steady_rows(wanted, [wanted, wanted]).allowance == 0.0
    whole = all_rows(wanted, 0.1)
    assert whole.rows.all() and whole.rows.shape == (3, 1) and whole[1:] == (0.1, 0.0)


@pytest.mark.parametrize(
    ("wrong", "spared", "right"), [(1, 0.0, False), (2, SPARED_ROWS, True), (3, SPARED_ROWS, False)]
)
def test_only_on_extreme_values_a_few_rows_are_spared(torch, wrong, spared, right):
    """Two of 512 rows are 1 / 256."""
    from accelopt.kernels.gpu.bench.process.comparison import Tolerance, compare

    wanted = torch.ones(512, 64)
    wanted[8:] *= 100
    got = wanted.clone()
    got[:wrong] *= 3
    found = compare("out", got, wanted, Tolerance(10.0, 10.0), 1e-2,
                    elementwise=False, spared=spared)  # fmt: skip
    assert (found.failure == "") is right


def test_a_kernel_that_rounds_less_than_its_reference_is_right():
    """A residual's sum that the reference rounds to bfloat16 before a norm with weight and bias (rounding to 8
    bits): a kernel that keeps it in float32 differs by that times a weight, also where the bias cancels it. A
    column of another weight does not pass for it."""
    torch = pytest.importorskip("torch")
    from accelopt.kernels.gpu.bench.process.comparison import Tolerance, compare

    make = torch.Generator().manual_seed(0)
    x, residual = (torch.randn(512, 1024, generator=make).bfloat16() for _ in range(2))
    weight = torch.randn(1024, generator=make).bfloat16()
    bias = torch.randn(1024, generator=make)
    weight[:8], bias[:8] = 8.0, 8.0

    def norm(z, weight=weight):
        z = z - z.mean(-1, keepdim=True)
        z = z * torch.rsqrt((z * z).mean(-1, keepdim=True) + 1e-5)
        return (z * weight.float() + bias).bfloat16()

    wanted = norm((x + residual).float())
    exact = x.float() + residual.float()

    def failure(got):
        return compare("out", got, wanted, Tolerance(), 1.5e-2).failure

    assert not torch.equal(norm(exact), wanted) and failure(norm(exact)) == ""
    changed = weight.clone()
    changed[weight.abs().argmax()] *= 1.05
    assert "beyond 0.01 absolute" in failure(norm(exact, changed))


def _cut_to_tf32(x):
    import torch

    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_alike_elements_are_off_to_either_side():
    """Products of operands that tl.dot cuts off to TF32, all of one sign, and attention whose weights are
    rounded to bfloat16 are right; an output times 1.01 is below the package's tolerance and is not."""
    torch = pytest.importorskip("torch")
    from accelopt.kernels.gpu.bench.process.comparison import Tolerance, compare, limit_of

    make = torch.Generator().manual_seed(0)
    a, b, c = (torch.rand(256, 256, generator=make) for _ in range(3))
    cut = _cut_to_tf32(_cut_to_tf32(a) @ _cut_to_tf32(b)) @ _cut_to_tf32(c)
    q, k, v = (torch.randn(256, 64, generator=make).bfloat16().float() for _ in range(3))
    scores = q @ k.T / 8
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    flash = (weights.bfloat16().float() @ v) / weights.sum(-1, keepdim=True)
    attention = (torch.softmax(scores, -1) @ v).bfloat16()

    def failure(got, wanted):
        limit = limit_of(str(wanted.dtype).removeprefix("torch."), coarse=False)
        return compare("out", got, wanted, Tolerance(), limit).failure

    assert failure(cut, a @ b @ c) == "" and failure(flash.bfloat16(), attention) == ""
    assert "to the same side" in failure((attention.float() * 1.01).bfloat16(), attention)
    assert "to the same side" in failure(cut * 1.006, a @ b @ c)
