"""When each engine begins and ends its work, and when it stands still in between, for whom."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from accelopt.sim.errors import SourceLine
from accelopt.sim.timing.machine.schedule import QUEUES, memory_ports
from accelopt.sim.timing.profile import KernelProfile
from accelopt.sim.timing.stream.operation import QUEUE_NAMES, Queue

LONGEST = 5


class Gap(NamedTuple):
    """A time between `start_ms` and `end_ms` (after the launch) in which an engine does nothing, until
    an instruction of `source` begins. That waited for one of the line `behind` on `engine`: for its
    result, for a place on the chip that it still used, for the `port` of memory that both engines have, or (a
    transfer) for its being issued: it is `timed` to be there when a product wants it. `waited` is unknown
    where none of these held it."""

    start_ms: float
    end_ms: float
    source: SourceLine
    waited: Literal["result", "place", "port", "timed", "unknown"] = "unknown"
    behind: SourceLine | None = None
    engine: str = ""

    @property
    def ms(self) -> float:
        """How long it is."""
        return self.end_ms - self.start_ms


class EngineActivity(NamedTuple):
    """An engine of a core (DMA: all its queues) from its first instruction to its last, in ms after the
    launch; how much of that it works, and the longest of its `gaps`."""

    core: int
    name: str
    first_ms: float
    last_ms: float
    busy_ms: float
    gaps: int
    longest: tuple[Gap, ...]


def engine_activity(found: KernelProfile, longest: int = LONGEST) -> tuple[EngineActivity, ...]:
    """The engines that do anything, core by core."""
    timeline = found.run.timeline
    start, done = np.asarray(timeline.start), np.asarray(timeline.done)
    queues = np.asarray(timeline.queue)
    told = []
    for core in range(found.run.stream.cores):
        for queue in Queue:
            own = np.flatnonzero(queues == QUEUES * core + queue)
            if not own.size:
                continue
            own = own[np.argsort(start[own], kind="stable")]
            until = np.maximum.accumulate(done[own])
            at = np.flatnonzero(start[own][1:] > until[:-1])
            lengths = start[own][at + 1] - until[at]
            most = at[np.argsort(-lengths.round(3), kind="stable")[:longest]]
            gaps = tuple(_gap(found, float(until[n]), int(own[n + 1])) for n in most)
            first, last = float(start[own[0]]), float(until[-1])
            busy = last - first - float(lengths.sum())
            told.append(
                EngineActivity(
                    core, QUEUE_NAMES[queue], first * 1e-6, last * 1e-6, busy * 1e-6, at.size, gaps
                )
            )
    return tuple(told)


def _gap(found: KernelProfile, since: float, at: int) -> Gap:
    """The gap from `since` (ns) until the instance `at` begins."""
    stream, timeline = found.run.stream, found.run.timeline

    def source(instance: int) -> SourceLine:
        return stream.instances[stream.kind[instance]].operation.source

    gap = Gap(since * 1e-6, timeline.start[at] * 1e-6, source(at))
    done = np.asarray(timeline.done)
    ended = np.flatnonzero((since <= done) & (done <= timeline.start[at]))
    ended = ended[np.argsort(done[ended], kind="stable")].tolist()
    successors = found.run.graph.successors
    cause = next((one for one in reversed(ended) if at in successors[one]), -1)
    waited: Literal["result", "place", "port", "timed"] = "timed"
    if cause >= 0:
        result = not {*stream.writes[cause]}.isdisjoint(stream.reads[at])
        waited = "result" if result else "place"
    elif any(at in timed for timed in found.run.graph.after.values()):
        cause = timeline.cause[at]
    if (holder := _at_its_port(found, at)) >= 0:
        cause, waited = holder, "port"
    if cause < 0:
        return gap
    engine = QUEUE_NAMES[timeline.queue[cause] % QUEUES]
    return gap._replace(waited=waited, behind=source(cause), engine=engine)


def _at_its_port(found: KernelProfile, at: int) -> int:
    """The instance that had a port of memory until the instance `at` took it; -1 for none."""
    stream, timeline, spec = found.run.stream, found.run.timeline, found.run.spec

    def ports(instance: int) -> set[int]:
        return {*memory_ports(stream.instances[stream.kind[instance]].form, spec)}

    wanted, core = ports(at), timeline.queue[at] // QUEUES
    before = np.flatnonzero(np.asarray(timeline.free) == timeline.start[at]) if wanted else ()
    for one in map(int, before):
        other = timeline.queue[one]
        if other // QUEUES == core and other != timeline.queue[at] and ports(one) & wanted:
            return one
    return -1
