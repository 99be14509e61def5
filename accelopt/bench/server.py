"""The bench as an MCP server, over stdio or over HTTP on loopback behind a token."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from accelopt import __version__
from accelopt.bench.bench import Bench
from accelopt.bench.tools import BenchTool, bench_tools
from accelopt.errors import AcceloptError, MissingExtra, internal_fault, sentence

SERVES = "A kernel for an AWS NeuronCore in a folder, judged and timed on a simulated core. AGENTS.md says how to work."
NOTED_EVERY = 2.0  # seconds between notes of progress
LOOPBACK = "127.0.0.1"

Opening = AbstractAsyncContextManager[Bench]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def required_mcp() -> Any:
    """The module `mcp`. Raises MissingExtra where it is not installed, or too old."""
    try:
        import mcp
        import mcp.server.lowlevel
        import mcp.server.stdio
        import mcp_types  # noqa: F401  (came with the version whose interface is used here)
    except ImportError:
        raise MissingExtra("mcp 2", "serve") from None
    return mcp


async def serve_stdio(opening: Opening) -> None:
    """Serves one client on stdin and stdout until it leaves. Raises MissingExtra."""
    mcp = required_mcp()
    try:
        async with _Opened(opening) as opened, mcp.server.stdio.stdio_server() as (read, write):
            server = _server(opened)
            await server.run(read, write, server.create_initialization_options())
    except BaseExceptionGroup as failed:
        # A client that died reads no answer any more: that is its way to leave.
        if other := failed.split(BrokenPipeError)[1]:
            raise other from None


async def serve_http(opening: Opening, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves clients that know the token on loopback, until interrupted; `ready` is told the address.
    Raises MissingExtra."""
    required_mcp()
    import uvicorn

    async with _Opened(opening) as opened:
        app = _behind(token, _server(opened).streamable_http_app(host=LOOPBACK))
        config = uvicorn.Config(app, host=LOOPBACK, port=port, log_level="warning")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.02)
        if server.started:
            address = server.servers[0].sockets[0].getsockname()[1]
            ready(f"http://{LOOPBACK}:{address}/mcp")
        await serving


class _Opened:
    """The bench, opened while clients already connect: judging the start takes seconds."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._bench: asyncio.Task[Bench] | None = None
        self._leave = asyncio.Event()
        self._found: asyncio.Future[Bench] | None = None

    async def bench(self) -> Bench:
        """The bench. Raises what opening it raised."""
        assert self._found is not None
        return await asyncio.shield(self._found)

    async def __aenter__(self) -> _Opened:
        self._found = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(self._found))
        return self

    async def _hold(self, found: asyncio.Future[Bench]) -> None:
        """Opens and closes in one task, as context managers of asyncio want it."""
        try:
            async with self._opening as bench:
                found.set_result(bench)
                await self._leave.wait()
        except Exception as error:
            if found.done():
                raise
            found.set_exception(error)
            found.exception()  # told by whoever asks for the bench

    async def __aexit__(self, *_: object) -> None:
        self._leave.set()
        if self._found is not None and not self._found.done():
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


def _server(opened: _Opened) -> Any:
    """A low-level MCP server with the tools of a bench."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    tools = {tool.name: tool for tool in bench_tools()}

    async def on_list(context: Any, params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=t.name, description=t.description, input_schema=t.schema)
                for t in tools.values()
            ]
        )

    async def on_call(context: Any, params: Any) -> Any:
        tool = tools.get(params.name)
        if tool is None:
            said, wrong = f"There is no tool {params.name!r}; there are {', '.join(tools)}.", True
        else:
            said, wrong = await _called(tool, params.arguments or {}, opened, context.session)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=said)], is_error=wrong
        )

    return Server(
        "accelopt",
        version=__version__,
        instructions=SERVES,
        on_list_tools=on_list,
        on_call_tool=on_call,
    )


async def _called(
    tool: BenchTool, given: dict[str, Any], opened: _Opened, session: Any
) -> tuple[str, bool]:
    """A tool's answer, and whether it is a fault of the server's. Progress is told meanwhile; a client
    that gives the call up, or is gone, ends its work."""

    async def work() -> str:
        return await tool.call(await opened.bench(), given)

    task, begun = asyncio.create_task(work()), time.monotonic()
    try:
        while not (await asyncio.wait([task], timeout=NOTED_EVERY))[0]:
            seconds = time.monotonic() - begun
            await session.report_progress(seconds, None, f"{tool.name} since {seconds:.0f} s")
        return task.result(), False
    except AcceloptError as error:
        return sentence(error), True
    except Exception as error:  # the one boundary between a tool and its client
        return internal_fault(error, f"answering {tool.name}"), True
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _behind(token: str, app: Asgi) -> Asgi:
    """The app for requests with `Authorization: Bearer <token>`; 401 for any other."""
    wanted = f"Bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers") or ())
        if scope["type"] == "http" and not hmac.compare_digest(
            headers.get(b"authorization", b""), wanted
        ):
            start = {"type": "http.response.start", "status": 401}
            await send({**start, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b"a token is needed"})
            return
        await app(scope, receive, send)

    return guarded
