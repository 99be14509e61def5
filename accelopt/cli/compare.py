"""`accelopt compare`: a kernel's predicted profile beside one that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.api import neuron_cores
from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.cli.profile import ReferenceFile
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki import devices
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices import KernelFailure
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.kernels.nki.devices.trainium import TrainiumDevice
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.report.page import REPORT, page
from accelopt.report.profile_comparison import compare as side_by_side
from accelopt.report.profile_comparison import comparison_text
from accelopt.report.story import read_story, write_story
from accelopt.store import existing, read_text, write_atomically
from accelopt.time_limits import CAPTURE_SECONDS, TRACE_SECONDS

CAPTURING = 4 * CAPTURE_SECONDS
"""A compilation, two runs under the profiler, and the writing of its tables."""


def compare(
    kernel: kernel_file.KernelFile,
    reference: ReferenceFile,
    measured: Annotated[
        Path | None,
        typer.Option(
            help="the profile: a folder of Parquet tables, a full profile or a summary as JSON"
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(help="run KERNEL on this machine's NeuronCore, and keep its profile here"),
    ] = None,
    target: kernel_file.TargetOption = None,
    seconds: kernel_file.Seconds = TRACE_SECONDS,
    compiler: kernel_file.CompilerOption = "",
    machine: kernel_file.MachineOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, for programs")] = False,
    report: Annotated[
        Path | None, typer.Option(help="also into the report of this run, whose best kernel it is")
    ] = None,
) -> None:
    """Compare the predicted profile of KERNEL with one that a real core left: by engine, instruction, line,
    DMA and counter, and what would explain where they part."""
    if (measured is None) == (capture is None):
        raise ConfigError("give --measured, a profile, or --capture, a folder to keep one in")
    if measured is None:
        assert capture is not None
        said = {"kernel": str(existing(kernel).resolve()), "folder": str(capture.absolute()),
                "reference": str(existing(reference).resolve()), "seconds": seconds,
                "core": neuron_cores()[0]}  # fmt: skip
        measured = Path(ask(capture_job, said, seconds + CAPTURING, kernel, reference).text)
    of = target_of(measured, target, seconds)
    asked = kernel_file.order(kernel, reference, of, seconds, compiler, machine)
    if of not in (None, asked["target"]):  # a calibrated machine's
        raise ConfigError(f"{machine} is of {asked['target']}, and {measured} of {of}.")
    asked |= {"measured": str(measured.absolute()), "json": as_json, "name": kernel.name}
    found = ask(compare_job, asked, seconds, kernel, reference)
    typer.echo(found.text, nl=False)
    if report is not None:
        into_report(report, kernel, found.shown)


def target_of(measured: Path, target: str | None, seconds: float) -> str | None:
    """The generation to compare a profile with: its own, or the `target` that is asked for where it says none that
    is simulated. Raises ConfigError where they differ."""
    read = ask(instance_job, {"measured": str(measured.absolute())}, seconds)
    family, _, instance = read.text.partition(" ")
    known = family if family in TARGETS else None
    if target is not None and known not in (None, target):
        raise ConfigError(f"--target {target}: {measured} is of {instance}, {known}.")
    if instance and known is target is None:
        raise ConfigError(
            f"{measured} is of {instance}, which is none of {', '.join(TARGETS)}: say with --target "
            "which one to compare it with."
        )
    return target or known


def into_report(run: Path, kernel: Path, text: str) -> None:
    """Adds a comparison to the report of a run. Raises ConfigError where the kernel is the best of none of its
    problems."""
    story, source = read_story(run), read_text(kernel)
    best = [p.name for p in story.problems if source == (p.best_source or p.start_source)]
    if not best:
        raise ConfigError(f"{kernel} is the best kernel of no problem of {run}: give its best.py")
    problems = tuple(
        p.model_copy(update={"compared": (*p.compared, text)}) if p.name in best else p
        for p in story.problems
    )
    story = story.model_copy(update={"problems": problems})
    write_story(story, run)
    write_atomically(run / REPORT, page([story]))
    typer.echo(f"{run / REPORT}: has it, too", err=True)


def capture_job(asked: Mapping[str, Any]) -> Said:
    """Compiles and runs the kernel on a core of this machine; what is said is where the profile lies."""
    device = devices.choose(core=int(asked["core"]))
    if not isinstance(device, TrainiumDevice):
        raise ConfigError("there is no NeuronCore to use: `accelopt doctor` says what lacks")
    problem = Reference(Path(asked["reference"]))
    arguments = [argument_of(value) for value in problem.kernel_inputs(problem.inputs(0))]
    try:
        executable = device.compile(asked["kernel"], arguments, seconds=asked["seconds"])
        try:
            return Said(text=str(executable.profile(Path(asked["folder"]))))
        finally:
            executable.close()
    except KernelFailure as failure:
        raise ConfigError(f"{asked['kernel']}: {failure.message}") from failure


def instance_job(asked: Mapping[str, Any]) -> Said:
    """The generation and the instance that a profile is of. In a child: what reads Parquet has threads,
    and this process is going to fork."""
    profile = read_profile(Path(asked["measured"]))
    return Said(text=f"{profile.target} {profile.instance}")


def compare_job(asked: Mapping[str, Any]) -> Said:
    """The work of `compare`, in a child process; `shown` is the comparison in words."""
    profile = read_profile(Path(asked["measured"]))
    found = side_by_side(str(asked["name"]), kernel_file.simulated(asked), profile)
    plain, text = json.dumps(asdict(found), indent=1) + "\n", comparison_text(found)
    return Said(text=plain if asked["json"] else text, shown=text)
