"""Money is reserved before it is spent, and a model that stops answering is asked no more."""

import asyncio
import itertools
import random
import threading
import time

import pytest
from scripted_server import Scripted, ScriptedFault, ScriptedServer
from test_llm import config, question

from accelopt.agents.budget import Budget, Ledger
from accelopt.agents.calls import NO_ANSWER, CallFailed, InMemory
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.llm import (
    ANNOUNCED,
    BOUNDS,
    DEAD_AFTER,
    LONGEST_ANSWER,
    LONGEST_RETRY_AFTER,
    RESERVED_TOKENS,
    Endpoint,
)
from accelopt.errors import BudgetExhausted, ConfigError
from accelopt.stages.workshop import Calls


def asked(budget, calls, faults=(), respond=None, **settings):
    """What a ledger holds after `calls` at once, each answer of 2,000 tokens at 10 dollars a million,
    what the server saw, and what came."""

    async def use(server):
        ledger = Ledger(budget)
        endpoint = Endpoint(config(server, price_output=10.0, **settings), InMemory(), ledger)
        try:
            came = await asyncio.gather(
                *(endpoint.ask(question(f"planner/x/{n}")) for n in range(calls)),
                return_exceptions=True,
            )
        finally:
            await endpoint.close()
        return ledger, server, came

    answer = respond or (lambda _: Scripted("fine", seconds=0.05, output_tokens=2000))
    with ScriptedServer(answer, faults) as server:
        return asyncio.run(use(server))


@pytest.mark.parametrize("bounded", [{}, {"max_tokens": 2000}])
def test_sixteen_calls_at_once_are_never_more_than_one_answer_over(bounded):
    """`--max-dollars 0.02 --plans 16` paid 0.32: sixteen answers of 0.02 were under way (issue 41)."""
    ledger, server, came = asked(Budget(money=0.02), 16, **bounded)
    assert ledger.total.money == pytest.approx(0.02)
    assert len(server.requests) == 1
    assert sum(isinstance(one, BudgetExhausted) for one in came) == 15


@pytest.mark.parametrize(
    ("budget", "answers"),
    [
        (Budget(money=0.1), 5),
        (Budget(money=0.09), 5),
        (Budget(tokens=9000), 5),
        (Budget(calls=3), 3),
    ],
)
def test_a_budget_is_used_up_and_no_more(budget, answers):
    """As many are under way as surely fit, so all of the budget can be spent."""
    ledger, server, came = asked(budget, 16, max_tokens=2000)
    assert len(server.requests) == answers
    assert 1 <= server.most_at_once <= answers
    assert sum(not isinstance(one, NO_ANSWER) for one in came) == answers
    assert not ledger._reserved


def meeting(number, tokens=lambda request: 2000):
    """A model that answers nobody before so many have asked."""
    met, turns = threading.Barrier(number), itertools.count()

    def respond(request):
        if next(turns) < number:
            met.wait(60)
        return Scripted("fine", output_tokens=tokens(request))

    return respond


def test_what_fits_goes_on_at_once():
    ledger, server, _ = asked(Budget(money=30.0), 16, respond=meeting(16), max_tokens=2000)
    assert ledger.total.calls == len(server.requests) == server.most_at_once == 16


def test_what_a_failed_request_reserved_is_free_again():
    faults = [ScriptedFault("status", 500)] * 3
    ledger, server, _ = asked(Budget(money=0.03), 2, faults, max_tokens=2000)
    assert ledger.total.calls == 2 and len(server.requests) == 5


def told(faults, respond=lambda _: "fine", calls=1, **settings):
    """What a person is told, what came of calls one after the other, and how many requests were made."""
    said, came = [], []

    async def use(server):
        endpoint = Endpoint(config(server, **settings), InMemory(), Ledger(), say=said.append)
        for n in range(calls):
            try:
                came.append((await endpoint.ask(question(f"planner/x/{n}"))).text)
            except CallFailed as failed:
                came.append(str(failed))
        await endpoint.close()

    with ScriptedServer(respond, faults) as server:
        asyncio.run(use(server))
        return said, came, len(server.requests)


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_at_most_one_answer_goes_over_whatever_the_numbers(seed, ignored):
    """Budgets, bounds of an answer and answers drawn at random, 24 calls at once, also of a server that
    ignores the bounds; a resumed run pays for none of its answers again and goes over by no more."""
    chance = random.Random(seed)
    limit, bound = chance.uniform(0.01, 0.2), chance.choice([500, 3000, 9000])
    if ignored:
        limit *= 40
    used = [chance.randint(1, LONGEST_ANSWER if ignored else bound) for _ in range(60)]
    faults = [ScriptedFault("status", 500) if chance.random() < 0.2 else None for _ in range(40)]
    exchanges, paid = InMemory(), []

    async def use(server):
        ledger = Ledger(Budget(money=limit))
        for one in exchanges.kept.values():  # as a run charges what its journal holds
            ledger.charge(one)
        options = {"price_output": 10.0, "max_tokens": bound, "concurrency": 12}
        endpoint = Endpoint(config(server, **options), exchanges, ledger)
        asked = (endpoint.ask(question(f"planner/x/{n}")) for n in range(24))
        await asyncio.gather(*asked, return_exceptions=True)
        await endpoint.close()
        return ledger.total.money

    for _ in range(2):
        drawn = iter(used)
        respond = lambda _: Scripted("fine", seconds=0.01, output_tokens=next(drawn))
        with ScriptedServer(respond, faults) as server:
            paid.append(asyncio.run(use(server)))
    over = max(used) * 10.0 / 1e6
    assert paid[0] <= limit + over
    assert paid[1] <= limit + over and paid[1] >= paid[0] - 1e-12


@pytest.mark.parametrize("wait", ["nan ms", "inf ms", "-5 ms", "soon ms", "nan", "20 ms"])
def test_a_pause_that_is_no_number_is_none(wait):
    """`Retry-After-Ms: nan` would have been slept for."""
    begun = time.monotonic()
    said, [came], requests = told([ScriptedFault("status", 429, wait)])
    assert (came, requests, said) == ("fine", 2, []) and time.monotonic() - begun < 60


def test_a_limit_in_dollars_wants_prices():
    """Without them it was never reached, and nothing was said."""
    free = ModelConfig(url="http://localhost/v1", model="m")
    with pytest.raises(ConfigError, match="'m' has none: give price_input"):
        Calls(InMemory(), Ledger(Budget(money=1.0))).model(free)
    assert Calls(InMemory(), Ledger(Budget(tokens=9))).model(free).config.model == "m"


LATER = "Thu, 01 Jan 2099 00:00:00 GMT"


@pytest.mark.parametrize("asked_for", ["1e9", "100000", LATER, str(LONGEST_RETRY_AFTER + 1)])
def test_nobody_waits_for_an_endpoint_that_asks_for_too_much(asked_for):
    begun = time.monotonic()
    said, [came], requests = told([ScriptedFault("status", 429, asked_for)])
    assert "asks to be left alone" in came and requests == 1
    assert time.monotonic() - begun < 60 and said == []


SAID = "m: status 429: Error code: 429 - scripted fault; asked again in 10 s"


def test_a_long_pause_is_announced_before_it_begins():
    async def use(server):
        said = asyncio.Queue()
        endpoint = Endpoint(config(server), InMemory(), Ledger(), say=said.put_nowait)
        task = asyncio.create_task(endpoint.ask(question()))
        told = await asyncio.wait_for(said.get(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await endpoint.close()
        return told

    with ScriptedServer(lambda _: "fine", [ScriptedFault("status", 429, str(ANNOUNCED))]) as server:
        assert asyncio.run(use(server)) == SAID


@pytest.mark.parametrize("hang", [False, True])
def test_an_endpoint_that_says_nothing_usable_is_asked_no_more(hang):
    """Eight attempts at one that never answers, of up to four times `timeout` (600 s) each, took hours."""
    faults = itertools.repeat(ScriptedFault("hang")) if hang else ()
    words = {"timeout": 0.5, "attempts": 8} if hang else {"attempts": 2}
    said, came, requests = told(faults, lambda _: "", calls=DEAD_AFTER + 3, **words)
    assert requests == (2 if hang else 2 * DEAD_AFTER)
    *waiting, last = said
    assert "asked no more" in last and ("no answer within 1 " if hang else "unusable") in last
    assert waiting == ["m: no answer within 0.5 seconds; asked again"] * hang
    assert all(one in last for one in came[DEAD_AFTER:])


def test_who_waits_for_a_silent_endpoint_waits_together():
    """Of sixteen calls under a budget each waited in vain by itself, also after the endpoint was given up."""
    _, server, came = asked(
        Budget(money=0.02), 16, itertools.repeat(ScriptedFault("hang")), timeout=0.5
    )
    assert len(server.requests) == 2
    assert all("no answer within 1 seconds" in str(one) for one in came)


def test_an_answer_is_bounded_under_a_budget():
    """Two unbounded answers of a dollar each went over a budget of one by a dollar."""
    answered = lambda request: min(100_000, request["max_tokens"])
    ledger, server, _ = asked(Budget(money=10.0), 24, respond=meeting(2, answered))
    bounds = [request["max_tokens"] for request in server.requests]
    assert min(bounds) >= RESERVED_TOKENS and server.most_at_once > 1
    assert 10.0 <= ledger.total.money <= 10.0 + max(bounds) * 10.0 / 1e6
    ledger, server, _ = asked(Budget(tokens=16_000_000), 2, respond=meeting(1, answered))
    assert server.requests[0]["max_tokens"] == 1_000_000


@pytest.mark.parametrize("said", ["max_tokens", "the context is 4,096 tokens"])
def test_a_bound_of_ours_that_is_refused_is_left_out(said):
    faults = [ScriptedFault("status", 400, message=said)]
    if said in BOUNDS:
        faults.append(ScriptedFault("status", 400, message=BOUNDS[1]))
    _, server, [one, two] = asked(Budget(money=1.0), 2, faults, concurrency=1)
    assert one.text == two.text == "fine"
    assert [{*BOUNDS} & request.keys() for request in server.requests[len(faults) :]] == [set()] * 2


def test_a_key_that_is_refused_later_ends_that_model_and_not_the_run():
    faults = itertools.chain([None], itertools.repeat(ScriptedFault("status", 401)))
    said, came, requests = told(faults, calls=3)
    assert came[0] == "fine" and "refuses the key" in came[1] and came[2] == came[1]
    assert requests == 2 and len(said) == 1
