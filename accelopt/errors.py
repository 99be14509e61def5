"""The few exceptions a user of AccelOpt can meet. A failing kernel is data, not an exception."""

from __future__ import annotations


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


def about_file(error: OSError) -> str:
    """What kept a file or folder from being read or written, as a sentence that names it."""
    return f"{error.filename} cannot be used: {reason(error)}"


def reason(error: Exception) -> str:
    """Why a file cannot be used, without its name."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {error.start + 1})"
    return str(error)
