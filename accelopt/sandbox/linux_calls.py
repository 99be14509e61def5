"""The few Linux calls that Python has no name for. Everything raises OSError where it fails."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_REC, MS_PRIVATE = 1 << 14, 1 << 18

# Landlock and capset have the same meaning everywhere, capset not the same number.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
CAPSET = {"x86_64": 126, "aarch64": 91}

# Of glibc's allocator, and what it comes to by itself: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX.
_KEEPING, _USUAL = ((-1, -1), (-4, 0)), ((-1, 1 << 26), (-3, 1 << 25), (-4, 1 << 16))

LINUX = sys.platform == "linux"
MACHINE = platform.machine()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    """`prctl(2)`."""
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc().prctl(option, *padded), "prctl")


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Inside, large memory that is freed is taken again, and afterwards given back: new pages cost about as much
    as what is computed into them. Without glibc nothing is done."""
    allocator: Any = _libc() if hasattr(_libc(), "mallopt") else None
    try:
        for option in _KEEPING if allocator else ():
            allocator.mallopt(*option)
        yield
    finally:
        for option in _USUAL if allocator else ():
            allocator.mallopt(*option)
        if allocator:
            allocator.malloc_trim(0)


def unshare(flags: int) -> None:
    """`unshare(2)`; Python has it only from 3.12 on."""
    _checked(_libc().unshare(flags), "unshare")


def mount_proc() -> None:
    """In a mount namespace of its own: the process file system of this process's PID namespace."""
    libc = _libc()
    _checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "mount")
    _checked(libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(0), None), "mount")


def syscall(number: int, *arguments: object) -> int:
    """`syscall(2)` with arguments that ctypes can pass."""
    return _checked(_libc().syscall(ctypes.c_long(number), *arguments), f"syscall {number}")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop_capabilities() -> None:
    """Give up every capability of this process, for good (capabilities(7), version 3)."""
    if MACHINE not in CAPSET:
        raise OSError(f"capset is not known on {MACHINE}")
    header = _CapabilityHeader(0x20080522, 0)
    none = (_CapabilityData * 2)()
    syscall(CAPSET[MACHINE], ctypes.byref(header), ctypes.byref(none))
