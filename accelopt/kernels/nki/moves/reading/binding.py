"""Which names a piece of a kernel binds, and which bring values from iteration to iteration."""

from __future__ import annotations

from collections.abc import Sequence as Several
from functools import lru_cache

import libcst as cst

from accelopt.kernels.nki.moves.reading.source import SourceLoop, SourceStatement, names_in, parts


def carried_names(loop: SourceLoop) -> set[str]:
    """Names bound in the body after the body has already read them."""
    read: set[str] = set()
    bound: set[str] = set()
    carried: set[str] = set()

    def visit(nodes: Several[SourceStatement | SourceLoop]) -> None:
        for node in nodes:
            if isinstance(node, SourceLoop):
                read.update(names_in(node.node.iter) - bound)
                bound.add(node.variable)
                visit(node.body)
                continue
            simple = isinstance(node.node, cst.SimpleStatementLine)
            reads = _read_in(node) if simple else names_in(node.node)
            read.update(reads - bound)
            carried.update(assigned(node.node) & read)
            bound.update(assigned(node.node))

    visit(loop.body)
    return carried


def counted_names(loop: SourceLoop) -> set[str]:
    """Names that `+=` and the like change in the body: tensors in place, numbers by rebinding."""
    found: set[str] = set()
    for node in loop.body:
        found |= counted_names(node) if isinstance(node, SourceLoop) else _counted(node.node)
    return found


@lru_cache(maxsize=16384)
def _counted(node: cst.CSTNode) -> frozenset[str]:
    return frozenset(
        part.target.value
        for part in parts(node)
        if isinstance(part, cst.AugAssign) and isinstance(part.target, cst.Name)
    )


def _read_in(line: SourceStatement) -> set[str]:
    """Names a simple statement reads: all but plain assignment targets."""
    statement = line.node
    assert isinstance(statement, cst.SimpleStatementLine)
    part = statement.body[0]
    if isinstance(part, cst.Assign):
        reads = set(names_in(part.value))
        for target in part.targets:
            if not isinstance(target.target, (cst.Name, cst.Tuple)):
                reads |= names_in(target.target)
        return reads
    return set(names_in(part))


def targets(line: SourceStatement) -> set[str]:
    """Names a plain assignment binds."""
    if not isinstance(line.node, cst.SimpleStatementLine):
        return set()
    part = line.node.body[0]
    if not isinstance(part, cst.Assign):
        return set()
    names: set[str] = set()
    for target in part.targets:
        if isinstance(target.target, cst.Name):
            names.add(target.target.value)
        elif isinstance(target.target, cst.Tuple):
            names |= {
                e.value.value for e in target.target.elements if isinstance(e.value, cst.Name)
            }
    return names


@lru_cache(maxsize=16384)
def assigned(node: cst.CSTNode) -> frozenset[str]:
    """Names bound anywhere in a statement; `x += ...` of a tensor updates in place and binds none."""
    return frozenset(
        name
        for part in parts(node)
        if isinstance(part, cst.AssignTarget) and isinstance(part.target, (cst.Name, cst.Tuple))
        for name in names_in(part.target)
    )
