"""The generation that a kernel is written for, where nobody says it."""

from __future__ import annotations

from pathlib import Path

from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS, Dialect, imported_dialect


def dialect_of_file(kernel: Path) -> Dialect:
    """That which a kernel's file imports, or what it imports of its folder."""
    try:
        text = kernel.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return "neuronxcc"
    texts = (text, *(module.text for module in kernel_folder(kernel, text).modules.values()))
    return next(filter(None, map(imported_dialect, texts)), "neuronxcc")


def default_target(kernel: Path) -> str:
    """The generation that kernels of this file's dialect are written for."""
    return DEFAULT_TARGETS[dialect_of_file(kernel)]
