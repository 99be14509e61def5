"""What others take for the same problem, measured beside our own: PyTorch's reference as it stands and through
`torch.compile`, cuBLAS and other libraries behind PyTorch, and FlashInfer where it is installed.

A library plans its call by the index tensors before it is timed; ours plan inside of theirs. Each call is
timed as solutions are (launch-free, L2 flushed) and by the sum of its kernels (CUPTI), and counts only where
its outputs are those of the reference. A library without a call for a problem has no entry.
"""

from __future__ import annotations

import linecache
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from accelopt.kernels.gpu.bench.files.tracefiles import Definition
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task

ROUNDS, SETS, HEAT_SECONDS = 6, 5, 0.05
RIGHT = 2e-2  # relative L2 of the whole, of 16-bit results against the reference's
WORKSPACE_BYTES = 256 << 20
LOOP_SECONDS = 0.02  # a reference this slow is a loop over sequences: not compiled, three calls timed
EPSILON = 1e-6

Inputs = Mapping[str, Any]
Call = Callable[[], Any]
Prepare = Callable[[Inputs], Call]


def gemm(given: Inputs) -> Call:
    import torch

    return lambda: torch.matmul(given["A"], given["B"].T)


def softmax(given: Inputs) -> Call:
    import torch

    return lambda: torch.softmax(given["logits"], dim=-1)


def rms_norm(given: Inputs) -> Call:
    import torch

    states, weight = given["hidden_states"], given["weight"]
    return lambda: torch.nn.functional.rms_norm(states, weight.shape, weight, EPSILON)


def flashinfer_norm(given: Inputs) -> Call:
    import flashinfer

    return lambda: flashinfer.norm.rmsnorm(given["hidden_states"], given["weight"], EPSILON)


def flashinfer_add_norm(given: Inputs) -> Call:
    """In place, as the library has it: every call begins with what the one before left."""
    import flashinfer

    states, residual = given["hidden_states"].clone(), given["residual"].clone()

    def call() -> Any:
        flashinfer.norm.fused_add_rmsnorm(states, residual, given["weight"], EPSILON)
        return states, residual

    return call


def flashinfer_silu(given: Inputs) -> Call:
    import flashinfer

    return lambda: flashinfer.silu_and_mul(given["gate_up"])


def flashinfer_rope(given: Inputs) -> Call:
    """In place on copies; heads lie flat."""
    import flashinfer

    q, k = (given[name].clone() for name in "qk")
    flat_q, flat_k = q.flatten(1), k.flatten(1)

    def call() -> Any:
        flashinfer.apply_rope_with_cos_sin_cache_inplace(
            given["positions"], flat_q, flat_k, q.shape[-1], given["cos_sin_cache"], True
        )
        return q, k

    return call


def _workspace() -> Any:
    import torch

    return torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")


def _last_pages(given: Inputs) -> Any:
    import torch

    lengths = given.get("kv_last_page_len")
    counts = given["kv_indptr"].diff()
    return torch.ones_like(counts) if lengths is None else lengths


def paged_decode(tensor_cores: bool) -> Prepare:
    def prepare(given: Inputs) -> Call:
        import flashinfer

        q, k, v = given["q"], given["k_cache"], given["v_cache"]
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            _workspace(), "NHD", use_tensor_cores=tensor_cores
        )
        wrapper.plan(
            given["kv_indptr"], given["kv_indices"], _last_pages(given), q.shape[1], k.shape[2],
            q.shape[2], k.shape[1], sm_scale=given["sm_scale"], q_data_type=q.dtype, kv_data_type=k.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, (k, v), return_lse=True)

    return prepare


def paged_prefill(backend: str) -> Prepare:
    def prepare(given: Inputs) -> Call:
        import flashinfer

        q, k, v = given["q"], given["k_cache"], given["v_cache"]
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_workspace(), "NHD", backend=backend)
        wrapper.plan(
            given["qo_indptr"], given["kv_indptr"], given["kv_indices"], _last_pages(given), q.shape[1],
            k.shape[2], q.shape[2], k.shape[1], causal=True, sm_scale=given["sm_scale"],
            q_data_type=q.dtype, kv_data_type=k.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, (k, v), return_lse=True)

    return prepare


def ragged_prefill(backend: str) -> Prepare:
    def prepare(given: Inputs) -> Call:
        import flashinfer

        q, k, v = given["q"], given["k"], given["v"]
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(_workspace(), "NHD", backend=backend)
        wrapper.plan(
            given["qo_indptr"], given["kv_indptr"], q.shape[1], k.shape[1], q.shape[2], causal=True,
            sm_scale=given["sm_scale"], q_data_type=q.dtype, kv_data_type=k.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, k, v, return_lse=True)

    return prepare


def latent(backend: str) -> Prepare:
    """Multi-head latent attention, decode (one query a sequence) or causal prefill."""

    def prepare(given: Inputs) -> Call:
        import flashinfer
        import torch

        q, rope, cache = given["q_nope"], given["q_pe"], given["ckv_cache"]
        wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(_workspace(), backend=backend)
        sequences = len(given["kv_indptr"])
        queries = given.get("qo_indptr")
        if queries is None:
            queries = torch.arange(sequences, dtype=torch.int32, device="cuda")
        wrapper.plan(
            queries, given["kv_indptr"], given["kv_indices"], given["kv_indptr"].diff(), q.shape[1],
            q.shape[2], rope.shape[2], cache.shape[1], "qo_indptr" in given, given["sm_scale"],
            q.dtype, cache.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, rope, cache, given["kpe_cache"], return_lse=True)

    return prepare


def libraries_for(name: str, op_type: str) -> dict[str, Prepare]:
    """The calls of libraries that compute a definition, by name."""
    if op_type == "gemm":
        return {"cuBLAS": gemm}
    if op_type == "softmax":
        return {"PyTorch": softmax}
    if op_type == "activation":
        return {"FlashInfer": flashinfer_silu}
    if op_type == "rope":
        return {"FlashInfer": flashinfer_rope}
    if op_type == "rmsnorm":
        if "add" in name:
            return {"FlashInfer": flashinfer_add_norm}
        return {"PyTorch": rms_norm, "FlashInfer": flashinfer_norm}
    if op_type == "mla_paged":
        return {f"FlashInfer {backend}": latent(backend) for backend in ("fa2", "fa3")}
    if op_type == "gqa_ragged":
        return {f"FlashInfer {backend}": ragged_prefill(backend) for backend in ("fa2", "fa3")}
    if op_type == "gqa_paged" and "prefill" in name:
        return {f"FlashInfer {backend}": paged_prefill(backend) for backend in ("fa2", "fa3")}
    if op_type == "gqa_paged":
        return {"FlashInfer": paged_decode(False), "FlashInfer, tensor cores": paged_decode(True)}
    return {}


def measure_libraries(task: Task) -> dict[str, dict[str, Any]]:
    """By name, the reference as it stands and compiled among them: `ms`, `kernel_ms`, `error` (relative L2
    to the reference, the worst output), or `failure`. In a process of its own, alone on the device while
    it is timed."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_measure, task).result()


def reference_of(definition: Definition) -> Callable[..., Any]:
    """The function of a definition's reference, whose text the compiler can look up."""
    known: dict[str, Any] = {}
    text = definition.reference
    linecache.cache["reference.py"] = (len(text), None, text.splitlines(True), "reference.py")
    exec(compile(text, "reference.py", "exec"), known)
    run: Callable[..., Any] = known["run"]
    return run


def _measure(task: Task) -> dict[str, dict[str, Any]]:
    import torch

    from accelopt.kernels.gpu.bench.files.index_tensors import materialise
    from accelopt.kernels.gpu.bench.files.input_draws import fresh
    from accelopt.kernels.gpu.bench.process.inputs import InputFactory

    torch.cuda.set_device(task.device)
    torch.set_grad_enabled(False)
    run = reference_of(task.definition)
    with gpu_lock(task.device, alone=False):
        materialise(task.root, task.definition, task.workload.workload)
        factory = InputFactory(task.root, task.definition, task.workload.workload, task.device)
        sets = [factory.make(fresh()) for _ in range(SETS)]
        right = run(*sets[0])
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run(*sets[0])
        torch.cuda.synchronize()
        slow = time.perf_counter() - begin > LOOP_SECONDS
    names = [*task.definition.inputs]
    entries = {"reference": called(run, names)}
    if not slow:
        entries["compiled"] = called(torch.compile(run), names)
    entries |= libraries_for(task.definition.name, task.definition.op_type)
    found: dict[str, dict[str, Any]] = {}
    for name, prepare in entries.items():
        try:
            calls = [prepare(dict(zip(names, one, strict=True))) for one in sets]
            error = error_of(task, right, calls[0]())
            found[name] = {**timed(task, calls, slow and name == "reference"), "error": error}
        except Exception as error:  # a library that is absent, or refuses the problem
            said = (str(error).splitlines() or [""])[0]
            found[name] = {"failure": f"{type(error).__name__}: {said[:200]}"}
    return found


def called(run: Callable[..., Any], names: list[str]) -> Prepare:
    """A reference as a library's call."""
    return lambda given: lambda: run(*(given[name] for name in names))


def timed(task: Task, calls: list[Call], slow: bool) -> dict[str, Any]:
    """Median milliseconds of a call, by our clock and by its kernels; of a slow one by our clock alone."""
    import torch
    from timers import by_profiler

    from accelopt.kernels.gpu.bench.process.timing import Clock

    def call(chosen: Any) -> Any:
        return chosen[0]()

    with gpu_lock(task.device, alone=True):
        clock = Clock(torch.device(task.device))
        if slow:
            samples = [clock.round(call, [[calls[0]]], 0.0)[0][0] for _ in range(3)]
            return {"ms": statistics.median(samples)}
        pairs = [[one] for one in calls]
        backlog = clock.backlog_ms(call, pairs, lambda index: calls[index - 1]())
        samples = []
        for _ in range(ROUNDS):
            clock.warm_up(calls[-1], HEAT_SECONDS)
            samples += clock.round(call, pairs, backlog, lambda index: calls[index - 1]())[0]
        return {"ms": statistics.median(samples), "kernel_ms": by_profiler(call, pairs)}


def error_of(task: Task, right: Any, outputs: Any) -> float:
    """The worst relative L2 of the outputs, against those of the definition's reference."""
    import torch

    def listed(result: Any) -> tuple[Any, ...]:
        if isinstance(result, dict):
            return tuple(result[name] for name in task.definition.outputs)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    worst = 0.0
    for ours, theirs in zip(listed(right), listed(outputs), strict=False):  # one may return fewer
        a, b = ours.float(), theirs.float()
        finite = torch.isfinite(a) & torch.isfinite(b)
        gap = torch.where(finite, a - b, 0.0).norm() / torch.where(finite, a, 0.0).norm()
        worst = max(worst, float(gap))
    return worst


def best(found: Mapping[str, Mapping[str, Any]], column: str = "ms") -> tuple[str, float] | None:
    """The fastest library whose outputs are right, with its milliseconds."""
    right = {
        name: float(row[column])
        for name, row in found.items()
        if name not in ("reference", "compiled") and row.get(column) and float(row["error"]) < RIGHT
    }
    return min(right.items(), key=lambda item: item[1]) if right else None
