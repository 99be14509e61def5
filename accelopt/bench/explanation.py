"""What `explain` says, worked out in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelopt.errors import ConfigError
from accelopt.hardware import calibrated
from accelopt.kernels.nki.inspection import Briefing
from accelopt.kernels.nki.text_without_paths import placeless
from accelopt.report.explain_text import problem_text
from accelopt.report.kernel_simulation import simulate
from accelopt.time_limits import RETRACE_SECONDS

EXPLANATION = "accelopt.bench.explanation:explanation_job"


def explanation_job(payload: Mapping[str, Any]) -> Briefing:
    """The text of `accelopt explain` for the kernel that `payload` names."""
    kernel, target = Path(payload["kernel"]), payload["target"]
    core = calibrated(target, payload["constants"]) if payload["constants"] else None
    try:
        found = simulate(
            kernel, Path(payload["reference"]), target, RETRACE_SECONDS, payload["compiler"], core
        )
        text = problem_text(found.profile)
    except ConfigError as error:
        text = str(error)
    return Briefing(parts={"answer": placeless(text, kernel)})
