"""A kernel from a NumPy reference alone: `accelopt write`.

The reference is traced to its Algorithm, the search behind `optimize` looks for its fastest schedule,
and the referee judges what is written, the fastest first.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from accelopt.algorithm import ir
from accelopt.errors import AcceloptError, ConfigError
from accelopt.evaluation import Evaluation, EvaluationRequest, Row, Status
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.benchmark import relative_tolerance
from accelopt.kernels.nki.calibration.machine import core_of
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.nests.nest import NotNested, default_nest
from accelopt.kernels.nki.nests.search import described
from accelopt.kernels.nki.predicted_times import own_processes
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.rescheduling.authorship.numbers import fractions
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from accelopt.kernels.nki.rescheduling.lifted_reference import lifted_reference
from accelopt.kernels.nki.rescheduling.schedule_candidates import ScheduledKernel, searched
from accelopt.sandbox.progress import note
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.timing import latencies

LARGEST = 3e38
"""In place of infinity: exp of its negative is 0, and it is a number of fp32."""


class WrittenKernel(Row):
    """A kernel that the referee accepts: its source, what it takes on the simulated core in ms, and the
    least time of its problem. `schedule` is how it computes, as JSON that `Lifted.lowered` reads, and
    `sentence` says that."""

    source: str
    target: str
    latency_ms: float
    bound_ms: float
    sentence: str
    schedule: dict[str, Any]
    verdict: Evaluation


class Written(Row):
    """What a child process that writes a kernel says: the kernel, or in one sentence why there is none."""

    kernel: WrittenKernel | None = None
    error: str = ""


def write_job(asked: Mapping[str, Any]) -> Written:
    """The work of `accelopt write`, in a child process."""
    return written(asked, lambda c: write_kernel(Path(asked["reference"]), c, asked["dialect"]))


def written(asked: Mapping[str, Any], work: Callable[[Hardware], WrittenKernel]) -> Written:
    """What `work` writes for the core that is `asked` for, in a child process."""
    sys.modules["__main__"] = ModuleType("__main__")  # which processes of the search need not run
    try:
        core = core_of(Path(asked["machine"])) if asked["machine"] else TARGETS[asked["target"]]
        return Written(kernel=work(core))
    except AcceloptError as error:
        return Written(error=str(error))


def write_kernel(
    reference: Path, core: Hardware, dialect: Dialect, *, cache: Path | None = None
) -> WrittenKernel:
    """The fastest kernel of a reference that the search finds and the referee accepts, with its time on
    `core`; the search is by the times of its generation in the table of hardware. Raises ConfigError, with line and function, for a reference that has no Algorithm, and with the reason
    where no kernel of it is written or accepted."""
    note("reading the reference")
    problem, target = Reference(reference), core.name
    inputs = problem.inputs(0)
    given = problem.kernel_inputs(inputs)
    lifted = lifted_reference(reference, inputs, given, dialect, target, kernel_name(reference))

    def texts(made: str) -> list[str]:
        return [fractions(documented(made, reference, lifted))]

    return fastest_kernel(lifted, texts, reference, reference, core, cache)


def fastest_kernel(
    lifted: Lifted, texts: Callable[[str], Iterable[str]], given: Path, reference: Path,
    core: Hardware, cache: Path | None,
) -> WrittenKernel:  # fmt: skip
    """The fastest kernel of `lifted`, read from the file `given`, that the search finds and the referee
    accepts for `reference`, in the first of its `texts` that is accepted. Raises ConfigError with the reason where there is none."""
    target = core.name
    note("searching for the fastest schedule")
    with own_processes(lifted.arguments, target) as times:
        found = searched([lifted], target, times)
    offers = (*found.offers, *plainest(lifted, target))
    if not offers:
        raise ConfigError(f"no kernel of {given} is written: {found.refusal}")
    device = SimulatedDevice(target)
    said = ""
    pairs = ((offer, text) for offer in offers for text in texts(offer.source))
    for offer, source in pairs:
        with tempfile.TemporaryDirectory() as folder:
            kernel = Path(folder, "kernel.py")
            kernel.write_text(source, encoding="utf-8")
            request = EvaluationRequest(
                kernel=str(kernel),
                task=str(reference.resolve()),
                target=target,
                rel_tol=relative_tolerance(reference.name),
            )
            verdict = evaluate(request, device, trial_store(cache))
            if verdict.status is not Status.CORRECT:
                said = said or f"{verdict.status.value.replace('_', ' ')}: {verdict.message}"
                continue
            program = device.compile(str(kernel), lifted.arguments).program
        return WrittenKernel(
            source=source,
            target=target,
            latency_ms=offer.predicted_ms
            if core == TARGETS[target] and offer.predicted_ms
            else latencies(program, [core])[0],
            bound_ms=problem_bound(program, core, reference).latency_ms,
            sentence=offer.sentence,
            schedule=offer.nest.model_dump(mode="json", exclude_defaults=True),
            verdict=verdict,
        )
    raise ConfigError(f"the referee accepts no kernel that was written of {given}: {said}")


def plainest(lifted: Lifted, target: str) -> tuple[ScheduledKernel, ...]:
    """The kernel that computes each array by itself, for where the referee accepts none that was searched; its time
    is not known."""
    nest = default_nest(lifted.algorithm, target)
    try:
        kernel = lifted.lowered(nest, target)
    except NotNested:
        return ()
    return (ScheduledKernel(nest, described(nest), kernel.source, 0.0, kernel.price.moved),)


def kernel_name(reference: Path) -> str:
    """A function's name from a reference's file: without sizes and what says that it is NumPy."""
    words = [w for w in re.split(r"\W|_", reference.stem) if w]
    kept = [w for w in words if not re.fullmatch(r"[A-Z]+\d+", w)]
    kept = [w for w in kept if w.lower() not in ("numpy", "np", "reference", "ref")]
    name = "_".join(kept).lower()
    return name if name.isidentifier() else "kernel"


def documented(source: str, reference: Path, lifted: Lifted) -> str:
    """A kernel whose docstring begins with what the reference says of itself, and goes on with the
    shapes and formats of what it takes and gives."""
    said = Reference(reference).summary or f"What {reference.name} computes"
    algorithm: ir.Algorithm = lifted.algorithm
    lines = [f"{said.rstrip('.')}.", ""]
    names = re.findall(r"\w+", lifted.interface.signature)
    arrays = {a.name: a for a in algorithm.inputs}
    for name in names:
        if name in arrays:
            lines.append(f"{name}: {arrays[name].given} {arrays[name].dtype}")
        else:
            lines.append(f"{name}: a number")
    least = dict(re.findall(r"assert (\w+) % (\d+) == 0", source))
    for size, name, place in re.findall(r"(\w+) = (\w+)\.shape\[(\d+)\]\n", source):
        any_number = f"any multiple of {least[size]}" if size in least else "any number"
        lines.append(f"Dimension {place} of {name} may be {any_number}.")
    for array in algorithm.returned:
        lines.append(f"Returns {array.name}: {array.given} {array.dtype}")
    text = "\n    ".join(lines).replace('"""', "'''").replace("\\", "\\\\")
    text = re.sub(r"\n    \n", "\n\n", text)
    return re.sub(
        r'    """.*?"""\n', lambda _: f'    """{text}\n    """\n', source, count=1, flags=re.S
    )
