"""One GPU, several evaluations: correctness side by side, timing alone."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


def scratch() -> str | None:
    """Outputs pass through memory where the host has a memory file system."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def gpu_lock(device: str, *, alone: bool) -> Iterator[None]:
    """Share the device with other evaluations, or have it alone while timing.

    Everybody passes one gate in turn, so whoever waits to be alone is not overtaken for ever.
    """
    # A place that every process of the host sees, whatever its TMPDIR is.
    folder = Path(scratch() or "/tmp")
    stem = f"accelopt-{device.replace(':', '')}"
    with (folder / f"{stem}.gate").open("a") as gate, (folder / f"{stem}.lock").open("a") as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
