"""Forms in which models answer; each was met in answers by hand or is a form that the field knows."""

import json

import pytest

from accelopt.agents.developer import read_bottlenecks
from accelopt.agents.executor import kernel_or_patched
from accelopt.agents.planner import in_lines
from accelopt.kernel_source import functions, with_definitions
from accelopt.nodes import Plan
from accelopt.replies import json_in, kernel_like, share_in


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("{'a': true, \"b\": null, c: .5}", {"a": True, "b": None, "c": 0.5}),
        ('{"a": 1, // one\n "b": "http://x#y", # two\n}', {"a": 1, "b": "http://x#y"}),
        ('lines [3, 4] are slow: {"a": 1}', {"a": 1}),
        ('{"a": "the \u201cslow\u201d loop"}', {"a": "the \u201cslow\u201d loop"}),
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


@pytest.mark.parametrize(
    "head",
    [
        "Title: load once\r\nChange: hoist 12\r\n",
        "## Title\nload once\n\n## Change\nhoist 12\n",
        "Title - load once\nChange - hoist 12\n",
        "<title>load once</title>\n<change>hoist 12</change>\n",
        "| Title | load once |\n| Change | hoist 12 |\n",
        "**Title:** \u201cload once\u201d\n**Change:** \u201choist\u201d 12\n",
    ],
)
def test_the_header_of_a_plan_in_other_dress(head):
    plan = Plan.read(f"{head}\nWhy: x is read twice.")
    assert (plan.sentence, plan.method, plan.places) == ("load once", "hoist", (12,))


def test_prose_stays_as_it_is():
    for text in (
        'Title: a\nChange: hoist 1\n\n{"title": "b"}',
        "Rule: R1",
        "no plan",
        '{"rows": 4}',
    ):
        assert in_lines(text) == text


BASE = "import nki\n\nP = 128\n\n\ndef turn(x):\n    return x[:P]\n\n\n@nki.jit\ndef rope(x):\n    return turn(x)\n"
HELPER, ENTRY = BASE[: BASE.index("@")], BASE[BASE.index("@") :]
NEW = ENTRY.replace("turn(x)", "turn(x)[:, :64]")
WHOLE = BASE.replace(ENTRY, NEW)
LISTED = "\n".join(f"{n:4d}  {line}" for n, line in enumerate(WHOLE.splitlines(), 1))
HUNK = "\n     return x[:P]\n \n \n @nki.jit\n def rope(x):\n-    return turn(x)\n+    return turn(x)[:, :64]\n"


@pytest.mark.parametrize(
    "reply",
    [
        WHOLE,
        f"Here it is:\n\n{WHOLE}\nIt is faster.",
        f"<kernel>\n{WHOLE}</kernel>",
        *(f"```{tag}\n{WHOLE}```" for tag in ("text", "cpp", "json", "nki-python", "Python3.11")),
        f"```python\n{WHOLE.rstrip()}```\nThat is all.",
        f"```python\n{LISTED}\n```",
        json.dumps({"explanation": "import it", "code": WHOLE}),
        json.dumps({"code": WHOLE.splitlines()}),
        f"```python\n{WHOLE}```\nTested by\n```python\ndef test_it():\n    assert rope(1)\n```",
        f"```python\n{WHOLE}```\nfor\n```python\ndef turn(x):\n    return x\n```",
        f"```python\n{WHOLE}```\nin place of\n```python\n@nki.jit\ndef rope(x):\n    ...\n```",
        f"```python\n{HELPER}```\nand\n```python\n{NEW}```",
        f"```python\n{NEW}```",
        f"@@ -7,6 +7,6 @@{HUNK}",
        f"```diff\n@@{HUNK}```".replace("\n", "\r\n"),
        f"```\n*** Begin Patch\n*** Update File: kernel.py\n@@{HUNK}*** End Patch\n```",
    ],
)
def test_a_kernel_of_any_name_is_read_in_any_form(reply):
    """Only kernels named `kernel` were, without a fence, in JSON, behind another tag or before a test."""
    source, said = kernel_or_patched(reply, BASE)
    made = with_definitions(source or said, BASE)
    assert functions(made) == {"P", "turn", "rope"} and "import nki" in made
    assert NEW in made and made.count("def turn") == 1


def test_a_planner_who_shows_a_part_has_written_no_sample():
    for part in (HELPER, NEW.replace("return", "...\n    return"), "def other(x):\n    return x\n"):
        assert kernel_like(f"Title: a\n```python\n{part}```", BASE) is None
    assert kernel_like(f"```python\n{NEW}```", BASE) == NEW
