"""Live progress of a run: one line a problem, and what the models cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from accelopt.evaluation import Case, Profile
from accelopt.report.result_table import names_of

LONG = 5.0  # seconds without a word
SILENT = 15.0  # seconds without a word after which there is one where nothing is redrawn
LEAST_SHARE = 0.05  # of a run, from which on the rest can be told


class SpentSoFar(Protocol):
    """What of a ledger is shown."""

    calls: int
    money: float


class ProblemLine:
    """The state of one problem."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.iteration = 0
        self.planned = 0
        self.unplanned = ""  # why the last planner that was asked had no plan
        self.expected = 0
        self.done = 0
        self.correct = 0
        self.baseline: float | None = None
        self.best: float | None = None
        self.searched = False  # no further round comes
        self.finished = False
        self.say("measuring the baseline")

    def say(self, sentence: str) -> None:
        """What is being done, or was done last."""
        self.said, self.since = sentence, time.monotonic()
        self.reminded = self.since

    @property
    def note(self) -> str:
        """What was said last, with the seconds since then while more is to come."""
        seconds = time.monotonic() - self.since
        return self.said if self.finished or seconds < LONG else f"{self.said}, {seconds:.0f} s"

    def share(self, iterations: int | None) -> float:
        """How much of its rounds is done, from 0 to 1; 0 where their number is not set."""
        if self.searched or self.finished:
            return 1.0
        if iterations is None:
            return 0.0
        within = self.done / self.expected if self.expected else 0.0
        return min(1.0, (max(self.iteration - 1, 0) + within) / max(iterations, 1))

    def measured(self, profile: Profile | None) -> None:
        """The baseline's own profile."""
        self.baseline = self.best = profile.latency if profile else None
        self.say("planning" if profile else "the baseline fails")

    def row(self, iterations: int | None) -> list[str]:
        """The cells of its table row."""
        of_all = "" if iterations is None else f" of {iterations}"
        best = f"{self.best:.4g} ms" if self.best else ""
        gain = f"{self.baseline / self.best:.2f}x" if self.baseline and self.best else ""
        counts = [self.done, self.correct, max(0, self.expected - self.done)]
        return [
            self.name,
            f"{self.iteration}{of_all}" if self.iteration else "",
            *(str(count) if self.expected else "" for count in counts),
            best,
            gain,
        ]


class Board:
    """The table of all lines, redrawn while a run goes on; plain sentences where no terminal is."""

    def __init__(self, cases: Sequence[Case], iterations: int | None, console: Console) -> None:
        names = names_of({case.case_name: case.problem for case in cases})
        self.lines = {name: ProblemLine(said) for name, said in names.items()}
        self.iterations = iterations
        self.console = console
        self.started = time.monotonic()
        self.spent: SpentSoFar | None = None
        self.judged_after: dict[
            str, float
        ] = {}  # seconds after the start at which a kernel was judged

    def judged(self, case: str, kernel: str) -> None:
        """The kernel of this key has its verdict on a case."""
        self.judged_after.setdefault(f"{case}/{kernel}", round(time.monotonic() - self.started, 3))

    def say(self, line: ProblemLine, sentence: str) -> None:
        """A note on one problem; printed only where nothing is redrawn."""
        line.say(sentence)
        if not self.console.is_terminal:
            self.remark(f"{line.name}: {sentence}")

    def remark(self, sentence: str) -> None:
        """A sentence on the run as a whole, which stays on the screen."""
        self.console.out(sentence, highlight=False)

    async def remind(self) -> None:
        """Says from time to time what is still under way, where nothing is redrawn; never ends."""
        while True:
            await asyncio.sleep(SILENT / 3)
            now = time.monotonic()
            for line in self.lines.values():
                if not (line.finished or self.console.is_terminal or now < line.reminded + SILENT):
                    seconds = now - self.started
                    said = f"{line.name}: {line.note}; {seconds:.0f} s so far{self._left(seconds)}"
                    self.remark(said)
                    line.reminded = now

    def _left(self, seconds: float) -> str:
        """How long all rounds would take from here; a search ends sooner when nothing is left to try."""
        share = min((line.share(self.iterations) for line in self.lines.values()), default=1.0)
        if not LEAST_SHARE <= share < 1:
            return ""
        return f", at most about {seconds * (1 / share - 1):.0f} s more"

    def __rich__(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("problem", overflow="fold")
        for name in ("round", "judged", "correct", "in flight", "best so far", "speedup"):
            table.add_column(name, no_wrap=True, justify="left" if name == "round" else "right")
        notes: list[Text] = []
        for line in self.lines.values():
            table.add_row(*map(Text, line.row(self.iterations)))  # texts of kernels are no markup
            notes.append(Text(f"{line.name}: {line.note}", no_wrap=True, overflow="ellipsis"))
        seconds = time.monotonic() - self.started
        text = f"{seconds:.0f} s{self._left(seconds)}"
        if self.spent is not None and self.spent.calls:
            text += f", {self.spent.calls} model calls, ${self.spent.money:.2f}"
        return Group(table, "", *notes, Text(text, style="dim"))


class LiveBoard:
    """A board on a terminal for the time of a `with` block."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._live = Live(board, console=board.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Board:
        if self.board.console.is_terminal:
            self._live.start()
        return self.board

    def __exit__(self, *_: object) -> None:
        if self.board.console.is_terminal:
            self._live.stop()
