"""Dataflow of registers: definitions, uses, constants, and what a value depends on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from accelopt.ptx.module import Function, Label, Statement

_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_%$][\w$%]*")
_WITHOUT_RESULT = frozenset(
    "bra brx ret exit trap brkpt cp pmevent nanosleep setmaxnreg stackrestore fence membar".split()
)
_INDEXED = frozenset("cp wgmma tcgen05 mbarrier bar barrier brx ldmatrix stmatrix".split())
LANES = ("%tid", "%laneid", "%lanemask_", "%warpid")


class Effect(NamedTuple):
    """Registers that a statement writes and reads; `.param` variables count as registers, and so do
    special registers (`%tid`). `address` holds those that stand in brackets."""

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    address: tuple[str, ...]


class Registers:
    """The registers of one function; a name that inner braces declare is a register of its own."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._declared = {(0, name) for name in function.parameters}
        self._families: set[tuple[int, str]] = set()
        self._labels = {(one.scope, one.name): one for one in function.labels}
        self._resolved: dict[tuple[str, int], str] = {}
        self._constants: dict[str, int | None] = {}
        for one in function.declarations:
            if one.words and one.words[0] in (".reg", ".param"):
                self._declare(one.words, one.scope)
        self.effects = tuple(self._effect(one) for one in function.statements)
        self.definitions: dict[str, list[int]] = {}
        for at, effect in enumerate(self.effects):
            for name in effect.writes:
                self.definitions.setdefault(name, []).append(at)

    @cached_property
    def indices(self) -> frozenset[str]:
        """Registers of which addresses, descriptors, guards or the sizes of copies are made."""
        targets: set[str] = set()
        for one, effect in zip(self.function.statements, self.effects, strict=True):
            targets.update(effect.address)
            if one.guard:
                targets.update(self.names(one.guard, one.scope))
            if one.opcode in _INDEXED:
                targets.update(effect.reads)
        return self.feeding(targets)

    def _declare(self, words: tuple[str, ...], scope: int) -> None:
        for place, word in enumerate(words):
            if _NAME.fullmatch(word):
                family = words[place + 1 : place + 2] == ("<",)
                (self._families if family else self._declared).add((scope, word))

    def _scopes(self, scope: int) -> Iterable[int]:
        while scope:
            yield scope
            scope = self.function.scopes[scope]
        yield 0

    def register(self, name: str, scope: int) -> str:
        """The register that `name` means inside these braces; empty when it is none."""
        key = (name, scope)
        if key not in self._resolved:
            self._resolved[key] = self._look_up(name, scope)
        return self._resolved[key]

    def declared(self, name: str, scope: int) -> bool:
        """Whether a declaration made the register: the machine's own (`%tid`) have none."""
        return self._owner(name, scope) is not None

    def _owner(self, name: str, scope: int) -> int | None:
        family = name.rstrip("0123456789")
        for one in self._scopes(scope):
            if (one, name) in self._declared or (one, family) in self._families:
                return one
        return None

    def _look_up(self, name: str, scope: int) -> str:
        owner = self._owner(name, scope)
        if owner is None:
            return name if name.startswith("%") else ""
        return f"{name}@{owner}" if owner else name

    def label(self, name: str, scope: int) -> Label | None:
        """The label that `name` means inside these braces."""
        found = (self._labels.get((one, name)) for one in self._scopes(scope))
        return next(filter(None, found), None)

    def names(self, operand: str, scope: int) -> tuple[str, ...]:
        """The registers that stand in an operand."""
        found = (self.register(match[0], scope) for match in _NAME.finditer(operand))
        return tuple(filter(None, found))

    def _effect(self, one: Statement) -> Effect:
        results, rest = results_of(one)
        reads = [name for part in rest for name in self.names(part, one.scope)]
        writes = [name for part in results for name in self.names(part, one.scope)]
        address = [
            name
            for part in one.operands
            for piece in re.findall(r"\[([^\]]*)\]", part)
            for name in self.names(piece, one.scope)
        ]
        if one.guard:
            reads += self.names(one.guard.lstrip("!"), one.scope)
            reads += writes  # what is not written keeps its value
        if one.opcode == "wgmma" or one.opcode == "tcgen05":
            reads += writes
        if one.opcode == "st" and "param" in [word.split("::")[0] for word in one.modifiers]:
            writes = address
        return Effect(tuple(writes), tuple(reads), tuple(address))

    def constant(self, operand: str, scope: int) -> int | None:
        """The integer that an operand is: a literal, what the launch says, or a register that is only
        ever set to what such give."""
        literal = integer(operand)
        if literal is None:
            literal = self.function.launch.get(operand)
        if literal is not None:
            return literal
        name = self.register(operand, scope)
        if name not in self._constants:
            self._constants[name] = None  # of a register that is made of itself
            found = self.definitions.get(name, [])
            self._constants[name] = self.result(found[0]) if len(found) == 1 else None
        return self._constants[name]

    def result(self, at: int) -> int | None:
        """The integer that statement `at` gives; None where it is none, or nobody can say."""
        one = self.function.statements[at]
        if one.guard or len(one.operands) < 2:
            return None
        if one.opcode == "ld" and "param" in one.modifiers:
            return self.function.launch.get(one.operands[1].strip("[]"))
        known = [self.constant(operand, one.scope) for operand in one.operands[1:]]
        given = [value for value in known if value is not None]
        return calculated(one, given) if len(given) == len(known) else None

    def dependent(self, seeds: Iterable[str]) -> frozenset[str]:
        """Registers whose values depend on those that begin with one of `seeds`, in any way but through
        memory; the lane that `elect.sync` picks counts as one."""
        starts = tuple(seeds)
        users: dict[str, list[int]] = {}
        for at, effect in enumerate(self.effects):
            for name in effect.reads:
                users.setdefault(name, []).append(at)
        work = [name for name in users if name.startswith(starts)]
        found = set(work)
        for at, one in enumerate(self.function.statements):
            if one.opcode == "elect":
                work += self.effects[at].writes
        found.update(work)
        while work:
            for at in users.get(work.pop(), ()):
                new = [name for name in self.effects[at].writes if name not in found]
                found.update(new)
                work += new
        return frozenset(found)

    def feeding(self, targets: Iterable[str]) -> frozenset[str]:
        """`targets` and the registers from which they are computed without reading memory."""
        found = set(targets)
        work = list(found)
        while work:
            for at in self.definitions.get(work.pop(), ()):
                if self.function.statements[at].opcode in ("ld", "atom", "mma", "wgmma"):
                    continue
                new = [name for name in self.effects[at].reads if name not in found]
                found.update(new)
                work += new
        return frozenset(found)

    def origins(self, register: str) -> frozenset[int]:
        """The statements that a pointer can come from, through additions, moves and choices."""
        found: set[int] = set()
        seen, work = {register}, [register]
        while work:
            for at in self.definitions.get(work.pop(), ()):
                one = self.function.statements[at]
                found.add(at)
                if one.opcode in ("add", "sub", "mov", "mad", "selp", "or", "cvta", "cvt"):
                    new = [name for name in self.effects[at].reads if name not in seen]
                    seen.update(new)
                    work += new
        return frozenset(found)


@lru_cache(maxsize=16)
def registers(function: Function) -> Registers:
    """The registers of `function`, worked out once."""
    return Registers(function)


def results_of(one: Statement) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operands that are written, and those that are read."""
    given = one.operands
    if one.opcode == "call":
        return (given[:1], given[1:]) if given and given[0].startswith("(") else ((), given)
    if not given or given[0].startswith("[") or one.opcode in _WITHOUT_RESULT:
        return (), given
    if one.opcode in ("bar", "barrier") and "red" not in one.modifiers:
        return (), given
    if one.opcode == "tcgen05" and one.modifiers[:1] != ("ld",):
        return (), given
    return given[:1], given[1:]


def integer(text: str) -> int | None:
    """A PTX integer literal; None for anything else."""
    try:
        plain = text.rstrip("Uu")
        if re.fullmatch(r"-?0[0-7]+", plain):
            return int(plain, 8)
        return int(plain, 0)
    except ValueError:
        return None


_KIND = re.compile(r"([subp])(8|16|32|64)")
_PLAIN: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
}


def calculated(one: Statement, given: Sequence[int]) -> int | None:
    """The result of `one` from its operands, as its type holds it; None for what is not known here.
    Semantics: "PTX ISA" 9.0, 9.7.1 and 9.7.8 (NVIDIA)."""
    matches = map(_KIND.fullmatch, one.modifiers)
    kinds = [(found[1], int(found[2])) for found in matches if found]
    if not kinds or {"sat", "cc"} & set(one.modifiers):
        return None
    kind, size = kinds[-1]
    values = [held(value, kind, size) for value in given]
    result: int | None = None
    if one.opcode in ("mov", "cvta") and len(values) == 1:
        result = values[0]
    elif one.opcode == "cvt" and len(kinds) == 2 and len(values) == 1:
        return held(values[0], *kinds[0])
    elif one.opcode in _PLAIN and len(values) == 2:
        result = _PLAIN[one.opcode](*values)
    elif one.opcode in ("mul", "mad") and len(values) == 2 + (one.opcode == "mad"):
        result = values[0] * values[1]
        if "hi" in one.modifiers:
            result >>= size
        elif "wide" in one.modifiers:
            size *= 2
        result += given[2] if one.opcode == "mad" else 0
    elif one.opcode in ("div", "rem") and len(values) == 2 and values[1]:
        quotient = abs(values[0]) // abs(values[1])
        quotient = quotient if (values[0] < 0) == (values[1] < 0) else -quotient
        result = quotient if one.opcode == "div" else values[0] - quotient * values[1]
    return None if result is None else held(result, kind, size)


def held(value: int, kind: str, size: int) -> int:
    """An integer in so many bits, signed (`s`) or not."""
    value %= 1 << size
    return value - (1 << size) if kind == "s" and value >> (size - 1) else value
