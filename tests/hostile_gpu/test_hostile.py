"""Every dishonest solution gets a verdict that is right for it, never `correct`."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import museum

from accelopt.kernels.triton.bench.source_rules import violations
from accelopt.kernels.triton.bench.tracefiles import TraceFolder

ROOT = Path(__file__).resolve().parents[2]
FOLDER = TraceFolder(ROOT / "experiments" / "flb_optimize" / "starter_trace")
EXHIBITS = museum.exhibits()
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton", "safetensors"))

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch and triton are not installed")


def has_gpu() -> bool:
    if not HAS_TORCH:
        return False
    import torch

    return torch.cuda.is_available()


def judge(exhibit, device):
    from accelopt.kernels.triton.bench.evaluation import evaluate
    from accelopt.kernels.triton.bench.task import Plan, Task

    definition = FOLDER.definitions[exhibit.definition]
    on_gpu = device != "cpu"
    workload = FOLDER.workloads[definition.name][0 if on_gpu else -1]
    plan = (
        Plan(package=False)
        if on_gpu
        else Plan(sets=3, least_rounds=2, most_rounds=2, package=False)
    )
    return evaluate(
        Task(
            root=FOLDER.root,
            definition=definition,
            workload=workload,
            solution=exhibit.solution(FOLDER),
            device=device,
            plan=plan,
            timeout_seconds=40 if exhibit.name != "hang" else 8,
            environment=() if on_gpu else (("TRITON_INTERPRET", "1"),),
        )
    )


def test_the_museum_is_large_enough():
    assert len(EXHIBITS) >= 15
    assert all("correct" not in exhibit.verdicts for exhibit in EXHIBITS)


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_source_rules_alone_refuse_what_they_can(exhibit):
    found = violations(exhibit.solution(FOLDER))
    if found:
        assert "refused" in exhibit.verdicts
        assert all(item.line > 0 and item.reason for item in found)


def test_source_rules_catch_a_good_part_without_running_anything():
    caught = {e.name for e in EXHIBITS if violations(e.solution(FOLDER))}
    assert {
        "zero_the_reference", "patch_the_clock", "patch_by_setattr", "side_stream", "thread_later",
        "write_the_result_file", "read_the_caller", "hidden_import", "cuda_graph",
        "subclassed_output",
    } <= caught  # fmt: skip


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "exhibit", [e for e in EXHIBITS if not e.needs_gpu], ids=lambda exhibit: exhibit.name
)
def test_refused_through_the_interpreter(exhibit):
    verdict = judge(exhibit, "cpu")
    assert verdict.evaluation.status.value in exhibit.verdicts, verdict.evaluation


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_refused_on_a_gpu(exhibit):
    verdict = judge(exhibit, "cuda:0")
    assert verdict.evaluation.status.value in exhibit.verdicts, verdict.evaluation
