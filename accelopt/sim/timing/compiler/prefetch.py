"""When loads are issued by a compiler that leaves them where the author wrote them.

In the order in which they are wanted, and those that products wait for in time: as long before the first
product that wants what a load brings, or what the chip makes of it, as the transfer takes by the
documents, DMA latency and bytes, and earlier where the transfers behind it fill the DMA engines until
then. Time is counted in what the Tensor engine does until then. Making descriptors is not foreseen, so a
product that waits for a load of its own waits for them: blocked products of fp32 at 2048
(trn2_public.csv) lose 0.3 us for each load of 128 rows of 512 B, and nothing where each block of rows is
used by four products, whatever SBUF would hold. Assumed: nor is what lies between a load and the
product, or a kernel would be faster for copying what it loads. Of loads that no product waits for nothing
was measured: they come as early as there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from accelopt.hardware import Hardware
from accelopt.sim.timing.machine.dependence import DependenceGraph
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions, Operation, Queue
from accelopt.sim.timing.stream.stream import Stream


def load_in_time(
    stream: Stream,
    graph: DependenceGraph,
    costs: list[Transfer | None],
    spec: Hardware,
    decisions: Decisions,
) -> None:
    """Orders transfers by who wants them first, in the graph, and lets the loads that products want wait
    until so many products have been issued."""
    issue_ns = by_form(stream.instances, lambda form: price(form, spec).issue_ns)
    forms = [stream.instances[kind].form for kind in stream.kind]
    readers = _readers(stream, forms)
    graph.wanted = _wanted(stream, forms, graph, readers)
    cores = range(stream.cores)
    lines: list[list[int]] = [[] for _ in cores]  # the products of each core
    ends: list[list[float]] = [[] for _ in cores]  # when each ends, if nothing waited
    begin: dict[int, float] = {}
    for at, kind in enumerate(stream.kind):
        if forms[at].queue is Queue.TENSOR:
            line, known = lines[stream.core_of(kind)], ends[stream.core_of(kind)]
            begin[at] = known[-1] if known else 0.0
            line.append(at)
            known.append(begin[at] + issue_ns[kind])
    following = [inf for _ in cores]  # when the next transfer has to begin
    waiting: list[int] = []
    for at in sorted(range(len(stream)), key=graph.wanted.__getitem__)[::-1]:
        cost, core = costs[at], stream.core_of(stream.kind[at])
        if cost is None:
            continue
        if at in readers:
            following[core] = min(following[core], begin[readers[at]] - spec.dma_latency_ns)
        following[core] -= cost.engine_ns
        before = bisect_right(lines[core], graph.wanted[at] - 1) - 1
        done = min(bisect_right(ends[core], following[core]), before)
        if at in readers and done > 0:
            graph.after.setdefault((core, done), []).append(at)
            graph.waits[at] += 1
            waiting.append(stream.kind[at])
    stream.tell(decisions, "loaded as long before as that should take", waiting)


def _readers(stream: Stream, forms: list[Operation]) -> dict[int, int]:
    """Of each load the first product that wants what it brings or what is made of that on the chip."""
    found: dict[int, int] = {}
    first: dict[int, int] = {}  # of each cell
    for at in range(len(stream) - 1, -1, -1):
        form, reader = forms[at], at
        if form.is_store:
            continue
        if form.queue is not Queue.TENSOR:
            reader = min((first[cell] for cell in stream.writes[at] if cell in first), default=-1)
            if reader < 0:
                continue
            if form.is_dma:
                found[at] = reader
        for cell in stream.reads[at]:
            first[cell] = min(reader, first.get(cell, reader))
    return found


def _wanted(
    stream: Stream, forms: list[Operation], graph: DependenceGraph, readers: dict[int, int]
) -> list[int]:
    """Of each load the first product or store that cannot begin without it: one that wants it, or
    stands in an engine's queue behind who does. So no load waits for a product that waits for it. Where
    no product wants it, who reads it first; of the others their own positions."""
    wanted = list(range(len(stream)))
    behind: dict[tuple[int, Queue], int] = {}  # what waits for the next in each queue
    for at in range(len(stream) - 1, -1, -1):
        form, queue = forms[at], (stream.core_of(stream.kind[at]), forms[at].queue)
        others = [wanted[other] for other in graph.followers.get(at, ())]
        if form.is_dma and at not in readers:
            others += graph.successors[at]
        else:
            others += [wanted[other] for other in graph.successors[at]]
        if form.is_dma and not form.is_store:
            wanted[at] = min(others, default=at)
        elif not form.is_dma:
            if form.queue is not Queue.TENSOR:
                wanted[at] = min((*others, behind.get(queue, len(stream))))
            behind[queue] = wanted[at]
    return wanted
