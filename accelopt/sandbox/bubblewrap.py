"""bubblewrap: the same namespaces by a program that may be allowed them where this process is not.

It also gives the child a file system in which nothing but the named paths exists.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from accelopt.sandbox.policy import Policy

_PROBE_SECONDS = 10.0


@functools.cache
def installed() -> str | None:
    """The path of a bubblewrap that works on this host, or None."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    probe = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(probe, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return program if done.returncode == 0 else None


def prefix(program: str, policy: Policy, folder: Path) -> list[str]:
    """The words before a command that run it under `policy`, in `folder`."""
    words = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--die-with-parent"]
    if not policy.network:
        words.append("--unshare-net")
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in policy.readable:
        if not path.startswith(("/dev/", "/proc")):
            words += ["--ro-bind-try", path, path]
    for path in policy.writable:
        if path.startswith("/proc"):
            continue
        bind = "--dev-bind-try" if path.startswith("/dev/") else "--bind-try"
        words += [bind, path, path]
    return [*words, "--chdir", str(folder), "--"]
