"""The model runtime against a scripted server on a real socket."""

import asyncio
import json
import time

import pytest
from scripted_server import Scripted, ScriptedFault, ScriptedServer

from accelopt.agents.budget import Budget, Ledger
from accelopt.agents.calls import CallFailed, InMemory, Question, Tool
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.llm import Endpoint
from accelopt.errors import BudgetExhausted, ConfigError
from accelopt.kernels.language import LanguageOptions
from accelopt.stages.exchange_journal import JournalledExchanges, read_recording
from accelopt.stages.workshop import WorkshopOptions, open_workshop
from accelopt.store import Journal


def config(server, **settings):
    settings = {"timeout": 600.0, "backoff": 0.01, "attempts": 4, **settings}
    return ModelConfig(url=server.url, model=settings.pop("model", "m"), **settings)


def question(label="planner/x/0", user="hello"):
    return Question("planner", label, "You plan.", user)


async def ask(endpoint, *questions, **kwargs):
    try:
        return await asyncio.gather(*(endpoint.ask(q, **kwargs) for q in questions))
    finally:
        await endpoint.close()


def answered(server, *questions, exchanges=None, ledger=None, replay=False, tools=(), **settings):
    """What one endpoint answers these questions, or a question."""
    kept, spent = exchanges or InMemory(), ledger or Ledger()
    endpoint = Endpoint(config(server, **settings), kept, spent, replay=replay)
    return asyncio.run(ask(endpoint, *(questions or [question()]), tools=tools, limit=2))


def test_an_answer_with_reasoning_is_kept_and_counted():
    with ScriptedServer(lambda _: Scripted("an answer", reasoning="because")) as server:
        exchanges, ledger = InMemory(), Ledger()
        [answer] = answered(
            server, exchanges=exchanges, ledger=ledger, price_input=1.0, price_output=10.0
        )
    assert answer.text == "an answer"
    assert answer.reasoning == "because"
    [exchange] = exchanges.kept.values()
    assert exchange.request["messages"][-1] == {"role": "user", "content": "hello"}
    assert ledger.total.calls == 1
    assert ledger.total.money == pytest.approx((100 * 1 + 50 * 10) / 1e6)


def test_inline_thinking_is_reasoning_and_not_text():
    with ScriptedServer(lambda _: "<think>hm</think>\nfinal") as server:
        [answer] = answered(server)
    assert answer == ("final", "hm")


def test_retry_after_is_honoured():
    with ScriptedServer(lambda _: "fine", [ScriptedFault("status", 429, "0.6")]) as server:
        started = time.monotonic()
        answered(server)
        assert time.monotonic() - started >= 0.6


def test_a_bad_request_is_not_retried():
    with ScriptedServer(lambda _: "fine", [ScriptedFault("status", 400)]) as server:
        with pytest.raises(CallFailed, match="400"):
            answered(server)
        assert len(server.requests) == 1


def test_concurrency_is_bounded():
    with ScriptedServer(lambda _: Scripted("fine", seconds=0.05)) as server:
        answered(server, *(question(f"planner/x/{i}") for i in range(12)), concurrency=3)
        assert server.most_at_once <= 3
        assert len(server.requests) == 12


def test_answered_calls_are_not_made_again_not_even_the_unusable_ones():
    exchanges = InMemory()
    with ScriptedServer(lambda _: "fine", [ScriptedFault("empty")]) as server:
        answered(server, exchanges=exchanges)
        assert len(server.requests) == 2
        ledger = Ledger()
        [answer] = answered(server, exchanges=exchanges, ledger=ledger)
        assert len(server.requests) == 2
        assert answer.text == "fine"
        assert ledger.total.calls == 2
        assert answered(server, exchanges=exchanges, replay=True) == [answer]
        with pytest.raises(CallFailed, match="recording"):
            answered(server, question("planner/x/1"), exchanges=exchanges, replay=True)


def test_the_same_prompt_under_another_label_is_another_draw():
    with ScriptedServer(lambda _: "fine") as server:
        answered(server, question("planner/x/0"), question("planner/x/1"))
        assert len(server.requests) == 2


def test_claude_like_models_think():
    with ScriptedServer(lambda _: "fine") as server:
        answered(server, model="anthropic/claude-x")
        [request] = server.requests
    assert request["temperature"] == 1.0
    assert request["thinking"] == {"type": "enabled", "budget_tokens": 10_000}
    assert request["max_tokens"] > 10_000


def test_optional_settings_reach_the_endpoint():
    with ScriptedServer(lambda _: "fine") as server:
        settings = {"temperature": 0.3, "max_tokens": 77, "reasoning_effort": "low"}
        answered(server, headers={"X-Team": "kernels"}, api_key="secret", **settings)
        [request], [headers] = server.requests, server.headers
    assert (request["temperature"], request["max_tokens"]) == (0.3, 77)
    assert request["reasoning_effort"] == "low"
    assert headers["x-team"] == "kernels"
    assert headers["authorization"] == "Bearer secret"
    assert "secret" not in repr(config(server, api_key="secret"))


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
        tool = Tool("check", "Checks.", "source", check)
        [answer] = answered(server, exchanges=exchanges, tools=(tool,))
        assert answer.text == "done"
        assert asked == ["x", "x"]
        made = len(server.requests)
        assert made == 4
        assert answered(server, exchanges=exchanges, tools=(tool,)) == [answer]
        assert len(server.requests) == made


def test_settings_that_the_endpoint_refuses_are_left_out_from_then_on():
    refusal = ScriptedFault(
        "status", 400, message="Unsupported value: 'temperature'; use max_tokens ..."
    )
    with ScriptedServer(lambda _: "fine", [refusal]) as server:
        answers = answered(server, question("a"), question("b"), temperature=0.3, max_tokens=9)
        assert [answer.text for answer in answers] == ["fine", "fine"]
        last = server.requests[-1]
    assert "temperature" not in last and "max_tokens" not in last
    assert last["max_completion_tokens"] == 9


ODD = {
    "a lone surrogate": Scripted("odd \ud800 text"),
    "NUL": Scripted("odd \x00 text"),
    "a surrogate in the reasoning": Scripted("text", reasoning="\udfff"),
    "infinitely many tokens": Scripted("text", output_tokens=float("inf")),
    "no number of tokens": Scripted("text", output_tokens=float("nan")),
    "very many tokens": Scripted("text", output_tokens=10**30),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_any_text_is_journalled_and_read_back(odd, tmp_path):
    def asked(server):
        with Journal(tmp_path / "journal.jsonl") as journal:
            exchanges = JournalledExchanges(journal, tmp_path / "transcripts")
            return answered(server, exchanges=exchanges)

    with ScriptedServer(lambda _: odd) as server:
        [first] = asked(server)
        [second] = asked(server)
        assert len(server.requests) == 1
    assert first == second
    assert "text" in first.text
    json.dumps(first.text).encode()
    assert (first.text + first.reasoning).encode()  # UTF-8 has all of it
    [exchange] = read_recording(tmp_path).values()
    assert 0 <= exchange.output_tokens < 1 << 40


def test_an_answer_that_nobody_can_read_is_not_cut_but_asked_for_again():
    answers = iter(["x" * 5_000_000, "short"])
    with ScriptedServer(lambda _: next(answers)) as server:
        exchanges = InMemory()
        [answer] = answered(server, exchanges=exchanges)
    assert answer.text == "short"
    assert "too long: 5,000,000 characters" in [e.problem for e in exchanges.kept.values()]


def test_a_truncated_answer_is_said_to_be_and_asked_for_again_shorter():
    answers = iter([Scripted("```python\nhalf a ker", finish="length"), Scripted("whole")])
    with ScriptedServer(lambda _: next(answers)) as server:
        exchanges, ledger = InMemory(), Ledger()
        [answer] = answered(server, exchanges=exchanges, ledger=ledger)
        again = server.requests[1]["messages"]
        assert again[:-1] == server.requests[0]["messages"]
        assert "cut off" in again[-1]["content"] and "shorter" in again[-1]["content"]
        assert answered(server, exchanges=exchanges, replay=True) == [answer]
    assert answer.text == "whole"
    assert ledger.total.calls == 2
    assert any(exchange.truncated for exchange in exchanges.kept.values())


def test_answers_that_stay_truncated_fail_the_call_and_say_why():
    with ScriptedServer(lambda _: Scripted("half", finish="length")) as server:
        with pytest.raises(CallFailed, match=r"truncated.*50 tokens"):
            answered(server)
        assert len(server.requests) == 3


async def checked(source):
    return "ok"


CHECK = Tool("check", "Checks.", "source", checked)


@pytest.mark.parametrize("name", ["check", "chekc"])
def test_a_model_that_only_calls_tools_is_asked_for_its_answer_in_the_end(name):
    def respond(request):
        return Scripted("", tool_calls=((name, "{}"),)) if "tools" in request else "the answer"

    with ScriptedServer(respond) as server:
        [answer] = answered(server, tools=(CHECK,))
        assert len(server.requests) == 5
    assert answer.text == "the answer"


def test_a_key_that_a_server_echoes_is_kept_nowhere(tmp_path):
    key = "sk-very-secret-key"
    replies = iter([ScriptedFault("status", 500, message=f"bad key {key}"), None])
    echo = Scripted(f"your key is {key}", reasoning=key, tool_calls=(("check", key),))

    def respond(request):
        tried = any(message["role"] == "tool" for message in request["messages"])
        return f"final {key}" if tried else echo

    with ScriptedServer(respond, replies) as server:
        with Journal(tmp_path / "journal.jsonl") as journal:
            exchanges = JournalledExchanges(journal, tmp_path / "transcripts")
            [answer] = answered(server, exchanges=exchanges, tools=(CHECK,), api_key=key)
        prompts = json.dumps(server.requests)
    kept = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) >= 2
    assert all(key not in text for text in (*kept, prompts, *answer))


def test_a_refused_key_is_not_printed_and_not_tried_again():
    key = "sk-very-secret-key"
    server = ScriptedServer(lambda _: "fine", [ScriptedFault("status", 401, message=f"no {key}")])
    with server, pytest.raises(ConfigError, match="refuses the key") as raised:
        answered(server, api_key=key)
    assert key not in str(raised.value)
    assert len(server.requests) == 1


def test_the_budget_bounds_a_run_and_not_a_process(tmp_path):
    async def resumed(server, number):
        language = LanguageOptions(folder=tmp_path / "kernels")
        options = WorkshopOptions(language, workers=1, budget=Budget(tokens=400))
        async with open_workshop(tmp_path / "run", options) as workshop:
            model = workshop.calls.model(config(server))
            for turn in range(9):
                await model.ask(question(f"planner/{number}/{turn}"))

    with ScriptedServer(lambda _: "fine") as server:
        for number in range(3):
            with pytest.raises(BudgetExhausted):
                asyncio.run(resumed(server, number))
        assert len(server.requests) == 3  # of 150 tokens each
