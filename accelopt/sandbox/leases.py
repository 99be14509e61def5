"""Cores and GPUs of one host, shared by the runs of all its users: a lock file each, with its owner.

A lock (flock) ends with whoever holds it, so a run that is killed gives back what it had.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

# The same for every process of the host, whatever its TMPDIR is.
FOLDER = Path("/tmp/accelopt-leases")
_STEP_SECONDS = 0.05


class Holder(NamedTuple):
    """Who has something alone, and since when (UTC)."""

    user: str
    pid: int
    since: str


class NotLeased(Exception):
    """Waiting was cancelled."""


@contextlib.contextmanager
def lease(
    name: str,
    *,
    alone: bool = True,
    cancelled: Callable[[], bool] | None = None,
    folder: Path = FOLDER,
) -> Iterator[None]:
    """Have `name` ("neuron-0", "gpu-0") alone, or together with others who do not need it alone.

    Everybody passes one gate in turn, so whoever waits to be alone is not overtaken for ever. Raises
    NotLeased when `cancelled` says so meanwhile; who cannot be cancelled is woken by the system at once,
    in turn, where others look again every so often.
    """
    with _opened(folder, f"{name}.gate") as gate, _opened(folder, f"{name}.lease") as held:
        _wait(gate, fcntl.LOCK_EX, cancelled)
        _wait(held, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, cancelled)
        fcntl.flock(gate, fcntl.LOCK_UN)
        if alone:
            _sign(held)
        yield


@contextlib.contextmanager
def _opened(folder: Path, name: str) -> Iterator[int]:
    """The file `name`, which any user of the host may lock and sign."""
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
    path = folder / name
    try:
        # Without O_CREAT: in a folder of everybody's, Linux refuses that for others' files.
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(made, 0o666)
            os.close(made)
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def _wait(handle: int, how: int, cancelled: Callable[[], bool] | None) -> None:
    if cancelled is None:
        fcntl.flock(handle, how)
        return
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, how | fcntl.LOCK_NB)
            return
        if cancelled():
            raise NotLeased
        time.sleep(_STEP_SECONDS)


def _sign(handle: int) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    signed = json.dumps(Holder(_user(), os.getpid(), now)._asdict())
    with contextlib.suppress(OSError):  # a full disk: who holds it is a courtesy
        os.ftruncate(handle, 0)
        os.pwrite(handle, signed.encode(), 0)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name
        return str(os.getuid())
