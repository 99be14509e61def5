"""What is known of a kernel while its statements are read as a team's program."""

from __future__ import annotations

import re

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import (
    TOGETHER,
    Accesses,
    accesses,
    check_calls,
    pointers_of,
)
from accelopt.kernels.cuda.programs.program import (
    Accumulator,
    Item,
    Team,
)
from accelopt.kernels.cuda.programs.quantities import named, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    Declared,
    Kernel,
    Unread,
    assigned,
    bare,
    declared,
    field,
    replaced,
    said,
    tight,
    walk,
)

THREAD, BLOCK, GRID = named("threadIdx.x"), named("blockIdx.x"), named("gridDim.x")


class State:
    """Variables, pointers and shared memory so far, and the items that were read."""

    def __init__(self, kernel: Kernel, team: Team) -> None:
        self.kernel, self.team = kernel, team
        grid, block = kernel.launch.grid, kernel.launch.block
        if team is not Team.GRID and block[1:] != (1, 1):
            raise Unread("a block of several dimensions")
        self.threads = block[0]
        self.known = {f"blockDim.{a}": number(n) for a, n in zip("xyz", block, strict=True)}
        self.pointers = pointers_of(kernel)
        self.moved = assigned(kernel.body)
        self.of_grid = BLOCK.times(number(self.threads)).plus(THREAD)
        self.items: list[Item] = []
        self.shared: dict[str, str] = {}  # arrays, by the type of their elements
        self.told: set[str] = set()  # shared variables that one thread sets for all
        self.firsts: set[str] = set()  # arrays whose element 0 holds a total
        self.tainted: set[str] = set()  # variables that differ between threads of a team
        self.partial: dict[str, Accumulator] = {}  # sums that still are each thread's
        self.stored: set[str] = set()  # parameters that one thread of a team writes
        self.parts: dict[str, str] = {}  # arrays of a thread's one element, by the variable
        self.walks = ""  # the row that a block walks over
        self.totals: set[str] = set()  # shared variables that hold a sum of the team
        self.pending: dict[str, str] = {}  # arrays of sums that one thread is to add up
        self.element: Declared | None = None  # the index of a thread's one element, before a tree
        self.whole = ""  # how that tree combines
        self.stale: set[str] = set()  # sums whose total stands elsewhere now
        self.values: dict[str, str] = {}  # variables with what they were last set to, as written
        self.types: dict[str, str] = {}
        self.arrays: set[str] = set()
        self.teams = grid[0] * (self.threads if team is Team.THREAD else 1)
        check_calls(kernel, kernel.body)

    def _first(self, node: Node) -> str:
        """The shared array of which a node is element 0."""
        if node.type == "subscript_expression":
            array, inside = said(field(node, "argument")), field(node, "indices").named_children
            if array in self.shared and tight(inside[0]) == "0":
                return array
        return ""

    def _is_thread(self, node: Node) -> bool:
        try:
            return self.team is not Team.THREAD and quantity(node, self.known) == THREAD
        except Unread:
            return False

    def _alone(self, line: Node) -> bool:
        """Whether a condition lets thread 0 through and no other."""
        condition = bare(field(line, "condition"))
        if condition is None or line.child_by_field_name("alternative") is not None:
            return False
        if condition.type == "unary_expression" and condition.children[0].type == "!":
            return self._is_thread(field(condition, "argument"))
        if condition.type != "binary_expression" or field(condition, "operator").type != "==":
            return False
        left, right = field(condition, "left"), field(condition, "right")
        return any(self._is_thread(one) and tight(other) in ("0", "0u")
                   for one, other in ((left, right), (right, left)))  # fmt: skip

    def _is_own(self, left: Node) -> bool:
        """Whether an element of a shared array is the thread's own."""
        inside = field(left, "indices").named_children
        return len(inside) == 1 and quantity(inside[0], self.known) == THREAD

    def _accesses(self, nodes: list[Node]) -> Accesses:
        arrays = frozenset({*self.arrays, *self.firsts})
        return accesses(nodes, self.known, self.pointers, arrays)

    def _inside(self, line: Node) -> frozenset[str]:
        return frozenset(made.name for one in walk(line) if one.type == "declaration"
                         for made in declared(one))  # fmt: skip

    def _text(self, node: Node | None) -> str:
        """A statement as it is written now. Raises Unread where it differs between threads."""
        if node is None:
            raise Unread("nothing")
        text = replaced(node, self._changed)
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        forbidden = {
            *self.tainted,
            *self.shared,
            *self.partial,
            *(self.stale - set(self.values)),
            "threadIdx",
        }
        if self.team is Team.GRID:
            text_x = re.search(r"\b(threadIdx|blockIdx|gridDim)\s*\.\s*x\b", text)
            forbidden.discard("threadIdx")
            if text_x:
                raise Unread("a statement that knows its thread")
        if self.team is not Team.GRID and "gridDim" in words:
            raise Unread("a statement that knows the grid")
        if self.team is Team.THREAD and re.search(r"\bblockIdx\s*\.\s*x\b", text):
            raise Unread("a statement that knows its block")
        if words & forbidden:
            raise Unread("a statement that differs between threads")
        if any(one.type == "call_expression" and TOGETHER.fullmatch(said(field(one, "function")))
               and not said(field(one, "function")).startswith("atomic")
               for one in walk(node)):  # fmt: skip
            raise Unread("a statement of several threads")
        return text

    def _changed(self, node: Node) -> str | None:
        array = self._first(node)
        return f"{array}_first_" if array in self.firsts else None

    def _named_in(self, text: str) -> set[str]:
        """The parameters that a text names."""
        words = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", text))
        return {there.parameter for name, there in self.pointers.items() if name in words}
