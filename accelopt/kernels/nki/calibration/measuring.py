"""Runs the microkernels on a device, keeps what they took as CSV, and reads it again."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.kernels.nki.calibration.microkernels import Microkernel, microkernels
from accelopt.kernels.nki.devices import Device, KernelFailure, TensorArgument, Timings
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.sandbox import fork
from accelopt.sim.program import Program

SECONDS = 300.0
COLUMNS = ("microkernel", "latency_ms")


class TimedMicrokernel(NamedTuple):
    """One microkernel and what it took."""

    microkernel: str
    latency_ms: float


def measure(device: Device, folder: Path) -> list[TimedMicrokernel]:
    """The median latency of every microkernel; sources are written to `folder`. One that the
    device refuses is left out."""
    found: list[TimedMicrokernel] = []
    for one in microkernels():
        try:
            executable = device.compile(_written(one, folder), _arguments(one), seconds=SECONDS)
            runs = sorted(executable.measure(Timings()).runs_ms)
            executable.close()
        except KernelFailure:
            continue
        found.append(TimedMicrokernel(one.name, runs[len(runs) // 2]))
    return found


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
        writer.writerows(rows)


def read(path: Path) -> list[TimedMicrokernel]:
    """What `write` wrote. Raises ConfigError for anything else."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [
                TimedMicrokernel(row[COLUMNS[0]], float(row[COLUMNS[1]]))
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no table of microkernels: {error}") from error


def _written(one: Microkernel, folder: Path) -> str:
    path = folder / (one.name.replace(" ", "_") + ".py")
    path.write_text(one.source, encoding="utf-8")
    return str(path)


def _arguments(one: Microkernel) -> list[TensorArgument]:
    return [TensorArgument(shape, dtype) for shape, dtype in one.arguments]
