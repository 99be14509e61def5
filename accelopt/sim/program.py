"""The whole intermediate form: what a traced kernel is.

A Program is a tree of loops with instructions at its leaves. It holds no data but constants, and
nothing in it is ever changed: verification reads it, the executor compiles it, timing schedules it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from accelopt.sim.access import Access
from accelopt.sim.access import Buffer as Buffer
from accelopt.sim.access import Placement as Placement
from accelopt.sim.access import Tensor as Tensor
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.isa.opcode import Engine as Engine
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.mask import EVERYTHING, Mask


class LoopKind(StrEnum):
    """What a loop promises about its iterations."""

    AFFINE = "affine"  # independent, any order
    SEQUENTIAL = "sequential"  # carried dependences, in order
    PROGRAM = "program"  # one iteration a program of an SPMD launch


Scalar = int | float | str | bool | None
AttributeValue = Scalar | tuple[Scalar, ...] | Affine | Mask


@dataclass(frozen=True, eq=False, slots=True)
class Instruction:
    """One NKI instruction, for every iteration of the loops around it.

    `outputs["result"]` is what it writes. Inputs and attributes carry the names of the NKI call.
    The attribute `dtype` is the format the result is rounded to before it is stored. Elements where
    `mask` does not hold are neither read nor written; its axes are those of the result's shape
    unless the opcode says otherwise. `core` is the one of a logical core that runs it.
    """

    opcode: Opcode
    engine: Engine
    outputs: Mapping[str, Access]
    inputs: Mapping[str, Access]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    mask: Mask = EVERYTHING
    source: SourceLine = NOWHERE
    core: int = 0

    @property
    def result(self) -> Access:
        """The main output."""
        return self.outputs["result"]

    @property
    def accesses_read(self) -> list[Access]:
        """All that it reads, run-time indices too."""
        both = (*self.inputs.values(), *self.outputs.values())
        return [*self.inputs.values(), *(item.index for one in both for item in one.indirect)]


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """A counted loop. `tensors` are those declared in its body: fresh in every iteration."""

    variable: LoopVariable
    kind: LoopKind
    body: tuple[ProgramNode, ...]
    tensors: tuple[Tensor, ...] = ()
    source: SourceLine = NOWHERE


ProgramNode = Loop | Instruction


def is_dynamic(loop: Loop) -> bool:
    """True for a loop of the device, which runs until its condition is 0 and not a number of times."""
    first = loop.body[0] if loop.body else None
    return isinstance(first, Instruction) and first.opcode.ends_loop


def core_of(node: ProgramNode) -> int:
    """The core of a logical core that runs an instruction, or a loop's first one."""
    return next(map(core_of, node.body), 0) if isinstance(node, Loop) else node.core


def walk(
    nodes: Iterable[ProgramNode], loops: tuple[Loop, ...] = ()
) -> Iterator[tuple[tuple[Loop, ...], Instruction]]:
    """Every instruction with the loops around it, outermost first, in program order."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from walk(node.body, (*loops, node))
        else:
            yield loops, node


def rewritten(
    nodes: Iterable[ProgramNode], change: Callable[[ProgramNode], ProgramNode | None]
) -> tuple[ProgramNode, ...]:
    """What `change` makes of each node, of a loop after what is in it; without those of which it makes None."""
    found: list[ProgramNode] = []
    for node in nodes:
        if isinstance(node, Loop):
            node = replace(node, body=rewritten(node.body, change))
        made = change(node)
        if made is not None:
            found.append(made)
    return tuple(found)


def with_accesses(instruction: Instruction, change: Callable[[Access], Access]) -> Instruction:
    """The instruction with each access, and those of run-time indices before it, as `change` makes it."""

    def changed(access: Access) -> Access:
        if access.indirect:
            found = tuple(replace(i, index=changed(i.index)) for i in access.indirect)
            access = replace(access, indirect=found)
        return change(access)

    return replace(
        instruction,
        outputs={name: changed(access) for name, access in instruction.outputs.items()},
        inputs={name: changed(access) for name, access in instruction.inputs.items()},
    )


@dataclass(frozen=True, eq=False)
class Program:
    """A traced kernel. `arguments` are its tensor parameters in order; `results` what it returns
    (an argument when a mutable parameter is returned), in `result_shapes` where those are not the
    tensors' own; `returns_sequence` is True when the kernel returned a tuple or list. `dialect` is the
    package that it was written for, `neuronxcc` or `nki`."""

    name: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor | None, ...]
    body: tuple[ProgramNode, ...]
    tensors: tuple[Tensor, ...] = ()
    returns_sequence: bool = False
    target: str = "trn1"
    source: SourceLine = NOWHERE
    result_shapes: tuple[tuple[int, ...] | None, ...] = ()
    dialect: str = "neuronxcc"

    def shape_of_result(self, number: int) -> tuple[int, ...] | None:
        """The shape in which the kernel returned a result; None for a result that is None."""
        tensor = self.results[number]
        reshaped = self.result_shapes[number] if self.result_shapes else None
        return reshaped or (None if tensor is None else tensor.shape)

    @property
    def ranks(self) -> int:
        """How many cores of ranks pass tensors to each other in it, by collectives; 0 where none does."""
        found = (one.attributes.get("ranks") for _, one in self.walk() if one.opcode.meets)
        return max((n for n in found if isinstance(n, int)), default=0)

    def changed_arguments(self) -> dict[Tensor, SourceLine]:
        """The arguments that are written, each with the first line that does."""
        found: dict[Tensor, SourceLine] = {}
        for _, instruction in self.walk():
            for access in instruction.outputs.values():
                if access.tensor in self.arguments:
                    found.setdefault(access.tensor, instruction.source)
        return found

    def walk(self) -> Iterator[tuple[tuple[Loop, ...], Instruction]]:
        """`walk` of its body."""
        return walk(self.body)

    def all_tensors(self) -> Iterator[Tensor]:
        """Arguments, then every declared tensor in program order."""
        yield from self.arguments
        yield from self.tensors

        def visit(nodes: tuple[ProgramNode, ...]) -> Iterator[Tensor]:
            for node in nodes:
                if isinstance(node, Loop):
                    yield from node.tensors
                    yield from visit(node.body)

        yield from visit(self.body)
