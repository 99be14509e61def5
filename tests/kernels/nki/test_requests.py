"""Full scrutiny by two workers says what one alone says."""

import asyncio
from pathlib import Path

import pytest

from accelopt.evaluation import EvaluationRequest, Status
from accelopt.kernels.nki import requests
from accelopt.sandbox.workers import WorkerPool

HOSTILE = Path(__file__).parents[2] / "hostile"


def both(kernel: str, reference: str, cache: str):
    """The verdict of one worker, and that of two."""
    request = EvaluationRequest(
        kernel=str(HOSTILE / "kernels" / f"{kernel}.py"),
        task=str(HOSTILE / "references" / f"{reference}.py"),
    )

    async def shared():
        async with WorkerPool(2, cache=cache) as pool:
            return await requests.submit_in_halves(pool, request)

    return requests.evaluate(request, cache=cache), asyncio.run(shared())


@pytest.mark.parametrize(
    ("kernel", "reference", "status"),
    [
        ("honest_softmax", "softmax", Status.CORRECT),
        ("copies_its_input", "softmax", Status.WRONG_NUMBERS),
        ("softmax_without_maximum", "softmax", Status.WRONG_NUMBERS),
        ("rmsnorm_without_eps", "rmsnorm", Status.WRONG_NUMBERS),
    ],
)
def test_two_workers_say_what_one_says(kernel, reference, status, tmp_path):
    alone, shared = both(kernel, reference, str(tmp_path))
    assert alone.status is shared.status is status
    changing = {"seconds": 0.0, "notes": ()}
    assert shared.model_copy(update=changing) == alone.model_copy(update=changing)
    assert set(shared.notes) == set(alone.notes)


def test_a_fault_of_the_second_half_is_found(tmp_path):
    """The program depends on hash seeds: only tracing again, in the second half, shows it."""
    alone, shared = both("another_by_the_year_quietly", "softmax", str(tmp_path))
    assert alone.status is shared.status is not Status.CORRECT
    assert alone.message == shared.message
