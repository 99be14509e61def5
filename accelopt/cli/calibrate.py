"""`accelopt calibrate`: the constants of a machine from microkernels that run on it."""

from __future__ import annotations

import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.table import Table

from accelopt.api import neuron_cores
from accelopt.cli.child_process import Said, ask
from accelopt.cli.compare import target_of
from accelopt.cli.kernel_file import Seconds, known, order, simulated
from accelopt.errors import ConfigError, require
from accelopt.hardware import TARGETS, TRN1, Hardware
from accelopt.interruption import stop
from accelopt.kernels.nki import devices
from accelopt.kernels.nki.calibration import measuring
from accelopt.kernels.nki.calibration.fit import SEEN, Fit, constants, fit
from accelopt.kernels.nki.calibration.machine import write_machine
from accelopt.kernels.nki.calibration.measuring import TimedMicrokernel
from accelopt.kernels.nki.devices import Device
from accelopt.kernels.nki.devices.measured_profile import MeasuredProfile, read_profile
from accelopt.report.console import output
from accelopt.report.profile_comparison import another_kernel, quantities
from accelopt.sim import timing
from accelopt.sim.serial import dumps, loads
from accelopt.sim.timing import KernelProfile
from accelopt.time_limits import TRACE_SECONDS

PROFILED = 0.05
"""Error of a time that a profile has, as a fraction, that is counted with at least (assumed)."""
NAMED = 5
"""Microkernels that are named of those that the fitted machine predicts worst, and for each reason of those
that are not used."""


class UsableRows(NamedTuple):
    """Microkernels that ran, with what they took in ms and as programs; and the rest, with why."""

    rows: list[tuple[str, float]]
    programs: list[Any]
    left_out: Mapping[str, str]


def calibrate(
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="the measurements, as CSV; what it has is not repeated"),
    ] = Path("calibration.csv"),
    measured: Annotated[
        Path | None, typer.Option(help="fit to this CSV in place of running anything")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="trn1, trn2 or trn3",
            show_default="this machine's, or the one that the CSV names, or trn1",
        ),
    ] = None,
    machine: Annotated[
        Path | None, typer.Option(help="where to keep what was found, for --machine elsewhere")
    ] = None,
    profile: Annotated[
        list[Path] | None,
        typer.Option(help="fit to this profile of a real core, of --kernel; also several times"),
    ] = None,
    kernel: Annotated[list[Path] | None, typer.Option(help="what a --profile is of")] = None,
    reference: Annotated[list[Path] | None, typer.Option(help="the --kernel's")] = None,
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Time microkernels on this machine, or read profiles, and fit the constants of the simulated core to
    them."""
    require("calibrate", scipy="scipy")
    if target is not None:
        known(target)
    if given := profile or kernel or reference:
        cases = list(zip_longest(profile or (), kernel or (), reference or ()))
        if measured or not all(map(all, cases)):
            raise ConfigError(
                f"{given[0]}: each --profile has its --kernel and --reference, and no CSV"
            )
        fit_profiles([profiled(*case, target, seconds) for case in cases], machine)
        return
    with tempfile.TemporaryDirectory(prefix="accelopt_") as name:
        folder = Path(name)
        if measured is None:
            device = devices.choose(target or TRN1.name, neuron_cores()[0])
            rows, of = measured_on(device, folder, out), device.target
        else:
            rows = measuring.read(measured)
            of = measuring.target_of(rows) or target or TRN1.name
        if target not in (None, of):
            raise ConfigError(f"--target {target}: the measurements are of {of}.")
        show_fit(rows, of, folder, machine)


def measured_on(device: Device, folder: Path, out: Path) -> list[TimedMicrokernel]:
    """What the microkernels take on a device, kept in `out` after each. Ctrl-C ends the command; the
    same command goes on from there."""
    had = len(measuring.latencies(measuring.begun(out, device.name)))
    try:
        rows = measuring.measure(device, folder, out)
    except KeyboardInterrupt:
        stop(f"Stopped; the same command goes on with what {out} lacks.")
    ran = len(measuring.latencies(rows))
    there = f", {had} of them before" if had else ""
    said = f"{ran} of {len(rows)} microkernels ran on {device.name}{there}: {out}"
    typer.echo(said)
    return rows


def show_fit(
    rows: Sequence[TimedMicrokernel], target: str, folder: Path, machine: Path | None
) -> None:
    """Fits the constants of a target to measurements, says how that went, and keeps them in the file
    `machine`. Raises ConfigError where there are too few."""
    timed = _timed(rows, target, folder)
    core = TARGETS[target]
    for line in unused(timed.left_out):
        typer.echo(line)
    if len(timed.rows) < len(constants(core)):
        raise ConfigError(
            f"{len(timed.rows)} microkernels ran; {len(constants(core))} are needed for a fit"
        )
    latencies = [latency for _, latency in timed.rows]
    told(
        [(name, f"{ms:.4g} ms") for name, ms in timed.rows],
        fit(timed.programs, latencies, core),
        core,
        machine,
    )


class ProfiledKernel(NamedTuple):
    """A profile of a real core, and the same kernel simulated."""

    name: str
    simulated: KernelProfile
    measured: MeasuredProfile


def profiled(
    profile: Path, kernel: Path, reference: Path, target: str | None, seconds: float
) -> ProfiledKernel:
    """The kernel of a profile, traced in a child. Raises ConfigError where it is of another generation."""
    of = target_of(profile, target, seconds)
    asked = order(kernel, reference, of, seconds)
    program = loads(b64decode(ask(program_job, asked, seconds, kernel, reference).text))
    found, read = timing.profile(program, TARGETS[str(asked["target"])]), read_profile(profile)
    if other := another_kernel(found, read):
        raise ConfigError(f"{profile} is not of {kernel} as it is here: {other}")
    return ProfiledKernel(profile.name, found, read)


def program_job(asked: Mapping[str, Any]) -> Said:
    """The Program of a kernel, its loops counted, as text."""
    return Said(text=b64encode(dumps(simulated(asked).run.program)).decode())


def fit_profiles(cases: Sequence[ProfiledKernel], machine: Path | None) -> None:
    """Fits the constants of a generation to profiles, says how that went, and keeps them in the file
    `machine`. Raises ConfigError where they are of several generations."""
    core = TARGETS[cases[0].simulated.target]
    if len(targets := {case.simulated.target for case in cases}) > 1:
        raise ConfigError(f"profiles of {' and '.join(sorted(targets))}: fit each by itself")
    asked = [quantities(case.simulated, case.measured) for case in cases]

    def predict(rows: Sequence[ProfiledKernel], cores: Sequence[Hardware]) -> Any:
        table: list[list[float]] = []
        for case, names in zip(rows, asked, strict=True):
            run = case.simulated.run
            again = timing.profiles(run.program, cores, run.compiler)
            each = [quantities(one, case.measured) for one in again]
            table += [[one.get(name, both)[0] for one in each] for name, both in names.items()]
        return np.array(table)

    rows = [
        (f"{name} of {case.name}", ns, f"{ns * 1e-3:.4g} us")
        for case, names in zip(cases, asked, strict=True)
        for name, (_, ns) in names.items()
    ]
    found = fit(cases, [ns for _, ns, _ in rows], core, predict, PROFILED)
    told([(name, shown) for name, _, shown in rows], found, core, machine)


def told(rows: Sequence[tuple[str, str]], found: Fit, core: Hardware, machine: Path | None) -> None:
    """Says what a fit found, and keeps it; `rows` are what it was fitted to, each with its measured time."""
    output().print(constants_table(core.name, found))
    for line in (*unseen(core, found), *_worst(rows, found)):
        typer.echo(line)
    if machine is not None:
        write_machine(machine, found)
        typer.echo(f"{machine}: for `accelopt profile`, `optimize` and `run` with --machine")


def _timed(rows: Sequence[TimedMicrokernel], target: str, folder: Path) -> UsableRows:
    programs = measuring.programs(target, folder)
    latencies = {
        name: latency for name, latency in measuring.latencies(rows).items() if name in programs
    }
    left_out = {
        row.microkernel: row.message
        or ("no latency" if row.microkernel in programs else "no microkernel of this version")
        for row in rows
        if row.microkernel not in latencies
    }
    told = {row.microkernel for row in rows}
    left_out |= {name: "there is no measurement of it" for name in programs if name not in told}
    return UsableRows(list(latencies.items()), [programs[name] for name in latencies], left_out)


def unused(left_out: Mapping[str, str]) -> list[str]:
    """The microkernels that say nothing, a line for each reason, the first few by name."""
    by_reason: dict[str, list[str]] = {}
    for microkernel, why in left_out.items():
        by_reason.setdefault(why, []).append(microkernel)
    return [
        f"not used: {', '.join(names[:NAMED])}"
        + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        + f" ({why})"
        for why, names in by_reason.items()
    ]


def constants_table(target: str, found: Fit) -> Table:
    """Every constant that was seen, as the table has it, as it was found, and how sure that is."""
    table = Table(title=f"{target}: the worst measurement is predicted {found.worst:.1%} off")
    for name in ("constant", "unit", "table", "found", "error"):
        table.add_column(name, justify="left" if name in ("constant", "unit") else "right")
    core = TARGETS[target]
    for one in found.found:
        if one.seen:
            table.add_row(
                one.name,
                core.source(one.name).unit,
                f"{getattr(core, one.name):.4g}",
                f"{one.value:.4g}",
                f"{one.error:.1%}",
            )
    return table


def unseen(core: Hardware, found: Fit) -> list[str]:
    """Which constants the measurements do not tell, in sentences."""
    lines = []
    for one in found.found:
        if not one.seen:
            why = f"known to {one.error:.0%} only"
            why += f", together with {one.together_with}" if one.together_with else ""
            lines.append(
                f"not seen: {one.name} ({why}; the table has {getattr(core, one.name):.4g})"
            )
    asked = constants(core)
    zero = [
        name
        for name in core.constants()
        if name not in asked and getattr(core, name) == 0 and core.source(name).unit == "ns"
    ]
    if zero:
        lines.append(f"not asked, because the table has 0: {', '.join(zero)}")
    if lines:
        lines.append(f"A constant is seen where its error is {SEEN:.0%} at most.")
    return lines


def _worst(rows: Sequence[tuple[str, str]], found: Fit) -> list[str]:
    """What the fitted machine predicts worst, where that is more than its noise."""
    by_error = sorted(zip(rows, found.ratios, strict=True), key=lambda row: -abs(float(row[1]) - 1))
    return [
        f"predicted {float(ratio) - 1:+.1%} of the measured {latency}: {name}"
        for (name, latency), ratio in by_error[:NAMED]
        if abs(float(ratio) - 1) > SEEN / 2
    ]
