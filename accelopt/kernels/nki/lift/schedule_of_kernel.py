"""The schedule that a kernel has: of all schedules of its algorithm, the one that keeps the engines
and the memory as busy as the kernel does."""

from __future__ import annotations

import math
from collections.abc import Mapping

from accelopt.kernels.nki.counters import busy_shares
from accelopt.kernels.nki.lift.emission.graph import Graph, NotLowered
from accelopt.kernels.nki.lift.emission.nest import Price
from accelopt.kernels.nki.lift.lowering import Interface, lower
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.search import Times, commonest, neighbours, schedules

MOST_COMPARED = 250
MOST_TIMED = 6
NEGLIGIBLE = 0.02
"""Of a kernel's time: an engine that is busy for less tells nothing of its schedule."""


def own_schedule(
    metrics: Mapping[str, float],
    graph: Graph,
    interface: Interface = Interface(),  # noqa: B008  (immutable)
    target: str = "trn1",
    times: Times | None = None,
) -> Schedule:
    """The schedule by which a kernel goes about what it computes: that whose closed form has the
    kernel's bytes from and to HBM and its engines' busy times, as nearly as one can. `metrics` are
    its counters with its `latency` in milliseconds. With `times`, of several that are about as near
    the one is taken whose predicted time is the kernel's. Raises NotLowered where the algorithm has no
    kernel by schedule."""
    wanted = _measured(metrics)
    seen: dict[Schedule, float] = {}
    reasons: dict[str, int] = {}
    kernels: dict[str, tuple[Schedule, str]] = {}

    def distance(schedule: Schedule) -> float:
        if schedule not in seen:
            try:
                lowered = lower(graph, schedule, interface, target)
                seen[schedule] = _distance(wanted, lowered.price)
                kernels.setdefault(lowered.source, (schedule, lowered.source))
            except (NotLowered, ResourceShort) as refusal:
                seen[schedule] = math.inf
                reasons[str(refusal)] = reasons.get(str(refusal), 0) + 1
        return seen[schedule]

    best = min(schedules(graph, reasons), key=distance, default=None)
    if best is None or distance(best) == math.inf:
        raise NotLowered(commonest(reasons))
    while len(seen) < MOST_COMPARED:
        nearer = min(neighbours(graph, best), key=distance, default=best)
        if distance(nearer) >= distance(best):
            break
        best = nearer
    if times is None:
        return best
    near = sorted(kernels.values(), key=lambda pair: seen[pair[0]])[:MOST_TIMED]
    latency = metrics["latency"]
    taken = times([source for _, source in near])
    return min(zip(near, taken, strict=True), key=lambda pair: abs(math.log(pair[1] / latency)))[0][
        0
    ]


def _measured(metrics: Mapping[str, float]) -> dict[str, float]:
    """Bytes moved and the busy milliseconds of the engines that matter."""
    shares, latency = busy_shares(metrics), metrics["latency"]
    busy = {name: share * latency for name, share in shares.items() if share > NEGLIGIBLE}
    return {**busy, "moved": metrics["hbm_read_bytes"] + metrics["hbm_write_bytes"]}


def _distance(wanted: Mapping[str, float], price: Price) -> float:
    """How far apart two kernels are: by which factor they differ in what they keep busy, those
    that are busy longest weighing most."""
    given = {**price.engines, "moved": float(price.moved)}
    longest = max(value for name, value in wanted.items() if name != "moved")
    total = 0.0
    for name, value in wanted.items():
        weight = 1.0 if name == "moved" else value / longest
        total += weight * abs(math.log(max(given.get(name, 0.0), 1e-9) / value))
    return total
