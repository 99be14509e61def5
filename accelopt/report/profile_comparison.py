"""A predicted profile beside a measured one of the same kernel: by engine, kind of instruction, source line,
DMA queue and counter; where they part, and which constant of the machine would explain it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.kernels.nki.calibration.fit import constants
from accelopt.kernels.nki.devices.measured_profile import (
    ENGINES,
    HARDWARE,
    INSTRUCTIONS,
    SOFTWARE,
    STATIC,
    MeasuredInstruction,
    MeasuredProfile,
)
from accelopt.sim import timing
from accelopt.sim.errors import KernelError
from accelopt.sim.timing import KernelProfile
from accelopt.sim.timing.account.counters import union_length
from accelopt.sim.timing.machine.schedule import QUEUES
from accelopt.sim.timing.machine.transfers import RINGS
from accelopt.sim.timing.stream.operation import QUEUE_NAMES, Operation, Queue

KINDS = {
    "MATMUL": "matmul", "LDWEIGHTS": "matmul", "ACTIVATE": "activation", "CAST": "copy", "COPY": "copy",
    "DMA_DIRECT2D": "descriptors of DMA", "ACT_TABLE_LOAD": "table of a function",
}  # fmt: skip
"""The profiler's opcodes whose kind has another name here; those not listed are called alike."""
CONTROL = frozenset(
    "COMPARE_BRANCH DRAIN EVENT_SEMAPHORE EVENT_SEMAPHORE_RANGE_CLEAR NOP NOTIFY SET_ORDERING_MODE "
    "TENSOR_LOAD WRITE".split()
)
"""What an engine runs beside the kernel's instructions; it is not predicted by itself."""
PREDICTED_RINGS = {"static": STATIC, "software": SOFTWARE, "sync": HARDWARE, "scalar": HARDWARE}
COUNTERS = (
    "hbm_read_bytes hbm_write_bytes spill_save_bytes spill_reload_bytes matmul_instruction_count "
    "hardware_flops transpose_flops psum_read_bytes psum_write_bytes sbuf_read_bytes sbuf_write_bytes"
).split()
FACTORS = ((0.5, 0.25), (2.0, 4.0))
"""By which a constant is tried, to either side, the nearer one first."""
MOST_TRIED = 20_000
"""Instructions of a kernel from which on no constant is tried."""
EXPLAINING = 5
ALIKE = 0.02
"""A difference of the latency that needs no explanation."""


@dataclass(frozen=True)
class Activity:
    """How many there were, and the ns in which at least one was running: the mean of two cores."""

    number: int
    active_ns: float
    bytes: int = 0


NOTHING = Activity(0, 0.0)


@dataclass(frozen=True)
class Row:
    """One thing on both sides."""

    name: str
    predicted: Activity
    measured: Activity

    @property
    def difference_ns(self) -> float:
        """Measured over predicted."""
        return self.measured.active_ns - self.predicted.active_ns


@dataclass(frozen=True)
class Explanation:
    """A constant with which the latency would be about the measured one: the table's value and that one, and
    how far apart the engines' times are then, as a mean factor. One of several that could be wrong."""

    constant: str
    unit: str
    table: float
    wanted: float
    apart: float


@dataclass(frozen=True)
class Comparison:
    """Both profiles side by side. `apart` is the mean factor between the engines' times; `another`, how the
    counters tell that the profile is of another kernel, where they do."""

    kernel: str
    simulated_on: str
    instance: str
    form: str
    predicted_ms: float
    measured_ms: float
    launch: list[Row]
    engines: list[Row]
    kinds: list[Row]
    lines: list[Row]
    rings: list[Row]
    queues: list[Row]
    counters: dict[str, tuple[float, float]]
    apart: float
    explanations: list[Explanation]
    another: str


class _Event(NamedTuple):
    name: str
    core: int
    start_ns: float
    end_ns: float
    bytes: int = 0
    number: int = 1


def compare(kernel: str, found: KernelProfile, measured: MeasuredProfile) -> Comparison:
    """The comparison; `kernel` is its file's name. What explains a difference is asked of a kernel of one
    core and up to `MOST_TRIED` instructions only."""
    own = [one for one in measured.instructions if one.opcode not in CONTROL]
    cores = _cores(found, measured)

    located = [one for one in own if one.line]
    control = [one for one in measured.instructions if one.opcode in CONTROL]
    packets = [_Event(p.ring, p.core, p.start_ns, p.end_ns, p.bytes) for p in measured.packets]
    queues = [_Event(p.queue, p.core, p.start_ns, p.end_ns, p.bytes) for p in measured.packets]
    engines = _engines(found, measured)
    return Comparison(
        kernel=kernel,
        simulated_on=found.simulated_on,
        instance=measured.instance,
        form=measured.form,
        predicted_ms=found.latency_ms,
        measured_ms=measured.latency_ms,
        launch=_launch(found, own, measured),
        engines=engines,
        kinds=_kinds(found, own, *cores)
        + _rows((), _instructions(control, lambda i: f"{i.engine} control"), *cores),
        lines=_rows(
            _predicted(found, lambda op: f"line {op.source.line}"),
            _instructions(located, lambda i: f"line {i.line}"),
            *cores,
        ),
        rings=_rows(_predicted_packets(found), packets, *cores),
        queues=_rows((), queues, *cores),
        counters={
            name: (found.summary[name], measured.summary[name])
            for name in COUNTERS
            if name in found.summary and name in measured.summary
        },
        apart=_apart(engines),
        explanations=_explanations(found, measured, engines),
        another=another_kernel(found, measured),
    )


def another_kernel(found: KernelProfile, measured: MeasuredProfile) -> str:
    """How its counters tell that a profile is of another kernel, or of other shapes: operations of products
    that are more than a factor of two apart, or fewer bytes written than the results have. Empty where they
    do not."""
    own, said = (
        one["hardware_flops"] - one["transpose_flops"]
        if {"hardware_flops", "transpose_flops"} <= one.keys()
        else None
        for one in (found.summary, measured.summary)
    )
    if None not in (own, said) and not own / 2 <= said <= 2 * own:  # type: ignore[operator]
        return f"its products take {said:,.0f} operations, the kernel's {own:,.0f}"
    program, written = found.run.program, measured.summary.get("hbm_write_bytes")
    results = sum(t.bytes for t in program.results if t is not None)
    results //= found.run.stream.cores
    if written is not None and written < results:
        return f"it writes {written:,.0f} B to HBM, the kernel's results have {results:,}"
    return ""


def quantities(found: KernelProfile, measured: MeasuredProfile) -> dict[str, tuple[float, float]]:
    """What one kernel's profile says of the machine, in ns as predicted and as measured: the latency, what passes
    before its first instruction, the time of each engine, and of each kind of instruction of which both have as
    many. What one side lacks is left out."""
    own = [one for one in measured.instructions if one.opcode not in CONTROL]
    kinds = [
        row
        for row in _kinds(found, own, *_cores(found, measured))
        if row.predicted.number == row.measured.number
    ]
    rows = [*_launch(found, own, measured)[:1], *_engines(found, measured), *kinds]
    times = {row.name: (row.predicted.active_ns, row.measured.active_ns) for row in rows}
    times["latency"] = (found.latency_ms * 1e6, measured.latency_ms * 1e6)
    return {name: both for name, both in times.items() if min(both) > 0}


def _cores(found: KernelProfile, measured: MeasuredProfile) -> tuple[int, int]:
    return found.run.stream.cores, 1 + max((i.core for i in measured.instructions), default=0)


def _kinds(found: KernelProfile, own: Sequence[MeasuredInstruction], *cores: int) -> list[Row]:
    """By kind of instruction and engine."""
    return _rows(
        _predicted(found, lambda op: f"{QUEUE_NAMES[op.queue]} {_kind(op)}"),
        _instructions(own, lambda i: f"{i.engine} {KINDS.get(i.opcode, i.opcode.lower())}"),
        *cores,
    )


def _instructions(
    own: Iterable[MeasuredInstruction], name: Callable[[MeasuredInstruction], str]
) -> list[_Event]:
    return [_Event(name(one), one.core, one.start_ns, one.end_ns) for one in own]


def _engines(found: KernelProfile, measured: MeasuredProfile) -> list[Row]:
    """Times that engines are busy, in the profiler's own way of counting where its summary has them."""
    rows = []
    for name in (*ENGINES[:4], "dma"):
        said = measured.busy_ns(name)
        if said is not None:
            predicted = found.occupancy[name] * found.latency_ms * 1e6
            rows.append(Row(name, Activity(0, predicted), Activity(0, said)))
    return rows


def _launch(
    found: KernelProfile, own: Sequence[MeasuredInstruction], measured: MeasuredProfile
) -> list[Row]:
    """What passes before the first of the kernel's instructions and transfers, and from there on."""
    packets = [one for one in measured.packets if one.ring != INSTRUCTIONS]
    begins = min([*(i.start_ns for i in own), *(p.start_ns for p in packets)], default=None)
    if begins is None:
        return []
    sides = (found.run.spec.launch_ns, begins), (found.latency_ms * 1e6, measured.latency_ms * 1e6)
    before = [Activity(0, ns) for ns in sides[0]]
    after = [Activity(0, whole - ns) for ns, whole in zip(*sides, strict=True)]
    return [Row("before the kernel's first", *before), Row("from there on", *after)]


def _kind(operation: Operation) -> str:
    return "matmul" if operation.queue == Queue.TENSOR else str(operation.opcode)


def _predicted(found: KernelProfile, name: Callable[[Operation], str]) -> Iterator[_Event]:
    run = found.run
    for at, kind in enumerate(run.stream.kind):
        operation = run.stream.instances[kind].operation
        if not operation.is_dma:
            core = run.timeline.queue[at] // QUEUES
            yield _Event(name(operation), core, run.timeline.start[at], run.timeline.free[at])


def _predicted_packets(found: KernelProfile) -> Iterator[_Event]:
    run = found.run
    for at, cost in enumerate(run.costs):
        if cost is not None:
            core, start = run.timeline.queue[at] // QUEUES, run.timeline.start[at]
            yield _Event(
                PREDICTED_RINGS[RINGS[cost.ring]], core, start, run.timeline.done[at], cost.bytes,
                cost.descriptors,
            )  # fmt: skip


def _rows(
    predicted: Iterable[_Event], measured: Sequence[_Event], cores: int, measured_cores: int
) -> list[Row]:
    """Both sides by name, the largest difference first; nothing where nothing was measured."""
    if not measured:
        return []
    one, other = _totals(predicted, cores), _totals(measured, measured_cores)
    rows = [
        Row(name, one.get(name, NOTHING), other.get(name, NOTHING)) for name in {**one, **other}
    ]
    return sorted(rows, key=lambda row: (-abs(row.difference_ns), row.name))


def _totals(events: Iterable[_Event], cores: int) -> dict[str, Activity]:
    spans: dict[tuple[str, int], list[_Event]] = defaultdict(list)
    for event in events:
        spans[event.name, event.core].append(event)
    found: dict[str, Activity] = {}
    for (name, _), own in spans.items():
        start, end = (np.array([getattr(e, n) for e in own]) for n in ("start_ns", "end_ns"))
        before = found.get(name, NOTHING)
        found[name] = Activity(
            before.number + sum(event.number for event in own),
            before.active_ns + union_length(start, end) / cores,
            before.bytes + sum(event.bytes for event in own),
        )
    return found


def _apart(rows: Sequence[Row]) -> float:
    """The mean factor between the times of engines that work on both sides; 1 where they agree."""
    pairs = [(r.predicted.active_ns, r.measured.active_ns) for r in rows]
    logs = [abs(math.log(one / other)) for one, other in pairs if one > 0 and other > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _explanations(
    found: KernelProfile, measured: MeasuredProfile, engines: Sequence[Row]
) -> list[Explanation]:
    """Constants of which one between a quarter and four times the table's value makes the latency the
    measured one, those first with which the engines' times are nearest."""
    run = found.run
    alike = abs(found.latency_ms / measured.latency_ms - 1) < ALIKE
    if alike or len(run.stream) > MOST_TRIED or run.stream.cores > 1:
        return []
    names = constants(run.spec)
    every = [(name, factor) for name in names for side in FACTORS for factor in side]
    cores = [_changed(run.spec, *one) for one in every]
    tried = timing.latencies(run.program, [run.spec, *cores], run.compiler)[1:]
    latency = dict(zip(every, tried, strict=True))
    explanations = []
    for name in names:
        for side in FACTORS:
            points = [
                (1.0, found.latency_ms),
                *((factor, latency[name, factor]) for factor in side),
            ]
            wanted = _between(points, measured.latency_ms)
            if wanted is None:
                continue
            core = _changed(run.spec, name, wanted)
            try:
                again = timing.profile(run.program, core, run.compiler)
            except KernelError:
                continue
            rows = [
                replace(row, predicted=other.predicted)
                for row, other in zip(engines, _engines(again, measured), strict=True)
            ]
            explanations.append(
                Explanation(
                    name, core.source(name).unit, getattr(run.spec, name), getattr(core, name),
                    _apart(rows),
                )
            )  # fmt: skip
    return sorted(explanations, key=lambda one: one.apart)[:EXPLAINING]


def _between(points: Sequence[tuple[float, float]], wanted: float) -> float | None:
    """The factor at which a latency is the wanted one, between those of two neighbours (in logarithms);
    None where it lies between none."""
    for (before, low), (after, high) in itertools.pairwise(points):
        way, far = math.log(high / low), math.log(wanted / low)
        if way and 0 < far / way <= 1:
            return float(before * (after / before) ** (far / way))
    return None


def _changed(core: Hardware, name: str, factor: float) -> Hardware:
    changes = {name: getattr(core, name) * factor}
    return replace(core, **changes)


SHOWN = 16


def comparison_text(found: Comparison) -> str:
    """The comparison for people."""
    error = found.predicted_ms / found.measured_ms - 1
    parts = [
        f"{found.kernel}: predicted {found.predicted_ms:.4g} ms ({found.simulated_on}), measured "
        f"{found.measured_ms:.4g} ms ({', '.join(filter(None, (found.instance, found.form)))}): "
        f"{error:+.1%}.",
        found.another and f"Not of this kernel as it is here: {found.another}.",
        _table("phase", found.launch, counts=False),
        _table("engine, busy", found.engines, counts=False),
        _table("kind of instruction", found.kinds),
        _table("source line", found.lines),
        _table("DMA by who makes the descriptors", found.rings, sizes=True),
        _table("DMA queue, as measured", found.queues, sizes=True),
        _counters(found.counters),
        _explained(found, error),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(title: str, rows: Sequence[Row], counts: bool = True, sizes: bool = False) -> str:
    if not rows:
        return ""
    head = "   number   number" * counts + "        bytes        bytes" * sizes
    wide = max(24, len(title), *(len(row.name) + 2 for row in rows[:SHOWN]))
    lines = [f"{title:{wide}}  predicted   measured  difference{head}"]
    for row in rows[:SHOWN]:
        numbers = f" {row.predicted.number:8d} {row.measured.number:8d}" if counts else ""
        numbers += f" {row.predicted.bytes:12,d} {row.measured.bytes:12,d}" if sizes else ""
        lines.append(
            f"  {row.name:{wide - 2}} {_us(row.predicted)} {_us(row.measured)} "
            f"{row.difference_ns * 1e-3:+8.2f} us{numbers}"
        )
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} more, which differ less")
    return "\n".join(lines)


def _us(activity: Activity) -> str:
    return f"{activity.active_ns * 1e-3:7.2f} us"


def _counters(both: Mapping[str, tuple[float, float]]) -> str:
    if not both:
        return ""
    lines = ["counter                        predicted       measured"]
    for name, (one, other) in both.items():
        mark = "" if one == other else "  *"
        lines.append(f"  {name:26s} {one:11,.0f}    {other:11,.0f}{mark}")
    return "\n".join(lines)


def _explained(found: Comparison, error: float) -> str:
    if abs(error) < ALIKE:
        return f"The latencies differ by less than {ALIKE:.0%}: nothing is to be explained."
    if not found.explanations:
        return (
            "No constant of the machine between a quarter and four times its value explains the "
            "difference alone."
        )
    lines = [
        "What would explain it: one constant at another value makes the latency about the measured one. The "
        f"engines' times are a factor {found.apart:.2f} apart now."
    ]
    for one in found.explanations:
        lines.append(
            f"  {one.constant}: {one.wanted:.4g} {one.unit} for {one.table:.4g}; the engines are then a "
            f"factor {one.apart:.2f} apart"
        )
    return "\n".join(lines)
