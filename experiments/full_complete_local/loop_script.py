"""The loop script of one problem: a template of ours called with its fifteen arguments."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from accelopt.kernels.nki.benchmark import relative_tolerance

SETTINGS = {
    "ITERS": 15,
    "BREADTH": 12,
    "TOPK_CANDIDATES": 6,
    "NUM_SAMPLES": 2,
    "MAX_THRESHOLD": 1.04,
    "MIN_THRESHOLD": 1.15,
    "TOPK": 8,
    "EXP_N": 16,
}
TEMPLATES = Path(__file__).resolve().parents[2] / "templates" / "complete_local"


def loop_script(template: str, first: Sequence[object], org_name: str, service: str) -> str:
    """`template` with the arguments `first`, then tolerance, organisation and SETTINGS."""
    arguments = [*first, relative_tolerance(service), org_name, *SETTINGS.values()]
    command = shlex.join([str(TEMPLATES / template), *map(str, arguments)])
    return f"#!/usr/bin/env bash\nset -euo pipefail\nexec {command}\n"
