"""The folder of one kernel of a spec file: made from what its run knows, and written again at will.

baseline/, variants/<uuid>/   control.json, run.json, runner_result.json, result.json, candidate.diff,
                              kernel_module.py or kernel.cu, kernel.ptx, .cubin, .sass, *.log
best, best_summary.json, search_state.json, events.jsonl, trace.md, input_spec.json
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launching import launch_of
from accelopt.kernels.gpu.bench.judging.compile_check import CompileVerdict
from accelopt.kernels.specs.control import result_of
from accelopt.nodes import Node, method_of
from accelopt.report.diffs import patch_of
from accelopt.stages.project import graph_version, write_summary
from accelopt.stages.run import Outcome
from accelopt.store import write_atomically, write_json

FILES = {"cuda": "kernel.cu", "triton": "kernel_module.py", "nki": "kernel_module.py"}
TIMING = {"warmup": 10, "iters": 100, "repeat": 3}
BASELINE = "baseline"
_NUMBER = re.compile(r"plan_(\d+)")
CompileSource = Callable[[Node], CompileVerdict | None]


class SearchedKernel(NamedTuple):
    """One kernel of a spec file and how its search went. `state` is the strategy's own record, `compiled`
    what a compiler makes of a node's source, where one can."""

    name: str
    kind: str
    folder: Path
    spec: dict[str, Any]
    outcome: Outcome
    state: dict[str, Any]
    compiled: CompileSource = lambda _: None
    profiled: bool = False


def write_artifacts(kernel: SearchedKernel) -> Path:
    """Everything of one kernel; returns its folder."""
    outcome, folder = kernel.outcome, kernel.folder
    write_json(folder / "input_spec.json", kernel.spec)
    _write_variant(kernel, outcome.start, folder / BASELINE)
    nodes = [node for node in outcome.nodes if node.parent is not None]
    for node in nodes:
        _write_variant(kernel, node, folder / place_of(kernel, node))
    _write_summary(kernel)
    _write_state(kernel)
    events = [event_of(kernel, number, node) for number, node in enumerate(nodes)]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    write_atomically(folder / "events.jsonl", lines)
    write_atomically(folder / "trace.md", _trace(kernel, nodes))
    return folder


def place_of(kernel: SearchedKernel, node: Node) -> str:
    """Where a node's files lie below the kernel's folder: by the job that made it, so that a run that
    is continued finds the same place."""
    if node.parent is None:
        return BASELINE
    return f"variants/{uuid.uuid5(uuid.NAMESPACE_OID, f'{kernel.name}/{node.label}')}"


def _write_variant(kernel: SearchedKernel, node: Node, folder: Path) -> None:
    file, evaluation, profile = FILES[kernel.kind], node.evaluation, node.profile
    base = node.parent.source if node.parent else node.source
    compiled = kernel.compiled(node)
    code = _write_code(compiled, folder)
    error = "" if profile else evaluation.message or evaluation.status.value
    phases = {
        "materialized": bool(node.source),
        "compiled": profile is not None or bool(code),
        "timed": profile is not None,
    }
    write_json(folder / "control.json", {
        "kernel": kernel.spec, "variant": folder.name, "workdir": str(folder),
        "base_source_code": base, "source_code": node.source,
        "ncu": {"enabled": kernel.profiled, "collect": "one call"}, "timing": TIMING,
    })  # fmt: skip
    write_json(folder / "run.json", {"phases": phases, "seconds": evaluation.seconds,
                                     "isolation": evaluation.isolation})  # fmt: skip
    write_json(folder / "runner_result.json", evaluation.model_dump(mode="json"))
    write_json(folder / "result.json", {
        **result_of(evaluation, node.source),
        "state_hash": node.key,
        "ncu_metrics": _counters(kernel, node),
        "launch_update_applied": _launch_changed(kernel.kind, node),
        "ptx_path": str(folder / "kernel.ptx") if code else None,
        "partial_state": phases,
    })  # fmt: skip
    write_atomically(folder / file, node.source)
    write_atomically(folder / "candidate.diff", patch_of(base, node.source, file))
    write_atomically(folder / "stdout.log", "\n".join(evaluation.notes))
    write_atomically(folder / "stderr.log", "\n".join(filter(None, (error, evaluation.traceback))))


def _write_code(compiled: CompileVerdict | None, folder: Path) -> bool:
    """PTX, machine code and its listing; of several kernels each after the other."""
    if compiled is None or not compiled.code:
        return False
    write_atomically(folder / "kernel.ptx", "\n".join(code.ptx for code in compiled.code))
    binaries = [base64.b64decode(code.cubin) for code in compiled.code if code.cubin]
    for number, binary in enumerate(binaries):
        name = "kernel.cubin" if number == 0 else f"kernel_{number}.cubin"
        write_atomically(folder / name, binary)
    listing = "".join(filter(None, map(_listing, binaries)))
    if listing:
        write_atomically(folder / "kernel.sass", listing)
    return True


def _listing(binary: bytes) -> str:
    """Machine code as text, where a disassembler is installed."""
    tool = shutil.which("nvdisasm")
    if tool is None:
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        done = subprocess.run([tool, file.name], capture_output=True, text=True, check=False)
    return done.stdout


def _launch_changed(kind: str, node: Node) -> bool | None:
    """Whether the launch that was observed is another than the parent's; None where it is not known."""
    if node.parent is None or kind != "cuda":
        return None
    try:
        return launch_of(node.source) != launch_of(node.parent.source)
    except ConfigError:
        return None


def _counters(kernel: SearchedKernel, node: Node) -> dict[str, Any] | None:
    """What limited it, where the search asked."""
    record = kernel.state.get("states", {}).get(node.key, {})
    found = record.get("diagnosis") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else None


def _write_summary(kernel: SearchedKernel) -> None:
    outcome, folder = kernel.outcome, kernel.folder
    best = outcome.best or outcome.start
    target = folder / place_of(kernel, _made(outcome, best))
    link = folder / "best"
    if link.is_symlink() or link.is_file():
        link.unlink()
    elif link.is_dir():
        shutil.rmtree(link)
    try:
        link.symlink_to(target.relative_to(folder), target_is_directory=True)
    except OSError:
        shutil.copytree(target, link)
    write_summary(kernel.name, outcome, str(target.relative_to(folder)), folder)


def _made(outcome: Outcome, best: Node) -> Node:
    """The node under which the best kernel was told; a kernel may be reached more than once."""
    return next((node for node in outcome.nodes if node.key == best.key), outcome.start)


def _write_state(kernel: SearchedKernel) -> None:
    outcome = kernel.outcome
    best = outcome.best or outcome.start
    write_json(kernel.folder / "search_state.json", {
        "graph_version": graph_version(),
        "baseline_ms": outcome.start.latency,
        "best_ms": best.latency,
        "best_state_hash": best.key,
        "root_state_hash": outcome.start.key,
        "ended": outcome.ended or outcome.failure,
        "nodes": kernel.state.get("states", {}),
    })  # fmt: skip


def event_of(kernel: SearchedKernel, number: int, node: Node) -> dict[str, Any]:
    """One built kernel, in the order of telling. `t` are the seconds that judging took until then."""
    assert node.parent is not None
    told = kernel.outcome.nodes[: number + 1]
    job = _NUMBER.match(node.label)
    start = kernel.outcome.start.latency
    return {
        "t": round(sum(item.evaluation.seconds for item in told), 3),
        "kernel": kernel.name,
        "job_id": int(job[1]) if job else number,
        "gpu": 0,
        "leaf_state": node.parent.key,
        "action": method_of(node.change) if node.change else "",
        "candidate_id": node.name,
        "mean_ms": node.latency,
        "reward": start / node.latency if start and node.latency else None,
        "ok": node.latency is not None,
        "child_state": node.key if node.latency is not None else None,
        "variant_dir": place_of(kernel, node),
    }


def _trace(kernel: SearchedKernel, nodes: Sequence[Node]) -> str:
    outcome = kernel.outcome
    start = outcome.start
    lines = [f"# {kernel.name}", ""]
    if start.latency is None:
        return "\n".join([*lines, f"The kernel fails: {outcome.failure}", ""])
    lines.append(f"Baseline: {start.latency:.4g} ms, state {start.key[:8]}.")
    best = start.latency
    for number, node in enumerate(nodes, 1):
        steps = [*node.lineage()][::-1]
        path = " ▸ ".join(step.key[:8] for step in steps[:-1])
        lines += ["", f"## {number}. {method_of(node.change) if node.change else 'a kernel'}", ""]
        lines.append(f"Path {path}. {node.change.sentence if node.change else ''}")
        if node.latency is None:
            lines.append(f"{node.evaluation.status.value}: {node.evaluation.message[:300]}")
            continue
        lines.append(f"{node.latency:.4g} ms, {start.latency / node.latency:.3f} of the start.")
        if node.latency < best:
            best = node.latency
            lines.append("New best.")
    return "\n".join([*lines, "", f"Ended: {outcome.ended or outcome.failure}.", ""])
