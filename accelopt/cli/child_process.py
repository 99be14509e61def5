"""A command's work in a process of its own: a reference that hangs or ends it is named, not obeyed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from rich.markup import escape
from rich.status import Status

from accelopt.errors import AcceloptError, ConfigError, quoted
from accelopt.evaluation import Row
from accelopt.report.console import console
from accelopt.sandbox import fork_with_server, workers
from accelopt.sandbox.workers import Call, Fault
from accelopt.time_limits import COMMAND_SECONDS

BYTES = 24 << 30
SHOWN = 4000  # characters of what a child had printed that gave no answer


class Said(Row):
    """What a command prints, or the sentence on what the user can mend."""

    text: str = ""
    passed: bool = True
    error: str = ""


def said_by(work: Callable[[], Said]) -> Said:
    """In the child: what `work` says, what the user can mend included."""
    try:
        return work()
    except AcceloptError as error:
        return Said(passed=False, error=str(error))


@contextlib.contextmanager
def waiting() -> Iterator[Callable[[str], None]]:
    """A line for whoever waits that says what is being done: on a terminal, nowhere else. It begins
    with the first note, for it moves in a thread, and before that there may be a fork."""
    terminal = console()
    with contextlib.ExitStack() as stack:
        lines: list[Status] = []

        def watch(what: str) -> None:
            if terminal.is_terminal and not lines:
                lines.append(stack.enter_context(terminal.status(what)))
            for line in lines:
                line.update(escape(what))

        yield watch


def ask(function: str, payload: Mapping[str, object], seconds: float) -> Said:
    """Call `function` ("module:name", of the payload, to a Said) in a child process. Raises ConfigError
    for what the user can mend, and for a reference that ends the process or never comes to an end."""
    call = Call(function, payload, seconds + COMMAND_SECONDS, BYTES)
    with waiting() as watch:
        found = workers.perform(call, Said, watch=watch, start=fork_with_server)
    if isinstance(found, Fault):
        output = found.output.strip()[-SHOWN:]
        said = [found.message, quoted(output, whole=True)] if output else [found.message]
        raise ConfigError("\n".join(said))
    if found.error:
        raise ConfigError(found.error)
    return found
