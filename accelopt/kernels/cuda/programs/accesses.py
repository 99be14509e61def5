"""What a piece of a kernel reads and writes: every access to memory behind a parameter, by its index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.quantities import Known, Quantity, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    Kernel,
    Unread,
    bare,
    closing_of,
    field,
    said,
    walk,
)

TOGETHER = re.compile(
    r"__?sync\w*|__shfl\w*|__(any|all|ballot|match|reduce|activemask)\w*|atomic\w*|__threadfence\w*"
    r"|printf|assert|asm|clock\w*|__pipeline\w*|memcpy_async|tex\w+|surf\w+|wmma|curand\w*|goto"
    r"|threadIdx|blockIdx|blockDim|gridDim|__shared__|static|volatile|cooperative_groups|new|delete"
)
"""Names of what a thread does with others, or outside of its own values."""
READERS = frozenset("__ldg __ldcs __ldca __ldcg __ldlu __ldcv".split())


class Pointer(NamedTuple):
    """Where a pointer points: behind which parameter, and how many elements from its start."""

    parameter: str
    offset: Quantity


class Access(NamedTuple):
    """One access. `certain` says that it is reached whatever the values are."""

    node: Node
    pointer: str
    at: Quantity
    reads: bool
    writes: bool
    certain: bool


class Accesses(NamedTuple):
    """All accesses of some statements, the parameters that are used in other ways, and the atomic
    additions."""

    found: tuple[Access, ...]
    escaped: frozenset[str]
    atomics: tuple[Node, ...]


def pointers_of(kernel: Kernel) -> dict[str, Pointer]:
    """The kernel's own pointers."""
    return {
        name: Pointer(name, number(0)) for name, one in kernel.parameters.items() if one.pointer
    }


def pointer(node: Node | None, known: Known, pointers: Mapping[str, Pointer]) -> Pointer | None:
    """Where an expression points: `p`, `p + e`, `&p[e]`; None where nobody knows."""
    node = bare(node)
    if node is None:
        return None
    if node.type == "identifier":
        return pointers.get(said(node))
    if node.type == "binary_expression" and field(node, "operator").type == "+":
        sides = field(node, "left"), field(node, "right")
        for one, other in (sides, sides[::-1]):
            start = pointer(one, known, pointers)
            if start is not None:
                return start._replace(offset=start.offset.plus(quantity(other, known)))
    if node.type == "pointer_expression" and node.children[0].type == "&":
        return place(bare(field(node, "argument")), known, pointers)
    return None


def place(node: Node | None, known: Known, pointers: Mapping[str, Pointer]) -> Pointer | None:
    """Which element `p[e]`, `*p` and `*(p + e)` are; None where it is none behind a parameter."""
    if node is None:
        return None
    if node.type == "subscript_expression":
        start = pointer(field(node, "argument"), known, pointers)
        inside = field(node, "indices").named_children
        if start is not None and len(inside) == 1:
            return start._replace(offset=start.offset.plus(quantity(inside[0], known)))
    if node.type == "pointer_expression" and node.children[0].type == "*":
        return pointer(field(node, "argument"), known, pointers)
    return None


def accesses(
    nodes: list[Node], known: Known, pointers: Mapping[str, Pointer], arrays: frozenset[str]
) -> Accesses:
    """What statements access, one after the other, for known values of their variables. `arrays` are
    each thread's own. Raises Unread for memory that nobody knows."""
    finder = _Finder(known, pointers, arrays)
    for node in nodes:
        finder.visit(node)
    return Accesses(tuple(finder.found), frozenset(finder.escaped), tuple(finder.atomics))


class _Finder:
    """Goes through statements in order; `certain` until something may leave them."""

    def __init__(
        self, known: Known, pointers: Mapping[str, Pointer], arrays: frozenset[str]
    ) -> None:
        self.known, self.pointers, self.arrays = known, pointers, arrays
        self.found: list[Access] = []
        self.escaped: set[str] = set()
        self.atomics: list[Node] = []
        self.certain = True

    def visit(self, node: Node) -> None:
        """A node and what is inside."""
        match node.type:
            case "if_statement" | "conditional_expression":
                self.visit(field(node, "condition"))
                self._either(
                    node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
                )
                self.certain = self.certain and not leaves(node)
            case "for_statement" | "while_statement" | "do_statement" | "switch_statement":
                for child in node.named_children:
                    self._perhaps(child)
                self.certain = self.certain and not leaves(node)
            case "binary_expression" if field(node, "operator").type in ("&&", "||"):
                self.visit(field(node, "left"))
                self._perhaps(field(node, "right"))
            case "assignment_expression":
                plain = field(node, "operator").type == "="
                self.visit(field(node, "right"))
                self._place(field(node, "left"), reads=not plain, writes=True)
            case "update_expression":
                self._place(field(node, "argument"), reads=True, writes=True)
            case "call_expression":
                self._call(node)
            case "subscript_expression" | "pointer_expression":
                self._place(node, reads=True, writes=False)
            case "identifier" if said(node) in self.pointers:
                self.escaped.add(self.pointers[said(node)].parameter)
            case "lambda_expression" | "goto_statement" | "labeled_statement":
                raise Unread(node.type)
            case _:
                for child in node.children:
                    self.visit(child)

    def _either(self, one: Node | None, other: Node | None) -> None:
        """Two branches: what both do for certain is certain."""
        sure, ways = self.certain, []
        for branch in (one, other):
            begin, self.certain = len(self.found), True
            if branch is not None:
                self.visit(branch)
            ways.append(self.found[begin:])
            del self.found[begin:]
        self.certain = sure
        both = [{(a.pointer, a.at, a.reads, a.writes) for a in way if a.certain} for way in ways]
        for access in (*ways[0], *ways[1]):
            shared = (access.pointer, access.at, access.reads, access.writes) in both[0] & both[1]
            self.found.append(access._replace(certain=sure and shared))

    def _perhaps(self, node: Node | None) -> None:
        if node is not None:
            before, self.certain = self.certain, False
            self.visit(node)
            self.certain = before

    def _place(self, node: Node, *, reads: bool, writes: bool) -> None:
        inner = bare(node)
        if inner is not None and inner.type == "field_expression" and writes:
            self._place(field(inner, "argument"), reads=True, writes=True)
            return
        there = place(inner, self.known, self.pointers)
        if there is None or inner is None:
            if inner is None or inner.type not in ("subscript_expression", "pointer_expression"):
                self.visit(node)
                return
            own = said(next((one for one in walk(inner) if one.type == "identifier"), None))
            if inner.children[0].type != "&" and own not in self.arrays:
                raise Unread(f"memory behind {own}")
            for child in inner.children:
                self.visit(child)
            return
        self._note(inner, there, reads=reads, writes=writes)
        self._indices(inner)

    def _note(self, node: Node, there: Pointer, *, reads: bool, writes: bool) -> None:
        self.found.append(Access(node, there.parameter, there.offset, reads, writes, self.certain))

    def _indices(self, node: Node) -> None:
        """What stands in an index, but for the pointer itself."""
        for one in walk(node):
            if one.type == "subscript_argument_list":
                for child in one.named_children:
                    self.visit(child)
                return

    def _call(self, node: Node) -> None:
        function = said(field(node, "function"))
        given = field(node, "arguments").named_children
        if function in READERS and len(given) == 1:
            there = pointer(given[0], self.known, self.pointers)
            if there is not None:
                self._note(node, there, reads=True, writes=False)
                self._indices(given[0])
                return
        if function.startswith("atomic"):
            self.atomics.append(node)
            there = pointer(given[0], self.known, self.pointers) if given else None
            if there is None:
                raise Unread("an atomic operation on nobody knows what")
            self.escaped.add(there.parameter)
            self._indices(given[0])
            given = given[1:]
        elif TOGETHER.fullmatch(function):
            raise Unread(f"a call of {function}")
        for one in given:
            self.visit(one)


def leaves(node: Node) -> bool:
    """Whether what follows a node may be left out because of it."""
    return any(one.type in ("return_statement", "continue_statement", "break_statement")
               for one in walk(node))  # fmt: skip


def check_calls(kernel: Kernel, node: Node) -> None:
    """Raises Unread where a function of the source that is called does more than compute."""
    around = kernel.before + kernel.behind
    seen: set[str] = set()
    wanted = [said(field(one, "function")) for one in walk(node) if one.type == "call_expression"]
    while wanted:
        name = wanted.pop()
        if name in seen or not name.isidentifier():
            continue
        seen.add(name)
        for match in re.finditer(rf"\b{name}\s*\([^;{{}}]*\)\s*(?:const\s*)?\{{", around):
            inside = around[match.end() : closing_of(around, match.end() - 1)]
            words = re.findall(r"[A-Za-z_]\w*", inside)
            if any(TOGETHER.fullmatch(word) for word in words):
                raise Unread(f"a call of {name}, which works with other threads")
            wanted += words
