"""Files whole or not at all; a journal that survives being killed."""

import contextlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from accelopt.caches import VerdictCache, package_key
from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, Status
from accelopt.store import Journal, RunFolder, content_key, write_atomically, write_json


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "folder" / "table.csv"
    write_atomically(path, "first")
    reader = path.open()
    write_atomically(path, "second, longer")
    assert reader.read() == "first"
    assert path.read_text() == "second, longer"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_written_files_keep_to_the_umask(tmp_path):
    write_atomically(tmp_path / "file", "x")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def test_the_last_entry_of_a_key_counts(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append("evaluation", "a", {"latency": 2.0})
        journal.append("evaluation", "b", {"latency": 3.0})
        journal.append("evaluation", "a", {"latency": 1.0})
        assert journal.find("evaluation", "a") == {"latency": 1.0}
    with Journal(path) as journal:
        assert journal.find("evaluation", "a") == {"latency": 1.0}
        assert journal.find("exchange", "a") is None
        assert [entry.key for entry in journal.entries("evaluation")] == ["a", "b"]


def test_readers_get_what_a_resumed_run_would_get(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append("plan", "a", {"values": (1, 2)})
        assert journal.find("plan", "a") == {"values": [1, 2]}


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_line_cut_off_anywhere_is_dropped(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.append("plan", "a", {"text": "whole"})
        journal.append("plan", "b", {"text": "cut off in the middle of it"})
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(path) as journal:
        assert journal.find("plan", "a") == {"text": "whole"}
        assert journal.find("plan", "b") is None
        journal.append("plan", "c", {"text": "after"})
    with Journal(path) as journal:
        assert [entry.key for entry in journal.entries("plan")] == ["a", "c"]


@pytest.mark.parametrize(
    "line",
    ["[1, 2, 3]", '["plan", "a"]', '["plan", "a", [1]]', '{"a": 1}', "3", "[" * 9999, "null"],
)
def test_lines_of_another_shape_are_left_out(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(f'{line}\n["plan","b",{{"text":"whole"}}]\n')
    with Journal(path) as journal:
        assert [entry.key for entry in journal.entries("plan")] == ["b"]


def test_a_full_disk_keeps_the_journal_whole(tmp_path):
    """The disk is full when a file may not grow: the part that was written is taken back."""
    path = tmp_path / "journal.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(path) as journal:
        journal.append("plan", "a", {"text": "whole"})
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
        try:
            with pytest.raises(OSError) as error:
                journal.append("plan", "b", {"text": "cut off by the disk"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert error.value.filename == str(path)
        assert journal.find("plan", "b") is None
        journal.append("plan", "c", {"text": "after"})
    with Journal(path) as journal:
        assert [entry.key for entry in journal.entries("plan")] == ["a", "c"]


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"'])
def test_a_damaged_configuration_is_said_to_be_so(tmp_path, text):
    with RunFolder(tmp_path) as run:
        run.journal.append("plan", "a", {})
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match="damaged"):
            run.save_config({"beam": 2})


def test_files_that_a_kill_cut_off_go_when_the_run_continues(tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / ".x.py.abc.part").write_text("half")
    with RunFolder(tmp_path):
        assert list((tmp_path / "kernels").iterdir()) == []


def test_the_packages_text_is_its_key():
    assert package_key() == package_key() and len(package_key()) == 32


def test_two_writers_are_refused(tmp_path):
    with Journal(tmp_path / "journal.jsonl"), pytest.raises(ConfigError, match="another process"):
        Journal(tmp_path / "journal.jsonl")


def test_a_killed_writer_loses_nothing_it_reported(tmp_path):
    program = textwrap.dedent("""
        import sys
        from accelopt.store import Journal
        journal = Journal(sys.argv[1])
        i = 0
        while True:
            journal.append("n", str(i), {"i": i})
            print(i, flush=True)
            i += 1
    """)
    path = tmp_path / "journal.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    )
    reported = [int(child.stdout.readline()) for _ in range(20)]
    child.send_signal(signal.SIGKILL)
    reported += [int(line) for line in child.stdout.read().split()]
    child.wait()
    child.stdout.close()
    with Journal(path) as journal:
        kept = {entry.value["i"] for entry in journal.entries("n")}
    assert set(reported) <= kept


def test_a_run_folder_keeps_its_configuration(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        run.save_config({"beam": 9})
        run.save_config({"beam": 2, "seeds": (1, 2)})  # of the first one nothing came
        run.journal.append("plan", "a", {})
    with RunFolder(tmp_path / "run") as run:
        run.save_config({"beam": 2, "seeds": (1, 2)})
        with pytest.raises(ConfigError, match="beam"):
            run.save_config({"beam": 3, "seeds": (1, 2)})


def test_a_run_of_an_older_version_is_continued_where_it_can_be(tmp_path):
    """A configuration of before there was a `format`, from a run of an earlier version."""
    old = {"target": "trn1", "settings": {"beam": 2}}
    (tmp_path / "config.json").write_text(json.dumps(old))
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append("plan", "a", {})
    new = {"target": "trn1", "settings": {"beam": 2, "window": 4, "options": {}}}
    with RunFolder(tmp_path) as run:
        with pytest.raises(ConfigError, match=r"another configuration \(settings.beam differ\)"):
            run.save_config({**new, "settings": {"beam": 3}})
        with pytest.raises(ConfigError, match=r"another version .* \(target\); choose another"):
            run.save_config({"settings": {"beam": 2}})
        run.save_config(new)
        with pytest.raises(ConfigError, match=r"settings.window differ"):
            run.save_config({"target": "trn1", "settings": {"beam": 2}})
        run.save_config(new)


def test_a_shelf_keeps_what_was_put_there_and_lets_the_oldest_go(tmp_path):
    shelf = VerdictCache(tmp_path / "new", most=3)
    assert shelf.find("verdict", "a") is None
    for number in range(5):
        shelf.put("verdict", str(number), {"n": [number, 0.5]})
    shelf.put("verdict", "3", "again")
    again = VerdictCache(tmp_path / "new", most=3)
    found = [again.find("verdict", str(number)) for number in range(5)]
    assert found == [None, None, None, "again", {"n": [4, 0.5]}]
    assert again.find("prediction", "4") is None


def test_a_shelf_that_cannot_be_used_is_empty(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "shelf.sqlite").write_text("not a database, but long enough to be looked at" * 40)
    for shelf in (VerdictCache(tmp_path / "file" / "below"), VerdictCache(tmp_path)):
        shelf.put("verdict", "a", 1)
        assert shelf.find("verdict", "a") is None


def test_a_row_that_is_not_what_was_written_or_of_another_schema_is_not_there(tmp_path):
    shelf = VerdictCache(tmp_path)
    shelf.put("verdict", "a", {"status": "missing"})
    assert shelf.find_row("verdict", "a", Evaluation) == Evaluation(status=Status.MISSING)
    shelf.put("verdict", "b", {"status": "missing", "of": "another schema"})
    assert shelf.find_row("verdict", "b", Evaluation) is None
    with contextlib.closing(sqlite3.connect(shelf.path)) as database, database:
        database.execute("UPDATE results SET value = replace(value, 'missing', 'crash')")
    assert shelf.find("verdict", "a") is None


def test_content_keys_do_not_run_together():
    assert content_key("ab", "c") != content_key("a", "bc")
    assert content_key("a") == content_key(b"a")
