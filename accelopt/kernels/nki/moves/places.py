"""Expressions of a kernel that a plan can point at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from accelopt.kernels.nki.moves.move import IllegalMove, Parameter, Site
from accelopt.kernels.nki.moves.reading import Reading, Statement
from accelopt.kernels.nki.moves.source import Line, Path, parts
from accelopt.kernels.nki.moves.values import Result


class Place(NamedTuple):
    """A tensor-valued expression: its statement and which of the statement's expressions it is."""

    statement: Statement
    part: int
    node: cst.BaseExpression

    def site(self, move: str, text: str, **more: Parameter) -> Site:
        """The site of a move here, as `find_place` finds it again."""
        return Site(move, {"at": path_text(self.statement.path), "part": self.part, **more}, text)


def places(reading: Reading) -> Iterator[Place]:
    """Every tensor-valued expression of the kernel that is not a bare name."""
    for statement in reading.statements:
        if statement.opaque or statement.kind not in {"compute", "store"}:
            continue
        for part, node in enumerate(_expressions(reading, statement.line)):
            yield Place(statement, part, node)


def find_place(reading: Reading, site: Site) -> Place:
    """The place that a site's `at` and `part` point at. Raises IllegalMove."""
    wanted = path_of(str(site.parameters["at"]))
    for place in places(reading):
        if place.statement.path == wanted and place.part == site.parameters.get("part", 0):
            return place
    raise IllegalMove("the statement of the plan is not there")


def find_statement(reading: Reading, site: Site) -> Statement:
    """The statement that a site's `at` points at. Raises IllegalMove."""
    wanted = path_of(str(site.parameters["at"]))
    for statement in reading.statements:
        if statement.path == wanted:
            return statement
    raise IllegalMove("the statement of the plan is not there")


def path_text(path: Path) -> str:
    """A path as plans write it: 6.2.0."""
    return ".".join(map(str, path))


def path_of(text: str) -> Path:
    """The path that `path_text` wrote."""
    return tuple(int(part) for part in text.split("."))


def _expressions(reading: Reading, node: Line) -> list[cst.BaseExpression]:
    return [
        part
        for part in parts(node.node)
        if isinstance(part, (cst.Call, cst.BinaryOperation))
        and isinstance(reading.values.get(part), Result)
    ]
