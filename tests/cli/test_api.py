"""`accelopt.optimize` as a program calls it."""

import pytest
from small_problem import KERNEL, REFERENCE

import accelopt
from accelopt.errors import ConfigError


def test_optimize_returns_what_the_command_writes(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    found = accelopt.optimize(
        tmp_path / "kernel.py", tmp_path / "reference.py", out=tmp_path / "run", iterations=1
    )
    assert found.speedup is not None and found.speedup > 1 and found.changes
    assert (tmp_path / "run" / "kernel" / "best.py").read_text() == found.source
    with pytest.raises(ConfigError, match="holds an earlier run"):
        accelopt.optimize(tmp_path / "kernel.py", tmp_path / "reference.py", out=tmp_path / "run")


def test_input_that_cannot_be_used_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="is not a file"):
        accelopt.optimize(tmp_path / "nowhere.py", tmp_path / "reference.py")
