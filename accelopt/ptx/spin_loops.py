"""Spin loops: loops that only ask whether something has happened."""

from __future__ import annotations

from collections.abc import Iterable

from accelopt.ptx.module import Statement
from accelopt.ptx.phases import ARITHMETIC, FLOATS, plain, space
from accelopt.ptx.register_dataflow import Registers

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
