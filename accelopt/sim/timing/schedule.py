"""When everything happens: engines in parallel, each nearly in order, transfers over sixteen DMA
engines, ports that two engines cannot use at once.

An event-driven list scheduler. Hardware engines are in order; the compiler's own reordering is a
window: an engine that waits may start a later instruction out of the next few.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from accelopt.sim.spec import Spec
from accelopt.sim.timing.cells import Stream
from accelopt.sim.timing.dependence import Graph
from accelopt.sim.timing.operation import Queue
from accelopt.sim.timing.transfers import Transfer

WINDOWS = (16, 8, 8, 8, 64)
"""Instructions that each queue looks ahead: tensor, vector, scalar, gpsimd, DMA. Strict order (1)
misses NKIBench by 40%, anything from 8 on agrees (reference/timing.md 3.4)."""


@dataclass
class Timeline:
    """Start, end of occupancy and end of latency of every instance, in ns after launch."""

    start: list[float]
    free: list[float]
    done: list[float]
    queue: list[int]
    latency_ns: float


def schedule(
    stream: Stream,
    graph: Graph,
    costs: list[Transfer | None],
    spec: Spec,
    windows: tuple[int, ...] = WINDOWS,
) -> Timeline:
    """Runs the stream on the machine."""
    n = len(stream)
    operations = [item.operation for item in stream.instances]
    queue_of = [int(operation.queue) for operation in operations]
    issue_of = [operation.issue_ns for operation in operations]
    latency_of = [operation.latency_ns for operation in operations]
    sbuf_port = [
        spec.vector_gpsimd_exclusive
        and operation.queue in (Queue.VECTOR, Queue.GPSIMD)
        and operation.touches_sbuf
        for operation in operations
    ]
    psum_port = [
        spec.vector_scalar_psum_exclusive
        and operation.queue in (Queue.VECTOR, Queue.SCALAR)
        and operation.touches_psum
        for operation in operations
    ]
    kind = stream.kind
    queue = [queue_of[k] for k in kind]
    ordinal = [0] * n
    members: list[list[int]] = [[] for _ in range(5)]
    for at in range(n):
        line = members[queue[at]]
        ordinal[at] = len(line)
        line.append(at)
    waits = list(graph.waits)
    ready_at = [0.0] * n
    start, free, done = [0.0] * n, [0.0] * n, [0.0] * n
    head = [0] * 5
    issued = [bytearray(len(line)) for line in members]
    ready: list[list[int]] = [[] for _ in range(5)]  # ordinals that may start now
    future: list[list[tuple[float, int]]] = [[] for _ in range(5)]  # (time, ordinal)
    engine_free = [0.0] * 5
    dma_free = [0.0] * spec.dma_engines
    sbuf_free = psum_free = 0.0
    hop, dma_latency = spec.semaphore_ns, spec.dma_latency_ns
    events: list[tuple[float, int]] = []
    for at in range(n):
        if waits[at] == 0:
            heappush(future[queue[at]], (0.0, ordinal[at]))
    for q in range(5):
        if future[q]:
            heappush(events, (0.0, q))
    successors, followers = graph.successors, graph.followers
    end = 0.0
    remaining = n
    while events:
        now, q = heappop(events)
        if now < engine_free[q]:
            continue  # a wake-up at the time it gets free is already there
        line, waiting, coming = members[q], ready[q], future[q]
        while coming and coming[0][0] <= now:
            heappush(waiting, heappop(coming)[1])
        if not waiting or waiting[0] >= head[q] + windows[q]:
            if coming:
                heappush(events, (coming[0][0], q))
            continue
        place = heappop(waiting)
        at = line[place]
        k = kind[at]
        flags = issued[q]
        flags[place] = 1
        h = head[q]
        while h < len(flags) and flags[h]:
            h += 1
        head[q] = h
        cost = costs[at]
        begin = now
        if cost is not None:
            first = begin + dma_latency
            finish = first
            for e in range(cost.first_engine, cost.first_engine + cost.engines):
                engine = e % spec.dma_engines
                s = dma_free[engine]
                s = (s if s > first else first) + cost.engine_ns
                dma_free[engine] = s
                if s > finish:
                    finish = s
            until = now
            complete = finish
        else:
            if sbuf_port[k] and sbuf_free > begin:
                begin = sbuf_free
            if psum_port[k] and psum_free > begin:
                begin = psum_free
            until = begin + issue_of[k]
            complete = until + latency_of[k]
            if sbuf_port[k]:
                sbuf_free = until
            if psum_port[k]:
                psum_free = until
            engine_free[q] = until
        start[at], free[at], done[at] = begin, until, complete
        if complete > end:
            end = complete
        remaining -= 1
        heappush(events, (until, q))
        at_time = complete + hop
        for other in successors[at]:
            waits[other] -= 1
            if ready_at[other] < at_time:
                ready_at[other] = at_time
            if waits[other] == 0:
                other_queue = queue[other]
                moment = ready_at[other]
                heappush(future[other_queue], (moment, ordinal[other]))
                heappush(events, (moment if moment > engine_free[other_queue]
                                  else engine_free[other_queue], other_queue))  # fmt: skip
        for other in followers[at]:
            waits[other] -= 1
            if ready_at[other] < begin:
                ready_at[other] = begin
            if waits[other] == 0:
                heappush(future[queue[other]], (ready_at[other], ordinal[other]))
                heappush(events, (max(ready_at[other], engine_free[queue[other]]), queue[other]))
    if remaining:
        raise RuntimeError(f"{remaining} of {n} instances never started: dependences form a cycle")
    return Timeline(start, free, done, queue, end + spec.launch_ns)
