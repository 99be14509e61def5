"""The folder that an agent works in: plain files by name, and nothing outside of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from accelopt.errors import ConfigError, reason
from accelopt.store import write_atomically

KERNEL, REFERENCE, NOTES, LINEAGE = "kernel.py", "reference.py", "notes.md", "lineage"
NAME = re.compile(r"(?:lineage/)?[A-Za-z0-9_][\w.-]{0,80}\.(?:py|md)")
LONGEST = 1 << 20  # bytes; no kernel and no notes are longer
FIXED = (REFERENCE, "machine.md", "calls.md", "AGENTS.md")
"""What only the bench writes."""


class BenchFolder:
    """Reads and writes files of `root` by name: `kernel.py`, `lineage/3.py`. A link is never followed.
    Raises ConfigError, with the name alone, for what is no such file."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def read(self, name: str) -> str:
        """The text of a file."""
        try:
            with self._open(name, os.O_RDONLY) as file:
                if os.fstat(file).st_size > LONGEST:
                    raise ConfigError(f"{name} is longer than {LONGEST:,} bytes")
                text = os.read(file, LONGEST + 1).decode("utf-8-sig")
                return text.replace("\r\n", "\n")  # as editors elsewhere end lines
        except UnicodeDecodeError:
            raise ConfigError(f"{name} is not UTF-8 text") from None

    def write(self, name: str, text: str) -> None:
        """Replaces a file's text, or makes it; what the bench keeps itself is refused."""
        if name in FIXED or name.startswith(LINEAGE):
            raise ConfigError(f"{name} is the bench's own: write kernel.py or another file")
        self.keep(name, text)

    def keep(self, name: str, text: str) -> None:
        """The same for the bench itself."""
        if not NAME.fullmatch(name):
            raise self._unknown(name)
        if len(text.encode()) > LONGEST:
            raise ConfigError(f"{name} would be longer than {LONGEST:,} bytes")
        path = self.root / name
        if path.parent.is_symlink() or path.is_symlink():
            raise ConfigError(f"{name} is a link, which is not followed")
        if path.exists():
            with self._open(name, os.O_RDONLY):
                pass  # it is a plain file
        write_atomically(path, text)

    def append(self, name: str, text: str) -> None:
        """Adds whole lines to a file, also where several processes do."""
        with self._open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file).st_size
            ended = not size or os.pread(file, 1, size - 1) == b"\n"
            os.write(file, ("" if ended else "\n").encode() + text.encode())

    @property
    def names(self) -> list[str]:
        """The files that tools can be asked about."""
        folders = [self.root, self.root / LINEAGE]
        found = [entry for folder in folders if folder.is_dir() for entry in os.scandir(folder)]
        names = [str(Path(entry.path).relative_to(self.root)) for entry in found
                 if entry.is_file(follow_symlinks=False)]  # fmt: skip
        return sorted(name for name in names if NAME.fullmatch(name))

    @contextlib.contextmanager
    def _open(self, name: str, flags: int) -> Iterator[int]:
        """A plain file of the folder; each part of its path is opened without following a link."""
        if not NAME.fullmatch(name):
            raise self._unknown(name)
        *folder, last = name.split("/")
        try:
            place = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            for part in folder:
                within = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
                os.close(place)
                place = within
            try:
                file = os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=place)
            finally:
                os.close(place)
        except FileNotFoundError:
            if flags == os.O_RDONLY:
                raise ConfigError(
                    f"there is no {name}; there are {', '.join(self.names)}"
                ) from None
            raise
        except OSError as error:
            raise ConfigError(f"{name} cannot be used: {reason(error)}") from None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise ConfigError(f"{name} is no plain file of this folder alone")
            yield file
        finally:
            os.close(file)

    def _unknown(self, name: str) -> ConfigError:
        return ConfigError(
            f"{name[:80]!r} is no file of this folder, whose files end in .py or .md: it has "
            f"{', '.join(self.names)}"
        )
