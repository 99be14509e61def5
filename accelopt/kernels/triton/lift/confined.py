"""Triton kernels that nobody has vouched for are lifted in a confined child process.

The kernel's file and the host function that launches it run there, with shapes and formats and never
with data, as long and with as much memory as they may. What comes back is data: an Algorithm as JSON and
the lines of its definitions, or a sentence with its line. It is what the child says: of a kernel that
reaches for the tracer it may be wrong, so nothing that it says passes for a verdict.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, BinaryIO

from pydantic import Field, ValidationError

from accelopt.algorithm.ir import from_json
from accelopt.algorithm.traced_array import NotTraced
from accelopt.algorithm.well_formed import well_formed
from accelopt.errors import quoted
from accelopt.evaluation import Row
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    DefinitionTensor,
    Solution,
    Workload,
)
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.kernels.triton.lift.lifting import LiftedLaunches, Like, format_named, lift_launches
from accelopt.sandbox import Limits, Policy, clean_server, run
from accelopt.sim.errors import SourceLine
from accelopt.time_limits import LIFT_SECONDS, START_SECONDS

BYTES = 4 << 30
"""Memory of the child."""
ANSWER_BYTES = 64 << 20
WARM = ("accelopt.kernels.triton.lift.confined", "ml_dtypes")
"""What the child has imported when it begins."""

Given = Like | float | int | bool | str | None
"""An argument of a host function: a tensor by its shape and format, or a plain value."""


class LiftAnswer(Row):
    """What the child says: `algorithm` as `Algorithm.to_json` writes it, with the file and line of
    definitions; without one, the `refusal` and where it is."""

    algorithm: str = ""
    lines: dict[str, tuple[str, int]] = Field(default_factory=dict)
    refusal: str = ""
    file: str = ""
    line: int = 0


def lift_solution(solution: Solution, definition: Definition, workload: Workload) -> LiftedLaunches:
    """What a solution of one of FlashInfer-Bench's definitions computes on a workload's shapes: its
    Algorithm has the inputs in the definition's order, and behind them the outputs where the solution
    is given those to fill. Raises NotTraced."""
    sources = {source.path: source.content for source in solution.sources}
    into = definition.outputs if passes_destination(solution, definition) else {}
    given = _given(definition, workload, into)
    return lift_kernel(sources, solution.spec.entry_point, given)


def lift_reference(definition: Definition, workload: Workload) -> LiftedLaunches:
    """The same of the PyTorch reference in a definition. Raises NotTraced."""
    sources = {"reference.py": definition.reference}
    return lift_kernel(sources, "reference.py::run", _given(definition, workload, {}))


def _given(
    definition: Definition, workload: Workload, into: Mapping[str, DefinitionTensor]
) -> list[Given]:
    """Shapes and formats of tensors, plain values as the workload has them."""
    given: list[Given] = []
    for name, spec in (*definition.inputs.items(), *into.items()):
        shape, source = definition.shape(spec, workload), workload.inputs.get(name)
        scalar = 1.0 if source is None or source.value is None else source.value
        given.append(scalar if shape is None else Like(shape, spec.dtype))
    return given


def lift_kernel(
    sources: Mapping[str, str], entry: str, given: Sequence[Given], seconds: float = LIFT_SECONDS
) -> LiftedLaunches:
    """What the kernels compute that a host function launches, found in a confined child process.

    `sources` are texts by their paths relative to one folder, of the kernel and of what it imports of
    its folder. `entry` is the host function: `kernel.py::run`. Raises NotTraced, with the file (one of
    the paths) and the line where they are known, for what has no Algorithm, and for a kernel that takes
    longer than `seconds`, needs too much memory or ends its process.
    """
    file = entry.partition("::")[0]
    named = [tuple(one) if isinstance(one, Like) else one for one in given]
    payload = {"sources": dict(sources), "entry": entry, "given": named, "seconds": seconds}
    limits = Limits(seconds=seconds + START_SECONDS, memory_bytes=BYTES, result_bytes=ANSWER_BYTES)
    outcome = run(
        "accelopt.kernels.triton.lift.confined:lift_job", payload,
        policy=Policy(), limits=limits, start=clean_server(WARM).start,
    )  # fmt: skip
    if not (outcome.completed and outcome.result):
        raise NotTraced(f"the process that traces the kernel {outcome.words}", file)
    try:
        answer = LiftAnswer.model_validate_json(outcome.result)
        if answer.refusal:
            known = answer.file in sources and answer.line > 0
            where = (answer.file, answer.line) if known else (file, 0)
            raise NotTraced(" ".join(quoted(answer.refusal).split()), *where)
        algorithm = well_formed(from_json(answer.algorithm))
        wanted = [
            (one.shape, format_named(one.dtype).name) for one in given if isinstance(one, Like)
        ]
        if [(array.given, array.dtype) for array in algorithm.inputs] != wanted:
            raise ValueError("it is for other arguments than were asked for")
    except (ValidationError, ValueError, AttributeError, TypeError, RecursionError) as error:
        said = str(error).partition("\n")[0]
        raise NotTraced(
            f"the process that traces the kernel left a damaged answer: {quoted(said)}", file
        ) from None
    lines = {name: SourceLine(*at) for name, at in answer.lines.items() if at[0] in sources}
    return LiftedLaunches(algorithm, lines)


def lift_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """The child's side: writes the sources into its folder, lifts, answers."""
    folder = Path.cwd().resolve()

    def answer(found: LiftAnswer) -> None:
        channel.write(found.model_dump_json().encode())
        channel.flush()

    def refused(reason: str, file: str, line: int) -> LiftAnswer:
        return LiftAnswer(refusal=reason, file=_below(folder, file), line=line)

    def over(_: int, frame: FrameType | None) -> None:
        """Ends the process: an exception could be caught by the kernel."""
        frames = (one for one, _ in traceback.walk_stack(frame))
        own = next((f for f in frames if _below(folder, f.f_code.co_filename)), None)
        place = ("", 0) if own is None else (own.f_code.co_filename, own.f_lineno)
        answer(refused(f"tracing it took longer than {payload['seconds']:g} s", *place))
        os._exit(0)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, payload["seconds"])
    try:
        for name, text in payload["sources"].items():
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise NotTraced(f"the source path {name} leaves its folder")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        file, _, function = str(payload["entry"]).partition("::")
        given = [Like(tuple(one[0]), one[1]) if isinstance(one, list) else one
                 for one in payload["given"]]  # fmt: skip
        found = lift_launches(folder / file, function, given, folders=[str(folder)])
        lines = {name: (_below(folder, at.file), at.line) for name, at in found.lines.items()}
        said = LiftAnswer(algorithm=found.algorithm.to_json(), lines=lines)
    except NotTraced as refusal:
        said = refused(refusal.reason, refusal.path, refusal.line)
    except MemoryError:
        said = LiftAnswer(refusal=f"tracing it needs more than {BYTES >> 30} GiB of memory")
    except BaseException as error:  # a stranger's file may raise anything
        said = LiftAnswer(refusal=f"{type(error).__name__}: {error}")
    signal.setitimer(signal.ITIMER_REAL, 0)
    answer(said)


def _below(folder: Path, file: str) -> str:
    """The path of a file as it stands among the sources; empty for one that is none of them."""
    path = Path(file)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
