"""A verdict on a kernel with a loop of the device is timed by how often it ran on the public inputs.
Evidence: none measured; a loop of 256 rounds was priced as one of two."""

import textwrap

import numpy as np
import pytest
from kernel_heads import nki_of

from accelopt.evaluation import EvaluationRequest, Scrutiny, Status
from accelopt.kernels.nki.inspection import inspect_job
from accelopt.kernels.nki.judging import confirm, evaluate
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.referee.trials import TrialStore
from accelopt.report.kernel_simulation import simulate
from accelopt.report.rule_check import check
from tests.kernels.nki.lift.lifted_text import traced

REFERENCE = """
import numpy as np

def get_inputs():
    return [np.random.uniform(size=(128, 512)).astype(np.float32), np.full((1, 1), {rounds}, np.int32)]

def forward(x, rounds):
    for _ in range(int(rounds[0, 0])):
        x = np.tanh(x)
    return x
"""
KERNEL = nki_of("x, rounds")("""
tile, count = nl.load(x), nl.load(rounds)
stop = nisa.register_alloc()
nisa.register_load(stop, count)
for i in nl.dynamic_range(0, stop):
    nisa.activation(dst=tile, op=nl.tanh, data=tile)
nisa.dma_copy(dst=out, src=tile)
""")


@pytest.fixture
def problem(tmp_path):
    def written(rounds):
        paths = []
        for name, text in (("reference", REFERENCE.format(rounds=rounds)), ("kernel", KERNEL)):
            paths.append(tmp_path / f"{name}_{rounds}.py")
            paths[-1].write_text(textwrap.dedent(text))
        return paths

    return written


def test_the_time_is_that_of_the_rounds_that_ran(problem, tmp_path):
    found = {}
    for rounds in (2, 40):
        reference, kernel = problem(rounds)
        request = EvaluationRequest(
            kernel=str(kernel), task=str(reference), target="trn2", scrutiny=Scrutiny.QUICK
        )
        verdict = evaluate(request, trials=TrialStore(tmp_path / "trials"))
        assert verdict.status is Status.CORRECT, verdict.message
        found[rounds] = verdict.profile.latency
        assert found[rounds] == simulate(kernel, reference, "trn2", 60).profile.latency_ms
        again = confirm(request, request, trials=TrialStore(tmp_path / "trials"))
        assert "depends on the inputs" not in again.message
    ns_a_round = (found[40] - found[2]) * 1e6 / 38
    assert ns_a_round > 250  # 512 elements at less than 2 a ns


def test_without_data_a_prediction_is_not_known_and_nothing_is_refused(problem, tmp_path):
    """A search predicts from shapes alone: such a kernel is not told from others before it is judged."""
    reference, kernel = problem(2)
    payload = {
        "kernel": str(kernel),
        "arguments": [
            {"shape": [128, 512], "dtype": "float32"},
            {"shape": [1, 1], "dtype": "int32"},
        ],
        "target": "trn2",
    }
    found = inspect_job(payload)
    assert found.status is Status.BENCHMARK_ERROR and "depends on the inputs" in found.message
    assert check(kernel, target="trn2", reference=reference, cache=tmp_path).passed


def test_no_number_of_rounds_is_assumed_for_what_it_computes():
    """Lifted as for two rounds, which stand for any in a trace, a kernel of three became another."""
    given = [np.zeros((128, 512), np.float32), np.full((1, 1), 3, np.int32)]
    with pytest.raises(NotLifted, match=r"\d+: the device decides how often this loop runs"):
        lift(traced(KERNEL, given, "trn2"))
