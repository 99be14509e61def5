"""The function tools of planners and executors, on real stage functions and toy kernels."""

import asyncio
import json
import re

import drive
import models
import pytest
import toy
from scripted_server import Scripted, ScriptedServer

from accelopt.kernels.language import LanguageOptions
from accelopt.nodes import Node
from accelopt.search.strategy import STRATEGIES, Settings
from accelopt.stages.checking_tools import NONE_LEFT, toolbox_for
from accelopt.stages.planning import view_kernel
from accelopt.stages.workshop import WorkshopOptions, open_workshop


def test_every_tool_answers_and_what_was_checked_is_kept(tmp_path):
    async def use():
        language = LanguageOptions(tmp_path / "kernels", name="toy:ToyLanguage")
        async with open_workshop(tmp_path, WorkshopOptions(language, workers=1)) as shop:
            case = toy.start(tmp_path / "start")
            source = shop.language.source(case)
            start = Node(case, source, await shop.evaluations.evaluate(case, source))
            view = await view_kernel(start, shop.language)
            toolbox = toolbox_for(shop.evaluations, shop.offline, 3)
            session = toolbox.open(view)
            tools = {tool.name: tool.call for tool in session.tools}
            assert [told.name for told in toolbox.told] == list(tools)
            said = [
                await tools["check_kernel"](toy.kernel(5)),
                await tools["check_kernel"](toy.kernel(5, "WRONG = 1")),
                await tools["profile_kernel"](toy.kernel(7)),
                await tools["profile_kernel"]("not python"),
                await tools["what_if"]("lines 2 x 0.5"),
                await tools["look_up"]("nl.load"),
                await tools["rules"](toy.kernel(90)),
            ]
            return toolbox.limit, session, said, toolbox_for(shop.evaluations, shop.offline, 0)

    limit, session, said, none = asyncio.run(use())
    right, wrong, profile, broken, half, note, rules = said
    assert (limit, none) == (3, None)
    assert right == "correct, 5 ms, 20.000 times as fast as the kernel given"
    assert wrong == "wrong_numbers: row 3 is off by 0.5\nline 3: WRONG"
    assert profile == "COST limits it: 7 ms."
    assert broken.startswith("not timed. compile_error")
    assert half == "half of COST would be 50 ms"
    assert note == "nl.load is a number."
    assert "R1: time not predicted [divide]" in rules
    assert [one.latency for one in session.checked] == [5, None, 7, None]
    assert session.best.source == toy.kernel(5)


def played(folder, answers):
    """A run of one round with one plan, whose executor gives `answers` in turn."""
    turns = iter(answers)

    def respond(request):
        if "You write" in request["messages"][0]["content"]:
            return next(turns)
        return "Lower COST."

    async def run(server):
        settings = Settings(iterations=1, beam=1, plans=1, samples=1, fixer_steps=0)
        return await drive.run_toy(
            folder, server.url, settings=settings, backend="toy:Ruleless", tools=4
        )

    with ScriptedServer(respond) as server:
        [outcome], _ = asyncio.run(run(server))
    return outcome


def checking(source):
    return Scripted("", tool_calls=(("check_kernel", json.dumps({"source": source})),))


def test_the_best_checked_kernel_counts_when_the_answer_is_worse_or_wrong(tmp_path):
    """Two profile calls took one sample from 1.46 to 2.19 (issue 20); an answer must not lose it."""
    block = "```python\n{}```"
    worse = played(tmp_path / "w", [checking(toy.kernel(20)), block.format(toy.kernel(60))])
    assert worse.best.latency == 20
    wrong = played(tmp_path / "x", [checking(toy.kernel(20)), block.format(toy.kernel(5, "WRONG"))])
    assert wrong.best.latency == 20
    words = played(tmp_path / "y", [checking(toy.kernel(20)), "I have it."])
    assert words.best.latency == 20
    better = played(tmp_path / "z", [checking(toy.kernel(20)), block.format(toy.kernel(10))])
    assert better.best.latency == 10
    [node] = better.nodes
    assert [attempt.latency for attempt in node.failed] == [20]  # it was judged, so it is told


def curious(request):
    """Planners, executors and fixers that have kernels checked, several in one turn, before they answer."""
    messages = request["messages"]
    role, tried = models.role_of(request), sum(m["role"] == "tool" for m in messages)
    draw = models.number(request)
    user = next(m["content"] for m in messages if m["role"] == "user")
    if role in ("planner", "executor", "fixer") and request.get("tools") and tried < 1 + draw % 3:
        costs = [float(cost) for cost in re.findall(r"COST = ([\d.]+)", user)]
        calls = [checking(toy.kernel(round(costs[0] * (0.7 + k / 9), 3), f"x = {draw % 99}"))
                 for k in range(1 + draw % 2)]  # fmt: skip
        return Scripted("", tool_calls=tuple(call.tool_calls[0] for call in calls))
    return models.respond({**request, "messages": [messages[0], {"content": user}]})


def counted(folder, strategy, evaluations, window=4, workers=2, seconds=0.0, iterations=3):
    """The distinct kernels that were judged beside the baseline, and how the search ended."""
    folder.mkdir(parents=True)
    settings = Settings(
        iterations=iterations, beam=2, plans=2, samples=2, strategy=strategy,
        evaluations=evaluations, window=window,
    )  # fmt: skip

    async def run(server):
        return await drive.run_toy(
            folder / "run", server.url, settings=settings, tools=3, workers=workers
        )

    toy.ToyLanguage.log = folder / "log"
    toy.ToyLanguage.seconds = seconds
    try:
        with ScriptedServer(curious) as server:
            [outcome], _ = asyncio.run(run(server))
    finally:
        toy.ToyLanguage.log, toy.ToyLanguage.seconds = None, 0.0
    said = [
        message["content"]
        for request in server.requests
        for message in request["messages"]
        if message["role"] == "tool"
    ]
    return set((folder / "log").read_text().split()), outcome, said


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "evaluations", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 23))]
)
def test_evaluations_bound_what_tools_try_out_too(tmp_path, strategy, evaluations):
    judged, outcome, said = counted(tmp_path / "a", strategy, evaluations)
    assert len(judged) - 1 <= evaluations  # the baseline is free
    if outcome.ended == f"{evaluations} evaluations are spent":
        assert len(judged) - 1 == evaluations
    if strategy == "beam":
        assert outcome.ended == f"{evaluations} evaluations are spent"
        assert evaluations > 1 or NONE_LEFT in said
    if strategy in ("beam", "mcgs") and evaluations > 1:
        again, other, _ = counted(tmp_path / "b", strategy, evaluations, 4, 5, 0.002)
        assert again == judged and other.best.source == outcome.best.source
        few, *_ = counted(tmp_path / "c", strategy, evaluations, 1, 1)
        assert len(few) == len(judged)
