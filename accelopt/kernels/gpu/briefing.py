"""What is known of a solution on a GPU, in words, for whoever plans the next step: one text from its
diagnosis, the roofline, and its knobs."""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.evaluation import Bottleneck, Diagnosis
from accelopt.kernels.moves import what_it_does
from accelopt.knob_space import Space

RESOURCES = {
    "gmem": "memory",
    "compute": "arithmetic",
    "sfu": "special functions",
    "overlap": "waiting",
}
NEAR = 0.9  # of the least time: what is left is not worth a change of structure
MOST_METHODS = 4  # that are told of the first resource


def briefing(latency: float, found: Diagnosis | None, space: Space | None, language: str) -> str:
    """What limits a solution that takes `latency` milliseconds; empty where nothing is known of it."""
    if found is None or not found.bottlenecks:
        return ""
    return "\n".join(_rows(latency, found, space, language))


def _rows(latency: float, found: Diagnosis, space: Space | None, language: str) -> Iterator[str]:
    first = found.bottlenecks[0]
    yield f"By {found.origin}, {RESOURCES[first.resource]} limits it. The resources, the busiest first:"
    for one in found.bottlenecks:
        yield f"- {RESOURCES[one.resource]}, {one.share:.0%} of the time: {one.reason}"
    reached = found.fraction_of_peak
    if reached is not None:
        left = latency * (1 - reached)
        much = "only" if reached >= NEAR else ""
        yield f"Between {latency:.4g} ms and the least possible lie {much} {left:.3g} ms.".replace(
            "  ", " "
        )
    yield from (f"Note: {note}." for note in found.notes)
    sizes = [
        f"{found.registers} registers a thread" if found.registers is not None else "",
        f"{found.shared_bytes:,} B of shared memory a block" if found.shared_bytes else "",
        f"{found.occupancy:.0%} of the warps that a multiprocessor can hold"
        if found.occupancy is not None
        else "",
    ]
    if any(sizes):
        yield f"It uses {', '.join(filter(None, sizes))}."
    if space is not None:
        values = ", ".join(f"{name}={value}" for name, value in space.default.items())
        yield f"Its settings, which rules can change too: {values}."
    yield from _remedies(first, language)


def _remedies(first: Bottleneck, language: str) -> Iterator[str]:
    """What may relieve the first resource, in the sentences of the rules that do so."""
    named = [name for name in first.methods if name != "schedule" and not name.startswith("set_")]
    if named:
        yield f"What may relieve {RESOURCES[first.resource]}:"
    for name in named[:MOST_METHODS]:
        yield f"- {name}: {what_it_does(name, language)}"
