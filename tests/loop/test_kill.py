"""kill -9 at random moments, the same command again, the same end; nothing is paid twice."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
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
    command = [sys.executable, str(DRIVE), str(folder), url, str(log)]
    return subprocess.Popen(command, stderr=subprocess.PIPE), log


def journalled(folder):
    """Requests and evaluations that are safe: their lines in the journal are whole."""
    path = folder / "journal.jsonl"
    requests, evaluations = {}, set()
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if line.endswith(b"\n"):
            kind, key, value = json.loads(line)
            if kind == "exchange":
                requests[key] = name_of(value["request"])
            if kind == "evaluation":
                evaluations.add(key)
    return Counter(requests.values()), evaluations


def name_of(request):
    return json.dumps([request["messages"], request.get("temperature")], sort_keys=True)


def evaluated(log):
    return log.read_text().split() if log.exists() else []


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_random_points_the_run_ends_as_if_never_interrupted(tmp_path, seed):
    chance = random.Random(seed)
    folder = tmp_path / "whole" / "run"
    with ScriptedServer(slowly) as server:
        process, _ = begin(folder, server.url)
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error.decode()
        needed = len(server.requests)
    expected = tables(folder)

    folder = tmp_path / "killed" / "run"
    kills = 0
    with ScriptedServer(slowly) as server:
        while True:
            requests, evaluations = journalled(folder)
            asked = len(server.requests)
            process, log = begin(folder, server.url)
            before = len(evaluated(log))
            target = asked + chance.randint(1, needed // 2)
            deadline = time.monotonic() + 300
            while process.poll() is None and len(server.requests) < target:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            if process.poll() is None and kills < 4:
                process.kill()
                kills += 1
            _, error = process.communicate(timeout=300)
            assert process.returncode in (0, -9), error.decode()
            assert not set(evaluated(log)[before:]) & evaluations
            if (spending := folder / "spending.json").exists():  # behind by one answer at most
                calls = json.loads(spending.read_text())["total"]["calls"]
                assert 0 <= journalled(folder)[0].total() - calls <= 1
            made = Counter(name_of(request) for request in server.requests[asked:])
            new = journalled(folder)[0] - requests
            assert not [text[-300:] for text in new - made]
            if process.returncode == 0:
                assert made == new  # each request was one that no earlier process had answered
                break
    assert kills >= 2
    assert tables(folder) == expected
