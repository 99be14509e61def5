"""The lock of one GPU: correctness is judged side by side, timing has the device alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from accelopt.sandbox.leases import lease


def scratch() -> str | None:
    """Outputs pass through memory where the host has a memory file system."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def gpu_lock(device: str, *, alone: bool) -> Iterator[None]:
    """Share the device with other evaluations of this host, or have it alone while timing."""
    with lease(f"gpu-{device.replace(':', '')}", alone=alone):
        yield
