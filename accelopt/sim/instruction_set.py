"""Every opcode that a Program can hold, and what its entry tells of an instruction.

The entries (`isa/`, one file a family) are the contract between the rooms that know instructions: `dialects/`
emits them, `serial/` carries them, `compute/` gives them meaning, `timing/` gives them a price. An operand
or attribute that does not stand there is refused where it is emitted and where it is read. Shapes: P
partitions, F free elements (any number of free axes), K contraction rows, M and N result rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from accelopt.sim.attribute_kinds import Kind
from accelopt.sim.isa import elementwise, indexed, matrix, movement, reductions
from accelopt.sim.isa.limits import InstructionLimits
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.operators import BINARY
from accelopt.sim.program import AttributeValue, Instruction

OPCODES: dict[str, Opcode] = {
    entry: entry
    for family in (movement, matrix, elementwise, reductions, indexed)
    for entry in vars(family).values()
    if isinstance(entry, Opcode)
}
LIMITS: dict[str, InstructionLimits] = {
    name: limits for entry in OPCODES.values() for name, limits in entry.calls.items()
}
"""By the name of the nisa (or nl) call. Calls without a row take any tiles of equal partitions."""


def by_opcode(*families: ModuleType) -> dict[str, Any]:
    """The functions of modules that are called as an opcode is; `print_` and `while_` drop the line."""
    return {
        name.rstrip("_"): function
        for family in families
        for name, function in vars(family).items()
        if name.rstrip("_") in OPCODES and function.__module__ == family.__name__
    }


def fault(
    opcode: str,
    outputs: Iterable[str],
    inputs: Iterable[str],
    attributes: Mapping[str, AttributeValue],
) -> str:
    """In words, the operand or attribute that this opcode does not have, lacks, or has of another
    kind; empty where there is none."""
    found = _form(opcode, tuple(outputs), tuple(inputs), tuple(attributes))
    if found.fault:
        return found.fault
    for name, kind in found.kinds:
        value = attributes[name]
        if not kind.accepts(value):
            return f"{opcode} cannot have {name}={str(value)[:40]!r}"
    for op, operand in found.without_operand:
        if attributes.get(op) in BINARY:
            return f"{opcode} lacks {operand}"
    return ""


class _Form(NamedTuple):
    """What the names in an instruction tell: a fault, the kinds of its attributes, and the operators
    that must be of one argument since there is no operand."""

    fault: str
    kinds: tuple[tuple[str, Kind], ...] = ()
    without_operand: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def _form(
    opcode: str, outputs: tuple[str, ...], inputs: tuple[str, ...], attributes: tuple[str, ...]
) -> _Form:
    row = OPCODES.get(opcode)
    if row is None:
        return _Form(f"there is no instruction {opcode}")
    unknown = {*outputs, *inputs} - {*row.outputs, *row.inputs}
    if unknown or not {*outputs} <= {*row.outputs}:
        return _Form(
            f"{opcode} does not have the operands {', '.join(sorted((*outputs, *inputs)))}"
        )
    given, known = (*outputs, *inputs, *attributes), row.kinds
    for name in given:
        if given.count(name) > 1:
            return _Form(f"{opcode} has {name} twice")
    for name in attributes:
        if name not in known:
            return _Form(f"{opcode} has no attribute {name!r}")
    if lacking := row.required - {*given}:
        return _Form(f"{opcode} lacks {min(lacking)}")
    operators = (("op0", "operand0"), ("op1", "operand1"))
    bare = tuple(pair for pair in operators if pair[1] in row.inputs and pair[1] not in given)
    return _Form("", tuple((name, known[name]) for name in attributes), bare)


def mask_shape(instruction: Instruction) -> tuple[int, ...]:
    """The shape over whose axes an instruction's mask is written: that of what is read for
    reductions and searches, of the result for most others."""
    operands = {**instruction.outputs, **instruction.inputs}
    name = instruction.opcode.mask_over
    return operands[name].shape if name in operands else ()
