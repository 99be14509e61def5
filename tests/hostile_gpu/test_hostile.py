"""Every dishonest solution gets a verdict that is right for it, never `correct`; every honest one
`correct`. And what lies behind the first door holds by itself."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import museum

from accelopt.kernels.gpu.bench.source.source_rules import violations

EXHIBITS = museum.exhibits()
HONEST = museum.honest()
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton", "safetensors"))

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch and triton are not installed")


def has_gpu() -> bool:
    if not HAS_TORCH:
        return False
    import torch

    return torch.cuda.is_available()


def judge(exhibit, device, **fields):
    from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
    from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan

    folder = museum.problem(exhibit.definition)
    definition = folder.definitions[exhibit.definition]
    on_gpu = device != "cpu"
    workload = folder.workloads[definition.name][0 if on_gpu else -1]
    plan = (
        TimingPlan(package=False)
        if on_gpu
        else TimingPlan(sets=3, least_rounds=2, most_rounds=2, package=False)
    )
    return evaluate(
        Task(
            root=folder.root,
            definition=definition,
            workload=workload,
            solution=exhibit.solution(),
            device=device,
            plan=plan,
            timeout_seconds=8 if exhibit.name == "hang" else 40 if on_gpu else 150,
            environment=() if on_gpu else (("TRITON_INTERPRET", "1"),),
            **fields,
        )
    )


def test_the_museum_is_large_enough():
    assert len(EXHIBITS) >= 15
    assert all("correct" not in exhibit.verdicts for exhibit in EXHIBITS)


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_source_rules_alone_refuse_what_they_can(exhibit):
    found = violations(exhibit.solution())
    if found:
        assert "refused" in exhibit.verdicts
        assert all(item.line > 0 and item.reason for item in found)


def test_source_rules_catch_a_good_part_without_running_anything():
    caught = {e.name for e in EXHIBITS if violations(e.solution())}
    assert {
        "zero_the_reference", "patch_the_clock", "patch_by_setattr", "side_stream", "thread_later",
        "write_the_result_file", "read_the_caller", "hidden_import", "cuda_graph",
        "subclassed_output",
    } <= caught  # fmt: skip


@pytest.mark.parametrize("exhibit", HONEST, ids=lambda exhibit: exhibit.name)
def test_source_rules_let_honest_solutions_pass(exhibit):
    assert violations(exhibit.solution()) == []


def behind_the_first_door(claims, source):
    """A solution whose source nobody reads: what it tries must fail for other reasons."""
    return museum.Exhibit("behind", "", claims, (), False, source)


GARBAGE_WRITTEN_RIGHT = """
import torch

once = torch.Tensor.cpu


def run(x, weight):
    def cpu(tensor):
        torch.Tensor.cpu = once
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return once((wide * weight.to(torch.float32)).to(x.dtype))

    torch.Tensor.cpu = cpu
    return torch.zeros_like(x)
"""
TELLS_WHAT_IT_SEES = """
import os
import pathlib
import socket


def run(x, weight):
    found = [os.environ.get("OPENAI_API_KEY", "no key")]
    for path in ("/root", "/home", "/etc/shadow", f"/proc/{os.getppid()}/environ"):
        try:
            if pathlib.Path(path).is_dir():
                found.append(f"lists {path}: {os.listdir(path)}")
            else:
                found.append(f"reads {path}: {pathlib.Path(path).read_bytes()[:9]}")
        except OSError:
            continue
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
        found.append("network")
    except PermissionError:
        pass
    except OSError as error:
        found.append(f"network? {error}") if error.errno not in (101, 13, 1) else None
    raise RuntimeError("; ".join(found))
"""


@needs_torch
def test_what_was_sealed_is_what_is_judged():
    """A file that was written by a function that the solution had replaced, and put back."""
    exhibit = behind_the_first_door("rmsnorm_h4096", GARBAGE_WRITTEN_RIGHT)
    verdict = judge(exhibit, "cpu", rival=True)
    assert verdict.evaluation.status.value == "refused", verdict.evaluation
    assert "not what they were when the call ended" in verdict.evaluation.message


@needs_torch
def test_children_see_no_key_no_home_and_no_network(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    exhibit = behind_the_first_door("rmsnorm_h4096", TELLS_WHAT_IT_SEES)
    verdict = judge(exhibit, "cpu", rival=True)
    assert verdict.evaluation.status.value == "run_error", verdict.evaluation
    assert verdict.evaluation.message == "RuntimeError: no key"


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "exhibit", [e for e in HONEST if not e.needs_gpu], ids=lambda exhibit: exhibit.name
)
def test_honest_ones_are_right_through_the_interpreter(exhibit):
    verdict = judge(exhibit, "cpu")
    assert verdict.evaluation.status.value == "correct", verdict.evaluation


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")
@pytest.mark.parametrize("exhibit", HONEST, ids=lambda exhibit: exhibit.name)
def test_honest_ones_are_right_on_a_gpu(exhibit):
    verdict = judge(exhibit, "cuda:0")
    assert verdict.evaluation.status.value == "correct", verdict.evaluation
    assert "landlock" in verdict.evaluation.isolation


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")
@pytest.mark.parametrize("definition", museum.FOLDERS[0].definitions)
def test_the_starter_set_is_right_on_a_gpu(definition):
    [plain] = museum.FOLDERS[0].solutions_of(definition)
    verdict = judge(behind_the_first_door(definition, plain.main_source), "cuda:0")
    assert verdict.evaluation.status.value == "correct", verdict.evaluation


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


PATCHED_CLOCK = """
import torch
import triton
import triton.language as tl
{kernel}
kind = torch.cuda.Event
original = kind.elapsed_time


def read(start, end):
    kind.elapsed_time = original
    return original(start, end) / 100


def run(x, weight):
    kind.elapsed_time = read
    return honest(x, weight)
"""


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no CUDA GPU")
def test_the_clock_does_not_ask_what_a_solution_can_replace():
    """rmsnorm over 256 MB takes no less than 0.05 ms at any GPU's rate, patched events or not."""
    kernel = next(e for e in EXHIBITS if e.name == "know_the_address").source
    kernel = kernel[kernel.index("@triton.jit") : kernel.index("seen, owed")]
    source = PATCHED_CLOCK.replace("{kernel}", kernel)
    verdict = judge(behind_the_first_door("rmsnorm_h4096", source), "cuda:0", rival=True)
    assert verdict.latency is None or verdict.latency.median > 0.05
