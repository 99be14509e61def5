"""What the accelopt command says at its ends: one sentence where input cannot be used, and its exit status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import toy
from command_line import accelopt
from small_problem import KERNEL

from accelopt.cli.run import meant_dialect
from accelopt.kernels.nki.referee.trials import TrialStore
from accelopt.stages.config import Options


@pytest.fixture
def said(files, tmp_path):
    endless = KERNEL.replace("    return result", "    while True:\n        pass")
    (tmp_path / "endless.py").write_text(endless)

    def run(*words, code=1):
        done = accelopt(*words, folder=tmp_path)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return " ".join((done.stdout + done.stderr).split())

    return run


def test_a_kernel_without_end(said):
    words = ("endless.py", "--reference", "reference.py", "--timeout", "1")
    stopped = "tracing the kernel took longer than 1 s and was at endless.py:"
    checked = said("check", *words)
    assert f"stopped: {stopped}" in checked and "--timeout" in checked
    sentence = said("profile", *words)
    assert sentence.startswith(f"error: endless.py: {stopped}")
    assert sentence.endswith(" then; --timeout gives it longer")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "check kernel.py",
            "error: the shape of the kernel's parameter x is not known: give --ref",
        ),
        ("profile kernel.py --reference reference.py --target trn9", "error: no target 'trn9'"),
        (
            "profile kernel.py --reference reference.py --compiler 2.30",
            "error: --compiler 2.30: there are 2.21 (SDK 2.21), 2.26 (SDK 2.26 to 2.28), 0.6 (nki",
        ),
        (
            "optimize kernel.py --reference reference.py --compiler 0.6",
            "error: --compiler 0.6 takes kernels of nki, and this one is of neuronxcc: ask for 2.21",
        ),
        (
            "run --dialect nki --compiler 2.26",
            "error: --compiler 2.26 takes kernels of neuronxcc, and this one is of nki: ask for",
        ),
        ("run --target trn1 --compiler 0.6", "error: --compiler 0.6 takes kernels of nki, and"),
        ("timeline nowhere.py --reference reference.py", "error: nowhere.py is not a file"),
        ("run --problems ,", "error: no problem ','; there are adamw"),
        ("optimize nowhere.py --reference nowhere.py", "error: nowhere.py is not a file"),
        ("optimize kernel.py", "error: --reference is needed"),
        (
            "optimize kernel.py --reference reference.py --resume",
            "error: there is no run to resume",
        ),
    ],
)
def test_input_that_cannot_be_used(said, words, sentence):
    assert said(*words.split()).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "dialect"),
    [({}, "nki"), ({"target": "trn3"}, "nki"), ({"target": "trn1"}, "neuronxcc"),
     ({"compiler": "2.26"}, "neuronxcc"), ({"compiler": "0.6"}, "nki")],
)  # fmt: skip
def test_run_takes_the_kernels_of_today_where_nothing_of_the_older_time_is_said(given, dialect):
    """Issue 42, point 2; evidence: SDK 2.30 and later compile no neuronxcc.nki, NKI's pages name trn2 and trn3."""
    assert meant_dialect("", Options(**given)) == dialect


def test_a_language_by_name(said, tmp_path, monkeypatch):
    """Any kernel of any language that is told: here one number, in a file without an ending."""
    monkeypatch.setenv("PYTHONPATH", str(Path(toy.__file__).parent))
    (tmp_path / "number").write_text(toy.kernel(100.0))
    words = "optimize number --reference reference.py --offline --iterations 1 --backend"
    said(*words.split(), "toy:ToyLanguage", code=0)
    assert "COST = 33.3" in (tmp_path / "runs/number/number/best.py").read_text()
    assert "there is no backend 'cobol'" in said(*words.split(), "cobol", "--out", "other")


@pytest.mark.parametrize("option", ["--rel-tol nan", "--rel-tol -1", "--max-dollars -1"])
def test_numbers_that_make_no_sense(said, option):
    words = f"optimize kernel.py --reference reference.py {option}"
    assert f"Invalid value for '{option.split()[0]}'" in said(*words.split(), code=2)


def test_a_kernel_with_a_byte_order_mark_stays_as_it_is(said, tmp_path):
    (tmp_path / "mine.py").write_bytes(b"\xef\xbb\xbf" + KERNEL.encode())
    words = "optimize mine.py --reference reference.py --iterations 0"
    assert "No change. `accelopt profile` says where the time goes;" in said(*words.split(), code=0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"# \xe9\n" + KERNEL.encode(), "mine.py: it is not UTF-8 text (byte 3)"),
        (
            KERNEL.encode() + b"1 / 0\n",
            "nothing to start from: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_kernel_to_optimize_that_cannot_be_used(said, tmp_path, text, sentence):
    (tmp_path / "mine.py").write_bytes(text)
    shown = said(*"optimize mine.py --reference reference.py --iterations 0".split())
    assert sentence in shown and "kernel.py" not in shown.partition("error: ")[2]


def test_the_cache_says_its_place_keeps_to_a_limit_and_is_cleared(tmp_path):
    def said(*words):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "caches")}
        done = accelopt("cache", *words, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    folder = tmp_path / "caches" / "accelopt"
    assert said().startswith(f"{folder}: 0 MiB")
    assert "at most 8 GiB" in said()
    (folder / "trials" / "made").mkdir(parents=True)
    (folder / "trials" / "made" / "x.npy").write_bytes(bytes(11 << 20))
    assert "11 MiB of at most 512 MiB" in said("--limit", "0.5")
    assert TrialStore(folder / "trials").max_bytes == 1 << 29
    assert "0 MiB of at most 512 MiB" in said("--clear")
    assert not (folder / "trials").exists()


def test_help_imports_no_subcommand_and_says_what_each_says_of_itself():
    """`--help` ends within half a second on an idle machine: typer and summaries read from the files."""
    helped = """
import sys
from accelopt.cli.app import command
call = command({})
print(*(name for name in sys.modules if name == "numpy" or name.startswith("accelopt.cli.")))
sys.argv[1:] = ["--help"]
call()
"""
    few, every = (
        subprocess.run(
            [sys.executable, "-c", helped.format(words)], capture_output=True, text=True, check=True
        ).stdout.partition("\n")
        for words in ('["--help"]', "")
    )
    assert few[0] == "accelopt.cli.app"
    assert "accelopt.cli.optimize" in every[0]
    assert few[2] == every[2] and "Make KERNEL faster" in few[2]
