"""`accelopt profile` and `accelopt timeline`: where a kernel's time goes, in words and as a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.cli.kernel_file import KernelFile, Seconds, Target, simulated
from accelopt.kernels.nki.devices.simulated import TRACE_SECONDS
from accelopt.report.profile import profile_text
from accelopt.report.timeline import timeline_json
from accelopt.sim.timing import interval
from accelopt.store import write_atomically

ReferenceFile = Annotated[Path, typer.Option(help="NumPy module that makes the arguments")]


def profile(
    kernel: KernelFile,
    reference: ReferenceFile,
    target: Target = "trn1",
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Say how long KERNEL takes on the simulated NeuronCore, and why."""
    found = simulated(kernel, reference, target, seconds)
    typer.echo(profile_text(found, interval(found)), nl=False)


def timeline(
    kernel: KernelFile,
    reference: ReferenceFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="the trace")] = Path("trace.json"),
    target: Target = "trn1",
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Write the simulated execution of KERNEL as a trace that https://ui.perfetto.dev opens."""
    write_atomically(output, timeline_json(simulated(kernel, reference, target, seconds)))
    typer.echo(f"{output}: open it at https://ui.perfetto.dev")
