"""The generation that a kernel is written for, where nobody says it."""

from __future__ import annotations

from pathlib import Path

from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS, imported_dialect


def default_target(kernel: Path) -> str:
    """The generation that kernels of this file's dialect are written for: that which it imports, or
    what it imports of its folder."""
    try:
        text = kernel.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return DEFAULT_TARGETS["neuronxcc"]
    texts = (text, *(module.text for module in kernel_folder(kernel, text).modules.values()))
    return DEFAULT_TARGETS[next(filter(None, map(imported_dialect, texts)), "neuronxcc")]
