"""Which loops may run their iterations at the same time, on threads.

What a kernel calls its loop does not matter: iterations are independent when no iteration touches
memory that another one writes. That is read off the addresses, so a loop is only ever split when
the outcome cannot depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from accelopt.sim.affine import Affine, LoopVariable, TileAxis, variable
from accelopt.sim.compute.analysis.regions import normal, row_length
from accelopt.sim.compute.analysis.storage import Layout
from accelopt.sim.compute.analysis.uses import Use, mask_is_aligned
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.mask import Mask
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, Tensor

WORTHWHILE = 2_000_000
"""Elements a loop must touch before splitting it pays for waking a thread."""

BALANCE = 0.8
"""The least share of useful time when iterations do not divide evenly among threads."""

_CONTINUES = "reduce"
"""The reduce_cmd that goes on with what an engine's registers hold."""


def loops_to_split(
    program: Program,
    uses: dict[Tensor, list[Use]],
    layouts: dict[Tensor, Layout],
    threads: int,
    least_work: int = WORTHWHILE,
) -> frozenset[Loop]:
    """The outermost loops that may be split over threads and touch enough elements."""
    if threads < 2:
        return frozenset()
    instructions = [instruction for _, instruction in program.walk()]
    continued = any(i.attributes.get("reduce_cmd") == _CONTINUES for i in instructions)
    ordered = {i for i in instructions if i.opcode.ordered or (continued and _accumulates(i))}
    return frozenset(_choose(program.body, (), uses, layouts, threads, least_work, ordered))


def _accumulates(instruction: Instruction) -> bool:
    """True for an instruction that writes its engine's registers."""
    command = instruction.attributes.get("reduce_cmd", "idle")
    return command != "idle" or "reduce_result" in instruction.outputs


def _choose(
    nodes: tuple[ProgramNode, ...],
    around: tuple[Loop, ...],
    uses: dict[Tensor, list[Use]],
    layouts: dict[Tensor, Layout],
    threads: int,
    least_work: int,
    ordered: set[Instruction],
) -> Iterator[Loop]:
    for node in nodes:
        if not isinstance(node, Loop) or _work(node) < least_work:
            continue
        inside = (*around, node)
        inner = list(_choose(node.body, inside, uses, layouts, threads, least_work, ordered))
        balanced = _balance(node.variable.trips, threads) >= BALANCE
        wanted = node.variable.trips > 1 and (balanced or not inner) and not _has(node, ordered)
        if wanted and independent(node, around, uses, layouts):
            yield node
        else:
            yield from inner


def _balance(trips: int, threads: int) -> float:
    return trips / (math.ceil(trips / threads) * threads)


def _work(node: ProgramNode) -> int:
    """Elements that the instructions under a node touch in one execution of it."""
    if isinstance(node, Loop):
        return node.variable.trips * sum(map(_work, node.body))
    work = sum(access.elements for access in (*node.inputs.values(), *node.outputs.values()))
    return work * 16 if node.opcode.product else work


def _has(loop: Loop, ordered: set[Instruction]) -> bool:
    """True when some instruction under a loop must run in order."""
    return any(
        _has(node, ordered) if isinstance(node, Loop) else node in ordered for node in loop.body
    )


def independent(
    loop: Loop,
    around: tuple[Loop, ...],
    uses: dict[Tensor, list[Use]],
    layouts: dict[Tensor, Layout],
) -> bool:
    """True when no iteration of a loop touches what another one writes."""
    fixed = frozenset(outer.variable for outer in around)
    for tensor, all_uses in uses.items():
        inside = [use for use in all_uses if loop in use.loops]
        if loop in layouts[tensor].private or not any(use.writes for use in inside):
            continue
        if any(use.access.indirect or use.access.dtype != tensor.dtype for use in inside):
            return False
        footprints = [_footprints(use, loop, fixed, layouts[tensor]) for use in inside]
        if not any(_disjoint(list(along)) for along in zip(*footprints, strict=True)):
            return False
    return True


class Footprint(NamedTuple):
    """Where a use lies along one dimension: `factor` steps an iteration, shifted by an expression
    of fixed variables, within low..high."""

    factor: int
    shift: Affine
    low: int
    high: int


def _footprints(
    use: Use, loop: Loop, fixed: frozenset[LoopVariable], layout: Layout
) -> list[Footprint | None]:
    """The footprint along each block dimension, along rows and along columns; None where it does
    not move with the loop or cannot be told."""
    row = row_length(layout.tensor)
    mask = _mask(use)
    found = [
        None if stride == 0 else _footprint(index, loop, fixed)
        for index, stride in zip(use.access.block, layout.block_strides, strict=True)
    ]
    rows, columns = _coordinates(use, row)
    if (-mask.upper_bound(columns * -1)) < 0 or mask.upper_bound(columns) >= row:
        return [*found, None, None]
    return [*found, _footprint(rows, loop, fixed), _footprint(columns, loop, fixed)]


def _mask(use: Use) -> Mask:
    """The instruction's mask, if its axes are the use's."""
    same = use.access.shape == mask_shape(use.instruction)
    return use.instruction.mask if same and mask_is_aligned(use) else Mask()


def _coordinates(use: Use, row: int) -> tuple[Affine, Affine]:
    """Row and column of a use's elements, as expressions of loops and tile axes."""
    access = use.access
    rank = len(access.shape)
    address = access.offset
    for position, (size, stride) in enumerate(zip(access.shape, access.strides, strict=True)):
        address = address + variable(TileAxis(position - rank, size)) * stride
    rows = Affine(
        address.constant // row, tuple((t, c // row) for t, c in address.terms if c % row == 0)
    )
    columns = Affine(address.constant % row, tuple((t, c) for t, c in address.terms if c % row))
    return rows, columns


def _footprint(expression: Affine, loop: Loop, fixed: frozenset[LoopVariable]) -> Footprint | None:
    factor = expression.coefficient(loop.variable)
    moving, shift = Affine(expression.constant), Affine()
    for term, coefficient in expression.terms:
        part = variable(term) * coefficient
        if term == loop.variable:
            continue
        if loop.variable in part.loop_variables:
            return None
        if part.loop_variables and part.loop_variables <= fixed:
            shift = shift + part
        else:
            moving = moving + part
    low, high = moving.bounds
    if factor == 0:
        return None
    return Footprint(factor * loop.variable.step, normal(shift), low, high)


def _disjoint(along: list[Footprint | None]) -> bool:
    """True when the uses of one iteration stay clear of those of every other."""
    known = [footprint for footprint in along if footprint is not None]
    if len(known) < len(along):
        return False
    if len({(footprint.factor, footprint.shift) for footprint in known}) > 1:
        return False
    width = max(f.high for f in known) - min(f.low for f in known) + 1
    return width <= abs(known[0].factor)
