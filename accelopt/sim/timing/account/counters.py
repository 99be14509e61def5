"""The profiler's summary of a timeline: its field names, its ways of counting.

The profiler counts oddly in places (fp32 matmuls twice, engine bytes of one partition, nothing for
two-tensor Vector instructions); prompts and people compare with its numbers, so the summary counts
the same way. `TrueCounts` holds what physically happens.

Of two cores the counts are sums, times and parts of an engine the mean of both cores; `mbu` is that of
the HBM between them (Neuron Explorer's profile schema), `hfu` that of both Tensor engines (assumed).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import Tensor
from accelopt.sim.timing.machine.pricing import OperationCost, Traffic, is_slow, price
from accelopt.sim.timing.machine.schedule import QUEUES, Timeline
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.stream.operation import (
    QUEUE_NAMES,
    SEND,
    SPILL_RELOAD,
    SPILL_SAVE,
    Operation,
    Queue,
)
from accelopt.sim.timing.stream.stream import Stream


@dataclass(frozen=True)
class TrueCounts:
    """Physical totals, beside the profiler's way of counting."""

    flops: int  # multiplications and additions of the kernel's matmuls, without transposes
    fp32_share: float  # of the profiler's hardware FLOPs
    hbm_read_bytes: int
    hbm_write_bytes: int
    dma_bytes: int  # of transfers with HBM on one side or both, each once
    dma_descriptors: int
    instructions: dict[str, int]  # by engine


def union_length(start: np.ndarray, end: np.ndarray) -> float:
    """Total length covered by intervals."""
    if not start.size:
        return 0.0
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    previous = np.concatenate(([start[0]], end[:-1]))
    return float(np.maximum(end - np.maximum(start, previous), 0.0).sum())


def summary(
    stream: Stream,
    costs: list[Transfer | None],
    timeline: Timeline,
    interface: frozenset[Tensor],
    spec: Hardware,
) -> tuple[dict[str, float], TrueCounts]:
    """The profiler's fields (bytes, FLOPs, seconds; percent fields are fractions) and the physical
    counts. `interface` holds the kernel's arguments and results: what else lies in HBM is counted as
    spilling."""
    counts = _instances_by_form(stream)
    totals = _totals(counts, spec)
    traffic = totals.traffic
    moved = _transfer_totals(stream, costs, interface)
    instructions = _instructions(counts)
    flops, transposes = traffic.flops, traffic.transpose_flops
    hbm = moved["hbm_read"] + moved["hbm_write"]
    peak = spec.peak_bf16_flops_per_ns * stream.cores
    fields: dict[str, float] = {
        "latency": timeline.latency_ns * 1e-6,
        "total_time": timeline.latency_ns * 1e-9,
        "hbm_read_bytes": moved["hbm_read"],
        "hbm_write_bytes": moved["hbm_write"],
        "psum_read_bytes": traffic.psum_read,
        "psum_write_bytes": traffic.psum_write,
        "sbuf_read_bytes": traffic.sbuf_read + moved["sbuf_read"],
        "sbuf_write_bytes": traffic.sbuf_write + moved["sbuf_write"],
        "spill_reload_bytes": moved["spill_reload"],
        "spill_save_bytes": moved["spill_save"],
        "hardware_flops": flops,
        "transpose_flops": transposes,
        "peak_flops_bandwidth_ratio": peak / spec.hbm_bytes_per_ns,
        "mm_arithmetic_intensity": (flops - transposes) / hbm if hbm else 0.0,
        "hfu_estimated_percent": flops / (peak * timeline.latency_ns),
        "mbu_estimated_percent": hbm / (spec.hbm_bytes_per_ns * timeline.latency_ns),
        "dma_transfer_count": moved["transfers"],
        "dma_transfer_total_bytes": hbm,
        "dma_transfer_average_bytes": hbm / moved["transfers"] if moved["transfers"] else 0.0,
        **_activity(timeline, stream.cores, instructions),
        "matmul_instruction_count": instructions["tensor"],
    }
    true = TrueCounts(
        totals.true_flops,
        _fp32_share(counts, spec),
        moved["hbm_read"],
        moved["hbm_write"],
        moved["dma"],
        moved["descriptors"],
        instructions,
    )
    return fields, true


def _instances_by_form(stream: Stream) -> Counter[Operation]:
    """How many instances each form of operation has."""
    kinds = np.bincount(np.asarray(stream.kind), minlength=len(stream.instances))
    counts: Counter[Operation] = Counter()
    for n, item in zip(kinds.tolist(), stream.instances, strict=True):
        counts[item.form] += n
    return counts


def _totals(counts: Counter[Operation], spec: Hardware) -> OperationCost:
    """What all instances of all operations add to the counters."""
    prices = [(n, price(form, spec)) for form, n in counts.items()]
    columns = zip(*([n * value for value in one.traffic] for n, one in prices), strict=True)
    return OperationCost(
        traffic=Traffic(*map(sum, columns)), true_flops=sum(n * one.true_flops for n, one in prices)
    )


def _instructions(counts: Counter[Operation]) -> dict[str, int]:
    """Instances by engine, Sync where anything is on it."""
    found = dict.fromkeys(QUEUE_NAMES[: Queue.SYNC], 0)
    for form, n in counts.items():
        name = QUEUE_NAMES[form.queue]
        found[name] = found.get(name, 0) + n
    return found


def busy_ns(timeline: Timeline, cores: int) -> list[dict[str, float]]:
    """For each core, the time in which each of its engines works, Sync where anything is on it."""
    start, end = np.asarray(timeline.start), np.asarray(timeline.done)
    queues = np.asarray(timeline.queue)
    return [
        {
            QUEUE_NAMES[queue]: union_length(start[own], end[own])
            for queue in Queue
            for own in [queues == QUEUES * core + queue]
            if queue is not Queue.SYNC or (queues % QUEUES == Queue.SYNC).any()
        }
        for core in range(cores)
    ]


def _activity(timeline: Timeline, cores: int, instructions: dict[str, int]) -> dict[str, float]:
    """For each engine the time in which it works, its part of the latency, and its instructions."""
    fields: dict[str, float] = {}
    each = busy_ns(timeline, cores)
    for name in each[0]:
        busy = sum(core[name] for core in each) / cores
        prefix = name if name == "dma" else f"{name}_engine"
        fields[f"{prefix}_active_time"] = busy * 1e-9
        fields[f"{prefix}_active_time_percent"] = busy / timeline.latency_ns
        if name != "dma":
            fields[f"{prefix}_instruction_count"] = instructions[name]
    return fields


def _fp32_share(counts: Counter[Operation], spec: Hardware) -> float:
    total = slow = 0
    for form, n in counts.items():
        flops = n * price(form, spec).traffic.flops
        total += flops
        if flops and is_slow(form):
            slow += flops
    return slow / total if total else 0.0


def _transfer_totals(
    stream: Stream, costs: list[Transfer | None], interface: frozenset[Tensor]
) -> dict[str, int]:
    names = ("hbm_read", "hbm_write", "sbuf_read", "sbuf_write", "spill_save", "spill_reload",
             "transfers", "descriptors", "dma")  # fmt: skip
    totals = dict.fromkeys(names, 0)
    roles: dict[int, tuple[str, bool, bool, bool]] = {}
    for kind, cost in zip(stream.kind, costs, strict=True):
        if cost is None:
            continue
        if kind not in roles:
            roles[kind] = _role(stream.instances[kind].operation, interface)
        role, from_sbuf, to_sbuf, scratch = roles[kind]
        totals["transfers"] += 1
        totals["descriptors"] += cost.descriptors
        totals["dma"] += max(cost.hbm_read, cost.hbm_write)
        totals["hbm_read"] += cost.hbm_read
        totals["hbm_write"] += cost.hbm_write
        totals["sbuf_read"] += cost.bytes if from_sbuf else 0
        totals["sbuf_write"] += cost.bytes if to_sbuf else 0
        if role is SPILL_SAVE or (scratch and from_sbuf):
            totals["spill_save"] += cost.bytes
        elif role is SPILL_RELOAD or (scratch and to_sbuf):
            totals["spill_reload"] += cost.bytes
    return totals


def _role(operation: Operation, interface: frozenset[Tensor]) -> tuple[Opcode, bool, bool, bool]:
    """Opcode, whether SBUF is the source, the target, and whether the HBM side is the kernel's own
    intermediate memory: swiglu (NKIBench) stores and loads such a tensor, and the profiler counts
    it as spilling."""
    opcode = operation.opcode
    if opcode is SEND:
        return opcode, True, True, False
    if opcode is SPILL_SAVE:
        return opcode, True, False, False
    if opcode is SPILL_RELOAD:
        return opcode, False, True, False
    if not operation.reads or not operation.writes or not operation.is_dma:
        return opcode, False, False, False
    source, target = operation.reads[0].tensor, operation.writes[0].tensor
    scratch = any(
        not t.buffer.on_chip and t.data is None and t not in interface for t in (source, target)
    )
    return opcode, source.buffer.on_chip, target.buffer.on_chip, scratch
