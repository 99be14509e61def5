"""The calibration kit finds the machine that the measurements come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.calibration import measuring
from accelopt.kernels.nki.calibration.fit import fit, predicted


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return measuring.programs("trn1", tmp_path_factory.mktemp("microkernels"))


PLANTED = {
    "dma_bytes_per_ns": 31.0,
    "dma_buffer_ns": 15.0,
    "scalar_cycles_per_element": 0.7,
    "two_input_cycles_per_element": 1.4,
    "reciprocal_cycles_per_element": 5.0,
    "scan_cycles_per_element": 3.1,
    "fp32_matmul_cycles_per_row": 1.3,
    "matmul_cycles_per_row": 0.8,
    "launch_ns": 9000.0,
}


@pytest.mark.slow
def test_planted_constants_are_found_again(programs):
    """Issue 17, point 5: offline the kit runs against a simulated core of unknown constants."""
    machine = replace(TARGETS["trn1"], **PLANTED)
    found = fit(list(programs.values()), predicted(list(programs.values()), machine).tolist(),
                TARGETS["trn1"])  # fmt: skip
    assert found.worst < 0.02
    for name, value in PLANTED.items():
        assert getattr(found.hardware, name) == pytest.approx(value, rel=0.1), name


@pytest.mark.slow
def test_noise_of_two_percent_moves_no_constant_far(programs):
    machine = replace(TARGETS["trn1"], **PLANTED)
    noise = np.random.default_rng(0).normal(1.0, 0.02, len(programs))
    latencies = predicted(list(programs.values()), machine) * noise
    found = fit(list(programs.values()), latencies.tolist(), TARGETS["trn1"])
    for name in ("dma_bytes_per_ns", "two_input_cycles_per_element", "scan_cycles_per_element"):
        assert getattr(found.hardware, name) == pytest.approx(PLANTED[name], rel=0.15), name


def test_every_microkernel_is_legal_and_costs_more_when_it_is_longer(programs):
    latencies = dict(zip(programs, predicted(list(programs.values()), TARGETS["trn1"])))
    assert len(latencies) == 48
    for name, latency in latencies.items():
        stem, count = name.rsplit(" x", 1)
        for longer in (n for n in latencies if n.startswith(f"{stem} x")):
            if int(longer.rsplit(" x", 1)[1]) > int(count):
                assert latencies[longer] > latency


def test_measurements_are_kept_and_read_again(tmp_path):
    rows = [measuring.TimedMicrokernel("rows of 512 B x8", 0.25)]
    measuring.write(rows, tmp_path / "found.csv")
    assert measuring.read(tmp_path / "found.csv") == rows
    with pytest.raises(ConfigError, match="no table of microkernels"):
        measuring.read(tmp_path / "missing.csv")
