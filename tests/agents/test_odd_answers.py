"""Odd forms of answers, for every role, by a scripted server over real sockets (issue 41): each was met in
answers by hand or is a form that the field knows."""

import asyncio
import difflib
import json

import pytest
from scripted_server import ScriptedServer
from test_llm import config
from test_prompts import PROMPTS, experience, view

from accelopt.agents.budget import Ledger
from accelopt.agents.calls import InMemory
from accelopt.agents.developer import Developer
from accelopt.agents.executor import Executor
from accelopt.agents.knob_expert_model import ExpertModel
from accelopt.agents.lister import Lister
from accelopt.agents.llm import Endpoint
from accelopt.agents.planner import Planner
from accelopt.agents.proposer import (
    Brief,
    Failure,
    GeneratedKernel,
    SlowFastPair,
    Suggestion,
    WrittenKernel,
)
from accelopt.agents.summarizer import Summarizer
from accelopt.evaluation import Bottleneck
from accelopt.experience import Attempt
from accelopt.knob_space import KnobSpec, Space
from accelopt.nodes import Action, Job, Plan, Rewrite, Trials, Want

KERNEL = 'import nki\n\n\ndef kernel(x):\n    """{Of} one tile [0]."""\n    return x\n'
ROW = {"category": "memory", "resource": "dma", "share": "65%", "root_cause": "rows are read twice",
       "fixes": ["hoist"]}  # fmt: skip
LIMIT = Bottleneck(category="memory", resource="dma", share=0.9, reason="rows are read twice")
BRIEF = Brief(view(), 0, LIMIT, (LIMIT,))
ATTEMPT = Attempt(round_num=1, worker_id=0, root_cause="x", bottleneck_category="memory")
PAIR = SlowFastPair(experience(slow_kernel="slow", fast_kernel="fast"))
SPACE = Space(
    kernel="k", knobs=(KnobSpec(name="by", type="int", allowed=(1, 3)),
                       KnobSpec(name="way", type="str", allowed=("direct", "turned"))),
)  # fmt: skip
JOB = Job(0, 1, Want.BUILD, view().node, focus="expert", trials=Trials("It pays."))
RULES = view(
    suggestions=(
        Suggestion(
            "R1", Action(change=Rewrite(move="m", parameters={}, sentence="M."), method="m"), 1.0
        ),
    )
)


async def bottlenecks(model):
    [found] = await Developer(model, model, model, PROMPTS).judge(view(), 3)
    return found.resource, found.share, found.methods


async def reflexion(model):
    made = GeneratedKernel(KERNEL, Plan(sentence="Hoist."))
    found = await Developer(model, model, model, PROMPTS).reflect(BRIEF, ATTEMPT, made)
    return found and found.lessons


async def generated(model):
    found = await Developer(model, model, model, PROMPTS).generate(BRIEF)
    return found.source or found.reason


async def planned(model):
    found = (await Planner(model, PROMPTS).plan(RULES, 0, 1)).change
    if not isinstance(found, Plan):
        return found.sentence
    return found.sentence, found.method, found.places, "read twice" in found.text


async def written(model):
    found = await Executor(model, model, PROMPTS).implement(view(), Plan(sentence="Hoist."), 0, 0)
    return found.source or found.reason


async def mended(model):
    failure = Failure("def kernel(x):\n    return\n", "err: no value", 1)
    found = await Executor(model, model, PROMPTS).repair(view(), Plan(sentence="H."), 0, 0, failure)
    return found.source or found.reason


async def learned(model):
    found = await Summarizer(model, PROMPTS["summarizer"]).summarize(PAIR)
    return found.title, found.summary and "read once" in found.summary


async def listed(model):
    found = await Lister(model, model, PROMPTS).candidates(view(), 3, {"hoist": ""})
    return [(one.method, one.code.strip()) for one in found.candidates]


async def relabelled(model):
    steps = [WrittenKernel("lift", "out of the loop", KERNEL)]
    said = json.loads(await Lister(model, model, PROMPTS).relabel(view(), {"hoist": ""}, steps))
    return [{name: row[name] for name in STEP} for row in said]


async def configured(model):
    return (await ExpertModel(model, PROMPTS["expert"]).propose(JOB, SPACE, view())).values


PLAN = {"title": "load once", "change": "hoist 12, 14", "plan": "x is read twice."}
NESTED = {"Title": "load once", "Change": {"method": "hoist", "lines": [12, 14]},
          "plan": "It is read twice."}  # fmt: skip
PARTED = {"title": "load once", "change": "hoist", "lines": [12, 14], "plan": "It is read twice."}
LESSON = {"title": "Load once", "summary": "Rows are read once."}
STEP = {"index": 0, "existed": "yes", "method": "hoist"}
POINT = {"by": 3, "way": "direct"}
WRITTEN = {"method": "hoist", "detail": "once", "code": KERNEL}
ROLES = {
    "judge": (bottlenecks, ([ROW], {"bottlenecks": [ROW]}, ROW, {"Root Cause": "x", **ROW},
                           {**ROW, "fixes": {"first": "hoist"}}),
              ("dma", 0.65, ("hoist",))),
    "reflector": (reflexion, ({"lessons": "read once", "tryPatterns": ["hoist"]},
                              {"reflexion": {"Lessons": ["read once"]}}), ("read once",)),
    "planner": (planned, (PLAN, [PLAN], NESTED, {"plans": [PLAN]}, PARTED), ("load once", "hoist", (12, 14), True)),
    "planner by rule": (planned, ({"rule": "R1"}, {"answer": {"Rule": "R1"}}), "M."),
    "summarizer": (learned, (LESSON, [LESSON]), ("**Load once**", True)),
    "lister": (listed, ([WRITTEN], {"candidates": [WRITTEN]}), [("hoist", KERNEL.strip())]),
    "relabeler": (relabelled, ([STEP], {"steps": [STEP]}, STEP), [STEP]),
    "expert": (configured, (POINT, {"values": POINT}, [POINT], {**POINT, "why": "it fits"},
                            {"by": "3", "way": " Direct"}), POINT),
    "executor": (written, ({"explanation": "short", "code": KERNEL},), KERNEL),
    "fixer": (mended, ({"code": KERNEL},), KERNEL),
    "generator": (generated, ({"change": "hoist", "code": KERNEL},), KERNEL),
}  # fmt: skip


def forms(value):
    """The same value as models write it."""
    text = json.dumps(value, indent=1)
    fence = f"```json\n{text}\n```"
    words = text.replace("0,\n", "0, // the first\n").replace(": 3,", ": 3,  # three\n")
    return {
        "bare": text,
        "fenced": f"Here it is.\n{fence}\nThat is all.",
        "fence without a tag": f"```\n{json.dumps({'result': {'answer': value}})}\n```",
        "quoted": "You wrote:\n" + "".join(f"> {line}\n" for line in text.splitlines()),
        "as a text": json.dumps(text),
        "fence in a list": "1. This:\n\n" + "".join(f"     {line}\n" for line in fence.splitlines()),
        "in prose": f"Of [0, 8) in lines [12, 14] I think {text} is it, isn't it?",
        "trailing comma, no end": text.replace("\n}", ",\n}").replace("\n]", ",\n]")[:-1],
        "python": repr(value),
        "python and JSON": repr(value).replace("'", '"', 2),
        "remarks": f"```json\n// what I found\n{words}\n```",
        "two answers": f"{json.dumps({'by': 1, 'way': 'turned'})}\nNo, better:\n{text}",
        "other signs": f"\ufeff{text}".replace("\n ", "\n\u00a0"),
        "after thoughts": f"<think>{{ [ hm</think>\n{text}\nüñ→ 漢",
        "between thoughts": f"no {{\"by\": 1}}</think>{text}<Thinking>was that so?</Thinking>",
    }  # fmt: skip


def asked(work, *answers):
    """What a role makes of these answers, the last of them as often as it asks, and what it asked."""

    async def use(server):
        endpoint = Endpoint(config(server), InMemory(), Ledger())
        try:
            return await work(endpoint)
        finally:
            await endpoint.close()

    turns = [*answers]
    with ScriptedServer(lambda _: turns.pop(0) if len(turns) > 1 else turns[0]) as server:
        found = asyncio.run(use(server))
        return found, [request["messages"][-1]["content"] for request in server.requests]


@pytest.mark.parametrize("form", forms({}))
@pytest.mark.parametrize("role", ROLES)
def test_every_role_reads_every_form_at_once(role, form):
    work, values, expected = ROLES[role]
    for value in values:
        found, requests = asked(work, forms(value)[form])
        assert (found, len(requests)) == (expected, 1), value


UNREAD = {
    "refusal": "I'm sorry, but I can't help with that.",
    "wrong keys": '{"diagnosis": "it is slow", "answer": 42}',
    "numbers": "[1, 2, 3]",
    "a kernel": f"```python\n{KERNEL}```",
    "cut off": '[{"method": "hoist", "code": "def kernel(',
    "no numbers": '[{"method": "a", "code": NaN, "by": NaN, "index": NaN}]',
    "one row spoiled": '[{"method": "a", "index": 0}, {"method": b c}]',
    "huge": "{" * 50_000 + "no" * 150_000,
    "base64": "aW1wb3J0IG5raQoKCmRlZiBrZXJuZWwoeCk6CiAgICAiIiJ7T2Z9IG9uZSB0aWxlIFswXS4iIiIK",
    "unicode": "\u202e{\u200b\u201c\u0000\ud83d\ude00",
}


@pytest.mark.parametrize("odd", UNREAD)
@pytest.mark.parametrize(
    "role", ["judge", "reflector", "summarizer", "lister", "relabeler", "expert"]
)
def test_what_cannot_be_read_is_told_in_a_sentence_and_asked_for_again(role, odd):
    work, values, expected = ROLES[role]
    found, (_, again) = asked(work, UNREAD[odd], json.dumps(values[0]))
    assert found == expected
    said = again.rpartition("Your answer could not be read: ")[2]
    assert said.endswith("Answer again in the form that was asked for, and nothing else.")
    assert len(said) < 600 and len(said.splitlines()) == 1


@pytest.mark.parametrize("odd", [name for name in UNREAD if name != "a kernel"])
@pytest.mark.parametrize("role", ["executor", "fixer", "generator"])
def test_an_answer_without_a_kernel_fails_with_that_reason(role, odd):
    found, _ = asked(ROLES[role][0], UNREAD[odd])
    assert "held no code block with the kernel" in found


def test_a_worker_may_answer_with_a_diff():
    """The same reader as for executors; a worker's diff was no kernel."""
    old, new = view().kernel, view().kernel + "# once\n"
    diff = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "a", "b"))
    assert asked(generated, f"```diff\n{diff}```")[0] == new
    refused = asked(generated, f"```diff\n{diff.replace(old.splitlines()[-1], 'nothing')}```")[0]
    assert refused == "the diff in the reply does not apply to the kernel"


@pytest.mark.parametrize("odd", ["refusal", "unicode", "base64"])
def test_a_planner_that_names_nothing_is_told_so_and_writes_for_no_executor(odd):
    """ "I can't help with that" was a plan, of which the executor was asked for every sample."""
    found, (_, again) = asked(
        planned, UNREAD[odd], "1. Title：load once\n2. Change：hoist 12, 14\n\nread twice"
    )
    assert found == ("load once", "hoist", (12, 14), True)
    assert "Your answer was refused: It has no line `Title:`" in again

    async def work(model):
        draft = await Planner(model, PROMPTS).plan(view(), 0, 1)
        return draft.change, draft.failed

    assert asked(work, UNREAD["refusal"])[0] == (None, True)


@pytest.mark.parametrize("open_end", ["<think>Title: a\nChange: fuse 1", "<thought>hm</thought>"])
def test_thoughts_alone_are_no_answer(open_end):
    """The lines of a thought were taken for those of the plan."""
    found, (_, again) = asked(
        planned, open_end, "Title: load once\nChange: hoist 12, 14\nread twice"
    )
    assert found == ("load once", "hoist", (12, 14), True)
    assert "answer" in again.lower() and len(again) < 400


@pytest.mark.parametrize("space", ["\u00a0", "\u202f"])
def test_code_with_the_spaces_of_a_page_is_code(space):
    answer = (
        "    ```python\n"
        + KERNEL.replace("    ", 4 * space).replace("import", "\ufeffimport")
        + "    ```"
    )
    assert asked(written, answer)[0] == KERNEL


@pytest.mark.parametrize("mark", ["> ", ">", "> > ", " > "])
@pytest.mark.parametrize("fence", ["```python\n{}```\n", "{}", "Title: hoist\n\n~~~\n{}~~~\n"])
def test_code_that_is_quoted_is_code(mark, fence):
    """As in an e-mail; a line of code by itself may begin with the sign."""
    kernel = KERNEL.replace("return x", "y = (x\n> 0)\n    return x")
    lines = fence.format(kernel).splitlines()
    assert asked(written, "So:\n" + "\n".join(mark + line for line in lines))[0] == kernel
    assert asked(written, fence.format(kernel))[0] == kernel


@pytest.mark.parametrize(
    "said", ["Rule R1", "**Rule:** `R1`", "R1", "Rule: 1", "Rule: [R1], at once"]
)
def test_a_rule_is_chosen_in_other_words(said):
    assert asked(planned, said) == ("M.", [asked(planned, said)[1][0]])


def test_a_planner_may_say_that_nothing_is_left_or_just_write_the_kernel():
    async def work(model):
        draft = await Planner(model, PROMPTS).plan(view(), 0, 1)
        return draft.reason or draft.change.sentence, draft.failed

    for said, why in (
        ("Nothing left.", "it says no more"),
        ("**Nothing is left**\nAt its bound", "At its bound"),
    ):
        assert asked(work, said)[0] == (f"nothing is left: {why}", False)
    assert asked(work, f"```python\n{view().kernel}```")[0] == ("the planner's own kernel", False)


def test_a_planner_hears_that_there_is_no_such_rule():
    """Its line used to go to the executor as a plan."""
    found, (_, again) = asked(planned, "Rule: R7", "Rule: R1")
    assert found == "M." and "There is no rule R7; there are: R1." in again
