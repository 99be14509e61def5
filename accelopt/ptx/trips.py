"""How often a loop runs, where its start, step and bound are known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from accelopt.ptx.module import Statement
from accelopt.ptx.registers import Registers

_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_INTEGER = re.compile(r"([sub])(16|32|64)")
_ROUNDS = 4  # of the counter, looked at before it is believed to be linear


def stays(
    known: Registers, members: frozenset[int], spine: Sequence[int], exit_: int, taken: bool
) -> int | None:
    """How often the branch at place `exit_` of `spine` keeps a loop going before it leaves it.

    `members` are the loop's statements, `spine` those that every round runs once, in order; the branch,
    taken, stays in the loop (`taken`) or leaves it. None unless the branch tests a counter against a
    constant, and moves and additions of constants make it.
    """
    statements = known.function.statements
    jump = statements[spine[exit_]]
    if jump.opcode != "bra" or not jump.guard:
        return None
    predicates = known.names(jump.guard.lstrip("!"), jump.scope)
    tests = [at for name in predicates for at in known.definitions.get(name, ()) if at in members]
    if len(tests) != 1 or tests[0] not in spine[:exit_]:
        return None
    test = statements[tests[0]]
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
    if taken == jump.guard.startswith("!"):
        compare = _OPPOSITE[compare]
    values = _rounds(known, members, spine, tests[0], known.register(left, test.scope))
    size = 1 << int(kind[2])
    least = 0 if name in _UNSIGNED or kind[1] == "u" else -size // 2
    bound, *values = ((value - least) % size + least for value in (bound, *values))
    steps = {after - before for before, after in pairwise(values)}
    if len(steps) != 1:
        return None
    step = steps.pop()
    count = _count(values[0], step, compare, bound)
    ends = count is not None and least <= values[0] + count * step < least + size
    return count if ends else None  # a counter that wraps around is not followed


def _rounds(
    known: Registers, members: frozenset[int], spine: Sequence[int], test: int, name: str
) -> list[int]:
    """The values of register `name` at the statement `test` in the first rounds; none if unknown."""
    work, needed = [name], {name}
    state: dict[str, int] = {}
    while work:
        register = work.pop()
        places = known.definitions.get(register, [])
        inside = [at for at in places if at in members]
        outside = [at for at in places if at not in members]
        if len(inside) > 1 or len(outside) > 1 or not set(inside) <= set(spine):
            return []
        for at in outside:
            value = known.result(at)
            if value is not None:
                state[register] = value
        for at in inside:
            new = set(known.effects[at].reads) - needed
            needed |= new
            work += new
    run = [at for at in spine if needed & set(known.effects[at].writes)]
    found: list[int] = []
    for _ in range(_ROUNDS):
        for at in sorted({*run, test}, key=spine.index):
            if at == test:
                if name not in state:
                    return []
                found.append(state[name])
                continue
            one = known.function.statements[at]
            value = _value(known, one, state)
            if value is None:
                return []
            state[known.effects[at].writes[0]] = value
    return found


def _value(known: Registers, one: Statement, state: dict[str, int]) -> int | None:
    """What a move or an addition gives."""
    given: list[int] = []
    for operand in one.operands[1:]:
        value = known.constant(operand, one.scope)
        value = state.get(known.register(operand, one.scope)) if value is None else value
        if value is None:
            return None
        given.append(value)
    if one.guard:
        return None
    if one.opcode == "mov" and len(given) == 1:
        return given[0]
    if one.opcode in ("add", "sub") and len(given) == 2:
        return given[0] + given[1] if one.opcode == "add" else given[0] - given[1]
    return None


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
