"""Both machines as pictures, and the paths of a run's workers in its report."""

import re
import shutil

import pytest
from typer.testing import CliRunner

from accelopt.cli.app import app, command
from accelopt.fsm.diagram import MACHINES, dot, mermaid, write_diagram
from accelopt.report.page import page
from accelopt.report.story import ProblemStory, Story, WorkerStory

EDGES = sum(len(to) for _, transitions in MACHINES.values() for to in transitions.values())


def test_every_declared_edge_is_drawn():
    assert len(re.findall(r"^        \w+ --> ", mermaid(), re.M)) == EDGES
    assert len(re.findall(r'^    "\w+" -> ', dot(), re.M)) == EDGES
    assert "CheckAttempts --> RefineKernel" in mermaid() and "Finalize --> [*]" in mermaid()


def test_mermaid_is_written_where_it_is_asked_for_and_where_there_is_no_graphviz(tmp_path):
    assert write_diagram(tmp_path / "a.mmd").read_text() == mermaid()
    written = write_diagram(tmp_path / "b.svg")
    assert written.suffix == (".svg" if shutil.which("dot") else ".mmd")
    assert written.stat().st_size > 500


def test_the_command_draws_and_tells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command()
    shown = CliRunner().invoke(app, ["fsm"])
    assert "RunTests             BenchmarkNew, CheckAttempts" in shown.output
    drawn = CliRunner().invoke(app, ["fsm", "--diagram", "--out", "m.mmd"])
    assert drawn.exit_code == 0 and (tmp_path / "m.mmd").exists()


@pytest.mark.parametrize("count", [0, 2])
def test_a_report_shows_the_paths_of_workers(count):
    worker = WorkerStory(round=1, worker=0, against="memory (dma)", path=("RunTests", "Finalize"))
    story = Story(name="run", device="x", problems=(
        ProblemStory(name="silu", workers=(worker,) * count),
    ))  # fmt: skip
    assert page([story]).count("RunTests → Finalize") == count
