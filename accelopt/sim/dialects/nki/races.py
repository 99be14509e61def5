"""What two cores of a logical core do to the same elements of HBM while nothing orders them.

Between two meetings (nisa.core_barrier, nisa.sendrecv) the cores run as fast as they can (SDK 2.33,
nisa.core_barrier: "both cores need to consume the tensor after both cores have finished writing"). An
element that one of them writes and the other reads then has one value or the other. Two writes of
the same value are harmless: whether it is the same is told by what was computed from what.

A race is told only where the addresses prove it; run-time indices, indices of loops on the device and
masks are passed over. Of a loop that is traced once each use counts with all its iterations.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.linear import row_major
from accelopt.sim.access import Access, Tensor
from accelopt.sim.affine import Affine, LoopVariable, Term
from accelopt.sim.errors import KernelError, KernelValueError
from accelopt.sim.mask import Mask
from accelopt.sim.program import Instruction, ProgramNode, is_dynamic, walk

MOST_RUNS = 1 << 22
"""Of one core and tensor between two meetings: with more, the tensor is passed over."""


COMMUTATIVE = ("add", "multiply", "maximum", "minimum")


class _Use(NamedTuple):
    """One access of HBM; `value` says what a write puts there, 0 is a read."""

    instruction: Instruction
    access: Access
    value: int
    known: bool  # where it is, when the kernel is compiled


class _Held(dict[Tensor, int]):
    """What tensors hold; one that nobody has written yet, by its form and what it begins with."""

    def __init__(self, common: Container[Tensor]) -> None:
        super().__init__()
        self._common = common

    def __missing__(self, tensor: Tensor) -> int:
        known = tensor.id if tensor in self._common else None
        data = None if tensor.data is None else tensor.data.tobytes()
        self[tensor] = hash((tensor.shape, tensor.dtype, tensor.fill, data, known))
        return self[tensor]


class Values:
    """What one core has put into its tensors so far, as numbers: equal ones were computed by the same
    instructions from the same elements. `common` are the tensors that all cores have."""

    def __init__(self, common: Container[Tensor]) -> None:
        self.held = _Held(common)
        self._names: dict[LoopVariable, int] = {}
        self.unclear: set[LoopVariable] = set()  # must be numbers to tell where a use is

    def uses(self, nodes: Sequence[ProgramNode]) -> dict[Tensor, list[_Use]]:
        """The uses of HBM in these nodes, which follow those before, in the order of the program."""
        found: dict[Tensor, list[_Use]] = defaultdict(list)
        for loops, instruction in walk(nodes):
            if instruction.opcode.meets:
                continue
            counts = tuple(
                (one.variable.start, one.variable.step, one.variable.trips) for one in loops
            )
            dynamic = {one.variable for one in loops if is_dynamic(one)}
            inputs, outputs = instruction.inputs, instruction.outputs
            read: object = tuple((name, self.form(access)) for name, access in inputs.items())
            if instruction.attributes.get("op") in COMMUTATIVE and len(inputs) == 2:
                read = frozenset(map(self.form, inputs.values()))
            settings = tuple(sorted((k, repr(v)) for k, v in instruction.attributes.items()))
            for access in inputs.values():
                known = self._is_known(instruction, access, dynamic)
                found[access.tensor].append(_Use(instruction, access, 0, known))
            if _keeps_what_is_there(instruction):
                continue
            for name, access in outputs.items():
                _, *place = self.form(access)
                value = hash((instruction.opcode, settings, counts, read, name, *place)) or 1
                replaces = instruction.opcode.elementwise and not instruction.opcode.keeps
                if replaces and _covers(access, instruction.mask):
                    self.held[access.tensor] = value  # nothing of what was there
                else:
                    self.write(access.tensor, value)
                known = self._is_known(instruction, access, dynamic)
                found[access.tensor].append(_Use(instruction, access, value, known))
        return {tensor: uses for tensor, uses in found.items() if not tensor.buffer.on_chip}

    def _is_known(
        self, instruction: Instruction, access: Access, dynamic: set[LoopVariable]
    ) -> bool:
        if access.indirect or access.block or not access.loop_variables.isdisjoint(dynamic):
            return False
        if not all(isinstance(term, LoopVariable) for term, _ in access.offset.terms):
            if not access.tensor.buffer.on_chip:
                self.unclear |= access.loop_variables
            return False
        return not (instruction.mask.constraints or access.mask.constraints)

    def write(self, tensor: Tensor, value: Hashable) -> None:
        """Something is written into a tensor."""
        self.held[tensor] = hash((self.held[tensor], value))

    def receive(self, access: Access, sent: tuple[Hashable, ...]) -> None:
        """A copy of what another core sends, told by its form, is written into a tensor."""
        if _covers(access, access.mask) and self.form(access)[1:] == sent[1:]:
            self.held[access.tensor] = hash(sent[0])
        else:
            self.write(access.tensor, sent)

    def form(self, access: Access) -> tuple[Hashable, ...]:
        """What a tensor holds, and which of it is taken."""
        return (
            self.held[access.tensor],
            access.shape,
            access.strides,
            self._affine(access.offset),
            tuple(map(self._affine, access.block)),
            access.dtype,
            tuple((self.form(i.index), i.stride, i.size, i.group) for i in access.indirect),
        )

    def _affine(self, expression: Affine) -> Hashable:
        return expression.constant, tuple((self._term(t), f) for t, f in expression.terms)

    def _term(self, term: Term) -> Hashable:
        """Loops by their order of appearance: those of two cores are no more alike otherwise."""
        if isinstance(term, LoopVariable):
            return self._names.setdefault(term, len(self._names)), term.start, term.step, term.trips
        return term


def _covers(access: Access, mask: Mask) -> bool:
    """True for all elements of a tensor in their order."""
    tensor, free = access.tensor, not (access.indirect or access.block or access.mask.constraints)
    layout = (access.shape, access.dtype, access.offset, access.strides)
    own = (tensor.tile_shape, tensor.dtype, Affine(0), row_major(tensor.tile_shape))
    return free and not mask.constraints and layout == own


def _keeps_what_is_there(instruction: Instruction) -> bool:
    """True for a copy of elements to themselves, as a fence at a kernel's end."""
    read, written = [*instruction.inputs.values()], [*instruction.outputs.values()]
    return bool(instruction.opcode.copied) and not instruction.mask.constraints and read == written


def races(cores: Sequence[dict[Tensor, list[_Use]]]) -> Iterator[KernelError]:
    """One error for each tensor of which a core reads or overwrites elements that another one writes;
    `cores` are their uses since they last met."""
    for tensor in dict.fromkeys(tensor for uses in cores for tensor in uses):
        parts = [(core, uses[tensor]) for core, uses in enumerate(cores) if tensor in uses]
        if len(parts) > 1 and any(use.value for _, uses in parts for use in uses):
            found = _race(tensor, parts)
            if found is not None:
                yield found


class _Runs(NamedTuple):
    """Runs of neighbouring elements, by their first ones and their ends, in units of `_unit`; those of
    writes, and each with the number of its use."""

    first: np.ndarray
    end: np.ndarray
    writes: np.ndarray
    use: np.ndarray


def _race(tensor: Tensor, parts: list[tuple[int, list[_Use]]]) -> KernelError | None:
    known = [(core, [use for use in uses if use.known]) for core, uses in parts]
    unit = min([use.access.dtype.itemsize for _, uses in known for use in uses], default=1)
    runs = [(core, uses, _runs(uses, unit)) for core, uses in known]
    for core, uses, own in runs:
        for other, others, theirs in runs:
            if core != other and own is not None and theirs is not None and _meet(own, theirs):
                error = _witness(tensor, (core, uses, own), (other, others, theirs))
                if error is not None:
                    return error
    return None


def _runs(uses: list[_Use], unit: int) -> _Runs | None:
    """What the uses reach; None where that is too much to write down."""
    columns: list[tuple[np.ndarray, int]] = []
    lengths: list[int] = []
    total = 0
    for use in uses:
        access, size = use.access, use.access.dtype.itemsize // unit
        length, left = size, []
        axes = [(abs(s), n) for s, n in zip(access.strides, access.shape, strict=True)]
        lowest = access.offset.bounds[0] + access.tile_reach[0]
        for term, factor in access.offset.terms:
            assert isinstance(term, LoopVariable)
            axes.append((abs(factor * term.step), term.trips))
        for stride, extent in sorted((stride * size, n) for stride, n in axes if n > 1):
            if stride == length:
                length *= extent
            elif stride:
                left.append((extent, stride))
        total += math.prod(extent for extent, _ in left)
        if total > MOST_RUNS:
            return None
        first = np.array([lowest * size])
        for extent, stride in left:
            first = (first[:, None] + np.arange(extent) * stride).reshape(-1)
        columns.append((first, len(first)))
        lengths.append(length)
    if not columns:
        return None
    counts = [count for _, count in columns]
    first = np.concatenate([starts for starts, _ in columns])
    return _Runs(
        first,
        first + np.repeat(lengths, counts),
        np.repeat([use.value != 0 for use in uses], counts),
        np.repeat(np.arange(len(uses)), counts),
    )


def _meet(one: _Runs, other: _Runs) -> bool:
    """True where a write of `one` reaches what `other` uses."""
    order = np.argsort(one.first[one.writes])
    first, end = one.first[one.writes][order], one.end[one.writes][order]
    if not len(first):
        return False
    before = np.searchsorted(first, other.end)  # of the writes that begin before a use ends
    reach = np.maximum.accumulate(end)[np.maximum(before - 1, 0)]
    return bool(((before > 0) & (reach > other.first)).any())


Part = tuple[int, list[_Use], _Runs]


def _witness(tensor: Tensor, writing: Part, using: Part) -> KernelError | None:
    """The first use that races, element by element: `writing` holds the writes."""
    (core, writes, own), (other, uses, theirs) = writing, using
    low, high = int(own.first[own.writes].min()), int(own.end[own.writes].max())
    written = np.full(high - low, -1, np.int32)
    value = np.zeros(high - low, np.int64)
    mixed = np.zeros(high - low, bool)
    for first, end, number in zip(own.first[own.writes], own.end[own.writes],
                                  own.use[own.writes], strict=True):  # fmt: skip
        place = slice(int(first) - low, int(end) - low)
        mixed[place] |= (written[place] >= 0) & (value[place] != writes[number].value)
        written[place], value[place] = number, writes[number].value
    same = np.zeros(high - low, bool)  # the using core has put the same there before
    for first, end, number in zip(theirs.first, theirs.end, theirs.use, strict=True):
        place = slice(max(int(first) - low, 0), max(int(end) - low, 0))
        use = uses[number]
        reached = written[place] >= 0
        if use.value:
            wrong = reached & (mixed[place] | (value[place] != use.value))
            same[place] |= reached & ~wrong
        else:
            wrong = reached & ~same[place]
        if wrong.any():
            at = place.start + int(np.argmax(wrong))
            return _error(tensor, (core, writes[written[at]]), (other, use))
    return None


def _error(tensor: Tensor, writer: tuple[int, _Use], user: tuple[int, _Use]) -> KernelError:
    (core, write), (other, use) = writer, user
    where, does = use.instruction.source, "overwrites" if use.value else "reads"
    said = (
        f"core {other} {does} elements of the tensor of {tensor.source} that core {core} writes at "
        f"{write.instruction.source}, and no barrier stands between."
    )
    mend = "Let both cores call nisa.core_barrier(that tensor, cores=(0, 1)) between them."
    return KernelValueError("core_race", said, mend, where)
