"""A command's work in a process of its own: a reference that hangs or ends it is named, not obeyed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.markup import escape

from accelopt.cli.kernel_file import named
from accelopt.errors import AcceloptError, ConfigError, quoted
from accelopt.evaluation import Row
from accelopt.report.console import console
from accelopt.report.progress import SILENT
from accelopt.sandbox import fork_with_server, workers
from accelopt.sandbox.workers import Call, Fault
from accelopt.time_limits import COMMAND_SECONDS

BYTES = 24 << 30
SHOWN = 4000  # characters of what a child had printed that gave no answer


class Said(Row):
    """What a command prints, or the sentence on what the user can mend; `shown` elsewhere."""

    text: str = ""
    shown: str = ""
    passed: bool = True
    error: str = ""


@contextlib.contextmanager
def waiting(seconds: float) -> Iterator[Callable[[str], None]]:
    """A line for whoever waits: what is being done, how long so far, and the `seconds` that all of it may take;
    on a terminal at all times, elsewhere when there was nothing for a while. It begins with the first note,
    for it moves in a thread, and before that there may be a fork."""
    screen, started, over = console(), time.monotonic(), threading.Event()
    doing: list[str] = []

    def remind() -> None:
        with screen.status("") if screen.is_terminal else contextlib.nullcontext() as line:
            while not over.wait(1.0 if line else SILENT):
                now = time.monotonic() - started
                said = f"{doing[-1]}: {now:.0f} s so far (it is stopped after {seconds:.0f} s)"
                if line:
                    line.update(escape(said))
                else:
                    screen.out(said, highlight=False)

    thread = threading.Thread(target=remind, daemon=True)

    def watch(what: str) -> None:
        doing.append(what)
        if len(doing) == 1:
            thread.start()

    try:
        yield watch
    finally:
        over.set()
        if doing:
            thread.join()


Work = Callable[[Mapping[str, Any]], Said]


def answer(payload: Mapping[str, Any]) -> Said:
    """In the child: what the work says that is asked for, what the user can mend included."""
    try:
        work: Work = getattr(import_module(payload["module"]), payload["name"])
        return work(payload["asked"])
    except AcceloptError as error:
        return Said(passed=False, error=str(error))


def ask(work: Work, asked: Mapping[str, object], seconds: float, *given: Path | None) -> Said:
    """What `work`, a function of a module, says of `asked`, in a child process. Raises ConfigError for
    what the user can mend, with the files `given` named as the command line does, and for a reference that ends
    the process or never comes to an end."""
    payload = {"module": work.__module__, "name": work.__name__, "asked": asked}
    call = Call("accelopt.cli.child_process:answer", payload, seconds + COMMAND_SECONDS, BYTES)
    with waiting(call.seconds) as watch:
        found = workers.perform(call, Said, watch=watch, start=fork_with_server)
    if isinstance(found, Fault):
        output = found.output.strip()[-SHOWN:]
        said = [found.message, quoted(output, whole=True)] if output else [found.message]
        raise ConfigError(named("\n".join(said), *given))
    if found.error:
        raise ConfigError(named(found.error, *given))
    return found
