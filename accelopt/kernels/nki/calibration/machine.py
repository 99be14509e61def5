"""What a calibration found of a machine, kept as JSON, and the core with those constants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.calibration.fit import Fit, constants
from accelopt.store import write_json


def write_machine(path: Path, found: Fit) -> None:
    """Every constant that was seen, with its error as a fraction."""
    seen = {one.name: {"value": one.value, "error": one.error} for one in found.found if one.seen}
    write_json(path, {"target": found.hardware.name, "constants": seen})


def read_machine(path: Path) -> Hardware:
    """The core of a file that `write_machine` made; what was not seen is the table's. Raises
    ConfigError for another file."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        core = TARGETS[kept["target"]]
        values = {name: float(one["value"]) for name, one in kept["constants"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not what `accelopt calibrate --machine` writes") from error
    if unknown := values.keys() - set(constants(core)):
        raise ConfigError(f"{path}: {core.name} has no constant {', '.join(sorted(unknown))}")
    calibration = f"{core.calibration}; {len(values)} constants of {path.name}"
    return replace(core, calibration=calibration, **values)  # type: ignore[arg-type]
