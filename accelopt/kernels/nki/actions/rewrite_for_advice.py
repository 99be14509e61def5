"""A kernel written anew by one loop nest, to be shown beside advice: the fastest of a few."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from accelopt.kernels.nki.advice import Rewrite
from accelopt.kernels.nki.arguments import ParameterFacts, by_parameter
from accelopt.kernels.nki.devices.protocol import KernelArgument, KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.sandbox import Start, scratch_folder
from accelopt.sim.errors import KernelError
from accelopt.sim.timing import KernelProfile, profile

MOST_STARTS = 8
"""Nests that are looked at; `accelopt optimize` looks at many more, and at what primitives make of them."""
TRIED = 3
"""Of them, the cheapest in closed form: those that are simulated."""


def rewritten(
    kernel: Path,
    arguments: Sequence[KernelArgument],
    found: KernelProfile,
    start: Start | None = None,
) -> Rewrite | None:
    """The kernel in a file by the fastest of a few loop nests that compute the same, simulated as
    `found` was with these `arguments`; None where it does not lift, or no such nest has a kernel. `start`
    begins the processes that trace."""
    # Lifting is not loaded by everybody who can be given advice.
    from accelopt.kernels.nki.actions import primitive_answers
    from accelopt.kernels.nki.lift.failure import NotLifted
    from accelopt.kernels.nki.lift.lifting import lift
    from accelopt.kernels.nki.nests.nest import NotNested
    from accelopt.kernels.nki.nests.search import described
    from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel

    run, source = found.run, kernel.read_text(encoding="utf-8-sig")
    target = run.spec.name
    given = by_parameter(source, [*map(ParameterFacts.of, arguments)])
    try:
        lift(run.program)  # most kernels that do not lift end here, before a process begins
        lifted = lifted_kernel(source, kernel, given, target, start=start)
        lowered = partial(primitive_answers.lowered_or_none, lifted, target)
        nests = primitive_answers.cheapest_nests(lifted.algorithm, target, lowered, MOST_STARTS)
        best: Rewrite | None = None
        for nest, made in nests[:TRIED]:
            if best is not None and made.price.ms >= best.latency_ms:
                break
            text = primitive_answers.after(lifted, nest, (), target).source
            with scratch_folder() as folder, suppress(KernelFailure, KernelError):
                path = folder / kernel.name
                path.write_text(text, encoding="utf-8")
                program = SimulatedDevice(target, start).compile(str(path), arguments).program
                latency = profile(program, run.spec, run.compiler).latency_ms
                if best is None or latency < best.latency_ms:
                    words = described(nest).removeprefix("Rewrite: ")
                    change = f"write the whole kernel by another loop nest ({words})"
                    best = Rewrite(change, text, latency)
        return best
    except (NotLifted, KernelFailure, KernelError, NotNested):
        return None
