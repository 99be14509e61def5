"""Graph search with a model: each method that relieves the bottleneck, allowed alone and asked for once."""

import asyncio
import json
import re
from collections import Counter

import models
import toy
from drive import run_toy
from scripted_server import ScriptedServer

from accelopt.evaluation import Bottleneck, Diagnosis
from accelopt.search.strategy import Settings

METHODS = ("keep", "tile", "columns", "at")


class Limited(toy.Ruleless):
    """Toys without a rule that DMA limits, in a language that has methods."""

    name = "nki"

    async def diagnose(self, node):
        found = Bottleneck(
            category="memory", resource="dma", share=0.9, reason="rows are short", methods=METHODS
        )
        return Diagnosis(origin="toy", bottlenecks=(found,))


def respond(request):
    """Prose, a wrong kernel, a broken one, and a good one that is the same whatever it is made of."""
    if models.role_of(request) != "executor":
        return "**Less is faster**\n\nA smaller COST."
    answers = {"keep": "It cannot be done.", "tile": toy.kernel(40, "WRONG = 1"),
               "columns": toy.kernel(40, "BROKEN = 1"), "at": toy.kernel(30)}  # fmt: skip
    text = answers[asked(request)[1]]
    return f"```python\n{text}```" if "COST" in text else text


def asked(request):
    """The cost of the kernel that an executor is shown, and the method that it is allowed."""
    text = request["messages"][-1]["content"]
    [cost] = re.findall(r"COST = ([\d.]+)", text)
    [method] = re.findall(r"Use one method and no other, (\w+):", text)
    return cost, method


def test_every_answer_closes_its_action_and_is_charged_once(tmp_path):
    settings = Settings(strategy="mcgs", iterations=9, evaluations=40, samples=1, fixer_steps=1)
    with ScriptedServer(respond) as server:
        [outcome], shop = asyncio.run(
            run_toy(tmp_path, server.url, settings=settings, backend=f"{__name__}:Limited")
        )
    requests = [one for one in server.requests if models.role_of(one) == "executor"]
    assert Counter(map(asked, requests)) == {
        (cost, method): 1 for cost in ("100.0", "30") for method in METHODS
    }
    repairs = [one for one in server.requests if models.role_of(one) == "fixer"]
    assert len(repairs) == 2 * len(("tile", "columns"))  # none of what cannot be done
    assert outcome.best.latency == 30
    [place] = tmp_path.glob("*/search_state.json")
    assert json.loads(place.read_text())["ended"] == "nothing is left to try"
    events = [json.loads(line) for line in place.with_name("events.jsonl").open()]
    rewards = {(event["canonical_method"], event["reward"]) for event in events}
    assert {("keep", None), ("tile", -0.7), ("columns", -0.7)} < rewards
    assert len(events) == len(requests)
    once = {"the baseline", "wrong", "broken", "right"}  # the second time it is known
    assert shop.evaluations.made == len(once)
