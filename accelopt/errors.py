"""The few exceptions a user of AccelOpt can meet. A failing kernel is data, not an exception."""

from __future__ import annotations

from pathlib import PurePath


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


class BudgetExhausted(AcceloptError):
    """The run's budget of money, tokens or calls is spent; finished work is kept."""


class InternalError(Exception):
    """A fault of AccelOpt, never of a kernel: what it was doing, what went wrong, where in our code."""


def internal_error(error: BaseException, doing: str) -> InternalError:
    """An exception that nobody expected, as one sentence with its place."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = ""
    if trace is not None:
        file = PurePath(trace.tb_frame.f_code.co_filename)
        place = f" at {'/'.join(file.parts[-2:])}:{trace.tb_lineno}"
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return InternalError(
        f"an internal error of AccelOpt while {doing}{place} ({what}); please report it"
    )


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


def reason(error: Exception) -> str:
    """Why a file cannot be used, without its name."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1})"
    return str(error)
