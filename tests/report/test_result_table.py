"""What people see: the final table and the live board, whatever kernels and errors hold."""

import io

import pytest
import toy
from rich.console import Console

from accelopt.agents.budget import Ledger, Spending
from accelopt.report.progress import Board
from accelopt.report.result_table import ResultsTable, plain
from accelopt.report.story import ProblemResult
from accelopt.search.strategy import UNBOUNDED, Settings
from accelopt.stages.live_board import board_for


def shown(thing, width=160):
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    return console.file.getvalue()


ROWS = [
    ProblemResult(
        name="matmul_K5120_M4096_N12288", baseline=39.28, best=26.19, before=0.55, after=0.83,
        changes=('Hoist [x]. [moves: {"steps": []}]', "Widen.", "and so on " * 30),
    ),
    ProblemResult(name="b", baseline=2.0, best=1.99, changes=("Split.",), confirmed=False),
    ProblemResult(name="e", baseline=2.0, best=2.0, resolved=False),
    ProblemResult(name="f", baseline=2.0, best=1.95, changes=("Tile.",), resolved=False, between=(0.9, 1.2)),
    ProblemResult(name="g", baseline=4.0, best=2.0, changes=("Keep.",), exactness="0.5 ulps from exact"),
    ProblemResult(name="d", baseline=2.0, best=1.5, changes=("Fuse.",), depends_on=("loops left apart",),
              between=(0.77, 2.31)),
    ProblemResult(name="c", failure="wrong [/numbers]"),
]  # fmt: skip
PLACES = ["runs/first/matmul/best.py", "b.py", "e.py", "f.py", "g.py", "d.py", ""]


@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_final_table_names_device_gain_and_changes(width):
    text = shown(ResultsTable(ROWS, "the simulated trn1 NeuronCore", PLACES), width)
    for wanted in (
        "the simulated trn1 NeuronCore",
        "39.28 ms",
        "1.50x",
        "55% → 83%",
        "Hoist [x]; Widen",
        "within noise; Split",
        "no gain with loops left apart; Fuse",
        "wrong [/numbers]",
        "nothing faster was found",
        "runs/first/matmul/best.py",
        "1.33x (0.77 to 2.31)",
        "eight of ten speedups predicted so measure",
        "not told apart",
        "0.5 ulps from exact",
    ):
        assert wanted in text, wanted
    assert "steps" not in text
    assert "1.03x" not in text and "(0.90 to 1.20)" not in text  # a gain that may be none
    assert max(map(len, text.splitlines())) <= width


def test_plans_are_cut_for_the_eye():
    assert plain("one\n two  three") == "one two three"
    assert len(plain("x" * 1000, 50)) == 50


def test_the_board_shows_progress_and_money(tmp_path):
    console = Console(file=io.StringIO(), width=150)
    board = Board([toy.start(tmp_path)], 2, console)
    board.spent = Spending(calls=3, money=1.5)
    line = board.lines["toy_N4"]
    line.iteration, line.expected, line.done, line.correct = 1, 4, 2, 1
    line.baseline, line.best = 10.0, 5.0
    board.say(line, "error [/red] in [bold]")
    text = shown(board)
    header, row = (line.split("  ") for line in text.splitlines()[:2])
    cells = dict(zip(*([cell.strip() for cell in line if cell.strip()] for line in (header, row))))
    assert (cells["judged"], cells["correct"], cells["in flight"]) == ("2", "1", "2")
    assert (cells["best so far"], cells["speedup"], cells["round"]) == ("5 ms", "2.00x", "1 of 2")
    assert "3 model calls, $1.50" in text
    assert "error [/red] in [bold]" in text
    assert "toy: error [/red] in [bold]" in console.file.getvalue()


def test_rounds_whose_number_is_not_set_are_counted_alone(tmp_path):
    settings = Settings(iterations=UNBOUNDED)
    board = board_for([toy.start(tmp_path)], settings, Ledger())
    board.lines["toy_N4"].iteration = 3
    row = shown(board).splitlines()[1].split()
    assert row[1] == "3"
    assert " of " not in shown(board)


def test_the_board_tells_what_is_left(tmp_path):
    board = Board([toy.start(tmp_path)], 4, Console(file=io.StringIO(), width=150))
    board.started -= 100
    line = board.lines["toy_N4"]
    assert " more" not in shown(board)
    line.iteration, line.expected, line.done = 2, 8, 8
    assert "at most about 100 s more" in shown(board)
    line.finished = True
    assert " more" not in shown(board)
