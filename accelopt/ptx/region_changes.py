"""Regions that differ between two Region-DAGs, up to the names of registers and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from accelopt.ptx.module import Statement
from accelopt.ptx.regions import Region, RegionDag
from accelopt.ptx.register_dataflow import Registers, registers

_NAME = re.compile(r"(?<![\w.$%])[A-Za-z_%$][\w$%]*")


def touched(before: RegionDag, after: RegionDag) -> tuple[Region, ...]:
    """The regions of `before` that `after` does not have as they were, then those of `after` that are
    new between regions of `before`. Equal DAGs, whatever their registers, labels and lines are called,
    give none; a region whose own statements are equal counts as changed when it reads another value.
    """
    known = (registers(before.function), registers(after.function))
    shapes = [
        [_shape(one, names) for one in dag.regions]
        for dag, names in zip((before, after), known, strict=True)
    ]
    matcher = SequenceMatcher(a=shapes[0], b=shapes[1], autojunk=False)
    changed: set[int] = set()
    new: list[Region] = []
    pairs: list[tuple[Region, Region]] = []
    for kind, first, last, other, end in matcher.get_opcodes():
        if kind == "equal":
            pairs += zip(before.regions[first:last], after.regions[other:end], strict=True)
        elif kind == "insert":
            new += after.regions[other:end]
        else:
            changed.update(range(first, last))
    changed.update(_rewired(pairs, *known))
    return (*(before.regions[at] for at in sorted(changed)), *new)


def _shape(region: Region, known: Registers) -> tuple[str, ...]:
    """The statements of a region without the names of registers and labels."""
    return (region.phase, *(_plain(one, known) for one in region.statements))


def _plain(one: Statement, known: Registers) -> str:
    def replaced(match: re.Match[str]) -> str:
        if known.declared(match[0], one.scope):
            return "%"
        return "$" if known.label(match[0], one.scope) is not None else match[0]

    operands = (_NAME.sub(replaced, part) for part in one.operands)
    guard = ("!" if one.guard.startswith("!") else "") + ("@" if one.guard else "")
    return f"{guard} {one.name} {','.join(operands)}"


def _rewired(
    pairs: list[tuple[Region, Region]], before: Registers, after: Registers
) -> Iterator[int]:
    """Regions that look equal but write or read another register, or jump elsewhere. Which is which
    most statements say, and where they are at odds, the name."""
    uses: list[tuple[int, str, str]] = []
    for old, new in pairs:
        for one, two in zip(old.statements, new.statements, strict=True):
            names = zip(_names(one, before), _names(two, after), strict=True)
            uses += ((old.region_id, *both) for both in names)
    votes: dict[str, Counter[str]] = {}
    for _, name, other in uses:
        votes.setdefault(name, Counter())[other] += 1
    meaning = {
        name: max(count, key=lambda other: (count[other], other == name))
        for name, count in votes.items()
    }
    yield from (region for region, name, other in uses if meaning[name] != other)


def _names(one: Statement, known: Registers) -> list[str]:
    """Declared registers and labels, in the order of the text."""
    found = []
    for match in _NAME.finditer(" ".join((one.guard, *one.operands))):
        label = known.label(match[0], one.scope)
        if known.declared(match[0], one.scope):
            found.append(known.register(match[0], one.scope))
        elif label is not None:
            found.append(f"{label.name}:{label.scope}")
    return found
