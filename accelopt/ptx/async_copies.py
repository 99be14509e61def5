"""Asynchronous copies: which wait ends them, and which reads of shared memory may depend on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from accelopt.ptx.control_flow import Flow
from accelopt.ptx.module import Statement
from accelopt.ptx.phases import ASYNC_COPY, ASYNC_WAIT, MBARRIER, SHARED_LOAD, plain
from accelopt.ptx.register_dataflow import Registers

_MOST_GROUPS = 33  # older groups are taken together


class Copies(NamedTuple):
    """By the number of a statement: `reads` are pairs of a copy and a read of shared memory after a wait
    for it; `unawaited` copies are waited for on no way, `idle` waits have nothing to wait for."""

    reads: tuple[tuple[int, int], ...]
    unawaited: tuple[int, ...]
    idle: tuple[int, ...]


class _State(NamedTuple):
    """What may be under way: groups of copies (the open one first, then the newest) by their kind,
    copies that an mbarrier counts, and copies that were waited for."""

    thread: tuple[frozenset[int], ...] = (frozenset(),)
    bulk: tuple[frozenset[int], ...] = (frozenset(),)
    counted: frozenset[int] = frozenset()
    landed: frozenset[int] = frozenset()

    def groups(self, bulk: bool) -> tuple[frozenset[int], ...]:
        """The groups of one kind."""
        return self.bulk if bulk else self.thread

    def grouped(self, bulk: bool, groups: tuple[frozenset[int], ...]) -> _State:
        """The same with other groups of one kind."""
        return self._replace(bulk=groups) if bulk else self._replace(thread=groups)

    def joined(self, other: _State) -> _State:
        """What may be under way where two ways meet."""
        return _State(
            _union(self.thread, other.thread),
            _union(self.bulk, other.bulk),
            self.counted | other.counted,
            self.landed | other.landed,
        )


def _union(
    one: tuple[frozenset[int], ...], other: tuple[frozenset[int], ...]
) -> tuple[frozenset[int], ...]:
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    both = (a | b for a, b in zip(longer, shorter, strict=False))
    return (*both, *longer[len(shorter) :])


def follow(known: Registers, flow: Flow, phases: tuple[str, ...]) -> Copies:
    """Carry copies along all ways through a function until nothing changes."""
    statements = known.function.statements
    special = [
        at
        for at, kind in enumerate(phases)
        if kind in (ASYNC_COPY, ASYNC_WAIT, MBARRIER, SHARED_LOAD)
        or (statements[at].opcode in ("wgmma", "tcgen05"))
    ]
    inside = {
        block.number: [at for at in special if block.start <= at < block.stop]
        for block in flow.blocks
    }
    entry: dict[int, _State] = {flow.order[0]: _State()} if flow.order else {}
    seen = _Seen(
        at
        for block in flow.blocks
        if block.number in flow.parted
        for at in inside[block.number]
        if _is_counted(statements[at], phases[at])
    )
    work = list(flow.order)
    while work:
        index = work.pop(0)
        if index not in entry:
            continue
        state = entry[index]
        for at in inside[index]:
            state = _after(state, at, statements[at], phases[at], known, seen)
        for goal in flow.blocks[index].successors:
            joined = entry[goal].joined(state) if goal in entry else state
            if entry.get(goal) != joined:
                entry[goal] = joined
                if goal not in work:
                    work.append(goal)
    return Copies(
        tuple(sorted(seen.reads)),
        tuple(sorted(seen.copies - seen.awaited)),
        tuple(sorted(seen.waits - seen.useful)),
    )


class _Seen:
    """What the walk met on its way; `elsewhere` are copies that other warps may have issued."""

    def __init__(self, elsewhere: Iterable[int]) -> None:
        self.elsewhere = frozenset(elsewhere)
        self.reads: set[tuple[int, int]] = set()
        self.copies: set[int] = set()
        self.awaited: set[int] = set()
        self.waits: set[int] = set()
        self.useful: set[int] = set()


def _is_counted(one: Statement, phase: str) -> bool:
    """Whether an mbarrier says when the copy has arrived."""
    words = [plain(word) for word in one.modifiers]
    return phase == ASYNC_COPY and (one.opcode != "cp" or {"bulk", "mbarrier"} <= set(words))


def _after(
    state: _State, at: int, one: Statement, phase: str, known: Registers, seen: _Seen
) -> _State:
    words = [plain(word) for word in one.modifiers]
    bulk = "bulk" in words
    if phase == ASYNC_COPY and "commit_group" in words:
        moved = (frozenset[int](), *state.groups(bulk))
        oldest = frozenset[int]().union(*moved[_MOST_GROUPS - 1 :])
        return state.grouped(bulk, (*moved[: _MOST_GROUPS - 1], oldest))
    if phase == ASYNC_COPY:
        seen.copies.add(at)
        if _is_counted(one, phase):
            return state._replace(counted=state.counted | {at})
        groups = state.groups(bulk)
        return state.grouped(bulk, (groups[0] | {at}, *groups[1:]))
    if phase == ASYNC_WAIT and one.opcode == "cp":
        return _waited(state, at, one, bulk, known, seen)
    if phase == MBARRIER and one.opcode == "cp":  # cp.async.mbarrier.arrive
        return state._replace(counted=state.counted.union(*state.thread))
    if phase == MBARRIER and {"try_wait", "test_wait"} & set(words):
        done = state.counted | seen.elsewhere
        seen.awaited |= done
        return state._replace(landed=state.landed | done)
    if phase == SHARED_LOAD or words[:1] in (["mma_async"], ["mma"]):
        seen.reads.update(
            (copy, at) for copy in state.landed if _fills(known.function.statements[copy])
        )
    return state


def _waited(
    state: _State, at: int, one: Statement, bulk: bool, known: Registers, seen: _Seen
) -> _State:
    groups = state.groups(bulk)
    left = known.constant(one.operands[0], one.scope) if one.operands else None
    kept = 0 if "wait_all" in one.modifiers else 1 + (left or 0)
    done = frozenset[int]().union(*groups[kept:])
    seen.waits.add(at)
    if frozenset().union(*groups):
        seen.useful.add(at)
    seen.awaited |= done
    rest = groups[:kept] or (frozenset(),)
    return state.grouped(bulk, rest)._replace(landed=state.landed | done)


def _fills(copy: Statement) -> bool:
    """Whether a copy writes shared memory."""
    ends = [plain(word) for word in copy.modifiers if plain(word) in ("shared", "global")]
    return copy.opcode == "cp" and ends[:1] == ["shared"]
