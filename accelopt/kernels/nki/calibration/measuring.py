"""Runs the microkernels on a device, keeps what they took as CSV, and reads it again."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.calibration.microkernels import Microkernel, microkernels
from accelopt.kernels.nki.devices import Device, KernelFailure, TensorArgument, Timings
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.sandbox import fork
from accelopt.sim.program import Program
from accelopt.store import write_atomically
from accelopt.time_limits import CALIBRATION_SECONDS

COLUMNS = ("microkernel", "latency_ms", "message", "device")


class TimedMicrokernel(NamedTuple):
    """One microkernel and what it took, None and a message where it did not run; and on which device,
    empty where that is not known."""

    microkernel: str
    latency_ms: float | None
    message: str = ""
    device: str = ""


def measure(device: Device, folder: Path, table: Path) -> list[TimedMicrokernel]:
    """The median latency of every microkernel; sources are written to `folder`. After each, all that
    is known stands in `table`; a latency that stood there before is not measured again. Raises
    ConfigError where that is no table of this device."""
    rows = {row.microkernel: row for row in begun(table, device.name)}
    for one in microkernels():
        if one.name not in rows or rows[one.name].latency_ms is None:
            rows[one.name] = measure_one(one, device, folder)
            write(list(rows.values()), table)
    return list(rows.values())


def begun(table: Path, device: str) -> list[TimedMicrokernel]:
    """What an earlier measurement on the device left in a table; nothing where there is none. Raises
    ConfigError."""
    if not table.exists() or not table.stat().st_size:
        return []
    rows = read(table)
    if others := sorted({row.device for row in rows} - {device}):
        which = others[0] or "a device that it does not say"
        raise ConfigError(f"{table} was measured on {which}, not on {device}: name another --out")
    return rows


def measure_one(one: Microkernel, device: Device, folder: Path) -> TimedMicrokernel:
    """One microkernel on a device."""
    try:
        executable = device.compile(
            _written(one, folder), _arguments(one), seconds=CALIBRATION_SECONDS
        )
        try:
            runs = executable.measure(Timings()).runs_ms
            return TimedMicrokernel(one.name, statistics.median(runs), device=device.name)
        finally:
            executable.close()
    except KernelFailure as failure:
        said = " ".join(failure.message.split())
        return TimedMicrokernel(one.name, None, f"{failure.status.value}: {said}", device.name)


def programs(target: str, folder: Path) -> dict[str, Program]:
    """Every microkernel traced, by name."""
    device = SimulatedDevice(target, start=fork)
    return {
        one.name: device.compile(_written(one, folder), _arguments(one)).program
        for one in microkernels()
    }


def write(rows: Sequence[TimedMicrokernel], path: Path) -> None:
    """As CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(("" if value is None else value for value in row) for row in rows)
    write_atomically(path, text.getvalue())


def read(path: Path) -> list[TimedMicrokernel]:
    """What `write` wrote, in any order of rows and columns. Raises ConfigError for anything else."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [
                TimedMicrokernel(
                    row[COLUMNS[0]].strip(),
                    float(row[COLUMNS[1]]) if row[COLUMNS[1]] else None,
                    row.get(COLUMNS[2]) or "",
                    row.get(COLUMNS[3]) or "",
                )
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, csv.Error) as error:
        raise ConfigError(f"{path} is no table of microkernels: {error}") from error
    if not rows:
        raise ConfigError(f"{path} is no table of microkernels: it has no rows")
    wrong = [
        row.microkernel
        for row in rows
        if row.latency_ms is not None and not 0 < row.latency_ms < math.inf
    ]
    if wrong:
        raise ConfigError(
            f"{path}: a latency is a number of ms above 0; of these it is not: {', '.join(wrong)}"
        )
    return rows


def latencies(rows: Sequence[TimedMicrokernel]) -> dict[str, float]:
    """What each microkernel took that ran; the median where it was measured several times."""
    runs: dict[str, list[float]] = {}
    for row in rows:
        if row.latency_ms is not None:
            runs.setdefault(row.microkernel, []).append(row.latency_ms)
    return {name: statistics.median(all_ms) for name, all_ms in runs.items()}


def target_of(rows: Sequence[TimedMicrokernel]) -> str | None:
    """The generation of the device that the rows name; None where they name none. Raises ConfigError
    where they name several."""
    named = {word for row in rows for word in row.device.split() if word in TARGETS}
    if len(named) > 1:
        raise ConfigError(f"microkernels of {' and '.join(sorted(named))} in one table")
    return next(iter(named), None)


def _written(one: Microkernel, folder: Path) -> str:
    path = folder / (one.name.replace(" ", "_") + ".py")
    path.write_text(one.source, encoding="utf-8")
    return str(path)


def _arguments(one: Microkernel) -> list[TensorArgument]:
    return [TensorArgument(shape, dtype) for shape, dtype in one.arguments]
