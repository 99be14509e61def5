"""What a developer reads out of replies, and what it says of bottlenecks and attempts."""

import random

import pytest

from accelopt.agents.developer import bottleneck_text, read_bottlenecks, read_reflexion
from accelopt.agents.experience_text import outcome_text
from accelopt.evaluation import Bottleneck
from accelopt.experience import Attempt

ATTEMPT = Attempt(
    round_num=2, worker_id=1, time_before_ms=2.0, time_after_ms=1.5, improvement_pct=25.0,
    is_improvement=True, passed_verification=True,
)  # fmt: skip
ONE = '{"category": "Memory", "resource": "DMA", "share": 80, "root_cause": "It loads\\n twice."}'


def test_each_resource_counts_once_and_what_has_no_cause_not_at_all():
    other = ONE.replace("DMA", "tensor").replace('"Memory"', '"whatever"')
    found = read_bottlenecks(f'[{ONE}, {ONE}, {other}, {{"category": "compute"}}, 7, null]')
    assert [(one.category, one.resource) for one in found] == [
        ("memory", "dma"),
        ("latency", "tensor"),
    ]


@pytest.mark.parametrize("share", ["-3", "1e400", "NaN", '"half"', "null", "true", "[1]"])
def test_a_share_that_is_none_spoils_nothing(share):
    [found] = read_bottlenecks(f"[{ONE.replace('80', share)}]")
    assert 0.0 <= found.share <= 1.0


def test_garbage_is_no_answer_and_no_error():
    chance = random.Random(5)
    pieces = ["[", "]", "{", "}", '"a"', ":", ",", "1", "```", "json\n", "root_cause", "\x00", "é"]
    for _ in range(2000):
        reply = "".join(chance.choices(pieces, k=chance.randint(0, 30)))
        assert isinstance(read_bottlenecks(reply), tuple)
        read_reflexion(reply, ATTEMPT)


def test_a_reflexion_says_what_it_likes_but_not_what_was_measured():
    reply = (
        '```json\n{"was_fix_effective": false, "performance_delta_pct": 90, "lessons": "one"}\n```'
    )
    found = read_reflexion(reply, ATTEMPT)
    assert found.was_fix_effective and found.performance_delta_pct == 25.0
    assert found.lessons == ("one",) and found.actual_outcome == outcome_text(ATTEMPT)
    assert read_reflexion('{"lessons": 7}', ATTEMPT) is None
    assert read_reflexion("[]", ATTEMPT) is None


def test_a_bottleneck_in_words_leaves_out_what_only_rules_can_do():
    one = Bottleneck(category="memory", resource="dma", share=0.5, reason="It is busy.",
                     lines=(3,), methods=("hoist", "schedule", "set_rows"))  # fmt: skip
    assert bottleneck_text(one) == (
        "memory, dma (50%): It is busy. Lines 3. What relieves it: hoist."
    )


def test_outcomes_in_words():
    assert outcome_text(ATTEMPT) == "2 ms to 1.5 ms, 25.0% of the time saved"
    slower = ATTEMPT.model_copy(update={"time_after_ms": 3.0, "improvement_pct": -50.0})
    assert outcome_text(slower).endswith("50.0% slower")
    failed = Attempt(round_num=1, worker_id=0, error_message="x is off")
    assert outcome_text(failed) == 'failed: "x is off"'
    mended = ATTEMPT.model_copy(update={"error_message": "x was off"})
    assert outcome_text(mended).endswith('mended after it failed with "x was off"')
