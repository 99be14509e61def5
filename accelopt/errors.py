"""The few exceptions a user of AccelOpt can meet. A failing kernel is data, not an exception."""

from __future__ import annotations

import traceback
from importlib.util import find_spec
from pathlib import Path


class AcceloptError(Exception):
    """Something the user can mend: one sentence that says what, where and what to do."""


class ConfigError(AcceloptError):
    """A file, option or model configuration that cannot be used as it is."""


class MissingExtra(AcceloptError):
    """An optional package is absent; the message carries the exact install line."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is not installed; install it with: pip install 'accelopt[{extra}]'"
        )


def require(extra: str, **packages: str) -> None:
    """Raises MissingExtra of the first of `packages` (what is imported = what is installed) that is not
    there."""
    for module, package in packages.items():
        if find_spec(module) is None:
            raise MissingExtra(package, extra)


class BudgetExhausted(AcceloptError):
    """The run's budget of money, tokens or calls is spent; finished work is kept."""


class InternalError(Exception):
    """A fault of AccelOpt, never of the kernel."""


def internal_fault(error: BaseException, doing: str = "") -> str:
    """What a person is told of an error that is AccelOpt's own: what it was `doing`, what went wrong,
    and the line of AccelOpt that raised it (the innermost line where none is in the chain)."""
    package = Path(__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if package in Path(frame.filename).parents] or frames
    where = f" while {doing}" if doing else ""
    if own:
        file = Path(own[-1].filename)
        inside = package.parent in file.parents and package in file.parents
        place = file.relative_to(package.parent) if inside else file.name
        where += f" at {place}:{own[-1].lineno}"
    kind = "" if isinstance(error, InternalError) else f"{type(error).__name__}: "
    said = f"{kind}{error}".removesuffix(": ")
    return f"internal error of AccelOpt{where}, no fault of the kernel: {said}"


def internal_error(error: BaseException, doing: str) -> InternalError:
    """An exception that nobody expected, as an InternalError that says so."""
    return InternalError(internal_fault(error, doing))


def sentence(error: Exception) -> str:
    """What a person is told of an error that ends a command: one line, or few, without control
    characters. An OSError names its file, or the machine's fault where there is none (a full disk)."""
    said = str(error)
    if isinstance(error, OSError):
        where = f"{error.filename} cannot be used" if error.filename else "the system refused"
        said = f"{where}: {reason(error)}"
    return printable(said)


def printable(text: str) -> str:
    """`text` without control characters, which a terminal or a log would obey."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    )


QUOTED = "  | "
"""Begins the lines of a text that is not ours."""


def quoted(text: str, *, whole: bool = False) -> str:
    """What somebody else's code says, for the midst of what we say: without control characters, and
    with a mark before its further lines, or before all of it, so that none reads as a line of ours."""
    first, *more = printable(text).split("\n")
    lines = [line if line.startswith(QUOTED) else f"{QUOTED}{line}" for line in more]
    if whole:
        first = first if first.startswith(QUOTED) else f"{QUOTED}{first}"
    return "\n".join([first, *lines])


def reason(error: Exception) -> str:
    """Why a file cannot be used, without its name."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1})"
    return str(error)
