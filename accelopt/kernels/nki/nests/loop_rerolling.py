"""Bodies that follow one another and differ in numbers and names alone, written once in a static loop."""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accelopt.kernels.nki.nests.axis_positions import FreeNames, without_number
from accelopt.kernels.nki.nests.statement_trees import declared, made_of, text_of, trees
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
    variables,
    with_names,
)

LEAST_SAVED = 12
"""Statements that writing a body once has to save."""
MOST_TRIED = 64
"""Runs of statements that may be such bodies."""
MOST_COLUMNS = 6
"""Values that may differ from body to body: more than those are no table that one reads."""
MODULES = ("nl", "nisa")


class _Apart(Exception):
    """Bodies that are not the same after all."""


def rerolled(nodes: Sequence[NestNode], names: FreeNames) -> list[NestNode]:
    """Statements in which those bodies, too, are written once whose names differ, and whose lines run on the same
    engines though some may run on others."""
    return folded(settled(folded(nodes, names)), names, named=False)


def folded(
    nodes: Sequence[NestNode], names: FreeNames, around: frozenset[str] = frozenset(),
    named: bool = True,
) -> list[NestNode]:  # fmt: skip
    """Statements with bodies that repeat each other written once, in a static loop; `around` are names that
    others use. Bodies are alike where names differ in their numbers alone, or by whatever they are `named`."""
    found = list(nodes) if named else _declared_late(nodes)
    keys = [_key(node, named) for node in found]
    used = [names_of(node) for node in found]

    def without(first: int, last: int) -> frozenset[str]:
        return around.union(*used[:first], *used[last:])

    for first, length, count in _repeats(keys, [_size(node) for node in found]):
        last = first + length * count
        groups = [found[first + n * length : first + (n + 1) * length] for n in range(count)]
        try:
            made = _Folding(groups, names).made(without(first, last))
        except _Apart:
            continue
        before = folded(found[:first], names, without(0, first), named)
        return [*before, made, *folded(found[last:], names, without(last, len(found)), named)]
    return [
        replace(node, body=folded(node.body, names, without(n, n + 1), named))
        if isinstance(node, (For, If, Each))
        else node
        for n, node in enumerate(found)
    ]


def _declared_late(nodes: Sequence[NestNode]) -> list[NestNode]:
    """Statements with each declaration of a tile right before the first that uses it."""
    found: list[NestNode] = []
    waiting: dict[str, NestNode] = {}
    for node in nodes:
        own = trees(node.forms[0].text) if isinstance(node, Line) else ()
        tile = declared(own[0]) if len(own) == 1 else None
        if tile:
            waiting[tile.name] = node
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
    columns: dict[tuple[str, ...], str] = field(default_factory=dict)

    def made(self, outside: frozenset[str]) -> Each:
        """One body for all groups. Raises _Apart where others use a name of theirs, or too much differs."""
        self.own = [
            {name for node in group for name in (*names_of(node, stored=True), *variables(node))}
            for group in self.groups
        ]
        used = [{name for node in group for name in names_of(node)} for group in self.groups]
        for n, own in enumerate(self.own):
            elsewhere = outside.union(*(names for m, names in enumerate(used) if m != n))
            if own & elsewhere:
                raise _Apart
        self.called: list[dict[str, str]] = [{} for _ in self.groups]
        body = [self.node(same, [1.0] * len(same)) for same in zip(*self.groups, strict=True)]
        return self.each(body)

    def each(self, body: list[NestNode]) -> Each:
        """The loop, of a body in which columns stand."""
        lines = {column: _line(column) for column in self.columns}
        rows = [column for column, line in lines.items() if line is None]
        if len(rows) > MOST_COLUMNS:
            raise _Apart
        said: dict[str, str] = {}
        for column in rows:
            base = without_number(column[0]) if column[0].isidentifier() else "size"
            said[self.columns[column]] = self.names.new(f"{base}_here")
        names = list(said.values())
        index = self.names.new("part") if any(lines.values()) or not rows else ""
        for column, place in self.columns.items():
            if line := lines[column]:
                step, first = line
                said[place] = f"{index} + {first}" if step == 1 else f"{index} * {step} + {first}"
        if index:
            names.insert(0, index)
            rows.insert(0, tuple(map(str, range(len(self.groups)))))
        whole = len(names) == 1 and names[0] == index
        table = () if whole else tuple(zip(*rows, strict=True))
        return Each(
            tuple(names), len(self.groups), [with_names(node, said) for node in body], table
        )

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


def _line(column: Sequence[str]) -> tuple[int, int] | None:
    """The step and the first of whole numbers at equal distances."""
    if not all(number.removeprefix("-").isdigit() for number in column):
        return None
    first, step = int(column[0]), int(column[1]) - int(column[0])
    fits = all(int(number) == first + step * n for n, number in enumerate(column))
    return (step, first) if fits else None
