"""Blocks of tensors in PSUM: the older compiler gives each of them a place for as long as it is in use, `nki` one
to every block at once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import libcst as cst

from accelopt.hardware import TRN2
from accelopt.kernels.nki.translation.facts import TileFact
from accelopt.kernels.nki.translation.indices import text_of
from accelopt.sim import dtypes

PSUM_BYTES = TRN2.psum_partition_bytes


def partition_bytes(tile: TileFact) -> int:
    """Bytes of a partition of a tensor, all its blocks."""
    free = (*tile.shape[: tile.blocks], *tile.shape[tile.blocks + 1 :])
    return math.prod(free) * dtypes.FORMATS[tile.dtype].itemsize


def written_before_read(
    module: cst.Module, name: str, made: cst.Assign
) -> Sequence[cst.Assign] | None:
    """The assignments that write a block of the tensor that `made` creates, where every other use is of the block
    that the same statements have written last; None where one is not."""
    writes: list[cst.Assign] = []
    return writes if _holds(module.body, name, made, writes) else None


def _holds(
    body: Sequence[cst.CSTNode], name: str, made: cst.Assign, writes: list[cst.Assign]
) -> bool:
    written, fixed = "", frozenset[str]()
    for statement in body:
        nodes = list(nodes_in(statement))
        uses = _uses(nodes, name)
        if made in nodes and isinstance(statement, cst.SimpleStatementLine):
            continue
        whole = [node for node in nodes if isinstance(node, cst.Assign)]
        one = whole[0] if whole and isinstance(statement, cst.SimpleStatementLine) else None
        if (
            one is not None
            and uses == [text_of(one.targets[0].target)]
            and isinstance(one.targets[0].target, cst.Subscript)
            and isinstance(one.value, cst.Call)
        ):
            written = uses[0]
            fixed = frozenset(n.value for n in nodes_in(one.targets[0]) if isinstance(n, cst.Name))
            writes.append(one)
            continue
        bound = {text_of(node.targets[0].target) for node in whole}
        bound |= {text_of(node.target) for node in nodes if isinstance(node, cst.For)}
        if isinstance(statement, cst.FunctionDef) or set(uses) - {written} or bound & fixed:
            suites = _suites(statement)
            inside = [use for suite in suites for use in _uses(list(nodes_in(suite)), name)]
            if len(inside) < len(uses):
                return False
            if not all(_holds(suite.body, name, made, writes) for suite in suites):
                return False
            written = ""
    return True


def _uses(nodes: Sequence[cst.CSTNode], name: str) -> list[str]:
    """The blocks of a tensor that these nodes name; empty texts where it is named as a whole."""
    named = [n for n in nodes if isinstance(n, cst.Name) and n.value == name]
    places = [n for n in nodes if isinstance(n, cst.Subscript) and text_of(n.value) == name]
    return [*map(text_of, places), *[""] * (len(named) - len(places))]


def _suites(node: cst.CSTNode) -> list[cst.IndentedBlock]:
    if isinstance(node, cst.IndentedBlock):
        return [node]
    return [suite for child in node.children for suite in _suites(child)]


def nodes_in(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and every node below it."""
    yield node
    for child in node.children:
        yield from nodes_in(child)
