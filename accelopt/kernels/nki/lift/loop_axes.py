"""Which axis of the problem each loop of a kernel runs along, and in which steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Algorithm, Array, reads_in
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.program import Loop, Program, Tensor

Digit = tuple[Tensor, int, int]
"""One block dimension of a tensor, or (as -1) one stride within its blocks."""


class Walk(NamedTuple):
    """A loop goes along an axis, `step` elements further in every iteration."""

    axis: Axis
    step: int


def walks(program: Program, algorithm: Algorithm) -> dict[LoopVariable, Walk]:
    """The walks of the loops whose accesses to inputs and outputs, or to tiles that other loops
    filled, tell them."""
    arrays = _arrays(program, algorithm)
    axes = _axes_of_dimensions(algorithm)
    found: dict[LoopVariable, Walk] = {}
    for variable, access, _, stride in _strides(program):
        array = arrays.get(access.tensor)
        if array is not None and variable not in found:
            walked = _along(array, stride, axes)
            if walked is not None:
                found[variable] = walked
    known: dict[Digit, Walk] = {}
    for _ in range(2):  # from the loops that fill tiles to those that use them, and back
        for variable, access, block, stride in _strides(program):
            digit = (access.tensor, block, stride)
            if variable in found:
                known.setdefault(digit, found[variable])
            elif digit in known:
                found[variable] = known[digit]
    return found


def _arrays(program: Program, algorithm: Algorithm) -> dict[Tensor, Array]:
    given = dict(zip(program.arguments, algorithm.inputs, strict=True))
    results = [tensor for tensor in program.results if tensor is not None]
    return {**given, **dict(zip(results, algorithm.returned, strict=False))}


def _axes_of_dimensions(algorithm: Algorithm) -> Mapping[tuple[str, int], Axis]:
    """The axis along which each dimension of each array is used."""
    found: dict[tuple[str, int], Axis] = {}
    for definition in algorithm.definitions:
        for number, axis in enumerate(definition.axes):
            found.setdefault((definition.out, number), axis)
        for read in reads_in(definition):
            for number, index in enumerate(read.indices):
                if len(index.terms) == 1 and isinstance(index.terms[0][0], Axis):
                    found.setdefault((read.array, number), index.terms[0][0])
    return found


def _along(array: Array, stride: int, axes: Mapping[tuple[str, int], Axis]) -> Walk | None:
    for number in range(len(array.shape)):
        size = math.prod(array.shape[number + 1 :])
        if size <= stride and stride % size == 0:
            axis = axes.get((array.name, number))
            return None if axis is None else Walk(axis, stride // size)
    return None


def _strides(program: Program) -> Iterator[tuple[LoopVariable, Access, int, int]]:
    """Every loop with every access that it moves: along which block dimension (-1: within the
    block), and how far in one iteration."""
    for loops, instruction in program.walk():
        own = {loop.variable for loop in loops}
        for access in (*instruction.outputs.values(), *instruction.inputs.values()):
            places = [(-1, access.offset), *enumerate(access.block)]
            for block, expression in places:
                for term, coefficient in expression.terms:
                    if isinstance(term, LoopVariable) and term in own:
                        yield term, access, block, abs(coefficient * term.step)


def loops_around_uses(program: Program) -> dict[Tensor, tuple[Loop, ...]]:
    """The loops around all uses of each tensor, outermost first: it need not live longer."""
    found: dict[Tensor, tuple[Loop, ...]] = {}
    for loops, instruction in program.walk():
        for access in (*instruction.outputs.values(), *instruction.inputs.values()):
            before = found.get(access.tensor, loops)
            shared = [a for a, b in zip(before, loops, strict=False) if a is b]
            found[access.tensor] = tuple(shared)
    return found


def blocks_kept(program: Program) -> dict[Tensor, int]:
    """How many blocks of each on-chip tensor one iteration of the loops around its uses needs."""
    around = loops_around_uses(program)
    indices: dict[Tensor, list[set[Affine]]] = {}
    for _, instruction in program.walk():
        for access in (*instruction.outputs.values(), *instruction.inputs.values()):
            tensor = access.tensor
            seen = indices.setdefault(tensor, [set() for _ in tensor.block_shape])
            for place, index in zip(seen, access.block, strict=True):
                place.add(index)
    kept: dict[Tensor, int] = {}
    for tensor, places in indices.items():
        variables = {loop.variable for loop in around[tensor]}
        count = 1
        for extent, place in zip(tensor.block_shape, places, strict=True):
            (index, *others) = place
            fixed = not others and index.loop_variables <= variables
            count *= 1 if fixed else extent
        kept[tensor] = count
    return kept
