"""The referee accepts honest algorithms of every problem and refuses dishonest ones."""

from pathlib import Path

import everyday
import numpy as np
import pytest
from problems import DISHONEST, HONEST, SMALL, small_reference

from accelopt.evaluation import Status
from accelopt.kernels.nki.referee import precision
from accelopt.kernels.nki.referee.comparison import ComparisonVerdict, Gate, usual_size
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.trials import (
    END,
    EVERY,
    FEW_BITS,
    HIDDEN,
    ONE_SIDED,
    PUBLIC,
    STRESS,
    SWEEP,
    TrialStore,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("referee")


def verdicts(problem: str, kernel, folder: Path) -> list[ComparisonVerdict]:
    return judged(Reference(small_reference(problem, folder)), kernel, folder, problem)


def judged(
    reference: Reference, kernel, folder: Path, problem: str = ""
) -> list[ComparisonVerdict]:
    store = TrialStore(folder / "trials")
    judge = Gate(rel_tol=3e-5 if problem == "mamba" else 2e-5)
    public = store.get(reference, PUBLIC[0])
    found, usual = [], [*map(usual_size, public.expected, public.sizes)]
    for name in (PUBLIC[0], HIDDEN, STRESS, ONE_SIDED, SWEEP, END, EVERY, FEW_BITS):
        trial = store.get(reference, name)
        if trial is None and name in (SWEEP, END, EVERY, FEW_BITS):
            continue
        assert trial is not None, name
        with np.errstate(all="ignore"):
            output = np.asarray(kernel(*trial.inputs)).astype(np.float32)
        raw = (output,)

        def in_double(trial=trial):
            with np.errstate(all="ignore"):
                double = np.asarray(kernel(*map(precision.in_double, trial.inputs)))
            return reference.kernel_outputs((double,), trial.expected)

        own = judge._replace(in_double=in_double, usual=usual)
        found.append(own.judge(trial, raw, reference.kernel_outputs(raw, trial.expected)))
    return found


def cases(table):
    return [(problem, name) for problem, kernels in table.items() for name in kernels]


@pytest.mark.parametrize("problem", SMALL)
def test_the_reference_itself_passes(problem, folder):
    reference = Reference(small_reference(problem, folder))
    for verdict in verdicts(problem, lambda *inputs: reference.forward(inputs)[0], folder):
        assert verdict.status is Status.CORRECT, verdict.message


@pytest.mark.parametrize(("problem", "name"), cases(HONEST))
def test_honest_algorithms_pass(problem, name, folder):
    for verdict in verdicts(problem, HONEST[problem][name], folder):
        assert verdict.status is Status.CORRECT, verdict.message


@pytest.mark.parametrize(("problem", "name"), cases(DISHONEST))
def test_dishonest_algorithms_are_refused(problem, name, folder):
    failed = [v for v in verdicts(problem, DISHONEST[problem][name], folder) if v.message]
    assert failed
    assert all(verdict.status is Status.WRONG_NUMBERS for verdict in failed)


@pytest.mark.parametrize(("problem", "name"), cases(everyday.HONEST))
def test_other_algorithms_of_everyday_problems_pass(problem, name, folder):
    reference = Reference(everyday.reference(problem, folder))
    for verdict in judged(reference, everyday.HONEST[problem][name], folder):
        assert verdict.status is Status.CORRECT, verdict.message


@pytest.mark.parametrize(("problem", "name"), cases(everyday.DISHONEST))
def test_what_is_right_only_for_the_public_draws_is_refused(problem, name, folder):
    """Issue 12, point 17: numbers that pass and are wrong."""
    reference = Reference(everyday.reference(problem, folder))
    failed = [v for v in judged(reference, everyday.DISHONEST[problem][name], folder) if v.message]
    assert failed
    assert all(verdict.status is Status.WRONG_NUMBERS for verdict in failed)
