"""Transfers that do not run on from one round of a loop to the next.

Where the rounds of an outermost loop are no multiple of a number (`whole_rounds`), every round shows
the latency of a transfer once, as if the engines ran dry between two rounds. Seven chunk lengths of
adamw on trn2 show it (76 to 342 rounds: five of them lose 0.80 to 0.86 us a round, whether its rows
have 3 or 9 KiB, one 0.54, one 0.16), seven others and silu's seven do not (all multiples of 16;
measured/trn2_kernels.csv). Documents say nothing of it: the number is what those kernels have in common.
"""

from __future__ import annotations

from accelopt.hardware import Hardware
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions
from accelopt.sim.timing.stream.stream import Stream


def first_of_rounds(stream: Stream, bounds: CompilerBounds, decisions: Decisions) -> frozenset[int]:
    """The loads that begin a round for which nothing was fetched ahead."""
    loads = by_form(stream.instances, lambda form: form.is_dma and not form.is_store)
    drains = [
        load and bool(item.loops) and item.loops[0].variable.trips % bounds.whole_rounds > 0
        for load, item in zip(loads, stream.instances, strict=True)
    ]
    first: dict[tuple[int, int], int] = {}
    for at, kind in enumerate(stream.kind):
        if drains[kind]:
            item = stream.instances[kind]
            loop, row = item.loops[0], item.iterations[stream.row[at]]
            first.setdefault((id(loop), int(row[0])), at)
    kinds = [stream.kind[at] for at in first.values()]
    stream.tell(decisions, "the next round's transfers wait for this one's", kinds)
    return frozenset(first.values())


def with_latency(
    costs: list[Transfer | None], first: frozenset[int], spec: Hardware
) -> list[Transfer | None]:
    """The transfers, those that begin a round with the latency that nothing hides."""
    shown = spec.dma_latency_ns + spec.semaphore_ns
    return [
        cost._replace(engine_ns=cost.engine_ns + shown) if cost and at in first else cost
        for at, cost in enumerate(costs)
    ]
