"""`accelopt profile` and `accelopt timeline`: where a kernel's time goes, in words and as a trace."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.report.profile_text import profile_text
from accelopt.report.timeline import timeline_json
from accelopt.sandbox.progress import note
from accelopt.sim.timing import interval
from accelopt.store import write_atomically
from accelopt.time_limits import TRACE_SECONDS

ReferenceFile = Annotated[Path, typer.Option(help="NumPy module that makes the arguments")]


def profile(
    kernel: kernel_file.KernelFile,
    reference: ReferenceFile,
    target: kernel_file.TargetOption = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    compiler: kernel_file.CompilerOption = "",
    machine: kernel_file.MachineOption = None,
    search: Annotated[bool, typer.Option(help="look for a faster loop nest, too")] = True,
) -> None:
    """Say how long KERNEL takes on the simulated NeuronCore, and why."""
    asked = kernel_file.order(kernel, reference, target, seconds, compiler, machine)
    given = {"--target": target, "--machine": machine, "--compiler": compiler}
    words = [str(word) for pair in given.items() if pair[1] for word in pair]
    command = ["accelopt", "optimize", str(kernel), "--reference", str(reference), *words]
    asked["search"] = search
    asked["apply"] = (
        shlex.join([*command, "--apply"]) if search else ""
    )  # whose list is that of the search
    typer.echo(ask(profile_job, asked, seconds, kernel, reference).text, nl=False)


def profile_job(asked: Mapping[str, Any]) -> Said:
    """The work of `profile`, in a child process."""
    found = kernel_file.simulated(asked)
    taken = f"{found.latency_ms:.4g} ms, {found.simulated_on}; "
    sought = kernel_file.rewrite_of(asked, known=taken) if asked["search"] else kernel_file.Sought()
    note(f"{taken}working out the least time that its problem takes")
    remark = f"{sought.given_up}\n" if sought.given_up else ""
    reference = Path(asked["reference"])
    text = profile_text(found, interval(found), sought.rewrite, asked["apply"], reference)
    return Said(text=text + remark)


def timeline(
    kernel: kernel_file.KernelFile,
    reference: ReferenceFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="the trace")] = Path("trace.json"),
    target: kernel_file.TargetOption = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    compiler: kernel_file.CompilerOption = "",
    machine: kernel_file.MachineOption = None,
) -> None:
    """Write the simulated execution of KERNEL as a trace that https://ui.perfetto.dev opens."""
    asked = {
        **kernel_file.order(kernel, reference, target, seconds, compiler, machine),
        "output": str(output.absolute()),
    }
    typer.echo(ask(timeline_job, asked, seconds, kernel, reference).text, nl=False)
    typer.echo(f"{output}: open it at https://ui.perfetto.dev")


def timeline_job(asked: Mapping[str, Any]) -> Said:
    """The work of `timeline`, in a child process."""
    found = kernel_file.simulated(asked)
    write_atomically(asked["output"], timeline_json(found))
    return Said(text=f"{found.latency_ms:.4g} ms, {found.simulated_on}.\n")
