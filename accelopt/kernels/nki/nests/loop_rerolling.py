"""Bodies that follow one another and differ in numbers and names alone, written once in a static loop."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelopt.kernels.nki.nests.axis_positions import FreeNames
from accelopt.kernels.nki.nests.statements import (
    Comment,
    Each,
    For,
    Form,
    If,
    Line,
    NestNode,
    settled,
)

LEAST_SAVED = 12
"""Statements that writing a body once has to save."""
MOST_TRIED = 64
"""Runs of statements that may be such bodies."""
MOST_COLUMNS = 6
"""Values that may differ from body to body: more than those are no table that one reads."""
_TOKEN = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])|[A-Za-z_]\w*|\s+|.", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(r"^((?:\w+, )*\w+) = ", re.MULTILINE)
_COPY = re.compile(r"_\d+$")
_TILE = re.compile(r"(\w+) = nl\.(?:ndarray|zeros)\(.*buffer=nl\.(?:sbuf|psum)\)$")
_OWN = re.compile(r"(?<![\w.])(?!nl\b|nisa\b)[A-Za-z_]\w*(?![\w=])")
"""A name that a kernel gives: of a tile, an array or a loop's variable."""


class _Apart(Exception):
    """Bodies that are not the same after all."""


def rerolled(nodes: Sequence[NestNode], names: FreeNames) -> list[NestNode]:
    """Statements in which those bodies, too, are written once whose names differ, and whose lines run on the same
    engines though some may run on others."""
    return folded(settled(folded(nodes, names)), names, alike=_form)


def folded(
    nodes: Sequence[NestNode], names: FreeNames, around: frozenset[str] = frozenset(),
    alike: Callable[[str], str] | None = None,
) -> list[NestNode]:  # fmt: skip
    """Statements with bodies that repeat each other written once, in a static loop; `around` are names that
    others use, and texts for which `alike` gives the same may be written once."""
    found = _declared_late(nodes) if alike else list(nodes)
    keys = [_key(node, alike or _shape) for node in found]
    used = [_named(node) for node in found]

    def without(first: int, last: int) -> frozenset[str]:
        return around.union(*used[:first], *used[last:])

    for first, length, count in _repeats(keys, [_size(node) for node in found]):
        last = first + length * count
        groups = [found[first + n * length : first + (n + 1) * length] for n in range(count)]
        try:
            made = _Folding(groups, names).made(without(first, last))
        except _Apart:
            continue
        before = folded(found[:first], names, without(0, first), alike)
        return [*before, made, *folded(found[last:], names, without(last, len(found)), alike)]
    return [
        replace(node, body=folded(node.body, names, without(n, n + 1), alike))
        if isinstance(node, (For, If, Each))
        else node
        for n, node in enumerate(found)
    ]


def _declared_late(nodes: Sequence[NestNode]) -> list[NestNode]:
    """Statements with each declaration of a tile right before the first that uses it."""
    found: list[NestNode] = []
    waiting: dict[str, NestNode] = {}
    for node in nodes:
        declared = _TILE.match(node.forms[0].text) if isinstance(node, Line) else None
        if declared:
            waiting[declared[1]] = node
            continue
        found += [waiting.pop(name) for name in [*waiting] if name in _named(node)]
        found.append(node)
    return [*found, *waiting.values()]


def _named(node: NestNode) -> set[str]:
    """The names in a statement."""
    return set().union(*map(_names_in, _texts(node)))


@functools.lru_cache(maxsize=16384)  # kernels of one search have most of their text in common
def _names_in(text: str) -> frozenset[str]:
    return frozenset(_NAME.findall(text))


def _repeats(keys: Sequence[str], sizes: Sequence[int]) -> list[tuple[int, int, int]]:
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


def _texts(node: NestNode) -> Iterator[str]:
    if isinstance(node, Line):
        yield from (form.text for form in node.forms)
    elif isinstance(node, For):
        yield node.variable
    elif isinstance(node, Each):
        yield " ".join((*node.names, *(text for row in node.rows for text in row)))
    for inner in node.body if isinstance(node, (For, If, Each)) else ():
        yield from _texts(inner)


def _key(node: NestNode, alike: Callable[[str], str]) -> str:
    """What two statements have in common that may be written once."""
    if isinstance(node, Line):
        return "\n".join(f"{form.engine} {alike(form.text)}" for form in node.forms)
    if isinstance(node, For):
        inner = "\n".join(_key(own, alike) for own in node.body)
        return f"{node.kind} {alike(node.variable)}:\n{inner}\n:"
    named = isinstance(node, Comment) and alike is _shape
    return f"# {node}" if named else "#" if isinstance(node, Comment) else f"{id(node)}"


@functools.lru_cache(maxsize=16384)
def _shape(text: str) -> str:
    """A text without numbers, also those of names."""
    return "".join(
        "#" if _NUMBER.fullmatch(token) else _COPY.sub("", token) for token in _TOKEN.findall(text)
    )


def _form(text: str) -> str:
    """A text without numbers and names of its own."""
    return _shape(_OWN.sub("@", text))


@dataclass
class _Folding:
    """Groups of statements of one form, and what they differ in: by the values in all of them, the place
    that stands for them."""

    groups: list[list[NestNode]]
    names: FreeNames
    columns: dict[tuple[str, ...], str] = field(default_factory=dict)

    def made(self, outside: frozenset[str]) -> Each:
        """One body for all groups. Raises _Apart where others use a name of theirs, or too much differs."""
        texts = ["\n".join(t for node in group for t in _texts(node)) for group in self.groups]
        self.own = [
            {
                *_NAME.findall(" ".join(_DECLARED.findall(text))),
                *(v for node in group for v in _variables(node)),
            }
            for text, group in zip(texts, self.groups, strict=True)
        ]
        used = [set(_NAME.findall(text)) for text in texts]
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
            base = _COPY.sub("", column[0]) if _NAME.fullmatch(column[0]) else "size"
            said[self.columns[column]] = self.names.new(f"{base}_here")
        names = list(said.values())
        index = self.names.new("part") if any(lines.values()) or not rows else ""
        for column, place in self.columns.items():
            if line := lines[column]:
                said[place] = _along(index, *line)
        if index:
            names.insert(0, index)
            rows.insert(0, tuple(map(str, range(len(self.groups)))))
        whole = len(names) == 1 and names[0] == index
        table = () if whole else tuple(zip(*rows, strict=True))
        return Each(tuple(names), len(self.groups), [_spelled(node, said) for node in body], table)

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
        pieces = [_TOKEN.findall(text) for text in texts]
        made: list[str] = []
        for same in zip(*pieces, strict=True):
            if _NAME.fullmatch(same[0]):
                made.append(self.named(same))
            elif len(set(same)) == 1:
                made.append(same[0])
            else:
                made.append(self.column(same))
        return "".join(made)

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
        return self.columns.setdefault(same, f"\0{len(self.columns)}\0")


def _variables(node: NestNode) -> Iterator[str]:
    if isinstance(node, For):
        yield node.variable
        for inner in node.body:
            yield from _variables(inner)


def _line(column: Sequence[str]) -> tuple[int, int] | None:
    """The step and the first of whole numbers at equal distances."""
    if any(not re.fullmatch(r"-?\d+", number) for number in column):
        return None
    first, step = int(column[0]), int(column[1]) - int(column[0])
    fits = all(int(number) == first + step * n for n, number in enumerate(column))
    return (step, first) if fits else None


def _along(index: str, step: int, first: int) -> str:
    """A number of a line, by its index."""
    text = index if step == 1 else f"{index} * {step}"
    return f"{text} + {first}".replace("+ -", "- ") if first else text


_PLACE = re.compile("(?P<before>[-*/%] ?)?(?P<place>\0\\d+\0)(?P<after> ?[*/%])?")


def _spelled(node: NestNode, said: Mapping[str, str]) -> NestNode:
    """A statement with what columns are called."""

    def one(match: re.Match[str]) -> str:
        text, before, after = said[match["place"]], match["before"] or "", match["after"] or ""
        apart = " " in text and (before or after)
        return f"{before}({text}){after}" if apart else f"{before}{text}{after}"

    if isinstance(node, Line):
        forms = (form._replace(text=_PLACE.sub(one, form.text)) for form in node.forms)
        return Line(tuple(forms), node.moved)
    if isinstance(node, For):
        body = [_spelled(inner, said) for inner in node.body]
        return replace(node, body=body, count=_PLACE.sub(one, node.count))
    return node
