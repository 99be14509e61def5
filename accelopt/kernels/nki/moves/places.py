"""Expressions of a kernel that a plan can point at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from accelopt.kernels.nki.moves.move import Parameter, Site
from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement
from accelopt.kernels.nki.moves.reading.source import SourceStatement, StatementPath, parts
from accelopt.kernels.nki.moves.reading.values import UnboundResult


class ValuePlace(NamedTuple):
    """A tensor-valued expression: its statement and which of the statement's expressions it is."""

    statement: ReadStatement
    part: int
    node: cst.BaseExpression

    def site(self, move: str, text: str, **more: Parameter) -> Site:
        """The site of a move here, with more parameters where one place has several."""
        return Site(move, {"at": path_text(self.statement.path), "part": self.part, **more}, text)


def places(reading: Reading) -> Iterator[ValuePlace]:
    """Every tensor-valued expression of the kernel that is not a bare name."""
    for statement in reading.statements:
        if statement.opaque or statement.kind not in {"compute", "store"}:
            continue
        for part, node in enumerate(_expressions(reading, statement.line)):
            yield ValuePlace(statement, part, node)


def path_text(path: StatementPath) -> str:
    """A path as plans write it: 6.2.0."""
    return ".".join(map(str, path))


def _expressions(reading: Reading, node: SourceStatement) -> list[cst.BaseExpression]:
    return [
        part
        for part in parts(node.node)
        if isinstance(part, (cst.Call, cst.BinaryOperation))
        and isinstance(reading.values.get(part), UnboundResult)
    ]
