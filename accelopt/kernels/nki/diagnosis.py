"""What limits an NKI kernel, as data: resources by what the kernel would gain if they took no time, why,
and the lines and methods that matter for each.

The gains come from scheduling the kernel again without one engine. That takes a third to a half of the
time of the profile itself (NKIBench: 0.02 to 0.65 s), and tells apart what is busy from what is waited
for: of silu DMA is busiest, and the Vector engine holds it up more.

One function for everybody who asks: `accelopt profile` prints it, strategies rank actions by it,
prompts quote it.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.evaluation import Bottleneck, CostlyLine, Diagnosis, Profile
from accelopt.hardware.front_ends import simulated_on
from accelopt.kernels.moves import methods_that_touch
from accelopt.kernels.nki.counters import busy_shares
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.timing import KernelProfile, LineCost, Spills
from accelopt.sim.timing.what_if import overlapped, without_engines

PROFILER = "neuron-profile"
CATEGORIES = {
    "dma": "memory",
    "tensor": "compute",
    "vector": "compute",
    "scalar": "compute",
    "gpsimd": "compute",
    "sync": "latency",
    "overlap": "latency",
}
NEGLIGIBLE = 0.005  # of the time: a resource that works less limits nothing
MOST_LINES = 12
MOST_OF_ONE = 3  # lines that are named for one resource
MEBIBYTE = 1 << 20


def diagnose(found: KernelProfile, *, ranked: bool = True) -> Diagnosis:
    """What the simulated core knows of a kernel, but for what its problem takes at least. Bottlenecks that
    are not `ranked` by gain are by share."""
    bounds = {bound.name: bound.ms / found.latency_ms for bound in found.bounds}
    without: dict[str, float] = {}
    if ranked:
        without = {one.name: one.latency_ms for one in without_engines(found)}
        without["overlap"] = overlapped(found)
    shares = with_overlap(found.occupancy)
    sources = Sources()
    lines = tuple(_line(cost, sources) for cost in found.lines[:MOST_LINES])
    return Diagnosis(
        origin=found.simulated_on,
        utilisation=shares,
        bottlenecks=_ranked(
            shares,
            {name: _reason(name, found, sources) for name in shares},
            lines,
            {name: max(0.0, 1 - ms / found.latency_ms) for name, ms in without.items()},
        ),
        lines=lines,
        compute_sol=bounds["at peak FLOPs"],
        memory_sol=bounds["at peak bandwidth"],
        spilled_bytes=sum(map(moved_again, found.spills)),
    )


def measured(profile: Profile, simulated: Diagnosis | None) -> Diagnosis | None:
    """What a profile says of the resources; lines come from a simulation of the same kernel, where
    there is one. None for a profile without counters."""
    if profile.simulated and simulated is not None:
        return simulated
    busy = busy_shares(profile.metrics | {"latency": profile.latency})
    if not any(busy.values()):
        return simulated
    shares = with_overlap(busy)
    known = simulated or Diagnosis(origin=PROFILER)
    reasons = {b.resource: f"{b.reason} (simulated)" for b in known.bottlenecks}
    reasons = {name: _counted(name, share, reasons.get(name, "")) for name, share in shares.items()}
    return known.model_copy(
        update={
            "origin": simulated_on(profile.target, profile.compiler)
            if profile.simulated
            else PROFILER,
            "utilisation": shares,
            "bottlenecks": _ranked(shares, reasons, known.lines),
        }
    )


def with_overlap(busy: Mapping[str, float]) -> dict[str, float]:
    """Busy shares with `overlap`: the share in which not even the busiest resource works."""
    return {**busy, "overlap": max(0.0, 1 - max(busy.values(), default=1.0))}


def moved_again(spills: Spills) -> int:
    """Bytes that one tensor costs because SBUF is too small."""
    return spills.saved + spills.reloaded + spills.loaded_again


def _ranked(
    shares: Mapping[str, float],
    reasons: Mapping[str, str],
    lines: tuple[CostlyLine, ...],
    gains: Mapping[str, float] = {},
) -> tuple[Bottleneck, ...]:
    """By gain, those of unknown gain by share behind."""
    ranked = sorted(shares, key=lambda name: (-gains.get(name, -1.0), -shares[name]))
    return tuple(
        Bottleneck(
            category=CATEGORIES[name],
            resource=name,
            share=round(shares[name], 6),
            gain=round(gains[name], 6) if name in gains else None,
            reason=reasons[name] + _promise(gains.get(name)),
            lines=_lines_of(name, lines),
            methods=methods_that_touch("nki", name),
        )
        for name in ranked
        if shares[name] >= NEGLIGIBLE
    )


def _promise(gain: float | None) -> str:
    return f"; without it the kernel would take {gain:.0%} less" if gain and gain >= 0.005 else ""


def _line(cost: LineCost, sources: Sources) -> CostlyLine:
    return CostlyLine(
        number=cost.source.line,
        text=sources.text(cost.source),
        operations=cost.operations,
        count=cost.count,
        busy_ms={name: round(ms, 9) for name, ms in cost.busy_ms.items()},
        critical_ms=round(cost.critical_ms, 9),
        bytes=cost.bytes,
    )


def _lines_of(resource: str, lines: tuple[CostlyLine, ...]) -> tuple[int, ...]:
    """The lines that keep a resource busy; what is waited for, where nothing works."""

    def cost(line: CostlyLine) -> float:
        return line.critical_ms if resource == "overlap" else line.busy_ms.get(resource, 0.0)

    costly = sorted(filter(cost, lines), key=lambda line: -cost(line))
    return tuple(dict.fromkeys(line.number for line in costly))[:MOST_OF_ONE]


def _reason(resource: str, found: KernelProfile, sources: Sources) -> str:
    if resource == "dma":
        return _memory(found, sources)
    bounds = {bound.name: bound for bound in found.bounds}
    if resource == "overlap":
        return f"for {bounds['idle'].ms:.4g} ms neither the busiest engine nor DMA works"
    busy = found.occupancy[resource] * found.latency_ms
    if resource != "tensor" or not busy:
        return f"busy for {busy:.4g} of {found.latency_ms:.4g} ms"
    transposes = found.summary["transpose_flops"] / (found.summary["hardware_flops"] or 1.0)
    return (
        f"busy for {busy:.4g} of {found.latency_ms:.4g} ms, {bounds['at peak FLOPs'].ms:.4g} ms at "
        f"the peak rate of its operands; transposes are {transposes:.0%} of its operations"
    )


def _memory(found: KernelProfile, sources: Sources) -> str:
    bounds = {bound.name: bound for bound in found.bounds}
    parts = [
        f"busy for {bounds['actual'].ms:.4g} ms ({bounds['actual'].meaning.partition(', ')[2]}), "
        f"{bounds['at peak bandwidth'].ms:.4g} ms at the peak bandwidth"
    ]
    again = [one for one in found.reads if one.times > 1.001]
    parts += [f"{one.tensor} is read {one.times:.3g} times" for one in again[:MOST_OF_ONE]]
    spilled = sorted(filter(moved_again, found.spills), key=moved_again, reverse=True)
    parts += [
        f"{sources.name(one.tensor, one.source)} of line {one.source.line} does not stay in SBUF "
        f"({moved_again(one) / MEBIBYTE:.1f} MiB moved again)"
        for one in spilled[:MOST_OF_ONE]
    ]
    return "; ".join(parts)


def _counted(resource: str, share: float, simulated: str) -> str:
    said = f"{'idle' if resource == 'overlap' else 'busy'} for {share:.0%} of the time, as measured"
    return f"{said}; {simulated}" if simulated else said
