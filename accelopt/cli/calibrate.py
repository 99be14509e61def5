"""`accelopt calibrate`: the constants of a machine from microkernels that run on it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki import devices
from accelopt.kernels.nki.calibration import measuring
from accelopt.kernels.nki.calibration.fit import CONSTANTS, Fit, fit
from accelopt.report.console import output


def calibrate(
    out: Annotated[Path, typer.Option("-o", "--out", help="the measurements, as CSV")] = Path(
        "calibration.csv"
    ),
    measured: Annotated[
        Path | None, typer.Option(help="fit to this CSV in place of running anything")
    ] = None,
    target: Annotated[str, typer.Option(help="trn1, trn2 or trn3")] = "trn1",
) -> None:
    """Time microkernels on this machine and fit the constants of the simulated core to them."""
    if target not in TARGETS:
        raise ConfigError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory(prefix="accelopt_") as name:
        folder = Path(name)
        if measured is None:
            device = devices.choose(target)
            target = device.target
            rows = measuring.measure(device, folder)
            measuring.write(rows, out)
            output().print(f"{len(rows)} microkernels on {device.name}: {out}")
        else:
            rows = measuring.read(measured)
        known = measuring.programs(target, folder)
    rows = [row for row in rows if row.microkernel in known]
    if len(rows) < len(CONSTANTS):
        raise ConfigError(f"{len(rows)} microkernels ran; {len(CONSTANTS)} are needed for a fit")
    found = fit(
        [known[row.microkernel] for row in rows], [row.latency_ms for row in rows], TARGETS[target]
    )
    output().print(constants_table(target, found))


def constants_table(target: str, found: Fit) -> Table:
    """Every constant as it stands and as it was found."""
    table = Table(title=f"{target}: the worst microkernel is predicted {found.worst:.1%} off")
    for name in ("constant", "unit", "table", "found"):
        table.add_column(name, justify="right" if name in ("table", "found") else "left")
    core = TARGETS[target]
    for name in CONSTANTS:
        table.add_row(
            name,
            core.source(name).unit,
            f"{getattr(core, name):.4g}",
            f"{getattr(found.hardware, name):.4g}",
        )
    return table
