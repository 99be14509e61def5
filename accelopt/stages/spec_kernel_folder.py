"""The folder of one kernel of a spec file: what belongs to a build is there when its job is over, what belongs to
the whole search at its end. All of it is made from what the run knows, and written again at will.

baseline/, variants/<uuid>/   control.json, run.json, runner_result.json, result.json, candidate.diff,
                              kernel_module.py or kernel.cu, kernel.ptx, .cubin, .sass, *.log
input_spec.json, events.jsonl
best, best_summary.json, search_state.json, trace.md
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelopt.concurrency import in_thread
from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launch_pragma import launch_of
from accelopt.kernels.gpu.bench.judging.compile_check import CompileVerdict
from accelopt.kernels.gpu.compiler_output import Compiles
from accelopt.kernels.language import Language
from accelopt.kernels.specs.control_file import result_of
from accelopt.nodes import Node, Result, method_of
from accelopt.report.diffs import patch_of
from accelopt.stages.run import Outcome
from accelopt.stages.run_files import graph_version, write_summary
from accelopt.store import JsonObject, write_atomically, write_json

FILES = {"cuda": "kernel.cu", "triton": "kernel_module.py", "nki": "kernel_module.py"}
TIMING = {"warmup": 10, "iters": 100, "repeat": 3}
BASELINE = "baseline"
VERDICT, EVENTS = "runner_result.json", "events.jsonl"
_NUMBER = re.compile(r"plan_(\d+)")


class KernelFolder:
    """Writes the folder `path` of the kernel `name` as kernels come, so that none is lost with what comes
    after it; `kind` is its language, and `profiled` whether Nsight Compute was asked for. A run that is
    continued goes on with the folder that it finds."""

    def __init__(
        self, path: Path, name: str, kind: str, spec: JsonObject, profiled: bool = False
    ) -> None:
        self.path = path
        self.name = name
        self.kind = kind
        self.spec = spec
        self.profiled = profiled
        self._told: list[Node] = []
        kept = path / EVENTS
        self._events = kept.read_text().splitlines() if kept.exists() else []

    async def begin(self, start: Node, language: Language) -> None:
        """The baseline has its verdict; nothing is built before this returns."""
        write_json(self.path / "input_spec.json", self.spec)
        await self._keep(start, language)

    async def add(self, result: Result, language: Language) -> None:
        """A job is done: its builds, and the counters of the kernel that it looked into."""
        for node in result.nodes:
            await self._keep(node, language)
        counters = result.diagnosis.counters if result.diagnosis else None
        if counters is not None:
            await self._write(result.job.node, language, counters)

    def tell(self, result: Result) -> None:
        """The builds of a job as events, in the order of telling; those that a continued run tells again
        have their places."""
        for node in result.nodes:
            self._told.append(node)
            line = json.dumps(event_of(self.name, self._told))
            place = len(self._told) - 1
            if self._events[place : place + 1] != [line]:
                self._events[place : place + 1] = [line]
                self._write_events()

    def close(self, outcome: Outcome, state: JsonObject) -> None:
        """The search has ended; `state` is the strategy's own record of it."""
        self._write_events()
        self._write_best(outcome)
        self._write_state(outcome, state)
        write_atomically(self.path / "trace.md", _trace(self.name, outcome, self._told))

    async def _keep(self, node: Node, language: Language) -> None:
        """The files of a kernel, unless all are there: the verdict is written last."""
        verdict = self.path / place_of(self.name, node) / VERDICT
        told = node.evaluation.model_dump(mode="json")
        if not verdict.exists() or json.loads(verdict.read_text()) != told:
            await self._write(node, language)

    async def _write(
        self, node: Node, language: Language, counters: JsonObject | None = None
    ) -> None:
        compiled = CompileVerdict()
        if node.source and isinstance(language, Compiles):
            compiled = await language.compiled(node)
        await in_thread(self._write_kernel, node, compiled, counters)

    def _write_kernel(
        self, node: Node, compiled: CompileVerdict, counters: JsonObject | None
    ) -> None:
        folder = self.path / place_of(self.name, node)
        file, evaluation, profile = FILES[self.kind], node.evaluation, node.profile
        base = node.parent.source if node.parent else node.source
        coded = _write_code(compiled, folder)
        error = "" if profile else evaluation.message or evaluation.status.value
        phases = {
            "materialized": bool(node.source),
            "compiled": profile is not None or coded,
            "timed": profile is not None,
        }
        write_json(folder / "control.json", {
            "kernel": self.spec, "variant": folder.name, "workdir": str(folder),
            "base_source_code": base, "source_code": node.source,
            "ncu": {"enabled": self.profiled, "collect": "one call"}, "timing": TIMING,
        })  # fmt: skip
        write_json(folder / "run.json", {"phases": phases, "seconds": evaluation.seconds,
                                         "isolation": evaluation.isolation})  # fmt: skip
        write_json(folder / "result.json", {
            **result_of(evaluation, node.source),
            "state_hash": node.key,
            "ncu_metrics": counters,
            "launch_update_applied": _launch_changed(self.kind, node),
            "ptx_path": str(folder / "kernel.ptx") if coded else None,
            "partial_state": phases,
        })  # fmt: skip
        write_atomically(folder / file, node.source)
        write_atomically(folder / "candidate.diff", patch_of(base, node.source, file))
        write_atomically(folder / "stdout.log", "\n".join(evaluation.notes))
        write_atomically(
            folder / "stderr.log", "\n".join(filter(None, (error, evaluation.traceback)))
        )
        write_json(folder / VERDICT, evaluation.model_dump(mode="json"))

    def _write_events(self) -> None:
        write_atomically(self.path / EVENTS, "".join(f"{line}\n" for line in self._events))

    def _write_best(self, outcome: Outcome) -> None:
        """`best`, a link to the folder of the best kernel, and what it came to."""
        best = outcome.best or outcome.start
        # The node under which it was told; a kernel may be reached more than once.
        made = next((node for node in outcome.nodes if node.key == best.key), outcome.start)
        place, link = place_of(self.name, made), self.path / "best"
        if link.is_symlink() or link.is_file():
            link.unlink()
        elif link.is_dir():
            shutil.rmtree(link)
        try:
            link.symlink_to(place, target_is_directory=True)
        except OSError:
            shutil.copytree(self.path / place, link)
        write_summary(self.name, outcome, place, self.path)

    def _write_state(self, outcome: Outcome, state: JsonObject) -> None:
        best = outcome.best or outcome.start
        write_json(self.path / "search_state.json", {
            "graph_version": graph_version(),
            "baseline_ms": outcome.start.latency,
            "best_ms": best.latency,
            "best_state_hash": best.key,
            "root_state_hash": outcome.start.key,
            "ended": outcome.ended or outcome.failure,
            "nodes": state.get("states", {}),
        })  # fmt: skip


def place_of(kernel: str, node: Node) -> str:
    """Where a node's files lie below the folder of its kernel: by the job that made it, so that a run that
    is continued finds the same place."""
    if node.parent is None:
        return BASELINE
    return f"variants/{uuid.uuid5(uuid.NAMESPACE_OID, f'{kernel}/{node.label}')}"


def event_of(kernel: str, told: Sequence[Node]) -> dict[str, Any]:
    """The last of the builds that were told so far. `t` are the seconds that judging took until then."""
    node = told[-1]
    assert node.parent is not None
    job = _NUMBER.match(node.label)
    start = [*node.lineage()][-1].latency
    return {
        "t": round(sum(item.evaluation.seconds for item in told), 3),
        "kernel": kernel,
        "job_id": int(job[1]) if job else len(told) - 1,
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


def _write_code(compiled: CompileVerdict, folder: Path) -> bool:
    """PTX, machine code and its listing; of several kernels each after the other."""
    if not compiled.code:
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


def _trace(kernel: str, outcome: Outcome, nodes: Sequence[Node]) -> str:
    start = outcome.start
    lines = [f"# {kernel}", ""]
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
    said = [f"{outcome.beside}.", ""] if outcome.beside else []
    return "\n".join([*lines, "", *said, f"Ended: {outcome.ended or outcome.failure}.", ""])
