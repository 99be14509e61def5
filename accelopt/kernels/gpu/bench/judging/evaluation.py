"""One solution on one workload: two child processes, a fixed order of trials, one verdict."""

from __future__ import annotations

import time

from accelopt.evaluation import Evaluation, Status
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock, scratch
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import NOT_JUDGED, Ended
from accelopt.kernels.gpu.bench.judging.trial import SolutionTrial
from accelopt.kernels.gpu.bench.judging.verdict import Verdict
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.sandbox import scratch_folder


def evaluate(task: Task) -> Verdict:
    """Check and time one solution; whatever it does, the result is a Verdict."""
    begin = time.monotonic()
    if message := "" if task.rival else text_refused(task.solution):
        return Verdict(evaluation=Evaluation(status=Status.REFUSED, message=message))
    index_tensors.materialise(task.root, task.definition, task.workload.workload)
    verdict = _judged(task)
    if verdict.evaluation.message.startswith(NOT_JUDGED):
        with gpu_lock(task.device, alone=True):
            verdict = _judged(task, alone=True)
    seconds = time.monotonic() - begin
    evaluation = verdict.evaluation.model_copy(update={"seconds": seconds})
    return verdict.model_copy(update={"evaluation": evaluation})


def text_refused(solution: Solution) -> str:
    """Why a solution's text alone is refused; empty where it is not."""
    found = "; ".join(map(str, violations(solution)[:5]))
    return f"forbidden in the source: {found}" if found else ""


def _judged(task: Task, *, alone: bool = False) -> Verdict:
    """All trials of a solution; `alone` where the caller holds the device for all of them."""
    with scratch_folder(scratch()) as folder:
        trial = SolutionTrial(task, folder, alone=alone)
        try:
            return trial.run()
        except Ended as ended:
            return trial.verdict(
                Evaluation(
                    status=ended.status,
                    message=str(ended),
                    traceback=ended.traceback,
                    checks=tuple(trial.checks),
                    notes=tuple(trial.notes),
                )
            )
        finally:
            trial.close()
