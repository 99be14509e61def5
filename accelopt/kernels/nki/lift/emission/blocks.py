"""One block of rows after the other: the body of a lowered kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from accelopt.algorithm.index import Axis
from accelopt.hardware import Hardware
from accelopt.kernels.nki.lift.emission.graph import Graph, GraphValue
from accelopt.kernels.nki.lift.emission.lifetimes import Lifetimes
from accelopt.kernels.nki.lift.emission.masks import Masks
from accelopt.kernels.nki.lift.emission.nest import (
    Comment,
    For,
    Line,
    NestNode,
    line,
)
from accelopt.kernels.nki.lift.emission.partition_sums import Across
from accelopt.kernels.nki.lift.emission.phases import Phases, Placed, TileLayout, roles_of
from accelopt.kernels.nki.lift.emission.prefetch import carried, phases_ahead, pipelined
from accelopt.kernels.nki.lift.emission.products import Products
from accelopt.kernels.nki.lift.emission.results import Results
from accelopt.kernels.nki.lift.emission.row_packing import rows_beside
from accelopt.kernels.nki.lift.emission.row_phases import RowPhases
from accelopt.kernels.nki.lift.emission.selection import (
    Selection,
    forms,
    select,
)
from accelopt.kernels.nki.lift.emission.storage import TileStorage, Tiling, tilings
from accelopt.kernels.nki.lift.emission.transfers import Transfers
from accelopt.kernels.nki.lift.emission.turned_phases import TurnedPhases
from accelopt.kernels.nki.lift.emission.value_locations import (
    START,
    At,
    Spot,
    Tile,
    part,
    strided,
    variable,
)
from accelopt.kernels.nki.lift.emission.weights import Weights
from accelopt.kernels.nki.lift.emission.windows import Windows, whole_rows
from accelopt.kernels.nki.lift.schedule import Schedule

FORMS: Mapping[str, Callable[[float], float]] = {
    "{}": lambda value: value,
    "-{}": lambda value: -value,
    "1 / {}": lambda value: 1 / value if value else math.nan,
    "-1 / {}": lambda value: -1 / value if value else math.nan,
}
"""What kernels make of a plain argument, as text; each is its own reverse."""


def number_text(number: float, plain: Mapping[float, str]) -> str:
    """A number as text: a plain argument, its negative or its inverse, by the argument's name."""
    for value, name in plain.items():
        for form, made in FORMS.items():
            # In fp32 the inverse of an inverse may be another number: one way will do.
            ways = ((made(value), number), (made(number), value))
            if any(np.float32(one) == np.float32(other) for one, other in ways):
                return form.format(name)
    return repr(number).replace("e+", "e")


class RowBlock:
    """Emits a kernel. Raises NotLowered, ResourceShort.

    With `overwrite`, values are written over those of the block of rows that nobody reads any more;
    without, there is `room` when the next block fits into SBUF beside the present one."""

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        spec: Hardware,
        numbers: Mapping[float, str],
        overwrite: bool = False,
    ) -> None:
        graph, beside = whole_rows(graph, schedule.rows), None
        if schedule.beside > 1:
            graph, beside = rows_beside(graph, schedule.rows, schedule.beside)
        self.graph = graph
        self.schedule = schedule
        self.spec = spec
        self.plain = numbers
        self.roles = roles_of(graph, schedule.rows, beside)
        self.beside = (schedule.beside,) if beside else ()
        self.rows_within = ":, " if beside else ""
        self.plan = Phases(self.roles, schedule)
        self.tilings = tilings(self.roles.rows.extent, schedule.row_tiles)
        self.tiling = self.tilings[0]
        self.storage = TileStorage(graph, self.roles, spec)
        self.names = self.storage.names
        self.tiles: dict[Placed, Tile] = {}
        self.loops: dict[Axis, At] = {}
        self.first: list[NestNode] = []  # before all loops
        self.scopes: list[
            list[NestNode]
        ] = []  # the body of each batch loop, the first being `first`
        self.weights = Weights(self)
        self.products = Products(self)
        self.transfers = Transfers(self)
        self.masks = Masks(self)
        self.windows = Windows(self)
        self.results = Results(self)
        self.row_phases = RowPhases(self)
        self.turned_phases = TurnedPhases(self)
        self.across = Across(self)
        self.lives = Lifetimes(self.plan, overwrite)
        self.room = True
        self.constants: dict[float, str] = {}

    # ---- the whole kernel ---------------------------------------------------------------------

    def emit(self) -> list[NestNode]:
        """The kernel's statements."""
        self.views = self.transfers.views()
        body = self.first
        self.scopes = [body]
        bodies = [body]
        for axis in self.roles.batch:
            inner: list[NestNode] = []
            name = self.names.new(f"i_{axis.name}")
            self.loops[axis] = variable(name)
            bodies.append(inner)
            self.scopes.append(inner)
        self.weights.load_kept()
        resident = dict(self.storage.bytes)
        for tiling in self.tilings:
            self.storage.bytes = dict(resident)
            self._tiled(bodies[-1], tiling)
            self.room &= self.storage.check(sum(resident.values()))
        for number, axis in reversed(list(enumerate(self.roles.batch))):
            loop = str(self.loops[axis])
            bodies[number].append(For(loop, axis.extent, bodies[number + 1]))
        return body

    def _tiled(self, body: list[NestNode], tiling: Tiling) -> None:
        """The blocks of some of the rows."""
        self.tiling, self.tiles, self.constants = tiling, {}, {}
        if tiling.first:
            body.append(Comment(f"The last {tiling.block} rows."))
        name = self.names.new(f"{self.roles.rows.name}_block" if tiling.tiles > 1
                              else f"{self.roles.rows.name}_tile")  # fmt: skip
        first = phases_ahead(self.plan) if self.schedule.ahead and tiling.blocks > 1 else 0
        if first:
            self._ahead(body, name, first)
            return
        looped = variable(name if tiling.blocks > 1 else None)
        self.block_start = looped * tiling.block + tiling.first
        rows: list[NestNode] = []
        self._declare(rows)
        self._begin(rows)
        self._phases(rows, 0, len(self.plan.phases))
        self._end(rows)
        self._looped(body, rows, name)

    def _ahead(self, body: list[NestNode], name: str, first: int) -> None:
        """The same with the `first` phases one block ahead of the others."""
        tiling = self.tiling
        declared: list[NestNode] = []
        ready: list[NestNode] = []
        rest: list[NestNode] = []
        self._declare(declared)
        self.block_start = variable(self.names.new(f"{name}_next")) * tiling.block + tiling.first
        self._begin(ready)
        self._phases(ready, 0, first)
        self.block_start = variable(name) * tiling.block + tiling.first
        self._phases(rest, first, len(self.plan.phases))
        self._end(rest)
        for tile in carried(ready, rest, declared):
            self.storage.bytes[tile] = 2 * self.storage.bytes.get(tile, 0)
        body += pipelined(ready, rest, declared, name, tiling.blocks)

    def _looped(self, body: list[NestNode], rows: list[NestNode], name: str) -> None:
        if self.tiling.blocks > 1:
            body.append(For(name, self.tiling.blocks, rows))
        else:
            body.extend(rows)

    # ---- one block ----------------------------------------------------------------------------

    def _begin(self, body: list[NestNode]) -> None:
        """What a block of rows begins with: a place for what later turns out to be needed, and one
        number a row."""
        self.rows_body: list[NestNode] = []
        body.append(For("", 1, self.rows_body))
        self.transfers.load_numbers(body)

    def _phases(self, body: list[NestNode], start: int, stop: int) -> None:
        for number, phase in enumerate(self.plan.phases[start:stop], start):
            self._numbers(body, phase.level)
            if phase.values:
                if phase.layout == "rows":
                    self.row_phases.emit(body, number, phase)
                else:
                    self.turned_phases.emit(body, number, phase)

    def _end(self, body: list[NestNode]) -> None:
        """Numbers that no phase waits for, and those that are stored."""
        last = max((phase.level for phase in self.plan.phases), default=0) + 1
        for level in range(last, last + 3):
            self._numbers(body, level)
        self.transfers.store_numbers(body)

    def _declare(self, body: list[NestNode]) -> None:
        """The tiles that a block of rows keeps."""
        tiling = self.tiling
        for operand in self.plan.transposed:
            axis = self.roles.feature(operand)
            assert axis is not None
            name = self.storage.name(operand, "_transposed")
            shape = (tiling.chunk(axis.extent), tiling.chunks(axis.extent), tiling.block)
            self.storage.declare(body, name, shape, dtype=operand.dtype)
            self.products.moving[operand] = name
        for placed in sorted(
            self.lives.kept - set(self.lives.alias), key=lambda p: (p.value.number, p.layout)
        ):
            axis = self.roles.feature(placed.value)
            assert axis is not None
            if placed.layout == "rows":
                tiles = (tiling.tiles,) if tiling.tiles > 1 else ()
                shape = (tiling.row_tile, *tiles, axis.extent)
                name = self.storage.name(placed.value, "_rows")
            else:
                shape = (tiling.chunk(axis.extent), tiling.chunks(axis.extent), tiling.block)
                name = self.storage.name(placed.value, "_transposed")
                if placed.value in self.plan.operands:
                    self.products.moving[placed.value] = name
            self.storage.declare(body, name, shape, dtype=placed.value.dtype)
            self.tiles[placed] = Tile(name, "kept")
        for placed, other in self.lives.alias.items():
            self.tiles[placed] = self.tiles[other]
            if placed.layout == "transposed" and placed.value in self.plan.operands:
                self.products.moving[placed.value] = self.tiles[other].name

    def _numbers(self, body: list[NestNode], level: int) -> None:
        """What is worked out of one number a row, for all tiles of rows at once."""
        for value in self.plan.numbers_over_partitions(level):
            if Placed(value, "rows") not in self.tiles:
                self.across.combine(body, value)
        values = [*self.plan.row_numbers(level)]
        order = {value: n for n, value in enumerate(self.graph.values)}
        values.sort(key=lambda value: order[value])
        values += [value for value in self.lives.numbers.get(level, ()) if value not in values]
        values = [value for value in values if Placed(value, "rows") not in self.tiles]
        if not values:
            return
        steps = select(values, lambda v: v.kind == "constant", (), lambda value, _: value)
        for step in steps:
            name = self.storage.name(step.value)
            text = lambda value: self.number(value, whole=True)  # noqa: E731
            found = forms(step, name, text, self.tiling.tiles, False, self.spec)
            body.append(Line(found))
            self.storage.count(name, (self.tiling.tiles,))
            self.tiles[Placed(step.value, "rows")] = Tile(name, "number")

    def number(self, value: GraphValue, row: At = START, whole: bool = False) -> str:
        """One number a row: for one tile of rows, or with `whole` for all."""
        if value.kind == "constant":
            return self.constant(value.constant)
        if value.axes & self.roles.inner:
            return self.transfers.table(value)
        name = self.tiles[Placed(value, "rows")].name
        if whole or self.tiling.tiles == 1:
            return name
        return f"{name}[:, {part(row, 1, self.tiling.tiles)}]"

    def constant(self, number: float) -> str:
        """A number as text."""
        return number_text(number, self.plain)

    def target(self, body: list[NestNode], placed: Placed, spot: Spot, declare: bool) -> None:
        """Declares the tile that narrower steps fill."""
        if placed in self.tiles and self.tiles[placed].kind in ("kept", "temporary"):
            return
        name = self.storage.name(placed.value)
        if declare:
            shape = (self.tiling.row_tile, spot.block)
            self.storage.declare(body, name, shape, dtype=placed.value.dtype)
        else:
            self.storage.count(name, (spot.block,), dtype=placed.value.dtype)
        self.tiles[placed] = Tile(name, "temporary")

    def step(self, body: list[NestNode], step: Selection, layout: TileLayout, spot: Spot) -> None:
        """Emits one instruction."""
        placed = Placed(step.value, layout)
        if step.opcode != "reduce" and placed not in self.lives.kept and placed not in self.tiles:
            name = self.storage.name(step.value)
            self.tiles[placed] = Tile(name, "temporary")
            self.storage.count(name, (*self.beside, spot.block), dtype=step.value.dtype)
        for number in step.numbers:
            bias = step.opcode == "activation" and number is step.numbers[1]
            if bias and number is not None and number.kind == "constant":
                self._bias(number)
        text = lambda value: self.text(step, value, layout, spot)  # noqa: E731
        psum = any(self._in_psum(tile, layout) for tile in step.tiles)
        target = (
            self.number_part(step.value, spot)
            if step.opcode == "reduce"
            else self.place(placed, spot)
        )
        if step.opcode == "select":
            self.masks.select(body, step, target, layout, spot)
            return
        width = spot.width * math.prod(self.beside)
        body.append(Line(forms(step, target, text, width, psum, self.spec)))

    def _bias(self, number: GraphValue) -> None:
        placed = Placed(number, "rows")
        if placed in self.tiles:
            return
        name = self.names.new("bias")
        self.first.append(
            line(
                f"{name} = nisa.memset((128, 1), {self.constant(number.constant)}, dtype=nl.float32)"
            )
        )
        self.tiles[placed] = Tile(name, "column")

    def _in_psum(self, value: GraphValue, layout: TileLayout) -> bool:
        tile = self.tiles.get(Placed(value, layout))
        if tile is None or layout == "transposed":
            tile = self.turned_phases.spread.get(value, tile)
        return tile is not None and tile.psum

    def text(self, step: Selection, value: GraphValue, layout: TileLayout, spot: Spot) -> str:
        """An operand of a step, as text."""
        if value is step.total:
            return self.number_part(value, spot)
        if value.kind == "constant":
            is_bias = step.opcode == "activation" and value is step.numbers[1]
            if is_bias:
                partitions = self.tiling.row_tile
                name = self.tiles[Placed(value, "rows")].name
                return name if partitions == 128 else f"{name}[0:{partitions}, :]"
            return self.constant(value.constant)
        if not self.roles.has_rows(value):
            return self.transfers.vector(value, layout, spot)
        if self.roles.feature(value) is None:
            return (
                self.number(value, spot.row)
                if layout == "rows"
                else self.turned_phases.spread[value].name
            )
        return self.place(Placed(value, layout), spot)

    def number_part(self, value: GraphValue, spot: Spot) -> str:
        """Where a sum over one part of the free axis goes."""
        tile = self.tiles[Placed(value, "rows")]
        tiles = self.tiling.tiles
        passes = self._passes(spot)
        if passes > 1:
            column = At(0, tuple((v, 1) for v, _ in spot.start.terms))
            middle = f"{spot.row}, " if tiles > 1 else ""
            return f"{tile.name}[:, {middle}{part(column, 1, passes)}]"
        return f"{tile.name}[:, {part(spot.row, 1, tiles)}]"

    def _passes(self, spot: Spot) -> int:
        return 2 if spot.start.terms else 1

    def place(self, placed: Placed, spot: Spot) -> str:
        """The part of a tile that a step works on."""
        tile = self.tiles[placed]
        if tile.kind == "sums":
            return tile.name
        if tile.kind == "kept":
            axis = self.roles.feature(placed.value)
            assert axis is not None
            if placed.layout == "transposed":
                chunk = At(spot.start.constant, spot.start.terms)
                return f"{tile.name}[:, {chunk}, :]"
            middle = f"{spot.row}, " if self.tiling.tiles > 1 else ""
            where = part(spot.start, spot.width, axis.extent)
            return f"{tile.name}[:, {middle}{where}]"
        if tile.stride:
            where = strided(spot.offset, spot.width, tile)
            return f"{tile.name}[:, {self.rows_within}{where}]"
        if spot.width == spot.block:
            return tile.name
        return f"{tile.name}[:, {self.rows_within}{part(spot.offset, spot.width, spot.block)}]"

    def variable(self, axis: Axis, suffix: str, extent: int) -> str | None:
        """A name for a loop over parts of an axis; None for a loop of one iteration."""
        return self.names.new(f"{axis.name}_{suffix}") if extent > 1 else None

    def loop(
        self, body: list[NestNode], name: str | None, extent: int, kind: str = "affine_range"
    ) -> list[NestNode]:
        """The body of a new loop, or the body itself for a loop of one iteration."""
        if name is None or extent == 1:
            return body
        loop = For(name, extent, kind=kind)
        body.append(loop)
        return loop.body
