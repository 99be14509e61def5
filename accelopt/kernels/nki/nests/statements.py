"""A lowered kernel before it is text: loops, and lines that know what they cost.

A line may have a form for several engines. Engines are chosen for the whole kernel at once, so that
none waits for work that another could do; the costs that decide it also price a schedule in closed
form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.brevity import brief


class Form(NamedTuple):
    """A line on one engine, and the nanoseconds that it occupies it."""

    text: str
    engine: str
    ns: float


@dataclass
class Line:
    """One statement; of several forms the cheapest for the kernel is written. `moved` are its bytes
    from or to HBM."""

    forms: tuple[Form, ...]
    moved: int = 0


@dataclass
class Comment:
    """A line for the reader."""

    text: str


@dataclass
class For:
    """`for variable in nl.<kind>(extent)`; where bodies are written once `extent` is that in the mean, and
    `count` its text. Rounds of one that `overlaps` begin before those before have ended."""

    variable: str
    extent: float
    body: list[NestNode] = field(default_factory=list)
    kind: str = "affine_range"
    count: str = ""
    overlaps: bool = field(default=False, repr=False)


@dataclass
class If:
    """`if condition`, which a `share` of the times that it is reached meet."""

    condition: str
    body: list[NestNode] = field(default_factory=list)
    share: float = 1.0


@dataclass
class Each:
    """One body for several `rows` of values with these names; without rows the name counts the bodies."""

    names: tuple[str, ...]
    count: int
    body: list[NestNode] = field(default_factory=list)
    rows: tuple[tuple[str, ...], ...] = ()


NestNode = Line | Comment | For | If | Each


def line(text: str) -> Line:
    """A statement that costs nothing: a declaration."""
    return Line((Form(text, "none", 0.0),))


def walk(nodes: list[NestNode], times: float = 1) -> Iterator[tuple[Line, float]]:
    """Every line and how often it runs."""
    for node in nodes:
        if isinstance(node, For):
            yield from walk(node.body, times * node.extent)
        elif isinstance(node, If):
            yield from walk(node.body, times * node.share)
        elif isinstance(node, Each):
            yield from walk(node.body, times * node.count)
        elif isinstance(node, Line):
            yield node, times


def balanced(nodes: list[NestNode]) -> dict[int, Form]:
    """The form of every line, by the line's id: what has one engine first, then the rest, those
    with most to move first, wherever the kernel then ends soonest."""
    busy: dict[str, float] = {}
    chosen: dict[int, Form] = {}
    open_lines: list[tuple[float, Line, float]] = []
    for item, times in walk(nodes):
        if len(item.forms) == 1:
            form = item.forms[0]
            busy[form.engine] = busy.get(form.engine, 0.0) + form.ns * times
            chosen[id(item)] = form
        else:
            open_lines.append((min(form.ns for form in item.forms) * times, item, times))
    for _, item, times in sorted(open_lines, key=lambda entry: -entry[0]):
        form = min(item.forms, key=lambda f: busy.get(f.engine, 0.0) + f.ns * times)
        busy[form.engine] = busy.get(form.engine, 0.0) + form.ns * times
        chosen[id(item)] = form
    return chosen


def settled(nodes: list[NestNode]) -> list[NestNode]:
    """The statements with the forms of their lines chosen."""
    chosen = balanced(nodes)
    for item, _ in walk(nodes):
        item.forms = (chosen[id(item)],)
    return nodes


class Price(NamedTuple):
    """What a kernel occupies: milliseconds of each engine and of DMA, and bytes moved."""

    engines: Mapping[str, float]
    moved: int

    @property
    def ms(self) -> float:
        """The busiest engine's time: no schedule of these instructions is faster."""
        return max(self.engines.values(), default=0.0)


def price(nodes: list[NestNode], spec: Hardware) -> Price:
    """The closed-form price of a lowered kernel."""
    chosen = balanced(nodes)
    engines: dict[str, float] = {}
    moved = 0.0
    for item, times in walk(nodes):
        form = chosen[id(item)]
        if form.engine != "none":
            engines[form.engine] = engines.get(form.engine, 0.0) + form.ns * times * 1e-6
        moved += item.moved * times
    engines["dma"] = max(engines.get("dma", 0.0), moved / spec.dma_peak_bytes_per_ns * 1e-6)
    return Price(engines, round(moved))


_WORD = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"_\d+$")


def rendered(nodes: list[NestNode]) -> list[str]:
    """The text, engines chosen. Loops that are not inside each other may have one name."""
    chosen = balanced(nodes)
    loops = set(_variables(nodes))

    def said(text: str, called: Mapping[str, str]) -> str:
        return _WORD.sub(lambda word: called.get(word[0], word[0]), text)

    def lines(part: list[NestNode], depth: int, called: Mapping[str, str]) -> Iterator[str]:
        pad = "    " * depth
        for node in part:
            if isinstance(node, For) and not node.variable:  # a place for what is needed later
                yield from lines(node.body, depth, called)
            elif isinstance(node, For):
                name = _NUMBER.sub("", node.variable)
                if name not in loops or name in called.values():
                    name = node.variable
                yield f"{pad}for {name} in nl.{node.kind}({node.count or node.extent}):"
                yield from lines(node.body, depth + 1, {**called, node.variable: name})
            elif isinstance(node, Each):
                rows = ", ".join(f"({', '.join(row)})" for row in node.rows)
                count = f"({rows})" if rows else f"nl.static_range({node.count})"
                yield f"{pad}for {', '.join(node.names)} in {count}:"
                yield from lines(node.body, depth + 1, called)
            elif isinstance(node, If):
                yield f"{pad}if {node.condition}:"
                yield from lines(node.body, depth + 1, called)
            elif isinstance(node, Comment):
                yield f"{pad}# {node.text}"
            else:
                text = said(chosen[id(node)].text, called)
                yield from (pad + piece for piece in text.split("\n"))

    return brief(list(lines(nodes, 1, {})))


def _variables(nodes: list[NestNode]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, For):
            yield node.variable
        if isinstance(node, (For, If, Each)):
            yield from _variables(node.body)
