"""Landlock: a process gives up the file system but for the paths it names (kernel 5.13, landlock(7))."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from accelopt.sandbox import linux_calls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIRECTORY
# What may be granted on a file; the other rights concern the entries of a folder.
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE

_RULE_PATH_BENEATH = 1
_VERSION = 1
_TCP = 0b11  # bind and connect
_SCOPED = 0b11  # abstract UNIX sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """The ABI version of the running kernel; raises OSError where there is no Landlock."""
    return linux_calls.syscall(
        linux_calls.LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)
    )


def _file_rights(abi: int) -> int:
    """Every file-system right that version `abi` knows."""
    count = 13 + (abi >= 2) + (abi >= 3) + (abi >= 5)
    return (1 << count) - 1


def restrict(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Leave this process and its children only these paths, and no TCP where the kernel knows how.

    Paths that do not exist are skipped. Returns the ABI version. Needs no_new_privs.
    """
    abi = version()
    everything = _file_rights(abi)
    attributes = _Ruleset(
        files=everything,
        network=_TCP if abi >= 4 else 0,
        scoped=_SCOPED if abi >= 6 else 0,
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = linux_calls.syscall(
        linux_calls.LANDLOCK_CREATE_RULESET,
        ctypes.byref(attributes),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
    )
    try:
        for path in readable:
            _allow(ruleset, path, _READ & everything)
        for path in writable:
            _allow(ruleset, path, everything)
        linux_calls.syscall(
            linux_calls.LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)
        )
    finally:
        os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112  (the path may be given as a plain string only)
            rights &= _ON_FILES
        rule = _PathBeneath(allowed=rights, folder=handle)
        linux_calls.syscall(
            linux_calls.LANDLOCK_ADD_RULE,
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            ctypes.byref(rule),
            ctypes.c_uint32(0),
        )
    finally:
        os.close(handle)
