"""The two cores of a logical core (LNC 2), or the ranks of a chip: what each of them runs, compiled apart, and
one stream of all.

Each is a NeuronCore with its own engines, DMA engines, SBUF and PSUM ("NeuronCores that share the same
HBM stack", nki.isa.core_barrier of SDK 2.32), and its instructions are a program of their own ("a
NEFF compiled for LNC=2 contains PNC-specific instructions for each", lnc.rst of 2.33). Nothing orders
one core after the other but barriers and exchanges, which begin with a barrier ("the standard DMA
engine with CoreBarrier synchronization", nki.isa.sendrecv).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, Tensor, rewritten
from accelopt.sim.timing.compiler.passes import Compilation
from accelopt.sim.timing.compiler.spilling import Spills
from accelopt.sim.timing.stream.operation import RECEIVE, SEND, WAIT, Decision
from accelopt.sim.timing.stream.stream import Stream


def by_core(program: Program, spec: Hardware) -> list[tuple[Program, frozenset[Tensor]]]:
    """What each core runs, with the HBM that it shares with others in earnest; all of it where
    one core runs everything, or the generation knows no logical cores. Of a copy to the other core's
    SBUF each core has its side. Raises KernelValueError for a tile that both cores use."""
    instructions = [instruction for _, instruction in program.walk()]
    cores = sorted({one.core for one in instructions})
    ranks = any(one.opcode.meets for one in instructions)
    if len(cores) < 2 or not (ranks or spec.generation >= 3):
        return [(program, frozenset())]
    shared, owner = _shared(instructions), _owners(instructions)
    found = []
    for core in cores:
        own = rewritten(program.body, partial(_of_core, core=core, owner=owner))
        body = _with_what_is_sent([*own])
        part = replace(program, body=tuple(body))
        touched = {a.tensor for _, one in part.walk() for a in _accesses(one)}
        tensors = tuple(tensor for tensor in program.tensors if tensor in touched)
        found.append((replace(part, tensors=tensors), shared))
    return found


def _accesses(instruction: Instruction) -> Iterator[Access]:
    for access in (*instruction.inputs.values(), *instruction.outputs.values()):
        yield access
        yield from (item.index for item in access.indirect)


def _shared(instructions: Iterable[Instruction]) -> frozenset[Tensor]:
    """HBM that one core writes and another reads, or that a barrier names."""
    reads: dict[int, set[Tensor]] = defaultdict(set)
    writes: dict[int, set[Tensor]] = defaultdict(set)
    named: set[object] = set()
    for one in instructions:
        if one.opcode.meets:
            named.add(one.attributes.get("tensor"))
        reads[one.core].update(access.tensor for access in one.inputs.values())
        writes[one.core].update(access.tensor for access in one.outputs.values())
    passed: set[Tensor] = set()
    for core, other in itertools.permutations({*reads, *writes}, 2):
        passed |= writes[core] & reads[other]
        both = (reads[core] | writes[core]) & (reads[other] | writes[other])
        passed.update(tensor for tensor in both if tensor.id in named)
    return frozenset(tensor for tensor in passed if not tensor.buffer.on_chip)


def _owners(instructions: Iterable[Instruction]) -> dict[Tensor, int]:
    """The core of each tile: the one that reads it, or writes it with anything but a transfer."""
    found: dict[Tensor, int] = {}
    sent_to: dict[Tensor, int] = {}
    for one in instructions:
        used = [a for a in _accesses(one) if a.tensor.buffer.on_chip]
        for access in used:
            if one.opcode.transfers and access is one.result:
                sent_to.setdefault(access.tensor, one.core)
            elif found.setdefault(access.tensor, one.core) != one.core:
                pair = " and ".join(str(n) for n in sorted((found[access.tensor], one.core)))
                said = f"cores {pair} both use the tile '{access.tensor.name}' of one of them."
                mend = "A core reaches the other's SBUF by nisa.sendrecv alone."
                raise KernelValueError("core_tile", said, mend, one.source)
    return {**sent_to, **found}


def _of_core(node: ProgramNode, core: int, owner: dict[Tensor, int]) -> ProgramNode | None:
    if isinstance(node, Loop):
        return node if node.body else None
    target = owner.get(node.result.tensor, node.core) if node.outputs else node.core
    if target == node.core == core:
        return node
    if node.core == core:
        return replace(node, outputs={})
    return replace(node, inputs={}, core=core) if target == core else None


def _with_what_is_sent(body: list[ProgramNode]) -> list[ProgramNode]:
    """The barrier that begins an exchange knows what has to be there before it."""
    barrier = -1
    for at, node in enumerate(body):
        if isinstance(node, Loop):
            continue
        if node.opcode.meets:
            barrier = at
        elif node.opcode.transfers and not node.outputs and barrier >= 0:
            body[barrier] = replace(body[barrier], inputs=node.inputs)  # type: ignore[arg-type]
    return body


@dataclass
class _Part:
    """Positions of one core's instances up to and with a barrier; -1 where there is none."""

    before: list[int] = field(default_factory=list)  # the last of them tells the other core
    wait: int = -1
    sends: list[int] = field(default_factory=list)  # after the barrier
    receives: list[int] = field(default_factory=list)


def _parts(flow: Stream) -> list[_Part]:
    opcodes = [item.operation.opcode for item in flow.instances]
    found = [_Part()]
    for at, kind in enumerate(flow.kind):
        opcode = opcodes[kind]
        if opcode == WAIT:
            found[-1].wait = at
            found.append(_Part())
        elif opcode not in (SEND, RECEIVE):
            found[-1].before.append(at)
        elif len(found) == 1:
            said = "a core writes into the other's SBUF before the two have met."
            raise KernelValueError("sendrecv", said)
        else:
            (found[-2].sends if opcode == SEND else found[-2].receives).append(at)
    return found


def joined(program: Program, parts: Sequence[Compilation]) -> Compilation:
    """The instances of both cores in one stream, with who waits for whom. Barrier by barrier: what
    each core does before it, the waiting, the exchange that it may be the beginning of, whose two
    sides become one transfer, of the core that sends. Raises KernelValueError where the cores'
    barriers or exchanges are not each other's."""
    if len(parts) == 1:
        return parts[0]
    at = _Join(program, parts)
    ranks = [one for _, one in program.walk() if one.attributes.get("ranks")]
    for source in dict.fromkeys(one.source for one in ranks):
        words = (
            "a collective is priced as its transfers between the cores of a chip, which is assumed"
        )
        at.whole.decisions += [Decision("collective", words, source)]
    for number in range(len(at.parts[0])):
        at.meet([own[number] for own in at.parts])
    return at.result()


class _Join:
    """The stream of both cores, from its beginning."""

    def __init__(self, program: Program, compiled: Sequence[Compilation]) -> None:
        self.compiled = compiled
        self.parts = [_parts(one.stream) for one in compiled]
        if len({len(parts) for parts in self.parts}) > 1:
            said = "one core comes to more barriers than the other, and would wait for ever."
            raise KernelValueError("core_barrier", said)
        self.whole = Compilation(program, compiled[0].spec, compiled[0].bounds)
        self.whole.costs = []
        flows = [one.stream for one in compiled]
        self.kinds = [0, *itertools.accumulate(len(flow.instances) for flow in flows)]
        self.cells = [0, *itertools.accumulate(len(flow.cell_unit) for flow in flows)]
        self.stream = Stream([one for flow in flows for one in flow.instances])
        self.stream.core = [core for core, flow in enumerate(flows) for _ in flow.instances]
        self.place: list[dict[int, int]] = [{} for _ in flows]  # where each one's instances are now
        self.touching = [_touches(flow) for flow in flows]
        self.passed: list[int] = []  # each core's part of the last barrier

    def meet(self, parts: list[_Part]) -> None:
        """One barrier, or the end."""
        signals = self.whole.signals
        arrived = []
        for core, part in enumerate(parts):
            earlier = []
            for position in part.before:
                at = self.add(core, position)
                if self.touching[core][self.compiled[core].stream.kind[position]]:
                    earlier.append(at)
                    if self.passed:
                        signals[at] = [self.passed[core]]
            if part.wait >= 0:
                arrived.append(at)
                signals[at] = earlier
        if arrived:
            self.passed = [self.add(core, part.wait) for core, part in enumerate(parts)]
            signals.update(dict.fromkeys(self.passed, arrived))
        for core, part in enumerate(parts):
            if core ^ 1 < len(parts):
                self.exchange(core, part.sends, parts[core ^ 1].receives)

    def exchange(self, core: int, sends: list[int], receives: list[int]) -> None:
        """What a core sends, as one transfer."""
        if len(sends) != len(receives):
            raise KernelValueError("sendrecv", f"core {core ^ 1} does not receive what is sent.")
        other = self.compiled[core ^ 1].stream
        for sent, received in zip(sends, receives, strict=True):
            at = self.add(core, sent)
            self.place[core ^ 1][received] = at
            self.stream.writes[at] = [
                cell + self.cells[core ^ 1] for cell in other.writes[received]
            ]
            self.whole.signals[at] = self.passed

    def add(self, core: int, position: int) -> int:
        """Appends an instance of a core; returns its place."""
        one, flow = self.compiled[core].stream, self.stream
        at = self.place[core][position] = len(flow)
        cells = self.cells[core]
        flow.kind.append(one.kind[position] + self.kinds[core])
        flow.row.append(one.row[position])
        flow.reads.append([cell + cells for cell in one.reads[position]])
        flow.writes.append([cell + cells for cell in one.writes[position]])
        self.whole.costs.append(self.compiled[core].costs[position])
        return at

    def result(self) -> Compilation:
        """Everything else, renumbered."""
        whole, flow = self.whole, self.stream
        spills: list[Spills] = []
        drained: set[int] = set()
        for core, one in enumerate(self.compiled):
            units, sites, place = len(flow.units), len(flow.sites), self.place[core]
            flow.units += [replace(u, site=u.site + sites, core=core) for u in one.stream.units]
            flow.cell_unit += [unit + units for unit in one.stream.cell_unit]
            flow.cell_weight += one.stream.cell_weight
            flow.sites += one.stream.sites
            whole.decisions += one.decisions
            spills += one.spills.values()
            drained.update(place[at] for at in one.drained)
            for at, others in one.behind.items():
                whole.behind[place[at]] = [place[other] for other in others]
        whole.stream, whole.drained = flow, frozenset(drained)
        whole.spills = dict(enumerate(spills))
        whole.spilled = frozenset(c for c, one in enumerate(self.compiled) if one.spills)
        return whole


def _touches(flow: Stream) -> list[bool]:
    """Of each of its operations, whether it uses HBM that the cores share."""
    return [
        any(a.tensor in flow.shared for a in item.operation.accesses) for item in flow.instances
    ]
