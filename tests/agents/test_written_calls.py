"""Calls of tools that a model writes as text (issue 41): the forms that the chat templates of open models
have, and what models without one write."""

import json

import pytest
from scripted_server import Scripted
from test_endpoint_faults import run

from accelopt.agents.calls import Tool
from accelopt.replies import calls_in

OLD = 'def kernel(x):\n    """{Of} [0] <b>."""\n    return x < 1\n'
NEW = "return 2\n"
TOOLS = {"check": ["kernel", "first"], "edit": ["old", "new", "file", "first"]}
EDIT = {"old": OLD, "new": NEW}
CALL = {"name": "edit", "arguments": EDIT}


def forms(name, given):
    """A call as models write it."""
    plain = json.dumps(given)
    one = json.dumps({"name": name, "arguments": given})
    python = ", ".join(f"{key}={value!r}" for key, value in given.items())
    tagged = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in given.items())
    quoted = "".join(f'<parameter name="{k}">{v}</parameter>' for k, v in given.items())
    return {
        "a tool in a fence": f"I look.\n```json\n{json.dumps({'tool': name, **given})}\n```",
        "a tool, bare": json.dumps({"tool": name, "arguments": given}),
        "Hermes": f"<tool_call>\n{one}\n</tool_call>",
        "Hermes, not closed": f"Now <tool_call>\n{one}",
        "text in JSON": json.dumps({"name": name, "parameters": plain}),
        "the protocol as text": json.dumps(
            {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": plain}}]}
        ),
        "Mistral": f"[TOOL_CALLS][{one}]",
        "Llama 3.1": f"<function={name}>{plain}</function>",
        "Llama 3.2": f"<|python_tag|>{json.dumps({'name': name, 'parameters': given})}",
        "Qwen coder": f"<tool_call>\n<function={name}>\n{tagged}</function>\n</tool_call>",
        "Claude": f'<function_calls>\n<invoke name="{name}">{quoted}</invoke></function_calls>',
        "elements": f"<{name}>"
        + "".join(f"<{k}>{v}</{k}>" for k, v in given.items())
        + f"</{name}>",
        "DeepSeek": f"<|tool_calls_begin|>function<|tool_sep|>{name}\n```json\n{plain}\n```",
        "ReAct": f"Thought: hm.\nAction: {name}\nAction Input: {plain}\nObservation: fine",
        "gpt-oss": f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{plain}",
        "its only key": json.dumps({name: given}),
        "Python": f"```tool_code\nprint(default_api.{name}({python}))\n```",
        "Python, a line": f"I think:\n{name}({python})",
        "Python in place of JSON": f"```\n{ {'tool': name, 'args': given} }\n```",
        "another prefix": json.dumps({"name": f"mcp__accelopt__{name}", "arguments": given}),
    }


@pytest.mark.parametrize("form", forms("x", {}))
def test_a_call_that_is_written_as_text_is_made(tmp_path, form):
    """Arguments with line ends, brackets and signs of their own, and none."""
    given = []

    async def called(arguments):
        given.append(json.loads(arguments))
        return "changed"

    schema = {"type": "object", "properties": {name: {"type": "string"} for name in TOOLS["edit"]}}
    texts = [forms("edit", EDIT)[form], "That is all."]
    turns = iter([*texts, *texts])
    tools = (Tool("edit", "edits", "", called, schema),)
    answer, requests, kept = run(tmp_path, lambda _: next(turns), tools=tools, limit=4)
    assert [{k: v.strip("\n") for k, v in one.items()} for one in given[:1]] == [
        {"old": OLD.strip("\n"), "new": NEW.strip("\n")}
    ]
    assert answer.text == "That is all." and len(requests) == 2
    *_, said, told = requests[1]["messages"]
    assert said["tool_calls"][0]["id"] == told["tool_call_id"] and told["content"] == "changed"
    assert kept[0].response["choices"][0]["message"]["content"] == texts[0].strip()
    [bare] = calls_in(forms("check", {})[form], TOOLS)
    assert bare.name.endswith("check") and bare.arguments in ({}, "{}", "")


def test_calls_of_one_answer_are_made_in_its_order():
    text = "\n".join(
        f"<tool_call>{json.dumps(one)}</tool_call>" for one in (CALL, {"tool": "check"})
    )
    assert [one.name for one in calls_in(text, TOOLS)] == ["edit", "check"]


@pytest.mark.parametrize(
    "answer",
    [
        f"```python\n{OLD}```",
        "It waits for loads; `check` and edit() would gain nothing.",
        '[{"kind": "tile", "definition": "out", "axis": "m", "size": 128}]',
        '{"candidates": [{"method": "check", "detail": "edit", "code": "x"}]}',
        "Title: edit the loop\nChange: hoist 12\n\nThen check [12, 14] {a}.",
        "<" * 25_000 + "check" + "<check>" * 12_500 + "{" * 12_500,
        "",
    ],
)
def test_an_answer_that_calls_nothing_is_none(answer):
    assert calls_in(answer, TOOLS) == []


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ('<tool_call>{"name": "check", "arguments": {"source": </tool_call>', "called no tool"),
        ('```json\n{"tool": check it}\n```', "called no tool"),
        ("```tool_code\nfor k in (1, 2):\n    check(k)\n```", "called no tool"),
        ('{"name": "fly", "arguments": {}}', "There is no tool 'fly'; there are check"),
        ('{"tool": "check", "arguments": "{"}', "arguments cannot be read"),
    ],
)
def test_a_call_that_cannot_be_read_is_told_in_a_sentence(tmp_path, odd, said):
    given = []

    async def called(source):
        given.append(source)
        return "checked"

    turns = iter([odd, '{"tool": "check", "source": "a = 1"}', "done"])
    tools = (Tool("check", "checks", "source", called),)
    answer, requests, _ = run(tmp_path, lambda _: next(turns), tools=tools, limit=4)
    told = requests[1]["messages"][-1]["content"]
    assert said in told and len(told.splitlines()) == 1 and len(told) < 400
    assert {*given} == {"a = 1"} and answer.text == "done"


@pytest.mark.parametrize(
    ("odd", "turns"),
    [
        ("<tool_call>check it</tool_call>", 2),
        ('{"name": "fly", "arguments": {}}', 7),
        ("<tool_call>fly()</tool_call>", 7),
    ],
)
def test_what_is_never_a_call_is_the_answer_in_the_end(tmp_path, odd, turns):
    tools = (Tool("check", "checks", "source", None),)
    answer, requests, _ = run(tmp_path, lambda _: Scripted(odd), tools=tools, limit=4)
    assert answer.text == odd and 1 < len(requests) <= turns
    assert all("tools" in one for one in requests[:-1])
