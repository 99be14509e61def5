"""Names that the simulated core knows of and does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import Unsupported
from accelopt.sim.tracer import active

NEAR = 0.7
"""Of the characters of two names that are called near, `difflib`'s ratio."""
DOCUMENTED = "Use the documented nki.language and nki.isa functions."


class UnsupportedName(Unsupported, AttributeError):  # type: ignore[misc]
    """An attribute access that names something unsupported; `hasattr` is False for it."""


class AbsentCallable:
    """What importing a private name gives: usable as a name, refused when it is called."""

    def __init__(self, name: str, mend: str = "") -> None:
        self.__name__ = name
        self.mend = mend or DOCUMENTED

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _unsupported(self.__name__, self.mend)

    def __getitem__(self, grid: Any) -> AbsentCallable:
        return self

    def __getattr__(self, leaf: str) -> AbsentCallable:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        return AbsentCallable(f"{self.__name__}.{leaf}")


class AbsentModule(ModuleType):
    """A private or collective package: importing from it works, calling does not. `mend` says what
    calling would take."""

    def __init__(self, name: str, mend: str = "") -> None:
        super().__init__(name)
        self.mend = mend

    def __getattr__(self, leaf: str) -> AbsentCallable:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        return AbsentCallable(f"{self.__name__}.{leaf}", self.mend)


def absent_names(
    module: str, names: str | Mapping[str, str], present: Iterable[str] = ()
) -> Callable[[str], Any]:
    """A module's `__getattr__`: known absent (and private) names are Unsupported, others unknown, with
    the nearest of those `present`. A mapping also says what to do instead, and its names may be mentioned outside of kernels."""
    mends = {names: DOCUMENTED} if isinstance(names, str) else names
    known = {name: mend for group, mend in mends.items() for name in group.split()}
    lenient = not isinstance(names, str)

    def lookup(name: str) -> Any:
        private = name.startswith("_") and not name.startswith("__")
        if name in known and lenient and active() is None:
            return AbsentCallable(f"{module}.{name}", known[name])
        if name in known or private:
            raise _unsupported(f"{module}.{name}", known.get(name, DOCUMENTED))
        words = {"_".join(sorted(other.split("_"))): other for other in present}
        near = get_close_matches("_".join(sorted(name.split("_"))), words, 2, NEAR)
        said = f"; it has {' and '.join(words[other] for other in near)}" if near else ""
        raise AttributeError(f"{module} has no attribute {name!r}{said}")

    return lookup


def _unsupported(name: str, mend: str) -> UnsupportedName:
    error = UnsupportedName(name, mend)
    return error if active() is None else error.at(running_line())
