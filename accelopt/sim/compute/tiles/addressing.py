"""Address arithmetic, compiled: affine expressions of loop variables become small functions.

Loop values live in a list of registers, one slot a loop; a compiled expression closes over that
list, so computing an address costs one call without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, Quotient, Remainder
from accelopt.sim.program import Loop, Program, ProgramNode

Address = Callable[[], int]


def register_slots(program: Program) -> dict[LoopVariable, int]:
    """A register number for each loop variable of a program."""
    slots: dict[LoopVariable, int] = {}

    def visit(nodes: tuple[ProgramNode, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                slots.setdefault(node.variable, len(slots))
                visit(node.body)

    visit(program.body)
    return slots


def _text(expression: Affine, slots: Mapping[LoopVariable, int]) -> str:
    parts = [str(expression.constant)] if expression.constant or not expression.terms else []
    for term, coefficient in expression.terms:
        if isinstance(term, LoopVariable):
            value = f"r[{slots[term]}]"
        elif isinstance(term, (Quotient, Remainder)):
            sign = "//" if isinstance(term, Quotient) else "%"
            value = f"(({_text(term.inner, slots)}){sign}{term.divisor})"
        else:
            raise ValueError(f"{expression} still depends on a tile axis")
        parts.append(value if coefficient == 1 else f"{coefficient}*{value}")
    return "+".join(parts)


def compile_affine(
    expression: Affine, slots: Mapping[LoopVariable, int], registers: list[int]
) -> Address:
    """A function of no arguments that evaluates an expression on the registers' values.

    Python compiles the expression itself: walking the terms would cost ten times as much.
    """
    if expression.is_constant:
        constant = expression.constant
        return lambda: constant
    source = f"lambda r: lambda: {_text(expression, slots)}"
    address: Address = eval(source, {})(registers)
    return address


def byte_address(access: Access, block_strides: tuple[int, ...]) -> Affine:
    """Where a tile starts, in bytes from the start of its tensor's storage; `block_strides` are
    the bytes from one block to the next along each block dimension, 0 where they share storage."""
    address = access.offset * access.dtype.itemsize
    for index, stride in zip(access.block, block_strides, strict=False):
        address = address + index * stride
    return address


def executions(loops: tuple[Loop, ...]) -> int:
    """How often the body of nested loops runs."""
    count = 1
    for loop in loops:
        count *= loop.variable.trips
    return count


def distinct_values(expression: Affine) -> int:
    """An upper bound on the number of values an expression takes."""
    count = 1
    for variable in expression.loop_variables:
        count *= variable.trips
    return count
