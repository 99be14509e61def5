"""The loop's events on the live board."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.budget import Ledger
from accelopt.agents.proposer import PlanDraft
from accelopt.evaluation import Case, Evaluation
from accelopt.nodes import Node
from accelopt.report.console import console
from accelopt.report.progress import Board
from accelopt.report.result_table import plain
from accelopt.script_file_columns import NO_IMPLEMENTATION
from accelopt.search.strategy import UNBOUNDED, Settings
from accelopt.stages.run import Outcome, Watcher


def board_for(cases: Sequence[Case], settings: Settings, ledger: Ledger) -> Board:
    """An empty board for `cases`."""
    rounds = settings.iterations if settings.iterations < UNBOUNDED else None
    board = Board(cases, rounds, console())
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
        if draft.change is not None:
            line.planned += 1
            line.expected += settings.samples
            board.say(
                line,
                f"iteration {iteration}, plan {line.planned}: {plain(draft.change.sentence, 90)}",
            )
        else:
            line.unplanned = draft.reason

    def sampled(case: str, iteration: int, node: Node) -> None:
        begin(case, iteration)
        line = board.lines[case]
        line.done += 1
        board.judged(case, node.key)
        line.expected = max(line.expected, line.done)
        which = f"{plain(node.change.sentence, 90)}: " if node.change else ""
        if node.latency is None:
            reason = node.evaluation.message or (node.missing and NO_IMPLEMENTATION)
            board.say(line, f"{which}failed: {plain(reason or node.evaluation.status.value, 100)}")
            return
        line.correct += 1
        better = line.best is None or node.latency < line.best
        line.best = node.latency if better else line.best
        board.say(line, f"{which}correct, {node.latency:.4g} ms{', best so far' if better else ''}")

    def measured(node: Node) -> None:
        line = board.lines[node.case.case_name]
        line.measured(node.profile)
        latency = f"baseline {line.baseline:.4g} ms" if line.baseline else "the baseline fails"
        board.say(line, latency)
        if line.baseline and node.evaluation.message:
            board.say(line, f"warning: the baseline is {node.evaluation.message}")
        if line.baseline:
            line.say("looking for faster kernels")

    def verifying(node: Node) -> None:
        line = board.lines[node.case.case_name]
        line.searched = True
        board.say(line, "the referee asks everything of the best kernel")

    def turned_down(node: Node, verdict: Evaluation) -> None:
        line = board.lines[node.case.case_name]
        board.say(line, f"it does not pass: {plain(verdict.message or verdict.status.value, 160)}")

    def reported(case: str, report: str) -> None:
        for text in report.splitlines():
            board.say(board.lines[case], text)

    def finished(outcome: Outcome) -> None:
        line = board.lines[outcome.start.case.case_name]
        why = f": {plain(line.unplanned, 120)}" if line.unplanned and not line.planned else ""
        line.finished = True
        board.say(line, f"finished{why}")

    return Watcher(planned, sampled, measured, verifying, turned_down, reported, finished)
