"""Hints that leave the computation alone: constant sizes, pipelined loops, cache policies."""

from __future__ import annotations

import ast
import copy
import re

from accelopt.kernels.triton.moves.source import JitFunction, Source, called, names_in
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


def streaming_hints(source: Source, kernel: JitFunction, *, stores: bool) -> str | None:
    """Mark data that is read or written once, so that it does not push reused data out of L2.

    Loads whose address depends on a program id get `eviction_policy="evict_first"`, others
    `"evict_last"`; with `stores`, stores get `cache_modifier=".cs"`. Legal: hints only.
    """
    edits = []
    for node in ast.walk(kernel.node):
        name = called(node)
        if name == "tl.load" or (stores and name == "tl.store"):
            assert isinstance(node, ast.Call)
            if any(k.arg in ("eviction_policy", "cache_modifier") for k in node.keywords):
                continue
            if name == "tl.store":
                hint = 'cache_modifier=".cs"'
            else:
                once = _depends_on_program(node.args[0], kernel)
                hint = f'eviction_policy="{"evict_first" if once else "evict_last"}"'
            edits.append(source.adding(node, hint))
    return source.edited(edits) if edits else None


def _depends_on_program(address: ast.expr, kernel: JitFunction) -> bool:
    names, seen = names_in(address), set[str]()
    while names - seen:
        seen |= names
        for node in ast.walk(kernel.node):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id in names
            ):
                if "program_id" in ast.unparse(node.value):
                    return True
                names |= names_in(node.value)
    return False


def pipelined_loops(source: Source, kernel: JitFunction, stages: int) -> str | None:
    """Prefetch the loads of loops without a dot: `tl.range(..., num_stages=S)`.

    The compiler pipelines loops around `tl.dot` by itself; others only when asked. Legal: the
    order of loads and stores to one address is kept.
    """
    edits = []
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.For) and called(node.iter) == "range":
            assert isinstance(node.iter, ast.Call)
            loads = any(called(n) == "tl.load" for n in ast.walk(node))
            stores = any(called(n) == "tl.store" for n in ast.walk(node))
            if loads and not stores:
                edits.append(source.replacing(node.iter.func, "tl.range"))
                edits.append(source.adding(node.iter, f"num_stages={stages}"))
    return source.edited(edits) if edits else None
