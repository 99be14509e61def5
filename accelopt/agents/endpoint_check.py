"""Whether an endpoint is there, asked at the start of a run: its first question comes only when the
baseline has been measured, which may take minutes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from accelopt.agents.completion import clean
from accelopt.agents.configuration import ModelConfig
from accelopt.errors import ConfigError
from accelopt.time_limits import CONNECT_SECONDS, GREETING_SECONDS

UNREACHABLE_AFTER = 8.0  # seconds of failing connections to an endpoint that never took one
UNCONNECTED = ("ConnectError", "ConnectTimeout")  # of whichever HTTP client openai is built on
MOST_NAMED = 5


async def greet(client: Any, config: ModelConfig) -> str:
    """What speaks against the endpoint's answering later, in a sentence; empty when nothing does.

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
