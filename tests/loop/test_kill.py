"""kill -9 at random moments, the same command again, the same end; nothing is paid twice."""

import random
from pathlib import Path

import pytest
from command_line import Begun
from killing import killed_until_it_ends
from models import respond
from scripted_server import Scripted, ScriptedServer
from test_loop import tables

DRIVE = Path(__file__).with_name("drive.py")


def slowly(request):
    answer = respond(request)
    text = answer.text if isinstance(answer, Scripted) else answer
    return Scripted(text, seconds=0.01)


def begin(folder, url):
    log = folder.parent / f"{folder.name}.evaluated"
    return Begun(DRIVE, folder, url, log, warm=["agents"]), log


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_random_points_the_run_ends_as_if_never_interrupted(tmp_path, seed):
    whole, killed = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    with ScriptedServer(slowly) as server:
        process, _ = begin(whole, server.url)
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        needed = len(server.requests)
    with ScriptedServer(slowly) as server:
        chance = random.Random(seed)
        _, kills = killed_until_it_ends(begin, killed, server, needed, chance, 2)
    assert kills >= 2
    assert tables(killed) == tables(whole)
