"""Every baseline against its reference, on the simulated core."""

import pytest
from problems import SHAPES, SMALL, assert_agrees, files, reference, run, tolerance

PROBLEMS = sorted(SHAPES)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_small_sizes(problem: str) -> None:
    task = reference(problem, SMALL[problem])
    assert_agrees(*run(task, files(problem)[1]), tolerance(problem))


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_full_size(problem: str) -> None:
    output, expected = run(reference(problem), files(problem)[1], seed=42)
    assert expected.shape == SHAPES[problem].output
    assert_agrees(output, expected, tolerance(problem))
