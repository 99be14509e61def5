"""Result tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from accelopt.report.story import ProblemResult

MACHINE = " [moves:"  # where the machine-readable end of a plan begins


def names_of(problems: Mapping[str, str]) -> dict[str, str]:
    """What to call cases in a table, of which `problems` has the problem by the case's name: by their problems
    where those differ."""
    alone = len({*problems.values()}) == len(problems)
    return {name: problem if alone else name for name, problem in problems.items()}


def heading(device: str) -> str:
    """What a table of times says above it; `device` is empty where nothing was timed."""
    return f"Results on {device}" if device else "Results: no kernel was timed"


SHAPES = {"any": "any shapes that were tried", "these shapes": "these shapes"}


HEADINGS = ("problem", "before", "after", "speedup", "of bound")
PADDING = 3  # columns between and around those of a table
WIDE = 110  # columns of a terminal from which on a row has room for what was changed
ROOM = 40  # columns that this needs at least


class ResultsTable:
    """The table that ends a run, as wide as the terminal; `device` says on what times were taken.

    What was changed stands in one line: beside the numbers where there is room, below them where
    not. Numbers are never cut.
    """

    def __init__(self, rows: Sequence[ProblemResult], device: str, places: Sequence[str]) -> None:
        self.rows = rows
        self.device = device
        self.places = places  # of the best kernels

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [
            [row.name, _milliseconds(row.baseline), _milliseconds(row.best), _speedup(row), _peak(row)]
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
            table.add_row(*map(Text, [*line, _change(row)] if wide else line))
        yield table
        for row, place in zip(self.rows, self.places, strict=True):
            if not wide:
                yield Text(f"  {row.name}: {_change(row)}", no_wrap=True, overflow="ellipsis")
            for said in filter(None, (row.beside, row.exactness)):
                yield Text(f"  {said}", style="dim", overflow="fold")
            if place:
                held = "; ".join(filter(None, (SHAPES.get(row.holds_for), *row.elsewhere)))
                shapes = f" (for {held})" if held else ""
                yield Text(f"  {place}{shapes}", style="dim", overflow="fold")
        if any(row.between and _speedup(row).endswith(")") for row in self.rows):
            words = "(a to b): what eight of ten speedups predicted so measure"
            yield Text(f"  {words}", style="dim", overflow="fold")


def plain(text: str, limit: int = 240) -> str:
    """A plan for the eye: on one line, without what is meant for machines, cut at `limit`."""
    line = " ".join(text.split(MACHINE)[0].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _change(row: ProblemResult) -> str:
    """What was changed, in one line; or why nothing was."""
    said = "; ".join(plain(text).rstrip(".") for text in row.changes)
    if not said:
        return plain(row.failure) or "nothing faster was found"
    doubt = "" if row.resolved else "the timing does not tell it from the start; "
    if row.depends_on:
        doubt = f"no gain with {row.depends_on[0]}; "
    return (doubt if row.confirmed else "within noise; ") + said


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
