"""benchmarks/sim_speed.py measures any folder of NKIBench's form."""

import json
import subprocess
import sys
from pathlib import Path

from kernel_heads import neuronxcc_of

ROOT = Path(__file__).resolve().parents[2]

REFERENCE = """
import numpy as np

def get_inputs():
    return [np.random.normal(size=(256, 64)).astype(np.float32)]

def forward(x):
    return np.exp(x)

def transform_to_nki_inputs(inputs):
    return inputs

def transform_nki_outputs(results, reference):
    return [results]
"""

KERNEL = neuronxcc_of("x")("""
for i in nl.affine_range(2):
    tile = nl.load(x[i * 128:(i + 1) * 128, 0:64])
    nl.store(out[i * 128:(i + 1) * 128, 0:64], nl.exp(tile))
""")


def test_it_prints_a_line_a_problem_and_the_mean(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "kernel.py").write_text(KERNEL)
    problem = {"values": {"M": 256}, "impls": [{"task": "reference.py", "kernel": "kernel.py"}]}
    (tmp_path / "summary.json").write_text(json.dumps({"exponential": {"cases": {"0": problem}}}))
    command = [sys.executable, str(ROOT / "benchmarks" / "sim_speed.py"), str(tmp_path),
               "--repeats", "1", "--check"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    row = next(line.split() for line in done.stdout.splitlines() if "exponential" in line)
    assert row[0] == "exponential_M256"
    seconds_core, seconds_numpy, ratio = (float(value) for value in row[1:4])
    assert ratio > 0 and seconds_core >= 0 and seconds_numpy >= 0
    assert float(row[-1]) < 1e-6  # the relative difference of the results
    assert "geometric mean" in done.stdout


def test_it_prints_what_each_step_costs_an_unrolled_kernel() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "sim_speed.py"), "--unrolled", "100"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["trace", "verify", "write", "read", "compile"]
    assert all(float(row[1]) > 0 and row[2:4] == ["us", "an"] for row in rows)
