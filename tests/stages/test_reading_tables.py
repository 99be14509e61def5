"""Tables and lists that stages read: each fault is one sentence that names the file."""

import json

import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelopt.agents.configuration import load_model_config
from accelopt.agents.prompts import read_names, read_text
from accelopt.errors import ConfigError
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.stages.exchange_journal import read_recording
from accelopt.stages.record_files import (
    read_candidates,
    read_executor_results,
    read_experiences,
    read_plans,
    write_table,
)
from accelopt.stages.roofline_standings import standings
from accelopt.store import write_atomically

HEADER = "service_name,task,kernel,problem,values,case_name,profile\n"
ROW = 'silu_ID0,silu.py,kernel.py,silu,"{""M"": 256}",silu_M256,\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; a table with the columns service_name, task, kernel, problem, values"),
        (HEADER.encode(), "holds no row below its header"),
        (HEADER.replace("kernel,", "").encode(), "has no column kernel; a table with the columns"),
        (b"definition_path,solution_path\na,b\n", "has no column workload_path"),
        ((HEADER + ROW + "a,b\n").encode(), "line 3: not 7 fields"),
        ((HEADER + ROW.replace(",\n", ",,\n")).encode(), "line 2: not 7 fields"),
        ((HEADER + ROW).encode() + b"\xe9", "it is not UTF-8 text"),
        ((HEADER + ROW.replace("}", "")).encode(), "silu_ID0 cannot be read: Expecting"),
        ((HEADER + ROW.replace(",\n", ",[1]\n")).encode(), "its profile is not a JSON object"),
    ],
)
def test_a_table_that_cannot_be_used(tmp_path, content, said):
    table = tmp_path / "candidates.csv"
    table.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_candidates(table)
    assert said in str(error.value) and str(table) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_of_another_editor(tmp_path):
    """A byte order mark and CRLF, as spreadsheets write them."""
    table = tmp_path / "candidates.csv"
    table.write_bytes(b"\xef\xbb\xbf" + (HEADER + ROW).replace("\n", "\r\n").encode())
    [candidate] = read_candidates(table)
    assert candidate.case.service_name == "silu_ID0" and candidate.case.values == {"M": 256}


@pytest.mark.parametrize(
    "read",
    [
        read_plans,
        read_executor_results,
        read_experiences,
        read_names,
        read_benchmark,
        lambda path: load_model_config(path, "planner"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [None, b"", b"{[", b"\xe9", b"null", b'[{"a": 1}]', b"[" * 100_000, b'{"a": 1}'],
)
def test_json_that_cannot_be_used(tmp_path, read, content):
    path = tmp_path / "some.json"
    if content is not None:
        path.write_bytes(content)
    if read is read_benchmark and content == b'{"a": 1}':
        assert read(path).broken == ("a: no object `cases`",)
        return
    with pytest.raises(ConfigError) as error:
        read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_json_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "names.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(["latency"]).encode())
    assert read_names(path) == ["latency"]


def test_a_prompt_that_says_nothing(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        read_text(path)


@pytest.mark.parametrize("line", ["5", '["exchange", "key", {}]', "{}"])
def test_a_recording_that_is_none(tmp_path, line):
    (tmp_path / "journal.jsonl").write_text(line + "\n")
    with pytest.raises(ConfigError, match="is not the journal of a run"):
        read_recording(tmp_path)


def test_what_was_reached_needs_a_column_for_it(tmp_path):
    profiles, best = tmp_path / "profile_results.csv", tmp_path / "best.csv"
    profiles.write_text(HEADER + ROW)
    best.write_text("case_name,factor\nsilu_M256,2\n")
    with pytest.raises(ConfigError, match="neither a column best_speedup nor one speedup"):
        standings(profiles, best)


def test_a_folder_in_the_place_of_an_output_is_named(tmp_path):
    with pytest.raises(OSError) as error:
        write_atomically(tmp_path, "text")
    assert error.value.filename == str(tmp_path)
    assert list(tmp_path.parent.glob(f".{tmp_path.name}.*")) == []


TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"))
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c d", 'e"']), TEXTS), max_size=4)


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
def test_tables_have_the_bytes_that_pandas_writes(rows, tmp_path_factory):
    """People's shell loops read these files, and the published scripts wrote them with pandas."""
    path = tmp_path_factory.mktemp("table") / "table.csv"
    write_table(path, rows, ["a", "b"])
    names = dict.fromkeys(["a", "b", *(name for row in rows for name in row)])
    table = pandas.DataFrame(rows, columns=list(names), dtype=object)
    wanted = table.to_csv(index=False, lineterminator="\n")
    assert path.read_bytes() == wanted.encode()
