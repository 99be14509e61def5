"""kill -9 at random moments, the same call again, the same result; nothing is paid twice."""

import hashlib
import json
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import scripted_developer as scripted
from command_line import Begun
from killing import killed_until_it_ends
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
    return Begun(DRIVE, folder, url, log, warm=["agents"]), log


@pytest.mark.slow
def test_killed_at_random_moments_it_returns_the_same(tmp_path):
    with ScriptedServer(respond) as server:
        process, _ = begin(tmp_path / "whole" / "run", server.url)
        expected, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        needed = len(server.requests)
    folder, chance = tmp_path / "killed" / "run", random.Random(0)
    with ScriptedServer(respond) as server:
        found, kills = killed_until_it_ends(begin, folder, server, needed, chance, 5)
    assert kills >= 4 and found == expected
    entries = map(json.loads, (folder / "journal.jsonl").read_text().splitlines())
    judged = Counter(key for kind, key, _ in entries if kind == "evaluation")
    assert judged.most_common(1)[0][1] == 1


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
    assert (process.returncode, error) == (130, said)
