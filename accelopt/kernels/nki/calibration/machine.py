"""What a calibration found of a machine, kept as JSON, and the core with those constants."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS, Hardware, calibrated
from accelopt.kernels.nki.calibration.fit import Fit, constants
from accelopt.store import existing, write_json


def write_machine(path: Path, found: Fit) -> None:
    """Every constant that was seen, with its error as a fraction."""
    seen = {one.name: {"value": one.value, "error": one.error} for one in found.found if one.seen}
    write_json(path, {"target": found.hardware.name, "constants": seen})


class Machine(NamedTuple):
    """A generation, and the constants of one machine that differ from the table's."""

    target: str
    constants: dict[str, float]


def read_machine(path: Path) -> Machine:
    """What `write_machine` wrote. Raises ConfigError for another file."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        target = str(kept["target"])
        known = constants(TARGETS[target])
        values = {name: float(one["value"]) for name, one in kept["constants"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not what `accelopt calibrate --machine` writes") from error
    if unknown := values.keys() - set(known):
        raise ConfigError(f"{path}: {target} has no constant {', '.join(sorted(unknown))}")
    if wrong := [name for name, value in values.items() if not 0 < value < math.inf]:
        raise ConfigError(f"{path}: a constant is a number above 0; not so {', '.join(wrong)}")
    return Machine(target, values)


def core_of(path: Path) -> Hardware:
    """The core of a machine's file; what was not seen is the table's. Raises ConfigError."""
    machine = read_machine(path)
    core = calibrated(machine.target, machine.constants)
    note = f"{core.calibration}; {len(machine.constants)} constants of {path.name}"
    return replace(core, calibration=note)


def target_of(machine: Path, target: str | None) -> str:
    """The generation of a calibrated machine. Raises ConfigError where `target` is another."""
    found = read_machine(existing(machine)).target
    if target not in (None, found):
        raise ConfigError(f"--machine: {machine} is of {found}, not of {target}.")
    return found
