"""FlashInferKernel: one definition of a FlashInfer-Trace folder; its solutions, judged and timed.

kernel = FlashInferKernel("trace_folder", "definition.json")
trace, properties = kernel.profile("solution.json", "workload.json")
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelopt.errors import ConfigError
from accelopt.eval_numpy import KernelProperties
from accelopt.evaluation import Evaluation, Scrutiny, Status
from accelopt.kernels.gpu.bench.files.tracefiles import (
    BuildSpec,
    Definition,
    Solution,
    SourceFile,
    Trace,
    read_json,
    read_workload,
    trace_stem,
    workload_stem,
    write_json,
)
from accelopt.kernels.gpu.bench.judging.baselines import Baseline, BaselineCache
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan
from accelopt.kernels.gpu.bench.judging.verdict import Verdict, to_trace
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.sandbox import fork
from accelopt.time_limits import CALL_SECONDS, SEARCH_SECONDS

if TYPE_CHECKING:
    import flashinfer_bench

__all__ = [
    "FlashInferKernel",
    "KernelProperties",
    "get_unique_trace_name",
    "get_workload_stem_name",
]

# The key under which the published wrapper reports each kind of failure.
_ERROR_KEYS = {
    Status.COMPILE_ERROR: "compilation_error",
    Status.RUN_ERROR: "run_error",
    Status.TIMEOUT: "run_error",
    Status.CRASH: "run_error",
    Status.BASELINE_FAILED: "baseline_error",
}


# Many candidates share one GPU: enough samples to rank by, and the package's timer for winners only.
SEARCH_PLAN = TimingPlan(
    sets=6, least_rounds=4, most_rounds=8, seconds=0.4, package=False, stress=2, shapes=False,
    judging_seconds=15.0,
)  # fmt: skip


class FlashInferKernel:
    """The solutions of one definition, profiled on one GPU.

    `traceset_root` holds blobs, and takes new solutions and cached baselines. Raises ConfigError
    when a file cannot be used, MissingExtra when torch or flashinfer-bench is not installed.
    """

    def __init__(
        self,
        traceset_root: str | Path,
        definition_path: str | Path,
        *,
        device: str = "cuda:0",
        plan: TimingPlan | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.root = Path(traceset_root)
        self.definition = read_json(Definition, Path(definition_path))
        self.device = device
        self.plan = plan
        self.environment = tuple((environment or {}).items())

    def profile(
        self,
        solution_path: str | Path,
        workload_path: str | Path,
        *,
        timeout_seconds: float = CALL_SECONDS,
        profile_baseline: bool = True,
        use_isolated_runner: bool = False,
        destination_passing_style: bool | None = None,
        refuse_unstable: bool = True,
    ) -> tuple[flashinfer_bench.Trace, KernelProperties]:
        """Judge and time one solution on one workload.

        The trace's latency is by the package's timer and its speedup over the reference;
        `metadata["latency"]` is launch-free, in milliseconds, and is what decisions should use.
        `profile_baseline` measures the reference once and caches it; without it the trace's
        speedup is 0. `use_isolated_runner` changes nothing: every solution runs in a
        process of its own. `refuse_unstable` refuses solutions that are right on ordinary
        inputs and wrong on inputs of another scale, spread or lengths, as the search does; without
        it that is a note, for kernels that others published do it and FlashInfer-Bench lets them.
        `destination_passing_style` None: the parameters decide.
        """
        installed_flashinfer_bench.require()
        task = self.task(
            read_json(Solution, Path(solution_path)),
            read_workload(Path(workload_path)),
            timeout_seconds=timeout_seconds,
            destination_passing_style=destination_passing_style,
        )._replace(refuse_unstable=refuse_unstable)
        verdict = evaluate(task)
        reference_ms, reference_launch_free_ms = 0.0, None
        properties = properties_of(verdict)
        if profile_baseline and verdict.evaluation.status is Status.CORRECT:
            baseline = BaselineCache(self.root).reference(task, verdict.hardware)
            reference_ms = baseline.package_latency_ms or 0.0
            if baseline.latency is not None:
                reference_launch_free_ms = baseline.latency.median
                properties.metadata["reference_latency"] = baseline.latency.median
                properties.metadata["speedup_over_reference"] = (
                    baseline.latency.median / properties.metadata["latency"]
                )
        trace = to_trace(
            task.workload, task.solution.name, verdict, reference_ms, reference_launch_free_ms
        )
        return installed_flashinfer_bench.as_package_trace(trace), properties

    def task(
        self,
        solution: Solution,
        workload: Trace,
        *,
        timeout_seconds: float = CALL_SECONDS,
        destination_passing_style: bool | None = None,
    ) -> Task:
        """What `evaluate` needs, with the package's own settings for this definition."""
        for row, name in ((solution, solution.name), (workload, workload_stem(workload))):
            if row.definition != self.definition.name:
                raise ConfigError(f"{name} is for {row.definition}, not {self.definition.name}")
        settings = installed_flashinfer_bench.settings(self.definition)
        plan = self.plan or full_plan(settings)
        return Task(
            root=self.root,
            definition=self.definition,
            workload=workload,
            solution=solution,
            device=self.device,
            destination_passing_style=destination_passing_style,
            timeout_seconds=timeout_seconds,
            tolerance=settings.tolerance,
            plan=plan,
            environment=self.environment,
        )

    def create_and_save_solution(
        self,
        code: str | dict[str, str],
        *,
        name: str | None = None,
        author: str = "AccelOpt",
        language: str = "triton",
        target_gpu: str = "NVIDIA H200",
        description: str = "",
        entry_point: str | None = None,
        destination_passing_style: bool | None = None,
    ) -> str:
        """Write source text as a solution of this definition below the root; returns its path.

        `code` is the text of `main.py`, or texts by file name. How outputs are passed is read off
        the entry point's parameters unless it is said.
        """
        files = code if isinstance(code, dict) else {"main.py": code}
        first = "main.py" if "main.py" in files else next(iter(files))
        solution = Solution(
            name=name or str(uuid.uuid4()),
            definition=self.definition.name,
            author=author,
            spec=BuildSpec(
                language=language,
                target_hardware=[target_gpu],
                entry_point=entry_point or f"{first}::run",
            ),
            sources=[SourceFile(path=path, content=text) for path, text in files.items()],
            description=description,
        )
        style = passes_destination(solution, self.definition, destination_passing_style)
        spec = solution.spec.model_copy(update={"destination_passing_style": style})
        solution = solution.model_copy(update={"spec": spec})
        folder = self.root / "solutions" / self.definition.op_type / self.definition.name
        return str(write_json(solution, folder / f"{solution.name}.json"))


def full_plan(settings: installed_flashinfer_bench.PackageSettings) -> TimingPlan:
    """All that can be asked of a solution, with the package's own settings for its timer."""
    return TimingPlan(
        warmup_runs=settings.warmup_runs,
        iterations=settings.iterations,
        package_trials=settings.num_trials,
    )


def settings_job(payload: Mapping[str, Any]) -> installed_flashinfer_bench.PackageSettings:
    """The package's settings for a definition, from a worker's child process: to import it takes seconds."""
    installed_flashinfer_bench.require()
    return installed_flashinfer_bench.settings(Definition.model_validate(payload["definition"]))


def evaluate_job(payload: Mapping[str, Any]) -> Evaluation:
    """One evaluation for a worker's child process: the verdict, and its trace kept on disk.

    `settings` are the package's own for the definition. `keep_in` is the run's folder: right solutions
    and their traces are written below it in the layout of a FlashInfer-Trace folder, with launch-free
    latencies. With `scrutiny` full, as for what may win, everything is asked, and the package's timer is
    run; otherwise enough to rank by.
    """
    definition = Definition.model_validate(payload["definition"])
    workload = Trace.model_validate(payload["workload"])
    solution = Solution.model_validate(payload["solution"])
    settings = installed_flashinfer_bench.PackageSettings.model_validate(payload["settings"])
    scrutiny = Scrutiny(payload.get("scrutiny", Scrutiny.QUICK))
    task = Task(
        root=Path(payload["root"]),
        definition=definition,
        workload=workload,
        solution=solution,
        device=payload.get("device", "cuda:0"),
        timeout_seconds=float(payload.get("timeout_seconds", SEARCH_SECONDS)),
        tolerance=settings.tolerance,
        start=Solution.model_validate(payload["start"]) if "start" in payload else None,
        plan=full_plan(settings) if scrutiny is Scrutiny.FULL else SEARCH_PLAN,
        starting=fork,
    )
    verdict = evaluate(task)
    if verdict.evaluation.status is Status.CORRECT and "keep_in" in payload:
        keep(Path(payload["keep_in"]), task, verdict)
    return verdict.evaluation


def keep(root: Path, task: Task, verdict: Verdict, reference: Baseline | None = None) -> Path:
    """Write a judged solution and its trace below `root`; returns the trace's path.

    Folders as published: `solutions/<op>/<definition>/<name>.json` and
    `traces/<op>/<definition>_<uuid7>_<name>.json`.
    """
    name, op_type = task.solution.name, task.definition.op_type
    folder = root / "solutions" / op_type / task.definition.name
    style = passes_destination(task.solution, task.definition, task.destination_passing_style)
    spec = task.solution.spec.model_copy(update={"destination_passing_style": style})
    write_json(task.solution.model_copy(update={"spec": spec}), folder / f"{name}.json")
    measured = reference.latency if reference is not None else None
    trace = to_trace(
        task.workload,
        name,
        verdict,
        (reference.package_latency_ms if reference is not None else None) or 0.0,
        measured.median if measured is not None else None,
    )
    return write_json(trace, root / "traces" / op_type / f"{trace_stem(trace, name)}.json")


def properties_of(verdict: Verdict) -> KernelProperties:
    """The verdict under the published names; the message tells a fixer what went wrong."""
    evaluation = verdict.evaluation
    status = evaluation.status
    metadata: dict[str, object] = {"status": status.value, "notes": list(evaluation.notes)}
    if evaluation.profile is not None:
        metadata.update(evaluation.profile.to_metadata())
        metadata["interval_ms"] = evaluation.profile.interval_ms
    else:
        key = _ERROR_KEYS.get(status, "correctness_error")
        metadata[key] = "\n".join(
            part for part in (evaluation.message, evaluation.traceback) if part
        )
    return KernelProperties(
        compiled=status not in (Status.COMPILE_ERROR, Status.BASELINE_FAILED),
        runnable=status
        in (Status.CORRECT, Status.WRONG_NUMBERS, Status.WRONG_SHAPE, Status.WRONG_DTYPE),
        correct=status is Status.CORRECT,
        metadata=metadata,
    )


def get_unique_trace_name(solution: Solution | str, workload: Trace) -> str:
    """`<definition>_<uuid7>_<solution>`, the published stem of a trace file."""
    return trace_stem(workload, solution if isinstance(solution, str) else solution.name)


def get_workload_stem_name(workload: Trace) -> str:
    """`<definition>_<uuid7>`, the published stem of a workload file."""
    return workload_stem(workload)
