"""When everything happens: engines in parallel, each nearly in order, transfers over sixteen DMA
engines, ports that two engines cannot use at once.

An event-driven list scheduler. Hardware engines are in order; the compiler's own reordering is a
window: an engine that waits may start a later instruction out of the next few.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from accelopt.sim.spec import Spec
from accelopt.sim.timing.cells import Stream
from accelopt.sim.timing.dependence import Graph
from accelopt.sim.timing.operation import Queue
from accelopt.sim.timing.transfers import Transfer

WINDOWS = (16, 5, 5, 8, 64)
"""Instructions that each queue looks ahead: tensor, vector, scalar, gpsimd, DMA. Fitted on gqa,
adamw and add_rmsnorm_matmul (NKIBench): 4 is too few for adamw (+15%), 8 too many for gqa (-10%)."""

DMA = int(Queue.DMA)


@dataclass
class Timeline:
    """Start, end of occupancy and end of latency of every instance, in ns after launch, and the
    instance that it last waited for (-1: none), by result or by engine."""

    start: list[float]
    free: list[float]
    done: list[float]
    queue: list[int]
    cause: list[int]
    latency_ns: float


class _DmaEngines:
    """Sixteen engines that take transfers from several queues in turn.

    Transfers of one source line share a queue, in order; an engine serves its queues round-robin
    (nki-dma-overview), so a long row of prefetches does not hold up another tile that is wanted
    sooner.
    """

    def __init__(self, spec: Spec) -> None:
        self.free = [0.0] * spec.dma_engines
        self.channel_free = 0.0  # of the HBM channel that colliding rows share
        self.channel_last = -1
        self.last = [-1] * spec.dma_engines
        self.latency = spec.dma_latency_ns
        self.queues: dict[int, deque[int]] = {}
        self.turns: deque[int] = deque()

    def add(self, kind: int, instance: int) -> None:
        """A transfer whose dependences are met."""
        waiting = self.queues.get(kind)
        if waiting is None:
            waiting = self.queues[kind] = deque()
        if not waiting:
            self.turns.append(kind)
        waiting.append(instance)

    def next(self) -> int:
        """The transfer whose turn it is."""
        return self.queues[self.turns[0]][0]

    def take(self) -> None:
        """Removes it; its queue goes to the end of the line."""
        kind = self.turns.popleft()
        waiting = self.queues[kind]
        waiting.popleft()
        if waiting:
            self.turns.append(kind)

    def backlog_ends(self, cost: Transfer) -> float:
        """When the first of the engines that a transfer needs gets free, and the HBM channel."""
        first, count = cost.first_engine, cost.engines
        if first + count <= len(self.free):
            free = min(self.free[first : first + count])
        else:
            free = min(self.free)
        return max(free, self.channel_free) if cost.conflict_ns else free

    def run(self, instance: int, cost: Transfer, now: float) -> tuple[float, int]:
        """Puts a transfer on its engines. Returns when its last byte is there, and the transfer
        that kept its slowest engine busy (-1: none did)."""
        free, each, last = self.free, cost.engine_ns, self.last
        begin = finish = now + self.latency
        size = len(free)
        held_by = -1
        for number in range(cost.first_engine, cost.first_engine + cost.engines):
            engine = number % size
            before = free[engine]
            after = (before if before > begin else begin) + each
            if after > finish:
                finish = after
                held_by = last[engine] if before >= begin else -1
            free[engine] = after
            last[engine] = instance
        if cost.conflict_ns:
            before = self.channel_free
            self.channel_free = (before if before > begin else begin) + cost.conflict_ns
            if self.channel_free > finish:
                finish = self.channel_free
                held_by = self.channel_last if before >= begin else -1
            self.channel_last = instance
        return finish, held_by


class _Lines(NamedTuple):
    """Who waits in which line: per instance, per line, and per kind of operation."""

    queue: list[int]  # of each instance
    ordinal: list[int]  # of each instance in its queue
    members: list[list[int]]  # instances of each queue, in program order
    issue_ns: list[float]  # of each kind
    latency_ns: list[float]
    ports: list[tuple[int, ...]]


def _lines(stream: Stream, spec: Spec) -> _Lines:
    """The queues in program order, and what each kind of operation costs."""
    operations = [item.operation for item in stream.instances]
    queue_of = [int(operation.queue) for operation in operations]
    queue = [queue_of[kind] for kind in stream.kind]
    ordinal = [0] * len(queue)
    members: list[list[int]] = [[] for _ in range(5)]
    for at, q in enumerate(queue):
        ordinal[at] = len(members[q])
        members[q].append(at)
    return _Lines(
        queue,
        ordinal,
        members,
        [operation.issue_ns for operation in operations],
        [operation.latency_ns for operation in operations],
        [_port(o.queue, o.touches_sbuf, o.touches_psum, spec) for o in operations],
    )


def schedule(
    stream: Stream,
    graph: Graph,
    costs: list[Transfer | None],
    spec: Spec,
    windows: tuple[int, ...] = WINDOWS,
) -> Timeline:
    """Runs the stream on the machine. One loop over events, kept in local variables: it is what a
    large kernel spends its time in."""
    n = len(stream)
    kind = stream.kind
    queue, ordinal, members, issue_of, latency_of, ports = _lines(stream, spec)
    waits = list(graph.waits)
    ready_at = [0.0] * n
    cause = [-1] * n
    latest = [-1] * 5
    start, free, done = [0.0] * n, [0.0] * n, [0.0] * n
    head = [0] * 5
    issued = [bytearray(len(line)) for line in members]
    ready: list[list[int]] = [[] for _ in range(5)]  # ordinals that may start now
    future: list[list[tuple[float, int]]] = [[] for _ in range(5)]  # (time, ordinal)
    engine_free = [0.0] * 5
    port_free = [0.0, 0.0, 0.0, 0.0]
    dma = _DmaEngines(spec)
    hop, ahead = spec.semaphore_ns, spec.dma_latency_ns
    events: list[tuple[float, int]] = []
    for at in range(n):
        if waits[at] == 0:
            heappush(future[queue[at]], (0.0, ordinal[at]))
    for q in range(5):
        if future[q]:
            heappush(events, (0.0, q))
    successors, followers = graph.successors, graph.followers
    end = alarm = 0.0
    remaining = n
    while events:
        now, q = heappop(events)
        if now < engine_free[q]:
            continue  # a wake-up at the time it gets free is already there
        line, waiting, coming = members[q], ready[q], future[q]
        while coming and coming[0][0] <= now:
            heappush(waiting, heappop(coming)[1])
        limit = head[q] + windows[q]
        if q == DMA:
            while waiting and waiting[0] < limit:
                at = line[heappop(waiting)]
                dma.add(kind[at], at)
            if not dma.turns:
                continue
            at = dma.next()
            cost = costs[at]
            assert cost is not None
            allowed = dma.backlog_ends(cost) - ahead
            if allowed > now:
                if not now < alarm <= allowed:
                    alarm = allowed
                    heappush(events, (allowed, q))
                continue
            dma.take()
            begin = until = now
            complete, held_by = dma.run(at, cost, now)
            if held_by >= 0:
                cause[at] = held_by
        else:
            if not waiting or waiting[0] >= limit:
                if coming:
                    heappush(events, (coming[0][0], q))
                continue
            at = line[heappop(waiting)]
            k = kind[at]
            begin = now
            start_allowed = engine_free[q]
            port = ports[k]
            for number in port:
                if port_free[number] > begin:
                    begin = port_free[number]
            until = begin + issue_of[k]
            complete = until + latency_of[k]
            for number in port:
                port_free[number] = until
            engine_free[q] = until
            if ready_at[at] < start_allowed and latest[q] >= 0:
                cause[at] = latest[q]
            latest[q] = at
        place = ordinal[at]
        flags = issued[q]
        flags[place] = 1
        if place == head[q]:
            h = place
            while h < len(flags) and flags[h]:
                h += 1
            head[q] = h
        start[at], free[at], done[at] = begin, until, complete
        if complete > end:
            end = complete
        remaining -= 1
        heappush(events, (until, q))
        moment = complete + hop
        for other in successors[at]:
            waits[other] -= 1
            if ready_at[other] < moment:
                ready_at[other] = moment
                cause[other] = at
            if waits[other] == 0:
                other_queue = queue[other]
                at_time = ready_at[other]
                heappush(future[other_queue], (at_time, ordinal[other]))
                if at_time < engine_free[other_queue]:
                    at_time = engine_free[other_queue]
                heappush(events, (at_time, other_queue))
        for other in followers[at]:
            waits[other] -= 1
            if ready_at[other] < begin:
                ready_at[other] = begin
                cause[other] = at
            if waits[other] == 0:
                heappush(future[queue[other]], (ready_at[other], ordinal[other]))
                heappush(events, (max(ready_at[other], engine_free[queue[other]]), queue[other]))
    if remaining:
        raise RuntimeError(f"{remaining} of {n} instances never started: dependences form a cycle")
    return Timeline(start, free, done, queue, cause, end + spec.launch_ns)


def _port(queue: Queue, touches_sbuf: bool, touches_psum: bool, spec: Spec) -> tuple[int, ...]:
    """The shared memory ports that an operation takes: 0 is SBUF's for VectorE and GpSimd, 1 is
    PSUM's for VectorE and ScalarE (arch guide)."""
    ports: tuple[int, ...] = ()
    if spec.vector_gpsimd_exclusive and touches_sbuf and queue in (Queue.VECTOR, Queue.GPSIMD):
        ports += (0,)
    if spec.vector_scalar_psum_exclusive and touches_psum and queue in (Queue.VECTOR, Queue.SCALAR):
        ports += (1,)
    return ports
