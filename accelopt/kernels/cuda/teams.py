"""A kernel's text as a `Program`: which team of threads it works in, and what that does in order.

Whatever is not understood raises `Unread`; nothing is guessed. What is taken for granted: parameters
do not overlap, and a grid that is too small for its bound was meant to cover it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.cuda.accesses import (
    TOGETHER,
    Accesses,
    accesses,
    check_calls,
    leaves,
    pointer,
    pointers_of,
)
from accelopt.kernels.cuda.loops import Part, gathered, head, is_sync, starts_neutral, tree
from accelopt.kernels.cuda.program import (
    Accumulator,
    Count,
    Edit,
    Item,
    Loop,
    Once,
    Program,
    Team,
    Uniform,
)
from accelopt.kernels.cuda.quantities import Quantity, named, number, quantity
from accelopt.kernels.cuda.syntax import (
    SIZES,
    Declared,
    Kernel,
    Node,
    Unread,
    assigned,
    bare,
    declared,
    field,
    names,
    replaced,
    said,
    statements,
    tight,
    walk,
)

THREAD, BLOCK, GRID = named("threadIdx.x"), named("blockIdx.x"), named("gridDim.x")
_ATOMIC = {"atomicAdd": "{} + {}", "atomicMax": "max({}, {})", "atomicMin": "min({}, {})"}
_NEUTRAL = {
    ("atomicAdd", "float"): "0.0f", ("atomicAdd", "double"): "0.0", ("atomicAdd", "int"): "0",
    ("atomicAdd", "unsigned"): "0u", ("atomicAdd", "unsigned int"): "0u",
    ("atomicAdd", "unsigned long long"): "0ull",
    ("atomicMax", "int"): "(-2147483647 - 1)", ("atomicMin", "int"): "2147483647",
    ("atomicMax", "unsigned"): "0u", ("atomicMax", "unsigned int"): "0u",
    ("atomicMin", "unsigned"): "4294967295u", ("atomicMin", "unsigned int"): "4294967295u",
}  # fmt: skip


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


def _same_kind(one: str, other: str) -> bool:
    """Whether two ways to combine are both sums, products, maxima or minima."""

    def kind(combined: str) -> str:
        for sign in ("+", "*"):
            if f"}} {sign} {{" in combined:
                return sign
        if "hadd" in combined:
            return "+"
        least = "min" in combined or " < " in combined
        return "min" if least else "max"

    return kind(one) == kind(other)


def _gathering(name: str, combined: str, cast: str, value: Node) -> Edit:
    """`name = combined(name, value)`, around the value."""
    before, _, after = combined.format(name, "\0").partition("\0")
    return Edit((f"{name} = {before}{cast}(", value, f"){after}"))


def _joined(condition: Node | None, sign: str) -> list[Node]:
    """The parts of a condition between the signs."""
    if condition is None:
        raise Unread("no condition")
    if condition.type == "binary_expression" and field(condition, "operator").type == sign:
        sides = field(condition, "left"), field(condition, "right")
        return [part for side in sides for part in _joined(bare(side), sign)]
    return [condition]


class Conditions(NamedTuple):
    """Of a guard: the bound of an index from above and below, and what else must hold."""

    high: Node | None
    low: Quantity
    others: tuple[Node, ...]


class _Reader:
    """Reads a kernel's statements in order for one kind of team."""

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

    def program(self) -> Program:
        """The whole kernel."""
        self._sequence(statements(self.kernel.body))
        if self.partial:
            raise Unread("sums that nobody puts together")
        self._check()
        return Program(self.kernel, self.team, tuple(self.items), self.teams, self.walks)

    # Statements

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
        if inner is not None and inner.type == "call_expression":
            if said(field(inner, "function")).startswith("atomic"):
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

    def _added_up(self, line: Node) -> bool:
        """Whether one thread adds up what all have stored: with their total, all do."""
        if line.type != "for_statement" or not self.pending:
            return False
        found, body = head(line, self.known), bare(field(line, "body"))
        sums = gathered(body) if body is not None else None
        places = [one for one in walk(field(line, "body")) if one.type == "subscript_expression"]
        whole = (found.low, found.step) == (number(0), number(1))
        if not whole or quantity(found.high, self.known) != number(self.threads) or sums is None:
            raise Unread("a sum of another kind by one thread")
        array = said(field(places[0], "argument")) if len(places) == 1 else ""
        index = field(places[0], "indices").named_children if places else []
        if array not in self.pending or tight(index[0]) != found.variable or body is None:
            raise Unread("a sum of another kind by one thread")
        if body.type != "assignment_expression" or tight(bare(field(body, "right"))) not in (
            tight(places[0]), f"{sums.name}+{tight(places[0])}", f"{tight(places[0])}+{sums.name}"
        ):  # fmt: skip
            raise Unread("a sum of another kind by one thread")
        name = self.pending.pop(array)
        if not _same_kind(self.partial[name].combined, sums.combined):
            raise Unread("a sum of another kind by one thread")
        del self.partial[name]
        self.values.pop(sums.name, None)
        self.items.append(Uniform(f"{sums.name} = {sums.combined.format(sums.name, name)};"))
        self.stale.add(name)
        return True

    def _store(self, line: Node, found: Accesses) -> None:
        self.stored |= {one.pointer for one in found.found if one.writes}
        self.items.append(Once(self._text(line)))

    def _tells(self, inner: Node | None) -> bool:
        """Whether an assignment sets what is shared: a variable, or an array's element 0."""
        if inner is None or inner.type != "assignment_expression":
            return False
        left = bare(field(inner, "left"))
        return left is not None and (said(left) in self.told or self._first(left) in self.firsts)

    def _first(self, node: Node) -> str:
        """The shared array of which a node is element 0."""
        if node.type == "subscript_expression":
            array, inside = said(field(node, "argument")), field(node, "indices").named_children
            if array in self.shared and tight(inside[0]) == "0":
                return array
        return ""

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

    def _is_thread(self, node: Node) -> bool:
        try:
            return self.team is not Team.THREAD and quantity(node, self.known) == THREAD
        except Unread:
            return False

    def _guards_all(self, lines: list[Node], place: int) -> bool:
        """Whether all that is left stands under one condition, which is the team's."""
        line = lines[place]
        if place != len(lines) - 1 or line.child_by_field_name("alternative") is not None:
            return False
        return any(one.type == "for_statement" or is_sync(one) for one in walk(line))

    # Loops

    def _walk(self, line: Node, lines: list[Node], place: int) -> bool:
        """Whether a loop goes over the rows of a block to the kernel's end; what is in it is read then."""
        if self.team is not Team.BLOCK or place != len(lines) - 1 or self.walks:
            return False
        found = head(line, self.known)
        if found.low != BLOCK or found.step != GRID or any(
            isinstance(item, Loop | Once) for item in self.items
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

    def _walks_along(self, variable: str, body: list[Node]) -> bool:
        """Whether a loop's iterations touch neighbours in memory."""
        found, _ = self._of_body(variable, body)
        rests = [one.index.plus(named(variable), -1) for one in found.found]
        return any(variable not in rest.names for rest in rests)

    def _of_body(self, variable: str, body: list[Node]) -> tuple[Accesses, set[str]]:
        """What the body of a loop accesses, and the names that change within it."""
        known = {name: one for name, one in self.known.items() if name != variable}
        pointers = dict(self.pointers)
        moving = {variable}
        for one in (inner for part in body for inner in walk(part)):
            if one.type != "declaration":
                continue
            for made in declared(one):
                if made.shared or made.name in self.kernel.parameters:
                    raise Unread("declarations of another kind in a loop")
                moving.add(made.name)
                known.pop(made.name, None)
                pointers.pop(made.name, None)
                if made.lengths:
                    self.arrays.add(made.name)
                elif made.pointer:
                    there = pointer(made.value, known, pointers)
                    if there is None or made.name in self.moved:
                        raise Unread("a pointer that moves")
                    pointers[made.name] = there
                elif made.value is not None and made.name not in self.moved and made.type in SIZES:
                    try:
                        known[made.name] = quantity(made.value, known)
                    except Unread:
                        continue
        moving |= self.moved - {self.walks}
        return accesses(body, known, pointers, frozenset(self.arrays)), moving

    def _loop(
        self, variable: str, kind: str, low: Quantity, high: Node, body: list[Node],
        edits: dict[int, Edit],
    ) -> None:  # fmt: skip
        bound = quantity(high, self.known)
        self._append_loop(variable, kind, low, self._text(high), bound, body, edits)

    def _append_loop(
        self, variable: str, kind: str, low: Quantity, high: str, bound: Quantity,
        body: list[Node], edits: dict[int, Edit], made: tuple[Accumulator, ...] = (),
    ) -> None:  # fmt: skip
        found, moving = self._of_body(variable, body)
        if bound.names & moving or low.names & moving:
            raise Unread("a bound that changes")
        writes = {one.pointer for one in found.found if one.writes}
        atomics, after = self._uniform_atomics(found, variable, moving, edits)
        if found.escaped & writes:
            raise Unread("a pointer that is written and goes elsewhere")
        own = {one.name for one in made}
        sums = (*self._sums(variable, body, own), *atomics, *made)
        for one in sums:
            if not one.own and not starts_neutral(one.combined, self.values.get(one.name, "?")):
                raise Unread(f"{one.name} begins with something")
            if not one.own:
                self.values.pop(one.name, None)
                if self.team is not Team.THREAD:
                    self.partial[one.name] = one
        texts = " ".join(map(said, body))
        if any(re.search(rf"\b{name}\b", texts) for name in {*self.tainted, *self.shared}):
            raise Unread("a loop whose iterations know their thread")
        if re.search(r"\b(threadIdx|blockIdx)\s*\.\s*x\b", texts) and self.team is not Team.BLOCK:
            raise Unread("a loop whose iterations know their thread")
        if "threadIdx" in re.sub(r"threadIdx\s*\.\s*[yz]", "", texts):
            raise Unread("a loop whose iterations know their thread")
        self.items.append(
            Loop(variable, kind, low, high, bound, tuple(body), found.found, sums, edits,
                 frozenset(moving), self._counts(found, moving, edits))
        )  # fmt: skip
        self.items += after

    def _counts(
        self, found: Accesses, moving: set[str], edits: dict[int, Edit]
    ) -> tuple[Count, ...]:
        """Additions to places of a parameter that the iterations choose, where nothing else is done
        with it."""
        counts = []
        for one in found.atomics:
            target, *rest = field(one, "arguments").named_children
            place = bare(target.child_by_field_name("argument"))
            parent = one.parent
            if one.id in edits or parent is None or parent.type != "expression_statement":
                continue
            if place is None or place.type != "subscript_expression" or len(rest) != 1:
                continue
            name, function = said(field(place, "argument")), said(field(one, "function"))
            index = field(place, "indices").named_children
            if name not in self.kernel.parameters or len(index) != 1 or assigned(index[0]):
                continue
            if function == "atomicAdd" and all(access.pointer != name for access in found.found):
                kind = self.kernel.parameters[name].type
                counts.append(Count(one, function, name, kind, index[0], rest[0]))
        return tuple(counts)

    def _sums(self, variable: str, body: list[Node], own: set[str]) -> list[Accumulator]:
        """What the iterations add up in variables from outside. Raises Unread where they do more."""
        inside = {made.name for part in body for one in walk(part) if one.type == "declaration"
                  for made in declared(one)}  # fmt: skip
        outside = {name for part in body for name in assigned(part)}
        outside -= inside | own | {variable}
        sums: dict[str, Accumulator] = {}
        uses = dict.fromkeys(outside, 0)
        for one in (inner for part in body for inner in walk(part)):
            if one.type == "identifier" and said(one) in outside:
                uses[said(one)] += 1
            found = gathered(one)
            if found is None or found.name not in outside:
                continue
            uses[found.name] -= sum(
                inner.type == "identifier" and said(inner) == found.name for inner in walk(one)
            )
            before = sums.setdefault(
                found.name, Accumulator(found.name, self.types.get(found.name, ""), found.combined)
            )
            if before.combined != found.combined:
                raise Unread("a sum of several kinds")
        if set(sums) != outside or any(uses.values()):
            raise Unread("iterations that need each other")
        if any(
            not one.type or one.name in self.stale or one.name in self.told for one in sums.values()
        ):
            raise Unread("sums in what is no variable of a thread")
        return list(sums.values())

    def _uniform_atomics(
        self, found: Accesses, variable: str, moving: set[str], edits: dict[int, Edit]
    ) -> tuple[list[Accumulator], list[Item]]:
        """Atomic operations of the iterations on one place as sums of the loop, and what comes after."""
        sums: list[Accumulator] = []
        after: list[Item] = []
        for one in found.atomics:
            target, *rest = field(one, "arguments").named_children
            function = said(field(one, "function"))
            same = not (names(target) & (moving | self.tainted)) and not (
                names(target) & {"threadIdx.x"}
            )
            if not same:
                continue
            parent = one.parent
            there = pointer(target, self.known, self.pointers)
            if parent is None or parent.type != "expression_statement" or there is None:
                raise Unread("an atomic operation whose result is used")
            kind = self.kernel.parameters[there.parameter].type
            if (function, kind) not in _NEUTRAL or len(rest) != 1:
                raise Unread("an atomic operation of another kind")
            if self.team is Team.THREAD:
                raise Unread("atomics in a row of a thread's own")
            name = f"sum{len(self.items)}_{len(sums)}_"
            combined = _ATOMIC[function]
            sums.append(Accumulator(name, kind, combined, own=True))
            edits[one.id] = _gathering(name, combined, f"({kind})", rest[0])
            self.items.append(Uniform(f"{kind} {name} = {_NEUTRAL[function, kind]};"))
            self.stored.add(there.parameter)
            after.append(Once(f"{function}({self._text(target)}, {name});"))
        return sums, after

    # An element a thread

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

    def _combined(self, rest: list[Node]) -> str:
        """How the first tree that follows combines."""
        for one in rest:
            try:
                return tree(one, self.known, self.threads)[0].combined
            except Unread:
                continue
        raise Unread("barriers without a tree")

    def _element_value(self, name: str, kind: str, value: Node | None) -> bool:
        """`i < n ? e : 0` of a thread's one element as the loop that sums `e`; whether it is that."""
        value = bare(value)
        if self.element is None or value is None or value.type != "conditional_expression":
            return False
        rest = said(bare(field(value, "alternative")))
        self._element_sum(
            name, kind, field(value, "condition"), field(value, "consequence"), rest, value
        )
        return True

    def _element_if(self, line: Node) -> bool:
        """`if (i < n) v = e;` of a thread's one element as the loop that sums `e`; whether it is that."""
        condition, then = bare(field(line, "condition")), bare(field(line, "consequence"))
        if self.element is None or condition is None or self.element.name not in names(condition):
            return False
        if then is None or then.type != "assignment_expression":
            raise Unread("an element that does more than be summed")
        left, sign = field(then, "left"), field(then, "operator").type
        value, array = field(then, "right"), said(left.child_by_field_name("argument"))
        other = bare(line.child_by_field_name("alternative"))
        if other is not None and other.type == "else_clause":
            other = bare(other.named_children[0])
        if array in self.shared and other is not None and other.type == "assignment_expression":
            same = tight(field(other, "left")) == tight(left) and self._is_own(left)
            if not same or sign != "=":
                raise Unread("an element of another kind")
            name, rest = f"{array}_part_", said(bare(field(other, "right")))
            self._element_sum(name, self.shared[array], condition, value, rest, then)
            self.parts[array] = name
            return True
        name = said(left)
        rest = self.values.get(name, "?")
        if other is not None or sign not in ("=", "+=") or name not in self.types:
            raise Unread("an element of another kind")
        if sign == "+=" and "+" not in self.whole:
            raise Unread("an element of another kind")
        self._element_sum(name, "", condition, value, rest, then)
        return True

    def _is_own(self, left: Node) -> bool:
        """Whether an element of a shared array is the thread's own."""
        inside = field(left, "indices").named_children
        return quantity(inside[0], self.known) == THREAD

    def _element_sum(
        self, name: str, kind: str, condition: Node, value: Node, rest: str, node: Node
    ) -> None:
        assert self.element is not None
        found = self._conditions(condition, self.element.name, False)
        if found.high is None or found.others or not starts_neutral(self.whole, rest):
            raise Unread("an element that does not begin with nothing")
        if kind:
            self.types[name] = kind
            self.items.append(Uniform(f"{kind} {name} = {rest};"))
        sums = (Accumulator(name, self.types[name], self.whole, own=True),)
        gathering = _gathering(name, self.whole, "", value)
        edits = {node.id: Edit((*gathering.parts, ";"))}
        self.tainted.discard(self.element.name)
        self._append_loop(
            self.element.name, self.element.type, found.low, self._text(found.high),
            quantity(found.high, self.known), [node], edits, sums,
        )  # fmt: skip
        self.tainted.add(self.element.name)
        self.partial[name] = sums[0]

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

    def _conditions(self, condition: Node, name: str, away: bool) -> Conditions:
        """What a guard says of the index: of `i < n && row < rows`, or `i >= n || row >= rows` where it
        leaves."""
        high, low, others = None, number(0), []
        for one in _joined(bare(condition), "||" if away else "&&"):
            if name not in names(one) and not any(
                name in self.known.get(part, number(0)).names for part in names(one)
            ):
                others.append(one)
                continue
            if one.type != "binary_expression":
                raise Unread("a guard of another kind")
            left, right = field(one, "left"), field(one, "right")
            sign = field(one, "operator").type
            if said(bare(right)) == name:
                left, right = right, left
                sign = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(sign, sign)
            if away:
                sign = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}.get(sign, sign)
            if said(bare(left)) != name or name in names(right):
                raise Unread("a guard of another kind")
            if sign == "<" and high is None:
                high = right
            elif sign in (">", ">=") and not low.terms:
                low = quantity(right, self.known).plus(number(sign == ">"))
            else:
                raise Unread("a guard of another kind")
        return Conditions(high, low, tuple(others))

    # Sums of a block

    def _tree(self, lines: list[Node], place: int) -> int:
        """Sums that go to shared memory and through a tree: how many statements they take, or 0.

        Behind them, element 0 of each array is a variable that every thread has.
        """
        if self.team is Team.THREAD:
            return 0
        stored: dict[str, str] = {}
        at = place
        while at < len(lines) and lines[at].type == "if_statement" and self._element_if(lines[at]):
            at += 1
        stored |= self.parts
        self.parts = {}
        while at < len(lines):
            inner = bare(lines[at])
            if inner is None or inner.type != "assignment_expression":
                break
            left = field(inner, "left")
            if (
                left.type != "subscript_expression"
                or said(field(left, "argument")) not in self.shared
            ):
                break
            if not self._is_own(left) or field(inner, "operator").type != "=":
                break
            array, value = said(field(left, "argument")), field(inner, "right")
            if self._element_value(f"{array}_part_", self.shared[array], value):
                stored[array] = f"{array}_part_"
            else:
                stored[array] = said(bare(value))
            at += 1
        if not stored or at >= len(lines) or not is_sync(lines[at]):
            return 0
        while at < len(lines) and is_sync(lines[at]):
            at += 1
        if at < len(lines) and lines[at].type == "if_statement" and self._alone(lines[at]):
            if set(stored.values()) - set(self.partial):
                raise Unread("a sum over what is no sum of a loop")
            self.pending = dict(stored)
            return at - place
        parts: dict[str, Part] = {}
        while at < len(lines) and set(parts) != set(stored):
            for part in tree(lines[at], self.known, self.threads):
                parts[part.array] = part
            at += 1
            while at < len(lines) and is_sync(lines[at]):
                at += 1
        if set(parts) != set(stored):
            raise Unread("a tree over other arrays")
        for array, value in stored.items():
            self._total(array, value, parts[array].combined)
        return at - place

    def _total(self, array: str, name: str, combined: str) -> None:
        if name not in self.partial:
            raise Unread("a tree over what is no sum of a loop")
        if not _same_kind(self.partial[name].combined, combined):
            raise Unread("a tree that sums otherwise than its loop")
        del self.partial[name]
        if array not in self.firsts:
            self.firsts.add(array)
            self.items.insert(0, Uniform(f"{self.shared[array]} {array}_first_;"))
        self.items.append(Uniform(f"{array}_first_ = {name};"))
        self.stale.add(name)

    def _atomic(self, call: Node) -> None:
        """An addition by every thread, of a sum that is its own."""
        target, value = field(call, "arguments").named_children
        there = pointer(target, self.known, self.pointers)
        function, name = said(field(call, "function")), said(bare(value))
        told = said(target.child_by_field_name("argument"))
        if told in self.told and function in _ATOMIC and name in self.partial:
            start, kind = self.values.get(told, "?"), self.partial[name].combined
            if not starts_neutral(_ATOMIC[function], start) or function != "atomicAdd":
                raise Unread("a shared sum that begins with something")
            if not _same_kind(kind, _ATOMIC[function]):
                raise Unread("an atomic operation of another kind")
            del self.partial[name]
            self.values.pop(told)
            self.items.append(Uniform(f"{told} = {name};"))
            self.stale.add(name)
            self.totals.add(told)
            return
        if there is None or name not in self.partial or function not in _ATOMIC:
            raise Unread("an atomic operation by every thread")
        if not _same_kind(self.partial[name].combined, _ATOMIC[function]):
            raise Unread("an atomic operation of another kind")
        if self.types[name] != self.kernel.parameters[there.parameter].type:
            raise Unread("an atomic operation of another type")
        del self.partial[name]
        self.stored.add(there.parameter)
        self.items.append(Once(self._text_of_total(call, name)))
        self.stale.add(name)

    def _once_atomic(self, call: Node) -> None:
        """An addition by one thread of a block: of a whole sum, so that it does not matter of which."""
        function = said(field(call, "function"))
        given = field(call, "arguments").named_children
        if function not in _ATOMIC or len(given) != 2:
            raise Unread("an atomic operation of another kind")
        there = pointer(given[0], self.known, self.pointers)
        if there is None:
            raise Unread("an atomic operation on nobody knows what")
        self.stored.add(there.parameter)
        whole = self._first(bare(given[1]) or given[1]) or said(bare(given[1])) in self.totals
        if self.team is Team.GRID and not whole:
            raise Unread("an atomic operation with what is no total")
        self.items.append(Once(self._text(call) + ";"))

    # Texts

    def _accesses(self, nodes: list[Node]) -> Accesses:
        arrays = frozenset({*self.arrays, *self.firsts})
        return accesses(nodes, self.known, self.pointers, arrays)

    def _text_of_total(self, call: Node, name: str) -> str:
        """A statement that may name a sum because every thread has its total by now."""
        return self._text(call) + ";"

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

    def _check(self) -> None:
        """Raises Unread where what one thread writes may be read by another."""
        loops = [item for item in self.items if isinstance(item, Loop)]
        used: dict[str, set[tuple[Quantity, Quantity, Quantity]]] = {}
        for loop in loops:
            for one in loop.accesses:
                rest = one.index.plus(named(loop.variable), -1)
                along = not rest.names & loop.moving
                if one.writes and self.team is Team.THREAD and not along:
                    raise Unread("iterations that write in an order")
                where = rest if along else one.index
                used.setdefault(one.pointer, set()).add((where, loop.low, loop.bound))
        writes = {one.pointer for loop in loops for one in loop.accesses if one.writes}
        if len(loops) > 1 or self.team is Team.THREAD:
            if any(len(used[name]) > 1 for name in writes):
                raise Unread("iterations that read what others write")
        uniform = " ".join(
            item.text for item in self.items if isinstance(item, Uniform) and not item.points
        )
        once = " ".join(item.text for item in self.items if isinstance(item, Once))
        if self._named_in(uniform + once) & writes:
            raise Unread("statements that read what iterations write")
        if self.stored & (set(used) | self._named_in(uniform)):
            raise Unread("threads that read what one of them writes")

    def _named_in(self, text: str) -> set[str]:
        """The parameters that a text names."""
        words = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", text))
        return {there.parameter for name, there in self.pointers.items() if name in words}
