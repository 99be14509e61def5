"""The model runtime against a scripted server on a real socket."""

import asyncio
import itertools
import json
import time

import pytest

from accelopt.agents.budget import Budget, Ledger
from accelopt.agents.calls import CallFailed, InMemory, Question, Tool
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.llm import Endpoint
from accelopt.agents.scripted_server import FAULTS, Fault, Scripted, ScriptedServer
from accelopt.errors import BudgetExhausted, ConfigError


def config(server, **settings):
    settings = {"timeout": 1.0, "backoff": 0.01, "attempts": 4, **settings}
    return ModelConfig(url=server.url, model=settings.pop("model", "m"), **settings)


def question(label="planner/x/0", user="hello"):
    return Question("planner", label, "You plan.", user)


async def ask(endpoint, *questions, **kwargs):
    try:
        return await asyncio.gather(*(endpoint.ask(q, **kwargs) for q in questions))
    finally:
        await endpoint.close()


def test_an_answer_with_reasoning_is_kept_and_counted():
    with ScriptedServer(lambda _: Scripted("an answer", reasoning="because")) as server:
        exchanges, ledger = InMemory(), Ledger()
        endpoint = Endpoint(config(server, price_input=1.0, price_output=10.0), exchanges, ledger)
        [answer] = asyncio.run(ask(endpoint, question()))
    assert answer.text == "an answer"
    assert answer.reasoning == "because"
    [exchange] = exchanges.kept.values()
    assert exchange.request["messages"][-1] == {"role": "user", "content": "hello"}
    assert ledger.total.calls == 1
    assert ledger.total.money == pytest.approx((100 * 1 + 50 * 10) / 1e6)


def test_inline_thinking_is_reasoning_and_not_text():
    with ScriptedServer(lambda _: "<think>hm</think>\nfinal") as server:
        [answer] = asyncio.run(ask(Endpoint(config(server), InMemory(), Ledger()), question()))
    assert answer == ("final", "hm")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.kind}-{f.status}")
def test_each_fault_is_survived(fault):
    with ScriptedServer(lambda _: "fine", [fault]) as server:
        [answer] = asyncio.run(
            ask(Endpoint(config(server, timeout=0.5), InMemory(), Ledger()), question())
        )
        assert len(server.requests) == 2
    assert answer.text == "fine"


@pytest.mark.parametrize("kind", ["status", "garbled", "empty", "reset"])
def test_a_fault_that_stays_fails_the_call_after_all_attempts(kind):
    with ScriptedServer(lambda _: "fine", itertools.repeat(Fault(kind, 503))) as server:
        with pytest.raises(CallFailed):
            asyncio.run(ask(Endpoint(config(server), InMemory(), Ledger()), question()))
        assert len(server.requests) == 4


def test_retry_after_is_honoured():
    with ScriptedServer(lambda _: "fine", [Fault("status", 429, "0.6")]) as server:
        started = time.monotonic()
        asyncio.run(ask(Endpoint(config(server), InMemory(), Ledger()), question()))
        assert time.monotonic() - started >= 0.6


def test_a_refused_key_is_one_sentence_and_not_retried():
    with ScriptedServer(lambda _: "fine", [Fault("status", 401)]) as server:
        with pytest.raises(ConfigError, match="refuses the key"):
            asyncio.run(ask(Endpoint(config(server), InMemory(), Ledger()), question()))
        assert len(server.requests) == 1


def test_a_bad_request_is_not_retried():
    with ScriptedServer(lambda _: "fine", [Fault("status", 400)]) as server:
        with pytest.raises(CallFailed, match="400"):
            asyncio.run(ask(Endpoint(config(server), InMemory(), Ledger()), question()))
        assert len(server.requests) == 1


def test_concurrency_is_bounded():
    with ScriptedServer(lambda _: Scripted("fine", seconds=0.05)) as server:
        endpoint = Endpoint(config(server, concurrency=3), InMemory(), Ledger())
        asyncio.run(ask(endpoint, *(question(f"planner/x/{i}") for i in range(12))))
        assert server.most_at_once <= 3
        assert len(server.requests) == 12


def test_answered_calls_are_not_made_again_not_even_the_unusable_ones():
    exchanges = InMemory()
    with ScriptedServer(lambda _: "fine", [Fault("empty")]) as server:
        asyncio.run(ask(Endpoint(config(server), exchanges, Ledger()), question()))
        assert len(server.requests) == 2
        ledger = Ledger()
        [answer] = asyncio.run(ask(Endpoint(config(server), exchanges, ledger), question()))
        assert len(server.requests) == 2
        assert answer.text == "fine"
        assert ledger.total.calls == 2
        replay = Endpoint(config(server), exchanges, Ledger(), replay=True)
        assert asyncio.run(ask(replay, question()))[0] == answer
        with pytest.raises(CallFailed, match="recording"):
            asyncio.run(ask(replay, question("planner/x/1")))


def test_the_same_prompt_under_another_label_is_another_draw():
    with ScriptedServer(lambda _: "fine") as server:
        endpoint = Endpoint(config(server), InMemory(), Ledger())
        asyncio.run(ask(endpoint, question("planner/x/0"), question("planner/x/1")))
        assert len(server.requests) == 2


def test_the_budget_stops_further_calls():
    with ScriptedServer(lambda _: "fine") as server:
        endpoint = Endpoint(config(server), InMemory(), Ledger(Budget(tokens=100)))

        async def two():
            await endpoint.ask(question("planner/x/0"))
            await endpoint.ask(question("planner/x/1"))

        with pytest.raises(BudgetExhausted, match="tokens"):
            asyncio.run(two())
        assert len(server.requests) == 1


def test_claude_like_models_think():
    with ScriptedServer(lambda _: "fine") as server:
        endpoint = Endpoint(config(server, model="anthropic/claude-x"), InMemory(), Ledger())
        asyncio.run(ask(endpoint, question()))
        [request] = server.requests
    assert request["temperature"] == 1.0
    assert request["thinking"] == {"type": "enabled", "budget_tokens": 10_000}
    assert request["max_tokens"] > 10_000


def test_optional_settings_reach_the_endpoint():
    with ScriptedServer(lambda _: "fine") as server:
        endpoint = Endpoint(
            config(
                server,
                temperature=0.3,
                max_tokens=77,
                reasoning_effort="low",
                headers={"X-Team": "kernels"},
                api_key="secret",
            ),
            InMemory(),
            Ledger(),
        )
        asyncio.run(ask(endpoint, question()))
        [request], [headers] = server.requests, server.headers
    assert (request["temperature"], request["max_tokens"]) == (0.3, 77)
    assert request["reasoning_effort"] == "low"
    assert headers["x-team"] == "kernels"
    assert headers["authorization"] == "Bearer secret"
    assert "secret" not in json.dumps(endpoint.config.without_secrets())
    assert "secret" not in repr(endpoint.config)


def test_tools_are_called_and_capped():
    asked = []

    def respond(request):
        results = [m for m in request["messages"] if m["role"] == "tool"]
        if results and "No tool calls are left" in results[-1]["content"]:
            return "done"
        return Scripted("", tool_calls=(("check", json.dumps({"source": "x"})),))

    async def check(source):
        asked.append(source)
        return "ok"

    with ScriptedServer(respond) as server:
        exchanges = InMemory()
        endpoint = Endpoint(config(server), exchanges, Ledger())
        tool = Tool("check", "Checks.", "source", check)
        [answer] = asyncio.run(ask(endpoint, question(), tools=(tool,), limit=2))
        assert answer.text == "done"
        assert asked == ["x", "x"]
        made = len(server.requests)
        assert made == 4
        again = Endpoint(config(server), exchanges, Ledger())
        assert asyncio.run(ask(again, question(), tools=(tool,), limit=2)) == [answer]
        assert len(server.requests) == made


def test_settings_that_the_endpoint_refuses_are_left_out_from_then_on():
    refusal = Fault("status", 400, message="Unsupported value: 'temperature'; use max_tokens ...")
    with ScriptedServer(lambda _: "fine", [refusal]) as server:
        endpoint = Endpoint(config(server, temperature=0.3, max_tokens=9), InMemory(), Ledger())
        answers = asyncio.run(ask(endpoint, question("a"), question("b")))
        assert [answer.text for answer in answers] == ["fine", "fine"]
        last = server.requests[-1]
    assert "temperature" not in last and "max_tokens" not in last
    assert last["max_completion_tokens"] == 9
