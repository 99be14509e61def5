"""What is kept on disk: files written whole or not at all, an append-only journal, run folders."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from accelopt.concurrency import Closing
from accelopt.errors import ConfigError, reason

CONFIG_FORMAT = 2  # of a run's config.json: 1 had no `format`, and not all settings of today
BEGUN = b'["start",'  # how a journal's line begins that says what a search starts from

_PART = ".part"  # ends the names of files that are being written

JsonObject = Mapping[str, object]


def write_atomically(path: Path | str, content: str | bytes) -> None:
    """Write `content` beside `path`, force it to disk, and rename it into place.

    A reader sees the old file or the new one, never a part. Missing folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, beside = tempfile.mkstemp(_PART, f".{path.name[:100]}.", path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for the owner alone; tables and logs are for everybody the umask allows.
        umask = os.umask(0)
        os.umask(umask)
        Path(beside).chmod(0o666 & ~umask)
        Path(beside).replace(path)
    except BaseException as error:
        Path(beside).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    _force_folder(path.parent)


def existing(path: Path | str) -> Path:
    """`path`. Raises ConfigError when it is not a file."""
    if not Path(path).is_file():
        raise ConfigError(f"{path} is not a file")
    return Path(path)


def read_text(path: Path | str, kind: str = "") -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises ConfigError, which names the file after `kind` ("the prompt ").
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the name
        raise ConfigError(f"cannot read {kind}{path}: {reason(error)}") from error


def read_json(path: Path | str, kind: str = "") -> Any:
    """The content of a JSON file. Raises ConfigError, as `read_text` does."""
    try:
        return json.loads(read_text(path, kind))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{kind}{path} is not JSON: {error}") from error


def write_json(path: Path | str, value: object, *, indent: int | None = 2) -> None:
    """`value` as JSON, written whole or not at all."""
    write_atomically(path, json.dumps(value, indent=indent) + "\n")


def _force_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def content_key(*parts: str | bytes) -> str:
    """A name for content: equal parts give equal keys, and parts do not run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


class Entry(NamedTuple):
    """One line of a journal: what kind of result, under which key, and the result."""

    kind: str
    key: str
    value: dict[str, object]


class Journal(Closing):
    """Results in the order they came, one JSON line each, appended and forced to disk at once.

    The last entry of a kind and key is the valid one. A line cut off by a kill is dropped when the
    file is opened for writing again. One process writes; a second one is refused.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._entries: dict[tuple[str, str], Entry] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a+b")
        _lock(self._file, self.path)
        self._load()

    def _load(self) -> None:
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            entry = _entry(line)
            if entry is not None:
                self._entries[entry.kind, entry.key] = entry
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)

    def append(self, kind: str, key: str, value: JsonObject) -> None:
        """Keep `value` under `kind` and `key`; on disk when this returns."""
        entry = Entry(kind, key, dict(value))
        line = json.dumps(entry, separators=(",", ":"), allow_nan=True) + "\n"
        self._write(line.encode())
        # What readers get is what a resumed run would get: the value after a trip through JSON.
        self._entries[kind, key] = Entry(*json.loads(line))

    def _write(self, line: bytes) -> None:
        """A whole line on disk, or none: after a part of one the next would not be read again."""
        end = self._file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file.fileno(), line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(end)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def find(self, kind: str, key: str) -> dict[str, object] | None:
        """The value kept under `kind` and `key`, or None."""
        entry = self._entries.get((kind, key))
        return None if entry is None else entry.value

    def entries(self, kind: str) -> Iterator[Entry]:
        """The valid entries of `kind`, in the order their keys first came."""
        return (entry for entry in list(self._entries.values()) if entry.kind == kind)

    def close(self) -> None:
        """Let another process write."""
        self._file.close()


def _flat(config: JsonObject, within: str = "") -> Iterator[tuple[str, object]]:
    """Settings by their names, those inside of others with dots."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value


def read_entries(path: Path | str) -> Iterator[Entry]:
    """The valid entries of a journal, which another process may be writing, in the order in which
    their keys first came. Raises ConfigError where the file cannot be read."""
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(f"cannot read the journal {path}: {reason(error)}") from error
    whole = (_entry(line) for line in lines if line.endswith(b"\n"))
    found = {(entry.kind, entry.key): entry for entry in whole if entry is not None}
    yield from found.values()


def came_to_something(journal: Path) -> bool:
    """Whether more was kept in a journal than that searches began."""
    with journal.open("rb") as lines:
        return not all(line.startswith(BEGUN) for line in lines)


def _entry(line: bytes) -> Entry | None:
    """The entry in a line; None for blocks that reached the disk out of order before a power cut, and
    for whatever else is no entry: later lines stand."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match found:
        case [str() as kind, str() as key, dict() as value]:
            return Entry(kind, key, value)
    return None


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(
            f"another process is writing {path}; wait for it, or choose another folder"
        ) from error


class RunFolder(Closing):
    """One run on disk: `journal.jsonl`, `config.json` as it was used, and files made from them."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.path / "journal.jsonl")
        for part in self.path.rglob(f".*{_PART}"):  # of a process that was killed: the lock is ours
            part.unlink(missing_ok=True)

    def save_config(self, config: JsonObject) -> None:
        """Keep the configuration; a folder made with another one is refused with the differences.

        One in which nothing was kept yet is made anew. One that an older version made, which knew fewer
        settings, is continued with those given now; one that holds settings which there are no more is
        refused.
        """
        file = self.path / "config.json"
        used = {**json.loads(json.dumps(dict(config))), "format": CONFIG_FORMAT}
        if file.exists() and came_to_something(self.journal.path):
            kept = self._kept_config(file)
            older = kept.get("format") != CONFIG_FORMAT
            before, now = dict(_flat(kept)), dict(_flat(used))
            if older and (gone := [name for name in before if name not in now]):
                raise ConfigError(
                    f"{self.path} was made by another version of AccelOpt, with settings that this one "
                    f"does not have ({', '.join(gone)}); choose another folder"
                )
            both = before.keys() & now.keys() if older else before.keys() | now.keys()
            both -= {"format"}
            if differing := sorted(n for n in both if before.get(n, ...) != now.get(n, ...)):
                raise ConfigError(
                    f"{self.path} was made with another configuration ({', '.join(differing)} "
                    "differ); use the same options to continue it, or another folder"
                )
            if not older:
                return
        write_json(file, used)

    def _kept_config(self, file: Path) -> dict[str, object]:
        try:
            kept = json.loads(read_text(file))
        except (ValueError, RecursionError):
            kept = None
        if not isinstance(kept, dict):
            raise ConfigError(
                f"{file} is damaged: it does not hold the configuration of a run; remove it to continue "
                "with the options given now, or choose another folder"
            )
        return kept

    def close(self) -> None:
        """Release the journal."""
        self.journal.close()
