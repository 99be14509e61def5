"""One kernel and one reference: verdict, latency, metrics.

`NKIKernel(program_path, base_numpy_path).profile(save_fields)` is the published entry point;
`accelopt.kernels.nki.judging` does the work, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelopt.caches import default_cache
from accelopt.eval_numpy import KernelProperties
from accelopt.evaluation import REL_TOL, Evaluation, EvaluationRequest, Status
from accelopt.kernels.nki.default_target import default_target
from accelopt.kernels.nki.devices import Device
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.requests import call_for
from accelopt.sandbox.workers import as_evaluation, perform

__all__ = ["KernelProperties", "NKIKernel"]


class NKIKernel:
    """A kernel's file and its reference's file; `profile` fills `res`, under the published names.
    `target` is the generation to simulate, by default that of the kernel's dialect; `cache` the folder
    that keeps what references give, by default the user's own."""

    def __init__(
        self,
        program_path: str | Path,
        base_numpy_path: str | Path,
        *,
        device: Device | None = None,
        rel_tol: float = REL_TOL,
        precision: Sequence[str] = (),
        target: str | None = None,
        cache: str | Path | None = None,
    ) -> None:
        self.program_path = str(program_path)
        self.base_numpy_path = str(base_numpy_path)
        self.device = device
        self.rel_tol = rel_tol
        self.precision = tuple(precision)
        self.perf_tol = 0.01
        self.target = target
        self.cache = cache
        self.res = KernelProperties()

    def profile(self, save_fields: Sequence[str] = ()) -> KernelProperties:
        """Compile, check on the five seeds and the hidden inputs, time. Returns `res`.

        Without a `device`, in a child process with the commands' limits of time and memory; with one,
        in this process, where the device alone limits what it does.
        """
        request = EvaluationRequest(
            kernel=self.program_path,
            task=self.base_numpy_path,
            save_fields=tuple(save_fields),
            rel_tol=self.rel_tol,
            precision=self.precision,
            perf_tol=self.perf_tol,
            target=self.target or default_target(Path(self.program_path)),
        )
        if self.device is None:
            call = call_for(request, str(self.cache or default_cache()))
            found = as_evaluation(perform(call, Evaluation))
        else:
            trials = trial_store(self.cache) if self.cache else None
            found = evaluate(request, self.device, trials)
        self.res = kernel_properties(found)
        return self.res


# How far a kernel with this verdict came; with all others it was not even compiled.
_COMPILED = {Status.RUN_ERROR, Status.WRONG_SHAPE, Status.WRONG_DTYPE, Status.WRONG_NUMBERS}
_CORRECT = {Status.CORRECT, Status.BENCHMARK_ERROR}


def kernel_properties(evaluation: Evaluation) -> KernelProperties:
    """An evaluation under the published names and metadata keys."""
    status = evaluation.status
    return KernelProperties(
        compiled=status in _COMPILED | _CORRECT,
        runnable=status in _COMPILED | _CORRECT and status is not Status.RUN_ERROR,
        correct=status in _CORRECT,
        metadata=evaluation.to_metadata(),
    )
