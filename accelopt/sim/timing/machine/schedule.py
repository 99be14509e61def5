"""When everything happens: engines in parallel, each nearly in order, transfers over sixteen DMA
engines, ports that two engines cannot use at once. Two cores of a logical core have all of these
twice, and one HBM.

An event-driven list scheduler. Hardware engines are in order; the compiler's own reordering is a
window: an engine that waits may start a later instruction out of the next few. Of two cores, which are
compiled apart, each keeps the order that this gives it with the HBM to itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.sim.timing.compiler_constants import COMPILER_BOUNDS
from accelopt.sim.timing.machine.dependence import DependenceGraph
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.machine.transfers import RINGS, SOFTWARE, Transfer
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Operation, Queue
from accelopt.sim.timing.stream.stream import Stream


class TensorClock:
    """How fast the Tensor engine may run: from trn2 on it is held back where its use is low. Remembers the use of
    the array; tells how long the next instruction takes.

    Rapid swings of its current are what the hardware smooths: "the Tensor Engine starts at roughly 50% of
    maximum utilization and ramps to full over about the first 3 microseconds after work begins. If
    utilization drops below 50% over any 3 microsecond window, the limit re-engages" (Neuron Explorer,
    understanding throttling). Utilization is that of the array: a product over 64 rows uses half of it,
    one over a single row next to nothing. So products of few rows run at half rate however many there
    are (bmm_v1 and its bf16 probe, mamba's rows spread over partitions, `measured/trn2_kernels.csv`), and
    those of exactly half the rows stay fast for as long as what full products before them left.
    """

    def __init__(self, spec: Hardware) -> None:
        self.slowdown = 1 / spec.tensor_ramp_fraction
        self.floor = spec.tensor_ramp_use
        self.window = spec.tensor_ramp_ns
        self.wanted = self.window * (1 - self.floor)  # a window of full use lifts the limit
        self.most = self.wanted + spec.tensor_ramp_reserve_ns
        self.credit = 0.0  # ns of full use beyond what the limit asks for
        self.until = 0.0

    def run(self, begin: float, issue_ns: float, use: float) -> float:
        """When an instruction ends that starts at `begin`, takes `issue_ns` at the full rate and
        uses the part `use` of the array's rows."""
        idle = begin - self.until
        self.credit = 0.0 if idle >= self.window else max(0.0, self.credit - self.floor * idle)
        took = issue_ns if self.credit >= self.wanted else issue_ns * self.slowdown
        self.credit = min(self.most, max(0.0, self.credit + (use - self.floor) * took))
        self.until = begin + took
        return self.until


DMA, TENSOR = int(Queue.DMA), int(Queue.TENSOR)
PORTS = 2
QUEUES = len(Queue)
"""Of a core; those of the second one come after those of the first."""


@dataclass
class Timeline:
    """Start, end of occupancy and end of latency of every instance, in ns after launch, and the
    instance that it last waited for (-1: none), by result or by engine. `queue` is that of the engine
    and core: QUEUES times the core, and the `Queue`. `held_ns` is by kind of
    operation how much longer it took on a throttled Tensor engine."""

    start: list[float]
    free: list[float]
    done: list[float]
    queue: list[int]
    cause: list[int]
    latency_ns: float
    held_ns: dict[int, float] = field(default_factory=dict)


class _Hbm:
    """What the DMA engines of all cores share: the channel of colliding rows and, where there are two
    cores, the bandwidth, which transfers take in the order in which they begin. A stack's is the same
    for one core and for two (Neuron Explorer's profile schema: "For LNC1 and LNC2, the
    hbm_max_bandwidth is the same"); one core alone is limited by its DMA engines."""

    def __init__(self, spec: Hardware, cores: int) -> None:
        self.channel_free = 0.0
        self.channel_last = -1
        self.ns_per_byte = 1 / spec.hbm_bytes_per_ns if cores > 1 else 0.0
        self.free = 0.0
        self.last = -1


class _DmaEngines:
    """Sixteen engines that take transfers from several queues in turn.

    Transfers of one source line share a queue, in order; an engine serves its queues round-robin
    (nki-dma-overview), so a long row of prefetches does not hold up another tile that is wanted
    sooner. Where the compiler orders the transfers, each ring has one queue, in that order.
    """

    def __init__(self, spec: Hardware, hbm: _Hbm) -> None:
        self.free = [0.0] * spec.dma_engines
        self.hbm = hbm
        self.last = [-1] * spec.dma_engines
        self.latency = spec.dma_latency_ns
        self.queues: dict[int, list[tuple[int, int, int]]] = {}  # heaps: place, instance, ring
        self.turns: deque[int] = deque()
        self.ring_free = [0.0] * len(RINGS)  # when each can take the next transfer's descriptors

    def add(self, queue: int, place: int, instance: int, ring: int) -> None:
        """A transfer whose dependences are met; `place` orders those of its queue."""
        waiting = self.queues.setdefault(queue, [])
        if not waiting:
            self.turns.append(queue)
        heappush(waiting, (place, instance, ring))

    def next(self, now: float) -> int:
        """The queue whose turn it is: the first, or the one whose ring is free before that one's."""
        first, free = self.turns[0], self.ring_free
        if free[self.queues[first][0][2]] <= now:
            return first
        return min(self.turns, key=lambda queue: max(free[self.queues[queue][0][2]], now))

    def take(self, queue: int) -> None:
        """Removes the first transfer of a queue, which goes to the end of the line."""
        self.turns.remove(queue)
        waiting = self.queues[queue]
        heappop(waiting)
        if waiting:
            self.turns.append(queue)

    def lead_ns(self, cost: Transfer) -> float:
        """From a transfer's turn on its ring to its first byte: hardware makes descriptors within the
        latency, software before (`measured/trn2_instructions.csv`: 1.2 to 1.4 us, 1.8 to 2.0)."""
        return self.latency + (cost.issue_ns if cost.ring == SOFTWARE else 0.0)

    def backlog_ends(self, cost: Transfer) -> float:
        """When the first of the engines that a transfer needs gets free, and the HBM channel."""
        first, count = cost.first_engine, cost.engines
        if first + count <= len(self.free):
            free = min(self.free[first : first + count])
        else:
            free = min(self.free)
        return max(free, self.hbm.channel_free) if cost.conflict_ns else free

    def run(self, instance: int, cost: Transfer, now: float) -> tuple[float, int]:
        """Puts a transfer on its engines. Returns when its last byte is there, and the transfer
        that kept its slowest engine busy (-1: none did)."""
        free, each, last, hbm = self.free, cost.engine_ns, self.last, self.hbm
        if cost.issue_ns:
            self.ring_free[cost.ring] = now + cost.issue_ns
        begin = finish = now + self.lead_ns(cost)
        size = len(free)
        held_by = -1
        if hbm.ns_per_byte and (moved := cost.hbm_read + cost.hbm_write):
            wanted = range(cost.first_engine, cost.first_engine + cost.engines)
            first = min(free[number % size] for number in wanted)
            held_by = hbm.last if hbm.free > max(begin, first) else -1
            finish = hbm.free = max(hbm.free, begin, first) + moved * hbm.ns_per_byte
            hbm.last = instance
        arrived = finish
        for number in range(cost.first_engine, cost.first_engine + cost.engines):
            engine = number % size
            before = free[engine]
            after = (before if before > begin else begin) + each
            if after < arrived:
                after = arrived
            if after > finish:
                finish = after
                held_by = last[engine] if before >= begin else -1
            free[engine] = after
            last[engine] = instance
        if cost.conflict_ns:
            before = hbm.channel_free
            hbm.channel_free = (before if before > begin else begin) + cost.conflict_ns
            if hbm.channel_free > finish:
                finish = hbm.channel_free
                held_by = hbm.channel_last if before >= begin else -1
            hbm.channel_last = instance
        return finish, held_by


class _Cost(NamedTuple):
    """What an operation takes of its engine."""

    issue_ns: float
    latency_ns: float
    ports: tuple[int, ...]
    array_use: float


class _Lines(NamedTuple):
    """Who waits in which line: per instance, per line, and per kind of operation."""

    queue: list[int]  # of each instance
    ordinal: list[int]  # of each instance in its queue
    members: list[list[int]]  # instances of each queue, in its order
    issue_ns: list[float]  # of each kind
    latency_ns: list[float]
    ports: list[tuple[int, ...]]
    array_use: list[float]  # of each kind, part of the Tensor engine's rows


def _lines(
    stream: Stream,
    spec: Hardware,
    factors: Sequence[float] | None,
    wanted: list[int],
    order: list[int],
) -> _Lines:
    """The queues in program order, transfers as they are wanted, or all in a given order, and what
    each kind of operation costs."""
    queue_of = [
        int(item.form.queue) + QUEUES * stream.core_of(kind)
        for kind, item in enumerate(stream.instances)
    ]
    queue = [queue_of[kind] for kind in stream.kind]
    costs = by_form(stream.instances, lambda form: _cost(form, spec))
    scale = [1.0] * len(costs) if factors is None else factors
    ordinal = [0] * len(queue)
    members: list[list[int]] = [[] for _ in range(QUEUES * stream.cores)]
    for at in order or range(len(queue)):
        members[queue[at]].append(at)
    for q, line in enumerate(members):
        if wanted and not order and q % QUEUES == DMA:
            line.sort(key=wanted.__getitem__)
        for place, at in enumerate(line):
            ordinal[at] = place
    return _Lines(
        queue,
        ordinal,
        members,
        [cost.issue_ns * factor for cost, factor in zip(costs, scale, strict=True)],
        [cost.latency_ns * factor for cost, factor in zip(costs, scale, strict=True)],
        [
            tuple(port + PORTS * stream.core_of(kind) for port in cost.ports)
            for kind, cost in enumerate(costs)
        ],
        [cost.array_use for cost in costs],
    )


class _Machine:
    """Five queues a core and their engines, from one event to the next. What is looked at for every
    instance lies in plain lists: a large kernel has millions of them."""

    def __init__(
        self,
        stream: Stream,
        graph: DependenceGraph,
        costs: list[Transfer | None],
        spec: Hardware,
        lookahead: tuple[int, ...],
        factors: Sequence[float] | None,
        order: list[int] | None = None,
    ) -> None:
        """Two cores of which no `order` is known have an HBM each."""
        n = len(stream)
        self.kind = stream.kind
        self.costs = costs
        self.graph = graph
        cores = stream.cores
        queues = QUEUES * cores
        self.lookahead = ((1,) * QUEUES if order else lookahead) * cores
        self.hop = spec.semaphore_ns
        self.lines = _lines(stream, spec, factors, graph.wanted, order or [])
        self.order: list[int] = []  # in which everything started
        self.products = [0] * cores  # that have been issued
        self.came = 0  # transfers whose dependences have been met
        shared = _Hbm(spec, cores)
        self.dma = [_DmaEngines(spec, shared if order else _Hbm(spec, 1)) for _ in range(cores)]
        ramps = spec.tensor_ramp_fraction < 1
        self.clock = {
            core * QUEUES + TENSOR: TensorClock(spec) for core in range(cores if ramps else 0)
        }
        self.held: dict[int, float] = {}
        self.waits = list(graph.waits)
        self.ready_at = [0.0] * n
        self.cause = [-1] * n
        self.start, self.free, self.done = [0.0] * n, [0.0] * n, [0.0] * n
        self.latest = [-1] * queues  # instance that each engine started last
        self.head = [0] * queues  # first of each queue that has not started
        self.issued = [bytearray(len(line)) for line in self.lines.members]
        self.ready: list[list[int]] = [[] for _ in range(queues)]  # ordinals that may start now
        self.future: list[list[tuple[float, int]]] = [[] for _ in range(queues)]  # (time, ordinal)
        self.engine_free = [0.0] * queues
        self.port_free = [0.0] * (PORTS * cores)
        self.events: list[tuple[float, int]] = []  # (time, queue that looks again)
        self.alarms = [0.0] * queues  # when each queue looks again

    def run(self) -> Timeline:
        """Until nothing is left to start."""
        for at, waits in enumerate(self.waits):
            if waits == 0:
                self._becomes_ready(at)
        events, engine_free, lines = self.events, self.engine_free, self.lines
        while events:
            now, queue = heappop(events)
            if now < engine_free[queue]:
                continue  # a wake-up at the time it gets free is already there
            waiting, coming = self.ready[queue], self.future[queue]
            while coming and coming[0][0] <= now:
                heappush(waiting, heappop(coming)[1])
            is_dma = queue % QUEUES == DMA
            at = self._transfer(queue, now) if is_dma else self._instruction(queue, now)
            if at >= 0:
                self.order.append(at)
                self._leaves(queue, lines.ordinal[at])
                heappush(events, (self.free[at], queue))
                self._release(at)
        if len(self.order) < len(self.waits):
            raise RuntimeError(
                f"{len(self.waits) - len(self.order)} of {len(self.waits)} instances never started: "
                "dependences form a cycle"
            )
        return Timeline(
            self.start,
            self.free,
            self.done,
            lines.queue,
            self.cause,
            max(self.done, default=0.0),
            self.held,
        )

    def _transfer(self, queue: int, now: float) -> int:
        """Starts the transfer whose turn it is; -1 when there is none, or no engine for it yet."""
        dma, line, waiting = self.dma[queue // QUEUES], self.lines.members[queue], self.ready[queue]
        limit = self.head[queue] + self.lookahead[queue]
        ordered = bool(self.graph.wanted)
        while waiting and waiting[0] < limit:
            place = heappop(waiting)
            at = line[place]
            ring = self._cost_of(at).ring
            self.came += 1
            dma.add(ring if ordered else self.kind[at], place if ordered else self.came, at, ring)
        if not dma.turns:
            return -1
        turn = dma.next(now)
        at = dma.queues[turn][0][1]
        cost = self._cost_of(at)
        allowed = dma.backlog_ends(cost) - dma.lead_ns(cost)
        if cost.issue_ns:
            allowed = max(allowed, dma.ring_free[cost.ring])
        if allowed > now:
            self._look_again(queue, now, allowed)
            return -1
        dma.take(turn)
        complete, held_by = dma.run(at, cost, now)
        if held_by < 0 and self.ready_at[at] < now:  # it waited for its turn
            held_by = self.latest[queue]
        if held_by >= 0:
            self.cause[at] = held_by
        self.latest[queue] = at
        self.start[at] = self.free[at] = now
        self.done[at] = complete
        return at

    def _cost_of(self, transfer: int) -> Transfer:
        cost = self.costs[transfer]
        assert cost is not None
        return cost

    def _instruction(self, queue: int, now: float) -> int:
        """Starts the first instruction in an engine's window that can; -1 when none can."""
        waiting = self.ready[queue]
        if not waiting or waiting[0] >= self.head[queue] + self.lookahead[queue]:
            coming = self.future[queue]
            if coming:
                self._look_again(queue, now, coming[0][0])
            return -1
        lines, port_free = self.lines, self.port_free
        at = lines.members[queue][heappop(waiting)]
        kind = self.kind[at]
        begin = now
        for port in lines.ports[kind]:
            if port_free[port] > begin:
                begin = port_free[port]
        until = begin + lines.issue_ns[kind]
        if queue in self.clock:
            full = until
            until = self.clock[queue].run(begin, lines.issue_ns[kind], lines.array_use[kind])
            if until > full:
                self.held[kind] = self.held.get(kind, 0.0) + until - full
        for port in lines.ports[kind]:
            port_free[port] = until
        if self.ready_at[at] < self.engine_free[queue] and self.latest[queue] >= 0:
            self.cause[at] = self.latest[queue]
        self.engine_free[queue] = until
        self.latest[queue] = at
        self.start[at], self.free[at] = begin, until
        self.done[at] = until + lines.latency_ns[kind]
        return at

    def _look_again(self, queue: int, now: float, moment: float) -> None:
        """Wakes a queue at `moment`, unless it will be awake by then. Where instructions take no time
        nothing else keeps the same wake-up from being asked for again and again."""
        if not now < self.alarms[queue] <= moment:
            self.alarms[queue] = moment
            heappush(self.events, (moment, queue))

    def _leaves(self, queue: int, place: int) -> None:
        """Moves the window on past all that has started."""
        flags = self.issued[queue]
        flags[place] = 1
        if place == self.head[queue]:
            end = flags.find(0, place)
            self.head[queue] = end if end >= 0 else len(flags)

    def _release(self, at: int) -> None:
        """Tells those who wait for an instance's result, for its start or for its being issued."""
        self._let_go(at, self.graph.successors[at], self.done[at] + self.hop)
        if at in self.graph.followers:
            self._let_go(at, self.graph.followers[at], self.start[at])
        if at in self.graph.behind:
            self._let_go(at, self.graph.behind[at], self.free[at])
        core, queue = divmod(self.lines.queue[at], QUEUES)
        if queue == TENSOR:
            self.products[core] += 1
            self._let_go(at, self.graph.after.get((core, self.products[core]), ()), self.free[at])

    def _let_go(self, at: int, others: Sequence[int], moment: float) -> None:
        waits, ready_at = self.waits, self.ready_at
        for other in others:
            waits[other] -= 1
            if ready_at[other] < moment:
                ready_at[other] = moment
                self.cause[other] = at
            if waits[other] == 0:
                self._becomes_ready(other)

    def _becomes_ready(self, at: int) -> None:
        queue, moment = self.lines.queue[at], self.ready_at[at]
        heappush(self.future[queue], (moment, self.lines.ordinal[at]))
        heappush(self.events, (max(moment, self.engine_free[queue]), queue))


def schedule(
    stream: Stream,
    graph: DependenceGraph,
    costs: list[Transfer | None],
    spec: Hardware,
    lookahead: tuple[int, ...] = COMPILER_BOUNDS.lookahead,
    factors: Sequence[float] | None = None,
) -> Timeline:
    """Runs the stream on the machine. `factors` makes instructions of each kind (an index into
    `stream.instances`) take another time; what transfers take is in `costs`."""
    machine = _Machine(stream, graph, costs, spec, lookahead, factors)
    timeline = machine.run()
    if stream.cores > 1:
        order = machine.order
        timeline = _Machine(stream, graph, costs, spec, lookahead, factors, order).run()
    return replace(timeline, latency_ns=timeline.latency_ns + spec.launch_ns)


def depends_on(stream: Stream, costs: list[Transfer | None], spec: Hardware) -> tuple[object, ...]:
    """All of a machine that the time of a stream depends on but the launch: on machines that have the
    same of it, `schedule` finds the same."""
    ramp = (
        spec.tensor_ramp_fraction,
        spec.tensor_ramp_ns,
        spec.tensor_ramp_use,
        spec.tensor_ramp_reserve_ns,
    )
    throttled = any(item.form.queue is Queue.TENSOR for item in stream.instances)
    prices = by_form(stream.instances, lambda form: _cost(form, spec))
    hbm = spec.hbm_bytes_per_ns if stream.cores > 1 else 0.0
    return prices, costs, spec.semaphore_ns, spec.dma_latency_ns, ramp if throttled else (), hbm


def _cost(form: Operation, spec: Hardware) -> _Cost:
    """Time, and the shared memory ports that an operation takes."""
    one = price(form, spec)
    return _Cost(one.issue_ns, one.latency_ns, memory_ports(form, spec), one.array_use)


def memory_ports(form: Operation, spec: Hardware) -> tuple[int, ...]:
    """The memory ports that an operation takes, each of two engines: 0 is SBUF's for VectorE and GpSimd,
    1 is PSUM's for VectorE and ScalarE (arch guide)."""
    one, queue = price(form, spec), form.queue
    ports: tuple[int, ...] = ()
    if spec.vector_gpsimd_exclusive and one.touches_sbuf:
        ports += (0,) if queue in (Queue.VECTOR, Queue.GPSIMD) else ()
    if spec.vector_scalar_psum_exclusive and one.touches_psum:
        ports += (1,) if queue in (Queue.VECTOR, Queue.SCALAR) else ()
    return ports
