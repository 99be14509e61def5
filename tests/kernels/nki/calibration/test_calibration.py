"""The calibration kit finds the machine that the measurements come from, and says what it cannot."""

import csv
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accelopt.api import config_of
from accelopt.cli.calibrate import measured_on, show_fit, unused
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.calibration import measuring
from accelopt.kernels.nki.calibration.fit import constants, fit, predicted
from accelopt.kernels.nki.calibration.machine import core_of, read_machine
from accelopt.kernels.nki.calibration.measuring import TimedMicrokernel
from accelopt.kernels.nki.devices.trainium import TrainiumDevice
from accelopt.stages.config import Options

HERE = Path(__file__).parent
FAKE_PROFILER = HERE.parent / "devices" / "fake_profiler.py"
SDK = str(HERE / "sdk")


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


def outside(found, planted):
    """Constants that lie more than twice the said error away."""
    return {
        one.name: one.error
        for one in found.found
        if abs(np.log(one.value / getattr(planted, one.name))) > 2 * one.error
    }


@pytest.mark.slow
@pytest.mark.parametrize(("target", "seed"), [("trn1", 4), ("trn2", 1)])
def test_planted_constants_are_found_again(target, seed, tmp_path):
    """Issue 17, point 5: offline the kit runs against a simulated core of unknown constants."""
    programs, planted = measuring.programs(target, tmp_path), machine(target, seed)
    found = fit(list(programs.values()), timed(programs, planted).tolist(), TARGETS[target])
    assert found.worst < 0.005
    away = errors(found, planted)
    seen = [one.name for one in found.found if one.seen]
    assert len(seen) >= 0.9 * len(found.found)
    assert all(away[name] < 0.05 for name in seen), away
    assert not outside(found, planted)


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
    assert len(outside(found, planted)) <= 0.1 * len(found.found)


@pytest.mark.slow
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
    core = core_of(tmp_path / "machine.json")
    for name, one in kept.items():
        assert one["value"] == pytest.approx(getattr(planted, name), rel=0.05), name
        assert getattr(core, name) == one["value"] and name in said.stdout
    for name in set(constants(core)) - kept.keys():
        assert f"not seen: {name} " in said.stdout


@pytest.mark.slow
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


def test_a_run_is_aimed_at_the_machine_that_it_is_given(tmp_path):
    """The machine says the generation; the run keeps its constants, and is continued with no others."""
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({"target": "trn2", "constants": {"launch_ns": {"value": 5e3}}}))
    language = config_of(Options(machine=path).at("trn1"), tmp_path / "run").workshop.language
    assert (language.target, language.constants) == ("trn2", {"launch_ns": 5e3})
    with pytest.raises(ConfigError, match="is of trn2, not of trn1"):
        config_of(Options(machine=path, target="trn1"), tmp_path / "run")
    path.write_text(json.dumps({"target": "trn2", "constants": {"launch_ns": {"value": -5e3}}}))
    with pytest.raises(ConfigError, match="a number above 0; not so launch_ns"):
        read_machine(path)


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


@pytest.fixture
def trainium(tmp_path):
    """A Trainium core whose profiler knows what every microkernel takes, and fails as it is told."""

    def make(latencies, faults={}):
        folder = tmp_path / "profiler"
        folder.mkdir(exist_ok=True)
        script = {
            "seconds": {compiled(name): ms * 1e-3 for name, ms in latencies.items()},
            "faults": {compiled(name): fault for name, fault in faults.items()},
        }
        (folder / "script.json").write_text(json.dumps(script))
        (folder / "calls.txt").write_text("")
        program = folder / "neuron-profile"
        program.write_text(f"#!{sys.executable} -IS\n" + FAKE_PROFILER.read_text())
        program.chmod(0o755)
        return TrainiumDevice(profiler=str(program), sdk_paths=(SDK,), capture_seconds=5)

    return make


def compiled(name):
    """What a microkernel is called in its compiled file."""
    return name.replace(" ", "_")


def names():
    return [one.name for one in measuring.microkernels()]


def kept(path):
    return {row.microkernel: row for row in measuring.read(path)}


@pytest.mark.slow
def test_what_fails_on_a_host_is_a_row_and_is_tried_again(trainium, tmp_path):
    """A capture that fails, a profiler that hangs with a child of its own, and one that answers with
    bytes that are no summary."""
    every, table = names(), tmp_path / "found.csv"
    failing = dict(zip(every[-4:-1], ("fails", "hangs", "garbage")))
    latencies = dict.fromkeys(every, 0.5)
    device = trainium(latencies, failing)
    there = [TimedMicrokernel(name, 0.25, device=device.name) for name in every[:-4]]
    measuring.write(there, table)
    rows = measuring.measure(device, tmp_path, table)
    assert [row.microkernel for row in rows] == every and rows == measuring.read(table)
    assert rows[:-4] == there and rows[-1].latency_ms == 0.5
    said = dict(zip(failing.values(), (row.message for row in rows[-4:-1])))
    assert all(row.latency_ms is None for row in rows[-4:-1])
    assert "no free core" in said["fails"] and "longer than 5 s" in said["hangs"]
    assert "cannot be read" in said["garbage"]
    device = trainium(latencies)
    again = measuring.measure(device, tmp_path, table)
    assert [row.latency_ms for row in again] == [0.25] * len(there) + [0.5] * 4
    calls = (tmp_path / "profiler" / "calls.txt").read_text().splitlines()
    assert sum(call.startswith("view") for call in calls) == 3 * 10


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_an_interrupted_calibration_keeps_what_it_has(end, trainium, tmp_path):
    every, table = names(), tmp_path / "found.csv"
    device = trainium(dict.fromkeys(every, 0.5), {every[1]: end})
    program = (
        "from pathlib import Path\n"
        "from accelopt.cli.calibrate import measured_on\n"
        "from accelopt.interruption import end_in_good_order\n"
        "from accelopt.kernels.nki.devices.trainium import TrainiumDevice\n"
        "end_in_good_order()\n"
        f"device = TrainiumDevice(profiler={device.profiler!r}, sdk_paths={device.sdk_paths!r})\n"
        f"measured_on(device, Path({str(tmp_path)!r}), Path({str(table)!r}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert measuring.read(table) == [TimedMicrokernel(every[0], 0.5, device=device.name)]
    if end == "SIGTERM":
        assert ended.returncode == 130 and "the same command goes on" in ended.stderr


def test_a_table_of_another_device_is_not_continued(trainium, tmp_path):
    table = tmp_path / "found.csv"
    measuring.write([TimedMicrokernel(names()[0], 0.25, device="simulated trn2")], table)
    with pytest.raises(ConfigError, match="measured on simulated trn2, not on trn1 core 0"):
        measuring.measure(trainium({}), tmp_path, table)
    said = calibrate("--measured", "found.csv", "--target", "trn1", cwd=tmp_path)
    assert "--target trn1: the measurements are of trn2" in said.stderr


def test_rows_may_come_in_any_order_and_more_than_once(tmp_path):
    """Of several measurements of one microkernel the median counts."""
    (tmp_path / "found.csv").write_text(
        "note,latency_ms,microkernel\nx,0.9,scan\n,0.2,copies\n,0.3,scan\n,,copies\n,0.4,scan\n"
    )
    found = measuring.latencies(measuring.read(tmp_path / "found.csv"))
    assert found == {"scan": 0.4, "copies": 0.2}


@pytest.mark.slow
def test_a_trainium_host_is_calibrated_by_its_own_profiler(programs, trainium, tmp_path, capsys):
    """An earlier try left most rows; the rest go through `neuron-profile`, which fails for one."""
    planted, out = machine("trn1", 0), tmp_path / "found.csv"
    latencies = dict(zip(programs, timed(programs, planted).tolist()))
    device = trainium(latencies, {names()[0]: "fails"})
    there = [TimedMicrokernel(name, latencies[name], "", device.name) for name in names()[1:-9]]
    measuring.write(there, out)
    rows = measured_on(device, tmp_path, out)
    show_fit(rows, "trn1", tmp_path, tmp_path / "machine.json")
    said = capsys.readouterr().out
    assert (
        f"{len(names()) - 1} of {len(names())} microkernels ran on trn1 core 0, {len(there)} of them before"
        in said
    )
    found = kept(out)
    assert found[names()[0]].message and len(found) == len(names())
    assert all(found[name].latency_ms == pytest.approx(latencies[name]) for name in names()[1:])
    core = core_of(tmp_path / "machine.json")
    constants_found = json.loads((tmp_path / "machine.json").read_text())["constants"]
    assert len(constants_found) >= 20
    for name in constants_found:
        assert getattr(core, name) == pytest.approx(getattr(planted, name), rel=0.05), name
