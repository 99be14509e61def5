"""The Region-DAG of a kernel: runs of one phase, what orders them, stages, loops, and their work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import NamedTuple

from accelopt.ptx.async_copies import Copies, follow
from accelopt.ptx.control_flow import Flow, NaturalLoop, blocks
from accelopt.ptx.module import Function, Module, SourcePlace, Statement
from accelopt.ptx.phases import (
    ASYNC_WAIT,
    BARRIER,
    CUTS,
    FENCE,
    SHARED_LOAD,
    SHARED_STORE,
    UNKNOWN,
    phases,
    space,
)  # fmt: skip
from accelopt.ptx.register_dataflow import Registers, registers
from accelopt.ptx.statements import read
from accelopt.ptx.work_counts import Work, shared_memory, work

ORDERED_BY = {BARRIER: "barrier", ASYNC_WAIT: "async_wait", FENCE: "mem_fence"}


class Region(NamedTuple):
    """A run of one phase inside a block: statements `first` to `last` (included) of the function.

    `divergent` when a guard or branch in it depends on the thread, `partial`
    when only some of the threads may come here. Its work is that of one run by the whole block.
    """

    region_id: int
    stage_id: int
    phase: str
    block: int
    loop: int | None
    depth: int
    first: int
    statements: tuple[Statement, ...]
    work: Work
    divergent: bool
    partial: bool

    @property
    def last(self) -> int:
        """The number of its last statement."""
        return self.first + len(self.statements) - 1

    @property
    def start_line(self) -> int:
        """Of the PTX text, from 1."""
        return self.statements[0].line

    @property
    def end_line(self) -> int:
        """Of the PTX text, from 1, included."""
        return self.statements[-1].last_line

    @property
    def sources(self) -> tuple[SourcePlace, ...]:
        """The lines of the source that it comes from, the outermost places, each once."""
        return tuple(dict.fromkeys(one.source[-1] for one in self.statements if one.source))


class RegionEdge(NamedTuple):
    """From one region to another. `kind`: flow, barrier, async_wait, mem_fence, async_dep; `carried`
    when it leads from one trip of a loop to the next, or to other warps: the others have no circle."""

    source: int
    target: int
    kind: str
    carried: bool = False


class Stage(NamedTuple):
    """Regions up to and with the next barrier, wait or fence, in the order of the text."""

    stage_id: int
    region_ids: tuple[int, ...]
    phase_mix: Mapping[str, int]
    work: Work
    divergent: bool


class LoopWork(NamedTuple):
    """A loop with the lines of its header and end, and the work of one trip but for loops inside."""

    loop: NaturalLoop
    start_line: int
    end_line: int
    work: Work


class RoundTrip(NamedTuple):
    """Values that go through shared memory on their way to global memory, after the last loop: the
    regions that store and load them, and the bytes that a block loads."""

    store: int
    load: int
    bytes: int


@dataclass(frozen=True)
class RegionDag:
    """One kernel. `threads` is None when the text does not say: work is then that of one thread."""

    function: Function
    module: Module
    threads: int | None
    flow: Flow
    regions: tuple[Region, ...]
    edges: tuple[RegionEdge, ...]
    stages: tuple[Stage, ...]
    loops: tuple[LoopWork, ...]
    copies: Copies
    round_trips: tuple[RoundTrip, ...]
    spills: tuple[int, ...]
    unknown: tuple[str, ...]
    shared_bytes: int
    dynamic_shared: bool

    @property
    def work(self) -> Work:
        """Every statement once, what stands in loops too."""
        return sum((one.work for one in self.regions), Work())

    @property
    def outside(self) -> Work:
        """The work that stands in no loop."""
        return sum((one.work for one in self.regions if one.loop is None), Work())

    @property
    def total(self) -> Work | None:
        """The work of a block with all trips of its loops; None where a loop that does anything else
        than wait has a number of trips that the text does not say."""
        found = Work()
        for one in self.regions:
            times = self.flow.runs(one.block)
            if times is None:
                return None
            found += one.work.times(times)
        return found

    @property
    def hot(self) -> tuple[Region, ...]:
        """Regions that move or compute anything: those in the most loops first, then those with the
        largest share of the kernel's bytes or operations of a kind."""
        whole = self.work
        found = [(share(one.work, whole), one) for one in self.regions]
        found = [pair for pair in found if pair[0] > 0]
        found.sort(key=lambda pair: (-pair[1].depth, -pair[0], pair[1].region_id))
        return tuple(one for _, one in found)


def share(part: Work, whole: Work) -> float:
    """The largest share that `part` has of the global bytes, shared bytes, local bytes, operations,
    special functions or atomics of `whole`; what cannot be told counts as large."""
    pairs = [
        (part.global_bytes, whole.global_bytes), (part.shared_bytes, whole.shared_bytes),
        (part.local_bytes, whole.local_bytes), (part.flops, whole.flops),
        (part.sfu_ops, whole.sfu_ops), (part.atomic_ops, whole.atomic_ops),
        (part.unknown_bytes, whole.unknown_bytes), (part.unknown_flops, whole.unknown_flops),
    ]  # fmt: skip
    return max((one / all_ for one, all_ in pairs if all_), default=0.0)


def analyse(
    text: str, kernel: str = "", warps: int = 0, launch: Mapping[str, int] = MappingProxyType({})
) -> RegionDag:
    """The Region-DAG of one kernel of a PTX text: the one of this name, or the first. `warps` says how
    many a block has where the text does not, `launch` what parameters (by name, or by place: "0") and
    special registers hold. Raises NotPtx."""
    module = read(text)
    return analyse_function(module.function(kernel).launched(launch), module, warps)


def analyse_function(function: Function, module: Module, warps: int = 0) -> RegionDag:
    """The Region-DAG of one function of a module."""
    if warps and not function.threads:
        function = replace(function, numbers={**function.numbers, ".reqntid": (32 * warps,)})
    known, flow = registers(function), blocks(function)
    kinds = phases(known)
    amounts = [work(one, function) for one in function.statements]
    calls: dict[str, Work] = {}
    for at, one in enumerate(function.statements):
        if one.opcode == "call":
            amounts[at] += _called(function, one, module, calls)
    for block in flow.blocks:
        if block.number in flow.parted:  # not every thread comes here
            for at in range(block.start, block.stop):
                amounts[at] = replace(amounts[at], masked=amounts[at].instruction_count)
    copies = follow(known, flow, kinds)
    shared_bytes, dynamic_shared = shared_memory(function, module)
    regions = _regions(function, flow, kinds, amounts)
    return RegionDag(
        function=function,
        module=module,
        threads=function.threads,
        flow=flow,
        regions=regions,
        edges=_edges(flow, regions, copies),
        stages=_stages(regions),
        loops=tuple(_loop_work(function, flow, loop, regions) for loop in flow.loops),
        copies=copies,
        round_trips=_round_trips(known, flow, regions),
        spills=tuple(
            at
            for at, one in enumerate(function.statements)
            if one.opcode in ("ld", "st") and space(one, known) == "local"
        ),
        unknown=tuple(
            one.name
            for one, kind in zip(function.statements, kinds, strict=True)
            if kind == UNKNOWN
        ),
        shared_bytes=shared_bytes,
        dynamic_shared=dynamic_shared,
    )


def _called(function: Function, call: Statement, module: Module, known: dict[str, Work]) -> Work:
    """The work of the function that a call names, each statement once; one that calls itself is not
    followed. `known` holds what was asked before."""
    names = [name for name in call.operands if name and name[0] not in "(["]
    goal = next((one for one in module.functions if names[:1] == [one.name]), None)
    if goal is None or goal.name == function.name:
        return Work(unknown_bytes=1, unknown_flops=1)
    if goal.name not in known:
        known[goal.name] = Work(unknown_bytes=1, unknown_flops=1)  # what a circle of calls finds
        own = replace(goal, numbers=function.numbers)
        found = Work()
        for one in own.statements:
            found += work(one, own)
            if one.opcode == "call":
                found += _called(own, one, module, known)
        known[goal.name] = found
    return known[goal.name]


def _regions(
    function: Function, flow: Flow, kinds: Sequence[str], amounts: Sequence[Work]
) -> tuple[Region, ...]:
    found: list[Region] = []
    stage, cut = 0, False
    for block in flow.blocks:
        loop = flow.loop_of(block.number)
        for phase, run in groupby(range(block.start, block.stop), key=kinds.__getitem__):
            places = list(run)
            if cut and phase not in CUTS:
                stage += 1
            cut = phase in CUTS
            found.append(
                Region(
                    region_id=len(found),
                    stage_id=stage,
                    phase=phase,
                    block=block.number,
                    loop=None if loop is None else loop.number,
                    depth=0 if loop is None else loop.depth,
                    first=places[0],
                    statements=function.statements[places[0] : places[-1] + 1],
                    work=sum((amounts[at] for at in places), Work()),
                    divergent=bool(flow.divergent & set(places)),
                    partial=block.number in flow.parted,
                )
            )
    return tuple(found)


def _edges(flow: Flow, regions: Sequence[Region], copies: Copies) -> tuple[RegionEdge, ...]:
    inside: dict[int, list[Region]] = {}
    for one in regions:
        inside.setdefault(one.block, []).append(one)
    order = {block: at for at, block in enumerate(flow.order)}
    rank = {one.region_id: (order.get(one.block, -1), one.region_id) for one in regions}
    found: dict[RegionEdge, None] = {}

    def add(source: Region, target: Region, kind: str) -> None:
        carried = rank[source.region_id] >= rank[target.region_id]
        found[RegionEdge(source.region_id, target.region_id, kind, carried)] = None

    for block in flow.blocks:
        row = inside[block.number]
        after = [inside[goal][0] for goal in block.successors]
        pairs = [*pairwise(row), *((row[-1], goal) for goal in after)]
        for source, target in pairs:
            add(source, target, ORDERED_BY.get(source.phase, "flow"))
    of = {at: one for one in regions for at in range(one.first, one.last + 1)}
    for copy, reader in copies.reads:
        add(of[copy], of[reader], "async_dep")
    return tuple(found)


def _stages(regions: Sequence[Region]) -> tuple[Stage, ...]:
    found = []
    for stage, members in groupby(regions, key=lambda one: one.stage_id):
        row = list(members)
        mix: Counter[str] = Counter()
        for one in row:
            mix[one.phase] += len(one.statements)
        found.append(
            Stage(
                stage,
                tuple(one.region_id for one in row),
                dict(mix),
                sum((one.work for one in row), Work()),
                any(one.divergent for one in row),
            )
        )
    return tuple(found)


def _loop_work(
    function: Function, flow: Flow, loop: NaturalLoop, regions: Sequence[Region]
) -> LoopWork:
    statements = [
        one
        for block in loop.blocks
        for one in function.statements[flow.blocks[block].start : flow.blocks[block].stop]
    ]
    return LoopWork(
        loop,
        min(one.line for one in statements),
        max(one.last_line for one in statements),
        sum((one.work for one in regions if one.loop == loop.number), Work()),
    )


def _round_trips(known: Registers, flow: Flow, regions: Sequence[Region]) -> tuple[RoundTrip, ...]:
    """After the last loop that computes (or anywhere, without loops): stores to shared memory, then
    loads of it whose values only move on to global stores."""
    looped = [block for loop in flow.loops if not loop.waits for block in loop.blocks]
    order = {block: at for at, block in enumerate(flow.order)}
    last = max((order[block] for block in looped), default=-1)
    tail = [one for one in regions if order.get(one.block, -1) > last]
    stored = _stored(known)
    found = []
    store = None
    for one in tail:
        if one.phase == SHARED_STORE:
            store = one.region_id
        elif one.phase == SHARED_LOAD and store is not None:
            written = {
                name for at in range(one.first, one.last + 1) for name in known.effects[at].writes
            }
            if written and written <= stored:
                found.append(RoundTrip(store, one.region_id, one.work.shared_read_bytes))
    return tuple(found)


def _stored(known: Registers) -> frozenset[str]:
    """Registers that are written to global memory, or moved or converted into such."""
    found: set[str] = set()
    for at, one in enumerate(known.function.statements):
        if one.opcode == "st" and space(one, known) in ("global", "generic"):
            effect = known.effects[at]
            found |= set(effect.reads) - set(effect.address)
    work = list(found)
    while work:
        for at in known.definitions.get(work.pop(), ()):
            if known.function.statements[at].opcode in ("mov", "cvt", "prmt", "selp", "shfl"):
                new = set(known.effects[at].reads) - found
                found |= new
                work += new
    return frozenset(found)
