"""Why a search ends early: at the roofline, converged, or nothing gained in so many rounds."""

import planted_fsm
import pytest
import scripted_developer as scripted
from test_managers import manage
from test_worker import developed

from accelopt.fsm.worker.context import Efficiency
from accelopt.search.bottleneck_search import BeamSearch, Greedy, open_variant


def test_a_kernel_at_the_roofline_ends_the_run(tmp_path):
    found, _, _ = developed(tmp_path, rounds=9, generated=[scripted.written(50, "SOL = 96")])
    assert found["stop_reason"].startswith("at the roofline: 96.0%") and found["total_rounds"] == 1


def test_a_peak_that_is_reached_by_work_in_vain_is_no_roofline():
    assert Efficiency(20, 96).at_roofline and Efficiency(97, 20, 0.95).at_roofline
    assert not Efficiency(20, 96, 0.4).at_roofline and not Efficiency(94, 94, 1.0).at_roofline


class Futile(planted_fsm.Resources):
    """Every move loses."""

    async def actions(self, node, focus=""):
        return [a for a in await super().actions(node) if a.method.startswith("lose")]


def test_five_rounds_in_which_nothing_moves_end_the_run(tmp_path):
    found = manage(tmp_path, max_rounds=20, backend="test_stops:Futile",
                   strategy_config={"num_top_kernels": 1, "num_bottlenecks": 1}, num_workers=1)  # fmt: skip
    assert found["stop_reason"] == "converged: for 5 rounds the best kernel stood at 50.0% of peak"
    assert found["total_rounds"] == 5 and found["best_time_ms"] == 100.0


def test_five_failing_greedy_rounds_end_the_run(tmp_path):
    answers = [scripted.written(50 + n, "BROKEN = 1") for n in range(30)]
    found, developments, _ = developed(tmp_path, rounds=20, generated=answers)
    assert found["stop_reason"] == "5 rounds in a row brought no faster kernel"
    assert found["total_rounds"] == 5 and len(developments) == 5


def test_workers_needed_and_settings_of_the_variants():
    assert BeamSearch().num_workers_needed == 4 and Greedy().num_workers_needed == 1
    assert open_variant("beam_search", num_top_kernels=3).num_workers_needed == 6
    with pytest.raises(ValueError, match="greedy has no setting num_bottlenecks"):
        open_variant("greedy", num_bottlenecks=2)
