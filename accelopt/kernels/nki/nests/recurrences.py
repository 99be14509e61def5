"""Recurrences along a free axis, part after part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.nests.axis_positions import At, Span, number_text
from accelopt.kernels.nki.nests.nest import NotNested
from accelopt.kernels.nki.nests.places import Local, Round, View, Where
from accelopt.kernels.nki.nests.statements import Form
from accelopt.kernels.nki.nests.text import Tile, collected
from accelopt.kernels.nki.nests.values import Value

if TYPE_CHECKING:
    from accelopt.kernels.nki.nests.emission import Emitter


class Recurrences:
    """Recurrences of one nest."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter

    def scan(
        self, definition: ir.Definition, parts: tuple[Value, Value, Value], where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A recurrence along a free axis, part after part."""
        assert isinstance(definition, ir.Scan)
        along = definition.along
        if along in where.part:
            raise NotNested(f"{definition.out} runs along {along.name}, which lies on partitions")
        others = [(a, 1) for a in definition.axes if a != along and a not in where.part
                  and where.span(a).width > 1]  # fmt: skip
        factor, term, initial = parts
        if self.begins(definition, where) is not None:
            self.steps(definition, factor, term, where, target(where), finish)
            return
        single = any(
            part.axis == along.name and part.size == 1 for part in self.emitter.stage.loops
        )
        if others and single and along.extent > 1 and initial.kind == "constant":
            view = target(where)
            if view.tile.dtype == "float32":
                self.next_step(definition, parts, where, view)
                finish(where, view)
                return

        def one(round_: Round) -> None:
            spot = round_.where
            whole = spot.span(along)
            kept = self.state_of(definition, initial, spot) if whole.width < along.extent else None
            size = min(self.emitter.stage.columns, whole.width)
            state = kept
            for start in range(0, whole.width, size):
                width = min(size, whole.width - start)
                place = spot.within({along: Span(collected(whole.start + start), width)})
                first = self.initial(initial, spot.within({along: Span(At(), 1)}), state)
                view = target(place)
                views = [view, *(self.tile_along(v, place, along) for v in (factor, term))]
                names = (definition.scale, definition.combine)

                def write(dst: str, given: list[str], width: int) -> tuple[Form, ...]:
                    text = (
                        f"data0={given[0]}, data1={given[1]}, initial={first}, "  # noqa: B023
                        f"op0=nl.{names[0]}, op1=nl.{names[1]}"  # noqa: B023
                    )
                    said = self.emitter.said(*views)  # noqa: B023
                    call = self.emitter.text.call(dst, "tensor_tensor_scan", text, said)
                    return (Form(call, "vector", self.emitter.vector_ns(2 * width)),)

                self.emitter.issue(place, (along,), views, write)
                finish(place, view)
                last = view.offset + view.strides.get(along, 0) * (width - 1)
                state = View(view.tile, last, {})
            if kept and state:
                self.emitter.copy(spot, (), kept, state)

        self.emitter.each(where, others, one)

    def begins(self, definition: ir.Definition, where: Where) -> float | None:
        """What stands before the first element of a recurrence that is taken step by step: where that is
        faster than along its axis, since many run beside each other, all of which lie in one tile. None
        for another one."""
        parts, emitter = self.emitter.reading.meanings[definition.out].scan, self.emitter
        if parts is None or not isinstance(definition, ir.Scan):
            return None
        factor, _, initial = parts
        others = where.free(set(definition.axes) - {definition.along})
        beside = math.prod(where.span(axis).width for axis in others)
        steps = where.span(definition.along).width
        instructions = 2 if set(others) & factor.axes else 1
        out = emitter.arrays.get(definition.out)
        if (
            initial.kind != "constant"
            or (initial.constant and definition.out in emitter.margins)
            or steps < definition.along.extent
            or (out is not None and out.dtype != "float32")
            or beside > emitter.stage.columns
            or steps * instructions * emitter.vector_ns(2 * beside)
            >= beside * emitter.vector_ns(2 * steps)
        ):
            return None
        return initial.constant

    def steps(
        self, definition: ir.Scan, factor: Value, term: Value, where: Where, view: View,
        finish: Callable[[Where, View], None],
    ) -> None:  # fmt: skip
        """A recurrence step by step, all that run beside each other at once. The element before the first
        lies before it in its tile."""
        emitter, along = self.emitter, definition.along
        before, value = self.step_of(definition, factor, term)
        wide = where.within({along: Span(At(-1), along.extent + 1)})
        first = View(view.tile, view.offset + -view.strides[along], view.strides)
        emitter.blocks[-1].locals[before.array] = [Local(first, wide, definition.axes)]

        def one(round_: Round) -> None:
            emitter.settled(value, round_.where, view.moved(round_.where, where))

        emitter.each(where, [(along, 1)], one)
        finish(where, view)

    def next_step(
        self, definition: ir.Scan, parts: tuple[Value, Value, Value], where: Where, view: View
    ) -> None:
        """One step of a recurrence whose stage takes one in a round, of all that run beside each other."""
        emitter, along = self.emitter, definition.along
        others = where.free(set(definition.axes) - {along})
        state = self.state_of(definition, parts[2], where, others)
        before, value = self.step_of(definition, *parts[:2])
        last = where.within({along: Span(collected(where.span(along).start + -1), 1)})
        emitter.blocks[-1].locals[before.array] = [Local(state, last, definition.axes)]
        emitter.settled(value, where, view)
        emitter.copy(where, others, state, view)

    def step_of(self, definition: ir.Scan, factor: Value, term: Value) -> tuple[Value, Value]:
        """The element of a recurrence before one, and that one."""
        emitter, along = self.emitter, definition.along
        builder = emitter.reading.builder
        indices = tuple(index_of(a) - (a == along) for a in definition.axes)
        before = builder.input(f"{definition.out} before", indices)
        scaled = builder.apply(definition.scale, factor, before)
        value = builder.apply(definition.combine, scaled, term)
        emitter.reading.uses |= {
            made: 1 for made in (before, scaled) if made not in emitter.reading.uses
        }
        return before, value

    def state_of(
        self, definition: ir.Scan, initial: Value, where: Where, axes: Sequence[Axis] = ()
    ) -> View:
        """Where a recurrence stands after the rounds of a loop along it that were, for each round of the
        loops inside of that one, and for all places along some axes."""
        along = definition.along
        if initial.kind != "constant":
            raise NotNested(
                f"{definition.out} begins with what is computed, and its stage takes {along.name} in parts"
            )
        depth = self.emitter.home({name for name, _ in where.span(along).start.terms})
        inner = [b.variable for b in self.emitter.blocks[depth + 1 :] if b.variable]
        counts = [self.emitter.text.reach[name] for name in inner]
        strides = row_major([*counts, *(where.span(axis).width for axis in axes)])
        fixed = tuple((a, s.start.constant, s.width) for a, s in where.spans.items() if a != along)
        key = (definition.out, fixed)
        if key not in self.emitter.states:
            with self.emitter.at(max(depth - 1, 0)):
                width = math.prod([*counts, *(where.span(axis).width for axis in axes)])
                tile = Tile(self.emitter.names.new(f"{definition.out}_before"), where.rows, width)
                self.emitter.declare(tile)
                self.emitter.fill(tile, number_text(initial.constant, self.emitter.numbers))
            self.emitter.states[key] = tile
        place = At(0, tuple(zip(inner, strides, strict=False)))
        return View(
            self.emitter.states[key], place, dict(zip(axes, strides[len(inner) :], strict=True))
        )

    def initial(self, value: Value, where: Where, state: View | None) -> str:
        """What a part of a recurrence begins with."""
        if state is None:
            return self.emitter.number(value, where)
        if state.tile.dtype != "float32":
            state = self.emitter.converted(state, where, (), "float32")
        return self.emitter.column(state, where.rows)

    def tile_along(self, value: Value, where: Where, axis: Axis) -> View:
        """A value with an element for each place along an axis, in SBUF."""
        view = self.emitter.view(value, where)
        if view.strides.get(axis) is None:
            made = self.emitter.new_tile("repeated", where, (axis,))
            self.emitter.copy(where, (axis,), made, view)
            return made
        return view
