"""Result tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

MACHINE = " [moves:"  # where the machine-readable end of a plan begins


class ResultRow(NamedTuple):
    """One problem's result. Latencies in milliseconds, fractions of peak between 0 and 1."""

    problem: str
    baseline_ms: float | None
    best_ms: float | None
    before: float | None
    after: float | None
    changes: Sequence[str]
    place: str
    failure: str = ""
    confirmed: bool = True

    @property
    def speedup(self) -> float | None:
        """Baseline over best."""
        if self.baseline_ms is None or self.best_ms is None:
            return None
        return self.baseline_ms / self.best_ms


def result_table(rows: Sequence[ResultRow], device: str) -> Table:
    """The table that ends a run; `device` says on what the times were taken."""
    table = Table(title=f"Results on {device}", show_lines=True)
    for name in ("problem", "baseline", "best", "speedup", "of peak"):
        table.add_column(name, justify="left" if name == "problem" else "right", no_wrap=True)
    table.add_column("what was changed", overflow="fold")
    table.add_column("where", overflow="fold")
    for row in rows:
        cells = [
            row.problem,
            _milliseconds(row.baseline_ms),
            _milliseconds(row.best_ms),
            _speedup(row),
            _peak(row),
            "\n".join(f"{n}. {plain(text)}" for n, text in enumerate(row.changes, 1))
            or row.failure
            or "nothing faster was found",
            row.place,
        ]
        table.add_row(*map(Text, cells))  # texts of kernels are no markup
    return table


def plain(text: str, limit: int = 240) -> str:
    """A plan for the eye: on one line, without what is meant for machines, cut at `limit`."""
    line = " ".join(text.split(MACHINE)[0].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} ms"


def _speedup(row: ResultRow) -> str:
    if row.speedup is None:
        return ""
    return f"{row.speedup:.2f}x" + ("" if row.confirmed else " (within noise)")


def _peak(row: ResultRow) -> str:
    shares = [f"{share:.0%}" for share in (row.before, row.after) if share is not None]
    return " → ".join(shares)
