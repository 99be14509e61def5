"""Basic blocks, dominators, natural loops, and where threads of a block may part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from accelopt.ptx.module import Function, Statement
from accelopt.ptx.phases import ARITHMETIC, FLOATS, plain, space
from accelopt.ptx.register_dataflow import LANES, Registers, registers
from accelopt.ptx.trip_counts import stays

ENDS = frozenset({"ret", "exit", "trap"})
JUMPS = frozenset({"bra", "brx"})


class Block(NamedTuple):
    """Statements `start` to `stop` (excluded) that run one after the other; `successors` by number;
    `leaves` when the function may end behind it."""

    number: int
    start: int
    stop: int
    successors: tuple[int, ...]
    leaves: bool


class NaturalLoop(NamedTuple):
    """A natural loop. `trips` is how often its body runs, where immediates say so, and its header once
    more when `tests_first`; `waits` when it does nothing but ask whether something has happened."""

    number: int
    header: int
    blocks: frozenset[int]
    depth: int
    parent: int | None
    trips: int | None
    tests_first: bool
    waits: bool


@dataclass(frozen=True)
class Flow:
    """Blocks in the order of the text, and what follows from their arrows.

    `order` holds the reachable blocks in reverse postorder. `divergent` are statements whose guard
    depends on the thread, `parted` the blocks that only a part of the threads may run. `irreducible`
    counts jumps back to a block that does not dominate them.
    """

    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    loops: tuple[NaturalLoop, ...]
    divergent: frozenset[int]
    parted: frozenset[int]
    irreducible: int

    def loop_of(self, block: int) -> NaturalLoop | None:
        """The innermost loop around a block."""
        around = [loop for loop in self.loops if block in loop.blocks]
        return max(around, key=lambda loop: loop.depth, default=None)

    def runs(self, block: int) -> int | None:
        """How often a block runs that no branch but those of loops leads around; None where the trips of
        a loop that does anything else than wait are not known."""
        times, loop = 1, self.loop_of(block)
        while loop is not None:
            if loop.trips is None and not loop.waits:
                return None
            trips = 1 if loop.trips is None else loop.trips
            times *= trips + (loop.tests_first and block == loop.header)
            loop = None if loop.parent is None else self.loops[loop.parent]
        return times


@lru_cache(maxsize=16)
def blocks(function: Function) -> Flow:
    """The control flow of a function."""
    known = registers(function)
    found = _blocks(function, known)
    arrows = [block.successors for block in found]
    order = reverse_postorder(arrows, 0)
    dominators = immediate_dominators(arrows, order)
    place = {block: at for at, block in enumerate(order)}
    back: dict[int, list[int]] = {}
    irreducible = 0
    for tail in order:
        for head in arrows[tail]:
            if place[head] <= place[tail]:
                if dominates(dominators, head, tail):
                    back.setdefault(head, []).append(tail)
                else:
                    irreducible += 1
    varying = known.dependent(LANES)
    divergent = frozenset(
        at
        for at, one in enumerate(function.statements)
        if (one.guard and set(known.names(one.guard.lstrip("!"), one.scope)) & varying)
        or (one.opcode == "brx" and set(known.effects[at].reads) & varying)
    )
    return Flow(
        tuple(found),
        tuple(order),
        tuple(_loops(known, found, back, dominators, order)),
        divergent,
        _parted(found, order, divergent),
        irreducible,
    )


def _blocks(function: Function, known: Registers) -> list[Block]:
    statements = function.statements
    count = len(statements)
    leaders = {0}  # a label that nothing jumps to (they mark debug ranges) begins no block
    for at, one in enumerate(statements):
        if one.opcode in ENDS or one.opcode in JUMPS or one.opcode == "call":
            leaders.add(at + 1)
        if one.opcode in JUMPS:
            leaders.update(_goals(function, known, one))
    starts = sorted(at for at in leaders if at < count)
    index = {start: place for place, start in enumerate(starts)}
    found = []
    for place, start in enumerate(starts):
        stop = starts[place + 1] if place + 1 < len(starts) else count
        last = statements[stop - 1]
        goals = _goals(function, known, last) if last.opcode in JUMPS else []
        if last.guard or last.opcode not in (*JUMPS, *ENDS):
            goals.append(stop)
        after = dict.fromkeys(index[goal] for goal in goals if goal in index)
        leaves = last.opcode in ENDS or not after or any(goal not in index for goal in goals)
        found.append(Block(place, start, stop, tuple(after), leaves))
    return found


def _goals(function: Function, known: Registers, jump: Statement) -> list[int]:
    """The statements that a jump may lead to."""
    names = list(jump.operands[:1])
    if jump.opcode == "brx":
        table = jump.operands[1] if len(jump.operands) > 1 else ""
        names = [word for one in function.declarations if one.label == table for word in one.words]
    labels = (known.label(name, jump.scope) for name in names)
    return [label.at for label in labels if label is not None]


def reverse_postorder(arrows: Sequence[Sequence[int]], root: int) -> list[int]:
    """What can be reached from `root`, each before what it leads to but for jumps back."""
    seen, order = {root}, []
    stack = [(root, iter(arrows[root]))] if arrows else []
    while stack:
        node, rest = stack[-1]
        for goal in rest:
            if goal not in seen:
                seen.add(goal)
                stack.append((goal, iter(arrows[goal])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def immediate_dominators(arrows: Sequence[Sequence[int]], order: Sequence[int]) -> dict[int, int]:
    """By Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001)."""
    if not order:
        return {}
    place = {node: at for at, node in enumerate(order)}
    before: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for goal in arrows[node]:
            before[goal].append(node)
    found = {order[0]: order[0]}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [one for one in before[node] if one in found]
            new = known[0]
            for other in known[1:]:
                while new != other:
                    if place[new] > place[other]:
                        new = found[new]
                    else:
                        other = found[other]
            if found.get(node) != new:
                found[node] = new
                changed = True
    return found


def dominates(dominators: Mapping[int, int], above: int, below: int) -> bool:
    """Whether every way from the root to `below` leads through `above`."""
    while below != above and dominators[below] != below:
        below = dominators[below]
    return below == above


def _loops(
    known: Registers, found: Sequence[Block], back: Mapping[int, list[int]],
    dominators: Mapping[int, int], order: Sequence[int],
) -> list[NaturalLoop]:  # fmt: skip
    before: dict[int, list[int]] = {}
    for index in order:
        for goal in found[index].successors:
            before.setdefault(goal, []).append(index)

    def only_waits(body: set[int]) -> bool:
        members = (at for one in body for at in range(found[one].start, found[one].stop))
        leaving = [found[one].stop - 1 for one in _leaving(found, body)]
        return bool(leaving) and is_spin_loop(known, frozenset(members), leaving)

    bodies: list[_Body] = []
    for head, tails in back.items():
        # Of jumps back to one place, those of a wait at the beginning of a loop are a loop inside of it.
        inner = [tail for tail in tails if only_waits(_reaching(before, head, [tail]))]
        outer = [tail for tail in tails if tail not in inner]
        for group in [outer, *([tail] for tail in inner)] if outer else [tails]:
            bodies.append(_Body(head, tuple(group), frozenset(_reaching(before, head, group))))
    bodies.sort(key=lambda one: (-len(one.blocks), one.head))
    loops: list[NaturalLoop] = []
    for at, body in enumerate(bodies):
        around = [one for one in range(at) if body.head in bodies[one].blocks]
        parent = min(around, key=lambda one: len(bodies[one].blocks), default=None)
        loops.append(
            NaturalLoop(
                at,
                body.head,
                body.blocks,
                1 + (loops[parent].depth if parent is not None else 0),
                parent,
                *_trips(known, found, dominators, order, body, bodies),
                only_waits(set(body.blocks)),
            )
        )
    return loops


class _Body(NamedTuple):
    """The blocks of a loop, where it begins, and from where it jumps back."""

    head: int
    tails: tuple[int, ...]
    blocks: frozenset[int]


class _Trips(NamedTuple):
    """The fields of a NaturalLoop that say how often it runs."""

    trips: int | None = None
    tests_first: bool = False


def _reaching(before: Mapping[int, Sequence[int]], head: int, tails: Sequence[int]) -> set[int]:
    """`head`, and what leads to `tails` without passing it."""
    body, work = {head}, [tail for tail in tails if tail != head]
    while work:
        member = work.pop()
        if member not in body:
            body.add(member)
            work += before.get(member, [])
    return body


def _trips(
    known: Registers, found: Sequence[Block], dominators: Mapping[int, int], order: Sequence[int],
    loop: _Body, bodies: Sequence[_Body],
) -> _Trips:  # fmt: skip
    """Runs of the body of a loop, where it has one exit, in its first or last block."""
    head, tails, body = loop
    leaving = _leaving(found, body)
    if len(tails) != 1 or len(leaving) != 1:
        return _Trips()
    last = tails[0]
    if found[last].stop - found[last].start == 1 and last in found[leaving[0]].successors:
        last = leaving[0]  # a branch out, and a jump back right behind it
    if leaving[0] not in (head, last):
        return _Trips()
    inner = frozenset().union(*(one.blocks for one in bodies if one.blocks < body))
    every = [
        block for block in order if block in body - inner and dominates(dominators, block, tails[0])
    ]
    members = frozenset(at for one in body for at in range(found[one].start, found[one].stop))
    spine = [at for one in every for at in range(found[one].start, found[one].stop)]
    end = spine.index(found[leaving[0]].stop - 1)
    jump = known.function.statements[spine[end]]
    goals = _goals(known.function, known, jump)
    taken = any(found[one].start in goals for one in body)
    count = stays(known, members, spine, end, taken)
    if count is None:
        return _Trips()
    return _Trips(count + 1) if leaving[0] == last else _Trips(count, tests_first=True)


def _leaving(found: Sequence[Block], body: Set[int]) -> list[int]:
    """The blocks of a loop from which it may be left."""
    return [one for one in body if found[one].leaves or set(found[one].successors) - body]


def _parted(
    found: Sequence[Block], order: Sequence[int], divergent: frozenset[int]
) -> frozenset[int]:
    """Blocks that run or not by a branch that depends on the thread: control dependence, by the
    dominators of the reversed arrows."""
    end = len(found)

    def goals(index: int) -> tuple[int, ...]:
        return (*found[index].successors, *((end,) if found[index].leaves else ()))

    reverse: list[list[int]] = [[] for _ in range(end + 1)]
    for index in order:
        for goal in goals(index):
            reverse[goal].append(index)
    after = reverse_postorder(reverse, end)
    above = immediate_dominators(reverse, after)
    parted: set[int] = set()
    work = [index for index in order if found[index].stop - 1 in divergent]
    seen = set(work)
    while work:
        index = work.pop()
        if len(goals(index)) < 2 or index not in above:
            continue
        for goal in goals(index):
            while goal != above[index] and goal in above and above[goal] != goal:
                parted.add(goal)
                if goal not in seen:  # who is not here takes no part in its branch
                    seen.add(goal)
                    work.append(goal)
                goal = above[goal]
    return frozenset(parted)


_HARMLESS = ARITHMETIC | frozenset(
    "mbarrier bra setp mov nanosleep shfl vote bar barrier membar fence".split()
)


def is_spin_loop(known: Registers, members: frozenset[int], leaving: Iterable[int]) -> bool:
    """Whether a loop of the statements `members` goes on until a value says so that it reads again and
    again where others write, at each of the branches `leaving`; apart from that it may reckon with
    integers and hand what it read through shared memory to the threads of its block."""
    statements = known.function.statements
    asked: set[str] = set()
    for at in members:
        if _asks(statements[at]):
            asked.update(known.effects[at].writes)
        elif not _is_harmless(statements[at], known):
            return False
    stores = {at for at in members if statements[at].opcode == "st"}
    handed = {at for at in members if statements[at].opcode == "ld"} if stores else set()
    before = -1
    while before != len(asked):
        before = len(asked)
        for at in members:
            if at in handed or not asked.isdisjoint(known.effects[at].reads):
                asked.update(known.effects[at].writes)
    return all(not asked.isdisjoint(known.effects[at].reads) for at in {*leaving, *stores})


def _asks(one: Statement) -> bool:
    if one.opcode == "mbarrier":
        return bool({"try_wait", "test_wait"} & set(one.modifiers))
    return one.opcode == "atom" or (
        one.opcode == "ld" and bool({"volatile", "acquire", "relaxed"} & set(one.modifiers))
    )


def _is_harmless(one: Statement, known: Registers) -> bool:
    if one.opcode in ("ld", "st"):
        where = {plain(word) for word in one.modifiers} & {"param", "const"} or {space(one, known)}
        return where <= {"shared", "param", "const"}
    return one.opcode in _HARMLESS and FLOATS.isdisjoint(one.modifiers)
