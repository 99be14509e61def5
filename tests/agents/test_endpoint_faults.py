"""Endpoints that fail in ways of their own: each costs one sentence, and no answer that came is asked
for or paid again."""

import asyncio
import itertools
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from scripted_server import FAULTS, Scripted, ScriptedFault, ScriptedServer
from test_llm import answered, ask, config, question

from accelopt.agents.budget import Ledger
from accelopt.agents.calls import CallFailed, Tool
from accelopt.agents.llm import Endpoint
from accelopt.errors import AcceloptError
from accelopt.stages.exchange_journal import JournalledExchanges, read_recording
from accelopt.store import Journal


def run(folder, respond, faults=(), tools=(), limit=0, **settings):
    """An answer with what was kept of it, then the same from a resumed folder: nothing is asked again."""

    def asked(server):
        ledger = Ledger()
        with Journal(folder / "journal.jsonl") as journal:
            exchanges = JournalledExchanges(journal, folder / "transcripts")
            endpoint = Endpoint(config(server, **settings), exchanges, ledger)
            [answer] = asyncio.run(ask(endpoint, question(), tools=tools, limit=limit))
        return answer, ledger.total

    with ScriptedServer(respond, faults) as server:
        first = asked(server)
        requests = len(server.requests)
        again = asked(server)
        assert len(server.requests) == requests  # the journal has all of it
    assert again[0] == first[0] and again[1] == first[1]
    return first[0], server.requests, [*read_recording(folder).values()]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}-{fault.status}")
def test_after_each_fault_a_run_resumes_without_asking_again(tmp_path, fault):
    waits = 2.0 if fault.kind in ("hang", "drip") else 600.0
    answer, requests, kept = run(tmp_path, lambda _: "fine", [fault], timeout=waits)
    assert answer.text == "fine" and len(requests) == 2
    assert all(len(exchange.problem.splitlines()) <= 1 for exchange in kept)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("html", "not JSON: '<!DOCTYPE html>"),
        ("drip", "no answer within"),
        ("cut", "incomplete"),
        ("long", "complete message body"),
        ("short", "garbled|connection lost"),  # as far as it came before the server hung up
        ("status", "status 429"),
        ("garbled", "garbled"),
        ("empty", "empty"),
        ("reset", "connection lost"),
    ],
)
def test_a_fault_that_stays_is_named_in_one_sentence(kind, said):
    waits = {"timeout": 0.1} if kind == "drip" else {}
    server = ScriptedServer(lambda _: "fine", itertools.repeat(ScriptedFault(kind)))
    with server, pytest.raises(CallFailed) as failed:
        answered(server, attempts=2, **waits)
    assert re.match("2 (attempts|unusable answers), the last: ", str(failed.value))
    assert re.search(said, str(failed.value)) and len(str(failed.value).splitlines()) == 1


def test_a_redirect_is_said_with_where_it_leads(tmp_path):
    place = "http://127.0.0.1:1/login"
    for status in (301, 302, 303, 307, 308):
        server = ScriptedServer(lambda _: "fine", [ScriptedFault("status", status, location=place)])
        with server, pytest.raises(AcceloptError, match=place) as failed:
            answered(server)
        assert "url" in str(failed.value) and len(server.requests) == 1


def test_a_date_says_when_to_come_again(tmp_path):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=1.5), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    faults = [ScriptedFault("status", 429, date) for date in (past, "soon", later)]
    answer, requests, _ = run(tmp_path, lambda _: "fine", faults)
    assert answer.text == "fine" and len(requests) == 4


def trying(*calls):
    """Tools that remember what they were called with, and a model that makes these calls, then answers."""
    given, turns = [], iter([Scripted("", tool_calls=calls), Scripted("done")])

    async def check(source):
        given.append(source)
        return f"checked {source}"

    return given, (Tool("check", "checks", "source", check),), lambda _: next(turns)


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"source": "a = 1\nb = 2"}', "a = 1\nb = 2"),  # line ends as they are
        ("a = 1", "a = 1"),  # the bare text
        ('{"code": "a = 1"}', "a = 1"),
        ('"a = 1"', "a = 1"),
        ("{'source': 'a = 1',} # this", "a = 1"),
        ('```json\n{source: "a = 1"}\n```', "a = 1"),
    ],
)
def test_arguments_that_can_be_read_are(tmp_path, arguments, given):
    seen, tools, respond = trying(("check", arguments))
    answer, requests, _ = run(tmp_path, respond, tools=tools, limit=2)
    assert seen[0] == given and answer.text == "done"
    call = requests[1]["messages"][-2]["tool_calls"][0]
    assert isinstance(json.loads(call["function"]["arguments"]), dict)  # servers read it once more


@pytest.mark.parametrize("arguments", ['{"source": "a = 1', "{", '{"source": a}', "[1,", "{}", ""])
def test_arguments_that_cannot_be_read_are_answered_in_a_sentence(tmp_path, arguments):
    seen, tools, respond = trying(("check", arguments))
    answer, requests, _ = run(tmp_path, respond, tools=tools, limit=2)
    assert not seen and answer.text == "done"
    said = requests[1]["messages"][-1]["content"]
    assert "check" in said and '{"source": ' in said and len(said.splitlines()) == 1
    call = requests[1]["messages"][-2]["tool_calls"][0]
    assert isinstance(json.loads(call["function"]["arguments"]), dict)


def test_calls_of_one_id_are_all_answered_each_its_own(tmp_path):
    calls = [
        {"id": "call_0", "type": "function",
         "function": {"name": "check", "arguments": json.dumps({"source": name})}}
        for name in ("a", "b")
    ]  # fmt: skip
    twice = {"choices": [{"message": {"content": None, "tool_calls": calls}}]}
    turns = iter([Scripted("", body=json.dumps(twice).encode()), Scripted("done")])
    seen, tools, _ = trying()
    answer, requests, _ = run(tmp_path, lambda _: next(turns), tools=tools, limit=4)
    told = [message for message in requests[1]["messages"] if message["role"] == "tool"]
    assert set(seen) == {"a", "b"} and answer.text == "done"
    assert len({message["tool_call_id"] for message in told}) == 2


def test_a_reply_of_reasoning_alone_is_asked_for_its_answer(tmp_path):
    turns = iter([Scripted("", reasoning="I think it is 7."), Scripted("7")])
    answer, requests, kept = run(tmp_path, lambda _: next(turns))
    assert answer.text == "7"
    assert "reasoning" in kept[0].problem and "I think it is 7." in str(kept[0].response)
    again = requests[1]["messages"]
    assert again[:-1] == requests[0]["messages"] and "no answer" in again[-1]["content"]


def test_of_several_choices_the_first_that_says_something_counts(tmp_path):
    def choices(*texts):
        listed = [{"index": i, "message": {"content": text}} for i, text in enumerate(texts)]
        return Scripted("", body=json.dumps({"choices": listed}).encode())

    for number, texts in enumerate((("one", "two"), ("", "one"), (None, "one", "two"))):
        answer, requests, _ = run(tmp_path / str(number), lambda _, t=texts: choices(*t))
        assert answer.text == "one" and len(requests) == 1
