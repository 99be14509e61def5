"""The child's side: giving up what the host lets a process give up, in steps, without privileges."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

from accelopt.sandbox import landlock, linux_calls, seccomp
from accelopt.sandbox.policy import Limits, Policy


def enter_namespaces(policy: Policy) -> list[str]:
    """New user, process, IPC and network namespaces, as many as the host allows.

    The process namespace holds the children of this process, not the process itself. A driver looks
    itself up in /proc, so where that cannot be made to fit, it stays in the namespace it is in. Must
    be called while the process has one thread. Returns the names of what was entered.
    """
    if not linux_calls.LINUX:
        return []
    wanted = [("ipc", linux_calls.CLONE_NEWIPC)]
    if not policy.processes or _own_proc_possible():
        wanted.insert(0, ("process", linux_calls.CLONE_NEWPID))
    if not policy.network:
        wanted.append(("network", linux_calls.CLONE_NEWNET))
    try:
        _become_user()
    except OSError:
        return []
    entered = ["user"]
    for name, flag in wanted:
        with contextlib.suppress(OSError):
            linux_calls.unshare(flag)
            entered.append(name)
    return entered


def _become_user() -> None:
    """A user namespace in which this user and group are the only ones there are."""
    user, group = os.geteuid(), os.getegid()
    linux_calls.unshare(linux_calls.CLONE_NEWUSER)
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
    with contextlib.suppress(OSError):
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def own_proc() -> None:
    """For the first process of a process namespace: a /proc that shows this namespace alone."""
    linux_calls.unshare(linux_calls.CLONE_NEWNS)
    linux_calls.mount_proc()


def _own_proc_possible() -> bool:
    """Whether `own_proc` works here, by trying it in a process that ends (some hosts mask /proc)."""

    def attempt() -> None:
        _become_user()
        linux_calls.unshare(linux_calls.CLONE_NEWPID)
        if not _succeeds(own_proc):
            raise OSError

    return _succeeds(attempt)


def _succeeds(step: Callable[[], None]) -> bool:
    """Whether `step` does not fail in a process of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(OSError):
            step()
            code = 0
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def set_limits(limits: Limits) -> None:
    """Resource limits that no child of this process can raise again."""
    memory = resource.RLIMIT_AS if limits.address_space else resource.RLIMIT_DATA
    if limits.address_space or linux_calls.LINUX:
        _lower(memory, limits.memory_bytes)
    if limits.disk_bytes is not None:
        _lower(resource.RLIMIT_FSIZE, limits.disk_bytes)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, 1024)


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(which, (value, value))


def confine(policy: Policy, *, capabilities: bool = False) -> list[str]:
    """Close files, capabilities (unless they are to stay) and system calls. Returns the names of the
    steps that held."""
    if not linux_calls.LINUX:
        return []
    steps: list[tuple[str, Callable[[], object]]] = [
        ("no new privileges", lambda: linux_calls.prctl(linux_calls.PR_SET_NO_NEW_PRIVS, 1)),
        ("no capabilities", linux_calls.drop_capabilities),
        ("landlock", lambda: landlock.restrict(policy.readable, policy.writable)),
        ("seccomp", lambda: _filter_calls(policy)),
    ]
    held: list[str] = []
    for name, step in steps:
        if capabilities and name == "no capabilities":
            continue
        with contextlib.suppress(OSError):
            detail = step()
            held.append(f"{name} {detail}" if name == "landlock" else name)
    return held


def _filter_calls(policy: Policy) -> None:
    # Drivers and compilers talk to their own helpers over sockets; the network namespace is enough.
    seccomp.restrict(processes=policy.processes, sockets=policy.network or policy.processes)
