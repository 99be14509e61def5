"""Evaluations of NKI kernels in child processes: what a worker is asked to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from accelopt.evaluation import Case, Confirmation, Evaluation, EvaluationRequest, Status
from accelopt.kernels.nki.arguments import MadeArguments, by_parameter
from accelopt.kernels.nki.devices import trainium
from accelopt.kernels.nki.devices.kernel_folder import files_of
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.devices.simulated import WARM, SimulatedDevice
from accelopt.kernels.nki.problem_bound import ProblemBound, problem_bound
from accelopt.sandbox import workers
from accelopt.sandbox.workers import Call, Fault, Pool, as_evaluation
from accelopt.sim.errors import KernelError
from accelopt.store import read_text
from accelopt.time_limits import ARGUMENTS_SECONDS

EVALUATION = "accelopt.kernels.nki.jobs:evaluate_job"
ARGUMENTS = "accelopt.kernels.nki.arguments:arguments_job"
ARGUMENTS_BYTES = 12 << 30
CONFIRMATION = "accelopt.kernels.nki.jobs:confirm_job"


async def submit(pool: Pool, request: EvaluationRequest) -> Evaluation:
    """Compile, check and time one kernel, when a worker of `pool` is free; never raises for a kernel."""
    return as_evaluation(await pool.ask(call_for(request, pool.cache), Evaluation))


async def submit_in_halves(pool: Pool, request: EvaluationRequest) -> Evaluation:
    """`submit` for full scrutiny, by two workers at once; the verdict is the same. Who waits for a
    winner waits half as long."""
    first, second = (
        asyncio.ensure_future(submit(pool, request.model_copy(update={"half": half})))
        for half in (0, 1)
    )
    try:
        found = await first
        return found if found.status is not Status.CORRECT else joined(found, await second)
    finally:
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)


def joined(first: Evaluation, second: Evaluation) -> Evaluation:
    """The verdict of both halves of full scrutiny: that of the first that found a fault, with the
    checks of the other before it."""
    if first.status is not Status.CORRECT:
        return first
    shown = first if second.status is Status.CORRECT else second
    return shown.model_copy(
        update={
            "checks": first.checks + second.checks,
            "notes": tuple(dict.fromkeys(first.notes + second.notes)),
            "holds_for": second.holds_for,
            "exactness": second.exactness,
            "seconds": max(first.seconds, second.seconds),
        }
    )


def call_for(request: EvaluationRequest, cache: str) -> Call:
    """What a worker does for `request`."""
    placed = _placed(request)
    return Call(
        EVALUATION,
        {"request": placed, "cache": cache},
        request.total_seconds,
        request.memory_bytes,
        warm=() if trainium.available() else WARM,
        files=(*files_of(Path(placed["kernel"])), placed["task"]),
    )


async def confirm(pool: Pool, winner: EvaluationRequest, parent: EvaluationRequest) -> Confirmation:
    """Measure two correct kernels of one problem again, alternating, by a worker of `pool`."""
    one, other = _placed(winner), _placed(parent)
    call = Call(
        CONFIRMATION,
        {"winner": one, "parent": other, "cache": pool.cache},
        winner.total_seconds,
        winner.memory_bytes,
        warm=() if trainium.available() else WARM,
        files=(*files_of(Path(one["kernel"])), *files_of(Path(other["kernel"])), one["task"]),
    )
    found = await pool.ask(call, Confirmation)
    if isinstance(found, Fault):
        return Confirmation(confirmed=False, message=found.message)
    return found


def made_arguments(task: Path) -> MadeArguments:
    """Shapes and dtypes of the kernel inputs that the reference `task` makes, in a child process;
    none when it fails, whatever it does."""
    asked = {"task": str(task.resolve())}
    call = Call(ARGUMENTS, asked, ARGUMENTS_SECONDS, ARGUMENTS_BYTES, warm=WARM)
    found = workers.perform(call, MadeArguments, threads=1)
    return MadeArguments() if isinstance(found, Fault) else found


def case_bound(case: Case, device: SimulatedDevice) -> ProblemBound | None:
    """The bound of a case, from its kernel; None where that cannot be traced with the arguments that its
    reference makes."""
    kernel, task = Path(case.kernel), Path(case.task)
    if not (kernel.is_file() and task.is_file()):
        return None
    known = by_parameter(read_text(kernel), made_arguments(task).arguments)
    arguments = [one.argument for one in known.values()]
    if not arguments:
        return None
    try:
        return problem_bound(device.compile(str(kernel), arguments).program, device.core)
    except (KernelFailure, KernelError):
        return None


def _placed(request: EvaluationRequest) -> dict[str, Any]:
    """The request for a child, which works in another folder: absolute paths."""
    places = {name: str(Path(getattr(request, name)).resolve()) for name in ("kernel", "task")}
    return request.model_copy(update=places).model_dump(mode="json")
