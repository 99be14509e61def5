"""`--developer agent` on toy kernels: a scripted model at a real bench, within its budgets, continued and
replayed."""

import asyncio
import json

import drive
import pytest
import toy
from scripted_server import Scripted, ScriptedServer

from accelopt.agents.bench_agent import AgentBudget
from accelopt.agents.budget import Budget, Ledger
from accelopt.errors import ConfigError
from accelopt.search.strategy import Settings
from accelopt.stages.config import Options
from accelopt.stages.live_board import board_for, watcher_of

ONE_ROUND = Settings(iterations=1, beam=1, plans=1, samples=1)
AGENT = AgentBudget(evaluations=20, tokens=100_000)


def call(tool, **arguments):
    return tool, json.dumps(arguments)


STEPS = (
    (call("profile"),),
    (call("write", text=toy.kernel(50)), call("check"), call("submit", change="half of it")),
    (call("write", text=toy.kernel(5, "WRONG = 1")), call("submit", change="too much")),
    (call("edit", old="WRONG = 1", new="pass"), call("remember", note="WRONG does not pay")),
    (call("submit", change="less still"), call("recall", about="wrong")),
)


def agent(steps=STEPS, last="COST is the limit now.", output_tokens=50):
    """A model that takes these steps, turn by turn, and then ends."""

    def respond(request):
        done = sum(message["role"] == "assistant" for message in request["messages"])
        if done < len(steps):
            return Scripted("", tool_calls=steps[done], output_tokens=output_tokens)
        return Scripted(last, output_tokens=output_tokens)

    return respond


def run(folder, url, agent=AGENT, settings=ONE_ROUND, backend="toy:Ruleless", **given):
    found = drive.run_toy(folder, url, agent=agent, settings=settings, backend=backend, **given)
    return asyncio.run(found)


def asked(server):
    """The requests of agents."""
    return [one for one in server.requests if "at a bench" in one["messages"][0]["content"]]


def results(server):
    """What the tools answered, by the order of their calls, in the last request."""
    messages = asked(server)[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_each_version_that_is_handed_in_is_a_node(tmp_path):
    with ScriptedServer(agent()) as server:
        [outcome], _ = run(tmp_path, server.url)
    assert [(node.change.sentence, node.latency) for node in outcome.nodes] == [
        ("half of it", 50.0), ("too much", None), ("less still", 5.0),
    ]  # fmt: skip
    assert outcome.best.latency == 5.0 and outcome.changes == ["less still"]
    profile, wrote, checked, first, _, wrong, _, noted, last, recalled = results(server)
    assert profile.startswith("COST limits it: 100 ms.")
    assert wrote == "kernel.py has 3 lines now." and checked.startswith(
        "correct, 50 ms, 2.000 times"
    )
    assert first.startswith("Accepted as lineage/1.py: 50 ms") and wrong.startswith(
        "Refused. wrong_numbers"
    )
    assert last.startswith(
        "Accepted as lineage/2.py: 5 ms, 20.000 times as fast as the start and 10.000"
    )
    assert noted == "Written to notes.md." and "WRONG does not pay" in recalled
    [bench] = (tmp_path / "toy_N4").glob("iteration_*/bench_*")
    assert {path.name for path in (bench / "lineage").iterdir()} == {
        "0.py",
        "1.py",
        "1.md",
        "2.py",
        "2.md",
    }


def test_one_conversation_replaces_plans_and_samples(tmp_path):
    with ScriptedServer(agent()) as server:
        run(tmp_path, server.url)
    assert len(asked(server)) == len(STEPS) + 1
    first = server.requests[0]
    assert {tool["function"]["name"] for tool in first["tools"]} >= {
        "check",
        "profile",
        "submit",
        "edit",
    }
    assert "20 kernels judged, 100,000 tokens" in first["messages"][1]["content"]
    assert all(message["role"] != "assistant" for message in first["messages"])


def test_a_run_that_is_continued_or_replayed_asks_nothing_again(tmp_path):
    with ScriptedServer(agent()) as server:
        [first], _ = run(tmp_path / "a", server.url, budget=Budget(calls=3))
        assert len(server.requests) == 3 and first.best.latency == 50.0
        [outcome], _ = run(tmp_path / "a", server.url)
        assert len(asked(server)) == len(STEPS) + 1
    [again], _ = run(tmp_path / "b", "http://127.0.0.1:1/v1", replay=tmp_path / "a")
    assert outcome.source == again.source and again.best.latency == 5.0
    assert [n.name for n in outcome.nodes] == [n.name for n in again.nodes]


def hungry(request):
    """Tries another kernel with every turn, and never ends by itself."""
    done = sum(message["role"] == "assistant" for message in request["messages"])
    if not request.get("tools"):
        return Scripted("no more")
    cost = 90 - done
    return Scripted("", tool_calls=(call("write", text=toy.kernel(cost)), call("check")))


@pytest.mark.parametrize("limit", [None, 3])
def test_evaluations_are_bounded_also_over_continuations(tmp_path, limit):
    settings = ONE_ROUND._replace(evaluations=limit)
    with ScriptedServer(hungry) as server:
        [outcome], shop = run(tmp_path, server.url, AgentBudget(5, 3_000), settings)
        assert any("No evaluation is left" in said for said in results(server))
        requests = len(server.requests)
        run(tmp_path, server.url, AgentBudget(5, 3_000), settings)
        assert len(server.requests) == requests
    assert shop.evaluations.made == 1 + (limit or 5)  # the baseline is free
    assert outcome.best.latency == 90 - (limit or 5) + 1  # tried out, and handed in for the agent


def test_tokens_end_a_conversation_and_what_was_handed_in_counts(tmp_path):
    steps = STEPS[:2] + ((call("check"),),) * 100
    with ScriptedServer(agent(steps)) as server:
        [outcome], shop = run(tmp_path, server.url, AgentBudget(20, 1_000))
        own = shop.ledger.by_role["executor"]
        spent = own.input_tokens + own.output_tokens
        requests = len(server.requests)
        run(tmp_path, server.url, AgentBudget(20, 1_000))
        assert len(server.requests) == requests
    assert 850 <= spent <= 1_000
    assert outcome.best.latency == 50.0


def test_a_model_that_is_dead_leaves_the_work_to_the_rules(tmp_path):
    settings = ONE_ROUND._replace(iterations=3)
    [outcome], _ = run(
        tmp_path, "http://127.0.0.1:1/v1", settings=settings, backend="toy:ToyLanguage", attempts=1
    )
    assert outcome.best.latency < 50 and "answered none" in outcome.ended


def test_the_next_round_knows_what_was_tried(tmp_path):
    with ScriptedServer(agent()) as server:
        run(tmp_path, server.url, settings=ONE_ROUND._replace(iterations=2))
    second = asked(server)[len(STEPS) + 1]["messages"][1]["content"]
    assert "too much" in second and "COST = 5" in second


def test_only_strategies_that_develop_kernels_take_an_agent(tmp_path):
    with pytest.raises(ConfigError, match="strategy beam"):
        Options(developer="agent", strategy="mcgs").config(tmp_path, drive.PROMPTS.parent)
    with pytest.raises(ConfigError, match="no developer 'team'"):
        Options(developer="team").config(tmp_path, drive.PROMPTS.parent)


def test_a_round_in_which_nothing_is_handed_in_is_said_and_the_next_one_begins(tmp_path, capsys):
    case = toy.start(tmp_path / "start")
    settings = ONE_ROUND._replace(iterations=3)
    board = board_for([case], settings, Ledger())
    begun = []

    def respond(request):
        messages = request["messages"]
        if "at a bench" not in messages[0]["content"]:
            return "no optimization found"
        if not any(message["role"] == "assistant" for message in messages):
            begun.append(messages[1]["content"])
        if len(begun) < 2:
            return agent((STEPS[0],), "I see nothing to gain.")(request)
        return agent(STEPS[:2], "Half is all.")(request)

    with ScriptedServer(respond) as server:
        [outcome], _ = run(
            tmp_path / "run", server.url, settings=settings, starts=[case],
            watcher=watcher_of(board, settings),
        )  # fmt: skip
    assert len(begun) == 3 and outcome.best.latency == 50.0
    said = capsys.readouterr().err
    assert "iteration 1, the agent ended: I see nothing to gain." in said
    assert "iteration 1: the agent handed in nothing" in said
    assert "iteration 2: the agent handed in nothing" not in said


def test_two_rounds_in_which_nothing_is_handed_in_are_the_last(tmp_path):
    with ScriptedServer(agent((STEPS[0],), "Nothing.")) as server:
        [outcome], _ = run(
            tmp_path, server.url, settings=ONE_ROUND._replace(iterations=9), backend="toy:Ruleless"
        )
    assert outcome.best.latency == 100.0 and len(asked(server)) == 4  # two turns, twice


def test_a_model_that_writes_its_calls_as_text_works_at_the_bench(tmp_path):
    texts = [
        f"I try this.\n```json\n{json.dumps({'tool': name, 'arguments': json.loads(given)})}\n```"
        for turn in STEPS[:2]
        for name, given in turn
    ]

    def respond(request):
        done = sum(message["role"] == "assistant" for message in request["messages"])
        return texts[done] if done < len(texts) else "COST is the limit now."

    with ScriptedServer(respond) as server:
        [outcome], _ = run(tmp_path, server.url)
    assert [(node.change.sentence, node.latency) for node in outcome.nodes] == [
        ("half of it", 50.0)
    ]


def test_a_kernel_in_the_last_answer_is_handed_in(tmp_path):
    """Of a model that calls no tool, though it was told so once."""
    with ScriptedServer(agent((), f"Faster:\n```python\n{toy.kernel(30)}```")) as server:
        [outcome], _ = run(tmp_path, server.url)
    told = asked(server)[1]["messages"][-1]["content"]
    assert "called no tool" in told and "submit" in told and len(asked(server)) == 2
    assert [(node.change.sentence, node.latency) for node in outcome.nodes] == [
        ("the kernel of its author's last answer", 30.0)
    ]
