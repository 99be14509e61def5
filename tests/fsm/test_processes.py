"""Workers as tasks and in processes: the same result, hanging ones ended, large results whole."""

import contextlib
import os
import time
from multiprocessing import resource_tracker
from pathlib import Path

import planted_fsm
import pytest
from test_managers import manage

ISOLATIONS = pytest.mark.parametrize("isolation", ["task", "process"])


def children():
    """The processes that this one has started and that are not gone."""
    found = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended since
            found.update((task / "children").read_text().split())
    return found


@pytest.mark.slow
def test_processes_come_to_the_same_result(tmp_path):
    task = manage(tmp_path / "task")
    process = manage(tmp_path / "process", isolation="process", max_rounds=3)
    assert process == task


class Hanging(planted_fsm.Resources):
    """Every change makes a kernel that never ends."""

    async def actions(self, node, focus=""):
        return [a.with_source(a.source + "    SLEEPS = 1\n") for a in await super().actions(node)]


class Large(planted_fsm.Resources):
    """Every change makes a kernel of a mebibyte."""

    async def actions(self, node, focus=""):
        pad = "    # " + "x" * 2**20 + "\n"
        return [a.with_source(a.source + pad) for a in await super().actions(node)]


@ISOLATIONS
def test_a_hanging_worker_is_ended_at_the_deadline(tmp_path, isolation):
    resource_tracker.ensure_running()  # Python's own process beside spawned ones, which stays
    before, began = children(), time.monotonic()
    options = {"backend": "test_processes:Hanging", "isolation": isolation, "max_rounds": 1}
    found = manage(tmp_path, deadline=2.0, **options)
    assert found["success"] and found["best_time_ms"] == 100.0
    assert time.monotonic() - began < 60
    assert children() <= before
    assert "did not end within 2 s" in (tmp_path / "run" / "manager.log").read_text()


@ISOLATIONS
def test_four_large_results_arrive(tmp_path, isolation):
    options = {"backend": "test_processes:Large", "isolation": isolation, "max_rounds": 1}
    found = manage(tmp_path, deadline=600.0, **options)
    kernels = [row["kernel_code"] for row in found["top_kernels"]]
    assert sum(len(text) > 2**20 for text in kernels) >= 2
    log = (tmp_path / "run" / "manager.log").read_text()
    assert "lost" not in log and "did not end" not in log
