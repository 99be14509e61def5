"""Lowered kernels compute what their algorithm says, on the simulated core, whatever the schedule."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from warm import core

from accelopt.algorithm.algorithm import Algorithm, Reduce
from accelopt.algorithm.evaluation import evaluate
from accelopt.algorithm.index import Axis, index_of
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.lowering import lower
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.search import neighbours, schedules
from accelopt.sim import dtypes
from tests.kernels.nki.lift import algorithms

DRAWN = 4
"""Schedules of each algorithm that are carried out."""


@cache
def legal(algorithm: Algorithm) -> list[tuple[Schedule, str]]:
    """Every schedule of an algorithm that has a kernel, once for each kernel."""
    graph = graph_of(algorithm)
    found: dict[str, Schedule] = {}
    first = list(schedules(graph))
    ahead = [schedule.model_copy(update={"ahead": True}) for schedule in first[::5]]
    for schedule in [*first, *ahead, *neighbours(graph, first[len(first) // 2])]:
        try:
            found.setdefault(lower(graph, schedule).source, schedule)
        except (NotLowered, ResourceShort):
            continue
    return [(schedule, source) for source, schedule in found.items()]


def result(source: str, algorithm: Algorithm, folder: Path, given: list[np.ndarray]) -> np.ndarray:
    path = folder / "kernel.py"
    path.write_text(source)
    specs = [TensorArgument(array.given, array.dtype) for array in algorithm.inputs]
    return core().compile(str(path), specs).run(given)[0]


def inputs(algorithm: Algorithm) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    size = 0.05 if algorithm.name == "state_space" else 1.0
    made = [size * rng.standard_normal(array.given) for array in algorithm.inputs]
    if algorithm.name == "adamw":
        made[3] = abs(made[3])
    formats = [dtypes.parse(array.dtype) for array in algorithm.inputs]
    return [array.astype(form) for array, form in zip(made, formats, strict=True)]


@pytest.mark.parametrize("algorithm", algorithms.SMALL, ids=lambda a: a.name)
def test_schedules_compute_the_algorithm(algorithm: Algorithm, tmp_path: Path) -> None:
    found = legal(algorithm)
    assert found
    given = inputs(algorithm)
    names = [array.name for array in algorithm.inputs]
    wide = [array.astype(np.float64) for array in given]
    (exact,) = evaluate(algorithm, dict(zip(names, wide, strict=True)))
    narrow = any(array.dtype != "float32" for array in algorithm.inputs)
    for schedule, source in random.Random(7).sample(found, min(DRAWN, len(found))):
        got = result(source, algorithm, tmp_path, given)
        assert got.shape == exact.shape
        assert got.dtype == dtypes.parse(algorithm.outputs[0].dtype)
        error = np.linalg.norm(got.astype(np.float64) - exact) / np.linalg.norm(exact)
        assert error < (8e-3 if narrow else 1e-5), schedule


@pytest.mark.parametrize("algorithm", algorithms.SMALL, ids=lambda a: a.name)
def test_the_formatter_leaves_a_kernel_alone(algorithm: Algorithm, tmp_path: Path) -> None:
    for number, (_, source) in enumerate(itertools.islice(legal(algorithm), 40)):
        (tmp_path / f"kernel_{number}.py").write_text(source)
    command = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "100", "."]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout


def test_rows_too_wide_for_sbuf_are_refused_before_tracing() -> None:
    """Usable SBUF of trn1 is 176 KiB a partition (direct allocation guide): 45,056 fp32."""
    with pytest.raises(ResourceShort) as refusal:
        lower(algorithms.softmax(128, 60_000), Schedule(rows="m"))
    assert refusal.value.resource == "bytes of SBUF a partition"
    assert refusal.value.needed > refusal.value.available == 176 * 1024


def test_more_sums_than_psum_has_banks_are_refused() -> None:
    schedule = Schedule(rows="m", row_tiles=16, weights=("accumulate",))
    with pytest.raises(ResourceShort) as refusal:
        lower(algorithms.matmul(2048, 256, 1024), schedule)
    assert refusal.value.resource == "PSUM banks"


def test_an_axis_that_is_summed_over_is_no_axis_of_rows() -> None:
    with pytest.raises(NotLowered, match="combined over n"):
        lower(algorithms.softmax(256, 1024), Schedule(rows="n"))


def test_a_schedule_travels_as_json() -> None:
    schedule = Schedule(rows="m", row_tiles=4, weights=("accumulate", "resident"))
    assert Schedule.model_validate_json(schedule.model_dump_json()) == schedule


def test_elementwise_work_may_cut_its_arrays_anywhere() -> None:
    source = lower(algorithms.rope(128, 4096), Schedule(rows="row", flat=2048)).source
    assert "x = x.reshape((256, 2048))" in source
    with pytest.raises(NotLowered, match="rows of 1000"):
        lower(algorithms.rope(128, 4096), Schedule(rows="row", flat=1000))


def test_short_rows_lie_beside_each_other(tmp_path: Path) -> None:
    """Both halves of a row are stored at once, and arrays have the dimensions they are read in."""
    algorithm = algorithms.rotated(2048, 32)
    assert 16 in {schedule.beside for schedule in schedules(graph_of(algorithm))}
    source = lower(algorithm, Schedule(rows="m", beside=8)).source
    assert "x = x.reshape((256, 8, 64))" in source
    assert "cos = cos.reshape((256, 8, 32))" in source
    assert source.count("nl.store(") == 1
    given = inputs(algorithm)
    wide = [array.astype(np.float64) for array in given]
    names = [array.name for array in algorithm.inputs]
    reshaped = [a.reshape(i.shape) for a, i in zip(wide, algorithm.inputs, strict=True)]
    (exact,) = evaluate(algorithm, dict(zip(names, reshaped, strict=True)))
    assert np.allclose(result(source, algorithm, tmp_path, given), exact, rtol=1e-5, atol=1e-6)
    with pytest.raises(NotLowered, match="7 does not divide the rows"):
        lower(algorithm, Schedule(rows="m", beside=7))
    with pytest.raises(NotLowered, match="element by element"):
        lower(algorithms.softmax(256, 64), Schedule(rows="m", beside=2))


def test_rows_with_numbers_of_their_own_share_no_partition() -> None:
    """A convolution of every channel by itself: its taps would be one number a partition, which has
    the rows of several channels (it was written `nl.ds(:, 1)`)."""
    c, n, k = Axis("c", 512), Axis("n", 64), Axis("k", 3)
    term = algorithms.times(
        algorithms.read("x", c, index_of(n) + index_of(k)), algorithms.read("w", c, k)
    )
    arrays = (algorithms.array("x", 512, 66), algorithms.array("w", 512, 3))
    out = (algorithms.array("out", 512, 64),)
    taps = Algorithm("taps", arrays, (Reduce("out", (c, n), (k,), "add", term),), out)
    assert {schedule.beside for schedule in schedules(graph_of(taps))} == {1}
    with pytest.raises(NotLowered, match="element by element alone"):
        lower(taps, Schedule(rows="c", beside=2))


def test_a_loaded_tile_is_written_over_only_where_the_next_block_has_no_room() -> None:
    """A load into it could not begin before the result is stored."""
    roomy = lower(algorithms.softmax(1024, 4096), Schedule(rows="m")).source
    tight = lower(algorithms.softmax(1024, 4096), Schedule(rows="m", row_tiles=4)).source
    assert "exponentials_rows = nl.ndarray" in roomy
    assert "exponentials_rows" not in tight
