"""Every command that README and docs show is run, on the kernel of the tutorial."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt.agents.scripted_server import ScriptedServer

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
# Commands that cannot be run here, and what runs them.
ELSEWHERE = {
    "make run": "tests/scripts, .ci/run",
    "make test": "this",
    "templates/complete_local/loop.sh": "tests/scripts/test_shell_loop.py",
    "python scripts/optimize_kernels.py": "tests/scripts/test_optimize_kernels.py: it needs a GPU",
    "accelopt optimize solution.json": "tests/kernels/triton and `make test-gpu`: it needs a GPU",
}
WHOLE = "--out run"  # the tutorial's own run and what continues it; others end after a round


def blocks(page, language):
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def commands():
    """Every distinct line of a shell block, without its prompt and its comment."""
    found = {}
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                command = " ".join(line.split("  #")[0].replace(".venv/bin/", "").split())
                if command and not command.startswith("#"):
                    found.setdefault(command, page.name)
    return found


def order(line):
    """A run is resumed, learned from and reported after it was made."""
    later = "--resume" in line or "--findings" in line
    return line.startswith(("accelopt report", "accelopt db")), later, line


RUN = sorted(
    (line for line in commands() if not any(line.startswith(known) for known in ELSEWHERE)),
    key=order,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tutorial's kernel and reference, a model that answers, and a run that is there to resume."""
    place = tmp_path_factory.mktemp("tutorial")
    kernel, reference = blocks(ROOT / "docs" / "tutorial.md", "python")
    (place / "kernel.py").write_text(kernel)
    (place / "reference.py").write_text(reference)
    with ScriptedServer(lambda _: "Nothing to add.") as server:
        (place / "model.json").write_text(json.dumps({"url": server.url, "model": "m"}))
        yield place


def test_all_lines_are_commands_that_we_know():
    assert len(RUN) >= 6
    assert {shlex.split(line)[0] for line in RUN} == {"accelopt"}


@pytest.mark.parametrize("line", RUN)
def test_a_command_of_the_documents(folder, line):
    words = shlex.split(line)[1:]
    if words[0] == "optimize" and "--out" not in words:  # each run has a folder of its own
        words += ["--out", f"run{abs(hash(line))}"]
    if words[0] == "optimize" and "--iterations" not in words and f"{WHOLE} " not in f"{line} ":
        words += ["--iterations", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "accelopt", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
    assert done.stdout


def test_every_room_stands_in_the_architectures_table():
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## Rooms")[2]
    rooms = set(re.findall(r"`([\w/]+?)(?:/|\.py)`", table.partition("\n\nThe import-linter")[0]))
    found = {path.stem for path in (ROOT / "accelopt").iterdir() if path.suffix in ("", ".py")}
    lacking = {name for name in found if not name.startswith("__")} - {
        r.split("/")[0] for r in rooms
    }
    assert not lacking
