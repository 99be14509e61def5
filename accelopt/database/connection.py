"""Opening a database by its URL, at the newest version of its schema."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelopt.errors import ConfigError, MissingExtra, printable
from accelopt.time_limits import DATABASE_SECONDS

try:
    import sqlalchemy as sa
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError
    from sqlalchemy.dialects import postgresql, sqlite
except ImportError as error:
    raise MissingExtra(error.name or "sqlalchemy", "database") from None

MIGRATIONS = Path(__file__).parent / "migrations"
ONE_AT_A_TIME = 0x61636365  # "acce": the number of the advisory lock around migrations
LOST = (sa.exc.OperationalError, sa.exc.InterfaceError)
_INSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

Rows = Sequence[Mapping[str, Any]]


class Lost(Exception):
    """The database does not answer now; the same can be asked again later."""


class Database:
    """Tables behind a URL: `sqlite:///kernels.sqlite`, `postgresql+psycopg://user@host/name`.

    A path is a SQLite file. Safe for many writers: rows are put by key, each call in one transaction.
    Raises ConfigError for a URL of another kind, for a database of a newer version, and where none
    answers at first; Lost where it no longer answers.
    """

    def __init__(self, url: str) -> None:
        self.name = _without_password(url)
        try:
            self._engine = _engine(url)
            self._upgrade()
        except ModuleNotFoundError as error:
            raise MissingExtra(error.name or "psycopg", "postgresql") from None
        except (sa.exc.SQLAlchemyError, CommandError, OSError) as error:
            said = printable(str(error)).partition("\n")[0]
            raise ConfigError(f"the database {self.name} cannot be used: {said}") from None

    def put(
        self, rows: Mapping[sa.Table, Rows], *, anew: frozenset[sa.Table] = frozenset()
    ) -> None:
        """All rows or none. One that is there already stays, in tables `anew` it is replaced."""
        with self.connected() as connection:
            insert = _INSERT[connection.dialect.name]
            for table, some in rows.items():
                for row in some:
                    statement = insert(table).values(dict(row))
                    if table in anew:
                        rest = {name: value for name, value in row.items() if name != "key"}
                        put = statement.on_conflict_do_update(index_elements=["key"], set_=rest)
                    else:
                        put = statement.on_conflict_do_nothing(index_elements=["key"])
                    connection.execute(put)

    def rows(self, query: sa.Select[Any]) -> list[Mapping[str, Any]]:
        """What a query finds, as dicts by column."""
        with self.connected() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    @contextlib.contextmanager
    def connected(self) -> Iterator[sa.Connection]:
        """One transaction. Raises Lost where the database does not answer."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except LOST as error:
            raise Lost(printable(str(error.orig)).partition("\n")[0]) from error

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def _upgrade(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ONE_AT_A_TIME)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def existing(url: str) -> Database:
    """A database that is there already. Raises ConfigError, and makes no file, where none is."""
    with contextlib.suppress(sa.exc.ArgumentError):
        file = _parsed(url).database if _parsed(url).get_backend_name() == "sqlite" else None
        if file and file != ":memory:" and not Path(file).is_file():
            raise ConfigError(
                f"there is no database {file}; `accelopt db import RUNS` makes one, as does a run "
                "with --database"
            )
    return Database(url)


def _parsed(url: str) -> sa.URL:
    return sa.make_url(url if "://" in url else f"sqlite:///{Path(url).absolute()}")


def _engine(url: str) -> sa.Engine:
    parsed = _parsed(url)
    if parsed.get_backend_name() == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_pre_ping=True)
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(
            f"{_without_password(url)} names no database that is supported; use sqlite:///FILE or "
            "postgresql://USER@HOST/NAME"
        )
    engine = sa.create_engine(parsed, connect_args={"timeout": DATABASE_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def settle(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says so, below
        with contextlib.suppress(sqlite3.OperationalError):  # somebody else is doing it
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # writers wait in turn and do not deadlock

    return engine


def _without_password(url: str) -> str:
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return url
