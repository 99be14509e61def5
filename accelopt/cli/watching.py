"""The loop's events on the live board."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.budget import Ledger
from accelopt.agents.proposer import PlanDraft
from accelopt.published import Candidate, SampleResult
from accelopt.report.console import console
from accelopt.report.progress import Board
from accelopt.report.tables import plain
from accelopt.stages.iteration import Outcome, Settings, Watcher
from accelopt.stages.profile import Profiled


def board_for(starts: Sequence[Candidate], settings: Settings, ledger: Ledger) -> Board:
    """An empty board for `starts`."""
    board = Board(starts, settings.iterations, console())
    board.spent = ledger.total
    return board


def watcher_of(board: Board, settings: Settings) -> Watcher:
    """A watcher that keeps `board` up to date."""

    def begin(case: str, iteration: int) -> None:
        line = board.lines[case]
        if line.iteration != iteration:
            line.iteration, line.planned = iteration, 0

    def planned(case: str, iteration: int, draft: PlanDraft) -> None:
        begin(case, iteration)
        line = board.lines[case]
        if draft.text:
            line.planned += 1
            line.expected += settings.samples
            board.say(line, f"iteration {iteration}, plan {line.planned}: {plain(draft.text, 90)}")
        else:
            line.unplanned = draft.reason

    def sampled(case: str, iteration: int, sample: SampleResult) -> None:
        begin(case, iteration)
        line = board.lines[case]
        line.done += 1
        line.expected = max(line.expected, line.done)
        if sample.latency is None:
            reason = sample.error if isinstance(sample.error, str) else str(sample.error)
            board.say(line, f"failed: {plain(reason, 100)}")
            return
        line.correct += 1
        better = line.best is None or sample.latency < line.best
        line.best = sample.latency if better else line.best
        board.say(line, f"correct, {sample.latency:.4g} ms{', best so far' if better else ''}")

    def measured(case: str, profiled: Profiled) -> None:
        line = board.lines[case]
        line.measured(profiled.candidate.profile)
        latency = f"baseline {line.baseline:.4g} ms" if line.baseline else "the baseline fails"
        board.say(line, latency)

    def settled(outcome: Outcome) -> None:
        line = board.lines[outcome.start.case_name]
        why = f": {plain(line.unplanned, 120)}" if line.unplanned and not line.planned else ""
        board.say(line, f"finished{why}")

    return Watcher(planned, sampled, measured, settled)
