"""One evaluation of a spec's kernel, from `control.json` to `result.json`, for whoever drives it from
outside.

    {"kernel": <spec>, "source_code": <variant, or empty>, "launch_update": {}, "workdir": <folder>,
     "base_source_code": <text>, "ncu": {"enabled": false}, "timing": {...}}
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from accelopt.contract.spec import KernelSpec
from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, faults
from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.kernel_source import fingerprint
from accelopt.kernels.cuda.launch_pragma import launch_of, with_launch
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool, CompileVerdict
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process.messages import Compiled
from accelopt.kernels.gpu.profiling.ncu import collect
from accelopt.kernels.specs.solutions import ENTRY, definition_of, solution_of, workload_of
from accelopt.kernels.triton.configurations.tile_space import tile_space, with_values
from accelopt.store import content_key, read_json, write_atomically, write_json
from accelopt.time_limits import SPEC_SECONDS

PHASES = ("materialized", "compiled", "timed")


class Updated(NamedTuple):
    """A source with a launch update made, and whether that changed anything."""

    source: str
    applied: bool


def evaluate_control(path: Path, cache: Path | None = None) -> dict[str, Any]:
    """Judge and time what a control file names; writes `run.json` after each phase, and `result.json`.

    `cache` keeps what was compiled, by target and source. Raises ConfigError for a file that is no
    control file.
    """
    control = _read(path)
    try:
        spec = KernelSpec.model_validate(control["kernel"])
    except ValidationError as error:
        raise ConfigError(f"{path} names no kernel: {faults(error)}") from None
    folder = Path(control.get("workdir") or path.parent)
    done: list[str] = []

    def phase(name: str) -> None:
        done.append(name)
        write_json(folder / "run.json", {"phases": {p: p in done for p in PHASES}})

    start = solution_of(spec)
    made = updated(
        spec.kernel.kernel_type,
        _materialised(
            spec, str(control.get("source_code") or control.get("base_source_code") or "")
        ),
        control.get("launch_update") or {},
    )
    solution = start.with_source(made.source, f"variant_{content_key(made.source)[:16]}")
    phase("materialized")
    definition, workload = definition_of(spec, start, path.parent), workload_of(spec)
    compiled = _compiled(spec, solution, cache, path.parent)
    if compiled.code:
        phase("compiled")
        write_atomically(folder / "kernel.ptx", "\n".join(code.ptx for code in compiled.code))
        write_atomically(folder / "kernel.cubin", base64.b64decode(compiled.code[0].cubin))
    task = Task(
        root=folder,
        definition=definition,
        workload=workload,
        solution=solution,
        start=start,
        timeout_seconds=SPEC_SECONDS,
        tolerance=installed_flashinfer_bench.settings(definition).tolerance,
    )
    evaluation = evaluate(task).evaluation
    counters = None
    if evaluation.profile is not None:
        phase("timed")
        if (control.get("ncu") or {}).get("enabled"):
            counters = collect(task).summary()
    result = {
        **result_of(evaluation, made.source),
        "ncu_metrics": counters,
        "launch_update_applied": made.applied,
        "ptx_path": str(folder / "kernel.ptx") if compiled.code else None,
        "partial_state": {name: name in done for name in PHASES},
    }
    write_json(folder / "result.json", result)
    return result


def result_of(evaluation: Evaluation, source: str) -> dict[str, Any]:
    """The part of `result.json` that a verdict tells; times in milliseconds."""
    profile = evaluation.profile
    metrics = profile.metrics if profile else {}
    return {
        "ok": profile is not None,
        "mean_ms": metrics.get("mean_ms", profile.latency if profile else None),
        "std_ms": metrics.get("std_ms"),
        "median_ms": profile.latency if profile else None,
        "min_ms": profile.min_ms if profile else None,
        "state_hash": fingerprint(source),
        "ncu_metrics": None,
        "materialized_source": source,
        "launch_update_applied": None,
        "ptx_path": None,
        "ncu_report_path": None,
        "error": None if profile else evaluation.message or evaluation.status.value,
        "traceback": evaluation.traceback or None,
    }


def updated(kind: str, source: str, update: Mapping[str, Any]) -> Updated:
    """A source with its launch changed: grid, block and shared memory of a CUDA kernel, knobs and
    options of a Triton kernel's launch. Raises ConfigError for a value that is none."""
    if not update:
        return Updated(source, False)
    if kind == "cuda":
        changed = with_launch(source, launch_of(source).updated(update))
    else:
        space = tile_space(source)
        names = {knob.name for knob in space.knobs} if space else set()
        given = {name: int(value) for name, value in update.items()
                 if name in names | {"num_warps", "num_stages"}}  # fmt: skip
        changed = with_values(source, given)
    return Updated(changed, fingerprint(changed) != fingerprint(source))


def _materialised(spec: KernelSpec, text: str) -> str:
    """The whole source of a variant: as it is where it can be called, else with the contract's launch."""
    if not text:
        return solution_of(spec).main_source
    callable_already = f"def {ENTRY}(" in text or "#pragma launch" in text
    if callable_already:
        return text
    kernel = spec.kernel.model_copy(update={"source_code": text})
    return solution_of(spec.model_copy(update={"kernel": kernel})).main_source


def _compiled(
    spec: KernelSpec, solution: Solution, cache: Path | None, near: Path
) -> CompileVerdict:
    arch = str(spec.device_profile.get("arch", ""))
    target = next((n for n, t in GPUS.items() if f"sm_{t.capability}" == arch), DEFAULT_GPU)
    kept = cache / f"{content_key(target, solution.main_source)}.json" if cache else None
    if kept is not None and kept.exists():
        return CompileVerdict(code=Compiled.model_validate_json(kept.read_text()).code)
    with CompilerPool(1, target) as pool:
        found = pool.check(definition_of(spec, solution, near), workload_of(spec), solution)
    if kept is not None and found.code:
        code = [item.model_dump() for item in found.code]
        write_json(kept, {"resources": [], "code": code})
    return found


def _read(path: Path) -> dict[str, Any]:
    said = read_json(path)
    if not isinstance(said, dict) or "kernel" not in said:
        raise ConfigError(f"{path} is no control file: it names no kernel")
    return said
