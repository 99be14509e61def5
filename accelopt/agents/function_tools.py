"""Our tools as the function tools of openai-agents."""

from __future__ import annotations

import json
from typing import Any

from accelopt.agents.calls import Tool
from accelopt.agents.completion import UNREADABLE

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
