"""Full scrutiny by two workers says what one alone says."""

import asyncio

import pytest
from alone import evaluated
from exhibits import kernel_file, reference_file

from accelopt.evaluation import EvaluationRequest, Status
from accelopt.kernels.nki import requests
from accelopt.sandbox.workers import WorkerPool


def both(kernel: str, cache: str):
    """The verdict of one worker, and that of two."""
    request = EvaluationRequest(
        kernel=str(kernel_file(kernel)),
        task=str(reference_file(kernel)),
    )

    async def shared():
        async with WorkerPool(2, cache=cache) as pool:
            return await requests.submit_in_halves(pool, request)

    return evaluated(request, cache), asyncio.run(shared())


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        ("honest_softmax", Status.CORRECT),
        ("copies_its_input", Status.WRONG_NUMBERS),
        ("softmax_without_maximum", Status.WRONG_NUMBERS),
        ("rmsnorm_without_eps", Status.WRONG_NUMBERS),
    ],
)
def test_two_workers_say_what_one_says(kernel, status, tmp_path):
    alone, shared = both(kernel, str(tmp_path))
    assert alone.status is shared.status is status
    changing = {"seconds": 0.0, "notes": ()}
    assert shared.model_copy(update=changing) == alone.model_copy(update=changing)
    assert set(shared.notes) == set(alone.notes)


def test_a_fault_of_the_second_half_is_found(tmp_path):
    """The program depends on hash seeds: only tracing again, in the second half, shows it."""
    alone, shared = both("another_by_the_year_quietly", str(tmp_path))
    assert alone.status is shared.status is not Status.CORRECT
    assert alone.message == shared.message
