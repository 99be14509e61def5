"""What passes between a role and the model that answers for it, and what is kept of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from accelopt.agents.completion import TRUNCATED
from accelopt.agents.roles import ModelRole
from accelopt.errors import BudgetExhausted
from accelopt.evaluation import Row


class Question(NamedTuple):
    """One call's input. `label` is unique in a run and equal in every repetition of that run.
    `max_tokens` bounds the answer where the configuration does not, `tokens` the whole conversation (0:
    nothing does)."""

    role: ModelRole
    label: str
    system: str
    user: str
    iteration: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    tokens: int = 0


class Answer(NamedTuple):
    """The model's final text, and its reasoning where it shows any."""

    text: str
    reasoning: str = ""


class CallFailed(Exception):
    """A call that got no usable answer in the end; the sample it was for is recorded as failed."""


class TokensSpent(CallFailed):
    """A conversation that has spent the tokens it was given."""


NO_ANSWER = (CallFailed, BudgetExhausted)  # what leaves a role without an answer
UNANSWERED = "the model did not answer"


class Exchange(Row):
    """One request to an endpoint and its answer, usable or not. `money` is in dollars."""

    key: str
    role: ModelRole
    label: str
    iteration: int
    turn: int
    request: dict[str, object]
    response: dict[str, object] | None
    problem: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0
    attempts: int = 1

    @property
    def truncated(self) -> bool:
        """True for an answer that met the limit of its length."""
        return self.problem.startswith(TRUNCATED)


class Exchanges(Protocol):
    """Where exchanges are kept: asked before a call is made, told as soon as it is answered."""

    def find(self, key: str) -> Exchange | None:
        """The exchange kept under `key`."""

    def keep(self, exchange: Exchange) -> None:
        """Keep `exchange` for good before returning."""


@dataclass
class InMemory:
    """Exchanges that last as long as the process."""

    kept: dict[str, Exchange] = field(default_factory=dict)

    def find(self, key: str) -> Exchange | None:
        """The exchange kept under `key`."""
        return self.kept.get(key)

    def keep(self, exchange: Exchange) -> None:
        """Keep `exchange`."""
        self.kept[exchange.key] = exchange


class Tool(NamedTuple):
    """A function that the model may call with one text `argument`, or with those of a JSON `schema`, of
    which `call` is given the JSON."""

    name: str
    description: str
    argument: str
    call: Callable[[str], Awaitable[str]]
    schema: dict[str, Any] | None = None


class Model(Protocol):
    """Answers questions. Raises CallFailed when no usable answer comes in the end."""

    async def ask(self, question: Question, tools: tuple[Tool, ...] = (), limit: int = 0) -> Answer:
        """The answer to `question`; at most `limit` calls of `tools`."""


class Provider(Model, Protocol):
    """A model behind a URL, as `PROVIDERS` name it: made of a `ModelConfig`, where exchanges are kept,
    the ledger that pays for them, and by name `replay`, `traced`, `seed` and `say` (see `llm.Endpoint`)."""

    async def greet(self) -> str:
        """What speaks against its answering later, in a sentence; empty when nothing does. Raises
        ConfigError where nobody can be reached."""

    def stop_asking(self, why: str) -> None:
        """From here on every question fails with `why`, which is said once."""

    async def close(self) -> None:
        """Close the connections."""


def exchange_key(label: str, turn: int, request: Mapping[str, object]) -> str:
    """Equal for the same request made for the same purpose, in this run or a repetition of it."""
    text = json.dumps([label, turn, request], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
