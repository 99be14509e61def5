"""What PTX text says, as records: modules, functions, statements, labels and declarations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from accelopt.errors import AcceloptError

LIMITS = (".reqntid", ".maxntid")


class NotPtx(AcceloptError):
    """Text that is not PTX, or ends in the middle of it."""


class SourcePlace(NamedTuple):
    """A line of the source that a kernel was compiled from."""

    file: str
    line: int


class Statement(NamedTuple):
    """One instruction. `guard` is `%p` or `!%p`, or empty; operands have no white space; `line` to
    `last_line` count from 1; `source` goes from the innermost inlined place outwards."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    line: int
    last_line: int
    source: tuple[SourcePlace, ...] = ()
    scope: int = 0

    @property
    def name(self) -> str:
        """Opcode and modifiers as they are written."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def text(self) -> str:
        """The statement in one line."""
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.name} {', '.join(self.operands)}".rstrip() + ";"


class Label(NamedTuple):
    """A label, the number of statements before it, and the braces it stands in."""

    name: str
    at: int
    line: int
    scope: int


class Declaration(NamedTuple):
    """A directive that ends at `;`: `.reg`, `.shared`, `.pragma`, `.branchtargets`, ... Its words, the
    label in front of it, and the braces it stands in."""

    words: tuple[str, ...]
    line: int
    label: str = ""
    scope: int = 0


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel (`entry`) or a device function that has a body. `scopes` gives the parent of each pair of
    braces, the body's own first; `numbers` the values of directives as `.reqntid`; `launch` what a launch
    says of parameters and special registers (`%ctaid.x`)."""

    name: str
    entry: bool
    statements: tuple[Statement, ...]
    labels: tuple[Label, ...]
    declarations: tuple[Declaration, ...]
    scopes: tuple[int, ...]
    numbers: Mapping[str, tuple[int, ...]]
    parameters: tuple[str, ...]
    line: int
    last_line: int
    launch: Mapping[str, int] = field(default_factory=dict)

    @property
    def threads(self) -> int | None:
        """Threads of a block by `.reqntid`, else the most by `.maxntid`; None when neither says."""
        found = [prod(self.numbers[name]) for name in LIMITS if self.numbers.get(name)]
        return found[0] if found and found[0] else None

    def launched(self, launch: Mapping[str, int]) -> Function:
        """The function with what a launch says: parameters by name or place ("0"), special registers."""
        known = {str(place): name for place, name in enumerate(self.parameters)}
        return replace(self, launch={known.get(name, name): launch[name] for name in launch})


@dataclass(frozen=True, eq=False)
class Module:
    """All functions of one PTX text, and what stands between them."""

    functions: tuple[Function, ...]
    declarations: tuple[Declaration, ...]
    version: str
    target: str
    files: Mapping[int, str]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the entries."""
        return tuple(one.name for one in self.functions if one.entry)

    def function(self, name: str = "") -> Function:
        """The function of this name, as the text or C++ writes it, or the only one whose name contains
        it; without a name the first kernel. Raises NotPtx when there is none, or several."""
        if not name:
            return next((one for one in self.functions if one.entry), self.functions[0])
        found = [one for one in self.functions if one.name == name]
        mangled = re.compile(rf"_Z(?:N\w*?)?{len(name)}{re.escape(name)}(?!\d)")
        found = found or [one for one in self.functions if mangled.match(one.name)]
        found = found or [one for one in self.functions if name in one.name]
        if len(found) == 1:
            return found[0]
        there = ", ".join(one.name for one in (found or self.functions))
        said = "several functions match" if found else "no function is called"
        raise NotPtx(f"{said} {name!r}; there are {there}")
