"""The calibration kit finds the machine that the measurements come from, and says what it cannot."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accelopt.cli.calibrate import unused
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.calibration import measuring
from accelopt.kernels.nki.calibration.fit import constants, fit, predicted
from accelopt.kernels.nki.calibration.machine import read_machine
from accelopt.kernels.nki.calibration.measuring import TimedMicrokernel
from accelopt.kernels.nki.devices.trainium import TrainiumDevice

PROFILER = Path(__file__).parents[1] / "devices"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return measuring.programs("trn1", tmp_path_factory.mktemp("microkernels"))


def machine(target, seed):
    """Every constant of the table times a factor between a half and two."""
    core, rng = TARGETS[target], np.random.default_rng(seed)
    names = constants(core)
    factors = np.exp(rng.uniform(-np.log(2), np.log(2), len(names)))
    values = {n: getattr(core, n) * float(f) for n, f in zip(names, factors, strict=True)}
    return replace(core, **values)


def timed(programs, core):
    return predicted(list(programs.values()), [core])[:, 0]


def errors(found, planted):
    return {one.name: abs(one.value / getattr(planted, one.name) - 1) for one in found.found}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "seed", "worst", "right"), [("trn1", 0, 0.005, 1.0), ("trn2", 1, 0.06, 0.95)]
)
def test_planted_constants_are_found_again(target, seed, worst, right, tmp_path):
    """Issue 17, point 5: offline the kit runs against a simulated core of unknown constants."""
    programs, planted = measuring.programs(target, tmp_path), machine(target, seed)
    found = fit(list(programs.values()), timed(programs, planted).tolist(), TARGETS[target])
    assert found.worst < worst
    away = errors(found, planted)
    seen = [one.name for one in found.found if one.seen]
    assert len(seen) >= 0.8 * len(found.found)
    assert sum(away[name] < 0.05 for name in seen) >= right * len(seen), away


@pytest.mark.slow
def test_noise_and_missing_rows_are_in_the_errors_that_are_said(programs):
    planted, rng = machine("trn1", 2), np.random.default_rng(2)
    left = sorted(programs)
    for name in rng.choice(left, 4, replace=False):
        left.remove(name)
    some = {name: programs[name] for name in left}
    latencies = timed(some, planted) * rng.normal(1.0, 0.025, len(some))
    found = fit(list(some.values()), latencies.tolist(), TARGETS["trn1"])
    away = errors(found, planted)
    seen = [one for one in found.found if one.seen]
    assert len(seen) >= len(found.found) / 2
    assert sum(away[one.name] < 0.1 for one in seen) >= 0.8 * len(seen)
    assert sum(away[one.name] < 2 * one.error for one in found.found) >= 0.8 * len(found.found)


def test_every_microkernel_is_legal_and_costs_more_when_it_is_longer(programs):
    latencies = dict(zip(programs, timed(programs, TARGETS["trn1"]), strict=True))
    stems = {name: name.rsplit(" x", 1) for name in latencies}
    pairs = [
        (one, other)
        for one, (stem, count) in stems.items()
        for other, (second, more) in stems.items()
        if stem == second and int(count) < int(more)
    ]
    assert len(pairs) >= 8
    assert all(latencies[one] < latencies[other] for one, other in pairs)


def test_measurements_are_kept_and_read_again(tmp_path):
    rows = [TimedMicrokernel("rows of 512 B x8", 0.25), TimedMicrokernel("scan", None, "refused")]
    measuring.write(rows, tmp_path / "found.csv")
    assert measuring.read(tmp_path / "found.csv") == rows
    with pytest.raises(ConfigError, match="no table of microkernels"):
        measuring.read(tmp_path / "missing.csv")
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ConfigError, match="it has no rows"):
        measuring.read(tmp_path / "empty.csv")
    (tmp_path / "zero.csv").write_text("microkernel,latency_ms\nscan,0\n")
    with pytest.raises(ConfigError, match="scan"):
        measuring.read(tmp_path / "zero.csv")


def calibrate(*arguments, cwd):
    command = [sys.executable, "-m", "accelopt", "calibrate", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


@pytest.mark.slow
def test_the_command_says_what_was_seen_and_what_not(programs, tmp_path):
    """From a file of measurements to the machine that `accelopt profile --machine` takes."""
    planted = machine("trn1", 0)
    rows = [
        TimedMicrokernel(name, float(ms)) for name, ms in zip(programs, timed(programs, planted))
    ]
    gone = rows.pop().microkernel
    rows.append(TimedMicrokernel("of another version", 1.0))
    measuring.write(rows, tmp_path / "found.csv")
    said = calibrate("--measured", "found.csv", "--machine", "machine.json", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert f"not used: {gone} (there is no measurement of it)" in said.stdout
    assert "not used: of another version" in said.stdout
    assert "not asked, because the table has 0: dma_unaligned_ns" in said.stdout
    kept = json.loads((tmp_path / "machine.json").read_text())["constants"]
    core = read_machine(tmp_path / "machine.json")
    for name, one in kept.items():
        assert one["value"] == pytest.approx(getattr(planted, name), rel=0.05), name
        assert getattr(core, name) == one["value"] and name in said.stdout
    for name in set(constants(core)) - kept.keys():
        assert f"not seen: {name} " in said.stdout


def test_too_few_measurements_are_refused_with_the_reason(tmp_path):
    with (tmp_path / "found.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["microkernel", "latency_ms", "message"], ["transposes x16", "", "compile_error: why"]]
        )
    said = calibrate("--measured", "found.csv", cwd=tmp_path)
    assert said.returncode != 0
    assert "not used: transposes x16 (compile_error: why)" in said.stdout
    assert "0 microkernels ran" in said.stdout + said.stderr


def test_what_is_not_used_is_told_by_reason_in_few_words():
    missing = {f"scan x{count}": "it is not there" for count in range(7)}
    assert unused({**missing, "copies": "compile_error"}) == [
        "not used: scan x0, scan x1, scan x2, scan x3, scan x4 and 2 more (it is not there)",
        "not used: copies (compile_error)",
    ]


def test_another_file_is_no_machine(tmp_path):
    (tmp_path / "machine.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not what `accelopt calibrate --machine` writes"):
        read_machine(tmp_path / "machine.json")


def test_a_device_that_refuses_everything_says_why(tmp_path):
    """A host without a working SDK: every row has a message, none a latency."""
    device = TrainiumDevice(profiler="no-such-profiler", sdk_paths=(str(tmp_path),))
    first = next(iter(measuring.microkernels()))
    row = measuring.measure_one(first, device, tmp_path)
    assert row.latency_ms is None and row.message
