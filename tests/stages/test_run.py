"""When a gain is called one: simulated times that lie close are told apart by their work alone."""

import pytest
import toy
from timed_kernels import correct

from accelopt.nodes import Node
from accelopt.stages.run import Outcome


def node(case, latency, simulated=True, target="trn1", **metrics):
    return Node(case, f"kernel {latency}", correct(latency, target, simulated, **metrics))


START = {"hbm_read_bytes": 100.0, "vector_engine_active_time_percent": 0.5}


@pytest.mark.parametrize(
    ("latency", "metrics", "resolved"),
    [
        (0.90, {"hbm_read_bytes": 200.0, "vector_engine_active_time_percent": 0.5}, True),
        (0.97, {"hbm_read_bytes": 100.0, "vector_engine_active_time_percent": 0.5 / 0.97}, False),
        (0.97, {"hbm_read_bytes": 80.0, "vector_engine_active_time_percent": 0.5}, True),
        (0.97, {"hbm_read_bytes": 80.0, "vector_engine_active_time_percent": 0.6}, False),
    ],
)
def test_a_small_gain_counts_when_its_sign_is_sure(tmp_path, latency, metrics, resolved):
    start = node(toy.start(tmp_path), 1.0, **START)
    assert Outcome(start, node(start.case, latency, **metrics)).resolved == resolved


def test_where_nothing_was_measured_only_less_work_is_a_gain(tmp_path):
    """Issue 17, point 7."""
    start = node(toy.start(tmp_path), 1.0, target="trn3", **START)
    more = {**START, "hbm_read_bytes": 200.0}
    assert not Outcome(start, node(start.case, 0.7, target="trn3", **more)).resolved
    less = {**START, "hbm_read_bytes": 80.0}
    assert Outcome(start, node(start.case, 0.7, target="trn3", **less)).resolved
    assert start.profile.device.endswith("nothing was measured there")
    assert "nothing" not in node(start.case, 1.0).profile.device


def test_what_hardware_measured_is_not_doubted_here(tmp_path):
    start = node(toy.start(tmp_path), 1.0, simulated=False)
    assert Outcome(start, node(start.case, 0.99, simulated=False)).resolved
