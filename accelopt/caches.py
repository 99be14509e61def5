"""What holds for every run of this user, kept between them: the folder, its secret, and a shelf of
results."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import platformdirs
from pydantic import TypeAdapter, ValidationError

from accelopt.errors import ConfigError
from accelopt.store import content_key
from accelopt.time_limits import SHELF_SECONDS

LIMIT_FILE = "limit"
DEFAULT_LIMIT = 8 << 30  # what one large problem needs, with room

R = TypeVar("R")

_COMPUTES_WITH = ("numpy", "ml_dtypes")


def default_cache() -> Path:
    """Where reusable work is kept between runs, for this user: where the platform keeps caches (on
    Linux `$XDG_CACHE_HOME` or `~/.cache`), or a temporary folder where nothing can be written."""
    try:
        folder = platformdirs.user_cache_path("accelopt", appauthor=False)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        folder = Path(tempfile.gettempdir()) / f"accelopt-cache-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def cache_limit(folder: Path | str) -> int:
    """Bytes that trials may take in a cache folder: what `accelopt cache --limit` set, or 8 GiB."""
    try:
        limit = int((Path(folder) / LIMIT_FILE).read_text())
    except (OSError, ValueError):
        return DEFAULT_LIMIT
    return limit if limit >= 0 else DEFAULT_LIMIT


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else on this host is within `locked` of that file meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def secret_of(folder: Path) -> str:
    """What only those know who can read `folder`, made when it is first asked for: the hidden inputs
    of a cache's trials follow from it."""
    file = folder / "secret"
    with locked(folder / ".secret.lock"):
        if not file.is_file():
            _keep_secret(file, secrets.token_hex(32))
    return file.read_text()


def cache_with(secret: str, cache: Path) -> Path:
    """`cache`, or the folder within for somebody else's secret: what is drawn there is what is drawn
    in the cache that the secret came from."""
    guest = cache / "guests" / content_key(secret)
    for home in (cache, guest):
        folder = trials_folder(home)
        with locked(folder / ".secret.lock"):
            if not (folder / "secret").is_file():
                _keep_secret(folder / "secret", secret)
        if secret_of(folder) == secret:
            return home
    raise ConfigError(f"{guest} holds another cache's secret; remove it")


def trials_folder(cache: Path | str) -> Path:
    """Where a cache folder keeps the inputs that kernels are tried on."""
    return Path(cache) / "trials"


def _keep_secret(file: Path, secret: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as stream:
        stream.write(secret)


@cache
def package_key() -> str:
    """A name for the text of this package, and for the versions of what it computes with: whatever is
    kept under it was made by exactly this code. Another version, another key, and a file that moves
    is another version."""
    root = Path(__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".json"))
    texts = (part for path in files for part in (str(path.relative_to(root)), path.read_bytes()))
    return content_key(sys.version, *map(version, _COMPUTES_WITH), *texts)


class VerdictCache:
    """Results that hold for every run of this user, by kind and key: a database in a cache folder.

    What cannot be read or written, or is not what was written, is not there: no run depends on it. Beyond `most` results those
    put there first go. Results with one `context` are none with another.
    """

    def __init__(self, folder: Path | str, most: int = 20_000, context: str = "") -> None:
        self.path = Path(folder) / "shelf.sqlite"
        self.most = most
        self.context = context

    def find(self, kind: str, key: str) -> object:
        """The value under `kind` and `key`, or None."""
        with contextlib.suppress(sqlite3.Error, OSError, ValueError), self._open() as database:
            query = "SELECT value FROM results WHERE kind = ? AND key = ?"
            row = database.execute(query, (kind, self.context + key)).fetchone()
            checksum, _, text = ("" if row is None else str(row[0])).partition(" ")
            return json.loads(text) if checksum == content_key(text) else None
        return None

    def find_row(self, kind: str, key: str, form: type[R]) -> R | None:
        """The record of that form under `kind` and `key`; None also for one of another schema."""
        with contextlib.suppress(ValidationError):
            return TypeAdapter(form).validate_python(self.find(kind, key))
        return None

    def put_row(self, kind: str, key: str, form: type[R], row: R) -> None:
        """Keep a record for `find_row`."""
        self.put(kind, key, TypeAdapter(form).dump_python(row, mode="json"))

    def put(self, kind: str, key: str, value: object) -> None:
        """Keep `value`, which must be plain JSON, under `kind` and `key`."""
        text = json.dumps(value)
        with contextlib.suppress(sqlite3.Error, OSError), self._open() as database:
            database.execute(
                "INSERT OR REPLACE INTO results (kind, key, value) VALUES (?, ?, ?)",
                (kind, self.context + key, f"{content_key(text)} {text}"),
            )
            last = "(SELECT max(rowid) FROM results)"
            database.execute(f"DELETE FROM results WHERE rowid <= {last} - ?", (self.most,))

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction; a connection of its own, for any thread."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.closing(sqlite3.connect(self.path, timeout=SHELF_SECONDS)) as database,
            database,
        ):
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            columns = "kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)"
            database.execute(f"CREATE TABLE IF NOT EXISTS results ({columns})")
            yield database
