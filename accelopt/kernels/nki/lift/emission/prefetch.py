"""Software pipelining: the operands of the next block of rows are made ready while the present block
is worked on, so that no engine waits for them behind what ends a block."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accelopt.kernels.nki.lift.emission.nest import Comment, For, If, Line, NestNode, line, walk
from accelopt.kernels.nki.lift.emission.phases import Phases

_WORD = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(?:\[.*?\])? \+?= ")


def phases_ahead(plan: Phases) -> int:
    """How many phases at the beginning wait for no product and no whole sum, and give operands of
    later ones; 0 where all phases are of that kind, or none."""
    count = 0
    for phase in plan.phases:
        if phase.level or phase.layout != "rows" or any(v.kind == "scan" for v in phase.values):
            break
        count += 1
    gives = any(v in plan.transposed for phase in plan.phases[:count] for v in phase.values)
    return count if gives and count < len(plan.phases) else 0


def carried(ready: list[NestNode], rest: list[NestNode], declared: list[NestNode]) -> list[str]:
    """The tiles that are filled for the next block and read when it has become the present one."""
    given = {m[1] for item, _ in walk(ready) if (m := _ASSIGNED.match(item.forms[0].text))}
    kept = {m[1] for item, _ in walk(declared) if (m := _ASSIGNED.match(item.forms[0].text))}
    filled = given | (kept & _words(ready))
    return sorted(filled & _words(rest))


def pipelined(
    ready: list[NestNode], rest: list[NestNode], declared: list[NestNode], rows: str, blocks: int
) -> list[NestNode]:
    """The loop over blocks in which `ready` is one block ahead of `rest`: it counts by `rows`_next,
    rest by `rows`."""
    names = {name: f"{name}_next" for name in carried(ready, rest, declared)}
    following = f"{rows}_next"
    early = [n for n in declared if names.keys() & _words([n])]
    late = [n for n in declared if n not in early]
    present = line(f"{rows} = {following} - 1")
    moved = [line(f"{name} = {other}") for name, other in names.items()]
    body: list[NestNode] = [
        If(f"{following} < {blocks}", _renamed([*early, *ready], names)),
        If(f"{following} > 0", [present, *late, *rest]),
        *moved,
    ]
    what = f"{', '.join(names)} of the next {rows} {'is' if len(names) == 1 else 'are'} made ready"
    return [
        Comment(f"{what} before the present one is worked on."),
        For(following, blocks + 1, body, "static_range"),
    ]


def _words(nodes: list[NestNode]) -> set[str]:
    return {
        word for item, _ in walk(nodes) for form in item.forms for word in _WORD.findall(form.text)
    }


def _renamed(nodes: list[NestNode], names: Mapping[str, str]) -> list[NestNode]:
    found: list[NestNode] = []
    for node in nodes:
        if isinstance(node, (For, If)):
            node.body[:] = _renamed(node.body, names)
        elif isinstance(node, Line):
            texts = (_WORD.sub(lambda w: names.get(w[0], w[0]), form.text) for form in node.forms)
            forms = (f._replace(text=text) for f, text in zip(node.forms, texts, strict=True))
            node = Line(tuple(forms), node.moved)
        found.append(node)
    return found
