"""What is said of an endpoint before the first question: soon, and never more than is known."""

import asyncio
import contextlib
import re
import socket
import time

import pytest
from scripted_server import ScriptedFault, ScriptedServer

from accelopt.agents.budget import Ledger
from accelopt.agents.calls import CallFailed, InMemory, Question
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.llm import Endpoint
from accelopt.concurrency import attended
from accelopt.errors import ConfigError
from accelopt.stages.workshop import Calls

KEY = "sk-very-secret"
SOON = 120  # seconds, on a busy machine; a model has 600


def greeting(url, **settings):
    async def ask():
        endpoint = Endpoint(
            ModelConfig(url=url, model="m", api_key=KEY, **settings), InMemory(), Ledger()
        )
        try:
            return await endpoint.greet()
        finally:
            await endpoint.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (["m", "n"], ""),
        ([], ""),
        (["n"], "lists no model m: it has n"),
        (list("abcdefgh"), "it has a, b, c, d, e and 3 more"),
        (ScriptedFault("status", 401, message=f"wrong key {KEY}"), "may refuse the key: .*401"),
        (ScriptedFault("status", 404), ""),  # a server without such a list
        (ScriptedFault("status", 500), ""),
        (ScriptedFault("garbled"), ""),
        (ScriptedFault("html"), ""),
        (ScriptedFault("reset"), ""),
    ],
)
def test_what_a_list_of_models_tells_is_said(models, said):
    with ScriptedServer(lambda _: "fine", models=models) as server:
        found = greeting(server.url)
        assert not server.requests  # a list costs nothing
    assert (found == "") == (said == "") and re.search(said, found) and KEY not in found


@contextlib.contextmanager
def black_hole():
    """An address that answers no attempt to connect: its queue is full."""
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}/v1"


@contextlib.contextmanager
def refusing():
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{free.getsockname()[1]}/v1"


@pytest.mark.parametrize("place", [refusing, pytest.param(black_hole, marks=pytest.mark.slow)])
def test_who_cannot_be_reached_is_named_soon_and_asked_nothing(place):
    """The rules go on without it; the address may be wrong, so it is said as soon as it is known."""

    async def run(url, said):
        calls = Calls(InMemory(), Ledger(), say=said.append)
        endpoint = calls.model(ModelConfig(url=url, model="m"))
        await calls.greet(print)
        with pytest.raises(CallFailed, match=f"{url} cannot be reached"):
            await endpoint.ask(Question("planner", "planner/x", "", "?"))
        await calls.close()

    started, said = time.monotonic(), []
    with place() as url:
        asyncio.run(run(url, said))
    assert re.match(f"m is asked no more: the endpoint {url} cannot be reached", *said)
    assert time.monotonic() - started < SOON


@pytest.mark.slow
def test_a_server_that_never_answers_is_named_soon_and_waited_for():
    models = ScriptedFault("hang")
    started = time.monotonic()
    with ScriptedServer(lambda _: "fine", models=models) as server:
        assert "has answered nothing" in greeting(server.url)
    assert time.monotonic() - started < SOON


def test_work_ends_when_it_is_done_whoever_still_watches():
    async def work():
        return 7

    started = time.monotonic()
    assert asyncio.run(attended(work(), asyncio.sleep(600))) == 7
    assert time.monotonic() - started < SOON


def test_what_fails_in_the_work_is_raised():
    async def fail():
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        asyncio.run(attended(fail(), asyncio.sleep(0)))
