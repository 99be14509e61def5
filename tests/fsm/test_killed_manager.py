"""kill -9 at random moments, the same call again, the same result; nothing is paid twice."""

import hashlib
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import scripted_developer as scripted
from scripted_server import Scripted, ScriptedServer

DRIVE = Path(__file__).with_name("drive_manager.py")


def respond(request):
    """Answers that follow from the prompt: a third of the kernels is broken, and some get mended."""
    text = json.dumps([request["messages"], request.get("temperature")])
    draw = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    extra = "BROKEN = 1" if draw % 3 == 0 else "pass"
    generated = scripted.written(20 + draw % 80, extra)
    answer = scripted.script([generated])(request)
    return Scripted(answer, seconds=0.01)


def begin(folder, url):
    log = folder.parent / "evaluated"
    command = [sys.executable, str(DRIVE), str(folder), url, str(log)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes), log


def kept(folder, kind):
    path = folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    told = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [key for found, key, _ in told if found == kind]


@pytest.mark.slow
def test_killed_at_random_moments_it_returns_the_same(tmp_path):
    chance = random.Random(0)
    with ScriptedServer(respond) as server:
        process, log = begin(tmp_path / "whole" / "run", server.url)
        expected, error = process.communicate(timeout=120)
        assert process.returncode == 0, error.decode()
        needed = len(server.requests)
        evaluated = len(log.read_text().split())
    folder, kills = tmp_path / "killed" / "run", 0
    with ScriptedServer(respond) as server:
        while True:
            asked, safe = len(server.requests), set(kept(folder, "evaluation"))
            exchanges = len(kept(folder, "exchange"))
            process, log = begin(folder, server.url)
            before = len(log.read_text().split()) if log.exists() else 0
            target = asked + chance.randint(1, needed // 4)
            deadline = time.monotonic() + 60
            while process.poll() is None and len(server.requests) < target:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            if process.poll() is None and kills < 10:
                time.sleep(chance.random() * 0.05)
                process.kill()
                kills += 1
            found, error = process.communicate(timeout=120)
            assert process.returncode in (0, -9), error.decode()
            now = log.read_text().split()[before:] if log.exists() else []
            assert not safe & set(now)
            new = len(kept(folder, "exchange")) - exchanges
            assert new <= len(server.requests) - asked
            if process.returncode == 0:
                assert new == len(server.requests) - asked
                break
    assert kills >= 4
    assert found == expected
    twice = [key for key, count in Counter(kept(folder, "evaluation")).items() if count > 1]
    assert not twice and len(set(kept(folder, "evaluation"))) <= evaluated


def test_an_interruption_is_one_sentence(tmp_path):
    """Ctrl-C while a model is being waited for: no traceback, and how to go on."""
    with ScriptedServer(lambda request: respond(request)._replace(seconds=30.0)) as server:
        process, _ = begin(tmp_path / "run", server.url)
        deadline = time.monotonic() + 60
        while not server.requests:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    said = f"\nStopped; the same call with log_dir='{tmp_path / 'run'}' continues.\n"
    assert (process.returncode, error.decode()) == (130, said)
