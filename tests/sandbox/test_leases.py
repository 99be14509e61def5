"""What is measured on is had by one process of the host at a time, and given back by a kill."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from accelopt.sandbox.leases import NotLeased, lease

HOLD = """
import sys, time
from pathlib import Path
from accelopt.sandbox.leases import lease
with lease("neuron-0", alone=sys.argv[2] == "alone", folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def held_elsewhere(tmp_path):
    started = []

    def hold(how="alone"):
        command = [sys.executable, "-c", HOLD, str(tmp_path), how]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"held\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_another_process_waits_and_sees_who_has_it(tmp_path, held_elsewhere):
    process = held_elsewhere()
    signed = json.loads((tmp_path / "neuron-0.lease").read_text())
    assert signed["pid"] == process.pid and signed["user"] and signed["since"].endswith("+00:00")
    with pytest.raises(NotLeased), lease("neuron-0", cancelled=lambda: True, folder=tmp_path):
        pass
    with lease("neuron-1", folder=tmp_path):  # another core is free
        pass


def test_a_kill_gives_it_back(tmp_path, held_elsewhere):
    process = held_elsewhere()
    threading.Timer(0.3, process.send_signal, (signal.SIGKILL,)).start()
    begin = time.monotonic()
    with lease("neuron-0", folder=tmp_path):
        assert time.monotonic() - begin > 0.2


def test_those_who_share_do_so_and_one_alone_waits_for_them(tmp_path, held_elsewhere):
    held_elsewhere("together")
    with lease("neuron-0", alone=False, folder=tmp_path):
        pass
    with pytest.raises(NotLeased), lease("neuron-0", cancelled=lambda: True, folder=tmp_path):
        pass
