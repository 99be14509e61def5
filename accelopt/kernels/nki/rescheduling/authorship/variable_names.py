"""Variables of a lowered kernel by the names that its author has for the same values."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping

from accelopt.kernels.nki.nests.statement_trees import DESTINATIONS, base
from accelopt.kernels.nki.rescheduling.authorship.steps import Steps, fills, transfers
from accelopt.kernels.nki.rescheduling.authorship.text import identifiers, replaced
from accelopt.parsing import parse_python

LAYOUT = re.compile(
    r"(_transposed|_parts|_turned|_part|_view|_tile|_kept)?(?:_rows|_sums)?(_\d+)?$"
)
"""What a lowered name says of where its value lies; that stays, but for rows and sums."""


def with_names(text: str, made: Steps, author: Steps) -> str:
    """`text`, whose steps are `made`, with the author's names."""
    wanted = _results(made, author)
    own = _names_by_meaning(author)
    for meaning, names in _names_by_meaning(made).items():
        called = _called(names, own.get(meaning, {}))
        for name in names:
            if _base(name) in called:
                wanted.setdefault(name, called[_base(name)] + _layout(name))
    theirs = _transferred(author)
    for (array, how), tiles in _transferred(made).items():
        place = wanted.get(array, array), how
        if len({_base(name) for name in tiles}) == 1 == len(theirs.get(place, ())):
            wanted |= {name: next(iter(theirs[place])) + _number(name, tiles) for name in tiles}
    for name in sorted(identifiers(made.function)):
        longer = [w for w in wanted if name.startswith(f"{w}_") and w not in made.shapes]
        if longer and name not in made.shapes:
            stem = max(longer, key=len)
            wanted.setdefault(name, wanted[stem] + name.removeprefix(stem))
    return _renamed(text, made, wanted)


def with_loop_names(text: str, made: Steps, author: Steps) -> str:
    """`text` with the author's names for the variables of loops over the same range."""
    theirs, own = _loops(author), _loops(made)
    wanted = {
        name: next(iter(theirs[over]))
        for over, names in own.items()
        for name in names
        if len(names) == 1 == len(theirs.get(over, ()))
        and sum(name in o for o in own.values()) == 1
    }
    return _renamed(text, made, wanted)


def _loops(steps: Steps) -> dict[str, set[str]]:
    """The variables of loops by what they run over, where that has a name."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(steps.function):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=args)) if any(
                map(identifiers, args)
            ):
                found.setdefault(", ".join(map(ast.unparse, args)), set()).add(name)
    return found


def _number(name: str, names: Collection[str]) -> str:
    """What a name ends on that one of several has for the same array."""
    found = LAYOUT.search(name)
    return (found[2] or "") if found and len(names) > 1 else ""


def _transferred(steps: Steps) -> dict[tuple[str, float | None], dict[str, None]]:
    """The tiles that are brought from each array in HBM (1), those that are stored to it (None), and by an
    empty name those that are filled with a number."""
    found: dict[tuple[str, float | None], dict[str, None]] = {}
    for tile, array, stored in transfers(steps):
        found.setdefault((array, None if stored else 1), {})[tile] = None
    for tile, number in fills(steps):
        found.setdefault(("", number), {})[tile] = None
    return found


def _unread(steps: Steps) -> set[str]:
    """The names of tiles that instructions write and none reads."""
    nodes = [node for step in steps.found for node in ast.walk(step.statement)]
    read = [node.id for node in nodes if isinstance(node, ast.Name)]
    for node in nodes:
        written = (
            node.targets if isinstance(node, ast.Assign)
            else [k.value for k in node.keywords if k.arg in DESTINATIONS]
            if isinstance(node, ast.Call) else []
        )  # fmt: skip
        for target in written:
            if name := base(target):
                read.remove(name)
    return {name for step in steps.found for name in step.targets} - set(read)


def _called(names: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The author's names, `own`, for the bases of lowered `names` of one value: those that come by it
    in the same way, or else the last for the last. Both say how each name comes by the value."""
    if not own:
        return {}
    bases: dict[str, str] = {}
    for name, how in names.items():
        bases.setdefault(_base(name), how)
    called: dict[str, str] = {}
    for how in dict.fromkeys(bases.values()):
        alike = [name for name in own if own[name] == how]
        if alike:
            called[[base for base in bases if bases[base] == how][-1]] = alike[-1]
    if len(own) == 1:
        return {list(bases)[-1]: next(iter(own))}
    return called


def _base(name: str) -> str:
    found = LAYOUT.search(name)
    return name[: found.start()] if found else name


def _layout(name: str) -> str:
    found = LAYOUT.search(name)
    kept = (found[1] or "") if found else ""
    return kept if kept not in ("_tile", "_kept") else ""


def _names_by_meaning(steps: Steps) -> dict[int, dict[str, str]]:
    """The names that mean one computed value each, in order, by what they mean, with the function
    that gives them what is there already; not those of its negative."""
    found: dict[int, dict[str, str]] = {}
    unread = _unread(steps)
    for step in steps.found:
        if steps.negative(step):
            continue
        for name, meaning in step.targets.items():
            if name in unread:
                continue
            settled = steps.named[name] - {steps.meanings.fresh}
            alone = len(settled) == 1 and not steps.meanings.plain(meaning)
            if alone and name not in steps.shapes and name not in returned(steps):
                how = "" if (meaning, "") in step.keys else (step.keys or ((0, ""),))[0][1]
                if name not in found.setdefault(meaning, {}):
                    found[meaning][name] = how
    return found


def returned(steps: Steps) -> list[str]:
    """The names of what a kernel returns, in order; empty where they are not names alone."""
    for statement in steps.function.body[::-1]:
        if isinstance(statement, ast.Return) and statement.value is not None:
            value = statement.value
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            return names if len(names) == len(parts) else []
    return []


def _results(made: Steps, author: Steps) -> dict[str, str]:
    """The author's names for results, and for what is called after them."""
    wanted: dict[str, str] = {}
    pairs = list(zip(returned(made), returned(author), strict=False))
    if len(returned(made)) != len(returned(author)):
        return wanted
    for name, said in pairs:
        for found in identifiers(made.function):
            rest = found.removeprefix(name)
            if found.startswith(name) and LAYOUT.fullmatch(rest):
                wanted[found] = said + rest
    return wanted


def _renamed(text: str, made: Steps, wanted: dict[str, str]) -> str:
    """`text` with the names that no other variable has."""
    tree = parse_python(text)
    used = identifiers(tree) - set(wanted)
    changes: dict[str, str] = {}
    for name, said in wanted.items():
        if name != said and said not in used and said not in changes.values():
            changes[name] = said
        else:
            used.add(name)
    if set(changes.values()) & (used | (set(wanted) - set(changes))):
        changes = {n: s for n, s in changes.items() if s not in used and s not in wanted}
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in changes]
    return replaced(text, [(node, changes[node.id]) for node in names])
