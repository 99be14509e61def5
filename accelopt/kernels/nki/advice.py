"""What to change first in a kernel, where, and what that would give.

Each piece of advice names a mechanism that costs time (partitions that carry nothing, an instruction that
a neighbour could do on its way, bytes that are read again), and the lines where it does. What it would give
is simulated: the same instructions scheduled once more with that changed, or a kernel that was really
written another way. `accelopt profile`, prompts and the bench show the same list.
"""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.functions import FUNCTIONS
from accelopt.hardware import Hardware
from accelopt.kernels.nki.problem_bound import launch_cores
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.access import Access, Tensor
from accelopt.sim.errors import SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.isa import movement, reductions
from accelopt.sim.operators import UNARY
from accelopt.sim.program import Buffer
from accelopt.sim.timing import UNRESOLVED, KernelProfile
from accelopt.sim.timing.machine.pricing import engine_cycles, is_slow, is_transpose, price
from accelopt.sim.timing.machine.transfers import Transfer
from accelopt.sim.timing.occupancy import MemoryUse
from accelopt.sim.timing.rereads import Reread, rereads
from accelopt.sim.timing.stream.operation import (
    QUEUE_NAMES,
    SPILL_RELOAD,
    SPILL_SAVE,
    Operation,
    Queue,
)
from accelopt.sim.timing.what_if import WhatIf, issued_in_turn, on_engine, scaled

MOST = 5
LEAST = 0.02  # of the time: what gives less is no advice
MOST_DOUBTFUL = 2  # changes that give less than the timing tells apart, where nothing gives more
WORTH_ASKING = 0.01  # of the time that engines work: what saves less of it is not simulated
INSTANCES = 250_000
"""Instructions that are scheduled again in all to answer questions, beside those of a few questions."""
FEWEST = 4
FIXED_SHARE = 0.3  # of an instruction's cycles: from there on wider ones pay
WIDE = 512  # elements a partition, or columns of a product, from which on an instruction is wide
LONG_PIECES = (2048, 4096, 8192)  # bytes of a transfer's pieces
NEAR = 0.9  # of the rate of DMA, from which on pieces are long
MOST_LINES = 4
MOST_MOVED = 24  # kinds of work that another engine is asked for
WIDTH = 80
SIXTEEN_BIT = 2
NAMES = {Queue.VECTOR: "Vector", Queue.SCALAR: "Scalar", Queue.GPSIMD: "GpSimd"}
ENGINE_QUEUES = (Queue.VECTOR, Queue.SCALAR, Queue.GPSIMD)
BY_SCALE_AND_BIAS = frozenset({"multiply", "add", "subtract"})
KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
NONE = "None of the edits that are simulated gives 2% or more alone."
BY_RULE, BY_HAND = "written by rule", "what-if"
HOW_SURE = {
    BY_HAND: "What-if: the same instructions scheduled again with that changed alone; the edit is by hand, and "
    "may give more or less.",
    BY_RULE: "Written by rule: there is such a kernel; it was simulated and is not judged yet.",
}


class Rewrite(NamedTuple):
    """A kernel that computes the same another way, what it does differently in words, and its simulated
    latency in ms."""

    change: str
    source: str
    latency_ms: float


class Advice(NamedTuple):
    """A change in words, the source lines that it concerns (none: the whole kernel), and the kernel's
    simulated latency in ms without and with it. `source` is the kernel with the change where one was
    written; elsewhere the latency is that of the same instructions with the change."""

    change: str
    lines: tuple[int, ...]
    before_ms: float
    after_ms: float
    source: str = ""

    @property
    def gain(self) -> float:
        """The part of the latency that it saves."""
        return 1 - self.after_ms / self.before_ms


class _Question(NamedTuple):
    """A change, and the part of their time that operations then take; with a `queue` they are done
    there. `answer` is the latency where it is known already."""

    change: str
    factors: Mapping[Operation, float]
    queue: Queue | None = None
    answer: float | None = None
    lines: tuple[int, ...] = ()
    mechanism: str = ""

    def told_by(self, other: _Question) -> bool:
        """Whether `other` says the same of these instructions, and perhaps of more."""
        mine = self.factors.keys()
        return bool(mine) and self.mechanism == other.mechanism and mine <= other.factors.keys()


class _Work(NamedTuple):
    """All instances of one operation: how many, the ns that each takes of its engine, and of transfers
    the price of the first."""

    operation: Operation
    times: int
    ns: float
    transfer: Transfer | None

    @property
    def total_ns(self) -> float:
        return self.times * self.ns


def advice(
    found: KernelProfile,
    asked: Sequence[WhatIf] = (),
    memory: Sequence[MemoryUse] = (),
    rewrite: Rewrite | None = None,
) -> tuple[Advice, ...]:
    """At most five changes, the one that gives most first. `asked` are what-ifs that were answered
    already, `memory` what the kernel holds on the chip, and `rewrite` a kernel that was written."""
    now = found.latency_ms
    asking: list[tuple[_Question, float]] = []
    with collector_paused():
        for question in _Mechanisms(found, asked, memory).questions():
            after = question.answer
            if after is None and question.queue is not None:
                after = on_engine(found, frozenset(question.factors), question.queue)
            elif after is None:
                after = scaled(found, lambda operation: question.factors.get(operation, 1.0))  # noqa: B023
            asking.append((question, after))
    asking.sort(key=lambda pair: round(pair[1], 9))
    made = [Advice(r.change, (), now, r.latency_ms, r.source) for r in (rewrite,) if r]
    for at, (question, after) in enumerate(asking):
        if not any(question.told_by(better) for better, _ in asking[:at]):
            made.append(Advice(question.change, question.lines, now, after))
    made.sort(key=lambda one: (round(one.after_ms, 9), not one.source))
    told = [one for one in made if one.gain >= UNRESOLVED][:MOST]
    return tuple(told or [one for one in made if one.gain >= LEAST][:MOST_DOUBTFUL])


def advice_text(found: Sequence[Advice]) -> str:
    """The list in words, numbered, with times in ms."""
    if not found:
        return NONE
    rows = [f"What to change first, each alone ({found[0].before_ms:.4g} ms now):"]
    for number, one in enumerate(found, 1):
        sure = BY_RULE if one.source else BY_HAND
        doubt = ", less than the timing tells apart" if one.gain < UNRESOLVED else ""
        said = f"{one.before_ms:.4g} to {one.after_ms:.4g} ms {sure}{doubt}: {one.change}."
        rows += textwrap.wrap(
            said, WIDTH, initial_indent=f"{number:2d}. ", subsequent_indent=" " * 4
        )
    kinds = [bool(one.source) for one in found]
    ends = [HOW_SURE[BY_HAND]] * (False in kinds) + [HOW_SURE[BY_RULE]] * (True in kinds)
    return "\n".join([*rows, *textwrap.wrap(" ".join(ends), WIDTH)])


class _Mechanisms:
    """What costs time in a kernel for a reason that an edit can take away."""

    def __init__(
        self, found: KernelProfile, asked: Sequence[WhatIf], memory: Sequence[MemoryUse]
    ) -> None:
        self.found = found
        self.asked = asked
        self.memory = memory
        self.spec: Hardware = found.run.spec
        self.sources = Sources()

    def questions(self) -> list[_Question]:
        """Those that can save most of what engines work, as many as there is time for."""
        mechanisms = (
            self._partitions, self._wider, self._products, self._transposes, self._engines, self._reread,
            self._through_hbm, self._short_rows, self._on_the_way, self._narrower,
            self._buffers, self._cores,
        )  # fmt: skip
        every = [
            question._replace(mechanism=mechanism.__name__)
            for mechanism in mechanisms
            for question in mechanism()
        ]
        busy = max(self.found.occupancy.values()) * self.found.latency_ms * 1e6

        def saved(question: _Question) -> float:
            if question.answer is not None:
                return busy
            if question.queue is not None:
                return sum(self._total[operation] for operation in question.factors)
            return sum(self._total[one] * (1 - part) for one, part in question.factors.items())

        worth = [one for one in every if saved(one) >= WORTH_ASKING * busy]
        most = FEWEST + INSTANCES // max(len(self.found.run.stream), 1)
        return sorted(worth, key=saved, reverse=True)[:most]

    @cached_property
    def _works(self) -> list[_Work]:
        run = self.found.run
        count = Counter(run.stream.kind)
        first: dict[int, Transfer] = {}
        moved: dict[int, float] = defaultdict(float)
        for kind, cost in zip(run.stream.kind, run.costs, strict=True):
            if cost is not None:
                first.setdefault(kind, cost)
                moved[kind] += cost.engine_ns
        return [
            _Work(
                item.operation,
                count[kind],
                moved[kind] / count[kind]
                if kind in first
                else price(item.form, self.spec).issue_ns,
                first.get(kind),
            )
            for kind, item in enumerate(run.stream.instances)
            if count[kind]
        ]

    @cached_property
    def _total(self) -> dict[Operation, float]:
        """The ns that all instances of each operation take."""
        return {one.operation: one.total_ns for one in self._works}

    @cached_property
    def _loop(self) -> dict[Operation, SourceLine | None]:
        """Where the innermost loop around each operation stands."""
        return {
            item.operation: item.loops[-1].source if item.loops else None
            for item in self.found.run.stream.instances
        }

    @cached_property
    def _computing(self) -> list[_Work]:
        """What Vector, Scalar and GpSimd engine do."""
        return [one for one in self._works if one.operation.queue in ENGINE_QUEUES]

    @cached_property
    def _times(self) -> Counter[tuple[SourceLine, str]]:
        """How often each line does each kind of work: what Python unrolled counts together."""
        times: Counter[tuple[SourceLine, str]] = Counter()
        for one in self._works:
            times[_key(one.operation)] += one.times
        return times

    def _joined(self, work: _Work, most: int) -> int:
        """How many instances one could do the work of."""
        return max(1, min(most, self._times[_key(work.operation)]))

    def _asking(
        self, change: str, factors: Mapping[Operation, float], **given: object
    ) -> _Question:
        """`change` with the lines, those first that take most, in place of `{lines}`."""
        busy: dict[int, float] = defaultdict(float)
        for operation in factors:
            busy[operation.source.line] += self._total[operation]
        lines = tuple(sorted(busy, key=lambda line: -busy[line]))
        return _Question(
            change.format(lines=_lines(lines), does="does" if len(lines) == 1 else "do", **given),
            factors,
            lines=lines,
        )

    def _partitions(self) -> Iterator[_Question]:
        """Instructions on few partitions that follow each other."""
        groups: dict[int, dict[Operation, float]] = defaultdict(dict)
        for one in (*self._computing, *(w for w in self._works if w.transfer)):
            most = self.spec.partitions // one.operation.partitions
            if one.operation.opcode in (SPILL_SAVE, SPILL_RELOAD) or most < 2:
                continue
            joined = self._joined(one, most)
            if joined > 1:
                groups[one.operation.partitions][one.operation] = 1 / joined
        for partitions, factors in groups.items():
            yield self._asking(
                "fill the partitions: {now} of {all} carry work in {lines}; lay what several of their "
                "iterations do side by side on partitions",
                factors, now=partitions, all=self.spec.partitions,
            )  # fmt: skip

    def _wider(self) -> Iterator[_Question]:
        """Instructions of few elements, which take mostly what any instruction takes."""
        groups: dict[SourceLine | None, dict[Operation, float]] = defaultdict(dict)
        narrow: dict[SourceLine | None, list[tuple[float, int, float]]] = defaultdict(list)
        for one in self._computing:
            elements, fixed = engine_cycles(one.operation, self.spec)
            wide = max(one.operation.wide, 1)
            if fixed < FIXED_SHARE * (elements + fixed) or wide >= WIDE:
                continue
            joined = self._joined(one, WIDE // wide)
            if joined < 2:
                continue
            key = self._loop[one.operation]
            part = (elements * joined + fixed) / (joined * (elements + fixed))
            groups[key][one.operation] = part
            narrow[key].append((one.total_ns, wide, fixed / (elements + fixed)))
        for key, factors in groups.items():
            _, wide, share = max(narrow[key])
            within = f" of the loop at line {key.line}" if key else ""
            yield self._asking(
                "make instructions wider: {lines} {does} {wide} elements a partition at a time, and {share:.0%} "
                "of that is an instruction's fixed cost; take several iterations{within} in one",
                factors, wide=wide, share=share, within=within,
            )  # fmt: skip

    def _products(self) -> Iterator[_Question]:
        """Products that leave rows or columns of the array idle, or stream few columns."""
        spec = self.spec
        rows, columns, moving = (defaultdict[int, dict[Operation, float]](dict) for _ in range(3))
        for one in self._works:
            operation = one.operation
            if not operation.opcode.product or is_transpose(operation):
                continue
            contracted = operation.reads[0].partitions
            stationary = operation.reads[0].free_elements
            width = operation.reads[-1].free_elements
            for groups, size in ((rows, contracted), (columns, stationary)):
                times = spec.partitions // size
                if times > 1 and (n := self._joined(one, times)):
                    groups[size][operation] = 1 / n
            n = self._joined(one, WIDE // width) if width < WIDE else 1
            if n > 1:
                slow = is_slow(operation)
                each = spec.matmul_cycles(width, stationary, slow)
                part = spec.matmul_cycles(width * n, stationary, slow) / (n * each)
                moving[width][operation] = part
        contract = "contract over more at once: {lines} {does} products over {size} of the array's {all} rows"
        widen = (
            "make the stationary tile wider: {lines} {does} products of {size} of {all} columns; let the "
            "operands change places, or take more of them at once"
        )
        stream = (
            "stream more columns a product: {lines} {does} {size} at a time, where {all} share one load "
            "of the stationary tile"
        )
        parts = spec.partitions
        for change, found, most in (
            (contract, rows, parts),
            (widen, columns, parts),
            (stream, moving, WIDE),
        ):
            for size, factors in found.items():
                yield self._asking(change, factors, size=size, all=most)

    def _transposes(self) -> Iterator[_Question]:
        factors = {one.operation: 0.0 for one in self._works if is_transpose(one.operation)}
        if factors:
            yield self._asking(
                "do without the transposes of {lines}: load or compute the operand with its summed axis on "
                "partitions, or let the operands of the product change places",
                factors,
            )

    def _engines(self) -> Iterator[_Question]:
        """Costly work that an engine with less to do can do as well: of one line, and of all alike."""
        alike: dict[tuple[SourceLine | None, str, Queue], list[_Work]] = defaultdict(list)
        for one in self._computing:
            line, label = _key(one.operation)
            alike[line, label, one.operation.queue].append(one)
            alike[None, label, one.operation.queue].append(one)
        busy = self.found.occupancy
        costly = sorted(alike.items(), key=lambda item: -sum(w.total_ns for w in item[1]))
        for (source, label, queue), works in costly[:MOST_MOVED]:
            if source is None and len({w.operation.source for w in works}) < 2:
                continue
            own = QUEUE_NAMES[queue]
            able = {str(engine) for engine in works[0].operation.opcode.engines}
            reduces = works[0].operation.opcode is reductions.TENSOR_REDUCE
            adds = reduces and _ops(works[0].operation) in (["add"], ["mean"])
            if reduces:  # nki.isa.tensor_reduce has no argument for its engine
                able = {"scalar"} if adds else set()
            for other in ENGINE_QUEUES:
                name = QUEUE_NAMES[other]
                if name not in able or other is queue or busy[name] >= busy[own]:
                    continue
                if other is Queue.GPSIMD and any(_in_psum(w.operation) for w in works):
                    continue
                asked = self._asking(
                    "give {label} of {lines} to the {name} engine{how}, which works {now:.0%} of the time, "
                    "where {own} works {then:.0%}",
                    {w.operation: 1.0 for w in works},
                    label=label, name=NAMES[other],
                    how=" (activation_reduce of a copy)" if adds and other is Queue.SCALAR else "", now=busy[name], own=NAMES[queue],
                    then=busy[own],
                )  # fmt: skip
                yield asked._replace(queue=other)

    def _reread(self) -> Iterator[_Question]:
        """Inputs of which bytes are read again."""
        by_tensor: dict[str, list[Reread]] = defaultdict(list)
        for one in rereads(self.found):
            by_tensor[one.tensor].append(one)
        arguments = frozenset(self.found.run.program.arguments)
        for name, reads in by_tensor.items():
            total, size = sum(one.read / one.spread for one in reads), reads[0].size
            again = any(one.blind or one.displaced for one in reads)
            each = 1 if again else self.found.run.stream.cores  # no core sees what another one has
            if total <= each * size * (1 + LEAST):
                continue
            loads = [
                one.operation
                for one in self._works
                if one.transfer
                and one.operation.reads
                and one.operation.reads[0].tensor in arguments
                and one.operation.reads[0].tensor.name == name
            ]
            blind = {place.line: trips for one in reads for place, trips in one.blind}
            where = ", ".join(
                f"line {line} ({trips:,} times)" for line, trips in sorted(blind.items())
            )
            how = f"move its load out of the loop of {where}" if where else "keep it in SBUF"
            yield self._asking(
                "load {name} once: {lines} {does} it {times:.3g} times; {how}{room}",
                dict.fromkeys(loads, size / total),
                name=name, times=total / (size or 1), how=how, room=self._room(size * max(one.spread for one in reads)),
            )  # fmt: skip

    def _room(self, size: int) -> str:
        """What keeping so many bytes takes of SBUF."""
        sbuf = next((one for one in self.memory if one.memory.startswith("SBUF")), None)
        if sbuf is None:
            return ""
        each = -(-size // self.spec.partitions)
        free = max(0, sbuf.capacity - sbuf.peak)
        fits = "fits" if each <= free else "does not fit: keep what an outer loop works on"
        return f"; all of it, {each / KIBIBYTE:.3g} KiB a partition, {fits} ({free / KIBIBYTE:.3g} are free)"

    def _through_hbm(self) -> Iterator[_Question]:
        """Values that leave the chip and come back: the kernel's own, and what is spilled."""
        program = self.found.run.program
        known = {*program.arguments, *(tensor for tensor in program.results if tensor is not None)}
        own: dict[Tensor, dict[Operation, float]] = defaultdict(dict)
        spilled: dict[Operation, float] = {}
        for one in self._works:
            if one.transfer is None:
                continue
            if one.operation.opcode in (SPILL_SAVE, SPILL_RELOAD):
                spilled[one.operation] = 0.0
                continue
            for access in one.operation.accesses:
                tensor = access.tensor
                if not tensor.buffer.on_chip and tensor not in known and tensor.data is None:
                    own[tensor][one.operation] = 0.0
        for tensor, factors in own.items():
            yield self._asking(
                "keep {name} on the chip: {lines} {does} nothing but carry it to HBM and back",
                factors, name=self.sources.name(tensor.name, tensor.source),
            )  # fmt: skip
        if spilled:
            largest = max(self.found.spills, key=lambda moved: moved.saved + moved.reloaded)
            yield self._asking(
                "hold less on the chip at a time: {name} of line {at} is spilled to HBM and comes back; use "
                "it sooner, or work on a part of the columns at a time",
                spilled, name=self.sources.name(largest.tensor, largest.source), at=largest.source.line,
            )  # fmt: skip

    def _short_rows(self) -> Iterator[_Question]:
        """Transfers of short pieces, of which each costs a descriptor: those of one length in one loop, which
        one edit makes longer. Rows at numbers known at run time are as long as they are."""
        spec = self.spec
        long_enough = (size for size in LONG_PIECES if piece_rate(size, spec) >= NEAR)
        wanted = next(long_enough, LONG_PIECES[-1])
        alike: dict[tuple[SourceLine | None, int], dict[Operation, float]] = defaultdict(dict)
        for one in self._works:
            cost = one.transfer
            if (
                cost is None
                or not cost.descriptors
                or one.operation.opcode in (SPILL_SAVE, SPILL_RELOAD)
                or any(a.indirect for a in one.operation.accesses)
            ):
                continue
            piece = cost.moved // cost.descriptors
            if 0 < piece < wanted:
                needed = cost.bytes / cost.engines / spec.dma_bytes_per_ns
                long = wanted / spec.dma_bytes_per_ns
                needed *= (long + 2 * spec.dma_buffer_ns) / long
                alike[self._loop[one.operation], piece][one.operation] = min(
                    1.0, needed / (one.ns or 1.0)
                )
        edits: dict[tuple[frozenset[int], int], dict[Operation, float]] = defaultdict(dict)
        for (_, piece), factors in alike.items():
            edits[frozenset(operation.source.line for operation in factors), piece].update(factors)
        for (_, piece), factors in edits.items():
            yield self._asking(
                "move longer pieces: {lines} {does} {piece:,} B at a time; from {long:,} B that follow each "
                "other in HBM on DMA nears its rate (whole rows, or several rows a partition)",
                factors, piece=piece, long=wanted,
            )  # fmt: skip

    def _on_the_way(self) -> Iterator[_Question]:
        """Instructions that the one before or after does in the same pass."""
        readers: dict[Tensor, set[tuple[SourceLine, str]]] = defaultdict(set)
        writers: dict[Tensor, set[tuple[SourceLine, str]]] = defaultdict(set)
        works: dict[tuple[SourceLine, str], list[_Work]] = defaultdict(list)
        for one in self._works:
            key = _key(one.operation)
            works[key].append(one)
            for access in one.operation.reads:
                readers[access.tensor].add(key)
            for access in one.operation.writes:
                writers[access.tensor].add(key)
        for key, own in works.items():
            operation = own[0].operation
            if operation.queue not in ENGINE_QUEUES or not operation.writes:
                continue
            if operation.opcode is reductions.TENSOR_REDUCE:
                made = writers[operation.reads[0].tensor]
                before = works[next(iter(made))][0].operation if len(made) == 1 else None
                if before is not None and _sums_on_the_way(before, operation):
                    yield self._dropped(
                        own, f"let {before.opcode} of line {before.source.line} add up on its way what "
                        "{lines} {does} afterwards (its reduction over the free axes)",
                    )  # fmt: skip
                continue
            after_keys = readers[operation.writes[0].tensor] - {key}
            if len(after_keys) != 1 or len(writers[operation.writes[0].tensor]) != 1:
                continue
            behind = works[next(iter(after_keys))]
            if how := _taken_over(operation, behind[0].operation):
                yield self._dropped(own, how)
            if name := _of_its_operand(operation, behind[0].operation):
                yield self._dropped(
                    behind, f"let line {operation.source.line} compute {name}, one function of the Scalar "
                    f"engine, in place of {_ops(operation)[0]} and the product of {{lines}}",
                )  # fmt: skip

    def _dropped(self, works: Iterable[_Work], change: str) -> _Question:
        return self._asking(change, {work.operation: 0.0 for work in works})

    def _narrower(self) -> Iterator[_Question]:
        """Work in a wider format than every input has."""
        inputs = [t.dtype for t in self.found.run.program.arguments if t.dtype.kind not in "iub"]
        if not inputs or any(dtype.itemsize != SIXTEEN_BIT for dtype in inputs):
            return
        factors: dict[Operation, float] = {}
        for one in self._works:
            operation = one.operation
            takes = operation.opcode.product or operation.opcode.elementwise
            if one.transfer or not takes or not any(a.dtype.itemsize == 4 for a in operation.reads):
                continue
            narrow = replace(
                operation,
                reads=tuple(_as(access, inputs[0]) for access in operation.reads),
                writes=operation.writes
                if operation.opcode.product
                else tuple(_as(access, inputs[0]) for access in operation.writes),
            )
            part = price(narrow, self.spec).issue_ns / (one.ns or 1.0)
            if part < 1:
                factors[operation] = part
        if factors:
            yield self._asking(
                "work in {format}, the inputs' own format: {lines} {does} fp32, which takes longer",
                factors, format=inputs[0].name,
            )  # fmt: skip

    def _buffers(self) -> Iterator[_Question]:
        """Loads that wait for a place in SBUF, and transfers that wait for their descriptors."""
        loads = {
            one.operation.source
            for one in self._works
            if one.transfer and not one.operation.is_store
        }
        for asked in self.asked:
            if asked.subject == "descriptors":
                works = [w for w in self._works if issued_in_turn(w.operation, self.found)]
                question = self._asking(
                    "let no transfer of {lines} wait for its descriptors, which software makes one transfer after the "
                    "other: dge_mode=nisa.dge_mode.none has them made before the run; fewer, larger transfers help too",
                    {work.operation: 0.0 for work in works},
                )
                yield question._replace(factors={}, answer=asked.latency_ms)
            name = {"buffers": "rotate_buffers", "sbuf": "separate_rounds"}.get(asked.subject, "")
            decided = [d.source for d in self.found.decisions if name and d.pass_name == name]
            lines = tuple(dict.fromkeys(s.line for s in decided if s in loads))
            if not lines:
                continue
            if asked.subject == "buffers":
                how = "let the loads of {lines} run farther ahead: their tiles take turns in few buffers; load several tiles an iteration"
            else:
                how = "let the loads of {lines} overlap the iteration before: two iterations do not fit SBUF; work on part of the columns at a time"
            change = how.format(lines=_lines(lines))
            yield _Question(change, {}, answer=asked.latency_ms, lines=lines)

    def _cores(self) -> Iterator[_Question]:
        """Work that the other core of a launch could do half of."""
        run = self.found.run
        most = launch_cores(run.program.dialect, self.spec)
        if 1 == run.stream.cores < most and any(item.loops for item in run.stream.instances):
            change = (
                "share the work between the two cores of a launch: the kernel as kernel[2], each core with "
                "half of the iterations by nl.program_id(0) (`accelopt optimize --lnc 2` looks for it); what "
                "both load saves less"
            )
            yield _Question(change, {work.operation: 1 / most for work in self._works})


def piece_rate(size: int, spec: Hardware) -> float:
    """The part of the DMA rate that pieces of `size` bytes reach that do not follow each other."""
    strided = min(spec.dma_strided_ns, spec.dma_strided_ns_per_byte * size)
    row = size / spec.dma_bytes_per_ns
    return row / (2 * spec.dma_buffer_ns + max(row, strided))


def _key(operation: Operation) -> tuple[SourceLine, str]:
    """Operations of one line that do the same."""
    return operation.source, operation.label or operation.opcode


def _in_psum(operation: Operation) -> bool:
    return any(a.tensor.buffer is Buffer.PSUM for a in operation.accesses)


def _as(access: Access, dtype: np.dtype) -> Access:
    return replace(access, dtype=dtype) if access.dtype.itemsize == 4 else access


def _ops(operation: Operation) -> list[str]:
    """What a tensor_scalar or the like does, in order."""
    named = [operation.attributes.get(name) for name in ("op", "op0", "op1")]
    return [str(one) for one in named if one is not None]


def _sums_on_the_way(before: Operation, reduction: Operation) -> bool:
    """Whether an instruction can add up what it writes, in place of a reduction over its free axes."""
    if not before.opcode.elementwise or "reduce_result" not in before.opcode.outputs:
        return False
    if len(before.writes) > 1 or _ops(reduction) not in (["add"], ["max"], ["maximum"]):
        return False
    return not _scales(before) or _ops(reduction) == ["add"]


def _scales(operation: Operation) -> bool:
    """Whether it is a function of its operand times a scale and more a bias."""
    return {"scale", "bias"} <= {*operation.opcode.inputs}


def _by_scalars(operation: Operation) -> bool:
    """Whether it takes a tile with up to two numbers or columns, one after the other."""
    return {"operand0", "operand1"} <= {*operation.opcode.attributes}


def _taken_over(operation: Operation, after: Operation) -> str:
    """How the only reader of what an instruction writes does its work too; empty where it does not."""
    line = after.source.line
    if operation.opcode is movement.COPY:
        reads = operation.reads[0]
        if reads.tensor.buffer is Buffer.PSUM and after.queue in (Queue.VECTOR, Queue.SCALAR):
            return f"let line {line} read from PSUM what {{lines}} {{does}} first, a copy to SBUF"
        return ""
    if not _by_scalars(operation) or len(_ops(operation)) != 1:
        return ""
    if operation.attributes.get("reverse0"):
        return ""
    simple = _ops(operation)[0] in BY_SCALE_AND_BIAS
    same = line == operation.source.line
    both = f"do both steps of line {line}" if same else f"do {{lines}} and line {line}"
    if _scales(after) and simple and "bias" not in _operands(after):
        return (
            f"let {after.label} of line {line} take what {{lines}} {{does}} as its scale or bias "
            "(func(data * scale + bias) is one pass)"
        )
    if {*after.opcode.inputs} == {"data1", "data2"} and after.queue is Queue.VECTOR:
        return f"{both} in one scalar_tensor_tensor: (data op0 operand0) op1 operand1"
    if _by_scalars(after) and len(_ops(after)) == 1:
        return f"{both} in one tensor_scalar with op0 and op1"
    return ""


SAMPLES = np.linspace(-6, 6, 49)


def _of_its_operand(operation: Operation, after: Operation) -> str:
    """The function of ScalarE that a function is times its own operand: silu of sigmoid; empty where there
    is none, or the product is another."""
    if not _scales(operation) or operation.attributes.get("scale", 1.0) != 1.0:
        return ""
    mine = {(access.tensor, access.offset) for access in operation.accesses}
    product = {(access.tensor, access.offset) for access in after.reads}
    if len(operation.reads) != 1 or _ops(after) != ["multiply"] or mine != product:
        return ""
    [name] = _ops(operation)
    if name not in FUNCTIONS:
        return ""
    with np.errstate(all="ignore"):
        wanted = SAMPLES * FUNCTIONS[name](SAMPLES)
        known = [one for one in sorted(UNARY & FUNCTIONS.keys()) if one != name]
        same = [one for one in known if np.allclose(FUNCTIONS[one](SAMPLES), wanted)]
    return same[0] if same else ""


def _operands(operation: Operation) -> frozenset[str]:
    return frozenset(operation.instruction.inputs if operation.instruction else ())


def _lines(lines: Sequence[int]) -> str:
    """`lines 12, 14 and 2 more`."""
    shown = ", ".join(map(str, lines[:MOST_LINES]))
    more = f" and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
    return f"line{'s' if len(lines) > 1 else ''} {shown}{more}"
