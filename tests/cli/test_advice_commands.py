"""`accelopt optimize --apply`, the printed `--replay` line, diffs of files with other ends of lines, and
`--machine`: as a user types them.

Evidence: what the commands print and leave; GNU patch for diffs; the referee for what is written.
"""

import json
import re
import shlex
import subprocess

import pytest
import small_problem
from command_line import accelopt as command

from accelopt.cli.optimize import replaying
from accelopt.stages.candidate_files import write_winner
from accelopt.store import read_text


def accelopt(*words, folder, status=0):
    done = command(*words, folder=folder)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def kernel(tmp_path):
    (tmp_path / "silu.py").write_text(small_problem.KERNEL)
    (tmp_path / "silu_numpy.py").write_text(small_problem.REFERENCE)
    return tmp_path


GIVEN = "silu.py", "--reference", "silu_numpy.py", "--target", "trn1"


@pytest.mark.slow
def test_advice_is_carried_out_judged_and_shown_or_said_to_be_an_edit_by_hand(kernel):
    printed = accelopt("profile", *GIVEN, folder=kernel)
    listed = re.findall(r"^ (\d)\. ([\d.]+) to ([\d.]+) ms (written|what-if)", printed, re.M)
    kinds = [kind for *_, kind in listed]
    assert "written" in kinds and "what-if" in kinds and 2 <= len(listed) <= 5
    command = re.search(r"^  \$ (accelopt optimize .* --apply) N$", printed, re.M)[1]
    words = shlex.split(command)[1:]
    number, _, after, _ = listed[kinds.index("written")]
    said = accelopt(*words, number, folder=kernel)
    assert "correct; what the referee asked" in said and "--- a/silu.py" in said
    written = f"runs/silu/silu_advice_{number}.py"
    assert f"It is in {written}." in said
    again = accelopt("profile", written, *GIVEN[1:], folder=kernel)
    assert again.startswith(f"{after} ms")
    number, _, _, _ = listed[kinds.index("what-if")]
    said = accelopt(*words, number, folder=kernel, status=1)
    assert "an edit by hand" in said and re.search(r"^ +\d+  .*nl\.", said, re.M)
    assert (kernel / "silu.py").read_text() == small_problem.KERNEL


@pytest.mark.slow
def test_the_printed_replay_line_works_as_printed(kernel):
    first = accelopt("optimize", *GIVEN, "--iterations", 1, "--out", "run", folder=kernel)
    line = first.split("without a model:\n")[1].strip().splitlines()[0]
    again = accelopt(*shlex.split(line)[1:], folder=kernel)
    table = re.search(r"silu +.*ms.*x", first)[0]
    assert table in again and "_replayed/silu" in again


@pytest.mark.parametrize("words", ["a --out=x --resume", "a --out x --replay y", "--replay=y a"])
def test_a_replay_names_its_folders_once(tmp_path, words):
    run = tmp_path / "run"
    given = ["a", "--replay", str(run), "--out", f"{run}_replayed"]
    assert replaying(words.split(), run) == given


@pytest.mark.parametrize(
    "raw",
    [b"import x\r\na = 1\r\nb = 2\r\n", b"import x\r\na = 1\nb = 2\r\n", b"import x\r\na = 1\r\nb = 2",
     b"\xef\xbb\xbfimport x\na = 1\nb = 2\n", b"import x\r\na = 1\x0c\r\nb = 2\r\n"],
)  # fmt: skip
def test_a_diff_applies_to_the_file_as_it_is(tmp_path, raw):
    """Ends of lines of Windows, mixed ones, none at the end, a byte order mark, a form feed."""
    kernel = tmp_path / "kernel.py"
    kernel.write_bytes(raw)
    start = read_text(kernel)
    write_winner(tmp_path, start.replace("b = 2", "b = 3\nc = 4"), start, kernel)
    given = (tmp_path / "best.diff").open("rb")
    subprocess.run(["patch", "--binary", "-p1"], cwd=tmp_path, stdin=given, check=True)
    assert kernel.read_bytes() == (tmp_path / "best.py").read_bytes() != raw


@pytest.mark.slow
def test_every_command_that_prints_a_time_takes_a_calibrated_machine(kernel):
    """A launch that takes 12.5 us longer than the table's is in every time."""
    constants = {"launch_ns": {"value": 30000.0, "error": 0.01}}
    (kernel / "machine.json").write_text(json.dumps({"target": "trn1", "constants": constants}))
    given = (*GIVEN[:3], "--machine", "machine.json")
    found = {}
    for way in (GIVEN, given):
        printed = accelopt("profile", *way, folder=kernel)
        explained = accelopt("explain", *way, folder=kernel)
        accelopt("timeline", *way, "-o", "trace.json", folder=kernel)
        trace = json.loads((kernel / "trace.json").read_text())["otherData"]["latency_ms"]
        served = accelopt("serve", *way, "--init", f"bench_{len(found)}", folder=kernel)
        found[way] = [
            float(printed.split()[0]),
            float(re.search(r"What it takes: ([\d.]+) ms", explained)[1]),
            round(trace, 4),
            float(re.search(r"takes ([\d.]+) ms", served)[1]),
        ]
    for before, after in zip(*found.values(), strict=True):
        assert after - before == pytest.approx(0.0125, abs=2e-4)
