"""What a kernel would take if one thing were different: the same instructions scheduled once more.

Each answer is the latency of the whole kernel, so it counts what then limits instead; no sum of
busy times does. The answers say where the time is, not that a kernel of that speed exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.timing.machine.schedule import schedule
from accelopt.sim.timing.machine.transfers import RINGS, Transfer
from accelopt.sim.timing.profile import KernelProfile, profile
from accelopt.sim.timing.stream.operation import QUEUE_NAMES, Operation, Queue

Subject = Literal[
    "engine",
    "loads",
    "stores",
    "line",
    "lanes",
    "overheads",
    "overlap",
    "buffers",
    "sbuf",
    "descriptors",
]

TRANSFERS = {"loads": False, "stores": True}
"""DMA by direction: whether it stores."""
MOST_LINES = 3
BUSY = 0.02  # an engine that works for less of the time is not asked about
LONG = 100_000
"""Instances beyond which only the three busiest engines and the memory are asked about: each
question takes as long as scheduling the kernel."""


@dataclass(frozen=True)
class WhatIf:
    """The kernel's latency in ms if `subject` (an engine's `name`, a source line) took no time, half
    of its time, or were twice as large, as `question` says in words."""

    subject: Subject
    question: str
    latency_ms: float
    name: str = ""
    source: SourceLine = NOWHERE


def what_ifs(found: KernelProfile, lines: int = MOST_LINES) -> tuple[WhatIf, ...]:
    """Engine by engine, loads and stores, the costliest lines, fixed costs, SBUF."""
    asked: list[WhatIf] = []
    with collector_paused():
        asked += without_engines(found)
        if len(found.run.stream) > LONG:
            return tuple(asked)
        asked += _transfers(found)
        for line in found.lines[:lines]:
            question = f"line {line.source.line} takes half as long"
            asked.append(WhatIf("line", question, _halved(found, line.source), source=line.source))
        if any(_filled(found, item.operation) < 1 for item in found.run.stream.instances):
            question = "instructions on few partitions were merged until they fill all of them"
            asked.append(WhatIf("lanes", question, scaled(found, partial(_filled, found))))
        asked.append(WhatIf("overheads", "instructions have no fixed costs", _bare(found)))
        asked.append(WhatIf("overlap", "nothing waits for anything else", overlapped(found)))
        if any(issued_in_turn(item.operation, found) for item in found.run.stream.instances):
            question = "descriptors of transfers at known addresses were made before the run"
            asked.append(WhatIf("descriptors", question, _made_before(found)))
        passes = {decision.pass_name for decision in found.decisions}
        if "rotate_buffers" in passes:
            question = "tiles have as many buffers as SBUF holds"
            asked.append(WhatIf("buffers", question, _freer(found)))
        if found.spills or passes & {"fit_sbuf", "rotate_buffers"}:
            asked.append(WhatIf("sbuf", "SBUF is twice as large", _roomier(found)))
    return tuple(asked)


def without_engines(found: KernelProfile) -> list[WhatIf]:
    """Each engine that works at all, the busiest first; of a long kernel the three busiest."""
    most = 3 if len(found.run.stream) > LONG else len(found.occupancy)
    asked = []
    for name, share in sorted(found.occupancy.items(), key=lambda item: -item[1])[:most]:
        if share >= BUSY:
            question = "DMA takes no time" if name == "dma" else f"{name} engine takes no time"
            asked.append(WhatIf("engine", question, with_changes(found, [(name, 0.0)]), name))
    return asked


def overlapped(found: KernelProfile) -> float:
    """The latency in ms if nothing waited for anything: the busiest engine's work, and the launch."""
    busiest = max(max(one.values()) for one in found.occupancy_by_core) * found.latency_ms
    return busiest + found.run.spec.launch_ns * 1e-6


def with_changes(
    found: KernelProfile, changes: Sequence[tuple[frozenset[int] | str, float]]
) -> float:
    """The latency in ms if instructions took other times, all changes at once: each is a set of source
    lines, an engine (one of `QUEUE_NAMES`), `loads` or `stores`, and the factor of its time."""

    def factor(operation: Operation) -> float:
        return math.prod(part for subject, part in changes if _concerns(subject, operation))

    return scaled(found, factor)


def _concerns(subject: frozenset[int] | str, operation: Operation) -> bool:
    if not isinstance(subject, str):
        return operation.source.line in subject
    if subject in TRANSFERS:
        return operation.is_dma and operation.is_store == TRANSFERS[subject]
    return QUEUE_NAMES[operation.queue] == subject


def _transfers(found: KernelProfile) -> list[WhatIf]:
    """Loads and stores apart, where there are both."""
    return [
        WhatIf("loads", "loads take no time", with_changes(found, [("loads", 0.0)])),
        WhatIf("stores", "stores take no time", with_changes(found, [("stores", 0.0)])),
    ]


def on_engine(found: KernelProfile, chosen: frozenset[Operation], queue: Queue) -> float:
    """The latency in ms where another engine does the chosen operations, at its own prices."""
    run = found.run

    def there(operation: Operation) -> Operation:
        return replace(operation, queue=queue)

    instances = [
        item._replace(operation=there(item.operation), form=there(item.form))
        if item.operation in chosen
        else item
        for item in run.stream.instances
    ]
    stream = replace(run.stream, instances=instances)
    lookahead = run.compiler.bounds.lookahead
    return schedule(stream, run.graph, run.costs, run.spec, lookahead).latency_ns * 1e-6


def scaled(found: KernelProfile, factor: Callable[[Operation], float]) -> float:
    """The latency in ms where each operation takes `factor` of its time."""
    run = found.run
    factors = [factor(item.operation) for item in run.stream.instances]
    costs: list[Transfer | None] = [
        cost._replace(
            engine_ns=cost.engine_ns * part,
            issue_ns=cost.issue_ns * part,
            conflict_ns=cost.conflict_ns * part,
            hbm_read=round(cost.hbm_read * part),
            hbm_write=round(cost.hbm_write * part),
        )
        if cost is not None and (part := factors[kind]) != 1.0
        else cost
        for kind, cost in zip(run.stream.kind, run.costs, strict=True)
    ]
    lookahead = run.compiler.bounds.lookahead
    timeline = schedule(run.stream, run.graph, costs, run.spec, lookahead, factors)
    return timeline.latency_ns * 1e-6


def _halved(found: KernelProfile, source: SourceLine) -> float:
    return scaled(found, lambda operation: 0.5 if operation.source == source else 1.0)


def _filled(found: KernelProfile, operation: Operation) -> float:
    """The part of the partitions that an operation uses."""
    most = found.run.spec.partitions
    return max((access.partitions for access in operation.accesses), default=most) / most


def _bare(found: KernelProfile) -> float:
    """Without what every instruction and transfer costs whatever its size: what wider ones save at
    most."""
    run = found.run
    bare = replace(
        run.spec,
        minimum_issue_cycles=0,
        dynamic_issue_cycles=0,
        access_cycles=0.0,
        vector_access_cycles=0.0,
        engine_latency_ns=0.0,
        semaphore_ns=0.0,
        gpsimd_start_cycles=0.0,
        matmul_pass_overhead_cycles=0.0,
        minimum_matmul_cycles=0.0,
        dma_latency_ns=0.0,
    )
    lookahead = run.compiler.bounds.lookahead
    return schedule(run.stream, run.graph, run.costs, bare, lookahead).latency_ns * 1e-6


def issued_in_turn(operation: Operation, found: KernelProfile) -> bool:
    """Whether a transfer's descriptors are made during the run, one transfer after the other, though its addresses
    are known before."""
    if not operation.is_dma or operation.instruction is None:
        return False
    made = operation.attributes.get("descriptors") or found.run.compiler.bounds.descriptors
    known = not any(access.indirect for access in operation.accesses)
    return made != RINGS[0] and known


def _made_before(found: KernelProfile) -> float:
    """Transfers whose addresses are known do not wait for a ring."""
    run = found.run
    free = [issued_in_turn(item.operation, found) for item in run.stream.instances]
    costs = [
        cost._replace(ring=0, issue_ns=0.0) if cost is not None and free[kind] else cost
        for kind, cost in zip(run.stream.kind, run.costs, strict=True)
    ]
    lookahead = run.compiler.bounds.lookahead
    return schedule(run.stream, run.graph, costs, run.spec, lookahead).latency_ns * 1e-6


def _freer(found: KernelProfile) -> float:
    """Loads run ahead as far as there is room, not as far as a declaration's few buffers let them."""
    run = found.run
    return profile(run.program, run.spec, run.compiler.less("rotate_buffers")).latency_ms


def _roomier(found: KernelProfile) -> float:
    """All decisions again, in twice the SBUF."""
    run = found.run
    spec = replace(run.spec, sbuf_partition_bytes=2 * run.spec.sbuf_partition_bytes)
    return profile(run.program, spec, run.compiler).latency_ms
