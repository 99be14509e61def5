"""Nobody changes a Program, a prediction or a counter unawares: `python benchmarks/replay.py --update`
writes down a deliberate change, and the diff of its table says which kernels it concerns."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import replay

KEPT = replay.read(replay.TABLE)
MANY = 30_000
"""Instructions of a kernel from which on it is left to the slow tests."""


def cases():
    for case in replay.own():
        is_long = case.name in KEPT and int(KEPT[case.name].instructions) > MANY
        marks = [pytest.mark.slow] if is_long else []
        yield pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", cases())
def test_nothing_changed_unawares(case):
    said = replay.differences(KEPT.get(case.name), replay.replay(case))
    assert not said, f"{case.name}: {said}"


def test_a_changed_kernel_shows_and_is_written_down(tmp_path, capsys):
    table = tmp_path / "table.csv"
    told = ["--table", str(table), "--only", "silu"]
    assert replay.main(told) == 1
    assert replay.main([*told, "--update"]) == 0
    assert replay.main([*told, "--exact"]) == 1 and "latency_ms" in capsys.readouterr().out
    (first, *_) = replay.read(table).values()
    replay.write(table, {first.kernel: first._replace(program="0" * 16)})
    assert replay.main([*told, "--only", first.kernel]) == 1
    assert f"program {'0' * 16} -> {first.program}" in capsys.readouterr().out
