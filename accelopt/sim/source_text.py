"""The text of kernels that were loaded from text: the tracer reads their source lines, also when
several kernels were loaded under one file name."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

GLOBAL = "__accelopt_source__"
"""The name, in a kernel module's globals, of the module's own text."""


def register(file: str, source: str) -> None:
    """Lets `linecache` (and so `inspect`, tracebacks and the tracer) read the text as that file."""
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)


def restore(function: Callable[..., Any]) -> None:
    """Registers the text that the function was loaded from, if it came from text."""
    source = getattr(function, "__globals__", {}).get(GLOBAL)
    if isinstance(source, str):
        register(function.__code__.co_filename, source)
