"""Host modules that are not installed: a kernel's file may import them, its trace may not use them.

Files import torch, tqdm or matplotlib for what stands beside the kernel. In their place comes an
object that lets the file be imported, whatever it does with the names (attributes, decorators, base
classes, annotations), and that fails with one sentence when a trace uses it.
"""

from __future__ import annotations

import ast
import importlib.abc
import linecache
from functools import lru_cache
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from accelopt.parsing import tree_of
from accelopt.sim.call_sites import running_line
from accelopt.sim.tracer import active

_VENDOR = ("nki", "neuronxcc")  # these say themselves what they have
_CATCHING = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class AbsentUse(Exception):
    """A trace uses a name of a module that is not installed."""


class _AbsentBase:
    """What classes inherit in the place of an absent one."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        if active() is not None:
            raise AbsentUse(f"an object of {type(self).__name__} inherits from an absent module")


class AbsentName:
    """A name of an absent module. Outside of a trace it is whatever is wanted of it; what takes its
    value (a loop over it, its length, a number of it) fails there too."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_absent", name)

    def __getattr__(self, leaf: str) -> Any:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        _refuse_in_trace(self._absent)
        return AbsentName(f"{self._absent}.{leaf}")

    def __setattr__(self, leaf: str, value: object) -> None:
        _refuse_in_trace(self._absent)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it gives back what it decorates."""
        _refuse_in_trace(self._absent)
        if len(args) == 1 and not kwargs and _is_decorated(args[0]):
            return args[0]
        return AbsentName(f"{self._absent}(...)")

    def __getitem__(self, key: object) -> AbsentName:
        _refuse_in_trace(self._absent)
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        first = next(base for base in bases if isinstance(base, AbsentName))
        return (_AbsentBase,) if first is self else ()

    def __instancecheck__(self, instance: object) -> bool:
        return False  # nothing is an object of a class that is not there

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __bool__(self) -> bool:
        _refuse_in_trace(self._absent)
        return False

    def __enter__(self) -> AbsentName:
        _refuse_in_trace(self._absent)
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __setitem__(self, key: object, value: object) -> None:
        _refuse_in_trace(self._absent)

    def __repr__(self) -> str:
        return f"<{self._absent}, which is not installed>"


def _operator(name: str) -> Any:
    def operator(self: AbsentName, *_: object) -> AbsentName:
        _refuse_in_trace(self._absent)
        return self

    operator.__name__ = name
    return operator


for _name in "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split():
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(AbsentName, _form, _operator(_form))
for _form in ("__neg__", "__pos__", "__abs__", "__invert__"):
    setattr(AbsentName, _form, _operator(_form))


def _value(name: str) -> Any:
    def value(self: AbsentName, *_: object) -> NoReturn:
        _refuse(self._absent)

    value.__name__ = name
    return value


for _form in "__iter__ __len__ __contains__ __int__ __float__ __index__ __complex__".split():
    setattr(AbsentName, _form, _value(_form))


class AbsentModule(ModuleType):
    """A module that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, leaf: str) -> Any:
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        _refuse_in_trace(f"{self.__name__}.{leaf}")
        return AbsentName(f"{self.__name__}.{leaf}")


class AbsentImporter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: what no other finds and an import statement of one of the kernel's `files` names
    is absent. Other packages' imports, those by a call, and those whose failure the file expects
    (`try: import torch`), fail as ever."""

    def __init__(self, files: frozenset[str]) -> None:
        self.files = files

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A module that stands in; None where the import is to fail."""
        if name.partition(".")[0] in _VENDOR:
            return None
        place = running_line()
        if place.file not in self.files or not _stands_in(place.file, place.line):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that stands in."""
        return AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@lru_cache(maxsize=4096)
def _stands_in(file: str, line: int) -> bool:
    """Whether there is an import statement at a line, and no `try` around it that catches its
    failure."""
    tree = tree_of("".join(linecache.getlines(file)))
    statements = (n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)))
    if not any(node.lineno <= line <= (node.end_lineno or 0) for node in statements):
        return False
    return not any(
        node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        and any(_catches(handler) for handler in node.handlers)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
    )


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & _CATCHING)


def _is_decorated(value: object) -> bool:
    return isinstance(value, (FunctionType, type)) or hasattr(value, "func")


def _refuse_in_trace(name: str) -> None:
    if active() is not None:
        _refuse(name)


def _refuse(name: str) -> NoReturn:
    package = name.partition(".")[0]
    raise AbsentUse(
        f"the kernel uses {name}, and {package} is neither installed nor in the kernel's folder"
    )
