"""A test of the user's own, run after the referee: it can refuse a kernel and never accept one."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from accelopt.concurrency import in_thread
from accelopt.nodes import Node
from accelopt.sandbox import Ending, Limits, Policy, run, scratch_folder
from accelopt.sandbox.drivers import NVIDIA
from accelopt.stages.run import Run
from accelopt.store import content_key, read_text
from accelopt.time_limits import TEST_SECONDS

KIND = "user_test"
TEST = "accelopt.fsm.worker.user_test:test_job"
PASSED = b"passed"
LONGEST_SAID = 2000  # characters


async def refusal(test_code: str, node: Node, run: Run) -> str:
    """Why the test refuses the kernel; empty when it passes. Asked once a run for each kernel."""
    reference = read_text(node.case.task)
    key = content_key(test_code, node.source, reference)
    kept = run.workshop.journal.find(KIND, key)
    if kept is None:
        said = await in_thread(_tested, test_code, node.source, reference)
        run.workshop.journal.append(KIND, key, {"said": said})
        return said
    return str(kept["said"])


def _tested(test_code: str, source: str, reference: str) -> str:
    with scratch_folder() as folder:
        files = {"kernel.py": source, "problem.py": reference, "test_kernel.py": test_code}
        for name, text in files.items():
            (folder / name).write_text(text)
        outcome = run(
            TEST,
            {"folder": str(folder)},
            policy=Policy(readable=(str(folder),), variables=NVIDIA.variables),
            limits=Limits(seconds=TEST_SECONDS, memory_bytes=16 << 30, address_space=False),
        )
    if outcome.completed and outcome.result == PASSED:
        return ""
    if outcome.ending is Ending.TIMEOUT:
        return f"the test did not end within {TEST_SECONDS:g} s"
    said = outcome.result.decode("utf-8", "replace") or outcome.output or "it ended early"
    return f"the test refuses the kernel: {said[-LONGEST_SAID:]}"


def test_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """The child's side: the test runs as a script beside `kernel.py` and `problem.py`."""
    sys.path.insert(0, payload["folder"])
    try:
        runpy.run_path(str(Path(payload["folder"]) / "test_kernel.py"), run_name="__main__")
    except SystemExit as ended:
        if ended.code not in (None, 0):
            channel.write(f"exit code {ended.code}".encode())
            return
    except BaseException:
        channel.write(traceback.format_exc().encode("utf-8", "replace"))
        return
    channel.write(PASSED)
