"""What the simulated core knows of a kernel, in words and small tables, for whoever plans the next step.

All numbers come from one simulated run and one table of hardware, so they agree with each other and
with `accelopt profile`. Source lines are given by number; the reader has the kernel with its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.kernels.nki.advice import Rewrite, advice, advice_text, piece_rate
from accelopt.kernels.nki.problem_bound import ProblemBound, launch_cores
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.errors import NOWHERE
from accelopt.sim.timing import KernelProfile
from accelopt.sim.timing.compiler_constants import COMPILERS, CompilerBounds, default_compiler
from accelopt.sim.timing.gaps import LONGEST, Gap, engine_activity
from accelopt.sim.timing.instruction_costs import Priced, bill
from accelopt.sim.timing.occupancy import MemoryUse, memory_use
from accelopt.sim.timing.rereads import Reread, rereads
from accelopt.sim.timing.stream.operation import ARRIVE, QUEUE_NAMES, WAIT, Decision
from accelopt.sim.timing.what_if import WhatIf, what_ifs

ENGINES = {
    "tensor": "the Tensor engine",
    "vector": "the Vector engine",
    "scalar": "the Scalar engine",
    "gpsimd": "the GpSimd engine",
    "sync": "the Sync engine (arithmetic on registers)",
    "dma": "DMA (moving data between HBM and the chip)",
}
LIMITING = 0.12  # an engine whose absence saves less of the time does not limit the kernel
MOST_LINES = 8
ALIKE = 0.01  # of a kernel's time, by which what two cores do at the same time differs at most
LOOKED_AT = 40  # longest gaps of an engine, of which those for one reason are told together
MOST_PRICES = 16
MOST_DECISIONS = 8
SILENT_BELOW = 0.005  # of the time
DEAR = 0.01  # of the time: an instruction that takes less has no row of its own
TAKEN_UP = 0.75  # of the time at work: an engine that instructions take up for less is named
AS_MUCH = 0.6  # of what the first engine's absence saves: a second one saves about as much
ROTATION = "rotate_buffers"
TELLING = 0.01  # of the time: a what-if that changes less makes no difference
QUIET = frozenset({"choose_engines"})  # decisions that the list of prices shows
MEBIBYTE = 1 << 20
FIXED_SHARE = 0.3  # of an instruction's cycles: from there on wider tiles pay
SHORT_PIECE = 2048  # bytes; of shorter pieces the list of prices says what they reach
WIDE = 128  # elements from which what an instruction takes is its elements
WIDEST = 512  # columns that one matrix product takes
PIECES = (256, 512, 1024, 2048, 4096)


def briefing(
    found: KernelProfile, bound: ProblemBound | None, rewrite: Rewrite | None = None
) -> dict[str, str]:
    """The parts by name: `advice`, `limits`, `engines`, `lines`, `memory`, `compiler`, `prices`. `bound` is
    what the kernel's problem takes at least, where that is known, `rewrite` the kernel by another nest."""
    sources = Sources()
    asked, used = what_ifs(found), memory_use(found.run.program)
    return {
        "advice": advice_text(advice(found, asked, used, rewrite)),
        "limits": _limits(found, asked, bound),
        "engines": _engines(found),
        "lines": _lines(found),
        "memory": _memory(used, found, sources),
        "compiler": _decisions(_decided(found, asked), sources),
        "prices": _prices(bill(found), found, sources),
    }


def _engines(found: KernelProfile) -> str:
    """When each engine begins and ends, and its longest gaps with what they waited for, those for the same
    together; cores that do the same at nearly the same time together, by the figures of the first."""
    told: list[_Told] = []
    for one in engine_activity(found, LOOKED_AT):
        gaps = (
            f"{one.gaps:,} gaps, the longest:"
            if one.gaps > 1
            else "one gap:" * one.gaps or "no gap"
        )
        share = one.busy_ms / found.latency_ms
        head = f"{one.first_ms:.4g} to {one.last_ms:.4g}, works for {share:.1%} of the time; {gaps}"
        alike: dict[str, list[Gap]] = {}
        for gap in one.longest:
            alike.setdefault(_waiting(gap), []).append(gap)
        most = sorted(alike.items(), key=lambda item: -sum(gap.ms for gap in item[1]))[:LONGEST]
        waits = [f"    {_gaps(same)}: {why}" for why, same in most]
        reasons = tuple((why, len(same)) for why, same in most)
        times = [one.first_ms, one.last_ms, one.busy_ms]
        for _, same in most:
            times += [same[0].start_ms, same[0].ms, sum(gap.ms for gap in same)]
        mine = _Told(one.name, reasons, times, "\n".join([head, *waits]), {one.core: 0.0})
        for other in told:
            apart = other.apart(mine)
            if apart <= ALIKE * found.latency_ms:
                other.cores[one.core] = apart
                break
        else:
            told.append(mine)
    rows = ["engines from first to last instruction, and their longest gaps; ms after the launch"]
    for each in told:
        where = f" of core{'s' * (len(each.cores) > 1)} {', '.join(map(str, each.cores))}"
        if (apart := max(each.cores.values())) > 0:
            where += f" (figures of the first, the others within {apart:.2g})"
        rows.append(f"  {each.name + where * (found.run.stream.cores > 1):8s} {each.text}")
    return "\n".join(rows)


class _Told(NamedTuple):
    """What is told of an engine: why it stands still, and how often; when, in ms and in words; and of which
    cores, with how far their times are from those of the first."""

    name: str
    reasons: tuple[tuple[str, int], ...]
    times: list[float]
    text: str
    cores: dict[int, float]

    def apart(self, other: _Told) -> float:
        """By how much times differ at most, where the same is waited for; else infinite."""
        if (self.name, self.reasons) != (other.name, other.reasons):
            return inf
        return max(abs(a - b) for a, b in zip(self.times, other.times, strict=True))


def _gaps(same: Sequence[Gap]) -> str:
    """Gaps for one reason, the longest first."""
    first = f"at {same[0].start_ms:.4g} for {same[0].ms:.3g}"
    more = f", {len(same)} such take {sum(gap.ms for gap in same):.3g}"
    return first + more * (len(same) > 1)


def _waiting(gap: Gap) -> str:
    if gap.behind is None:
        return f"line {gap.source.line} follows; why it did not begin before is not known"
    if gap.waited == "timed":
        return (
            f"line {gap.source.line} loads no sooner before the product that wants it than its transfer takes: "
            f"when line {gap.behind.line} ({gap.engine}) is issued; loaded with more at once, before the loop, it "
            "comes with the first"
        )
    what = {
        "result": "the result",
        "port": "the port of memory that both engines have, used by an instruction",
    }.get(gap.waited, "a place in memory still used by an instruction")
    return f"line {gap.source.line} waits for {what} of line {gap.behind.line} ({gap.engine})"


def limit_of(found: KernelProfile, asked: Sequence[WhatIf]) -> WhatIf | None:
    """The engine without which the kernel would be fastest; None where no single one limits it."""
    engines = [one for one in asked if one.subject == "engine"]
    best = min(engines, key=lambda one: one.latency_ms, default=None)
    if best is None or best.latency_ms > (1 - LIMITING) * found.latency_ms:
        return None
    return best


def in_turns(found: KernelProfile, asked: Sequence[WhatIf]) -> list[WhatIf]:
    """Engines that wait for each other: without each of them the kernel would be faster by about as
    much. At most two; none where one alone limits, or nothing does."""
    best = limit_of(found, asked)
    if best is None:
        return []
    saved = found.latency_ms - best.latency_ms
    both = [
        one
        for one in sorted(asked, key=lambda one: one.latency_ms)
        if one.subject == "engine" and found.latency_ms - one.latency_ms >= AS_MUCH * saved
    ]
    return both[:2] if len(both) > 1 else []


def _limits(found: KernelProfile, asked: Sequence[WhatIf], bound: ProblemBound | None) -> str:
    now = found.latency_ms
    best, turns = limit_of(found, asked), in_turns(found, asked)
    if turns:
        first, second = (ENGINES[turn.name] for turn in turns)
        said = (
            f"no single engine: {first} and {second} work in turns, each waiting for the other, for "
            f"{found.occupancy[turns[0].name]:.0%} and {found.occupancy[turns[1].name]:.0%} of the "
            "time. Less work on either helps; so does work on another tile while one waits (several "
            "tiles an iteration, the next tile's first step before this one's last)"
        )
    elif best is None:
        said = (
            "no single engine: the kernel waits, for results of other engines, for buffers, or for "
            "the fixed cost of many small instructions (see what would change it)"
        )
    else:
        share = found.occupancy[best.name]
        said = f"{ENGINES[best.name]}, at work for {share:.0%} of the time"
    rows = [
        f"{now:.4g} ms, {found.simulated_on}. Limiting resource: {said}.",
        f"At work: {_at_work(found)}. "
        f"Launch: {found.run.spec.launch_ns * 1e-6:.3g} ms, which no kernel avoids.",
        *_taken_up(found),
        *_apart(found),
        *_floors(found, bound),
        "If one thing were different, and everything else as it is, the kernel would take:",
    ]
    telling = [one for one in asked if 1 - one.latency_ms / now >= TELLING]
    for one in sorted(telling, key=lambda one: one.latency_ms):
        rows.append(f"  {one.latency_ms:8.4g} ms {one.latency_ms / now - 1:+5.0%}  {one.question}")
    silent = [one.question for one in asked if one not in telling]
    if silent:
        rows.append(f"Nothing to gain where: {'; '.join(silent)}.")
    return "\n".join(rows)


def _at_work(found: KernelProfile) -> str:
    """How long each engine works, of each core where there are two."""

    def listed(shares: Mapping[str, float]) -> str:
        return ", ".join(
            f"{name} {share * found.latency_ms:.3g} ms ({share:.0%})"
            for name, share in sorted(shares.items(), key=lambda item: -item[1])
            if share
        )

    each = found.occupancy_by_core
    if len(each) == 1:
        return listed(found.occupancy)
    return "; ".join(f"core {core}: {listed(one)}" for core, one in enumerate(each))


def _taken_up(found: KernelProfile) -> Iterator[str]:
    """Of engines that mostly wait for their own results, how long instructions take them up."""
    taken: Counter[str] = Counter()
    for line in found.lines:
        taken.update(line.busy_ms)
    told = [
        f"{name} for {taken[name]:.3g} ms"
        for name, share in sorted(found.occupancy.items(), key=lambda item: -item[1])
        if share >= DEAR and taken[name] < TAKEN_UP * share * found.latency_ms
    ]
    if told:
        yield (
            f"Of that, instructions take up {', '.join(told)}; for the rest, what they began is on its way."
        )


def _apart(found: KernelProfile) -> Iterator[str]:
    """Which loads come only when the iteration before is over."""
    lines = {one.source.line for one in found.decisions if one.pass_name == "separate_rounds"}
    for line in sorted(lines):
        yield (
            f"For lack of room in SBUF for a second iteration, line {line} loads only when the iteration "
            "before is over. Smaller tiles (part of the columns at a time) or fewer of them alive at "
            "once let it load ahead."
        )


def _floors(found: KernelProfile, bound: ProblemBound | None) -> list[str]:
    """What the problem needs, whatever the kernel, and what this one moves and multiplies."""
    peak = {one.name: one.ms for one in found.bounds}
    moved = found.true_counts.hbm_read_bytes + found.true_counts.hbm_write_bytes
    rows = [bound.sentence(found.latency_ms, found.run.stream.cores)] if bound else []
    rows.append(
        f"Moved: {moved / MEBIBYTE:.4g} MiB, {peak['at peak bandwidth']:.4g} ms at the peak rates of DMA "
        "and HBM."
    )
    if peak["at peak FLOPs"] >= SILENT_BELOW * found.latency_ms:
        rows.append(
            f"Its matrix products and transposes at the peak rate of their formats: "
            f"{peak['at peak FLOPs']:.4g} ms."
        )
    return rows


def _lines(found: KernelProfile) -> str:
    rows = [" line  critical  waiting    times      MiB  busy"]
    rest = 0.0
    for number, line in enumerate(found.lines):
        share = line.critical_ms / found.latency_ms
        if number >= MOST_LINES or share < SILENT_BELOW:
            rest += share
            continue
        busy = ", ".join(
            f"{name} {ms:.3g} ms"
            for name, ms in sorted(line.busy_ms.items(), key=lambda item: -item[1])
            if ms >= SILENT_BELOW * found.latency_ms
        )
        moved = f"{line.bytes / MEBIBYTE:8.4g}" if line.bytes else " " * 8
        waiting = line.waiting_ms / found.latency_ms
        rows.append(
            f"{line.source.line:5d} {share:8.0%} {waiting:8.0%} {line.count:8,d} {moved}  {busy}"
        )
    if rest >= SILENT_BELOW:
        rows.append(f" rest {rest:8.0%}")
    launch = found.run.spec.launch_ns * 1e-6 / found.latency_ms
    if launch >= SILENT_BELOW:
        rows.append(f"launch{launch:8.0%}")
    return "\n".join(rows)


def _memory(uses: Iterable[MemoryUse], found: KernelProfile, sources: Sources) -> str:
    rows = []
    for use in (one for one in uses if one.peak):
        holders = ", ".join(
            f"{sources.name(one.tensor, one.source)} (line {one.source.line}) {one.bytes:,}"
            for one in use.holders
        )
        share = use.peak / use.capacity
        full = "; the excess is spilled or loaded again" if share > 1 else ""
        rows.append(
            f"{use.memory}: at most {use.peak:,} of {use.capacity:,} B a partition live at once "
            f"({share:.0%}){full}" + (f". Largest then: {holders}." if holders else ".")
        )
    rows += [_reread(one) for one in rereads(found)]
    if not any(one.read > one.size for one in found.reads):
        rows.append("No input is read more than once.")
    for moved in found.spills:
        if moved.saved or moved.reloaded:
            name = sources.name(moved.tensor, moved.source)
            rows.append(
                f"{name} (line {moved.source.line}) is spilled: {moved.saved / MEBIBYTE:.4g} MiB "
                f"saved to HBM, {moved.reloaded / MEBIBYTE:.4g} MiB brought back."
            )
    return "\n".join(rows)


def _reread(one: Reread) -> str:
    why = [f"one transfer brings each element to {one.spread} places"] if one.spread > 1 else []
    if one.displaced:
        why.append(
            f"SBUF could not hold it until its next use ({one.displaced / MEBIBYTE:.4g} MiB again)"
        )
    if one.blind and one.displaced < one.read - one.size:
        loops = ", ".join(f"line {place.line} ({trips} times)" for place, trips in one.blind)
        why.append(f"its address does not depend on the loop of {loops}")
    if not why:
        why.append("what one iteration loads overlaps with what others load")
    said = f": {' and '.join(why)}"
    return (
        f"{one.tensor} ({one.size / MEBIBYTE:.4g} MiB) is read {one.read / (one.size or 1):.3g} times "
        f"by line {one.source.line}{said}."
    )


def _decided(found: KernelProfile, asked: Sequence[WhatIf]) -> list[Decision]:
    """The decisions that a planner can use, the weightiest first: how many buffers tiles take turns in
    only where more of them would help."""
    more = [one.latency_ms for one in asked if one.subject == "buffers"]
    helps = bool(more) and min(more) < (1 - TELLING) * found.latency_ms
    quiet = QUIET if helps else QUIET | {ROTATION}
    told = [one for one in found.decisions if one.pass_name not in quiet]
    return sorted(told, key=lambda one: (-one.bytes, -one.count))


def _decisions(decisions: Sequence[Decision], sources: Sources) -> str:
    """One row for each thing that was done, with all lines where it was."""
    rows: dict[str, list[int]] = {}
    for one in decisions:
        times = f", {one.count:,} times" if one.count > 1 else ""
        size = f", {one.bytes / MEBIBYTE:.4g} MiB" if one.bytes else ""
        action = sources.named(one.action, one.source)
        lines = rows.setdefault(f"{action}{times}{size}", [])
        if one.source.line not in lines:
            lines.append(one.source.line)
    return "\n".join(
        f"- line{'s' if lines[1:] else ''} {', '.join(map(str, lines))}: {action}"
        for action, lines in [*rows.items()][:MOST_DECISIONS]
    )


def _prices(rows: Sequence[Priced], found: KernelProfile, sources: Sources) -> str:
    spec = found.run.spec
    text = [
        " engine    each      times      ms  instruction (lines); ms takes the engine up, `at work` also "
        "counts until results are there"
    ]
    shown = [row for row in rows if row.busy_ms >= DEAR * found.latency_ms]
    small = [row for row in rows if row not in shown and row.engine != "dma"]
    same: dict[Priced, list[int]] = {}
    for row in shown:
        instruction = sources.named(row.instruction, row.source)
        alike = replace(row, source=NOWHERE, instruction=instruction)
        same.setdefault(alike, []).append(row.source.line)
    for row, lines in [*same.items()][:MOST_PRICES]:
        each = f"{row.nanoseconds:,.0f} ns"
        size = f"{row.partitions}x{row.elements}" + " B" * row.instruction.startswith("spill_")
        where = (
            f"line {lines[0]}" if len(lines) == 1 else f"each of lines {', '.join(map(str, lines))}"
        )
        remark = _remark(row, spec)
        text.append(
            f" {row.engine:7s} {each:>10s} {row.count:8,d} {row.busy_ms:7.3g}  "
            f"{row.instruction} {size} {row.memories}, {where}" + (f"; {remark}" if remark else "")
        )
    if small:
        text.append(
            f" {len(small)} further kinds of instructions: {sum(row.count for row in small):,} times, "
            f"{sum(row.busy_ms for row in small):.3g} ms in all, mostly their fixed cost"
        )
    return "\n".join(text) if shown else ""


def _remark(row: Priced, spec: Hardware) -> str:
    """What is dear about an instruction, and the form that costs less."""
    if row.engine == "dma":
        return _transfer_remark(row, spec)
    if row.engine == "tensor":
        return _product_remark(row, spec)
    if row.instruction in (ARRIVE, WAIT):
        return "cores that wait for each other less often"
    if row.engine == "sync":
        return "of registers; assumed, nothing was measured"
    remarks = []
    fixed = {
        "gpsimd": spec.gpsimd_start_cycles,
        "scalar": spec.access_cycles,
        "vector": spec.vector_access_cycles,
    }[row.engine]
    if row.dynamic:
        least = spec.dynamic_issue_cycles
        least_ns = least / spec.ghz(row.engine)
        remarks.append(
            f"its place is read at run time: {least_ns:.0f} ns at least, whatever its size"
        )
    elif fixed >= FIXED_SHARE * row.cycles:
        fixed_ns = fixed / spec.ghz(row.engine)
        remarks.append(
            f"{fixed_ns:.0f} of {row.nanoseconds:.0f} ns are its fixed cost: wider tiles"
        )
    if row.partitions <= spec.partitions // 2:
        remarks.append(f"{row.partitions} of {spec.partitions} lanes work")
    if row.apart:
        remarks.append(f"neighbours {row.apart} B apart: half the rate of those up to 16 B apart")
    if _faster_from_psum(row, spec):
        remarks.append("half of that with one operand in PSUM")
    return "; ".join(remarks)


def _faster_from_psum(row: Priced, spec: Hardware) -> bool:
    """True where VectorE reads two operands in SBUF one after the other, and one of them would fit
    PSUM, to be read at the same time."""
    alone = 1.5 * spec.vector_cycles_per_element  # from here on two turns an element, not one
    return (
        row.engine == "vector"
        and row.instruction.startswith(("tensor_tensor.", "loop_reduce"))
        and row.memories.startswith("SBUF SBUF")
        and WIDE <= row.elements <= spec.psum_partition_bytes // 4
        and spec.two_input_cycles_per_element > alone
        and row.cycles > alone * row.elements
    )


def _transfer_remark(row: Priced, spec: Hardware) -> str:
    remarks = []
    if row.piece and row.piece < SHORT_PIECE:
        per_engine = row.bytes / row.count / min(spec.dma_engines, -(-row.partitions // 8))
        rate = per_engine / row.nanoseconds / spec.dma_bytes_per_ns
        remarks.append(f"pieces of {row.piece} B: {rate:.0%} of the DMA rate")
    if row.partitions <= spec.partitions // 2:
        engines = -(-row.partitions // spec.dma_partitions_per_engine)
        remarks.append(
            f"{row.partitions} partitions use {engines} of {spec.dma_engines} DMA engines"
        )
    return "; ".join(remarks)


def _product_remark(row: Priced, spec: Hardware) -> str:
    if row.instruction.startswith("broadcast"):
        return "spreads a row over the partitions"
    if row.instruction.startswith("matmul") and 2 * row.partitions <= spec.partitions:
        return f"{row.partitions} of {spec.partitions} rows of the array work: contract over more"
    if row.instruction.startswith("matmul") and row.elements < 256:
        return f"moving only {row.elements} wide: the fixed part weighs {512 // row.elements} times"
    if row.instruction.startswith("matmul") and row.partitions == spec.partitions:
        fp32 = row.elements * spec.fp32_matmul_passes * spec.fp32_matmul_cycles_per_row
        peak = fp32 if row.cycles >= fp32 else row.elements * spec.matmul_cycles_per_row
        helps = (
            "only fewer products help" if row.elements >= WIDEST else "wider ones help, or fewer"
        )
        return f"{peak / spec.ghz('tensor'):,.0f} of {row.nanoseconds:,.0f} ns at the peak rate: {helps}"
    return ""


def _narrow(spec: Hardware) -> str:
    """What VectorE gains by operands and results of 16 bits."""
    if spec.vector_fast_modes:
        return (
            "Copies and tensor_scalar of neighbouring elements in SBUF take half of that, with all of 16 "
            "bits a quarter, tensor_tensor of 16 bits half"
        )
    return (
        "With all of bf16, add, subtract and multiply of two operands from SBUF take one operand's"
    )


def _buffers(spec: Hardware, bounds: CompilerBounds) -> str:
    if not bounds.rewrites:
        return (
            "- Buffers: a tile has as many as SBUF holds. What a product reads is loaded "
            f"{spec.dma_latency_ns / 1e3:.1f} us and its bytes before; making descriptors takes "
            f"{spec.descriptors_ns / 1e3:.2f} us more a transfer, one after the other, and a product "
            "waits for it. Load few wide blocks, and use each for several products."
        )
    return (
        f"- Buffers: the compiler gives a tile that a loop loads {bounds.load_buffers} buffers for each "
        f"one in use (more while all of them take less than {bounds.load_buffer_bytes:,} B a "
        f"partition), a computed one {bounds.computed_buffers}. A load waits until a buffer is free; "
        "wider loads, or several tiles loaded in one iteration, run farther ahead."
    )


def describe_machine(spec: Hardware, dialect: str = "neuronxcc", compiler: str = "") -> str:
    """The machine, what instructions cost on it, and what the front end of a version does, by default the
    dialect's, for a system prompt; from the tables of hardware and of the compiler."""
    compiler = compiler or default_compiler(spec.name, dialect)
    bounds = COMPILERS[compiler]
    vector, two = spec.vector_cycles_per_element, spec.two_input_cycles_per_element
    usable = spec.sbuf_usable_bytes
    looks = ", ".join(f"{name} {n}" for name, n in zip(QUEUE_NAMES, bounds.lookahead, strict=False))
    fp32 = spec.fp32_matmul_passes * spec.fp32_matmul_cycles_per_row
    sizes = ", ".join(f"{size:,} B {piece_rate(size, spec):.0%}" for size in PIECES)
    rows = [
        f"- DMA: {spec.dma_engines} engines, {spec.dma_peak_bytes_per_ns:.0f} GB/s together, between "
        f"HBM and SBUF. {spec.dma_partitions_per_engine} partitions belong to one engine: fewer than "
        f"{spec.partitions} partitions leave engines idle. A transfer starts "
        f"{spec.dma_latency_ns / 1e3:.1f} us after it is asked for. It moves pieces, each the "
        f"contiguous bytes of one partition; pieces that lie apart in HBM reach of the full rate: "
        f"{sizes}; short ones that follow each other there up to twice that. A partition may take several "
        "rows that follow each other as one long piece.",
        f"- SBUF: {spec.partitions} partitions of {usable:,} usable bytes. A tile's first axis is its "
        "partition axis (at most 128), the others lie inside a partition. What does not fit is "
        "spilled to HBM or loaded again by the compiler.",
        _buffers(spec, bounds),
        f"- PSUM: {spec.psum_partition_bytes // spec.psum_bank_bytes} banks of "
        f"{spec.psum_bank_bytes:,} B a partition; a bank holds 512 fp32 and takes the sum of one "
        "chain of matrix products. Adding there is free.",
        f"- Tensor engine, {spec.tensor_ghz} GHz: nc_matmul(stationary, moving) = stationary^T moving, "
        "contraction on the partitions, up to 128x128 by 128x512. In fp32 "
        f"{fp32:.0f} cycles for each moving column (in bf16 {spec.matmul_cycles_per_row:g}), beside "
        f"about {spec.fp32_matmul_passes * (spec.fp32_exposed_load * 128 + spec.matmul_pass_overhead_cycles):.0f} "
        "for loading the stationary tile: 512 columns at a time pay best. A transpose of 128x128 costs "
        "as much as a product with 128 columns, and its result lies in PSUM.",
        f"- Vector engine, {spec.vector_ghz} GHz, 128 lanes: {vector:g} cycle for each element of a "
        f"partition with one operand, {two:g} with two fp32 operands from SBUF, {vector:g} if one of "
        f"them lies in PSUM; reciprocal {spec.reciprocal_cycles_per_element:g}; scan "
        f"{spec.scan_cycles_per_element:g}. {_narrow(spec)}.",
        f"- Scalar engine, {spec.scalar_ghz} GHz, 128 lanes: {spec.scalar_cycles_per_element:g} cycle "
        "an element: func(data * scale + bias) with scale and bias a number or a column (P, 1), and "
        "with activation_reduce the sum over the free axis in the same pass.",
        f"- GpSimd engine, {spec.gpsimd_ghz} GHz: iota and affine_select at "
        f"{spec.gpsimd_cycles_per_element:g} cycle an element; what Vector does as well takes no less "
        f"time here, beside {spec.gpsimd_start_cycles:.0f} cycles fixed; it cannot touch PSUM.",
        "- Order: an engine takes instructions in the order of the program. While one waits it looks at "
        f"the next few only: {looks}. What stands farther back waits too, ready or not.",
        f"- Every instruction of Scalar costs about {spec.access_cycles:.0f} cycles beside its elements, "
        f"at least {spec.minimum_issue_cycles}, every one of Vector {spec.vector_access_cycles:.0f} for "
        "each operand that it reads after another; its result is there "
        f"{spec.engine_latency_ns:.0f} ns later, and another engine hears of it "
        f"{spec.semaphore_ns:.0f} ns after that.",
    ]
    if launch_cores(dialect, spec) > 1:
        rows.append(
            "- Two cores: a line `kernel = NAME[2]` at the end of the file launches NAME on both cores of a "
            "logical core. Each has engines, DMA engines, SBUF and PSUM of its own, one HBM is between "
            "them; `nl.program_id(0)` says which core it is, `nl.num_programs(0)` how many there are. "
            "What one writes to HBM the other touches only behind nisa.core_barrier."
        )
    if spec.vector_gpsimd_exclusive:
        rows.append(
            "- Vector and GpSimd share one port to SBUF: they do not work at the same time."
        )
    if spec.vector_scalar_psum_exclusive:
        rows.append(
            "- Vector and Scalar share one port to PSUM: only one of them reads it at a time."
        )
    return "\n".join(rows)
