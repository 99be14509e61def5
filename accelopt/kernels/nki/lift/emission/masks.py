"""Conditions on axes: masks by position, as an affine_select of a tile and a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelopt.algorithm.index import Axis, Index
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.nest import Form, Line, NestNode, line
from accelopt.kernels.nki.lift.emission.phases import TileLayout
from accelopt.kernels.nki.lift.emission.selection import Selection
from accelopt.kernels.nki.lift.emission.value_locations import At, Span, Spot, variable

if TYPE_CHECKING:
    from accelopt.kernels.nki.lift.emission.blocks import RowBlock


class Masks:
    """Emits them for a `RowBlock`."""

    def __init__(self, block: RowBlock) -> None:
        self.block = block
        self._grids: dict[tuple[int, int], tuple[str, str]] = {}
        self._filled: dict[tuple[float, int, int], str] = {}

    def select(
        self, body: list[NestNode], step: Selection, target: str, layout: TileLayout, spot: Spot
    ) -> None:
        """`target = data where the step's condition holds, else its number`."""
        block = self.block
        axis = block.roles.feature(step.value)
        if axis is None:
            raise NotLowered("a condition on rows alone")
        spans = (
            block.transfers.spans(spot, axis)
            if layout == "rows"
            else block.turned_phases.spans(spot, axis)
        )
        on_partitions = block.roles.rows if layout == "rows" else axis
        sizes = spans[on_partitions].width, spot.width
        (condition,) = step.value.indices
        predicate = self._text(condition, spans, on_partitions, self._grid(*sizes))
        if step.data.kind == "constant":
            data = self._constant(step.data.constant, *sizes)
        else:
            data = block.text(step, step.data, layout, spot)
        (on_false,) = step.numbers
        assert on_false is not None
        text = (
            f"{target} = nisa.affine_select(pred={predicate}, on_true_tile={data}, "
            f"on_false_value={block.constant(on_false.constant)}{step.format_option})"
        )
        spec = block.spec
        cycles = spec.gpsimd_start_cycles + spec.gpsimd_cycles_per_element * spot.width
        body.append(Line((Form(text, "gpsimd", cycles / spec.gpsimd_ghz),)))

    def _grid(self, partitions: int, width: int) -> tuple[str, str]:
        """Names of the positions in a tile: along its partitions, along its free axis."""
        key = (partitions, width)
        if key not in self._grids:
            new = self.block.names.new
            names = new("partition"), new("element")
            self.block.first.append(
                line(f"{', '.join(names)} = nl.mgrid[0:{partitions}, 0:{width}]")
            )
            self._grids[key] = names
        return self._grids[key]

    def _text(
        self, condition: Index, spans: dict[Axis, Span], partitions: Axis, grid: tuple[str, str]
    ) -> str:
        """`condition >= 0`, what is subtracted on the other side."""
        place = At(condition.constant)
        for axis, factor in condition.terms:
            if not isinstance(axis, Axis):
                raise NotLowered(f"the condition {condition} is not affine")
            if axis in spans:
                name = grid[0] if axis == partitions else grid[1]
                place += (spans[axis].start + variable(name)) * factor
            else:
                place += self.block.loops[axis] * factor
        gains = At(max(place.constant, 0), tuple((v, f) for v, f in place.terms if f > 0))
        losses = At(max(-place.constant, 0), tuple((v, -f) for v, f in place.terms if f < 0))
        return f"{gains} >= {losses}"

    def _constant(self, number: float, partitions: int, width: int) -> str:
        key = (number, partitions, width)
        if key not in self._filled:
            name = self.block.names.new("filled")
            self.block.first.append(
                line(f"{name} = nisa.memset(({partitions}, {width}), {number!r}, dtype=nl.float32)")
            )
            self.block.storage.count(name, (width,))
            self._filled[key] = name
        return self._filled[key]
