"""OpenTelemetry spans of model calls through logfire: an extra, off unless asked for."""

from __future__ import annotations

from accelopt.errors import require


def start_tracing() -> None:
    """Send a span for each agent run and model call to logfire, when a token for it is there.

    Raises MissingExtra when logfire is not installed.
    """
    require("tracing", logfire="logfire")
    import agents
    import logfire

    agents.set_trace_processors([])  # the SDK's own would send everything to OpenAI
    logfire.configure(service_name="accelopt", send_to_logfire="if-token-present")
    logfire.instrument_openai_agents()
