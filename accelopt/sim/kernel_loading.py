"""From the text of a kernel file to its module.

Runs the file's Python, so only a process that holds nothing worth having should call it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import ModuleType
from typing import Any

from accelopt.sim import standin

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


def load(source: str, file: str = "kernel.py") -> ModuleType:
    """The kernel file as a module, with `neuronxcc` and `nki` answered by the simulated core when no
    SDK is installed. The tracer reads source lines, so they are registered under the file's name."""
    standin.install()
    register(file, source)
    module = ModuleType("kernel")
    module.__file__ = file
    setattr(module, GLOBAL, source)
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module
