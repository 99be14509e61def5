"""What names an evaluation of a Triton solution, and what its processes see of the environment."""

import asyncio
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from timed_kernels import correct

from accelopt.evaluation import Evaluation, Scrutiny, Status
from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder, write_json
from accelopt.kernels.gpu.bench.process.installed_flashinfer_bench import (
    DEFAULT_SETTINGS,
    PackageSettings,
)
from accelopt.kernels.gpu.cases import case_of
from accelopt.kernels.gpu.language import EVALUATION, SETTINGS
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


class Recording:
    """A pool that keeps what it is asked, and answers as a machine with a GPU would."""

    count, cache = 1, ""

    def __init__(self):
        self.calls = []

    async def ask(self, call, answer):
        self.calls.append(call)
        if answer is PackageSettings:
            return DEFAULT_SETTINGS.model_copy(update={"iterations": 7})
        return Evaluation(status=Status.REFUSED, message="who knows")


def test_the_package_is_asked_for_its_settings_once(case, tmp_path):
    """To import it takes seconds, in a process that needs nothing else of it."""
    pool = Recording()
    language = Triton(pool, LanguageOptions(tmp_path))
    for source in ("one", "another"):
        verdict = asyncio.run(language.evaluate(case, source))
        assert verdict.status is Status.REFUSED
    assert [call.function for call in pool.calls] == [SETTINGS, EVALUATION, EVALUATION]
    given = [PackageSettings.model_validate(call.payload["settings"]) for call in pool.calls[1:]]
    assert [settings.iterations for settings in given] == [7, 7]
    assert given[0].tolerance == DEFAULT_SETTINGS.tolerance


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="it takes torch and triton"
)
def test_a_diagnosis_without_a_gpu_reads_what_was_compiled(pool, case, tmp_path):
    """The PTX says where memory is read, and that a comment changed nothing."""
    verdict = correct(0.4, "NVIDIA H200", False)
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


def test_the_start_is_written_anew_where_it_is_lifted(pool, case, tmp_path):
    """Evidence: the starter softmax lifts; one kernel reads and writes 8192 x 8192 fp32 once, which an H200 does
    in 0.11 ms. A kernel of random numbers does not lift, its reference does."""
    verdict = correct(0.4, "NVIDIA H200", False)
    source = STARTER.solutions_of("softmax_n8192")[0].main_source
    language = Triton(pool, LanguageOptions(tmp_path))
    start = Node(case, source, verdict)
    found = [a for a in asyncio.run(language.actions(start)) if a.method == "write_anew"]
    assert found and all("for_other_sizes" in (a.source or "") for a in found)
    assert re.search(r"as 1 kernel, expected to take 0\.[12]\d* ms", found[0].sentence)
    random = source.replace("tl.exp(", "tl.rand(1, ")
    assert random != source
    odd = asyncio.run(language.actions(Node(case, random, verdict)))
    assert [a for a in odd if a.method == "write_anew"]  # from its reference
    nameless = Node(case, source.replace("def run(", "def other("), verdict)
    assert not [a for a in asyncio.run(language.actions(nameless)) if a.method == "write_anew"]
    said = asyncio.run(language.explain(nameless)).unscheduled
    assert "its kernels are not written anew: run is no function of the solution's file" in said
