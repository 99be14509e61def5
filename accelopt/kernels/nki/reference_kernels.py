"""A kernel from a NumPy reference alone: `accelopt write`.

The reference is traced to its Algorithm, the search behind `optimize` looks for its fastest schedule,
and the referee judges what is written, the fastest first.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.algorithm.algorithm import Algorithm
from accelopt.algorithm.reference_trace import TracedReference, trace_reference
from accelopt.algorithm.traced_array import NotTraced
from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, EvaluationRequest, Row, Status
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.benchmark import relative_tolerance
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Interface, shape_text
from accelopt.kernels.nki.lift.scalar_arguments import AGAIN, FIRST, assertion_message, stand_in
from accelopt.kernels.nki.lift.scheduled_kernels import searched
from accelopt.kernels.nki.lift.search import AbstractArgument, own_processes
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sandbox.progress import note
from accelopt.sim.dialects.dialect import Dialect
from accelopt.store import read_text


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


def write_kernel(
    reference: Path, target: str, dialect: Dialect, *, cache: Path | None = None
) -> WrittenKernel:
    """The fastest kernel of a reference that the search finds and the referee accepts. Raises
    ConfigError, with line and function, for a reference that has no Algorithm, and with the reason
    where no kernel of it is written or accepted."""
    note("reading the reference")
    problem = Reference(reference)
    inputs = problem.inputs(0)
    lifted = lifted_reference(reference, inputs, problem.kernel_inputs(inputs), dialect)
    values = [
        AbstractArgument(a.shape, a.dtype)
        if isinstance(a, TensorArgument)
        else AbstractArgument(value=a)
        for a in lifted.arguments
    ]
    note("searching for the fastest schedule")
    with own_processes(values, target) as times:
        found = searched(lifted, values, target, times)
    if not found.offers:
        raise ConfigError(f"no kernel of {reference} is written: {found.refusal}")
    device = SimulatedDevice(target)
    said = ""
    for offer in found.offers:
        source = documented(offer.source, reference, lifted)
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
            latency_ms=offer.predicted_ms,
            bound_ms=problem_bound(program, TARGETS[target]).latency_ms,
            sentence=offer.sentence,
            schedule=offer.schedule.model_dump(mode="json", exclude_defaults=True),
            verdict=verdict,
        )
    raise ConfigError(f"the referee accepts no kernel that was written of {reference}: {said}")


def lifted_reference(
    reference: Path, inputs: Sequence[Any], given: Sequence[Any], dialect: Dialect
) -> Lifted:
    """What a reference computes, called with `given`, the kernel's inputs. Plain numbers stay
    parameters where the reference takes any; others are asked for by an assert. Raises ConfigError."""
    source = read_text(reference)
    arguments = tuple(argument_of(value) for value in given)
    plain = [v for v in inputs if not isinstance(v, np.ndarray)]
    floats = {n: v for n, v in enumerate(plain) if type(v) is float}

    def traced(first: int | None) -> tuple[TracedReference, dict[int, float]]:
        stands = {} if first is None else {n: stand_in(v, n, first) for n, v in floats.items()}
        numbers = iter(enumerate(plain))
        changed = []
        for value in inputs:
            if not isinstance(value, np.ndarray):
                number, own = next(numbers)
                value = stands.get(number, own)
            changed.append(value)
        return trace_reference(reference, source, changed), stands

    try:
        found, stands = traced(FIRST if floats else None)
        again = traced(AGAIN) if floats else None
    except NotTraced as refusal:
        try:
            (found, stands), again = traced(None), None
        except NotTraced:
            raise ConfigError(str(refusal)) from None
    except NotLifted as refusal:
        raise ConfigError(f"{reference}: {refusal}") from None
    if len(arguments) != len(found.parameters):
        raise ConfigError(f"{reference}: transform_to_nki_inputs depends on its inputs' numbers")
    name = kernel_name(reference)
    own = [
        n
        for n, a in zip(found.parameters, arguments, strict=True)
        if not isinstance(a, TensorArgument)
    ]
    values = [a for a in arguments if not isinstance(a, TensorArgument)]
    asserts = tuple(
        assertion_message(parameter, value)
        for n, (parameter, value) in enumerate(zip(own, values, strict=True))
        if n not in stands
    )

    def lifted(traced: TracedReference, stands: Mapping[int, float]) -> Lifted:
        names = {stand: own[n] for n, stand in stands.items()}
        interface = Interface(", ".join(traced.parameters), names, False, name, asserts)
        return Lifted(traced.algorithm, interface, (), dialect, arguments)

    twins = (lifted(*again),) if again else ()
    return lifted(found, stands)._replace(twins=twins)


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
    algorithm: Algorithm = lifted.algorithm
    lines = [f"{said.rstrip('.')}.", ""]
    names = re.findall(r"\w+", lifted.interface.signature)
    arrays = {a.name: a for a in algorithm.inputs}
    for name in names:
        if name in arrays:
            lines.append(f"{name}: {shape_text(arrays[name].given)} {arrays[name].dtype}")
        else:
            lines.append(f"{name}: a number")
    for array in algorithm.outputs:
        lines.append(f"Returns {array.name}: {shape_text(array.given)} {array.dtype}")
    text = "\n    ".join(lines).replace('"""', "'''").replace("\\", "\\\\")
    text = re.sub(r"\n    \n", "\n\n", text)
    return re.sub(
        r'    """.*?"""\n', lambda _: f'    """{text}\n    """\n', source, count=1, flags=re.S
    )


__all__ = ["KernelFailure", "NotLowered", "WrittenKernel", "write_kernel"]
