"""The referee accepts honest algorithms of every problem and refuses dishonest ones."""

from pathlib import Path

import everyday
import numpy as np
import pytest
from problems import DISHONEST, HONEST, SMALL, small_reference

from accelopt.evaluation import Status
from accelopt.kernels.nki.referee import precision
from accelopt.kernels.nki.referee.comparison import ComparisonVerdict, Gate, usual_size
from accelopt.kernels.nki.referee.norms import row_norms
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
    Trial,
    TrialStore,
    trial_on,
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
    judge = judge._replace(usual=[*map(usual_size, public.expected, public.sizes)])
    found = []
    for name in (PUBLIC[0], HIDDEN, STRESS, ONE_SIDED, SWEEP, END, EVERY, FEW_BITS):
        trial = store.get(reference, name)
        if trial is None and name in (SWEEP, END, EVERY, FEW_BITS):
            continue
        assert trial is not None, name
        found.append(judged_on(trial, reference, kernel, judge))
    return found


def judged_on(trial: Trial, reference: Reference, kernel, judge: Gate) -> ComparisonVerdict:
    def run(inputs):
        with np.errstate(all="ignore"):
            return np.asarray(kernel(*inputs))

    def in_double():
        double = run([*map(precision.in_double, trial.inputs)])
        return reference.kernel_outputs((double,), trial.expected)

    raw = (run(trial.inputs).astype(np.float32),)
    own = judge._replace(in_double=in_double, mirrored=lambda: trial.mirrored(reference))
    return own.judge(trial, raw, reference.kernel_outputs(raw, trial.expected))


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


@pytest.mark.parametrize("z", [-19.0, -30.0])
def test_a_gate_may_cancel_on_the_scale_of_what_it_lets_through(z, folder):
    """Of a large element through a gate that is nearly shut a sigmoid by tanh keeps no digit, in float32 or in
    float64; who shuts the gate is off by less than all that is usual, and is wrong."""
    reference = Reference(everyday.reference("gated", folder))
    h, x, w = reference.inputs(0)
    h[0, 5], x[0] = 9000, z * w[:, 5] / np.square(w[:, 5]).sum()
    trial = trial_on(reference, STRESS, [h, x, w], precision.Precision())
    judge = Gate(usual=(usual_size(trial.expected[0], row_norms(trial.expected[0])),))
    kernels = everyday.HONEST["gated"]["by tanh"], everyday.DISHONEST["gated"]["zero below -8"]
    honest, cut = (judged_on(trial, reference, kernel, judge) for kernel in kernels)
    assert honest.status is Status.CORRECT, honest.message
    assert cut.status is Status.WRONG_NUMBERS


def test_a_product_with_a_vector_may_be_summed_in_a_line(folder):
    """Where sums go far up and come back, float32 rounds what they are on the way (IEEE 754)."""
    reference = Reference(everyday.reference("matvec", folder))
    a, x = reference.inputs(0)
    a[:, : a.shape[1] // 2] += 2
    a[:, a.shape[1] // 2 :] -= 2
    trial = trial_on(reference, STRESS, [a, x + np.float32(0.3)], precision.Precision())
    judge = Gate(usual=(usual_size(trial.expected[0], row_norms(trial.expected[0])),))
    kernels = [*everyday.HONEST["matvec"].values(), lambda a, x: a[:, 1:] @ x[1:, None]]
    found = [judged_on(trial, reference, kernel, judge).status for kernel in kernels]
    assert found == [Status.CORRECT, Status.CORRECT, Status.WRONG_NUMBERS]
