"""Runs the microkernels on a device, keeps what they took as CSV, and reads it again."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.kernels.nki.calibration.microkernels import Microkernel, microkernels
from accelopt.kernels.nki.devices import Device, KernelFailure, TensorArgument, Timings
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.sandbox import fork
from accelopt.sim.program import Program
from accelopt.time_limits import CALIBRATION_SECONDS

COLUMNS = ("microkernel", "latency_ms", "message")


class TimedMicrokernel(NamedTuple):
    """One microkernel and what it took; None and a message where it did not run."""

    microkernel: str
    latency_ms: float | None
    message: str = ""


def measure(device: Device, folder: Path) -> list[TimedMicrokernel]:
    """The median latency of every microkernel; sources are written to `folder`."""
    return [measure_one(one, device, folder) for one in microkernels()]


def measure_one(one: Microkernel, device: Device, folder: Path) -> TimedMicrokernel:
    """One microkernel on a device."""
    try:
        executable = device.compile(
            _written(one, folder), _arguments(one), seconds=CALIBRATION_SECONDS
        )
        try:
            return TimedMicrokernel(
                one.name, statistics.median(executable.measure(Timings()).runs_ms)
            )
        finally:
            executable.close()
    except KernelFailure as failure:
        said = " ".join(failure.message.split())
        return TimedMicrokernel(one.name, None, f"{failure.status.value}: {said}")


def programs(target: str, folder: Path) -> dict[str, Program]:
    """Every microkernel traced, by name."""
    device = SimulatedDevice(target, start=fork)
    return {
        one.name: device.compile(_written(one, folder), _arguments(one)).program
        for one in microkernels()
    }


def write(rows: list[TimedMicrokernel], path: Path) -> None:
    """As CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(("" if value is None else value for value in row) for row in rows)


def read(path: Path) -> list[TimedMicrokernel]:
    """What `write` wrote. Raises ConfigError for anything else."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                TimedMicrokernel(
                    row[COLUMNS[0]],
                    float(row[COLUMNS[1]]) if row[COLUMNS[1]] else None,
                    row.get(COLUMNS[2]) or "",
                )
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no table of microkernels: {error}") from error
    if not rows:
        raise ConfigError(f"{path} is no table of microkernels: it has no rows")
    wrong = [
        row.microkernel for row in rows if row.latency_ms is not None and not row.latency_ms > 0
    ]
    if wrong:
        raise ConfigError(f"{path}: no latency takes 0 ms or less: {', '.join(wrong)}")
    return rows


def _written(one: Microkernel, folder: Path) -> str:
    path = folder / (one.name.replace(" ", "_") + ".py")
    path.write_text(one.source, encoding="utf-8")
    return str(path)


def _arguments(one: Microkernel) -> list[TensorArgument]:
    return [TensorArgument(shape, dtype) for shape, dtype in one.arguments]
