"""Forms in which models answer; each was met in answers by hand or is a form that the field knows."""

import json

import pytest

from accelopt.agents.developer import read_bottlenecks
from accelopt.agents.planner import RULE, in_lines
from accelopt.nodes import Plan
from accelopt.replies import json_in, share_in
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


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("{'a': true, \"b\": null, c: .5}", {"a": True, "b": None, "c": 0.5}),
        ('{"a": 1, // one\n "b": "http://x#y", # two\n}', {"a": 1, "b": "http://x#y"}),
        ('lines [3, 4] are slow: {"a": 1}', {"a": 1}),
        ('First {"a": 1}. No, better: {"a": 2}.', {"a": 2}),
        ('/* c */ {\u201ca\u201d:\u00a0[1,2,],}', {"a": [1, 2]}),
        ('{"code": """def f():\n    return {1}\n""", "x": true}',
         {"code": "def f():\n    return {1}\n", "x": True}),
    ],
)  # fmt: skip
def test_json_is_read_in_forms_that_are_none(reply, value):
    assert json_in(reply) == value


def test_what_cannot_be_read_is_none():
    for reply in (
        "",
        "no",
        "[1, 2",
        "{a b}",
        "[see] {a: b}",
        "[{}, {a b}]",
        "{" * 5000,
        "```json\nnothing\n```",
    ):
        assert json_in(reply) is None
        assert read_bottlenecks(reply) == ()


@pytest.mark.parametrize(
    ("value", "share"),
    [("65%", 0.65), ("65 %", 0.65), (65, 0.65), (0.65, 0.65), ("0.65", 0.65), ("about half", 0.0),
     (None, 0.0), (float("nan"), 0.0), ("~40 percent", 0.4), (-3, 0.0), (True, 1.0)],
)  # fmt: skip
def test_shares(value, share):
    assert share_in(value) == pytest.approx(share)


def test_the_header_of_a_plan_wins_over_its_prose():
    """`Change:` at the beginning of a line of the prose used to take the header's place."""
    plan = Plan.read(
        "Title: load once\nChange: hoist 12\n\nWhy: x is read twice.\nChange: fuse 40 would come next."
    )
    assert (plan.sentence, plan.method, plan.places) == ("load once", "hoist", (12,))


@pytest.mark.parametrize("form", forms({}))
def test_a_plan_or_a_rule_in_json_is_one(form):
    plan = {"title": "load once", "change": "hoist 12, 14", "plan": "x is read twice."}
    assert "x is read twice." in Plan.read(in_lines(forms(plan)[form])).text
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
