"""What runs find goes to a database once, whoever writes it and however often, and comes back."""

import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
import toy
from drive import run_toy
from typer.testing import CliRunner

from accelopt.agents.configuration import OFFLINE
from accelopt.cli.db import app
from accelopt.database import queries
from accelopt.database.connection import Database, Lost
from accelopt.database.export import export_to
from accelopt.database.run_rows import keep_run
from accelopt.database.schema import KERNELS, METADATA, PROBLEMS, VERDICTS
from accelopt.errors import ConfigError
from accelopt.nodes import EarlierKernel
from accelopt.search.strategy import Settings
from accelopt.store import Journal

TESTS = Path(__file__).resolve().parents[1]
SETTINGS = Settings(iterations=2, beam=2, plans=2, samples=1)


def run(folder, **options):
    options = {"settings": SETTINGS, **options}
    [outcome], _ = asyncio.run(run_toy(folder, **options))
    return outcome


def counts(database):
    tables = METADATA.sorted_tables
    return {
        table.name: database.rows(sa.select(sa.func.count().label("n")).select_from(table))[0]["n"]
        for table in tables
    }


def kept_apart(folder, journals):
    """What a database of their own holds of these journals."""
    database = Database(str(folder / "apart.sqlite"))
    for journal in journals:
        keep_run(journal, database)
    return counts(database)


def fastest(database, target=""):
    return queries.best(database, "toy", target)[0]


def test_a_run_is_kept_with_steps_and_times(tmp_path):
    outcome = run(tmp_path / "run", database=str(tmp_path / "k.sqlite"))
    database = Database(str(tmp_path / "k.sqlite"))
    best = fastest(database)
    assert best.source == outcome.best.source and best.latency_ms == outcome.best.latency
    told = queries.lineage(database, best.key[:10])
    assert [step.sentence for step in told[1:]] == outcome.changes
    assert [step.method for step in told] == ["", *("divide" for _ in outcome.changes)]
    [[method]] = [{one.method for one in queries.reliefs(database)}]
    assert method == "divide"


def test_what_is_there_is_not_put_there_twice(tmp_path):
    run(tmp_path / "run", database=str(tmp_path / "k.sqlite"))
    database = Database(str(tmp_path / "k.sqlite"))
    before = counts(database)
    assert before["kernels"] > 2 and before["steps"] > 1
    keep_run(tmp_path / "run" / "journal.jsonl", database)
    run(tmp_path / "again", database=str(tmp_path / "k.sqlite"))
    assert counts(database) == before


def test_importing_afterwards_gives_what_writing_at_once_gives(tmp_path):
    run(tmp_path / "run", database=str(tmp_path / "a.sqlite"))
    imported = Database(str(tmp_path / "b.sqlite"))
    keep_run(tmp_path / "run" / "journal.jsonl", imported)
    assert counts(imported) == counts(Database(str(tmp_path / "a.sqlite")))


def test_many_writers_at_once(tmp_path):
    """Their rows overlap, and they create the tables at the same time."""
    for number in range(4):
        start = toy.start(tmp_path / f"start{number}", 100.0 - 3 * (number % 2))
        run(tmp_path / f"run{number}", starts=[start])
    place = str(tmp_path / "k.sqlite")

    def write(number):
        database = Database(place)
        for _ in range(3):
            keep_run(tmp_path / f"run{number}" / "journal.jsonl", database)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert counts(Database(place)) == kept_apart(tmp_path, tmp_path.glob("run*/journal.jsonl"))


def test_a_warm_start_begins_from_the_best_that_is_known_and_judges_it_again(tmp_path):
    place = str(tmp_path / "k.sqlite")
    first = run(tmp_path / "run", database=place, settings=SETTINGS._replace(iterations=1))
    warm = run(tmp_path / "warm", database=place, warm_start=True)
    known = next(node for node in warm.best.lineage() if isinstance(node.change, EarlierKernel))
    assert known.latency == first.best.latency and known.parent.source == first.start.source
    assert warm.best.latency < first.best.latency
    assert warm.changes[0].startswith("Begin from kernel ")
    assert warm.start.latency == first.start.latency  # what the speedup is over


def test_a_warm_start_is_the_same_when_the_run_is_continued(tmp_path):
    """The database has more by then; the run's journal says what it knew."""
    place = str(tmp_path / "k.sqlite")
    run(tmp_path / "run", database=place, settings=SETTINGS._replace(iterations=1))
    warm = run(tmp_path / "warm", database=place, warm_start=True)
    again = run(tmp_path / "warm", database=place, warm_start=True)
    assert [n.source for n in again.best.lineage()] == [n.source for n in warm.best.lineage()]


def test_a_kernel_that_no_longer_passes_is_not_begun_from(tmp_path):
    place = str(tmp_path / "k.sqlite")
    run(tmp_path / "run", database=place)
    database = Database(place)
    chosen = KERNELS.c.key == fastest(database).key
    with database.connected() as connection:
        broken = toy.kernel(1.0, "WRONG = True")
        connection.execute(sa.update(KERNELS).where(chosen).values(source=broken))
    warm = run(tmp_path / "warm", database=place, warm_start=True)
    assert not any(isinstance(node.change, EarlierKernel) for node in warm.best.lineage())


def test_another_reference_is_another_problem(tmp_path):
    place = str(tmp_path / "k.sqlite")
    run(tmp_path / "run", database=place)
    other = toy.start(tmp_path / "other")
    Path(other.task).write_text("def forward():\n    return 1\n")
    warm = run(tmp_path / "warm", database=place, warm_start=True, starts=[other])
    assert not any(isinstance(node.change, EarlierKernel) for node in warm.best.lineage())
    assert len(Database(place).rows(sa.select(PROBLEMS.c.key))) == 2


def kept_with_odd_texts(folder, database):
    """Keeps a run whose journal has a lone surrogate, NUL and NaN, which models and kernels have sent."""
    run(folder / "run")
    journal = folder / "run" / "journal.jsonl"
    entries = map(json.loads, journal.read_text().splitlines())
    [(key, value)] = [(e[1], e[2]) for e in entries if e[0] == "start"]
    value = {**value, "reference": "\ud800\0 never mind"}
    check = {"passed": True, "amount": float("nan"), "limit": float("inf"), "where": ""}
    value["evaluation"]["checks"] = [{"name": "x\0\ud800", **check}]
    with Journal(journal) as kept:
        kept.append("start", key, value)
    assert keep_run(journal, database) > 1


def test_odd_texts_and_numbers_come_through(tmp_path):
    database = Database(str(tmp_path / "k.sqlite"))
    kept_with_odd_texts(tmp_path, database)
    [problem] = database.rows(sa.select(PROBLEMS))
    assert problem["reference"].endswith("never mind") and "\0" not in problem["reference"]


def test_a_database_that_vanishes_costs_the_run_nothing(tmp_path, capsys):
    place = tmp_path / "k.sqlite"
    with_it = run(tmp_path / "run", database=str(place))
    database = Database(str(place))
    before = counts(database)
    database.close()
    place.write_bytes(b"no database at all" * 999)
    outcome = run(tmp_path / "other")  # its journal, for the import below
    assert outcome.best.source == with_it.best.source
    with pytest.raises(ConfigError, match="cannot be used"):
        Database(str(place))
    place.unlink()
    again = Database(str(place))
    keep_run(tmp_path / "run" / "journal.jsonl", again)
    assert counts(again) == before


def test_a_journal_of_an_earlier_version_is_one_sentence(tmp_path):
    run(tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if not line.startswith('["start"')]
    journal.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match="is of an earlier version"):
        keep_run(journal, Database(str(tmp_path / "k.sqlite")))


@pytest.mark.slow
def test_a_killed_run_can_be_imported_at_any_moment(tmp_path):
    """And continued: in the end the database has what the journals tell, once."""
    command = [sys.executable, str(TESTS / "loop" / "drive.py")]
    place = str(tmp_path / "k.sqlite")
    journals = []
    for number, pause in enumerate((0.5, 1.5, 2.5)):
        words = [str(tmp_path / f"run{number}"), OFFLINE, str(tmp_path / "log"), place]
        process = subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL)
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()
        journal = tmp_path / f"run{number}" / "journal.jsonl"
        if journal.exists():
            keep_run(journal, Database(place))
            journals.append(journal)
    assert subprocess.run([*command, *words], stderr=subprocess.DEVNULL).returncode == 0
    found = kept_apart(tmp_path, {*journals, tmp_path / "run2" / "journal.jsonl"})
    assert counts(Database(place)) == found and found["kernels"] > 2


def test_the_command_lists_tells_and_exports(tmp_path):
    outcome = run(tmp_path / "run")
    place, runner = str(tmp_path / "k.sqlite"), CliRunner()

    def said(*words):
        done = runner.invoke(app, [*words, "--database", place], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert "kernels" in said("import", str(tmp_path / "run"))
    listed = said("best", "toy", "--out", str(tmp_path / "best.py"))
    assert "toy_N4" in listed and "simulated" in listed
    assert (tmp_path / "best.py").read_text() == outcome.best.source
    key = fastest(Database(place)).key
    assert outcome.changes[0] in said("lineage", key[:8])
    assert "divide" in said("methods")
    said("export", str(tmp_path / "all.csv"))
    assert (tmp_path / "all.csv").read_text().count("toy_N4") > 2
    with pytest.raises(ConfigError, match="knows no correct kernel of 'nothing'"):
        runner.invoke(app, ["best", "nothing", "--database", place], catch_exceptions=False)
    with pytest.raises(ConfigError, match="name a file that ends in"):
        export_to(tmp_path / "all.txt", Database(place))


@pytest.mark.parametrize(
    "words", [["best", "toy"], ["lineage", "ab"], ["methods"], ["export", "x.csv"]]
)
def test_a_database_that_is_not_there_is_not_made_by_reading_it(tmp_path, words):
    place = tmp_path / "typo.sqlite"
    for url in (str(place), f"sqlite:///{place}"):
        with pytest.raises(ConfigError, match=f"there is no database {place}; "):
            CliRunner().invoke(app, [*words, "--database", url], catch_exceptions=False)
    assert not place.exists()


@pytest.mark.parametrize("command", ["import .", "best k", "lineage k", "methods", "export x.csv"])
def test_without_sqlalchemy_each_command_says_what_to_install(tmp_path, command):
    (tmp_path / "journal.jsonl").touch()
    program = "import sys; sys.modules['sqlalchemy'] = None; from accelopt.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "db", *command.split()],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    said = "error: sqlalchemy is not installed; install it with: pip install 'accelopt[database]'"
    assert done.stderr.strip() == said


@pytest.mark.parametrize("url", ["mysql://u@h/d", "nonsense://"])
def test_another_kind_of_database_is_refused_in_one_sentence(url):
    with pytest.raises(ConfigError, match="use sqlite:///FILE or postgresql://"):
        Database(url)


def test_migrations_make_exactly_the_tables_of_the_schema(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with Database(str(tmp_path / "k.sqlite")).connected() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []


def test_kernels_of_an_earlier_database_are_called_triton(tmp_path):
    """The language was called `flashinfer` in databases of the first version."""
    from alembic import command
    from alembic.config import Config

    from accelopt.database.connection import MIGRATIONS

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'k.sqlite'}")
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for statement in (
            "INSERT INTO problems VALUES ('p', 'p', 'p', '{}', '')",
            "INSERT INTO kernels VALUES ('a', 'p', 'flashinfer', 'a', '')",
            "INSERT INTO kernels VALUES ('b', 'p', 'nki', 'b', '')",
        ):
            connection.exec_driver_sql(statement)
    with Database(str(tmp_path / "k.sqlite")).connected() as connection:
        rows = connection.exec_driver_sql("SELECT language FROM kernels ORDER BY key").all()
    assert [row[0] for row in rows] == ["triton", "nki"]


@pytest.mark.slow
class TestPostgreSQL:
    def test_two_runs_write_at_once(self, tmp_path, postgresql):
        log = str(tmp_path / "log")
        drive = [sys.executable, str(TESTS / "loop" / "drive.py")]
        runs = [
            subprocess.Popen([*drive, str(tmp_path / f"run{n}"), "offline", log, postgresql.url()])
            for n in range(2)
        ]
        assert [process.wait(timeout=180) for process in runs] == [0, 0]
        found = counts(Database(postgresql.url()))
        assert found == kept_apart(tmp_path, tmp_path.glob("run*/journal.jsonl"))
        assert found["kernels"] > 2

    def test_a_server_that_is_killed_and_comes_back(self, tmp_path, postgresql):
        database = Database(postgresql.url())
        run(tmp_path / "run")
        journal = tmp_path / "run" / "journal.jsonl"
        keep_run(journal, database)
        before = counts(database)
        postgresql.stop()
        with pytest.raises(Lost):
            keep_run(journal, database)
        postgresql.start()
        keep_run(journal, database)
        assert counts(database) == before

    def test_a_run_outlives_its_database(self, tmp_path, postgresql):
        log, place = str(tmp_path / "log"), tmp_path / "run"
        drive = [sys.executable, str(TESTS / "loop" / "drive.py")]
        process = subprocess.Popen(
            [*drive, str(place), "offline", log, postgresql.url()],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in itertools.repeat(None, 1200):
            journal = place / "journal.jsonl"
            if journal.exists() and '["start"' in journal.read_text():
                break
            time.sleep(0.05)
        postgresql.stop()
        _, error = process.communicate(timeout=180)
        postgresql.start()
        assert process.returncode == 0 and "Traceback" not in error
        assert (place / "results.csv").exists()
        assert keep_run(place / "journal.jsonl", Database(postgresql.url())) > 2

    def test_odd_texts_and_numbers_come_through(self, tmp_path, postgresql):
        database = Database(postgresql.url())
        kept_with_odd_texts(tmp_path, database)
        assert database.rows(sa.select(VERDICTS.c.key))
