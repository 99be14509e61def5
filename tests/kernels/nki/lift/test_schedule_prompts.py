"""A planner may answer with a schedule: it is told what there is, and told in one sentence what is wrong."""

from __future__ import annotations

import json

import pytest

from accelopt.kernels.nki.lift.any_rows import authored
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Interface
from accelopt.kernels.nki.lift.schedule import Schedule
from accelopt.kernels.nki.lift.schedule_prompts import AnswerRefused, answered, brief, has_schedule
from tests.kernels.nki.lift import algorithms

PRODUCT = Lifted(algorithms.matmul(2048, 256, 1024), Interface())
ELEMENTWISE = Lifted(algorithms.adamw(256, 768), Interface())

REFUSED = {
    "no JSON": ("Let us keep rhs in SBUF.", "no JSON object"),
    "an unknown field": ('{"rows": "m", "tiles": 2}', "no field tiles; it has rows, row_tiles"),
    "a wrong type": ('{"rows": "m", "row_tiles": "two"}', "row_tiles .* valid integer"),
    "an axis that is summed over": ('{"rows": "k"}', "k cannot be the rows; these can: "),
    "an unknown mode": ('{"rows": "m", "weights": ["pinned"]}', "weights.0 .* 'resident'"),
    "too many modes": (
        '{"rows": "m", "weights": ["resident", "columns"]}',
        "weights has 2 values for 1 matrix products",
    ),
    "more than PSUM holds": (
        '{"rows": "m", "row_tiles": 16, "weights": ["accumulate"]}',
        "16 of 8 PSUM banks",
    ),
    "no tiles": ('{"rows": "m", "row_tiles": 0}', "row_tiles must be at least 1"),
    "flat rows of a product": ('{"rows": "m", "flat": 128}', "elementwise work alone"),
}


def test_the_brief_has_algorithm_bounds_and_legal_values() -> None:
    offer = answered('{"rows": "m", "row_tiles": 4}', PRODUCT)
    metrics = {"latency": 3.0, "tensor_engine_active_time_percent": 0.5, "hbm_read_bytes": 5e6}
    text = brief(PRODUCT, Schedule(rows="m"), [offer], metrics)
    assert "out[m, n] = sum_k lhs[m, k] * rhs[k, n]" in text
    assert "takes 3 ms now" in text
    assert "5 MB from and to HBM" in text
    assert 'written by the schedule {"rows":"m"}' in text
    assert '"m" (2048)' in text
    assert "(lhs) by (rhs)" in text
    assert '{"rows":"m","row_tiles":4}' in text
    own = brief(PRODUCT, None, [], {**metrics, "hbm_write_bytes": 4e6})
    assert 'most like it: {"rows":"' in own


def test_elementwise_kernels_are_told_where_they_may_be_cut() -> None:
    assert f"a divisor of {256 * 768}" in brief(ELEMENTWISE, None)
    assert answered('{"rows": "row", "flat": 1024}', ELEMENTWISE).schedule.flat == 1024
    with pytest.raises(AnswerRefused, match="divides 196608"):
        answered('{"rows": "row", "flat": 1000}', ELEMENTWISE)


@pytest.mark.parametrize("before", ["", "This keeps rhs:\n```json\n", "I choose "])
def test_an_answer_becomes_the_kernel_of_its_schedule(before: str) -> None:
    schedule = Schedule(rows="m", row_tiles=2, weights=("columns",))
    after = "\n```\n" if "```" in before else ""
    reply = f"{before}{schedule.model_dump_json()}{after}"
    assert has_schedule(reply)
    offer = answered(reply, PRODUCT)
    assert offer.schedule == schedule
    assert offer.source == authored(PRODUCT, schedule, PRODUCT.lowered(schedule).source, "trn1")


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_answer_is_refused_in_one_sentence(name: str) -> None:
    reply, reason = REFUSED[name]
    with pytest.raises(AnswerRefused, match=reason) as refusal:
        answered(reply, PRODUCT)
    text = str(refusal.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_plans_and_code_are_no_schedules() -> None:
    for reply in ("Keep rhs.", "```python\nx = {'rows': 1}\n```", json.dumps({"plan": "m"})):
        assert not has_schedule(reply)
