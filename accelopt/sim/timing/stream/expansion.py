"""Loops unrolled: every iteration of every operation, as arrays in program order.

Nothing here looks at one iteration at a time: positions, addresses and masks are affine in the loop
variables and come from NumPy broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.program import Instruction, Loop, Tensor
from accelopt.sim.timing.stream.extents import IndexValues, masked_extent
from accelopt.sim.timing.stream.forms import Forms
from accelopt.sim.timing.stream.operation import Nest, Operation, Queue


@dataclass(frozen=True, eq=False)
class BodyIterations:
    """All iterations of one loop body: where each starts in program order, and its loop indices."""

    loops: tuple[Loop, ...]
    starts: np.ndarray  # (n,) position of the body's first operation
    values: IndexValues  # (n,) each
    iterations: np.ndarray  # (n, depth) trip numbers


class Instances(NamedTuple):
    """The iterations of one operation that its mask leaves."""

    operation: Operation
    form: Operation  # the one that stands for all of its form
    loops: tuple[Loop, ...]
    positions: np.ndarray  # (n,) increasing
    values: IndexValues  # (n,) each
    iterations: np.ndarray  # (n, depth)
    partitions: np.ndarray | None = None  # (n,) of masked transfers: how many partitions are left
    elements: np.ndarray | None = None  # (n,) and how many elements of each


def expand(nest: Nest) -> list[Instances]:
    """Every operation with all its iterations, in the order of the tree."""
    root = BodyIterations((), np.zeros(1, np.int64), {}, np.zeros((1, 0), np.int64))
    return [found for found in _expand_body(nest, root, Forms()) if found.positions.size]


def scopes(nest: Nest) -> dict[Tensor, int]:
    """How many loops surround the declaration of each tensor that a loop body declares."""
    found: dict[Tensor, int] = {}

    def visit(node: Nest, depth: int) -> None:
        if node.loop:
            found.update(dict.fromkeys(node.loop.tensors, depth))
        for child in node.body:
            if isinstance(child, Nest):
                visit(child, depth + 1)
            else:
                # Tensors that lowering made live where they are first written.
                for access in child.writes:
                    if access.tensor.id < 0:
                        found.setdefault(access.tensor, depth)

    visit(nest, 0)
    return found


def _size(node: Nest | Operation) -> int:
    if isinstance(node, Operation):
        return 1
    trips = node.loop.variable.trips if node.loop else 1
    return trips * sum(map(_size, node.body))


def _expand_body(nest: Nest, outer: BodyIterations, forms: Forms) -> Iterator[Instances]:
    sizes = [_size(child) for child in nest.body]
    body = outer if nest.loop is None else _iterate(nest.loop, outer, sum(sizes))
    offsets = np.cumsum([0, *sizes])[:-1]
    for child, positions in zip(nest.body, offsets[:, None] + body.starts, strict=True):
        if isinstance(child, Nest):
            inner = BodyIterations(body.loops, positions, body.values, body.iterations)
            yield from _expand_body(child, inner, forms)
        elif child.instruction is not None and child.instruction.mask.constraints:
            yield from _masked(child, child.instruction, body, positions)
        else:
            form = forms.of(child)
            yield Instances(child, form, body.loops, positions, body.values, body.iterations)


def _iterate(loop: Loop, outer: BodyIterations, size: int) -> BodyIterations:
    trips = loop.variable.trips
    numbers = np.arange(trips, dtype=np.int64)
    n = outer.starts.size
    values = {variable: np.repeat(array, trips) for variable, array in outer.values.items()}
    values[loop.variable] = np.tile(loop.variable.start + loop.variable.step * numbers, n)
    iterations = np.concatenate(
        (np.repeat(outer.iterations, trips, axis=0), np.tile(numbers, n)[:, None]), axis=1
    )
    starts = (outer.starts[:, None] + numbers[None, :] * size).reshape(-1)
    return BodyIterations((*outer.loops, loop), starts, values, iterations)


def _masked(
    operation: Operation, instruction: Instruction, body: BodyIterations, positions: np.ndarray
) -> Iterator[Instances]:
    """The operation's iterations; several groups of them when its mask leaves different widths."""
    shape = mask_shape(instruction)
    extent = masked_extent(instruction.mask, shape, body.values, positions.size)
    partitions, elements = extent.partitions, extent.moved if operation.is_dma else extent.columns
    alive = (partitions > 0) & (elements > 0)
    whole = math.prod(shape[1:])

    def chosen(some: np.ndarray, what: Operation, extents: bool) -> Instances:
        return Instances(
            what,
            what,
            body.loops,
            positions[some],
            {variable: array[some] for variable, array in body.values.items()},
            body.iterations[some],
            partitions[some] if extents else None,
            elements[some] if extents else None,
        )

    if operation.queue in (Queue.DMA, Queue.TENSOR):
        # A masked matmul streams its full width (transpose_matmul, NKIBench).
        yield chosen(alive, operation, operation.is_dma)
        return
    for width in np.unique(elements[alive]).tolist():
        narrowed = operation if width == whole else operation.resized(width)
        yield chosen(alive & (elements == width), narrowed, False)
