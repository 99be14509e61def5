"""One conversation of an agent with its model, as openai-agents drives it: request by request.

A turn that openai-agents cannot use (a tool that does not exist, one call too many) is answered
here, so that it costs that turn and not the conversation. A call that the model wrote as text is one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelopt.agents.calls import Exchange, Question, TokensSpent, Tool
from accelopt.agents.completion import ONLY_REASONING, TRUNCATED, UNREADABLE, tool_calls
from accelopt.replies import MEANT, calls_in

if TYPE_CHECKING:
    from accelopt.agents.llm import Endpoint


NONE_LEFT = "No tool calls are left. Give your final answer now."


def function_tools(tools: tuple[Tool, ...], limit: int) -> list[Any]:
    """`tools` for openai-agents, with a common cap on calls."""
    import agents

    left = limit

    def function_tool(tool: Tool) -> Any:
        async def invoke(_: Any, arguments: str) -> str:
            nonlocal left
            if left <= 0:
                return NONE_LEFT
            left -= 1
            argument = (
                tool_argument(arguments, tool.argument)
                if tool.schema is None
                else tool_arguments(arguments)
            )
            if not argument:
                wanted = json.dumps({tool.argument or "...": "..."})
                return f"{tool.name} was not called, for its arguments cannot be read: send {wanted} as JSON."
            return await tool.call(argument)

        return agents.FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.schema
            or {
                "type": "object",
                "properties": {tool.argument: {"type": "string"}},
                "required": [tool.argument],
                "additionalProperties": False,
            },
            on_invoke_tool=invoke,
            strict_json_schema=tool.schema is None,
        )

    return [function_tool(tool) for tool in tools]


def tool_arguments(arguments: str) -> str:
    """The JSON object of a tool call; empty where there is none that can be read."""
    try:
        content = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return ""
    return arguments or "{}" if isinstance(content, dict) and UNREADABLE not in content else ""


def tool_argument(arguments: str, name: str) -> str:
    """The text argument of a tool call, whatever its key; empty where it cannot be read."""
    try:
        content = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(content, dict):
        if UNREADABLE in content:
            return ""
        value = content.get(name, next(iter(content.values()), ""))
        return value if isinstance(value, str) else json.dumps(value)
    return str(content)


SHORTER = (
    "Your answer was cut off at the limit of its length, so none of it could be used. Answer again, "
    "shorter: leave out explanations, and give the complete result."
)
ANSWER = (
    "Your reply held reasoning and no answer. Give the answer itself now, complete, in the form that was "
    "asked for."
)
NOT_CALLED = (
    "Your answer called no tool. Call tools through the interface, or write each call as one JSON "
    'object, {{"tool": NAME, "arguments": {{...}}}}; there are {}. An answer without a call is your last.'
)


def most_turns(limit: int) -> int:
    """Requests of one conversation with `limit` tool calls: those, one refused, the last answer."""
    return limit + 3


class ToolConversation:
    """The part of AsyncOpenAI that openai-agents' chat-completions model uses."""

    def __init__(self, endpoint: Endpoint, question: Question, limit: int) -> None:
        self.base_url = endpoint.config.url
        self.chat = self.completions = self
        self._endpoint = endpoint
        self._question = question
        self._left = most_turns(limit)
        self._turn = 0
        self._asked_for_calls = False
        self._refused = ""  # what is to be said of calls that were left out
        self._spent = self._next = 0  # tokens, and at least as many of the next request

    async def create(self, **request: Any) -> Any:
        """`chat.completions.create`, journalled. The last turn offers no tools."""
        from openai.types.chat import ChatCompletion

        given = _given(request)
        if self._refused:
            told = {"role": "user", "content": self._refused}
            given, self._refused = {**given, "messages": [*given["messages"], told]}, ""
        tools = {one["function"]["name"]: [*one["function"]["parameters"]["properties"]]
                 for one in given.get("tools", ())}  # fmt: skip
        while True:
            self._left -= 1
            most = self._question.tokens
            if most and self._spent + self._next >= most:
                raise TokensSpent(
                    f"the {most:,} tokens of this conversation are spent ({self._spent:,} used)"
                )
            if self._left <= 0:
                given, tools = {key: given[key] for key in given if key not in TOOL_SETTINGS}, {}
            exchange = await self._endpoint.exchange(self._question, self._turn, given)
            self._turn += 1
            self._next = exchange.input_tokens + exchange.output_tokens
            self._spent += self._next
            message = _message(exchange)
            calls = message.get("tool_calls") or tool_calls(
                [{"function": one._asdict()} for one in calls_in(message["content"], tools)],
                self._turn,
            )
            if not tools:
                return ChatCompletion.model_validate(_with_calls(exchange, ()))
            if not calls and self._is_unread(message["content"], tools):
                told = {"role": "user", "content": NOT_CALLED.format(", ".join(tools))}
                given = {**given, "messages": [*given["messages"], message, told]}
                continue
            good = [call for call in calls if call["function"]["name"] in tools]
            if len(good) == len(calls):
                return ChatCompletion.model_validate(_with_calls(exchange, good))
            refused = _refusals([call for call in calls if call not in good], tools)
            if good:  # they are answered; the rest is told with the next request
                self._refused = refused
                return ChatCompletion.model_validate(_with_calls(exchange, good))
            message = {**message, "tool_calls": calls}
            answers = [{"role": "tool", "tool_call_id": c["id"], "content": refused} for c in calls]
            given = {**given, "messages": [*given["messages"], message, *answers]}

    def _is_unread(self, text: str, tools: Collection[str]) -> bool:
        """Whether an answer without a call is to be asked for one, once in a row: it means to call a tool,
        or is the first of a conversation that does nothing but call tools."""
        if not tools or self._asked_for_calls:
            self._asked_for_calls = False
            return False
        self._asked_for_calls = bool(
            MEANT.search(text) or (self._question.tokens and self._turn == 1)
        )
        return self._asked_for_calls


TOOL_SETTINGS = ("tools", "tool_choice", "parallel_tool_calls")


def asked_again(request: dict[str, Any], problem: str) -> dict[str, Any]:
    """`request` after an answer that could not be used, with what the next one must mend."""
    said = {TRUNCATED: SHORTER, ONLY_REASONING: ANSWER}
    told = next((text for name, text in said.items() if problem.startswith(name)), "")
    if not told or request["messages"][-1].get("content") == told:
        return request
    return {**request, "messages": [*request["messages"], {"role": "user", "content": told}]}


def _message(exchange: Exchange) -> dict[str, Any]:
    choices: Any = (exchange.response or {})["choices"]
    message: dict[str, Any] = choices[0]["message"]
    return message


def _with_calls(exchange: Exchange, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer with some of its tool calls alone, or with none."""
    response: dict[str, Any] = copy.deepcopy(exchange.response or {})
    response["choices"][0]["message"]["tool_calls"] = list(calls) or None
    return response


def _refusals(calls: Sequence[Mapping[str, Any]], names: Collection[str]) -> str:
    """What the model is told of calls of tools that do not exist."""
    wrong = ", ".join(dict.fromkeys(repr(call["function"]["name"]) for call in calls))
    return f"There is no tool {wrong}; there are {', '.join(sorted(names))}."


def _given(request: dict[str, Any]) -> dict[str, Any]:
    """`request` without the SDK's markers for parameters that are not given."""
    return {
        key: value
        for key, value in request.items()
        if value is not None and type(value).__name__ not in ("Omit", "NotGiven")
    }
