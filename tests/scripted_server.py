"""A chat-completions server that answers from a script, over a real socket, with real faults.

For tests, benchmarks and rehearsals of a run without a model. Answers come from a function of
the request; a fault comes from a schedule that is asked once per request.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Scripted(NamedTuple):
    """One scripted answer: text, or tool calls as (name, arguments) pairs. A `body` is sent as it is."""

    text: str
    tool_calls: tuple[tuple[str, str], ...] = ()
    reasoning: str = ""
    seconds: float = 0.0
    input_tokens: int = 100
    output_tokens: float = 50
    finish: str = ""
    body: bytes | None = None


class ScriptedFault(NamedTuple):
    """What goes wrong with one request.

    `kind` is one of status, hang, garbled, empty, no_choices, huge, reset, html, drip (a byte now and
    then), cut (chunks that end too soon), short and long (a Content-Length below and above the body);
    `status`, `retry_after` (in milliseconds when it ends in ` ms`), `message` and `location` belong to the first, `seconds` to hang.
    """

    kind: str
    status: int = 429
    retry_after: str | None = None
    seconds: float = 3600.0
    message: str = "scripted fault"
    location: str | None = None


FAULTS = (
    ScriptedFault("status", 429, "0.01"),
    ScriptedFault("status", 500),
    ScriptedFault("status", 503),
    ScriptedFault("hang"),
    ScriptedFault("garbled"),
    ScriptedFault("empty"),
    ScriptedFault("no_choices"),
    ScriptedFault("huge"),
    ScriptedFault("reset"),
    ScriptedFault("html"),
    ScriptedFault("drip"),
    ScriptedFault("cut"),
    ScriptedFault("short"),
    ScriptedFault("long"),
)


class ScriptedServer:
    """`with ScriptedServer(respond) as server: ... server.url ...`

    `respond` takes the request's JSON object. `faults` is consulted once per request, in order
    of arrival; None, or its end, means no fault. `models` is what it lists when it is asked for its
    models, or the fault that this meets.
    """

    def __init__(
        self,
        respond: Callable[[dict[str, Any]], Scripted | str],
        faults: Iterable[ScriptedFault | None] = (),
        models: Sequence[str] | ScriptedFault = (),
    ) -> None:
        self.respond = respond
        self.models = models
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._faults = iter(faults)
        self._now = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """The base URL for a model configuration."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "ScriptedServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def begin(self, request: dict[str, Any], headers: dict[str, str]) -> ScriptedFault | None:
        """Count a request that arrived and draw its fault."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            return next(self._faults, None)

    def end(self) -> None:
        """Count a request that is answered, or goes wrong."""
        with self._lock:
            self._now -= 1

    def wait(self, seconds: float) -> None:
        """Sleep, but not past the end of the server."""
        if seconds > 0:
            self._stopping.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is not this server's error."""


def _handler(owner: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if isinstance(owner.models, ScriptedFault):
                self._fail(owner.models, {})
                return
            listed = [{"id": name, "object": "model"} for name in owner.models]
            self._send(200, json.dumps({"object": "list", "data": listed}).encode())

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            request = json.loads(self.rfile.read(length))
            fault = owner.begin(request, {k.lower(): v for k, v in self.headers.items()})
            try:
                body = b"" if fault else self._body(request)
            finally:
                owner.end()  # before its client, who may ask again at once, has the answer
            if fault is None:
                self._send(200, body)
            else:
                self._fail(fault, request)

        def _body(self, request: dict[str, Any]) -> bytes:
            answer = owner.respond(request)
            scripted = Scripted(answer) if isinstance(answer, str) else answer
            owner.wait(scripted.seconds)
            return scripted.body or json.dumps(_completion(request, scripted)).encode()

        def _fail(self, fault: ScriptedFault, request: dict[str, Any]) -> None:
            if fault.kind == "status":
                wait = fault.retry_after or ""
                name = "Retry-After-Ms" if wait.endswith(" ms") else "Retry-After"
                told = {name: wait.removesuffix(" ms") or None, "Location": fault.location}
                extra = {name: value for name, value in told.items() if value is not None}
                body = json.dumps({"error": {"message": fault.message}}).encode()
                self._send(fault.status, body, extra)
            elif fault.kind == "hang":
                owner.wait(fault.seconds)
                self.close_connection = True
            elif fault.kind == "reset":
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
                self.close_connection = True
            elif fault.kind in ("drip", "cut", "short", "long"):
                self._stream(fault.kind, json.dumps(_completion(request, Scripted("x" * 400))))
            else:
                self._send(200, _broken_body(fault.kind, request))

        def _stream(self, kind: str, text: str) -> None:
            """A good answer that does not arrive as it was announced."""
            body = text.encode()
            self.close_connection = True
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if kind == "cut":
                self.send_header("Transfer-Encoding", "chunked")
            else:
                length = {"short": len(body) // 2, "long": 2 * len(body)}.get(kind, len(body))
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if kind == "cut":
                self.wfile.write(b"%x\r\n%s\r\n80\r\n" % (100, body[:100]))
            elif kind != "drip":
                self.wfile.write(body)
            else:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    owner.wait(0.05)

        def _send(self, status: int, body: bytes, extra: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in (extra or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return Handler


def _broken_body(kind: str, request: dict[str, Any]) -> bytes:
    if kind == "garbled":
        return b'{"id": "x", "choices": [{"message": {"content": "trunc'
    if kind == "html":
        return b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"
    if kind == "no_choices":
        return b'{"id": "x", "error": {"message": "overloaded"}}'
    if kind == "huge":
        return json.dumps(_completion(request, Scripted("x" * (32 * 1024 * 1024)))).encode()
    return json.dumps(_completion(request, Scripted(""))).encode()


def _completion(request: dict[str, Any], scripted: Scripted) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": scripted.text or None}
    if scripted.reasoning:
        message["reasoning_content"] = scripted.reasoning
    if scripted.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}}
            for i, (n, a) in enumerate(scripted.tool_calls)
        ]
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model", ""),
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": scripted.finish
                or ("tool_calls" if scripted.tool_calls else "stop"),
            }
        ],
        "usage": {
            "prompt_tokens": scripted.input_tokens,
            "completion_tokens": scripted.output_tokens,
            "total_tokens": scripted.input_tokens + scripted.output_tokens,
        },
    }
