"""Tables and texts that come with the package, each beside the module that reads it."""

from __future__ import annotations

import csv
from importlib.resources import files


def text_of(package: str, name: str) -> str:
    """The text of a file of a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def rows_of(package: str, table: str) -> list[dict[str, str]]:
    """The rows of a CSV file of a package, by column."""
    return list(csv.DictReader(text_of(package, table).splitlines()))
