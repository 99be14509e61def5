"""What others give for a problem: PyTorch's reference as it stands and compiled, libraries, and the solutions of
libraries in the trace set. Each is a text below the reference's, timed as the reference is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, TraceFolder
from accelopt.kernels.gpu.bench.judging.baselines import (
    Baseline,
    measure_reference,
    measure_solution,
)
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task

PYTORCH, COMPILED = "PyTorch", "torch.compile"
SLOW_MS = 20.0  # a reference that is a loop over sequences or steps: to compile it takes minutes
LIBRARY_AUTHORS = (
    "baseline",
    "flashinfer",
)  # of a trace set's solutions, as FlashInfer-Trace has them
# By the operation of a definition, an expression of its inputs; it counts where its outputs are the reference's.
LIBRARIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "gemm": (("cuBLAS", "_torch.matmul(A, B.T)"),),
    "softmax": (("PyTorch's softmax", "_torch.softmax(logits, dim=-1)"),),
    "rmsnorm": (
        ("PyTorch's rms_norm", "_torch.nn.functional.rms_norm(hidden_states, weight.shape, weight, 1e-6)"),
        ("FlashInfer", "__import__('flashinfer').norm.rmsnorm(hidden_states, weight, 1e-6)"),
    ),
    "activation": (("FlashInfer", "__import__('flashinfer').silu_and_mul(gate_up)"),),
}  # fmt: skip
_COMPILED = "\n\nimport torch as _torch\n\nrun = _torch.compile(run)\n"
_CUDNN = """

from torch.nn.attention import SDPBackend as _Backend, sdpa_kernel as _kernel

_reference = run


def run(*given):
    with _kernel(_Backend.CUDNN_ATTENTION):
        return _reference(*given)
"""
_CHECKED = """

import torch as _torch

_reference, _right = run, []


def run({names}):
    found = {expression}
    if not _right:
        wanted = _reference({names})
        lists = [one if isinstance(one, (tuple, list)) else [one] for one in (found, wanted)]
        for one, other in zip(*lists, strict=True):
            error = (one.float() - other.float()).norm() / other.float().norm()
            if not error < 0.02:
                raise ValueError(f"its outputs are not the reference's: relative error {{float(error):.2g}}")
        _right.append(True)
    return found
"""


def additions(definition: Definition) -> Iterator[tuple[str, str]]:
    """By name what is put below a reference so that another one computes the problem."""
    yield COMPILED, _COMPILED
    if "scaled_dot_product_attention" in definition.reference:
        yield "cuDNN SDPA", _CUDNN
    for name, expression in LIBRARIES.get(definition.op_type, ()):
        names = ", ".join(definition.inputs)
        yield name, _CHECKED.format(names=names, expression=expression)


def measure_alternatives(task: Task, traces: Path | None) -> dict[str, Baseline]:
    """What each takes launch-free, by name, or why it has no time. `traces` is the trace set, where there is one."""
    task = task._replace(plan=task.plan._replace(package=False))
    found = {PYTORCH: measure_reference(task)}
    eager = found[PYTORCH].latency
    if eager is not None and eager.median < SLOW_MS:
        for name, addition in additions(task.definition):
            text = task.definition.reference + addition
            definition = task.definition.model_copy(update={"reference": text})
            found[name] = measure_reference(task._replace(definition=definition))
    for solution in _of_libraries(traces, task.definition.name):
        found[solution.name] = measure_solution(task._replace(solution=solution))
    return found


def _of_libraries(traces: Path | None, definition: str) -> list[Solution]:
    try:
        known = TraceFolder(traces).solutions_of(definition) if traces else []
    except ConfigError:
        return []
    return [one for one in known if one.author in LIBRARY_AUTHORS]
