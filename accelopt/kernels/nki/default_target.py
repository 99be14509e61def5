"""The generation that a kernel is written for, where nobody says it."""

from __future__ import annotations

from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.hardware.front_ends import wrong_front_end
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


def checked_front_end(version: str, dialect: str = "") -> str:
    """`version` of a front end. Raises ConfigError for none, or for one of another dialect."""
    if wrong := wrong_front_end(version, dialect):
        raise ConfigError(wrong)
    return version


def default_target(kernel: Path) -> str:
    """The generation that kernels of this file's dialect are written for."""
    return DEFAULT_TARGETS[dialect_of_file(kernel)]
