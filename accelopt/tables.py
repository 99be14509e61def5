"""Tables and texts that come with the package, each beside the module that reads it."""

from __future__ import annotations

import csv
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def packaged_text(path: str) -> str:
    """The text of a file of the package."""
    return (PACKAGE / path).read_text(encoding="utf-8")


def packaged_table(path: str) -> list[dict[str, str]]:
    """The rows of a CSV file of the package, by column."""
    return list(csv.DictReader(packaged_text(path).splitlines()))
