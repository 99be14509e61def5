"""`accelopt compare`: a kernel's predicted profile beside one that was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.cli.child_process import Said, ask, said_by
from accelopt.cli.kernel_file import (
    CompilerOption,
    KernelFile,
    MachineOption,
    Seconds,
    TargetOption,
    naming,
    order,
    simulated,
)
from accelopt.cli.profile import ReferenceFile
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.report.profile_comparison import compare as side_by_side
from accelopt.report.profile_comparison import comparison_text
from accelopt.time_limits import TRACE_SECONDS


def compare(
    kernel: KernelFile,
    reference: ReferenceFile,
    measured: Annotated[
        Path,
        typer.Option(
            help="the profile: a folder of Parquet tables, a full profile or a summary as JSON"
        ),
    ],
    target: TargetOption = None,
    seconds: Seconds = TRACE_SECONDS,
    compiler: CompilerOption = "",
    machine: MachineOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="write JSON, for programs")] = False,
) -> None:
    """Compare the predicted profile of KERNEL with one that a real core left: by engine, instruction, line,
    DMA and counter, and what would explain where they part."""
    profile = read_profile(measured)
    known = profile.target if profile.target in TARGETS else None
    if target is not None and known not in (None, target):
        raise ConfigError(f"--target {target}: {measured} is of {profile.instance}, {known}.")
    asked = order(kernel, reference, target or known, seconds, compiler, machine)
    if known not in (None, asked["target"]):  # a calibrated machine's
        raise ConfigError(f"{machine} is of {asked['target']}, and {measured} of {known}.")
    asked |= {"measured": str(measured.absolute()), "json": as_json, "name": kernel.name}
    with naming(kernel, reference):
        typer.echo(ask("accelopt.cli.compare:compare_job", asked, seconds).text, nl=False)


def compare_job(asked: Mapping[str, Any]) -> Said:
    """The work of `compare`, in a child process."""

    def work() -> Said:
        profile = read_profile(Path(asked["measured"]))
        found = side_by_side(str(asked["name"]), simulated(asked), profile)
        plain = json.dumps(found.as_json(), indent=1) + "\n"
        return Said(text=plain if asked["json"] else comparison_text(found))

    return said_by(work)
