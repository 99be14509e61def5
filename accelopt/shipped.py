"""The folders that travel with the package: NKIBench, prompts, scripts and templates.

In a checkout they lie beside `accelopt/`; an installed package holds copies, which `setup.py` puts
into its wheel.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
INSTALLED = PACKAGE / "_shipped"


def shipped_folder() -> Path:
    """The folder that holds `NKIBench`, `prompts`, `scripts` and `templates`."""
    return INSTALLED if INSTALLED.is_dir() else PACKAGE.parent
