"""Trip counts of loops whose start, step and bound are known."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

from accelopt.ptx.module import Statement
from accelopt.ptx.register_dataflow import Registers, calculated, held

_COMPARE = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_INTEGER = re.compile(r"([sub])(16|32|64)")
_LINEAR = frozenset({"mov", "add", "sub"})
_ROUNDS = 4  # of a linear counter, looked at before it is extrapolated
_FOLLOWED = 4096  # rounds, where that does not say it


class _Test(NamedTuple):
    """Statement `at` keeps a loop going while register `counter` `compare`s so with `bound`, both held in
    `size` bits, signed or not."""

    at: int
    counter: str
    compare: str
    bound: int
    signed: bool
    size: int

    def held(self, value: int) -> int:
        """An integer as the test sees it."""
        return held(value, "s" if self.signed else "u", self.size)


def stays(
    known: Registers, members: frozenset[int], spine: Sequence[int], exit_: int, taken: bool
) -> int | None:
    """How often the branch at place `exit_` of `spine` keeps a loop going before it leaves it.

    `members` are the loop's statements, `spine` those that every round runs once, in order; the branch,
    taken, stays in the loop (`taken`) or leaves it. None unless the branch tests a counter against a
    constant, and integer arithmetic on constants makes it: what moves and additions make is extrapolated
    where it does not wrap around, all else is followed round by round.
    """
    test = _test(known, members, spine[:exit_], known.function.statements[spine[exit_]], taken)
    needed = None if test is None else _made_of(known, members, spine, test.counter)
    if test is None or needed is None:
        return None
    values = map(test.held, _rounds(known, members, spine, test, needed))
    first = list(islice(values, _ROUNDS))
    steps = {after - before for before, after in pairwise(first)}
    made = [known.function.statements[at].opcode for at in spine if _writes(known, at, needed)]
    if len(first) == _ROUNDS and len(steps) == 1 and _LINEAR.issuperset(made):
        step = steps.pop()
        count = _count(first[0], step, test.compare, test.bound)
        if count is not None and test.held(first[0] + count * step) == first[0] + count * step:
            return count
    for count, value in enumerate(islice(chain(first, values), _FOLLOWED)):
        if not _COMPARE[test.compare](value, test.bound):
            return count
    return None


def _test(
    known: Registers, members: frozenset[int], before: Sequence[int], jump: Statement, taken: bool
) -> _Test | None:
    """What the branch `jump`, which the statements `before` come before, asks in order to stay."""
    if jump.opcode != "bra" or not jump.guard:
        return None
    stays_when, asked = taken != jump.guard.startswith("!"), jump.guard.lstrip("!")
    at = _only(known, members, before, asked, jump.scope)
    while at is not None and (test := known.function.statements[at]).name == "not.pred":
        stays_when, asked = not stays_when, test.operands[1]
        at = None if test.guard else _only(known, members, before, asked, test.scope)
    if at is None:
        return None
    if test.opcode != "setp" or len(test.operands) != 3 or test.guard or "|" in test.operands[0]:
        return None
    name = test.modifiers[0] if test.modifiers else ""
    kind = _INTEGER.fullmatch(test.modifiers[-1]) if test.modifiers else None
    compare = _UNSIGNED.get(name, name)
    if compare not in _OPPOSITE or kind is None:
        return None
    left, right = test.operands[1:]
    bound = known.constant(right, test.scope)
    if bound is None:
        left, bound, compare = right, known.constant(left, test.scope), _MIRRORED[compare]
    if bound is None:
        return None
    if not stays_when:
        compare = _OPPOSITE[compare]
    signed, size = name not in _UNSIGNED and kind[1] != "u", int(kind[2])
    found = _Test(at, known.register(left, test.scope), compare, bound, signed, size)
    return found._replace(bound=found.held(bound))


def _only(
    known: Registers, members: frozenset[int], before: Sequence[int], name: str, scope: int
) -> int | None:
    """The only statement of a loop that gives a register its value, if it is one of `before`."""
    found = [at for at in known.definitions.get(known.register(name, scope), ()) if at in members]
    return found[0] if len(found) == 1 and found[0] in before else None


def _made_of(
    known: Registers, members: frozenset[int], spine: Sequence[int], name: str
) -> frozenset[str] | None:
    """The registers of which a loop makes register `name`; None where one is not made once a round."""
    work, found = [name], {name}
    while work:
        places = known.definitions.get(work.pop(), [])
        inside = [at for at in places if at in members]
        if len(inside) > 1 or len(places) - len(inside) > 1 or not set(inside) <= set(spine):
            return None
        for at in inside:
            new = set(known.effects[at].reads) - found
            found |= new
            work += new
    return frozenset(found)


def _writes(known: Registers, at: int, names: frozenset[str]) -> bool:
    return not names.isdisjoint(known.effects[at].writes)


def _rounds(
    known: Registers, members: frozenset[int], spine: Sequence[int], test: _Test,
    needed: frozenset[str],
) -> Iterator[int]:  # fmt: skip
    """The values of the counter at the test, round by round, as long as they are known."""
    state: dict[str, int] = {}
    for name in needed:
        for at in known.definitions.get(name, ()):
            value = None if at in members else known.result(at)
            if value is not None:
                state[name] = value
    run = [at for at in spine if at == test.at or _writes(known, at, needed)]
    while True:
        for at in run:
            if at == test.at:
                if test.counter not in state:
                    return
                yield state[test.counter]
                continue
            value = _value(known, known.function.statements[at], state)
            if value is None:
                return
            state[known.effects[at].writes[0]] = value


def _value(known: Registers, one: Statement, state: dict[str, int]) -> int | None:
    """What integer arithmetic gives."""
    given: list[int] = []
    for operand in one.operands[1:]:
        value = known.constant(operand, one.scope)
        value = state.get(known.register(operand, one.scope)) if value is None else value
        if value is None:
            return None
        given.append(value)
    return None if one.guard else calculated(one, given)


def _count(start: int, step: int, compare: str, bound: int) -> int | None:
    """How many of start, start + step, ... compare so with the bound before the first that does not."""
    distance = bound - start
    if compare in ("gt", "ge"):
        distance, step, compare = -distance, -step, {"gt": "lt", "ge": "le"}[compare]
    if compare == "eq":
        return int(distance == 0) if step else None
    if compare == "ne":
        if step == 0 or distance % step or distance // step < 0:
            return None
        return distance // step
    if compare == "le":
        distance += 1
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None
