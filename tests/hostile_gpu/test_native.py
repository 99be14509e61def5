"""Solutions in CUDA before the same referee: rules of their text everywhere, verdicts on a GPU."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import native_museum
from museum import problem
from test_hostile import has_gpu

from accelopt.kernels.gpu.bench.source.source_rules import violations

HONEST = native_museum.natives("honest")
DISHONEST = native_museum.natives("dishonest")


def judge(native):
    from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
    from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan

    if "torch" not in native.solution.spec.binding:
        pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    folder = problem(native.definition)
    return evaluate(
        Task(
            root=folder.root,
            definition=folder.definitions[native.definition],
            workload=folder.workloads[native.definition][0],
            solution=native.solution,
            plan=TimingPlan(package=False),
            timeout_seconds=240,
        )
    ).evaluation


@pytest.mark.parametrize("native", HONEST, ids=lambda native: native.name)
def test_the_rules_let_honest_sources_pass(native):
    assert violations(native.solution) == []


@pytest.mark.parametrize("native", DISHONEST, ids=lambda native: native.name)
def test_the_rules_refuse_only_what_may_be_refused(native):
    if violations(native.solution):
        assert "refused" in native.verdicts


def test_the_rules_refuse_what_text_can_show():
    assert [n.name for n in DISHONEST if violations(n.solution)] == [
        "behind_a_raw_string",
        "between_digits",
        "clock_of_a_header",
        "declares_the_host",
        "device_clock",
        "functions_of_the_harness",
        "hidden_by_a_pragma",
        "keeps_the_cache",
        "leave_the_process",
        "loads_a_library",
        "module_of_the_runtime",
        "name_by_assembly",
        "operator_by_its_schema",
        "placed_in_a_section",
        "policy_of_the_cache",
        "python_by_pybind",
        "renamed_namespace",
        "replaces_an_operator",
        "replay_a_graph",
        "stream_of_the_binding",
        "thread_by_clone",
        "writes_to_descriptors",
    ]


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")
@pytest.mark.parametrize("native", [*HONEST, *DISHONEST], ids=lambda native: native.name)
def test_verdicts_on_a_gpu(native):
    evaluation = judge(native)
    assert evaluation.status.value in native.verdicts, evaluation
