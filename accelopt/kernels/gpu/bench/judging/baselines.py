"""Latencies of the reference and of FlashInfer's own kernels: measured once, kept with their place.

One file a workload under `<root>/baselines/`. An entry counts only for the environment it was
measured in (hardware and versions) and the definition's text; otherwise it is measured again.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.files.tracefiles import workload_stem
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock
from accelopt.kernels.gpu.bench.judging.child_processes import RefereeProcess
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import Ended
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.timing import Statistics
from accelopt.sandbox import scratch_folder
from accelopt.store import content_key, write_atomically

REFERENCE = "reference"
# A reference this slow is timed by our clock alone: launch time is nothing beside it.
SLOW_REFERENCE_MS = 100.0


class Baseline(BaseModel):
    """One measured latency in milliseconds. `failure` says why there is none."""

    model_config = ConfigDict(frozen=True)

    name: str
    latency: Statistics | None = None
    package_latency_ms: float | None = None
    hardware: str = ""
    libs: dict[str, str] = {}
    failure: str = ""


class BaselineCache:
    """The baselines of a trace folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "baselines"

    def reference(self, task: Task, hardware: str = "") -> Baseline:
        """The PyTorch reference of the task's definition on its workload."""
        key = content_key(task.definition.reference, *_environment(hardware))
        kept = self._find(task, REFERENCE, key)
        if kept is not None:
            return kept
        baseline = measure_reference(task)
        if not baseline.failure:
            self._keep(task, key, baseline)
        return baseline

    def _path(self, task: Task) -> Path:
        return self.folder / task.definition.op_type / f"{workload_stem(task.workload)}.json"

    def _read(self, task: Task) -> dict[str, dict[str, object]]:
        try:
            entries: dict[str, dict[str, object]] = json.loads(self._path(task).read_text())
            return entries
        except (FileNotFoundError, ValueError):
            return {}

    def _find(self, task: Task, name: str, key: str) -> Baseline | None:
        entry = self._read(task).get(name)
        if entry is None or entry.get("key") != key:
            return None
        try:
            return Baseline.model_validate(entry["baseline"])
        except (KeyError, ValidationError):
            return None

    def _keep(self, task: Task, key: str, baseline: Baseline) -> None:
        entries = self._read(task)
        entries[baseline.name] = {"key": key, "baseline": baseline.model_dump(mode="json")}
        write_atomically(self._path(task), json.dumps(entries, indent=2) + "\n")


def _environment(hardware: str) -> tuple[str, ...]:
    return (
        hardware,
        *(f"{name}={version}" for name, version in installed_flashinfer_bench.versions().items()),
    )


def measure_solution(task: Task) -> Baseline:
    """Time a rival with the same clock; library calls are what it is there for."""
    verdict = evaluate(task._replace(rival=True))
    if verdict.evaluation.status is not Status.CORRECT:
        text = f"{verdict.evaluation.status.value}: {verdict.evaluation.message}"
        return Baseline(name=task.solution.name, failure=text)
    return Baseline(
        name=task.solution.name,
        latency=verdict.latency,
        package_latency_ms=verdict.package_latency_ms,
        hardware=verdict.hardware,
        libs=verdict.libs,
    )


def measure_reference(task: Task) -> Baseline:
    """Time the definition's reference in a process of its own, launch-free and by the package."""
    with scratch_folder() as folder, RefereeProcess(task, folder / "referee", folder) as referee:
        try:
            return _time_reference(referee, task)
        except Ended as ended:
            return Baseline(name=REFERENCE, failure=f"{ended}\n{ended.traceback}".strip())


def write_inductor(task: Task) -> say.InductorText:
    """What `torch.compile` makes of the reference, in a process of its own."""
    with scratch_folder() as folder, RefereeProcess(task, folder / "referee", folder) as referee:
        try:
            referee.start()
            with gpu_lock(task.device, alone=False):
                return referee.ask(say.WriteInductor(), say.InductorText)
        except Ended as ended:
            return say.InductorText(failure=str(ended))


def _time_reference(referee: RefereeProcess, task: Task) -> Baseline:
    place = referee.start()
    with gpu_lock(task.device, alone=True):
        asked = say.TimeReference(rounds=6, seconds=4.0)
        latency = referee.ask(asked, say.ReferenceTimed).latency
        by_package = latency.median
        plan = task.plan
        if plan.package and latency.median < SLOW_REFERENCE_MS:
            package_run = say.Package(
                trials=1, warmup_runs=plan.warmup_runs, iterations=min(plan.iterations, 20)
            )
            by_package = referee.ask(package_run, say.Latency).milliseconds
    return Baseline(
        name=REFERENCE,
        latency=latency,
        package_latency_ms=by_package,
        hardware=place.hardware,
        libs=place.libs,
    )
