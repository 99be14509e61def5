"""The tools of a bench as functions with a JSON schema: one table for MCP and for our own agent."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from accelopt.bench.answers import page, placed_nowhere
from accelopt.bench.bench import Bench
from accelopt.errors import AcceloptError, sentence
from accelopt.evaluation import faults

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
