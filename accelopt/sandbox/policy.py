"""What a child process may touch and how much it may use: data, made by the caller."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from accelopt.time_limits import CHILD_SECONDS

# Where the interpreter and its libraries live; the C library's own files besides.
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom")
_INTERPRETER = (sys.prefix, sys.base_prefix, sys.exec_prefix)
PACKAGE = Path(__file__).resolve().parents[1]


def runtime_paths() -> tuple[str, ...]:
    """What Python, its installed packages and this package need to be read from."""
    return (*_SYSTEM, *_INTERPRETER, str(PACKAGE), *package_folders())


@cache
def package_folders() -> tuple[str, ...]:
    """Where this process finds installed packages outside of the interpreter's own folders (`pip
    install --target`, a PYTHONPATH, a .pth file). Such a folder holds numpy, or the metadata of what
    was installed."""
    return tuple(entry for entry in _entries() if not _own(entry) and _has_packages(entry))


def search_path() -> str:
    """What a child puts in front of its module search path: this package's folder and those of
    `package_folders` that come before the interpreter's here, joined as in PYTHONPATH. An isolated
    interpreter does not look there; what .pth files name it finds by itself, behind its own."""
    ahead = itertools.takewhile(lambda entry: not _own(entry), _entries())
    return os.pathsep.join((str(PACKAGE.parent), *filter(_has_packages, ahead)))


def _entries() -> list[str]:
    return list(dict.fromkeys(str(Path(entry).absolute()) for entry in sys.path if entry))


def _own(entry: str) -> bool:
    return any(Path(entry).is_relative_to(own) for own in _INTERPRETER)


def _has_packages(entry: str) -> bool:
    return (Path(entry) / "numpy").is_dir() or any(Path(entry).glob("*.dist-info"))


@dataclass(frozen=True)
class Policy:
    """What the child may touch. Everything not named is closed where the host can close it."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: bool = False
    processes: bool = False  # compilers and drivers start programs; a traced kernel does not
    variables: tuple[str, ...] = ()  # of the caller's environment: names, or beginnings with "_"
    confined: bool = True  # False: our own code, in a process for its memory and time alone


@dataclass(frozen=True)
class Limits:
    """How much the child may use. Sizes in bytes; time in seconds of the wall clock, but for those in
    which it was ready to run and the processors were busy; of the wall clock at most four times as many."""

    seconds: float = CHILD_SECONDS
    memory_bytes: int = 4 << 30
    address_space: bool = True  # memory counts as address space; drivers reserve far too much of it
    output_bytes: int = 16 << 20  # stdout and stderr together, before it counts as a flood
    kept_output_bytes: int = 64 << 10
    disk_bytes: int | None = 256 << 20  # of the scratch folder; None: other bounds hold
    files: int = 20_000  # files and folders in it, where its size is bounded
    result_bytes: int = 1 << 30  # of all that `run` returns, or of one answer in a conversation


@dataclass(frozen=True)
class ChildJob:
    """One call of `entry` ("module:function") with `payload`, in a child process.

    With `serves` the entry returns handlers, which answer requests until the caller is gone.
    """

    entry: str
    payload: dict[str, object]
    policy: Policy
    limits: Limits
    search_path: str = field(default_factory=search_path)
    inside: tuple[str, ...] = ()  # what already holds the child when it starts
    serves: bool = False

    def to_dict(self) -> dict[str, object]:
        """Plain data for the child's first input line."""
        return asdict(self)
