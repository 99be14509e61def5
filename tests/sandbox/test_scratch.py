"""Scratch folders: whatever is left in them goes, and nobody's folders go at the next start."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt.sandbox import Ending, Limits, Policy, run, scratch_folder, sweep
from accelopt.sandbox.scratch import Usage, remove, usage

TESTS = Path(__file__).resolve().parents[1]
MANY = Usage(1 << 40, 1 << 40)


def called(name: str, payload: dict, tmp_path: Path, **limits):
    with scratch_folder(tmp_path) as folder:
        outcome = run(
            f"tests.sandbox.misdeeds:{name}",
            payload,
            policy=Policy(readable=(str(TESTS),)),
            limits=Limits(seconds=60, **limits),
            scratch=folder,
        )
    assert list(tmp_path.iterdir()) == []
    return outcome


def test_folders_nested_beyond_any_path_are_removed(tmp_path):
    """A path has at most 4,096 characters (PATH_MAX), a folder any depth."""
    outcome = called("nested_folders", {"depth": 3000}, tmp_path)
    assert outcome.result == b"made" or outcome.ending is Ending.DISK


def test_many_files_end_the_child_and_are_removed(tmp_path):
    outcome = called("many_files", {"count": 10**7}, tmp_path, files=2000)
    assert outcome.ending is Ending.DISK


def test_links_are_removed_and_not_followed(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "to_folder").symlink_to(kept)
    (folder / "to_file").symlink_to(kept / "file")
    os.mkfifo(folder / "pipe")
    assert usage(folder, MANY).entries == 3
    assert remove(folder) and not folder.exists()
    assert (kept / "file").read_text() == "kept"


def test_what_is_not_there_is_removed_already(tmp_path):
    assert remove(tmp_path / "nothing")


def test_usage_stops_beyond_its_limit(tmp_path):
    for i in range(50):
        (tmp_path / str(i)).touch()
    assert usage(tmp_path, Usage(0, 10)).entries == 11
    assert usage(tmp_path, MANY).entries == 50


HOLDER = """
import sys, time
from accelopt.sandbox import scratch_folder
with scratch_folder(sys.argv[1]) as folder:
    (folder / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


def test_folders_of_the_killed_go_and_those_in_use_stay(tmp_path):
    started = [
        subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    killed, living = (Path(holder.stdout.readline().decode().strip()) for holder in started)
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()
    assert sweep(tmp_path) == 1
    assert not killed.exists() and (living / "file").exists()
    started[1].kill()
    started[1].wait()
    assert sweep(tmp_path) == 1 and not living.exists()
    for holder in started:
        holder.stdout.close()


def test_without_a_descriptor_there_is_no_folder_and_an_error(tmp_path):
    """It went on for ever, and made a folder each time."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(OSError, match="no file can be opened"), scratch_folder(tmp_path):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not list(tmp_path.iterdir())
