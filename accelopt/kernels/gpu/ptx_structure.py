"""Evidence from the PTX of a solution's kernels of where their time may go; no time model.

Work is counted by `accelopt.ptx`, with what the launch says of the kernel's parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.hardware.gpus import DEFAULT_GPU, GPU, GPUS
from accelopt.kernels.gpu.bench.process.messages import Code, Resources
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.ptx.global_traffic import global_traffic
from accelopt.ptx.module import NotPtx
from accelopt.ptx.phases import ASYNC_COPY, ASYNC_WAIT, BARRIER, FENCE, GLOBAL_LOAD, MBARRIER
from accelopt.ptx.region_changes import touched
from accelopt.ptx.regions import LoopWork, Region, RegionDag, analyse
from accelopt.ptx.work_counts import Work

MUCH_MORE = 1.25  # of the bytes that the problem needs
MOST_LINES = 5
_MATRIX = frozenset("mma wmma wgmma tcgen05".split())


WAITING = frozenset({BARRIER, ASYNC_WAIT, GLOBAL_LOAD, ASYNC_COPY, FENCE, MBARRIER})
USES: Mapping[str, Callable[[Region], int]] = {
    "gmem": lambda one: one.work.global_bytes + one.work.unknown_bytes,
    "compute": lambda one: one.work.flops + one.work.unknown_flops,
    "sfu": lambda one: one.work.sfu_ops,
    "overlap": lambda one: one.work.instruction_count if one.phase in WAITING else 0,
}
"""How much a region uses a resource; of overlap, what may wait."""


class Structure(NamedTuple):
    """One kernel of a solution, the blocks of its launch (0: unknown), and how many of them a
    multiprocessor holds at once (0: unknown)."""

    dag: RegionDag
    blocks: int
    resident: int = 0


class MemoryTraffic(NamedTuple):
    """Bytes that a launch asks of the caches, and those of them that device memory gives."""

    asked: float
    moved: float


class Evidence(NamedTuple):
    """What a kernel's text says. `sfu_ms` is the least time of its special functions, `traffic` what it
    moves (None where the numbers cannot be told); `waits` says why work may stand still; `lines` are
    those of the source that use a resource, the most first."""

    sfu_ms: float | None
    traffic: MemoryTraffic | None
    waits: str
    lines: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]


def structures(
    code: Sequence[Code], resources: Sequence[Resources] = (), target: GPU = GPUS[DEFAULT_GPU]
) -> tuple[Structure, ...]:
    """The kernels whose PTX can be read; of several configurations of one the first. `resources` say how
    many warps a block has where the PTX does not."""
    found: dict[str, Structure] = {}
    for one in code:
        if one.kernel not in found:
            taken = next((taken for taken in resources if one.kernel in taken.kernel), None)
            try:
                dag = analyse(one.ptx, one.kernel, taken.warps if taken else 0, one.launch)
            except NotPtx:
                continue
            found[one.kernel] = Structure(dag, one.blocks, _resident(taken, target) if taken else 0)
    return tuple(found.values())


def _resident(taken: Resources, target: GPU) -> int:
    """Blocks that a multiprocessor holds at once."""
    limits = [target.blocks, target.warps // max(1, taken.warps)]
    if taken.registers:
        limits.append(target.registers // (target.warp_threads * taken.warps * taken.registers))
    if taken.shared_bytes:
        limits.append(target.shared_bytes // (taken.shared_bytes + target.block_reserve_bytes))
    return max(1, min(limits))


def evidence(kernels: Sequence[Structure], least: Bound, target: GPU) -> Evidence | None:
    """What the kernel that does most says of where its time may go; None without any."""
    if not kernels:
        return None
    main = max(kernels, key=_weight)
    dag, loop = main.dag, main_loop(main.dag)
    inside = [one for one in dag.regions if loop is not None and one.loop == loop.loop.number]
    lines = {name: _lines(inside, use) or _lines(dag.hot, use) for name, use in USES.items()}
    notes = [*_notes(main, least)]
    if len(kernels) > 1:
        notes.insert(0, f"read of {dag.function.name}, one of {len(kernels)} kernels")
    return Evidence(
        _sfu_ms(main, least, target),
        _traffic(main, least, target),
        _waits(main, loop, target),
        lines,
        tuple(notes),
    )


def missed(before: Sequence[Structure], after: Sequence[Structure], resource: str) -> str | None:
    """Why a change cannot have relieved `resource`, which limited the kernel that it was made to; empty
    where it touched a region that uses it, None where nobody can say."""
    if not before or not after or resource not in USES:
        return None
    old, new = (max(kernels, key=_weight).dag for kernels in (before, after))
    changed = touched(old, new)
    if not changed:
        return "the change left the PTX as it was"
    if any(USES[resource](one) for one in changed):
        return ""
    phases = ", ".join(sorted({one.phase for one in changed}))
    return f"the change touched nothing that uses what limited the kernel, only {phases}"


def main_loop(dag: RegionDag) -> LoopWork | None:
    """The loop that moves and computes most, the innermost first."""
    found = [one for one in dag.loops if not one.loop.waits]
    return max(found, key=lambda one: (_much(one.work), one.loop.depth), default=None)


def _much(work: Work) -> int:
    return work.flops + work.global_bytes + work.sfu_ops + work.unknown_flops + work.unknown_bytes


def _weight(one: Structure) -> int:
    loop = main_loop(one.dag)
    return max(1, one.blocks) * (
        _much(one.dag.total or one.dag.work) + (_much(loop.work) if loop else 0)
    )


def _lines(regions: Sequence[Region], use: Callable[[Region], int]) -> tuple[int, ...]:
    found: Counter[int] = Counter()
    for one in regions:
        amount = use(one)
        if amount:
            for place in one.sources:
                if place.line:
                    found[place.line] += amount
    return tuple(line for line, _ in found.most_common(MOST_LINES))


def _sfu_ms(main: Structure, least: Bound, target: GPU) -> float | None:
    """By all trips where the text says them, else in proportion to the problem's operations."""
    total = main.dag.total
    rate = target.special_per_second
    if total is not None and main.blocks:
        return total.sfu_ops * main.blocks / rate * 1e3
    loop = main_loop(main.dag)
    if loop is not None and loop.work.flops and not loop.work.unknown_flops and least.operations:
        return least.operations * loop.work.sfu_ops / loop.work.flops / rate * 1e3
    return None


def _traffic(main: Structure, least: Bound, target: GPU) -> MemoryTraffic | None:
    """By all trips where text and launch say them, else in proportion to the problem's operations.

    Device memory gives each byte that the problem needs once. What a block asks again, loop after loop,
    it gives again where blocks that run side by side hold more of it than a half of the L2 cache: the
    other half may have copies of the first (each serves the multiprocessors next to it). What other
    blocks ask as well comes from the cache.
    """
    block = global_traffic(main.dag)
    if block is not None and main.blocks:
        together = min(main.blocks, target.multiprocessors * max(1, main.resident)) * block.held
        again = block.again * main.blocks if 2 * together > target.l2_bytes else 0
        asked = float(block.asked * main.blocks)
        return MemoryTraffic(asked, min(asked, least.bytes + again) if again else least.bytes)
    loop = main_loop(main.dag)
    done = loop.work if loop is not None else Work()
    if done.flops and least.operations and not (done.unknown_flops or done.unknown_bytes):
        asked = least.operations * done.global_bytes / done.flops
        return MemoryTraffic(max(asked, least.bytes), least.bytes)
    return None


def _waits(main: Structure, loop: LoopWork | None, target: GPU) -> str:
    parts = []
    if loop is not None:
        inside = [one for one in main.dag.regions if one.loop == loop.loop.number]
        phases: Counter[str] = Counter()
        for one in inside:
            phases[one.phase] += len(one.statements)
        if phases[GLOBAL_LOAD] and not phases[ASYNC_COPY]:
            parts.append("its loop uses what it has just loaded: no copy is asynchronous")
        if phases[BARRIER] or phases[ASYNC_WAIT]:
            barriers, waits = phases[BARRIER], phases[ASYNC_WAIT]
            parts.append(f"barriers in a trip: {barriers}, waits for what is asynchronous: {waits}")
    if main.blocks and main.blocks < target.multiprocessors:
        parts.append(f"{main.blocks} blocks for {target.multiprocessors} multiprocessors")
    return "; ".join(parts) or "the rest: waiting, or work that the problem does not need"


def _notes(main: Structure, least: Bound) -> Iterator[str]:
    dag, total = main.dag, main.dag.total
    if total is not None and main.blocks and not total.unknown_bytes:
        asked = total.global_bytes * main.blocks
        if asked > MUCH_MORE * least.bytes:
            yield f"asks for {asked / 1e6:.1f} MB where the problem needs {least.bytes / 1e6:.1f}"
    opcodes = {one.opcode for one in dag.function.statements}
    if least.compute_ms > least.memory_ms and not opcodes & _MATRIX:
        yield "no matrix instruction"
    if dag.spills:
        yield f"{len(dag.spills)} instructions use the threads' own memory"
    if dag.copies.unawaited:
        yield f"nothing waits for {len(dag.copies.unawaited)} asynchronous copies"
    if dag.round_trips:
        moved = sum(one.bytes for one in dag.round_trips)
        yield f"results pass {moved} bytes a block through shared memory on their way out"
