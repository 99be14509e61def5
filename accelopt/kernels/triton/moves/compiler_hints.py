"""A hint that leaves the computation alone: sizes as constants."""

from __future__ import annotations

import ast
import copy
import re

from accelopt.kernels.triton.moves.source import JitFunction, called, names_in
from accelopt.parsing import parse_expression

_SIZE = re.compile(
    r"^(n|k|m_?size|.*(width|cols?|columns|hidden|dim|size|stride|heads?|seq_?len|vocab).*)$", re.I
)


def constant_sizes(kernel: JitFunction, only: set[str] | None = None) -> ast.FunctionDef | None:
    """Compile a kernel for its sizes: integer parameters become `tl.constexpr`.

    Divisions by them become multiplications, masks that always hold disappear, accesses widen. The
    kernel is compiled again for each new size, so only names that look like fixed sizes (widths
    and strides, not batch sizes) are taken. Legal: the values are the same.
    """
    node = copy.deepcopy(kernel.node)
    stored = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    pointers = _dereferenced(node)
    changed = False
    for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        wanted = argument.arg in only if only is not None else bool(_SIZE.match(argument.arg))
        free = argument.annotation is None and argument.arg not in stored | pointers
        if wanted and free and not argument.arg.lower().endswith("ptr"):
            argument.annotation = parse_expression("tl.constexpr")
            changed = True
    return node if changed else None


def _dereferenced(node: ast.AST) -> set[str]:
    """Names that stand first in an address."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if called(inner) in ("tl.load", "tl.store", "tl.atomic_add"):
            assert isinstance(inner, ast.Call)
            if inner.args:
                found |= {n for n in names_in(inner.args[0]) if n.lower().endswith("ptr")}
    return found


def row_end_names(kernel: JitFunction) -> set[str]:
    """Parameters that end a loop: the width of the row that the loop walks along."""
    found: set[str] = set()
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.For) and called(node.iter) in ("range", "tl.range"):
            assert isinstance(node.iter, ast.Call)
            if len(node.iter.args) == 3:
                found |= names_in(node.iter.args[1]) & set(kernel.parameters)
    return found
