"""Folders for what children leave: measured without trust, removed whatever is in them, and known to
be nobody's when their owner is gone.

A folder is locked (flock of the folder itself) for as long as its owner lives, so whoever starts next
can tell the folders of the killed from those in use, and remove them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PREFIX = "accelopt-scratch-"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ATTEMPTS = 3


class Usage(NamedTuple):
    """What lies below a folder: bytes on disk, and files and folders."""

    bytes: int
    entries: int


@contextlib.contextmanager
def scratch_folder(base: Path | str | None = None) -> Iterator[Path]:
    """A fresh folder below `base` (the user's temporary folder), removed at the end whatever is in it.

    Raises OSError, which names `base`, where none can be made.
    """
    folder, handle = _locked_folder(str(base or tempfile.gettempdir()))
    try:
        yield folder
    finally:
        remove(folder)
        os.close(handle)


def _locked_folder(base: str) -> tuple[Path, int]:
    while True:
        try:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        except OSError as error:
            raise OSError(error.errno, error.strerror, base) from error
        handle = _lock(folder, fcntl.LOCK_EX)
        if handle is not None:
            return folder, handle
        if folder.exists():  # else somebody who was sweeping took it in between
            folder.rmdir()
            raise OSError(errno.EMFILE, "a folder cannot be locked: no file can be opened", base)


def _lock(folder: Path, how: int) -> int | None:
    """An open handle that locks the folder; None where it is gone, or locked already."""
    try:
        handle = os.open(folder, _OPEN_FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(handle, how)
        if os.path.samestat(os.fstat(handle), folder.lstat()):
            return handle
    except OSError:
        pass
    os.close(handle)
    return None


def sweep(base: Path | str | None = None) -> int:
    """Remove the folders below `base` whose owners were killed; how many there were."""
    count = 0
    for folder in Path(base or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.lstat().st_uid != os.geteuid():
                continue
            handle = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if handle is not None:
                count += remove(folder)
                os.close(handle)
    return count


def usage(folder: Path, most: Usage) -> Usage:
    """What lies below `folder`. Counting stops beyond `most`, and where a path is too long to follow
    that is more than any limit."""
    size = count = 0
    waiting = [str(folder)]
    while waiting and size <= most.bytes and count <= most.entries:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > most.entries:
                        break
                    with contextlib.suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return Usage(size, most.entries + 1)
    return Usage(size, count)


def remove(folder: Path) -> bool:
    """Remove a folder with everything in it; never raises. True when it is gone.

    Of any depth and without recursion: folders are moved to the top before they are emptied, so no
    path grows long and no more than two folders are open at a time.
    """
    for _ in range(_ATTEMPTS):  # whoever is being killed may still write
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            handle = os.open(folder, _OPEN_FOLDER)
            try:
                _empty(handle)
            finally:
                os.close(handle)
            folder.rmdir()
        if not os.path.lexists(folder):
            return True
    return False


def _empty(top: int) -> None:
    mark = secrets.token_hex(8)
    waiting = _clear(top, top, mark, 0)
    made = len(waiting)
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            handle = os.open(name, _OPEN_FOLDER, dir_fd=top)
            try:
                found = _clear(handle, top, mark, made)
            finally:
                os.close(handle)
            made += len(found)
            waiting += found
            os.rmdir(name, dir_fd=top)


def _clear(folder: int, top: int, mark: str, number: int) -> list[str]:
    """Unlink the files of `folder` and move its folders to `top`; their names there."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        with contextlib.suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            os.chmod(name, 0o700, dir_fd=folder)
            new = f"{mark}-{number + len(moved)}"
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(new)
    return moved
