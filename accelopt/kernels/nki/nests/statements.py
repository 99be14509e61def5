"""A lowered kernel before it is text: loops, and lines that know what they cost.

A line may have a form for several engines. Engines are chosen for the whole kernel at once, so that
none waits for work that another could do; the costs that decide it also price a schedule in closed
form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.statement_trees import names_in, renamed, text_of


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


def with_names(node: NestNode, names: Mapping[str, str]) -> NestNode:
    """A statement with other expressions in the places of names, but for those of loops."""

    def said(text: str) -> str:
        return text_of(renamed(text, names))

    if isinstance(node, Line):
        forms = (form._replace(text=said(form.text)) for form in node.forms)
        return Line(tuple(forms), node.moved)
    if isinstance(node, Comment):
        return node
    body = [with_names(inner, names) for inner in node.body]
    if isinstance(node, For):
        return replace(node, body=body, count=said(node.count))
    if isinstance(node, If):
        return replace(node, body=body, condition=said(node.condition))
    return replace(node, body=body, rows=tuple(tuple(map(said, row)) for row in node.rows))


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


def header(node: For | If | Each) -> str:
    """The line above a block."""
    if isinstance(node, If):
        return f"if {node.condition}:"
    if isinstance(node, For):
        return f"for {node.variable} in nl.{node.kind}({node.count or node.extent}):"
    one = len(node.names) == 1
    rows = ", ".join(row[0] if one else f"({', '.join(row)})" for row in node.rows)
    count = f"({rows})" if rows else f"nl.static_range({node.count})"
    return f"for {', '.join(node.names)} in {count}:"


def texts(node: NestNode) -> Iterator[str]:
    """All text of a statement and of those in it."""
    if isinstance(node, Line):
        yield from (form.text for form in node.forms)
    elif not isinstance(node, Comment):
        if not isinstance(node, For) or node.variable:
            yield f"{header(node)}\n    pass"
        for inner in node.body:
            yield from texts(inner)


def names_of(*nodes: NestNode, stored: bool = False) -> set[str]:
    """The names in statements; those alone that they give values, where it is asked for `stored` ones."""
    return {name for node in nodes for text in texts(node) for name in names_in(text, stored)}
