"""What the simulated core says of a kernel without running it: predicted time, and where it goes.

Runs in a worker's child process, and gives its answer as an Evaluation without the referee's
checks: the profile is the prediction, the diagnosis is what limits it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from accelopt.evaluation import Evaluation, Profile, Row, Status
from accelopt.hardware import Hardware
from accelopt.kernels.nki.actions.rewrite_for_advice import rewritten
from accelopt.kernels.nki.briefing import briefing
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.devices.tracing import arguments_of_json
from accelopt.kernels.nki.diagnosis import diagnose
from accelopt.kernels.nki.problem_bound import FoundBound, ProblemBound, problem_bound
from accelopt.sandbox import fork
from accelopt.sim import timing
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Program
from accelopt.sim.timing.stream.operation import QUEUE_NAMES
from accelopt.sim.timing.what_if import TRANSFERS, with_changes

INSPECTION = "accelopt.kernels.nki.inspection:inspect_job"
BOUND = "accelopt.kernels.nki.inspection:bound_job"
BRIEFING = "accelopt.kernels.nki.inspection:brief_job"
WHAT_IF = "accelopt.kernels.nki.inspection:what_if_job"
INSPECTION_BYTES = 6 << 30
LONGEST_QUESTION = 2000  # characters
QUESTION = re.compile(
    r"(?:lines?\s+(\d(?:\d|to|and|[-,\s])*?)"
    rf"|\b({'|'.join([*QUEUE_NAMES, *TRANSFERS])})\b[a-z_\s]*?)"
    r"\s*(?:x|×|\*|times)\s*(\d*\.?\d+)(?![\w.])(\s*%)?",
    re.IGNORECASE,
)
LINES = re.compile(r"(\d+)(?:\s*(?:-|to)\s*(\d+))?")
HOW_TO_ASK = (
    "Ask as in `lines 12 14-16 x 0.5; vector x 0.8; loads x 0`: source lines, an engine "
    f"({', '.join(QUEUE_NAMES)}) or {' or '.join(TRANSFERS)}, then the factor of the time, at most 1."
)


class Briefing(Row):
    """`briefing` of a kernel; no parts where it cannot be simulated."""

    parts: dict[str, str] = Field(default_factory=dict)


def brief_job(payload: Mapping[str, Any]) -> Briefing:
    """The parts of `briefing` for the kernel that `payload` names."""
    try:
        found = _profiled(payload)
        told = payload.get("bound")
        bound = ProblemBound.model_validate(told) if told else None
        rewrite = rewritten(
            Path(payload["kernel"]), arguments_of_json(payload["arguments"]), found, fork
        )
        return Briefing(parts=briefing(found, bound, rewrite))
    except (KernelFailure, KernelError):
        return Briefing()


def what_if_job(payload: Mapping[str, Any]) -> Briefing:
    """The answer to the `question` in `payload`, `lines 12 14 x 0.5; vector x 0.8`: the time with each
    change alone, and with all of them; what of the question could not be read is said."""
    question = " ".join(str(payload["question"]).split())
    asked = [*QUESTION.finditer(question)] if len(question) <= LONGEST_QUESTION else []
    between = (one.strip(" ,.?") for one in re.split("[;\n]", QUESTION.sub("\n", question)))
    unread = "; ".join(f"`{one[:100]}`" for one in between if re.search(r"\d", one))
    if not asked:
        return Briefing(parts={"answer": HOW_TO_ASK})
    try:
        found = _profiled(payload)
    except (KernelFailure, KernelError) as error:
        return Briefing(parts={"answer": str(error)})
    known = sorted({cost.source.line for cost in found.lines})
    rows: list[str] = []
    changes: list[tuple[frozenset[int] | str, float]] = []
    for one in asked:
        named = [(int(first), int(last or first)) for first, last in LINES.findall(one[1] or "")]
        lines = frozenset(n for first, last in named for n in known if first <= n <= last)
        without = [str(f) for f, last in named if not any(f <= n <= last for n in lines)]
        factor, name = float(one[3]) / (100 if one[4] else 1), one[0].strip()
        if without:
            own = f"lines with one: {' '.join(map(str, known))}"
            rows.append(f"{name}: line {', '.join(without)} has no instruction of its own; {own}")
        elif factor > 1:
            rows.append(f"{name}: a factor is at most 1")
        else:
            changes.append((lines or one[2].lower(), factor))
            rows.append(_changed(found, name, changes[-1:]))
    if len(changes) > 1:
        rows.append(_changed(found, "all of them", changes))
    if unread:
        rows.append(f"Not read: {unread}. {HOW_TO_ASK}")
    return Briefing(parts={"answer": "\n".join(rows)})


def _changed(
    found: timing.KernelProfile, name: str, changes: Sequence[tuple[frozenset[int] | str, float]]
) -> str:
    then = with_changes(found, changes)
    share = then / found.latency_ms - 1
    return f"{name}: {then:.4g} ms in place of {found.latency_ms:.4g} ({share:+.0%})"


def inspect_job(payload: Mapping[str, Any]) -> Evaluation:
    """Trace, verify and time the kernel that `payload` names; `ranked` bottlenecks are by gain."""
    try:
        found = _profiled(payload)
    except KernelFailure as failure:
        return Evaluation(status=failure.status, message=failure.message)
    except (
        KernelError
    ) as error:  # without data, loops that data decide have no time: no rule is broken
        untold = error.identifier == "dynamic_loop"
        status = Status.BENCHMARK_ERROR if untold else Status.COMPILE_ERROR
        return Evaluation(status=status, message=str(error))
    latency = found.latency_ms
    profile = Profile(
        latency=latency,
        min_ms=latency,
        max_ms=latency,
        rel_diffs=0.0,
        metrics=dict(found.summary),
        target=found.target,
        simulated=True,
        compiler=found.compiler,
    )
    return Evaluation(
        status=Status.CORRECT,
        profile=profile,
        diagnosis=diagnose(found, ranked=payload.get("ranked", False)),
    )


def bound_job(payload: Mapping[str, Any]) -> FoundBound:
    """What the problem takes at least of the kernel that `payload` names."""
    try:
        program, core = _traced(payload)
    except (KernelFailure, KernelError):
        return FoundBound()
    return FoundBound(bound=problem_bound(program, core, Path(payload["reference"])))


def _profiled(payload: Mapping[str, Any]) -> timing.KernelProfile:
    """Raises KernelFailure and KernelError."""
    program, core = _traced(payload)
    compiler = timing.Compiler.for_program(program, core, payload.get("compiler", ""))
    return timing.profile(program, core, compiler)


def _traced(payload: Mapping[str, Any]) -> tuple[Program, Hardware]:
    # Nothing is here but the kernel's path.
    device = SimulatedDevice(payload["target"], fork, payload.get("constants"))
    return device.compile(
        payload["kernel"], arguments_of_json(payload["arguments"])
    ).program, device.core
