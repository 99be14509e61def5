"""Kernels that cheat are refused, whatever a test of the user's says: before a worker starts, or, where only
hidden inputs find fault with them, as a result (the search may start from such a kernel)."""

from pathlib import Path

import pytest
from exhibits import header, kernel_file, names, reference_file

from accelopt.evaluation import EvaluationRequest, Status
from accelopt.fsm import FSMOptimizationManager
from accelopt.kernels.nki.judging import evaluate

PASSES = "import sys\nsys.exit(0)\n"
DISHONEST = [name for name in names() if "correct" not in header(name)["verdict"]]
QUICK = ("exits_with_success", "returns_its_input", "half_after_a_hash", "bfloat16_operands")
ALL = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in DISHONEST]


@pytest.mark.parametrize("name", ALL)
def test_a_museum_piece_is_refused_though_the_test_exits_with_success(tmp_path, name):
    manager = FSMOptimizationManager(log_dir=tmp_path / "run", max_rounds=1, workers=1)
    found = manager.run_optimization(kernel_file(name), reference_file(name), PASSES)
    if found["success"]:  # that only hidden inputs fault may be mended on the way, as squares are
        right = tmp_path / "right.py"
        right.write_text(found["kernel_code"])
        assert found["kernel_code"] != Path(kernel_file(name)).read_text()
        request = EvaluationRequest(kernel=str(right), task=str(reference_file(name)))
        assert evaluate(request).status is Status.CORRECT
        return
    assert found["kernel_code"] is None
    if "hidden" not in found["error"]:
        assert "the initial kernel fails" in found["error"]
        assert not (tmp_path / "run" / "workers").exists()


def test_the_quick_ones_are_there():
    assert set(QUICK) <= set(DISHONEST) and len(DISHONEST) > 40
