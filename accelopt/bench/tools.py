"""The tools of a bench as functions with a JSON schema: one table for MCP and for our own agent."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from accelopt.bench.bench import Bench
from accelopt.errors import AcceloptError, printable, sentence
from accelopt.evaluation import faults

LINES = 60
"""Lines of one answer, the one on what is left out included."""
WIDTH = 400  # characters
CHARACTERS = 8000
"""Of one answer: what floods its lines is cut sooner."""
PLACE = re.compile(r"(?<![\w.)\]/])/(?:[\w.+@-]+/)+(?=[\w.+@-])|(?<![\w/])~/(?:[\w.+@-]+/)*")
"""The folders of an absolute path; its last name stays."""


def placed_nowhere(text: str) -> str:
    """`text` with files by their names alone."""
    return PLACE.sub("", text)


def page(text: str, first: int = 1, most: int = LINES) -> str:
    """At most `most` lines of an answer from line `first` on, long ones folded, and how to ask for the
    rest."""
    lines = [part for line in printable(text).rstrip().splitlines() for part in _folded(line)]
    if len(lines) <= most and first <= 1 and sum(map(len, lines)) <= CHARACTERS:
        return "\n".join(lines)
    first = min(max(first, 1), max(len(lines), 1))
    shown = lines[first - 1 : first + most - 2]
    while sum(map(len, shown)) > CHARACTERS:
        shown.pop()
    last = first + len(shown) - 1
    rest = f"; first={last + 1} shows what follows" if last < len(lines) else ""
    return "\n".join([*shown, f"[lines {first} to {last} of {len(lines)}{rest}]"])


def _folded(line: str) -> list[str]:
    """A line in parts of at most `WIDTH`, cut behind a space where there is one."""
    parts = []
    while len(line) > WIDTH:
        cut = line.rfind(" ", WIDTH // 2, WIDTH) + 1 or WIDTH
        parts.append(line[:cut])
        line = line[cut:]
    return [*parts, line]


WORK = ("check", "profile", "what_if", "schedules", "rules", "explain", "look_up", "compare",
        "remember", "recall", "submit")  # fmt: skip
FILES = ("read", "write", "edit")
"""For an agent that has no editor in the folder."""
AS_IT_IS = ("read",)
"""Whose answers are the agent's own text."""


class BenchTool(NamedTuple):
    """A tool; `call` takes its arguments by name and answers in words, whatever is wrong with them."""

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[Bench, Mapping[str, Any]], Awaitable[str]]


def bench_tools() -> tuple[BenchTool, ...]:
    """All tools of a bench, in the order of use."""
    return tuple(_tool(name, getattr(Bench, name)) for name in (*WORK, *FILES))


def _tool(name: str, method: Callable[..., Awaitable[str]]) -> BenchTool:
    model = _arguments(name, method)

    async def call(bench: Bench, given: Mapping[str, Any]) -> str:
        try:
            json.dumps(given, ensure_ascii=False).encode()
            arguments = model.model_validate(_texts(given)).model_dump()
            first = arguments.pop("first")
            answer = await method(bench, **arguments)
            return page(answer if name in AS_IT_IS else placed_nowhere(answer), first)
        except UnicodeEncodeError:
            return (
                f"{name} was not called: an argument holds half of a character (a lone surrogate)."
            )
        except ValidationError as error:
            takes = (
                f"{field} ({one.description})" if one.description else field
                for field, one in model.model_fields.items()
            )
            return f"{name} was not called: {faults(error)}; it takes {', '.join(takes)}."
        except (AcceloptError, OSError) as error:
            return page(placed_nowhere(sentence(error)))

    said = " ".join((inspect.getdoc(method) or "").split())
    schema = model.model_json_schema()
    for part in (schema, *schema["properties"].values()):
        part.pop("title", None)
    return BenchTool(name, said, schema, call)


def _texts(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with lists and objects as the texts that are asked for: words in a row, else JSON."""
    return {
        name: "; ".join(value) if isinstance(value, list) and all(isinstance(v, str) for v in value)
        else json.dumps(value) if isinstance(value, (list, dict)) else value
        for name, value in given.items()
    }  # fmt: skip


def _arguments(name: str, method: Callable[..., Any]) -> type[BaseModel]:
    """The arguments of a tool as its signature has them, and the first line that is to be shown."""
    hints = get_type_hints(method, include_extras=True)
    own = [*inspect.signature(method).parameters.values()][1:]
    fields: dict[str, Any] = {
        one.name: (hints[one.name], ... if one.default is one.empty else one.default) for one in own
    }
    fields["first"] = (int, Field(default=1, ge=1, description="line of a long answer to begin at"))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
