"""What limits a solution on a GPU: by Nsight Compute's counters, else by the structure of its PTX and the
measured time, else by what bytes, operations and that time tell."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.evaluation import Bottleneck, Diagnosis, Profile
from accelopt.hardware.gpus import DEFAULT_GPU, GPU, GPUS
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.profiling.metrics import WAITS_FOR, Metrics
from accelopt.kernels.gpu.ptx_structure import Evidence
from accelopt.kernels.moves import methods_that_touch

ROOFLINE, STRUCTURE, COUNTERS = "roofline", "Region-DAG", "Nsight Compute"
CATEGORIES = {"gmem": "memory", "compute": "compute", "sfu": "compute", "overlap": "latency"}
MUCH_MORE = 1.25  # of the bytes that the problem needs
MOST_OF = 0.75  # of a sector: what uses as much wastes little
SECTOR = GPUS[DEFAULT_GPU].sector_bytes
_PIPES = ("tensor_pct", "fma_pct", "alu_pct", "fp64_pct")


def of_roofline(bound: Bound, profile: Profile, language: str) -> Diagnosis:
    """The least use of memory and arithmetic that the problem needs, over the time it took. What is
    moved or computed in vain counts as idle: nothing was profiled."""
    memory, compute = (ms / profile.latency for ms in (bound.memory_ms, bound.compute_ms))
    shares = {"gmem": memory, "compute": compute, "overlap": max(0.0, 1 - max(memory, compute))}
    reasons = {
        "gmem": f"at least {bound.bytes / 1e6:.1f} MB move: {bound.memory_ms:.4g} ms at peak",
        "compute": f"at least {bound.operations / 1e9:.1f} GFLOP: {bound.compute_ms:.4g} ms at peak",
        "overlap": "the rest: waiting, or work that the problem does not need",
    }
    return Diagnosis(
        origin=ROOFLINE,
        utilisation=shares,
        bottlenecks=_ranked(shares, reasons, language),
        compute_sol=compute,
        memory_sol=memory,
        fraction_of_peak=bound.milliseconds / profile.latency,
    )


def of_structure(
    found: Evidence, bound: Bound, target: GPU, profile: Profile, language: str
) -> Diagnosis:
    """The roofline's shares of the measured time, with what the kernel's own text adds: bytes that it
    moves in vain, special functions, the lines of the source that use each resource, and what it says
    of the rest."""
    plain = of_roofline(bound, profile, language)
    shares = {name: share for name, share in plain.utilisation.items() if name != "overlap"}
    reasons = {one.resource: one.reason for one in plain.bottlenecks}
    if found.sfu_ms:
        shares["sfu"] = found.sfu_ms / profile.latency
        reasons["sfu"] = f"special functions take at least {found.sfu_ms:.4g} ms"
    if found.traffic is not None:
        moved, asked = found.traffic.moved, found.traffic.asked
        by_memory = moved / target.gigabytes_per_second / 1e6
        by_cache = asked / target.l2_gigabytes_per_second / 1e6
        if by_cache > profile.latency:  # then the multiprocessors' own caches gave some of it
            by_cache = 0.0
        if max(by_memory, by_cache) > bound.memory_ms:
            shares["gmem"] = max(by_memory, by_cache) / profile.latency
            reasons["gmem"] = (
                f"it asks for {asked / 1e6:.1f} MB: {by_cache:.4g} ms of the L2 cache, and "
                f"{by_memory:.4g} ms of device memory for the {moved / 1e6:.1f} MB from there"
            )
    shares["overlap"] = max(0.0, 1 - max(shares.values()))
    reasons["overlap"] = found.waits
    ranked = _ranked(shares, reasons, language)
    return plain.model_copy(
        update={
            "origin": STRUCTURE,
            "utilisation": shares,
            "bottlenecks": tuple(
                one.model_copy(update={"lines": found.lines.get(one.resource, ())})
                for one in ranked
            ),
            "notes": found.notes,
        }
    )


def of_counters(
    metrics: Metrics, bound: Bound | None, profile: Profile, language: str
) -> Diagnosis:
    """How busy each resource was while the longest kernel of a call ran. The times of a profiled run
    are not used. `memory_sol` is DRAM alone: caches may be busy with bytes fetched in vain."""
    dram, l2, l1 = (
        (metrics.value(name, "speed_of_light") or 0.0) / 100
        for name in ("gpu_dram_throughput_pct", "l2_throughput_pct", "l1_throughput_pct")
    )
    pipes = {name: (metrics.value(name, "pipeline_metrics") or 0.0) / 100 for name in _PIPES}
    busiest = max(pipes, key=lambda name: pipes[name])
    sfu = (metrics.value("xu_pct", "pipeline_metrics") or 0.0) / 100
    shares = {"gmem": max(dram, l2, l1), "compute": pipes[busiest], "sfu": sfu}
    shares["overlap"] = max(0.0, 1 - max(shares.values()))
    reasons = {
        "gmem": f"DRAM is busy {dram:.0%} of the time, L2 {l2:.0%}, L1 {l1:.0%}",
        "compute": f"the {busiest.removesuffix('_pct')} pipe is busy {pipes[busiest]:.0%} of the time",
        "sfu": f"the pipe of special functions is busy {sfu:.0%} of the time",
        "overlap": _waiting(metrics),
    }
    occupancy = metrics.value("warp_occupancy_pct")
    registers, shared = (
        metrics.value(name) for name in ("registers_per_thread", "shared_bytes_per_block")
    )
    return Diagnosis(
        origin=COUNTERS,
        utilisation=shares,
        bottlenecks=_ranked(shares, reasons, language),
        compute_sol=pipes[busiest],
        memory_sol=dram,
        fraction_of_peak=bound.milliseconds / profile.latency if bound else None,
        registers=None if registers is None else int(registers),
        shared_bytes=None if shared is None else int(shared),
        occupancy=None if occupancy is None else occupancy / 100,
        notes=tuple(_notes(metrics, bound)),
    )


def _waiting(metrics: Metrics) -> str:
    stalls = metrics.sections.get("stall_metrics", {})
    total = sum(stalls.values())
    if not total:
        return "nothing works: too little is in flight"
    most = sorted(stalls, key=lambda name: -stalls[name])[:2]
    said = ", ".join(f"{WAITS_FOR.get(name, name)} ({stalls[name] / total:.0%})" for name in most)
    return f"warps wait, most of all for {said}"


def _notes(metrics: Metrics, bound: Bound | None) -> list[str]:
    notes = []
    if metrics.share < 0.995:
        notes.append(f"counted on {metrics.kernel_name}, {metrics.share:.0%} of the call's kernels")
    if bound is not None and metrics.dram_bytes > MUCH_MORE * bound.bytes * metrics.share:
        notes.append(
            f"moves {metrics.dram_bytes / 1e6:.1f} MB where the problem needs {bound.bytes / 1e6:.1f}"
        )
    for kind in ("load", "store"):
        used = metrics.value(f"{kind}_bytes_per_sector")
        if used and used < MOST_OF * SECTOR:
            notes.append(f"{kind}s use {used:.0f} of the {SECTOR} bytes of a sector")
    if spilled := (metrics.value("local_loads") or 0) + (metrics.value("local_stores") or 0):
        notes.append(f"{spilled:.3g} instructions load or store spilled registers")
    waves = metrics.value("waves_per_sm")
    if waves is not None and waves < 1:
        notes.append(f"the grid fills {waves:.0%} of the multiprocessors' places once")
    return notes


def _ranked(
    shares: Mapping[str, float], reasons: Mapping[str, str], language: str
) -> tuple[Bottleneck, ...]:
    return tuple(
        Bottleneck(
            category=CATEGORIES[name],
            resource=name,
            share=round(min(1.0, shares[name]), 6),
            reason=reasons[name],
            methods=methods_that_touch(language, name),
        )
        for name in sorted(filter(shares.__getitem__, shares), key=lambda name: -shares[name])
    )
