"""Random programs: shared blocks, skipped fills, forwarded copies and threads change nothing."""

from typing import Any

import numpy as np
import pytest
from compute_oracle import Oracle
from compute_programs import (
    affine,
    axis,
    copy_in,
    hbm,
    instruction,
    loop,
    loop_variable,
    program,
    tensor,
    tile,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from one_road import executable

from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.mask import Mask
from accelopt.sim.program import LoopKind, ProgramNode, Tensor

ROWS, COLUMNS = 4, 6
TILES = [((0, 4), (0, 6)), ((0, 2), (0, 6)), ((2, 2), (0, 6)), ((0, 4), (0, 3)), ((0, 4), (3, 3))]


class Writer:
    """Draws a program: a nest of loops over tiles that are loaded (also from constants that a loop
    declares), added, copied and stored. In a `grid` each program has planes of the sink of its own."""

    def __init__(self, data: st.DataObject, grid: LoopVariable | None = None) -> None:
        self.draw, self.grid = data.draw, grid
        self.constants = 0
        self.source, self.sink = hbm((8, ROWS, COLUMNS)), hbm((64, ROWS, COLUMNS))
        self.outer: list[Tensor] = []

    def index(self, variables: list[LoopVariable], size: int) -> Affine:
        """An index below `size` over some loop variables."""
        fitting = [v for v in variables if v.trips <= size]
        if not fitting or not self.draw(st.booleans()):
            return Affine(self.draw(st.integers(0, size - 1)))
        return affine(self.draw(st.sampled_from(fitting)))

    def sunk(self, variables: list[LoopVariable], shape: Any) -> Any:
        """Where a tile is stored."""
        index = self.index(variables, 8)
        return self.plane(self.sink, index + affine(self.grid) * 8 if self.grid else index, shape)

    def constant(self) -> Tensor:
        """A tensor in HBM whose contents the program has from the start."""
        self.constants += 1
        data = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
        return hbm((ROWS, COLUMNS), data=data + 1000 * self.constants)

    def part(self, of: Tensor, variables: list[LoopVariable], shape: Any) -> Any:
        blocks = [self.index(variables, n) for n in of.block_shape]
        return tile(of, *blocks, *shape)

    def plane(self, of: Tensor, index: Affine, shape: Any) -> Any:
        rows, columns = shape
        access = tile(of)
        offset = index * (ROWS * COLUMNS) + rows[0] * COLUMNS + columns[0]
        return type(access)(of, (rows[1], columns[1]), (), offset, (COLUMNS, 1), of.dtype)

    def mask(self, shape: Any, variables: list[LoopVariable]) -> Mask:
        (_, rows), (_, columns) = shape
        kind = self.draw(
            st.sampled_from(["none"] * 4 + ["rows", "columns", "loop", "causal", "tail"])
        )
        if kind == "rows":
            return Mask((axis(-2, rows) * -1 + self.draw(st.integers(0, rows - 1)),))
        if kind == "columns":
            return Mask((axis(-1, columns) * -1 + self.draw(st.integers(0, columns - 1)),))
        if kind == "causal":
            return Mask((axis(-2, rows) - axis(-1, columns),))
        if kind == "tail" and variables:
            tile_rows = affine(self.draw(st.sampled_from(variables))) * rows
            last = self.draw(st.integers(0, 2 * rows))
            return Mask((tile_rows * -1 - axis(-2, rows) + last,))
        if kind == "loop" and variables:
            return Mask((affine(self.draw(st.sampled_from(variables))) - 1,))
        return Mask()

    def body(
        self, variables: list[LoopVariable], known: list[Tensor], depth: int
    ) -> tuple[list[ProgramNode], list[Tensor]]:
        own = [self.tensor() for _ in range(self.draw(st.integers(0 if known else 1, 2)))]
        known = known + own
        nodes: list[ProgramNode] = []
        if self.draw(st.booleans()):
            own.append(self.constant())
            shape = self.draw(st.sampled_from(TILES))
            target = self.part(self.draw(st.sampled_from(known)), variables, shape)
            nodes.append(copy_in(target, tile(own[-1], *shape)))
        for _ in range(self.draw(st.integers(1, 5))):
            kind = self.draw(st.integers(0, 5))
            if depth < 2 and kind == 0:
                nodes.append(self.loop(variables, known, depth))
            elif kind == 1:
                own.append(tensor((ROWS, COLUMNS)))
                nodes += self.passing(variables, known, own[-1])
            else:
                nodes.append(self.instruction(variables, known))
        return nodes, own

    def passing(
        self, variables: list[LoopVariable], known: list[Tensor], through: Tensor
    ) -> list[ProgramNode]:
        """A tile that is made, perhaps left for a while, and moved on."""
        shape = self.draw(st.sampled_from(TILES))
        masks = [self.mask(shape, variables), self.mask(shape, variables)]
        masks[1] = masks[0] if self.draw(st.booleans()) else masks[1]
        places = [self.part(self.draw(st.sampled_from(known)), variables, shape) for _ in range(3)]
        middle = tile(through, *shape)
        make = self.draw(st.sampled_from(["copy", "load", "add"]))
        if make == "load":
            source = self.plane(self.source, self.index(variables, 8), shape)
            made = copy_in(middle, source, mask=masks[0])
        else:
            more = {"op0": "add", "operand0": 1.0} if make == "add" else {}
            opcode = "tensor_scalar" if make == "add" else "copy"
            made = instruction(opcode, middle, {"data": places[0]}, mask=masks[0], **more)
        between = [self.instruction(variables, known)] if self.draw(st.booleans()) else []
        if self.draw(st.booleans()):
            moved = copy_in(self.sunk(variables, shape), middle, mask=masks[1])
        else:
            pair = {"data1": places[1], "data2": middle}
            moved = instruction("tensor_tensor", places[2], pair, mask=masks[1], op="add")
        return [made, *between, moved]

    def tensor(self) -> Tensor:
        blocks = self.draw(st.sampled_from([(), (), (2,), (3,), (2, 3)]))
        fill = self.draw(st.sampled_from([None, None, 0.0]))
        return tensor((*blocks, ROWS, COLUMNS), blocks=len(blocks), fill=fill)

    def loop(self, variables: list[LoopVariable], known: list[Tensor], depth: int) -> ProgramNode:
        over = loop_variable(self.draw(st.integers(1, 3)))
        nodes, own = self.body([*variables, over], known, depth + 1)
        return loop(over, nodes, own, LoopKind.SEQUENTIAL)

    def instruction(self, variables: list[LoopVariable], known: list[Tensor]) -> ProgramNode:
        shape = self.draw(st.sampled_from(TILES))
        mask = self.mask(shape, variables)
        target = self.part(self.draw(st.sampled_from(known)), variables, shape)
        other = self.part(self.draw(st.sampled_from(known)), variables, shape)
        kind = self.draw(
            st.sampled_from(["load", "load", "store", "store", "copy", "add", "both", "set"])
        )
        if kind == "load":
            return copy_in(
                target, self.plane(self.source, self.index(variables, 8), shape), mask=mask
            )
        if kind == "store":
            return copy_in(self.sunk(variables, shape), target, mask=mask)
        if kind == "copy":
            return instruction("copy", target, {"data": other}, mask=mask)
        if kind == "add":
            return instruction(
                "tensor_scalar", target, {"data": other}, mask=mask, op0="add", operand0=1.0
            )
        if kind == "both":
            pair = {"data1": target, "data2": other}
            return instruction("tensor_tensor", target, pair, mask=mask, op="add")
        return instruction("memset", target, mask=mask, value=2.0)


VALUES = np.arange(8 * ROWS * COLUMNS, dtype=np.float32).reshape(8, ROWS, COLUMNS)


@settings(max_examples=80)
@given(data=st.data())
def test_random_programs_agree_with_the_plain_executor(data: st.DataObject) -> None:
    writer = Writer(data)
    nodes, own = writer.body([], [], 0)
    every = tensor((ROWS, COLUMNS))
    kernel = program([writer.source], [writer.sink], nodes, [*own, every, writer.sink])
    (expected,) = Oracle(kernel, [VALUES]).run()
    for threads in (1, 2):
        (found,) = executable(kernel, threads=threads, least_work=0).run([VALUES])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_programs_of_a_grid_give_the_same_by_one_thread_and_by_several() -> None:
    """Each program has tiles and constants of its own; all read the argument, and constants that are
    declared around the grid (a public attention kernel keeps its masks so)."""
    split: list[bool] = []

    @settings(max_examples=150)
    @given(data=st.data())
    def compare(data: st.DataObject) -> None:
        grid = loop_variable(data.draw(st.integers(2, 6)))
        writer = Writer(data, grid)
        shared = writer.constant()
        nodes, own = writer.body([grid], [], 1)
        nodes.insert(0, copy_in(tile(own[0], *[0] * own[0].block_rank), tile(shared)))
        every = loop(grid, nodes, own, LoopKind.PROGRAM)
        kernel = program([writer.source], [writer.sink], [every], [shared, writer.sink])
        (expected,) = Oracle(kernel, [VALUES]).run()
        for threads in (1, 2, 3):
            compiled = executable(kernel, threads=threads, least_work=0)
            np.testing.assert_array_equal(compiled.run([VALUES])[0], expected)
        split.append(bool(compiled._split))

    compare()
    assert split.count(True) > len(split) / 2
