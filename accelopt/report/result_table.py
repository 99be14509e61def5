"""Result tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

MACHINE = " [moves:"  # where the machine-readable end of a plan begins


def names_of(problems: Mapping[str, str]) -> dict[str, str]:
    """What to call cases in a table, of which `problems` has the problem by the case's name: by their problems
    where those differ."""
    alone = len({*problems.values()}) == len(problems)
    return {name: problem if alone else name for name, problem in problems.items()}


def heading(device: str) -> str:
    """What a table of times says above it; `device` is empty where nothing was timed."""
    return f"Results on {device}" if device else "Results: no kernel was timed"


class ProblemResult(NamedTuple):
    """One problem's result. Latencies in milliseconds, fractions of the bound between 0 and 1."""

    problem: str
    baseline_ms: float | None
    best_ms: float | None
    before: float | None
    after: float | None
    changes: Sequence[str]
    place: str
    failure: str = ""
    confirmed: bool = True
    resolved: bool = True
    holds_for: str = ""
    exactness: str = ""
    depends_on: Sequence[str] = ()
    between: tuple[float, float] | None = None

    @property
    def change(self) -> str:
        """What was changed, in one line; or why nothing was."""
        said = "; ".join(plain(text).rstrip(".") for text in self.changes)
        if not said:
            return plain(self.failure) or "nothing faster was found"
        doubt = "" if self.resolved else "the timing does not tell it from the start; "
        if self.depends_on:
            doubt = f"no gain with {self.depends_on[0]}; "
        return (doubt if self.confirmed else "within noise; ") + said

    @property
    def speedup(self) -> float | None:
        """Baseline over best."""
        if self.baseline_ms is None or self.best_ms is None:
            return None
        return self.baseline_ms / self.best_ms


HEADINGS = ("problem", "before", "after", "speedup", "of bound")
PADDING = 3  # columns between and around those of a table
WIDE = 110  # columns of a terminal from which on a row has room for what was changed
ROOM = 40  # columns that this needs at least


class ResultsTable:
    """The table that ends a run, as wide as the terminal; `device` says on what times were taken.

    What was changed stands in one line: beside the numbers where there is room, below them where
    not. Numbers are never cut.
    """

    def __init__(self, rows: Sequence[ProblemResult], device: str) -> None:
        self.rows = rows
        self.device = device

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [
            [row.problem, _milliseconds(row.baseline_ms), _milliseconds(row.best_ms),
             _speedup(row), _peak(row)]
            for row in self.rows
        ]  # fmt: skip
        taken = [max(map(len, column)) for column in zip(HEADINGS, *cells, strict=True)]
        room = options.max_width - 1 - sum(taken) - PADDING * (len(taken) + 1)
        wide = options.max_width >= WIDE and room >= ROOM
        yield Text(heading(self.device), overflow="fold")
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("problem", overflow="fold")
        for name in HEADINGS[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        if wide:
            table.add_column("what was changed", no_wrap=True, overflow="ellipsis", width=room)
        for row, line in zip(self.rows, cells, strict=True):
            table.add_row(*map(Text, [*line, row.change] if wide else line))
        yield table
        for row in self.rows:
            if not wide:
                yield Text(f"  {row.problem}: {row.change}", no_wrap=True, overflow="ellipsis")
            if row.exactness:
                yield Text(f"  {row.exactness}", style="dim", overflow="fold")
            if row.place:
                shapes = f" (for {row.holds_for})" if row.holds_for else ""
                yield Text(f"  {row.place}{shapes}", style="dim", overflow="fold")
        if any(row.between and _speedup(row).endswith(")") for row in self.rows):
            words = "(a to b): what eight of ten speedups predicted so measure"
            yield Text(f"  {words}", style="dim", overflow="fold")


def plain(text: str, limit: int = 240) -> str:
    """A plan for the eye: on one line, without what is meant for machines, cut at `limit`."""
    line = " ".join(text.split(MACHINE)[0].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} ms"


def _speedup(row: ProblemResult) -> str:
    if row.speedup is None:
        return ""
    if not row.resolved and row.speedup != 1:
        return "not told apart"
    between = "" if row.between is None else f" ({row.between[0]:.2f} to {row.between[1]:.2f})"
    return f"{row.speedup:.2f}x{between}"


def _peak(row: ProblemResult) -> str:
    shares = [f"{share:.0%}" for share in (row.before, row.after) if share is not None]
    return " → ".join(shares)
