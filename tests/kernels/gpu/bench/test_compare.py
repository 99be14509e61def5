"""Speedups only between latencies of one workload, one hardware, one timer."""

import csv
import io

import pytest
from flb_traces import trace, write_traces
from trace_comparison import as_csv, as_svg, as_text, compare

from accelopt.errors import ConfigError


def test_over_the_reference(tmp_path):
    root = write_traces(
        tmp_path,
        trace("a", "plain", 4.0, reference=8.0),
        trace("a", "best", 2.0, reference=8.0),
        trace("b", "best", 1.0, reference=2.0),
        trace("b", "broken", 0.0, status="TIMEOUT"),
    )
    found = compare([root])
    speedups = {(line.workload[0], line.solution): line.speedup for line in found.lines}
    assert speedups == {
        ("a", "plain"): 2.0, ("a", "best"): 4.0, ("b", "best"): 2.0, ("b", "broken"): None,
    }  # fmt: skip
    [mean] = found.means
    assert mean.value == pytest.approx(8.0**0.5)
    assert mean.workloads == 2


def test_over_a_solution_of_the_same_hardware_only(tmp_path):
    root = write_traces(
        tmp_path,
        trace("a", "plain_x", 4.0),
        trace("a", "best", 2.0),
        trace("a", "best", 1.0, hardware="NVIDIA B200"),
    )
    found = compare([root], baseline="plain_*")
    by_place = {(line.solution, line.hardware): line.speedup for line in found.lines}
    assert by_place["best", "NVIDIA H200"] == 2.0
    assert by_place["best", "NVIDIA B200"] is None


def test_timers_are_not_mixed(tmp_path):
    root = write_traces(
        tmp_path,
        trace("a", "plain_x", 4.0, launch_free=3.0),
        trace("a", "ours", 2.0, launch_free=1.0),
        trace("a", "theirs", 1.5),
    )
    found = compare([root], baseline="plain_*", timer="launch-free")
    speedups = {line.solution: line.speedup for line in found.lines}
    assert speedups == {"plain_x": 1.0, "ours": 3.0, "theirs": None}


def test_what_is_printed_names_baseline_timer_and_hardware(tmp_path):
    root = write_traces(tmp_path, trace("a", "best", 2.0), trace("a", "bad<&>", 4.0))
    found = compare([root])
    text = as_text(found)
    assert "speedup over reference, latencies by the package timer" in text
    assert "NVIDIA H200" in text
    assert "geometric mean" in text
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [row["speedup"] for row in rows] == ["5", "2.5"]
    assert {row["timer"] for row in rows} == {"package"}
    assert "bad&lt;&amp;&gt;" in as_svg(found)


def test_refusals(tmp_path):
    (tmp_path / "traces").mkdir()
    with pytest.raises(ConfigError, match="no traces"):
        compare([tmp_path])
    with pytest.raises(ConfigError, match="timer"):
        compare([tmp_path], timer="sundial")
