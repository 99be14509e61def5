"""The parent's side of `runner`: the package's isolated runner, with a watchdog."""

from __future__ import annotations

from accelopt.kernels.gpu.bench.files.tracefiles import Trace
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock
from accelopt.kernels.gpu.bench.judging.child_processes import converse
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.sandbox import scratch_folder
from accelopt.sandbox.conversation import ChildEnded, ChildRaised

RUNNER = "accelopt.kernels.gpu.bench.process.runner:handlers"


def measure(task: Task, judged: Trace, reference_ms: float) -> Trace:
    """The package's trace of a solution that our referee has passed.

    When its worker dies, `judged` comes back as RUNTIME_ERROR within seconds. The cached reference
    latency completes the speedup, so the package need not time the reference again.
    """
    request = {
        "definition": task.definition.model_dump(mode="json", exclude_unset=True),
        "workload": task.workload.model_dump(mode="json", exclude_unset=True),
        "solution": task.solution.model_dump(mode="json", exclude_none=True),
        "root": str(task.root.resolve()),
        "destination_passing_style": passes_destination(
            task.solution, task.definition, task.destination_passing_style
        ),
        "profile_baseline": False,
        "timeout_seconds": max(1, int(task.timeout_seconds)),
    }
    root, environment = (str(task.root.resolve()),), dict(task.environment)
    # The package's processes share locks, and the driver names the threads of each one in /proc.
    shared = ("/dev/shm", "/proc")
    with (
        scratch_folder() as folder,
        gpu_lock(task.device, alone=True),
        converse(
            RUNNER, request, folder, readable=root, writable=shared, environment=environment
        ) as child,
    ):
        try:
            reply = child.ask(say.RunPackage(), say.PackageTrace, task.timeout_seconds + 120)
        except (ChildEnded, ChildRaised) as error:
            output = error.output if isinstance(error, ChildEnded) else error.traceback
            return _failed(judged, f"the package's runner: {error}\n{output}")
    if reply.trace is None:
        return _failed(judged, "the package's runner measured nothing")
    return _with_reference(Trace.model_validate(reply.trace), reference_ms)


def _failed(judged: Trace, log: str) -> Trace:
    assert judged.evaluation is not None
    evaluation = judged.evaluation.model_copy(
        update={"status": "RUNTIME_ERROR", "log": log, "performance": None, "correctness": None}
    )
    return judged.model_copy(update={"evaluation": evaluation})


def _with_reference(trace: Trace, reference_ms: float) -> Trace:
    evaluation = trace.evaluation
    if evaluation is None or evaluation.performance is None or not reference_ms:
        return trace
    latency = evaluation.performance.latency_ms
    performance = evaluation.performance.model_copy(
        update={
            "reference_latency_ms": reference_ms,
            "speedup_factor": reference_ms / latency if latency else 0.0,
        }
    )
    return trace.model_copy(
        update={"evaluation": evaluation.model_copy(update={"performance": performance})}
    )
