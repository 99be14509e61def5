"""What is known of an instruction, whoever asks: rules, executor, timing, lift."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.attribute_kinds import Kind
from accelopt.sim.isa.limits import InstructionLimits, OperandLimits

if TYPE_CHECKING:
    from accelopt.sim.program import Instruction

ROUNDING = "dtype"
"""Attribute of every instruction with a result: the format that it is rounded to."""


class Engine(StrEnum):
    """Who carries an instruction out. UNASSIGNED leaves the choice to the compiler."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    DMA = "dma"
    UNASSIGNED = "unassigned"


class Cost(Enum):
    """How long an instruction takes: `timing/machine/pricing.py` has the cycles of each class.
    Products, transposes by the Tensor engine and DMAs are priced by their sizes."""

    PASS = "one pass over the elements of the longest operand"
    FAST_PASS = "one pass, with faster modes on some generations"
    FILL = "one pass that writes only"
    SUM = "one pass, faster where narrow elements are added or compared"
    TWO_TILES = "two operands of all elements"
    CHAIN = "two operands of all elements, one after another"
    SCAN = "each element waits for the one before"
    SELECTION = "a predicate and one operand"
    PREDICATED = "a predicate, an operand, and what was there"
    DIVISION = "a division"
    STATISTICS = "groups of statistics"
    QUANTIZATION = "groups of elements and their scales"
    PARTITIONS = "over the partitions of a processor"
    GATHER = "by indices that partitions share"
    LARGEST = "the largest of the elements that partitions share"

    @property
    def two_tiles(self) -> bool:
        """True where two operands have as many elements as the result."""
        return self in (Cost.TWO_TILES, Cost.CHAIN, Cost.SCAN)


Rule = Callable[["Instruction"], Iterator[str]]
"""What does not fit in an instruction, in words that follow its opcode."""


@dataclass(frozen=True, eq=False, repr=False)
class Opcode(str):
    """An instruction's name, with all that is known of it.

    The first engine is the default; UNASSIGNED means the compiler's choice among them. `optional` names
    inputs, outputs and attributes that may be absent. An operand that may be a number or a (P, 1) tile
    stands in `inputs` when it is a tile and in `attributes` when it is a number.
    """

    name: str
    inputs: tuple[str, ...] = ()
    attributes: Mapping[str, Kind] = field(default_factory=dict)
    engines: tuple[Engine, ...] = ()
    outputs: tuple[str, ...] = ("result",)
    optional: tuple[str, ...] = ()
    meaning: str = ""
    limits: Mapping[str, OperandLimits] = field(default_factory=dict)
    """Of operands whose memories, sizes or formats are not those of every tile."""
    calls: Mapping[str, InstructionLimits] = field(default_factory=dict)
    """Limits of operands by the calls of `nisa` and `nl` that make it, under the names they have there."""
    fits: Rule | None = None
    """How shapes of operands fit each other; None where all are tiles that fit into the result."""
    cost: Cost = Cost.PASS
    verb: str = ""
    """In an explanation of a kernel, where the name does not do."""
    not_lifted: str = ""
    """Why it has no meaning in real numbers."""

    elementwise: bool = False
    """An element of a result needs that element of every operand, and no other."""
    copied: str = ""
    """The operand whose elements the result has, in their order."""
    mask_over: str = "result"
    """The operand over whose axes the mask is written."""
    product: bool = False
    """Multiplies on the Tensor engine; masks of operands end the sum, and are no mask of the result."""
    transposes: bool = False
    fills: bool = False
    """Every element of the result is the attribute `value`."""
    indirect: tuple[str, ...] = ()
    """Operands that tensor indirection may gather or scatter (NeuronCore-v4)."""
    keeps: bool = False
    """Elements of the result may stay what they were."""
    ordered: bool = False
    """Its order among others of its kind can be observed."""
    computes: bool = True
    """False where elements are moved or made, or counted by themselves."""
    packed: bool = False
    """Takes packed elements: by the formats of its operands, or as bytes, or 0."""
    reaches_hbm: bool = False
    starts_anywhere: bool = False
    """Its partitions have rules of their own, or no engine's access pattern carries it out."""
    widened: bool = False
    """The compiler lets one stand for all iterations of a tiny loop."""
    meets: bool = False
    """Both cores of a logical core come here before either goes on."""
    ends_loop: bool = False
    """The first of a loop of the device: the loop ends where the condition is 0."""

    def __new__(cls, name: str, *_: object, **__: object) -> Opcode:
        """The string itself."""
        return str.__new__(cls, name)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Of every attribute that an instruction of this opcode may have."""
        return {**self.attributes, **({ROUNDING: kinds.FORMAT} if self.outputs else {})}

    @property
    def required(self) -> frozenset[str]:
        """Names that must be there, as an operand or as an attribute."""
        return frozenset((*self.outputs, *self.inputs, *self.attributes)) - {*self.optional}

    @property
    def engine(self) -> Engine:
        """Who carries an instruction out unless the kernel says so."""
        return self.engines[0] if len(self.engines) == 1 else Engine.UNASSIGNED

    @property
    def transfers(self) -> bool:
        """True where DMA queues move the elements."""
        return self.engines == (Engine.DMA,)
