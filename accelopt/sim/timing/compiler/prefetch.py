"""When loads are issued by a compiler that leaves them where the author wrote them.

In the order in which they are wanted, and those of operands of products in time: as long before the first
product as the transfer takes by the documents, DMA latency and bytes, and earlier where the transfers
behind it fill the DMA engines until then. Time is counted in what the Tensor engine does until then.
Making descriptors is not foreseen, so a product that waits for a load of its own waits for them: blocked
products of fp32 at 2048 (trn2_public.csv) lose 0.3 us for each load of 128 rows of 512 B, and nothing
where each block of rows is used by four products, whatever SBUF would hold. Of loads that other engines
read nothing was measured: they come as early as there is room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from math import inf

from accelopt.hardware import Hardware
from accelopt.sim.errors import SourceLine
from accelopt.sim.timing.machine.dependence import DependenceGraph
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decision, Queue
from accelopt.sim.timing.stream.stream import Stream


def load_in_time(
    stream: Stream,
    graph: DependenceGraph,
    costs: list[Transfer | None],
    spec: Hardware,
    decisions: list[Decision],
) -> None:
    """Orders transfers by who wants them first and lets the loads of operands wait until their time
    has come, in the graph."""
    issue_ns = by_form(stream.instances, lambda form: price(form, spec).issue_ns)
    is_load = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    is_product = by_form(stream.instances, lambda form: form.queue is Queue.TENSOR)
    graph.wanted = list(range(len(stream)))
    for at in range(len(stream) - 1, -1, -1):  # with the parts of its tile that wait for it
        if is_load[stream.kind[at]]:
            parts = (graph.wanted[other] for other in graph.followers.get(at, ()))
            graph.wanted[at] = min((*graph.successors[at], *parts), default=at)
    cores = range(stream.cores)
    lines: list[list[int]] = [[] for _ in cores]  # the products of each core
    ends: list[list[float]] = [[] for _ in cores]  # when each ends, if nothing waited
    begin: dict[int, float] = {}
    readers: dict[int, int] = {}  # of each load the first product
    loaded: dict[int, int] = {}  # cell -> the load that filled it
    for at, kind in enumerate(stream.kind):
        if is_product[kind]:
            line, known = lines[stream.core_of(kind)], ends[stream.core_of(kind)]
            begin[at] = known[-1] if known else 0.0
            line.append(at)
            known.append(begin[at] + issue_ns[kind])
            for cell in stream.reads[at]:
                if cell in loaded:
                    readers.setdefault(loaded[cell], at)
        for cell in stream.writes[at]:
            loaded.pop(cell, None)
        if is_load[kind]:
            loaded.update(dict.fromkeys(stream.writes[at], at))
    following = [inf for _ in cores]  # when the next transfer has to begin
    waiting: Counter[SourceLine] = Counter()
    for at in sorted(range(len(stream)), key=graph.wanted.__getitem__, reverse=True):
        cost, core = costs[at], stream.core_of(stream.kind[at])
        if cost is None:
            continue
        if at in readers:
            following[core] = min(following[core], begin[readers[at]] - spec.dma_latency_ns)
        following[core] -= cost.engine_ns
        before = bisect_right(lines[core], graph.wanted[at] - 1) - 1
        done = min(bisect_right(ends[core], following[core]), before)
        if at in readers and done > 0:
            graph.behind.setdefault(lines[core][done - 1], []).append(at)
            graph.waits[at] += 1
            waiting[stream.instances[stream.kind[at]].operation.source] += 1
    decisions += [
        Decision("load_in_time", "loaded as long before as that should take", source, count)
        for source, count in waiting.items()
    ]
