"""Recurrences along the free axis, and sums over an axis that a loop inside a phase runs over.

A recurrence is one tensor_tensor_scan a part of the axis; its last column goes on into the next part.
Where there are several states, a loop runs over them; what they add up to is summed by the Vector
engine, row by row, so that a row that overflows spoils no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.nest import (
    For,
    Form,
    Line,
    NestNode,
    largest_divisor,
    line,
)
from accelopt.kernels.nki.lift.emission.phases import Phase, Placed
from accelopt.kernels.nki.lift.emission.selection import Selection, copy_forms, forms
from accelopt.kernels.nki.lift.emission.value_locations import (
    START,
    At,
    Span,
    Spot,
    Tile,
    part,
    subscript,
    variable,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock

BANK = 512


class Recurrence:
    """A phase that has recurrences or inner sums."""

    def __init__(self, block: RowBlock, number: int, phase: Phase, spot: Spot) -> None:
        self.block = block
        self.phase = phase
        self.spot = spot
        self.steps = block.lives.steps[number]
        self.piece = largest_divisor(spot.width, BANK)
        self.pieces = spot.width // self.piece
        self.rows: dict[GraphValue, str] = {}
        self.states: dict[GraphValue, str] = {}
        axes = {axis for step in self.steps for axis in step.value.axes & block.roles.inner}
        axes |= {a for s in self.steps for t in s.tiles for a in t.axes & block.roles.inner}
        if len(axes) > 1 or block.tiling.tiles > 1:
            raise NotLowered("recurrences over several axes, or tiles of rows, at once")
        self.inner: Axis | None = next(iter(axes), None)

    def emit(self, outer: list[NestNode], body: list[NestNode]) -> None:
        """Emits the phase: `body` is that of the loop over parts of the axis, in `outer`."""
        block, spot = self.block, self.spot
        whole = self.phase.axis.extent == spot.width
        if not whole:
            self._carry(outer, body)
        for value in self.phase.values:
            if value.kind == "input" and not value.axes & block.roles.inner:
                block.transfers.load(body, value, spot)
        before, inside, after = self._split()
        self._run(body, before)
        sums = [step for step in inside if step.opcode == "accumulate"]
        for step in sums:
            self._declare_sums(body, step)
        loop = body
        if self.inner is not None:
            name = block.names.new(f"i_{self.inner.name}")
            block.loops[self.inner] = variable(name)
            nest = For(name, self.inner.extent, kind="sequential_range" if sums else "affine_range")
            body.append(nest)
            loop = nest.body
        self._run(loop, inside)
        self._run(body, after)
        block.transfers.stores(body, self.phase, "rows", spot)

    def _carry(self, outer: list[NestNode], body: list[NestNode]) -> None:
        """The states that go from one part of the axis to the next."""
        block = self.block
        for step in self.steps:
            if step.opcode != "scan":
                continue
            loop = next(n for n in outer if isinstance(n, For) and n.body is body)
            loop.kind = "sequential_range"
            name = block.names.new("state")
            count = self.inner.extent if self.inner else 1
            (initial,) = step.numbers
            if initial is None or initial.kind != "constant":
                raise NotLowered("a recurrence that starts from a value of its own")
            rows = block.tiling.row_tile
            made = [
                line(f"{name} = nl.ndarray((nl.par_dim({rows}), {count}), dtype=nl.float32)"),
                line(f"{name}[...] = nisa.memset(({rows}, {count}), {initial.constant!r}, "
                     "dtype=nl.float32)"),
            ]  # fmt: skip
            outer[outer.index(loop) : outer.index(loop)] = made
            block.storage.count(name, (count,))
            self.states[step.value] = name

    def _split(self) -> tuple[list[Selection], list[Selection], list[Selection]]:
        """What comes before the inner loop, in it, and after it."""
        inner = self.block.roles.inner
        before: list[Selection] = []
        inside: list[Selection] = []
        after: list[Selection] = []
        late: set[GraphValue] = set()
        for step in self.steps:
            if step.value.axes & inner or step.opcode == "accumulate":
                inside.append(step)
                if step.opcode == "accumulate":
                    late.add(step.value)
            elif late & set(step.tiles):
                after.append(step)
                late.add(step.value)
            else:
                before.append(step)
        return before, inside, after

    def _run(self, body: list[NestNode], steps: list[Selection]) -> None:
        """The steps in order; those that need PSUM in pieces of one bank."""
        for place, step in enumerate(steps):
            narrow = self._in_pieces(step)
            self._prepare(body, step)
            if not narrow:
                self._emit(body, step, self.spot)
                continue
            if place and self._in_pieces(steps[place - 1]) and isinstance(body[-1], For):
                loop = body[-1]
                inner, at = loop.body, variable(loop.variable)
            else:
                name = self.block.variable(self.phase.axis, "piece", self.pieces)
                inner, at = self.block.loop(body, name, self.pieces), variable(name)
            offset = at * self.piece
            small = Spot(
                self.spot.row, self.spot.start + offset, offset, self.piece, self.spot.block
            )
            self._emit(inner, step, small)

    def _in_pieces(self, step: Selection) -> bool:
        rows = self.block.roles
        spread = any(
            not rows.has_rows(tile) and rows.feature(tile) and tile.kind != "constant"
            for tile in step.tiles
        )
        return self.pieces > 1 and (spread or step.opcode == "accumulate")

    def _prepare(self, body: list[NestNode], step: Selection) -> None:
        """Declares the tile that pieces fill, and loads the rows that are spread over partitions."""
        block, spot = self.block, self.spot
        for tile in step.tiles:
            if block.roles.has_rows(tile) or tile.kind != "input" or tile in self.rows:
                continue
            name = block.names.new(f"{tile.array}_row")
            array = block.graph.arrays[tile.array]
            spans = {self.phase.axis: Span(spot.start, spot.width)}
            if self.inner is not None:
                spans[self.inner] = Span(block.loops[self.inner], 1)
            where = subscript(tile.indices, array.shape, spans, block.loops)
            view = block.views[tile.array]
            if len(array.shape) == 1:
                view, where = f"{view}.reshape((1, {array.shape[0]}))", f"0:1, {where}"
            text = f"{name} = nl.load({view}[{where}])"
            body.append(block.transfers.dma(text, 1, spot.width, tile.dtype))
            block.storage.count(name, (spot.width,), 2, tile.dtype)
            self.rows[tile] = name
        placed = Placed(step.value, "rows")
        if step.opcode == "accumulate" or not self._in_pieces(step):
            return
        if not self._only_added(step):
            block.target(body, placed, spot, declare=True)

    def _only_added(self, step: Selection) -> bool:
        """True for what is added to a sum at once, and read by nobody else."""
        readers = [other for other in self.steps if step.value in other.tiles]
        return len(readers) == 1 and readers[0].opcode == "accumulate"

    def _emit(self, body: list[NestNode], step: Selection, spot: Spot) -> None:
        block = self.block
        if step.opcode == "accumulate":
            self._accumulate(body, step, spot)
            return
        spread = any(tile in self.rows for tile in step.tiles)
        placed = Placed(step.value, "rows")
        if spread and self._only_added(step) and spot.width == self.piece:
            name = block.names.new("part")
            body.append(
                line(
                    f"{name} = nl.ndarray((nl.par_dim({block.tiling.row_tile}), {spot.width}), "
                    "dtype=nl.float32, buffer=nl.psum)"
                )
            )
            block.tiles[placed] = Tile(f"{name}", "sums", psum=True)
        if not spread and step.opcode != "scan":
            block.step(body, step, "rows", spot)
            return
        if placed not in block.tiles:
            block.target(body, placed, spot, declare=False)

        def text(value: GraphValue) -> str:
            if value in self.rows:
                where = part(spot.offset, spot.width, self.spot.width)
                shape = f"({block.tiling.row_tile}, {spot.width})"
                return f"{self.rows[value]}[:, {where}].broadcast_to({shape})"
            if value is step.data and value.kind == "constant":
                return self._ones(value.constant)
            if step.value in self.states and value is step.numbers[0]:
                return self._state(step.value)
            return block.text(step, value, "rows", spot)

        target = block.place(placed, spot)
        if block.tiles[placed].psum:
            target += "[...]"
        body.append(Line(forms(step, target, text, spot.width, spread, block.spec)))
        if step.value in self.states:
            tile = block.tiles[placed].name
            last = f"{tile}[:, {part(At(spot.width - 1), 1, spot.width)}]"
            body.append(Line(copy_forms(self._state(step.value), last, 1, block.spec)))

    def _state(self, value: GraphValue) -> str:
        count = self.inner.extent if self.inner else 1
        at = self.block.loops[self.inner] if self.inner else START
        return f"{self.states[value]}[:, {part(at, 1, count)}]"

    def _ones(self, number: float) -> str:
        block = self.block
        if number not in block.constants:
            name = block.names.new("ones" if number == 1 else "factors")
            rows, width = block.tiling.row_tile, self.spot.width
            block.first.append(
                line(f"{name} = nisa.memset(({rows}, {width}), {number!r}, dtype=nl.float32)")
            )
            block.storage.count(name, (width,))
            block.constants[number] = name
        return block.constants[number]

    def _declare_sums(self, body: list[NestNode], step: Selection) -> None:
        block, spot = self.block, self.spot
        if step.functions[0] != "add":
            raise NotLowered(f"a {step.functions[0]} over an inner axis")
        placed = Placed(step.value, "rows")
        block.target(body, placed, spot, declare=True)
        rows, name = block.tiling.row_tile, block.tiles[placed].name
        body.append(
            line(f"{name}[...] = nisa.memset(({rows}, {spot.width}), 0.0, dtype=nl.float32)")
        )

    def _accumulate(self, body: list[NestNode], step: Selection, spot: Spot) -> None:
        """Adds to a sum in SBUF. What is added lies in PSUM, where that is one bank of it: the
        Vector engine then takes one cycle an element, not two."""
        block, spec = self.block, self.block.spec
        total = block.place(Placed(step.value, "rows"), spot)
        data = block.place(Placed(step.data, "rows"), spot)
        psum = block.tiles[Placed(step.data, "rows")].psum
        cycles = spot.width * (1.0 if psum else spec.two_input_cycles_per_element)
        ns = (cycles + spec.access_cycles) / spec.vector_ghz
        target = total if "[" in total else f"{total}[...]"
        text = f"{target} = nisa.tensor_tensor({total}, {data}, op=nl.add)"
        body.append(Line((Form(text, "vector", ns),)))
