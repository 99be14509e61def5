"""The model runtime: openai-agents over any OpenAI-compatible chat-completions endpoint.

Every request of an agent, tool turns included, goes through `Conversation.create`: it is looked
up in the journal, made with back-off and a time limit, checked, counted and kept. So retries,
resume, replay and accounting are the same for every role and know nothing of prompts.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from accelopt.agents.budget import Ledger, WorstCase
from accelopt.agents.calls import (
    Answer,
    CallFailed,
    Exchange,
    Exchanges,
    Question,
    TokensSpent,
    Tool,
    exchange_key,
)
from accelopt.agents.completion import Unusable, clean, read_completion, token_counts
from accelopt.agents.configuration import NO_KEY, ModelConfig
from accelopt.agents.model_conversation import (
    ToolConversation,
    asked_again,
    function_tools,
    most_turns,
)
from accelopt.agents.roles import ModelRole
from accelopt.errors import ConfigError, require
from accelopt.time_limits import CONNECT_SECONDS, GREETING_SECONDS


class Slots:
    """A semaphore whose waiters are served by priority (smaller first), then by arrival."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._arrivals = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, priority: int) -> AsyncIterator[None]:
        """Hold one slot for the time of an `async with` block."""
        await self._acquire(priority)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, priority: int) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was handed over just before the cancellation
            raise

    def _release(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


UNREACHABLE_AFTER = 8.0  # seconds of failing connections to an endpoint that never took one
UNCONNECTED = ("ConnectError", "ConnectTimeout")  # of whichever HTTP client openai is built on
MOST_NAMED = 5


async def greet(client: Any, config: ModelConfig) -> str:
    """What speaks against the endpoint's answering later, in a sentence; empty when nothing does. Asked at the
    start of a run: its first question comes only when the baseline has been measured, which may take minutes.

    The list of models is asked for, which costs nothing. Not every server keeps one, and a key may be
    good for questions alone: what it says is told and ends no run. Raises ConfigError for an endpoint
    that nobody can connect to.
    """
    import openai

    started = time.monotonic()
    asking = client.with_options(timeout=openai.Timeout(GREETING_SECONDS, connect=CONNECT_SECONDS))
    while True:
        try:
            listed = await asyncio.wait_for(asking.models.list(), GREETING_SECONDS)
            return _unlisted(config, [str(model.id) for model in listed.data or ()])
        except openai.APIConnectionError as error:
            if type(error.__cause__).__name__ not in UNCONNECTED:
                return _silent(config) if isinstance(error, openai.APITimeoutError) else ""
            if time.monotonic() - started > UNREACHABLE_AFTER:
                raise unreachable(error, config) from None
        except TimeoutError:
            return _silent(config)
        except openai.APIStatusError as error:
            if error.status_code not in (401, 403):
                return ""
            said = clean(str(error.message), config.secrets)
            return f"the endpoint {config.url} may refuse the key: {said}"
        except (openai.OpenAIError, ValueError, TypeError, AttributeError, RecursionError):
            return ""  # a server's own idea of such a list: it may answer questions all the same
        await asyncio.sleep(1.0)


def unreachable(error: Exception, config: ModelConfig) -> ConfigError:
    """What to say of an endpoint that never took a connection."""
    cause = error.__cause__
    said = clean(str(cause) or type(cause).__name__, config.secrets)
    return ConfigError(f"the endpoint {config.url} cannot be reached: {said}")


def _silent(config: ModelConfig) -> str:
    return (
        f"the endpoint {config.url} takes connections and has answered nothing for {GREETING_SECONDS:g} s; "
        f"each question waits {config.timeout:g} s for its answer (`timeout`)"
    )


def _unlisted(config: ModelConfig, names: list[str]) -> str:
    if not names or config.model in names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"the endpoint {config.url} lists no model {config.model}: it has "
        f"{', '.join(names[:MOST_NAMED])}{more}"
    )


LARGEST_REPLY = 8 * 1024 * 1024  # bytes; a real answer is a thousand times smaller
LONGEST_PAUSE = 120.0  # seconds between attempts, unless Retry-After asks for more
LONGEST_RETRY_AFTER = 300.0  # an endpoint that asks for more is not waited for
ANNOUNCED = 10.0  # seconds of a pause from which on it is told
DEAD_AFTER = 4  # calls in a row without a usable answer, after which an endpoint is asked no more
RESERVED_TOKENS = 32_768  # to which an answer is bounded under a budget, where nothing else does
LONGEST_ANSWER = (
    131_072  # tokens of any model, which a server that ignores the bound may let it give
)
CHARACTERS_A_TOKEN = 2  # at least, of what is asked
MOST_SLOW = 2  # waits in vain, each twice as long, of an endpoint that answers nobody meanwhile
MOST_TRUNCATED = 3  # answers of one call that met the limit of their length
# A repaired or written kernel keeps a device busy; another plan only lengthens the queue.
PRIORITY: dict[ModelRole, int] = {
    "fixer": 0,
    "executor": 1,
    "reflector": 2,
    "summarizer": 2,
    "judge": 3,
    "planner": 3,
    "relabeler": 2,
    "lister": 3,
    "expert": 3,
}
BOUNDS = ("max_tokens", "max_completion_tokens")  # names of one setting, the newer one second
OPTIONAL_SETTINGS = ("temperature", "top_p", "reasoning_effort", *BOUNDS)
CLAUDE_MAX_TOKENS, CLAUDE_THINKING = 20_000, 10_000


class Endpoint:
    """A `Model` behind a URL: at most `config.concurrency` requests at a time.

    `exchanges` keeps each answered request; one found there is not made again. With `replay` no
    request is made at all, and one that is not in `exchanges` raises CallFailed. With `traced`
    each agent run is a span of whatever tracing `agents.tracing` has set up. `say` is told of long
    pauses, and when the endpoint is asked no more.
    """

    def __init__(
        self,
        config: ModelConfig,
        exchanges: Exchanges,
        ledger: Ledger,
        *,
        replay: bool = False,
        traced: bool = False,
        seed: int = 0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        require("models", openai="openai", agents="openai-agents")
        self.say = say
        self.traced = traced
        self.config = config
        self.exchanges = exchanges
        self.ledger = ledger
        self.random = random.Random(seed)
        self._slots = Slots(config.concurrency)
        self._unreached = 0.0  # since when no connection could be made; infinite once one was
        self._refused: set[str] = set()  # settings that this endpoint does not take
        self._answered = False  # usably, at least once
        self._longest = LONGEST_ANSWER  # in tokens, of what may come and what has come
        self._failed = 0  # calls in a row that came to nothing
        self._silence = 0  # waits in vain, one longer than the other, since anything was heard
        self._heard = 0.0  # when that was
        self._announced = 0.0  # until when a pause that was told lasts
        self._dead = ""  # why nothing more is asked
        self._client = None if replay else _client(config)

    async def ask(self, question: Question, tools: tuple[Tool, ...] = (), limit: int = 0) -> Answer:
        """The answer to `question`. Raises CallFailed and BudgetExhausted, and ConfigError of an endpoint
        that cannot be used from the start; one that answered before only stops answering."""
        import agents

        if self._dead:
            raise CallFailed(self._dead)

        model = agents.OpenAIChatCompletionsModel(
            model=self.config.model,
            openai_client=ToolConversation(self, question, limit),  # type: ignore[arg-type]
        )
        agent = agents.Agent(
            name=question.role,
            instructions=question.system,
            model=model,
            model_settings=_settings(self.config, question),
            tools=function_tools(tools, limit) if tools else [],
        )
        try:
            result = await agents.Runner.run(
                agent,
                question.user,
                max_turns=most_turns(limit),
                run_config=agents.RunConfig(tracing_disabled=not self.traced),
            )
        except agents.exceptions.AgentsException as error:
            raise CallFailed(f"the {question.role} gave no final answer: {error}") from error
        except TokensSpent:
            raise
        except CallFailed as error:
            self._failed += 1
            if self._failed >= DEAD_AFTER and self._client is not None:
                self.stop_asking(
                    f"{self._failed} calls in a row came to nothing, the last: {error}"
                )
            raise
        except ConfigError as error:
            if not (self._answered or self._dead):
                raise
            self.stop_asking(str(error))
            raise CallFailed(str(error)) from error
        self._failed = 0
        return _answer(result)

    def stop_asking(self, why: str) -> None:
        """From here on every question fails with `why`, which is said once."""
        if not self._dead:
            self._dead = why
            self.say(f"{self.config.model} is asked no more: {why}")

    async def greet(self) -> str:
        """What speaks against this endpoint's answering later (`greeting.greet`)."""
        return "" if self._client is None else await greet(self._client, self.config)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()

    async def exchange(self, question: Question, turn: int, request: dict[str, Any]) -> Exchange:
        """The usable exchange for one request: from the journal, or made now."""
        attempts = unusable = failed = slow = truncated = 0
        while True:
            key = exchange_key(f"{question.label}/{unusable}", turn, _kept_request(request))
            exchange = self.exchanges.find(key)
            if exchange is None:
                attempts += 1
                outcome = await self._attempt(question, request, slow)
                if isinstance(outcome, _Failure):
                    failed += 1
                    slow += outcome.slow
                    await self._pause(outcome, attempts)
                    continue
                exchange = self._exchange(key, question, turn, request, outcome, attempts)
                self.exchanges.keep(exchange)
            self.ledger.charge(exchange)
            self._longest = max(self._longest, exchange.output_tokens)
            if not exchange.problem:
                self._answered = True
                return exchange
            unusable += 1
            truncated += exchange.truncated
            request = asked_again(request, exchange.problem)
            if unusable + failed >= self.config.attempts or truncated >= MOST_TRUNCATED:
                raise CallFailed(f"{unusable} unusable answers, the last: {exchange.problem}")

    async def _attempt(
        self, question: Question, request: dict[str, Any], slow: int
    ) -> _Reply | _Failure:
        """One request, answered within the time that is due after `slow` waits in vain, or given up."""
        import openai

        if self._client is None:
            raise CallFailed("this exchange is not in the recording")
        self.ledger.check()
        if bound := self.ledger.share(self.config.price_output, self.config.concurrency):
            request = {BOUNDS[0]: max(bound, RESERVED_TOKENS), **request}
        async with (
            self._slots.slot(PRIORITY[question.role]),
            self.ledger.reserved(self._worst(request)),
        ):
            if self._dead:
                raise CallFailed(self._dead)
            slow = max(slow, self._silence)
            limit = self.config.timeout * min(2**slow, 4)
            started = time.monotonic()
            try:
                sent = _accepted(request, self._refused)
                body = await asyncio.wait_for(_read(self._client, sent), limit)
            except openai.APIConnectionError as error:
                return self._unconnected(error, limit, started, slow)
            except TimeoutError:
                return self._unheard(limit, started, slow)
            except openai.APIStatusError as error:
                self._heard, self._silence = time.monotonic(), 0
                if refused := _refused_settings(error, sent, self.config) - self._refused:
                    self._refused |= refused
                    return _Failure(f"{', '.join(sorted(refused))} refused", retry_after=0.0)
                return _status_failure(error, self.config)
            except Exception as error:  # the transport of a foreign server: any kind may come
                return self._lost(error)
            self._unreached = math.inf
            self._heard, self._silence = time.monotonic(), 0
            return _Reply(body, self._heard - started)

    def _worst(self, request: dict[str, Any]) -> WorstCase:
        """The most that the answer to `request` may cost, also of a server that ignores its bound."""
        asked = len(json.dumps(request, default=str)) / CHARACTERS_A_TOKEN
        answered = max(request.get(BOUNDS[0]) or 0, self._longest)
        prices = self.config.price_input, self.config.price_output
        return WorstCase((asked * prices[0] + answered * prices[1]) / 1e6, asked + answered)

    def _unheard(self, limit: float, started: float, slow: int) -> _Failure:
        """A wait in vain, the last one of an endpoint from which nobody else heard anything meanwhile."""
        if self._heard < started:
            self._silence = max(self._silence, slow + 1)
        said = f"no answer within {limit:g} seconds"
        if self._silence >= MOST_SLOW:
            self.stop_asking(said)
        return _Failure(said, passing=not self._dead, slow=True)

    def _lost(self, error: Exception) -> _Failure:
        """Raises CancelledError once the endpoint is closed: nobody waits for an answer any more."""
        if self._client is None or self._client.is_closed():
            raise asyncio.CancelledError from error
        said = clean(f"{type(error).__name__}: {error}", self.config.secrets)
        return _Failure(f"connection lost: {said}")

    def _unconnected(self, error: Exception, limit: float, started: float, slow: int) -> _Failure:
        """A connection, asked for when it `started`, that was not made, was lost, or brought nothing
        in time.

        Raises ConfigError for an endpoint that nobody could ever connect to.
        """
        import openai

        cause = type(error.__cause__).__name__
        if cause in UNCONNECTED:
            self._unreached = self._unreached or started
            if time.monotonic() - self._unreached > UNREACHABLE_AFTER:
                raise unreachable(error, self.config)
            return _Failure(f"no connection: {cause}")
        if isinstance(error, openai.APITimeoutError):
            return self._unheard(limit, started, slow)
        return self._lost(error)

    async def _pause(self, failure: _Failure, attempts: int) -> None:
        """Wait before the next attempt: exponential with full jitter, or what the server asks."""
        if not failure.passing or attempts >= self.config.attempts:
            raise CallFailed(f"{attempts} attempts, the last: {failure.reason}")
        longest = LONGEST_PAUSE if math.isinf(self._unreached) else UNREACHABLE_AFTER / 4
        ceiling = min(self.config.backoff * 2 ** (attempts - 1), longest)
        pause = ceiling * self.random.uniform(0.5, 1.0)
        if failure.retry_after is not None:
            pause = max(failure.retry_after, pause)
        if pause > LONGEST_RETRY_AFTER:
            raise CallFailed(f"{failure.reason}; it asks to be left alone for {pause:.3g} s")
        if (pause >= ANNOUNCED or failure.slow) and time.monotonic() >= self._announced:
            when = f" in {pause:.0f} s" if pause >= 1 else ""
            self.say(f"{self.config.model}: {failure.reason}; asked again{when}")
            self._announced = time.monotonic() + pause
        await asyncio.sleep(pause)

    def _exchange(
        self,
        key: str,
        question: Question,
        turn: int,
        request: dict[str, Any],
        reply: _Reply,
        attempts: int,
    ) -> Exchange:
        response: dict[str, object] | None = None
        problem = ""
        try:
            response = read_completion(
                reply.body, turn, tools="tools" in request, secrets=self.config.secrets
            )
        except Unusable as error:
            response, problem = error.response, str(error)
        tokens = token_counts(response, request)
        money = tokens.input * self.config.price_input + tokens.output * self.config.price_output
        return Exchange(
            key=key,
            role=question.role,
            label=question.label,
            iteration=question.iteration,
            turn=turn,
            request=_kept_request(request),
            response=response,
            problem=problem,
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            money=money / 1e6,
            seconds=round(reply.seconds, 3),
            attempts=attempts,
        )


class _Reply(NamedTuple):
    body: bytes
    seconds: float


class _Failure(NamedTuple):
    """Why an attempt brought no answer; `passing` when another attempt may bring one, `slow` when
    the next one should be given more time."""

    reason: str
    passing: bool = True
    retry_after: float | None = None
    slow: bool = False


def _client(config: ModelConfig) -> Any:
    import openai

    try:
        return openai.AsyncOpenAI(
            base_url=config.url,
            api_key=config.api_key or NO_KEY,
            # The bound on an answer is wait_for's; this one only backs it up.
            timeout=openai.Timeout(config.timeout * 4, connect=CONNECT_SECONDS),
            max_retries=0,
            default_headers=config.headers or None,
            # A redirect would turn the request into another one, at a place that nobody chose.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
        )
    except (ValueError, openai.OpenAIError) as error:
        raise ConfigError(f"the endpoint {config.url!r} cannot be used: {error}") from error


async def _read(client: Any, request: dict[str, Any]) -> bytes:
    """The body of one chat completion, cut off when it outgrows LARGEST_REPLY."""
    body = bytearray()
    async with client.chat.completions.with_streaming_response.create(**request) as response:
        async for chunk in response.iter_bytes():
            body += chunk
            if len(body) > LARGEST_REPLY:
                break
    return bytes(body)


def _refused_settings(error: Any, sent: dict[str, Any], config: ModelConfig) -> set[str]:
    """The optional settings of `sent` that a 400 names: many models take only some of them. One that names
    none may mean the bound of an answer, where that is ours."""
    if error.status_code != 400:
        return set()
    named = {name for name in OPTIONAL_SETTINGS if name in sent and name in str(error.message)}
    if config.max_tokens:
        return named - {BOUNDS[1]}
    return named or ({*BOUNDS} if {*BOUNDS} & sent.keys() else set())


def _accepted(request: dict[str, Any], refused: set[str]) -> dict[str, Any]:
    """`request` without the refused settings; the token limit goes under its newer name."""
    sent = {name: value for name, value in request.items() if name not in refused}
    older, newer = BOUNDS
    if older in request and older in refused and newer not in refused:
        sent[newer] = request[older]
    return sent


def _status_failure(error: Any, config: ModelConfig) -> _Failure:
    status, said = error.status_code, clean(str(error.message), config.secrets)
    if status in (401, 403):
        raise ConfigError(f"the endpoint {config.url} refuses the key: {status} {said}")
    if status == 404:
        raise ConfigError(
            f"the endpoint {config.url} does not know the model {config.model}: {said}"
        )
    if 300 <= status < 400:
        place = clean(str(error.response.headers.get("location", "nowhere")), config.secrets)
        raise ConfigError(
            f"the endpoint {config.url} redirects ({status}) to {place}: give the `url` of the "
            "endpoint itself"
        )
    passing = status in (408, 409, 425, 429) or status >= 500
    return _Failure(f"status {status}: {said}"[:500], passing, _retry_after(error))


def _retry_after(error: Any) -> float | None:
    """Seconds asked for by `Retry-After` (a number or a date) or `retry-after-ms`."""
    from email.utils import parsedate_to_datetime

    headers = error.response.headers
    try:
        value = headers.get("retry-after")
        with suppress(ValueError, TypeError):
            own = headers.get("retry-after-ms")
            seconds = float(value) if own is None else float(own) / 1000
            return max(0.0, seconds) if math.isfinite(seconds) else None
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _settings(config: ModelConfig, question: Question) -> Any:
    """Sampling and reasoning settings. Claude-like models think only at temperature 1."""
    import agents
    from openai.types.shared import Reasoning

    temperature = config.temperature if config.temperature is not None else question.temperature
    settings = agents.ModelSettings(
        temperature=temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens or question.max_tokens,
    )
    if config.reasoning_effort:
        settings.reasoning = Reasoning(effort=config.reasoning_effort)
    claude = "claude" in config.model.lower()
    if claude or config.thinking_budget:
        budget = config.thinking_budget or CLAUDE_THINKING
        settings.max_tokens = config.max_tokens or max(CLAUDE_MAX_TOKENS, 2 * budget)
        budget = min(budget, max(settings.max_tokens - 1, 1))
        settings.extra_body = {"thinking": {"type": "enabled", "budget_tokens": budget}}
        if claude:
            settings.temperature, settings.top_p = 1.0, None
    return settings


def _answer(result: Any) -> Answer:
    """Final text and reasoning of a run."""
    reasoning = []
    for response in result.raw_responses:
        for item in response.output:
            if getattr(item, "type", "") == "reasoning":
                parts = item.summary or getattr(item, "content", None) or []
                reasoning += [part.text for part in parts]
    text = str(result.final_output or "").lstrip("\r\n").rstrip()
    return Answer(text, "\n".join(reasoning).strip())


def _kept_request(request: dict[str, Any]) -> dict[str, Any]:
    """What of a request names it: headers carry versions and perhaps secrets."""
    return {key: value for key, value in request.items() if key != "extra_headers"}
