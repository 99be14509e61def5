"""`benchmarks/reach.py`: a kernel that goes all the way, one that is refused, one that nobody describes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_problem import KERNEL, REFERENCE

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_each_kernel_goes_as_far_as_it_can_and_says_why_no_further(tmp_path):
    for name, kernel in {"right": KERNEL, "broken": KERNEL.replace("nl.load", "nl.lode")}.items():
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.py").write_text(kernel)
        (folder / "reference.py").write_text(REFERENCE)
    (tmp_path / "kernels" / "alone.py").write_text(KERNEL)
    command = [sys.executable, str(ROOT / "benchmarks" / "reach.py"), str(tmp_path / "kernels")]
    rows = tmp_path / "rows.json"
    command += ["--evaluations", "1", "--seconds", "300", "--json", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {row["kernel"]: row for row in json.loads(rows.read_text())}
    right, broken, alone = found["right"], found["broken"], found["alone.py:kernel"]
    assert right["loads"] and right["traces"] and right["right"] and right["lifts"]
    assert right["before_ms"] >= right["after_ms"] > 0
    assert broken["loads"] and not broken["traces"] and "lode" in broken["reason"]
    assert alone["loads"] and alone["traces"] is None
    assert "loads 3 of 3, traces 1 of 2, right 1 of 2" in done.stdout
