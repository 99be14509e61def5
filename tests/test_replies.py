"""Forms in which models answer; each was met in answers by hand or is a form that the field knows."""

import json

import pytest

from accelopt.agents.developer import read_bottlenecks, read_reflexion
from accelopt.agents.lister import read_candidates
from accelopt.agents.planner import RULE, in_lines
from accelopt.experience import Attempt
from accelopt.knob_space import values_in
from accelopt.nodes import Plan
from accelopt.replies import json_in, kernel_in, share_in
from accelopt.search.method_catalog import read_reply

ROW = {
    "category": "memory",
    "resource": "dma",
    "share": "65%",
    "root_cause": "rows are read twice",
    "fixes": ["hoist"],
}
KERNEL = "import nki\n\n\ndef kernel(x):\n    return x\n"


def forms(value):
    """The same value as models write it."""
    text = json.dumps(value, indent=1)
    return {
        "bare": text,
        "fenced": f"Here it is.\n```json\n{text}\n```\nThat is all.",
        "fence without a tag": f"```\n{text}\n```",
        "in prose": f"I think {text} is it.",
        "trailing comma": text.replace("\n}", ",\n}").replace("\n]", ",\n]"),
        "python": repr(value),
        "remarks": f"```json\n// what I found\n{text}\n```",
        "header before": f"Answer:\n\n{text}",
    }


@pytest.mark.parametrize("form", forms({}))
def test_every_role_reads_every_form(form):
    def said(value):
        return forms(value)[form]

    for value in ([ROW], {"bottlenecks": [ROW]}, ROW, {"result": [ROW]}):
        [found] = read_bottlenecks(said(value))
        assert (found.resource, found.share, found.methods) == ("dma", 0.65, ("hoist",))
    assert values_in(said({"tile": 512, "way": "direct"})) == {"tile": 512, "way": "direct"}
    row = {"method": "hoist", "detail": "once", "code": KERNEL}
    for value in ([row], {"candidates": [row]}):
        [found] = read_candidates(said(value))
        assert (found.method, found.code.strip()) == ("hoist", KERNEL.strip())
    attempt = Attempt(round_num=1, worker_id=0, root_cause="x", bottleneck_category="memory")
    for value in (
        {"lessons": "read once", "try_patterns": ["hoist"]},
        {"reflexion": {"lessons": ["read once"]}},
    ):
        assert read_reflexion(said(value), attempt).lessons == ("read once",)


def test_what_cannot_be_read_is_none():
    for reply in ("", "no", "[1, 2", "{a b}", "{" * 5000, "```json\nnothing\n```"):
        assert json_in(reply) is None
        assert read_bottlenecks(reply) == ()


@pytest.mark.parametrize(
    ("value", "share"),
    [("65%", 0.65), ("65 %", 0.65), (65, 0.65), (0.65, 0.65), ("0.65", 0.65), ("about half", 0.0),
     (None, 0.0), (float("nan"), 0.0), ("~40 percent", 0.4), (-3, 0.0), (True, 1.0)],
)  # fmt: skip
def test_shares(value, share):
    assert share_in(value) == pytest.approx(share)


def test_a_kernel_in_json_is_a_kernel():
    for reply in forms({"explanation": "it is short", "code": KERNEL}).values():
        assert kernel_in(reply).strip() == KERNEL.strip()
    assert kernel_in(f"```python\n{KERNEL}```") == KERNEL
    assert kernel_in('{"explanation": "there is no def in it"}') is None


def test_the_header_of_a_plan_wins_over_its_prose():
    """`Change:` at the beginning of a line of the prose used to take the header's place."""
    plan = Plan.read(
        "Title: load once\nChange: hoist 12\n\nWhy: x is read twice.\nChange: fuse 40 would come next."
    )
    assert (plan.sentence, plan.method, plan.places) == ("load once", "hoist", (12,))


@pytest.mark.parametrize("form", forms({}))
def test_a_plan_or_a_rule_in_json_is_one(form):
    plan = {"title": "load once", "change": "hoist 12, 14", "plan": "x is read twice."}
    read = Plan.read(in_lines(forms(plan)[form]))
    assert (read.sentence, read.method, read.places) == ("load once", "hoist", (12, 14))
    assert "x is read twice." in read.text
    assert RULE.search(in_lines(forms({"rule": "R2"})[form]))[1] == "R2"
    assert read_reply(forms([{"index": 0, "existed": "yes", "method": "hoist"}])[form], 2) == {
        0: "hoist"
    }


def test_prose_stays_as_it_is():
    for text in (
        'Title: a\nChange: hoist 1\n\n{"title": "b"}',
        "Rule: R1",
        "no plan",
        '{"rows": 4}',
    ):
        assert in_lines(text) == text
