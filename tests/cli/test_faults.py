"""Bad input, signals and kills: one sentence, the right exit status, and nothing left behind."""

import glob
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import accelopt
from small_problem import REFERENCE, benchmark

COMMAND = [sys.executable, "-c", "from accelopt.cli import main; main()"]
INTERRUPTED = """
import os, signal, sys, threading
from accelopt.cli import main
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
main()
"""


@pytest.fixture
def files(files):
    (files / "scratch").mkdir()
    return files


def environment(folder):
    return {**os.environ, "TMPDIR": str(folder / "scratch"), "XDG_CACHE_HOME": str(folder / "c")}


def said(folder, *words, code=1):
    done = accelopt(*words, folder=folder, environment=environment(folder))
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_a_name_that_leads_elsewhere_is_no_problem(tmp_path):
    folder = benchmark(tmp_path / "benchmark")
    summary = json.loads((folder / "summary.json").read_text())
    evil = dict.fromkeys(("../../evil", "nul\0", "\x1b]0;x\x07"), summary["silu"])
    (folder / "summary.json").write_text(json.dumps(evil))
    (tmp_path / "scratch").mkdir()
    words = ("run", "--problems", "all", "--benchmark", str(folder), "--out", "in/here")
    sentence = said(tmp_path, *words)
    assert "can be used" in sentence and "cannot name a folder" in sentence
    assert "\x1b" not in sentence
    assert not list(tmp_path.rglob("*evil*"))


def test_a_run_whose_every_baseline_fails_fails(tmp_path):
    folder = benchmark(tmp_path / "benchmark")
    (folder / "kernels" / "silu.py").write_text("def kernel(x):\n    return oops\n")
    (tmp_path / "scratch").mkdir()
    words = ("run", "--problems", "all", "--benchmark", str(folder), "--iterations", "0")
    assert "there is nothing to start from" in said(tmp_path, *words)


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (
            REFERENCE.replace("def forward(x):", "def forward(x):\n    import os; os._exit(0)"),
            "error: forward of the reference reference.py ended by exit code 0",
        ),
        (
            "raise ValueError('\\x1b]0;title\\x07')",
            "error: the reference reference.py cannot be loaded: ValueError: \ufffd]0;title\ufffd",
        ),
    ],
)
def test_a_reference_is_named_for_what_it_does(files, reference, sentence):
    (files / "reference.py").write_text(reference)
    assert sentence in said(files, "check", "kernel.py", "--reference", "reference.py")


@pytest.mark.parametrize("command", ["optimize", "check", "explain"])
def test_a_reference_that_is_no_option_is_told_where_it_belongs(files, command):
    found = said(files, command, "kernel.py", "reference.py", code=2)
    assert "reference.py" in found and "--reference FILE" in found.replace("│ │ ", "")


def test_workers_beyond_any_machine(files):
    words = ("optimize", "kernel.py", "--reference", "reference.py", "--workers", "1000000000")
    assert "Invalid value for '--workers'" in said(files, *words, code=2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--strategy-option", "a=b"), "the strategy beam has no option 'a'"),
        (("--strategy", "fsm", "--strategy-option", "variant=z"), "no strategy 'z'"),
        (("--strategy", "fsm", "--strategy-option", "b=many"), "b=many is no whole number"),
    ],
)
def test_an_option_that_a_strategy_does_not_have_is_refused_at_the_door(files, words, sentence):
    order = ("optimize", "kernel.py", "--reference", "reference.py", "--out", "run", *words)
    assert sentence in said(files, *order)
    assert not (files / "run").exists()


@pytest.mark.parametrize("attempt", range(2))
def test_ctrl_c_among_the_imports_is_just_an_end(attempt):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT, 1, 2), done


def begun(files, **options):
    """An optimisation whose kernel never ends, once its child is at work."""
    (files / "kernel.py").write_text("while True:\n    pass\n")
    words = ["optimize", "kernel.py", "--reference", "reference.py", "--out", "run"]
    options |= {"cwd": files, "env": environment(files), "stderr": subprocess.PIPE}
    process = subprocess.Popen([*COMMAND, *words], text=True, **options)
    until = time.monotonic() + 240
    # pathlib would raise when a folder goes while it looks.
    while not glob.glob(f"{files}/scratch/accelopt-scratch-*/accelopt-scratch-*"):  # noqa: PTH207
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_like_ctrl_c(files, number):
    def surroundings() -> None:
        signal.signal(number, signal.SIG_DFL)  # as not under nohup
        if number == signal.SIGTERM:  # as a script's background jobs ignore Ctrl-C
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = begun(files, preexec_fn=surroundings)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "continues where this one stopped" in error
    assert "Traceback" not in error
    assert list((files / "scratch").iterdir()) == []


def test_what_a_kill_leaves_goes_at_the_next_start(files):
    process = begun(files)
    process.kill()
    process.communicate()
    assert list((files / "scratch").iterdir())
    until = time.monotonic() + 120  # its children end as they notice
    while list((files / "scratch").iterdir()) and time.monotonic() < until:
        said(files, "check", "nowhere.py")
    assert list((files / "scratch").iterdir()) == []


def test_a_damaged_configuration_is_one_sentence(files):
    (files / "run").mkdir()
    damaged = '[1,2]\n{"a": 1}\n["evaluation","k",3]\n' + "[" * 9999
    (files / "run" / "journal.jsonl").write_text(damaged)
    (files / "run" / "config.json").write_text('["no object"]')
    words = ("optimize", "kernel.py", "--reference", "reference.py", "--out", "run", "--resume")
    assert "config.json is damaged" in said(files, *words)
    assert Path(files / "run" / "journal.jsonl").exists()


def test_a_run_of_which_nothing_came_is_no_earlier_run(files):
    """A reference that cannot be used is mended and tried again, with other options, in its place."""
    good = (files / "reference.py").read_text()
    (files / "reference.py").write_text("import nowhere_to_be_found\n")
    words = ("optimize", "kernel.py", "--reference", "reference.py", "--out", "run")
    assert "cannot be loaded" in said(files, *words)
    (files / "reference.py").write_text(good)
    again = said(files, *words, "--strategy", "random", "--iterations", "0", code=0)
    assert "earlier run" not in again and "another configuration" not in again


def test_a_report_that_cannot_be_written_costs_neither_table_nor_kernel(files):
    """A full disk refuses the report, the largest file and the last; a folder stands for it here."""
    (files / "run" / "report.html").mkdir(parents=True)
    words = ("optimize", "kernel.py", "--reference", "reference.py", "--out", "run")
    shown = said(files, *words, "--strategy", "random", "--iterations", "0")
    assert "report.html cannot be used" in shown and "so far in run/kernel/best.py;" in shown
    assert "Results on the simulated trn1" in shown
    assert "nki.jit" in (files / "run" / "kernel" / "best.py").read_text()
