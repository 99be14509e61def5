"""A kernel's text as a `Program`: which team of threads it works in, and what that does in order.

Whatever is not understood raises `Unread`; nothing is guessed. What is taken for granted: parameters
do not overlap, and a grid that is too small for its bound was meant to cover it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import (
    Accesses,
    leaves,
    pointer,
)
from accelopt.kernels.cuda.programs.loops import head, is_sync
from accelopt.kernels.cuda.programs.program import (
    Edit,
    Loop,
    Once,
    Program,
    Team,
    Uniform,
)
from accelopt.kernels.cuda.programs.quantities import Quantity, named, number, quantity
from accelopt.kernels.cuda.programs.state import BLOCK, GRID, THREAD
from accelopt.kernels.cuda.programs.syntax import (
    SIZES,
    Declared,
    Kernel,
    Unread,
    assigned,
    bare,
    declared,
    field,
    names,
    said,
    statements,
    tight,
    walk,
)
from accelopt.kernels.cuda.programs.totals import Totals


class _Reader(Totals):
    """Reads a kernel's statements in order for one kind of team."""

    def program(self) -> Program:
        """The whole kernel."""
        self._sequence(statements(self.kernel.body))
        if self.partial:
            raise Unread("sums that nobody puts together")
        self._check()
        return Program(self.kernel, self.team, tuple(self.items), self.teams, bool(self.walks))

    def _sequence(self, lines: list[Node]) -> None:
        place = 0
        while place < len(lines):
            place += self._statement(lines, place)

    def _statement(self, lines: list[Node], place: int) -> int:
        """Read one statement, or several that are one thing; how many they were."""
        line = lines[place]
        if is_sync(line) or tight(line) == ";":
            return 1
        taken = self._tree(lines, place)
        if taken:
            return taken
        match line.type:
            case "declaration":
                if self._each(lines, place):
                    return len(lines) - place
                self._declaration(line)
            case "for_statement" if not self._walk(line, lines, place):
                self._for(line)
            case "for_statement":
                pass
            case "if_statement":
                if self._element_if(line):
                    return 1
                if self._alone(line):
                    self._by_one(field(line, "consequence"))
                elif self._guards_all(lines, place):
                    self.items.append(
                        Uniform(f"if (!({self._text(bare(field(line, 'condition')))})) return;")
                    )
                    self._sequence(statements(field(line, "consequence")))
                else:
                    self._plain(line)
            case "expression_statement" | "return_statement":
                self._plain(line)
            case _:
                raise Unread(f"a {line.type}")
        return 1

    def _declaration(self, line: Node) -> None:
        text = []
        for one in declared(line):
            if one.name in self.types:
                raise Unread("a name that is declared twice")
            self.types[one.name] = one.type
            if one.shared:
                self._shared(one)
            elif one.lengths:
                self.arrays.add(one.name)
                text.append(line)
            elif one.pointer:
                self._pointer(one)
                text.append(line)
            elif not self._element_value(one.name, one.type, one.value):
                text += [line] * self._variable(one)
        if text:
            if len(text) != len(declared(line)):
                raise Unread("declarations of several kinds in one")
            points = all(one.pointer for one in declared(line))
            self.items.append(Uniform(self._text(line), points))

    def _shared(self, one: Declared) -> None:
        if one.value is not None or len(one.lengths) > 1:
            raise Unread("shared memory of several dimensions")
        if one.lengths:
            self.shared[one.name] = one.type
            return
        self.told.add(one.name)
        self.items.append(Uniform(f"{one.type} {one.name};"))

    def _pointer(self, one: Declared) -> None:
        there = pointer(one.value, self.known, self.pointers)
        if there is None or one.name in self.moved:
            raise Unread("a pointer that moves")
        self.pointers[one.name] = there

    def _variable(self, one: Declared) -> bool:
        """Note a variable; whether its declaration is to be written."""
        if one.value is None:
            return True
        self.values[one.name] = tight(one.value)
        if one.name in self.moved or (one.type not in SIZES and one.type != "auto"):
            return True
        try:
            value = quantity(one.value, self.known)
        except Unread:
            return True
        if self.team is Team.THREAD and value == self.of_grid:
            self.known[one.name] = BLOCK
            self.items.append(Uniform(f"const {one.type} {one.name} = blockIdx.x;"))
            return False
        self.known[one.name] = value
        grids = {"blockIdx.x", "gridDim.x"} if self.team is Team.GRID else set()
        if value.names & {"threadIdx.x", *grids}:
            self.tainted.add(one.name)
            return False
        return True

    def _plain(self, line: Node) -> None:
        """A statement that every thread does alike, or one for all."""
        inner = bare(line)
        called = inner is not None and inner.type == "call_expression"
        if inner is not None and called and said(field(inner, "function")).startswith("atomic"):
            self._atomic(inner)
            return
        told = self._tells(inner)
        if told:
            raise Unread("shared memory that every thread sets")
        found = self._accesses([line])
        if found.atomics or found.escaped:
            raise Unread("pointers that go elsewhere")
        if any(one.writes for one in found.found):
            if self.team is Team.GRID or assigned(line) - self._inside(line):
                raise Unread("a statement that stores and computes")
            self._store(line, found)
            return
        if inner is not None and inner.type == "assignment_expression":
            self._assigned(inner)
        else:
            for name in assigned(line):
                self.values.pop(name, None)
        self.items.append(Uniform(self._text(line)))

    def _assigned(self, inner: Node) -> None:
        name = tight(field(inner, "left"))
        if field(inner, "operator").type == "=":
            if name not in names(field(inner, "right")):
                self.stale.discard(name)
            self.values[name] = tight(field(inner, "right"))
        else:
            self.values.pop(name, None)

    def _by_one(self, inside: Node) -> None:
        """`if (threadIdx.x == 0) ...`: what it sets for all is set by all, what it stores it stores."""
        lines = statements(inside)
        braces = any(line.type == "declaration" for line in lines)
        self.items += [Uniform("{")] * braces
        for line in lines:
            inner = bare(line)
            if self._added_up(line):
                continue
            if self._tells(inner):
                assert inner is not None
                self._assigned(inner)
                self.items.append(Uniform(self._text(line)))
            elif line.type == "declaration":
                if any(one.shared or one.pointer or one.lengths for one in declared(line)):
                    raise Unread("declarations of one thread")
                self.items.append(Uniform(self._text(line)))
            elif inner is not None and inner.type == "call_expression":
                if not said(field(inner, "function")).startswith("atomic"):
                    raise Unread("a call by one thread")
                self._once_atomic(inner)
            else:
                found = self._accesses([line])
                outside = assigned(line) - self._inside(line)
                if self.team is Team.GRID or outside or found.escaped or not found.found:
                    raise Unread("what one thread does")
                self._store(line, found)
        self.items += [Uniform("}")] * braces

    def _store(self, line: Node, found: Accesses) -> None:
        self.stored |= {one.pointer for one in found.found if one.writes}
        self.items.append(Once(self._text(line)))

    def _tells(self, inner: Node | None) -> bool:
        """Whether an assignment sets what is shared: a variable, or an array's element 0."""
        if inner is None or inner.type != "assignment_expression":
            return False
        left = bare(field(inner, "left"))
        return left is not None and (said(left) in self.told or self._first(left) in self.firsts)

    def _guards_all(self, lines: list[Node], place: int) -> bool:
        """Whether all that is left stands under one condition, which is the team's."""
        line = lines[place]
        if place != len(lines) - 1 or line.child_by_field_name("alternative") is not None:
            return False
        return any(one.type == "for_statement" or is_sync(one) for one in walk(line))

    def _walk(self, line: Node, lines: list[Node], place: int) -> bool:
        """Whether a loop goes over the rows of a block to the kernel's end; what is in it is read then."""
        if self.team is not Team.BLOCK or place != len(lines) - 1 or self.walks:
            return False
        found = head(line, self.known)
        if (
            found.low != BLOCK
            or found.step != GRID
            or any(isinstance(item, Loop | Once) for item in self.items)
        ):
            return False
        body = field(line, "body")
        if leaves(body) or found.high.type == "call_expression":
            raise Unread("rows that may be left")
        self.walks = found.variable
        words = f"{found.type} {found.variable} = blockIdx.x; {found.variable} < {self._text(found.high)}"
        self.items.append(Uniform(f"for ({words}; {found.variable} += gridDim.x) {{"))
        self._sequence(statements(body))
        return True

    def _for(self, line: Node) -> None:
        try:
            found = head(line, self.known)
        except Unread:
            self._plain(line)
            return
        lane, step = {
            Team.GRID: (self.of_grid, GRID.times(number(self.threads))),
            Team.BLOCK: (THREAD, number(self.threads)),
            Team.THREAD: (number(0), number(1)),
        }[self.team]
        start = found.low.plus(lane, -1)
        if found.step != step or "threadIdx.x" in start.names or "blockIdx.x" in start.names:
            if found.step != number(1):
                raise Unread("a loop of another kind")
            self._plain(line)
            return
        body = [field(line, "body")]
        if self.team is Team.THREAD and not self._walks_along(found.variable, body):
            self._plain(line)
            return
        if any(one.type == "break_statement" for one in walk(body[0])):
            raise Unread("a loop that may end early")
        self._loop(found.variable, found.type, start, found.high, body, {})

    def _each(self, lines: list[Node], place: int) -> bool:
        """Where a declaration is that of a thread's element of the grid: read all that follows as one
        loop over the elements, and what comes behind it."""
        made = declared(lines[place])
        if self.team is not Team.GRID or len(made) != 1 or made[0].name in self.moved:
            return False
        if made[0].value is None or made[0].type not in SIZES:
            return False
        try:
            if quantity(made[0].value, self.known) != self.of_grid:
                return False
        except Unread:
            return False
        rest = lines[place + 1 :]
        if "gridDim.x" in names(self.kernel.body):
            return False
        if any(map(is_sync, rest)):
            self.element, self.whole = made[0], self._combined(rest)
            return False
        self.types[made[0].name] = made[0].type
        self._elements(made[0], rest)
        return True

    def _elements(self, index: Declared, rest: list[Node]) -> None:
        name = index.name
        work = [one for one in rest if not is_sync(one)]
        body: list[Node] = []
        high, low = None, number(0)
        for at, line in enumerate(work):
            if (
                line.type == "declaration"
                and name not in names(line)
                and not self._derived(line, body)
            ):
                self._declaration(line)
                continue
            if line.type == "if_statement" and line.child_by_field_name("alternative") is None:
                then = bare(field(line, "consequence"))
                away = then is not None and then.type == "return_statement"
                last = at == len(work) - 1
                if high is None and (away or last) and not self._reaches(body):
                    found = self._conditions(field(line, "condition"), name, away)
                    if found.high is None and not found.low.terms and last:
                        body.append(line)
                        continue
                    high, low = found.high, found.low
                    for one in found.others:
                        text = self._text(one)
                        self.items.append(
                            Uniform(f"if ({text}) return;" if away else f"if (!({text})) return;")
                        )
                    if not away:
                        body += [field(line, "consequence")]
                    continue
            body.append(line)
        if high is None:
            size = self.kernel.launch.grid[0] * self.threads
            text, bound = str(size), number(size)
        else:
            text, bound = self._text(high), quantity(high, self.known)
        edits = {}
        for part in body:
            for one in walk(part):
                if one.type == "return_statement":
                    if self._in_loop(one, part):
                        raise Unread("a return out of a loop")
                    edits[one.id] = Edit(("continue;",))
                if one.type == "break_statement" and not self._in_loop(one, part):
                    raise Unread("a break")
        self._append_loop(name, index.type, low, text, bound, body, edits)

    def _derived(self, line: Node, body: list[Node]) -> bool:
        """Whether a declaration needs what the elements' own statements declare."""
        own = {one.name for part in body if part.type == "declaration" for one in declared(part)}
        return bool(names(line) & own)

    def _reaches(self, body: list[Node]) -> bool:
        """Whether statements before a guard touch memory."""
        found = self._accesses(body)
        return bool(found.found or found.atomics)

    def _in_loop(self, node: Node, end: Node) -> bool:
        parent = node.parent
        while parent is not None and parent.id != end.id:
            if parent.type in (
                "for_statement",
                "while_statement",
                "do_statement",
                "switch_statement",
            ):
                return True
            parent = parent.parent
        return end.type in ("for_statement", "while_statement", "do_statement", "switch_statement")

    def _check(self) -> None:
        """Raises Unread where what one thread writes may be read by another."""
        loops = [item for item in self.items if isinstance(item, Loop)]
        used: dict[str, set[tuple[Quantity, Quantity, Quantity]]] = {}
        for loop in loops:
            for one in loop.accesses:
                rest = one.at.plus(named(loop.variable), -1)
                along = not rest.names & loop.moving
                if one.writes and self.team is Team.THREAD and not along:
                    raise Unread("iterations that write in an order")
                where = rest if along else one.at
                used.setdefault(one.pointer, set()).add((where, loop.low, loop.bound))
        writes = {one.pointer for loop in loops for one in loop.accesses if one.writes}
        several = any(len(used[name]) > 1 for name in writes)
        if several and (len(loops) > 1 or self.team is Team.THREAD):
            raise Unread("iterations that read what others write")
        uniform = " ".join(
            item.text for item in self.items if isinstance(item, Uniform) and not item.points
        )
        once = " ".join(item.text for item in self.items if isinstance(item, Once))
        if self._named_in(uniform + once) & writes:
            raise Unread("statements that read what iterations write")
        if self.stored & (set(used) | self._named_in(uniform)):
            raise Unread("threads that read what one of them writes")


def programs(kernel: Kernel) -> Iterator[Program]:
    """The kernel as a program, by each team in whose way it can be read."""
    if re.search(r"\w_\b", re.sub(r"\b__\w+__\b", "", said(kernel.body))):
        return  # names of ours stand in it already, or ones that look like them
    for team in (Team.GRID, Team.BLOCK, Team.THREAD):
        try:
            program = _Reader(kernel, team).program()
        except Unread:
            continue
        if program.loops:
            yield program
