"""What names an evaluation of a Triton solution, and what its processes see of the environment."""

import asyncio
from importlib.util import find_spec
from pathlib import Path

import pytest

from accelopt.evaluation import Evaluation, Profile, Scrutiny, Status
from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder, write_json
from accelopt.kernels.gpu.cases import case_of
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.triton.language import Triton
from accelopt.nodes import Node
from accelopt.sandbox.workers import WorkerPool

STARTER = TraceFolder(
    Path(__file__).resolve().parents[3] / "experiments" / "flb_optimize" / "starter_trace"
)


@pytest.fixture
def case(tmp_path):
    name = "softmax_n8192"
    return case_of(
        write_json(STARTER.definitions[name], tmp_path / "definition.json"),
        write_json(STARTER.solutions_of(name)[0], tmp_path / "solution.json"),
        write_json(STARTER.workloads[name][0], tmp_path / "workload.json"),
    )


@pytest.fixture
def pool():
    opened = WorkerPool(1)
    yield opened
    opened.close()


def test_a_winner_is_judged_anew_with_everything(pool, case, tmp_path):
    """A verdict for ranking answers no question for the whole: their keys differ."""
    keys = {
        Triton(pool, LanguageOptions(tmp_path, scrutiny=scrutiny)).evaluation_key(case, "source")
        for scrutiny in (Scrutiny.QUICK, Scrutiny.FULL)
    }
    assert len(keys) == 2
    language = Triton(pool, LanguageOptions(tmp_path, scrutiny=Scrutiny.FULL))
    assert language.evaluation_key(case, "source") in keys
    assert language.evaluation_key(case, "another") not in keys


def test_evaluations_see_the_drivers_settings_and_no_others(pool, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    seen = Triton(pool, LanguageOptions(tmp_path))._environment
    assert seen["TRITON_INTERPRET"] == "1" and seen["CUDA_VISIBLE_DEVICES"] == "3"
    assert not {"OPENAI_API_KEY", "HOME", "PYTHONPATH"} & set(seen)


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="it takes torch and triton"
)
def test_a_diagnosis_without_a_gpu_reads_what_was_compiled(pool, case, tmp_path):
    """The PTX says where memory is read, and that a comment changed nothing."""
    profile = Profile(
        latency=0.4, min_ms=0.4, max_ms=0.4, rel_diffs=0.0, metrics={}, target="NVIDIA H200",
        simulated=False,
    )  # fmt: skip
    verdict = Evaluation(status=Status.CORRECT, profile=profile)
    source = STARTER.solutions_of("softmax_n8192")[0].main_source
    parent = Node(case, source, verdict)
    child = Node(case, f"{source}\n# the same\n", verdict, parent)
    language = Triton(pool, LanguageOptions(tmp_path))
    found = asyncio.run(language.diagnose(child))
    assert found is not None and found.origin == "Region-DAG"
    assert "the change left the PTX as it was" in found.notes
    lines = {one.resource: one.lines for one in found.bottlenecks}
    text = source.splitlines()
    assert any("tl.load" in text[line - 1] for line in lines["gmem"])
    assert lines["overlap"]
    assert found.registers and found.spilled_bytes == 0
