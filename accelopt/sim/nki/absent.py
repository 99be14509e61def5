"""Names that the simulated core knows of and does not have."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import Unsupported
from accelopt.sim.tracer import active


class UnsupportedName(Unsupported, AttributeError):  # type: ignore[misc]
    """An attribute access that names something unsupported; `hasattr` is False for it."""


class AbsentCallable:
    """What importing a private name gives: usable as a name, refused when it is called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _unsupported(self.__name__)

    def __getitem__(self, grid: Any) -> AbsentCallable:
        return self

    def __getattr__(self, leaf: str) -> AbsentCallable:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        return AbsentCallable(f"{self.__name__}.{leaf}")


class AbsentModule(ModuleType):
    """A private or collective package: importing from it works, calling does not."""

    def __getattr__(self, leaf: str) -> AbsentCallable:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        return AbsentCallable(f"{self.__name__}.{leaf}")


def absent_names(module: str, names: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: known absent (and private) names are Unsupported, others unknown."""
    known = frozenset(names.split())

    def lookup(name: str) -> Any:
        if name in known or (name.startswith("_") and not name.startswith("__")):
            raise _unsupported(f"{module}.{name}")
        raise AttributeError(f"{module} has no attribute {name!r}")

    return lookup


def _unsupported(name: str) -> UnsupportedName:
    tracer = active()
    error = UnsupportedName(name, "Use the documented nki.language and nki.isa functions.")
    if tracer is not None:
        error.source = running_line()
        error.args = (str(error),)
    return error
