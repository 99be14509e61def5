"""What people see: the final table and the live board, whatever kernels and errors hold."""

import io

import toy
from rich.console import Console

from accelopt.agents.budget import Spending
from accelopt.report.progress import Board
from accelopt.report.tables import ResultRow, plain, result_table


def shown(thing, width=160):
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    return console.file.getvalue()


def test_the_final_table_names_device_gain_and_changes():
    rows = [
        ResultRow(
            "a", 2.0, 1.0, 0.25, 0.5, ['Hoist [x]. [moves: {"steps": []}]', "Widen."], "a.py"
        ),
        ResultRow("b", 2.0, 1.99, None, None, [], "b.py", confirmed=False),
        ResultRow("c", None, None, None, None, [], "", failure="wrong [/numbers]"),
    ]
    text = shown(result_table(rows, "the simulated trn1 NeuronCore"))
    for wanted in (
        "the simulated trn1 NeuronCore",
        "2.00x",
        "25% → 50%",
        "1. Hoist [x].",
        "2. Widen.",
        "(within noise)",
        "wrong [/numbers]",
        "nothing faster was found",
    ):
        assert wanted in text, wanted
    assert "steps" not in text


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
    assert "2 done, 1 correct, 2 in flight" in text
    assert "5 ms" in text and "2.00x" in text
    assert "3 model calls, $1.50" in text
    assert "error [/red] in [bold]" in text
    assert "toy: error [/red] in [bold]" in console.file.getvalue()
