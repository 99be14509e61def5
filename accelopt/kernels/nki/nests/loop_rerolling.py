"""Bodies that follow one another and differ in numbers and names alone, written once in a static loop."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accelopt.kernels.nki.nests.axis_positions import FreeNames, without_number
from accelopt.kernels.nki.nests.statement_trees import assigned, declared, made_of, text_of, trees
from accelopt.kernels.nki.nests.statements import (
    Comment,
    Each,
    For,
    Form,
    If,
    Line,
    NestNode,
    names_of,
    settled,
    with_names,
)

LEAST_SAVED = 6
"""Statements that writing a body once has to save."""
MOST_TRIED = 64
"""Runs of statements that may be such bodies."""
MOST_COLUMNS = 6
"""Values that may differ from body to body: more than those are no table that one reads."""
MODULES = ("nl", "nisa")


class _Apart(Exception):
    """Bodies that are not the same after all."""


def rerolled(nodes: Sequence[NestNode], names: FreeNames) -> list[NestNode]:
    """Statements in which those bodies, too, are written once whose names differ, also those of tiles that others use
    and of positions, and whose lines run on the same engines though some may run on others."""
    positions = tuple(node for node in nodes if isinstance(node, Line) and _is_positions(node))
    found = folded(folded(nodes, names), names, positions=positions)
    found = folded(settled(found), names, positions=positions)
    used = [names_of(n) - names_of(n, stored=True) for n in found if n not in positions]
    return [n for n in found if n not in positions or names_of(n, stored=True) & set().union(*used)]


def folded(
    nodes: Sequence[NestNode], names: FreeNames, around: frozenset[str] = frozenset(),
    positions: tuple[Line, ...] | None = None,
) -> list[NestNode]:  # fmt: skip
    """Statements with bodies that repeat each other written once, in a static loop; `around` are names that
    others use. Bodies are alike where names differ in their numbers alone; with the statements that give names to
    `positions` in tiles, which a body may have of its own, by whatever they are named."""
    named = positions is None
    found = list(nodes) if named else _declared_late(nodes)
    keys = [n if node in (positions or ()) else _key(node, named) for n, node in enumerate(found)]
    used = [set() if node in (positions or ()) else names_of(node) for node in found]

    def without(first: int, last: int) -> frozenset[str]:
        return around.union(*used[:first], *used[last:])

    for first, length, count in _repeats(keys, [_size(node) for node in found]):
        last = first + length * count
        groups = [found[first + n * length : first + (n + 1) * length] for n in range(count)]
        try:
            made = _Folding(groups, names, positions).made(without(first, last))
        except _Apart:
            continue
        before = folded(found[:first], names, without(0, first), positions)
        return [*before, *made, *folded(found[last:], names, without(last, len(found)), positions)]
    return [
        replace(node, body=folded(node.body, names, without(n, n + 1), positions))
        if isinstance(node, (For, If, Each))
        else node
        for n, node in enumerate(found)
    ]


def _is_positions(node: Line) -> bool:
    """Whether a statement gives names to the positions in tiles of one shape."""
    _, value = assigned(trees(node.forms[0].text)[0])
    return isinstance(value, ast.Subscript) and ast.unparse(value.value) == "nl.mgrid"


def _declared_late(nodes: Sequence[NestNode]) -> list[NestNode]:
    """Statements with each declaration of a tile right before the first that uses it."""
    found: list[NestNode] = []
    waiting: dict[str, NestNode] = {}
    for node in nodes:
        if tile := _tile(node):
            waiting[tile] = node
            continue
        found += [waiting.pop(name) for name in [*waiting] if name in names_of(node)]
        found.append(node)
    return [*found, *waiting.values()]


def _repeats(keys: Sequence[object], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Runs of equal keys that follow one another: where, how long, how often; those first that save most."""
    found: list[tuple[int, int, int, int]] = []
    for length in range(1, len(keys) // 2 + 1):
        same = [keys[n] == keys[n + length] for n in range(len(keys) - length)]
        run = 0
        for n in range(len(same), -1, -1):
            run = run + 1 if n < len(same) and same[n] else 0
            if count := run // length:
                saved = count * sum(sizes[n : n + length])
                if saved >= LEAST_SAVED:
                    found.append((saved, n, length, count + 1))
    found.sort(key=lambda entry: (-entry[0], entry[2], entry[1]))
    return [entry[1:] for entry in found[:MOST_TRIED]]


def _size(node: NestNode) -> int:
    return 1 + sum(map(_size, node.body)) if isinstance(node, (For, If, Each)) else 1


def _key(node: NestNode, named: bool) -> object:
    """What two statements have in common that may be written once."""
    if isinstance(node, Line):
        return tuple((form.engine, _shape(form.text, named)) for form in node.forms)
    if isinstance(node, For):
        return node.kind, _shape(node.variable, named), *(_key(own, named) for own in node.body)
    if isinstance(node, Comment):
        return "#", node.text if named else ""
    return id(node)


@functools.lru_cache(maxsize=16384)  # kernels of one search have most of their text in common
def _shape(text: str, named: bool) -> object:
    """A text without numbers, also those of names; without its own names where bodies are not `named`."""
    return _shape_of([*trees(text)], named)


def _shape_of(node: object, named: bool) -> object:
    if isinstance(node, ast.Name):
        return node.id if node.id in MODULES else without_number(node.id) if named else "@"
    if isinstance(node, ast.AST):
        parts = (getattr(node, name) for name in node._fields)
        return "#" if _is_number(node) else (type(node), *(_shape_of(p, named) for p in parts))
    return tuple(_shape_of(part, named) for part in node) if isinstance(node, list) else node


def _is_number(node: object) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass
class _Folding:
    """Groups of statements of one form, and what they differ in: by the values in all of them, the name
    that stands for them."""

    groups: list[list[NestNode]]
    names: FreeNames
    positions: tuple[Line, ...] | None
    columns: dict[tuple[str, ...], str] = field(default_factory=dict)

    def made(self, outside: frozenset[str]) -> list[NestNode]:
        """One body for all groups, behind the tiles of theirs that others use. Raises _Apart where others use another
        name of theirs, or too much differs."""
        used = [names_of(*group) for group in self.groups]
        local = [
            [p for p in self.positions or () if names_of(p, stored=True) & names] for names in used
        ]
        if len({tuple(map(id, own)) for own in local}) > 1:
            self.groups = [[*own, *group] for own, group in zip(local, self.groups, strict=True)]
        if len({*map(len, self.groups)}) > 1:
            raise _Apart
        positions = names_of(*(self.positions or ()), stored=True)
        everywhere = [
            outside.union(*(names for m, names in enumerate(used) if m != n)) - positions
            for n in range(len(used))
        ]
        first: list[NestNode] = []
        for n in reversed(range(len(self.groups[0]))):
            same = [group[n] for group in self.groups]
            if any(
                names_of(node, stored=True) & e for node, e in zip(same, everywhere, strict=True)
            ):
                if self.positions is None or not all(map(_tile, same)):
                    raise _Apart
                first[:0] = [group.pop(n) for group in self.groups]
        if (len(self.groups) - 1) * sum(map(_size, self.groups[0])) < LEAST_SAVED:
            raise _Apart
        self.own = [names_of(*group, stored=True) for group in self.groups]
        self.called: list[dict[str, str]] = [{} for _ in self.groups]
        body = [self.node(same, [1.0] * len(same)) for same in zip(*self.groups, strict=True)]
        taken = {name: self.names.new(without_number(name)) for name in self.own[0] & outside}
        return [*first, self.each([with_names(node, taken) for node in body])]

    def each(self, body: list[NestNode]) -> Each:
        """The loop, of a body in which columns stand."""
        index, rounds = "", tuple(map(str, range(len(self.groups))))
        rows: dict[tuple[str, ...], str] = {}
        said: dict[str, str] = {}
        for column, place in self.columns.items():
            known = ((base, _line(column, base)) for base in (rounds, *rows))
            base, line = next(((base, line) for base, line in known if line), (rounds, None))
            if line is None:
                wanted = without_number(column[0]) if column[0].isidentifier() else "size"
                rows[column] = said[place] = self.names.new(f"{wanted}_here")
                continue
            if base is rounds:
                index = index or self.names.new("part")
            step, first = line
            name = rows.get(base, index)
            times = f"{name} * {abs(step)}" if abs(step) > 1 else name
            said[place] = f"{times} + {first}" if step > 0 else f"{first} - {times}"
        if len(rows) > MOST_COLUMNS:
            raise _Apart
        if not rows:
            index = index or self.names.new("part")
        columns = {rounds: index, **rows} if index else rows
        table = tuple(zip(*columns, strict=True)) if rows else ()
        made = [with_names(node, said) for node in body]
        return Each(tuple(columns.values()), len(self.groups), made, table)

    def node(self, same: Sequence[NestNode], weights: Sequence[float]) -> NestNode:
        """One statement for one of each group, which run `weights` times as often as on average."""
        first = same[0]
        if isinstance(first, Comment):
            said = (comment.text.rstrip(".") for comment in same if isinstance(comment, Comment))
            return Comment(f"{', '.join(dict.fromkeys(said))}.")
        if isinstance(first, Line):
            lines = [node for node in same if isinstance(node, Line)]
            forms = []
            for n, form in enumerate(first.forms):
                own = [line.forms[n] for line in lines]
                ns = sum(f.ns * w for f, w in zip(own, weights, strict=True)) / len(own)
                forms.append(Form(self.text([f.text for f in own]), form.engine, ns))
            moved = sum(line.moved * w for line, w in zip(lines, weights, strict=True)) / len(lines)
            return Line(tuple(forms), round(moved))
        loops = [node for node in same if isinstance(node, For)]
        mean = sum(loop.extent for loop in loops) / len(loops)
        weights = [w * loop.extent / mean for w, loop in zip(weights, loops, strict=True)]
        count = self.text([loop.count or str(loop.extent) for loop in loops])
        variable = self.text([loop.variable for loop in loops])
        bodies = zip(*(loop.body for loop in loops), strict=True)
        made = [self.node(inner, weights) for inner in bodies]
        return For(variable, mean, made, loops[0].kind, count)

    def text(self, texts: Sequence[str]) -> str:
        """One text for one of each group."""
        if len({_shape(text, False) for text in texts}) > 1:
            raise _Apart
        return text_of(map(self.tree, zip(*map(trees, texts), strict=True)))

    def tree(self, same: Sequence[Any]) -> Any:
        """One part of a tree for those of each group."""
        first = same[0]
        if isinstance(first, list):
            return [self.tree(parts) for parts in zip(*same, strict=True)]
        if isinstance(first, ast.Name):
            return ast.Name(self.named(tuple(name.id for name in same)), first.ctx)
        if _is_number(first):
            values = tuple(repr(number.value) for number in same)
            return ast.Name(self.column(values)) if len(set(values)) > 1 else first
        if isinstance(first, ast.AST):
            parts = {name: self.tree([getattr(n, name) for n in same]) for name in first._fields}
            return made_of(first, parts)
        return first

    def named(self, same: tuple[str, ...]) -> str:
        """A name of each group's own by that in the first; another one by a column."""
        own = [name in names for name, names in zip(same, self.own, strict=True)]
        if all(own):
            if any(
                c.setdefault(s, same[0]) != same[0] for s, c in zip(same, self.called, strict=True)
            ):
                raise _Apart
            return same[0]
        if any(own):
            raise _Apart
        return same[0] if len(set(same)) == 1 else self.column(same)

    def column(self, same: tuple[str, ...]) -> str:
        """What stands for values that differ."""
        return self.columns.setdefault(same, f"__{len(self.columns)}")


def _line(column: Sequence[str], base: Sequence[str]) -> tuple[int, int] | None:
    """What whole numbers are of others: multiples by a step, and a number."""
    if not all(number.removeprefix("-").isdigit() for number in (*column, *base)):
        return None
    pairs = [(int(number), int(other)) for number, other in zip(column, base, strict=True)]
    (first, start), (second, end) = pairs[:2]
    step = (second - first) // (end - start) if end != start else 0
    first -= step * start
    fits = all(number == first + step * other for number, other in pairs)
    return (step, first) if fits and step else None


def _tile(node: NestNode) -> str:
    """The name of the tile that a statement declares, and nothing else; empty for others."""
    own = trees(node.forms[0].text) if isinstance(node, Line) else ()
    tile = declared(own[0]) if len(own) == 1 else None
    return tile.name if tile else ""
