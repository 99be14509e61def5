"""Writes a nest: its stages one after the other, each walked once, and the members of a stage in its rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.linear import row_major
from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.axis_positions import At, FreeNames, Span, variable
from accelopt.kernels.nki.nests.computed_together import NotTogether, accumulated
from accelopt.kernels.nki.nests.condition_splitting import changing, deciding, parts_along
from accelopt.kernels.nki.nests.hbm_margins import margins_of
from accelopt.kernels.nki.nests.hbm_reads import KEPT_BYTES, LITTLE, Memory
from accelopt.kernels.nki.nests.in_place import check_scatters
from accelopt.kernels.nki.nests.instructions import is_one
from accelopt.kernels.nki.nests.matmul_operands import STARTS, Operands
from accelopt.kernels.nki.nests.moments import moments_of
from accelopt.kernels.nki.nests.nest import Nest, NotNested, ReadAfterChange, Stage, product_in
from accelopt.kernels.nki.nests.on_chip import ALIKE, OnChip, of_one
from accelopt.kernels.nki.nests.partition_reductions import NEUTRAL, Partitions
from accelopt.kernels.nki.nests.places import Local, Round, View, Where, spans_of
from accelopt.kernels.nki.nests.recurrences import Recurrences
from accelopt.kernels.nki.nests.skipping import both_of, masks_that_empty
from accelopt.kernels.nki.nests.statements import Comment, Form, NestNode, line
from accelopt.kernels.nki.nests.text import Tile, Writer, merged
from accelopt.kernels.nki.nests.tile_names import word_of
from accelopt.kernels.nki.nests.value_graphs import Product, Reading, inputs_of
from accelopt.kernels.nki.nests.value_instructions import Calculation
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dialects.dialect import Dialect

MOST_COPIES = 8
"""Of a stage's body, each with the blocks that a mask leaves there."""
CORES = 2
"""Of a launch, as the physical cores of a logical one."""
BESIDE_BANKS = 4
"""Of PSUM, that the sums of a product may take side by side."""


class _Term(NamedTuple):
    """One of the products that are summed together: of what is stationary, then of what moves, how it comes
    there, the value, its own axes, and which side it is. Along axes that lie `apart`, outside of the stationary
    ones on partitions, each element is a product of its own."""

    both: tuple[Operands, Operands]
    found: Product
    values: list[tuple[Value, tuple[Axis, ...], str]]
    apart: tuple[Axis, ...]

    @property
    def operands(self) -> Operands:
        """What the stationary operand comes with."""
        return self.both[0]

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The axes of what is stationary."""
        return self.values[0][1]

    @property
    def columns(self) -> tuple[Axis, ...]:
        """The axes of what moves, but for those on partitions."""
        return tuple(axis for axis in self.values[1][1] if axis not in self.apart)

    def make(
        self, n: int, together: Sequence[Axis], where: Where
    ) -> Callable[[Round, Where], View]:
        """One of the operands, for all of some batches `together`."""
        value, own, side = self.values[n]
        batch = (axis for axis in (*together, *self.apart) if axis in self.found.batch)
        heads = {axis: Span(At(), axis.extent) for axis in self.operands.heads}
        axes = tuple(axis for axis in (*batch, *own) if axis not in heads)
        where = replace(where.within(heads), part=self.both[n].where.part)
        return self.both[n].make(value, axes, where, side, moving=bool(n))


class Emitter(Calculation):
    """Writes one nest of a prepared Algorithm."""

    def __init__(
        self, algorithm: ir.Algorithm, nest: Nest, spec: Hardware, dialect: Dialect,
        numbers: Mapping[float, str], taken: set[str], in_parts: bool = True,
        in_place: Mapping[str, str] = {},
        reader: Callable[[ir.Algorithm, frozenset[str]], Reading] = Reading,
    ) -> None:  # fmt: skip
        try:
            algorithm, self.added = accumulated(algorithm, nest.accumulated)
        except NotTogether as refusal:
            raise NotNested(str(refusal)) from refusal
        check_scatters(algorithm, nest)
        reading = reader(algorithm, frozenset(name for name, _, _ in nest.ways))
        names = FreeNames(taken)
        results = {array.name for array in algorithm.outputs}
        given = {array.name: array.given for array in (*algorithm.inputs, *algorithm.outputs)}
        text = Writer(dialect, names, given)
        super().__init__(names, text, spec, results, reading, numbers)
        self.algorithm = algorithm
        self.nest = nest
        self.definitions = {d.out: d for d in algorithm.definitions}
        self.arrays = {a.name: a for a in (*algorithm.inputs, *algorithm.outputs)}
        self.outside = {a.name: a.name for a in self.arrays.values()}
        self.in_place = {a.name: a.updates for a in algorithm.outputs if a.steps and a.updates} | {
            **in_place
        }
        """The inputs that results are written over."""
        self.changed = set()
        self.outside |= {out: self.outside[name] for out, name in self.in_place.items()}
        self.deciding = deciding(algorithm.definitions)
        self.in_parts = in_parts
        self.parts = self._parts(in_parts)
        self.alone = {name: self.deciding.keys() | self.parts[name].keys() | self._whole(name)
                      for name in self.definitions}  # fmt: skip
        """By definition, the axes on which conditions are decided part by part: no margin stands for those."""
        self.margins = margins_of(algorithm, self.reading, self.alone)
        if padded := {*self.in_place} & self.margins.keys():
            raise ReadAfterChange(*(self.in_place[name] for name in padded))
        self.stage = nest.stages[0]
        self.carried: dict[str, Callable[[], None]] = {}
        self.held_sums: dict[str, tuple[View, Value]] = {}
        self.last: dict[str, ir.Definition] = {}
        self.round: Mapping[Axis, Span] = {}
        self.laid: dict[str, tuple[Axis, ...]] = {}
        self.pending: dict[str, tuple[ir.Definition, Where]] = {}
        self.states: dict[object, Tile] = {}
        self.memory = Memory(self)
        self.partitions = Partitions(self)
        self.recurrences = Recurrences(self)
        self.on_chip = OnChip(self)
        self.exchanged: dict[str, bool] = {}
        """Definitions of which a core reads what the other computed, and whether it has waited for it."""
        self.program: dict[Axis, Span] = {}
        """Which element of an axis the core computes in the present stage that runs this text."""
        self.programs = self._programs()

    def _programs(self) -> dict[Stage, dict[Axis, Span]]:
        """By stage, which element of an axis a core computes. Raises NotNested where what one core computes
        the other would store too, or is read by the other and is not in HBM."""
        if not self.nest.cores:
            return {}
        core = self.names.new("core")
        self.text.reach[core] = CORES
        self.text.first.append(line(f"{core} = nl.program_id(0)"))
        chosen: dict[str, Axis | None] = {}
        for stage in self.nest.stages:
            along = {
                d.along for d in map(self.definitions.get, stage.members) if isinstance(d, ir.Scan)
            }
            # A condition that holds on one core alone is decided on neither.
            shared = set(self.axes_of_stored(stage)) - along - self.deciding.keys()
            named = {axis.name: axis for axis in shared if axis.extent == CORES}
            axis = next((named[name] for name in self.nest.cores if name in named), None)
            chosen.update(dict.fromkeys(stage.members, axis))
        for name, definition in self.definitions.items():
            if chosen[name] is None and self.is_written(name):
                raise NotNested(f"{name} has no half for each core, and both would store all of it")
            for part in ir.reads_in(definition):
                axis = chosen.get(part.array)
                if axis is None:
                    continue
                source = self.definitions[part.array]
                if axis not in source.axes:
                    continue
                same = axis == chosen[name]
                if same and part.indices[source.axes.index(axis)] == index_of(axis):
                    continue
                if part.array in self.nest.held or name in self._beside(part.array):
                    raise NotNested(
                        f"{name} reads elements of {part.array} that the other core has"
                    )
                self.exchanged[part.array] = False
        return {
            stage: {axis: Span(variable(core), 1)} if (axis := chosen[stage.members[0]]) else {}
            for stage in self.nest.stages
        }

    def is_written(self, name: str) -> bool:
        """Whether a definition's elements go to HBM: results, and what other stages read."""
        later = self.reading.readers[name] - self._beside(name)
        return name in self.results or bool(later and name not in self.nest.held)

    def axes_of_stored(self, stage: Stage) -> list[Axis]:
        """The axes of all that a stage gives others."""
        given = [d for d in map(self.definitions.__getitem__, stage.members)
                 if d.out in self.results or self.reading.readers[d.out] - set(stage.members)]  # fmt: skip
        return (
            [axis for axis in given[0].axes if all(axis in d.axes for d in given)] if given else []
        )

    def _beside(self, name: str) -> set[str]:
        """The members of a definition's stage."""
        return next(set(stage.members) for stage in self.nest.stages if name in stage.members)

    def _parts(self, of_products: bool) -> dict[str, Mapping[Axis, tuple[int, ...]]]:
        """By definition, where parts of axes begin that conditions change along, of those that lie whole
        beside each other in its stage; of products those whose conditions are on one axis alone."""
        found: dict[str, Mapping[Axis, tuple[int, ...]]] = {}
        for stage in self.nest.stages:
            taken = _taken(stage)
            for name in stage.members:
                definition = self.definitions[name]
                along = parts_along((definition,)) if isinstance(definition, ir.Map) else {}
                if of_products and product_in(definition):
                    along = parts_along((definition,), alone=True)
                    along = {axis: s for axis, s in along.items() if axis in definition.axes}
                found[name] = {a: s for a, s in along.items() if a.name not in taken}
        return found

    def _whole(self, name: str) -> set[Axis]:
        """Axes that one of two values is taken along, and that lie whole beside each other."""
        stage = next(stage for stage in self.nest.stages if name in stage.members)
        along = changing((self.definitions[name],))
        return {axis for axis in along if axis.name not in _taken(stage)}

    def emit(self) -> list[NestNode]:
        """The statements of the kernel's body, but for its parameters' shapes and results."""
        for stage in self.nest.stages:
            self.emit_stage(stage)
        return [*self.text.first, *self.blocks[0].nodes]

    # Stages.

    def emit_stage(self, stage: Stage) -> None:
        """One loop nest with the tiles of its members."""
        self.stage = stage
        self.overlaps = stage.overlaps
        self.changed.clear()
        apart = {
            n: last
            for n, last in self.nest.accumulated
            if (n in stage.members) != (last in stage.members)
        }
        for name, last in apart.items():
            raise NotNested(f"{name} is computed in another stage than {last}")
        inside = {name for name, _ in self.nest.accumulated}
        members = tuple(self.definitions[name] for name in stage.members if name not in inside)
        self.deciding = deciding(members)
        self.moments = moments_of(self.reading, members, dict(self.nest.engines))
        axes = {axis.name: axis for d in members for axis in ir.own_axes(d)}
        named = {p.axis for p in (*stage.partition, *stage.loops)} | set(stage.skipped)
        for name in named - axes.keys():
            raise NotNested(f"{stage.members[0]} has no axis {name}")
        self.blocks[0].values.clear()
        self.blocks[0].locals.clear()
        self.blocks[0].boxes.clear()
        self.put_comment(members)
        self.program = self.programs.get(stage, {})
        for name, waited in self.exchanged.items():
            if not waited and self.reading.readers[name] & set(stage.members):
                self.put(f"nisa.core_barrier({self.outside[name]}, {tuple(range(CORES))})")
                self.exchanged[name] = True
        lying = tuple(axes[part.axis] for part in stage.partition)
        if not lying and all(d.out in self.nest.held for d in members):
            lying = (ALIKE,)
        self.laid = {name: self.axes_laid(name, names) for name, names in stage.laid}
        for axis in self.program:
            if axis.name in named.union(*(names for _, names in stage.laid)):
                raise NotNested(f"{stage.members[0]} has one of {axis.name} on each core")
        looped = {axes[part.axis] for part in stage.loops} - set(lying)
        summing = [
            d for d in members if isinstance(d, ir.Reduce) and looped & set(d.reduced)
        ]  # fmt: skip
        inner = looped & {axis for d in summing for axis in d.reduced}
        padded = {axis: Span(At(), axis.extent, p.size) for p in stage.partition
                  if (axis := axes[p.axis]).extent < p.size}  # fmt: skip
        if padded and (
            self.laid or any({*lying} & {*d.reduced} for d in members if isinstance(d, ir.Reduce))
        ):
            raise NotNested(f"{members[0].out} has room on partitions over which some are combined")
        parts = [(axes[p.axis], p.size) for p in (*stage.loops, *stage.partition)
                 if axes[p.axis] not in padded]  # fmt: skip
        self.carried, self.held_sums, self.sums, self.states = {}, {}, {}, {}
        stored = [d.out for d in members if self.is_stored(d) or d.out in self.nest.held]
        for name, own in self.nest.contracted:
            if name in stage.members and own[1:] and {p.axis for p in own} & {*stage.skipped}:
                raise NotNested(f"{name} has two of the axes that it sums on partitions")
        self.masks = {
            axes[name]: masks_that_empty(members, axes[name], stored) for name in stage.skipped
        }
        self.changing = changing(members)
        self.text.explicit = bool(self.masks)
        kept = (
            conditions for masks in self.masks.values() for mask in masks for conditions in mask
        )
        masked = {axis for conditions in kept for c in conditions for axis in c.axes}
        self.copied = {axis for axis, size in parts if axis in masked and size < axis.extent}
        copies = math.prod(-(-a.extent // size) for a, size in parts if a in self.copied)
        if copies > MOST_COPIES:
            raise NotNested(f"{stage.members[-1]} has {copies} parts with blocks of their own")
        self.scanned = {d.along for d in members if isinstance(d, ir.Scan)}
        carried = [
            d for d in members
            if isinstance(d, ir.Reduce) and d.out not in self.laid and {*lying} & {*d.reduced}
        ]  # fmt: skip
        puts = [d for d in members if isinstance(d, ir.Map) and d.at is not None]
        self.sequential = bool(carried or puts)
        for definition in carried:
            self.partitions.begin_carried(definition, lying)
        rounds = [part for part in parts if part[0] in inner]

        def body(round_: Round) -> None:
            copied, self.copied, self.round = self.copied, set(), round_.where.spans
            if rounds:
                self.accumulate(members, summing, round_.where, rounds)
            else:
                self.emit_members(members, round_.where)
            self.copied = copied

        self.each(
            Where(lying, {**self.program, **padded}, ()),
            [part for part in parts if part[0] not in inner],
            body,
        )
        self.sequential, self.engine = False, ""
        for finish in self.carried.values():
            finish()

    def axes_laid(self, name: str, names: Sequence[str]) -> tuple[Axis, ...]:
        """The axes that lie on partitions for a member that has other ones there than its stage."""
        taken = {part.axis for part in (*self.stage.partition, *self.stage.loops)}
        own = {axis.name: axis for axis in ir.own_axes(self.definitions[name])}
        if [(p.axis, p.size) for p in self.stage.partition] == [
            (axis, own[axis].extent) for axis in names if axis in own
        ]:
            taken -= {*names}
        for axis in names:
            if axis not in own:
                raise NotNested(f"{name} has no axis {axis}")
            if axis in taken:
                raise NotNested(f"{name} cannot lie along {axis}, which its stage takes in parts")
        if math.prod(own[axis].extent for axis in names) > self.spec.partitions:
            raise NotNested(f"{name} has more elements along {', '.join(names)} than partitions")
        return tuple(own[axis] for axis in names)

    def accumulate(
        self, members: Sequence[ir.Definition], summing: Sequence[ir.Definition], where: Where,
        rounds: Sequence[tuple[Axis, int]],
    ) -> None:  # fmt: skip
        """Members up to the last that combines elements of a loop's rounds, round by round; then, with
        what all rounds came to, those and the rest."""
        found: list[tuple[Value, View, Where]] = []
        operands: list[tuple[Axis, Callable[[Span], None]]] = []
        for definition in summing:
            meaning = self.reading.meanings[definition.out]
            lying = self.laid.get(definition.out, where.part)
            place = Where(lying, {a: s for a, s in where.spans.items()
                          if a in definition.axes}, ir.own_axes(definition))  # fmt: skip
            if meaning.product and definition.out in self.added:
                raise NotNested(f"{definition.out} is added to other products, in no rounds")
            if meaning.product:
                made = Operands(self, definition, meaning.product, place)
                operands.append((made.summed, made.begin_rounds()))
                continue
            value = meaning.value
            assert value is not None
            for part in reductions_of(value):
                if part.function not in NEUTRAL:
                    raise NotNested(f"{definition.out} is one of all its elements, in no rounds")
                total = self.new_tile(word_of(part), place, place.free(part.axes))
                self.fill(total.tile, str(NEUTRAL[part.function]))
                held = Local(total, place, tuple(part.axes))
                self.blocks[-1].locals[f"psum:{total.tile.name}"] = [held]
                found.append((part, total, place))
        first = members[: 1 + max(members.index(definition) for definition in summing)]
        saved, self.sequential = self.sequential, True

        def one(round_: Round) -> None:
            self.emit_members([d for d in first if d not in summing], round_.where)
            for part, total, place in found:
                own = {a: s for a, s in round_.where.spans.items()
                       if a in part.axes or a in part.reduced or a in place.part}  # fmt: skip
                self.accumulated(part, Where(place.part, own, place.order), total, place)
            for axis, fill in operands:
                fill(round_.where.span(axis))

        self.each(where, rounds, one)
        self.sequential = saved
        self.sums = {part: (total, place) for part, total, place in found}
        self.emit_members([d for d in members if d in summing or d not in first], where)

    def accumulated(self, part: Value, where: Where, total: View, place: Where) -> None:
        """Combines one round's elements with what the rounds before came to."""
        (data,) = part.arguments
        left = tuple(axis for axis in part.reduced if where.span(axis).width > 1)
        if left:
            data = self.reading.builder.value(
                "reduce", data.axes - set(left), arguments=(data,), function=part.function,
                reduced=left,
            )  # fmt: skip
        axes = where.free(part.axes)
        name = {"maximum": "nl.maximum", "minimum": "nl.minimum"}.get(
            part.function, f"nl.{part.function}"
        )

        builder, array = self.reading.builder, f"psum:{total.tile.name}"
        before = builder.value("input", part.axes, array=array, indices=())
        whole = builder.apply(part.function, data, before)
        self.reading.uses |= {v: 1 for v in (before, whole) if v not in self.reading.uses}

        def add(round_: Round) -> None:
            spot = round_.where
            into = total.moved(spot, place)
            if not left and self.steps(whole, spot)[-1].opcode == "scalar_tensor_tensor":
                self.into(whole, spot, into)
                return
            view = self.reduce(data, spot) if left else self.beside_sum(data, spot)
            self.issue(spot, spot.free(part.axes), [into, into, view], lambda dst, given, width: (
                self.two_tiles(dst, given, name, width, (into, into, view))))  # fmt: skip

        self.each(where, self.cut(where, axes, self.stage.columns), add)

    def beside_sum(self, data: Value, where: Where) -> View:
        """What is added to a sum in SBUF: in PSUM, where that is read faster beside it and holds it."""
        axes = where.free(data.axes)
        width = math.prod(where.span(axis).width for axis in axes)
        if (
            not self.spec.reads_in_turn
            or width * 4 > self.spec.psum_bank_bytes
            or data.kind != "apply"
        ):
            return self.view(data, where)
        strides = row_major([where.span(axis).width for axis in axes])
        tile = Tile(self.names.new(word_of(data)), where.rows, width, psum=True)
        self.declare(tile)
        view = View(tile, At(), dict(zip(axes, strides, strict=True)))
        self.into(data, where, view)
        return view

    def put_comment(self, members: Sequence[ir.Definition]) -> None:
        """Says what a stage computes, where it is one of several."""
        if len(self.nest.stages) == 1:
            return
        self.blocks[0].nodes.append(Comment(f"{', '.join(d.out for d in members)}."))

    def emit_members(self, members: Sequence[ir.Definition], where: Where) -> None:
        """The tiles of all members in one round of a stage's loops."""
        members, self.last = self.with_last(members)
        for definition in members:
            own = set(ir.own_axes(definition))
            spans = {axis: span for axis, span in where.spans.items() if axis in own}
            lying = self.laid.get(definition.out, where.part)
            place = Where(lying, spans, ir.own_axes(definition))
            missing = [axis.name for axis in lying if axis not in own]
            if missing and lying != (ALIKE,) and self.is_stored(definition):
                raise NotNested(
                    f"{definition.out} does not depend on {missing[0]}, which lies on partitions"
                )
            if definition.out not in self.carried and (
                cut := [
                    axis.name
                    for axis, span in spans.items()
                    if axis not in definition.axes and span.width < axis.extent
                ]
            ):
                raise NotNested(
                    f"{definition.out} runs over {cut[0]}, which its stage takes in parts"
                )
            place = self.clipped(place, own)
            self.pending[definition.out] = definition, place
            value = self.reading.meanings[definition.out].value
            across = value and value.kind == "reduce" and set(lying) & set(value.reduced)
            if (
                across
                and value
                and value.function in NEUTRAL
                and definition.out not in self.carried
            ):
                # Partitions are combined when somebody reads it: others work meanwhile.
                inner = tuple(
                    a for a in value.reduced if a not in lying and place.span(a).width > 1
                )
                if inner:
                    with self.at(self.home(place.variables(own))):
                        self.partitions.running(value, place, inner)
            else:
                self.emit_now(definition.out)
        for name in list(self.pending):
            self.emit_now(name)

    def clipped(self, place: Where, own: Collection[Axis]) -> Where:
        """A place without the parts of axes, in whole tiles, that masks empty there."""
        for axis, masks in self.masks.items():
            if axis not in own:
                continue
            tile = self.spec.partitions if axis.extent % self.spec.partitions == 0 else 1
            kept = sorted(self.kept(axis, conditions, place, tile) for conditions in both_of(masks))
            runs: list[tuple[int, int]] = []
            for low, high in kept:
                if runs and low <= runs[-1][1]:
                    low, high = runs[-1][0], max(runs.pop()[1], high)
                runs += [(low, high)] * (low < high)
            if not runs:  # nothing counts there, and anything may be computed
                continue
            first, end = runs[0][0], runs[-1][1]
            if first or end < axis.extent or len(runs) > 1:
                span = Span(At(first), end - first, runs=tuple(runs) if len(runs) > 1 else ())
                place = place.within({axis: span})
        return place

    def kept(
        self, axis: Axis, conditions: Sequence[Index], place: Where, tile: int
    ) -> tuple[int, int]:
        """The first and the last element, and one more, in whole tiles along an axis, between which all conditions
        may hold in a place."""
        low, high = 0, axis.extent
        for condition in conditions:
            step = condition.coefficient(axis)
            _, most = self.ends(condition - index_of(axis) * step, place)
            if step < 0:
                high = min(high, most // -step + 1)
            elif step > 0:
                low = max(low, -(most // step))
            elif most < 0:
                high = 0
        return low // tile * tile, -(-high // tile) * tile

    def emit_now(self, name: str, reader: Where | None = None) -> None:
        """A member's tile, where it is not there yet: as its first `reader` has it on partitions, if that
        is elsewhere."""
        if name not in self.pending:
            return
        definition, place = self.pending.pop(name)
        engine, self.engine = self.engine, dict(self.nest.engines).get(name, "")
        beside, self.brings_beside = self.brings_beside, dict(self.nest.beside).get(name, "")
        around, self.deciding = (
            self.deciding,
            deciding((definition, self.last.get(name, definition))),
        )
        if name in self.carried:
            self.partitions.add_carried(definition, place)
        else:
            with self.at(self.home(place.variables(set(ir.own_axes(definition))))):
                try:
                    if reader is None or name in self.nest.held or not self.partitions.to_rows(
                        definition, place, reader
                    ):  # fmt: skip
                        self.emit_member(definition, place)
                except NotNested as refusal:
                    named = str(refusal).startswith(f"{name} ")
                    raise refusal if named else type(refusal)(f"{name}: {refusal}") from None
        self.engine, self.brings_beside, self.deciding = engine, beside, around

    def with_last(
        self, members: Sequence[ir.Definition]
    ) -> tuple[list[ir.Definition], dict[str, ir.Definition]]:
        """Members in an order in which each product stands right before the Map that alone takes it,
        element by element, and those Maps by product: they are computed of what stands in PSUM."""
        order, last = list(members), dict[str, ir.Definition]()
        names = {d.out for d in members}
        for product in members:
            readers = self.reading.readers[product.out]
            if not self.reading.meanings[product.out].product or len(readers) != 1:
                continue
            (name,) = readers
            reader, value = self.definitions[name], self.reading.meanings[name].value
            if name not in names or value is None or self.is_stored(product):
                continue
            plain = tuple(map(index_of, product.axes))
            reads = [v for v in inputs_of(value) if v.array == product.out]
            if (
                reductions_of(value)
                or self.laid.get(name) != self.laid.get(product.out)
                or set(reader.axes) != set(product.axes)
                or any(v.indices != plain for v in reads)
                or any(found.out in last and last[found.out] is reader for found in order)
            ):
                continue
            order.remove(product)
            order.insert(order.index(reader), product)
            last[product.out] = reader
        return [d for d in order if d not in last.values()], last

    def emit_member(self, definition: ir.Definition, where: Where) -> None:
        """One definition's tile, in the block that depends on what it does."""
        product = self.reading.meanings[definition.out].product
        source, definition = definition, self.last.get(definition.out, definition)
        key = (definition.out, spans_of(where, where.order))
        if any(key in block.values for block in self.blocks):
            return
        meaning = self.reading.meanings[definition.out]
        axes = where.free(set(definition.axes))
        if definition.out in self.laid:  # the axes of the stage's loops lie beside each other
            axes = tuple(sorted(axes, key=lambda axis: axis in where.spans))
        later = self.stage.members[self.stage.members.index(definition.out) + 1 :]
        local = bool(self.reading.readers[definition.out] & set(later))
        stored = self.is_stored(definition)
        out = self.arrays.get(definition.out)
        dtype = out.dtype if out and not local else "float32"
        batch = where.free(set(product.batch)) if product and stored else ()
        together = bool(batch) and self.is_stored_together(definition, where, batch)
        held: View | None = None
        wide = where
        summed = self.sums.get(meaning.value) if meaning.value else None
        if definition.out in self.nest.held or self.with_ends(definition, where) != where:
            summed = None
        here = local and not (axes or stored or definition.out in self.nest.held)
        value = meaning.value if here else None
        ranked = value if value and self.is_ranked(value) else None
        if summed:
            held, wide = summed
        elif ranked:
            held = self.view(ranked, where)
        elif definition.out in self.nest.held:
            held = self.on_chip.place(definition, where)
        elif local or together or self.recurrences.begins(definition, where) is not None:
            wide = self.with_ends(definition, where)
            sums = (
                not together
                and wide == where
                and self.stays_in_psum(source, definition, axes, where)
            )
            held = self.new_tile(
                definition.out, wide, axes, dtype, self.is_read_fast(definition, where), sums
            )
            self.fill_ends(held, wide, where, axes, self.recurrences.begins(definition, where))

        def target(spot: Where) -> View:
            return held.moved(spot, wide) if held else self.new_tile(
                definition.out, spot, spot.free(set(definition.axes)), dtype
            )  # fmt: skip

        def finish(spot: Where, view: View) -> None:
            if stored and not together:
                self.memory.store(definition, of_one(spot), view)

        if product:
            whole = source is definition and product.scale is self.reading.builder.constant(1.0)
            adds = self.partitions.combined_of(definition, where, later, whole) if held else []
            if held and adds:
                self.blocks[-1].locals.setdefault(definition.out, []).append(
                    Local(held, wide, definition.axes)
                )
            saved, self.sequential = self.sequential, self.sequential or bool(adds)
            self.product(source, product, where, target, finish, adds)
            self.sequential = saved
        elif held and (summed or ranked):
            finish(where, held.moved(where, wide))
        elif meaning.scan:
            self.recurrences.scan(definition, meaning.scan, where, target, finish)
        else:
            assert meaning.value is not None
            self.map(definition, meaning.value, where, target, finish, only_stored=held is None)
        if held and together:
            self.memory.store(definition, of_one(where), held.moved(where, wide))
        if held:
            last = self.blocks[-1]
            last.locals.setdefault(definition.out, []).append(Local(held, wide, definition.axes))
        self.blocks[-1].values[key] = held or View(Tile("", 0, 0), At(), {})

    def is_stored_together(
        self, definition: ir.Definition, where: Where, batch: Sequence[Axis]
    ) -> bool:
        """Whether what the products of a batch come to is brought to HBM at once, since each is little."""
        size = math.prod(where.span(axis).width for axis in where.free(set(definition.axes))) * 4
        each = size // math.prod(where.span(axis).width for axis in batch) * where.rows
        return size <= KEPT_BYTES and each < LITTLE

    def ends_of(self, definition: ir.Definition, where: Where) -> dict[Axis, tuple[int, int]]:
        """How many elements are read before and after axes, of those that are read beyond their ends."""
        margins = self.margins.get(definition.out)
        ends = dict(zip(definition.axes, margins.ends, strict=True)) if margins else {}
        if (
            isinstance(definition, ir.Scan)
            and self.recurrences.begins(definition, where) is not None
        ):
            low, high = ends.get(definition.along, (0, 0))
            ends[definition.along] = max(low, 1), high
        return {axis: own for axis, own in ends.items() if any(own)}

    def with_ends(self, definition: ir.Definition, where: Where) -> Where:
        """A place with the room beyond the ends of axes that is read there, of those that are whole."""
        spans = {
            axis: Span(At(-low), low + axis.extent + high)
            for axis, (low, high) in self.ends_of(definition, where).items()
            if axis in where.free({axis})
            if where.span(axis) == Span(At(), axis.extent)
        }
        return where.within(spans)

    def fill_ends(
        self, view: View, wide: Where, where: Where, axes: Sequence[Axis], number: float | None
    ) -> None:
        """Zeros, or another number, where a tile has room beyond the ends of axes."""
        for axis in axes:
            own, inner = wide.span(axis), where.span(axis)
            if own == inner:
                continue
            first, stop = own.start.constant, own.start.constant + own.width
            for begin, end in ((first, 0), (inner.width, stop)):
                if begin == end:
                    continue
                part = wide.within({axis: Span(At(begin), end - begin)})
                counts = [part.span(a).width for a in axes]
                sizes, strides = merged(counts, [[view.strides[a] for a in axes]])
                offset = view.moved(part, wide).offset
                self.fill(view.tile, str(number or 0), sizes, strides[0], offset)

    def is_read_fast(self, definition: ir.Definition, where: Where) -> bool:
        """Whether what is the same on all partitions lies in PSUM: beside a tile in SBUF it is read
        faster there, and one bank holds it."""
        width = math.prod(where.span(axis).width for axis in where.free(set(definition.axes)))
        across = definition.out in self.laid and not set(where.part) & set(definition.axes)
        fits = width * 4 <= self.spec.psum_bank_bytes and not self.is_stored(definition)
        return across and fits and isinstance(definition, ir.Reduce)

    def stays_in_psum(
        self, source: ir.Definition, definition: ir.Definition, axes: Sequence[Axis], where: Where
    ) -> bool:
        """Whether a product is read where it was summed: one bank holds it, and no product has it as it is as an
        operand."""
        product = self.reading.meanings[source.out].product
        width = math.prod(where.span(axis).width for axis in axes)
        if (
            product is None
            or source is not definition
            or product.scale is not self.reading.builder.constant(1.0)
            or width * 4 > self.spec.psum_bank_bytes
            or self.is_stored(definition)
        ):
            return False
        for name in self.reading.readers[definition.out]:
            reader, taken = self.definitions[name], self.reading.meanings[name].product
            across = isinstance(reader, ir.Reduce) and {*where.part} & {*reader.reduced}
            elsewhere = self.laid.get(name) != self.laid.get(definition.out)
            operands = (taken.left, taken.right) if taken else ()
            plain = any(v.kind == "input" and v.array == definition.out for v in operands)
            if plain or elsewhere or isinstance(reader, ir.Scan) or (across and not taken):
                return False
        return True

    def is_stored(self, definition: ir.Definition) -> bool:
        """Whether a definition's elements go to HBM: results, and what other stages read."""
        return self.is_written(definition.out)

    def map(
        self, definition: ir.Definition, value: Value, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None], only_stored: bool,
    ) -> None:  # fmt: skip
        """A definition whose elements are computed each by itself, or of what reductions give; nobody reads a tile of
        it that is `only_stored`."""
        axes, along = where.free(set(definition.axes)), self.parts[definition.out]
        parts = self.cut(where, [a for a in axes if a not in along], self.stage.columns)

        def part(round_: Round) -> None:
            whole = round_.where
            if kept := self.stored_as_it_is(definition, value, whole) if only_stored else None:
                finish(whole, kept)
                return
            view = target(whole)
            decided = [(axis, size) for axis, size in parts if axis in self.deciding]
            self.each(
                whole,
                decided,
                lambda r: self.settled(value, r.where, view.moved(r.where, whole), along),
            )
            finish(whole, view)

        self.each(where, [(axis, size) for axis, size in parts if axis not in self.deciding], part)

    def stored_as_it_is(self, definition: ir.Definition, value: Value, where: Where) -> View | None:
        """What was computed for another definition, where it lies as a tile of this one would, from where that goes to
        HBM."""
        array, axes = self.arrays.get(definition.out), where.free(set(definition.axes))
        if not array or not self.known(value, where):
            return None
        view = self.view(value, where)
        there = (
            not view.tile.psum and {*view.strides} >= {*axes} and view.tile.partitions == where.rows
        )
        return view if there and view.tile.dtype == array.dtype else None

    # Products.

    def product(
        self, definition: ir.Definition, found: Product, where: Where,
        target: Callable[[Where], View], finish: Callable[[Where, View], None],
        takers: Sequence[Callable[[Where, View], None]] = (),
    ) -> None:  # fmt: skip
        """A matrix product, and those that are added to it: what lies on partitions is stationary, the other axes
        move. `takers` get each part that is summed, too, and where it is in PSUM."""
        found = self.with_heads(definition.out, found, where)
        terms = self.terms(definition, found, where)
        operand, rows, columns = terms[-1].operands, terms[-1].rows, terms[-1].columns
        alike = not rows and set(where.part) <= set(found.contracted)
        single = [(axis, 1) for axis in (*found.batch, *rows) if axis not in where.part
                  and where.span(axis).width > 1]  # fmt: skip
        apart = [(axis, 1) for axis in terms[-1].apart if where.span(axis).width > 1]
        moving = [a for a in columns if where.span(a).width > 1]
        bank = self.spec.psum_bank_bytes // 4
        pieces = self.cut(where, moving, max(bank, self.stage.columns))
        width = min(math.prod(where.span(axis).width for axis in moving), max(bank, 1))
        looped = {part.axis for part in self.stage.loops}
        alone = bool(takers or looped & {axis.name for axis in found.contracted})
        each = operand.rounds * max(width, where.rows)
        outer, beside, taken = self.beside(
            found.batch, single, where, (width, 0 if alone else each)
        )
        axes = {axis for axis, _ in beside}
        together = [axis for axis, _ in beside if axis in found.batch]
        one = self.is_taken_at_once(definition, found.scale, axes, moving, (taken, width))
        lying = (*(axis for axis, _ in beside), *columns)
        shared = [p for p in (*beside, *apart) if p in apart or p[0] in together] if apart else []

        def batch(round_: Round) -> None:
            place = round_.where
            stationary = [term.make(0, together, place) for term in terms]

            def wide(round_: Round) -> None:
                whole = round_.where
                aim = target(whole)
                parts = self.cut(whole, moving, bank)
                self.each(whole, parts, lambda r: part(r.where, aim.moved(r.where, whole)))
                finish(whole, aim)

            def part(spot: Where, aim: View) -> None:
                moved = [term.make(1, together, spot) for term in terms]
                free = [a for a in lying if spot.span(a).width > 1]
                steps = row_major([spot.span(a).width for a in free])
                stays = aim.tile.psum and [aim.strides.get(a, 0) for a in free] == [*steps]
                sums = aim if stays else self.new_tile(
                    f"{definition.out}_sums", spot, lying, sums=True
                )  # fmt: skip
                width = math.prod(spot.span(axis).width for axis in columns)

                def add(k: Round, n: int) -> None:
                    def row(own: Round) -> None:
                        spans = {**own.where.spans,
                                 **{a: k.where.span(a) for a in terms[n].found.contracted}}  # fmt: skip
                        at = Where(terms[n].operands.lying, spans, spot.order)
                        inner = terms[n].operands.where.part[len(terms[n].apart) :]
                        heads = terms[n].operands.heads
                        high = at.within({axis: Span(At(), axis.extent) for axis in heads})
                        first, texts = at.begins(heads, high), []
                        wide = high.within({a: spot.span(a) for a, _ in shared if a not in heads})
                        for view, axes in (
                            (stationary[n](k, wide).moved(at, wide), inner),
                            (moved[n](k, wide).moved(at, wide), columns),
                        ):
                            counts = [spot.span(a).lanes for a in axes]
                            sizes, s = merged(counts, [[view.strides.get(a, 0) for a in axes]])
                            texts.append(self.text.inside(
                                view.tile, at.rows, view.offset, sizes, s[0], first, alike))  # fmt: skip
                        into, rows = sums.moved(own.where, spot), spot.lanes(inner)
                        low = own.where.begins(terms[n].apart, spot)
                        dst = self.text.inside(sums.tile, rows, into.offset, sizes, row_major(sizes), low)  # fmt: skip
                        ns = self.spec.matmul_ns(width, rows, terms[n].found.dtype)
                        self.put("", Form(self.text.product(dst, *texts), "tensor", ns))

                    self.each(spot, [*beside, *apart], row)

                def out(own: Round) -> None:
                    if not stays:
                        self.evacuate(
                            definition.out, found.scale, own.where, own.where.free(set(definition.axes)),
                            sums.moved(own.where, spot), aim.moved(own.where, spot),
                        )  # fmt: skip
                    for taker in takers:
                        taker(own.where, sums.moved(own.where, spot))

                for n, term in enumerate(terms):
                    own = Where(term.operands.lying, spot.spans, ())
                    self.each(own, term.operands.parts, lambda k, n=n: add(k, n))  # type: ignore[misc]
                whole = one and sums.tile.width <= bank and not takers
                self.each(spot, [] if whole else beside, out)

            self.each(place, pieces, wide)

        self.each(where, outer, batch)

    def terms(self, definition: ir.Definition, found: Product, where: Where) -> list[_Term]:
        """A product, the last, and those that are added to it, each with its operands in the same order."""
        made, builder = list[_Term](), self.reading.builder
        for name, factor in (*self.added.get(definition.out, ()), (definition.out, 1.0)):
            own = self.reading.meanings[name].product if name != definition.out else found
            assert own is not None
            own = self.with_heads(name, own, where)
            values = [(own.left, own.rows, "left"), (own.right, own.columns, "right")]
            if where.part and where.part[-1] in own.columns:
                values.reverse()
            alike = not values[0][1] and set(where.part) <= set(own.contracted)
            inner = where.part if alike else self.rows_of(name, own, values, where)
            if own.scale != found.scale:
                if {own.scale.kind, found.scale.kind} != {"constant"}:
                    raise NotNested(f"{name} is scaled by other than {definition.out}")
                factor *= own.scale.constant / found.scale.constant
            if factor != 1.0:
                if own.dtype != "float32" and math.frexp(abs(factor))[0] != 0.5:
                    raise NotNested(f"{name} is rounded to {own.dtype} before it is scaled")
                sizes = [math.prod(axis.extent for axis in value.axes) for value, _, _ in values]
                at = sizes.index(min(sizes))
                scaled = builder.apply("multiply", values[at][0], builder.constant(factor))
                values[at] = (scaled, *values[at][1:])
            sides = [Operands(self, self.definitions[name], own, where)] * 2
            if inner != where.part:
                sides[1] = Operands(self, self.definitions[name], own, replace(where, part=inner))
            apart = where.part[: len(where.part) - len(inner)]
            for axis in {*sides[0].heads} - {*own.batch, *apart}:
                raise NotNested(f"{name} has no product of its own for each {axis.name}")
            made.append(_Term((sides[0], sides[1]), own, values, apart))
            if {*made[-1].columns} != {*made[0].columns}:
                raise NotNested(f"{name} has other rows than {definition.out}")
        return made

    def with_heads(self, name: str, product: Product, where: Where) -> Product:
        """A product with what moves of the result's axes on partitions of its own as a batch: the other operand is
        there for each of its elements."""
        named = {part.axis for part in dict(self.nest.contracted).get(name, ())}
        own = (product.rows, product.columns)
        heads = tuple(a for axes in own for a in axes if a.name in named and a not in where.part)
        rows, columns = (tuple(a for a in axes if a not in heads) for axes in own)
        batch = (*heads, *product.batch)
        return product._replace(batch=batch, rows=rows, columns=columns) if heads else product

    def rows_of(
        self, name: str, product: Product, values: Sequence[tuple[Value, tuple[Axis, ...], str]],
        where: Where,
    ) -> tuple[Axis, ...]:  # fmt: skip
        """The axes on partitions along which a product's rows lie; outside of them only others that its operands
        share, or that move. Each of their elements is a product, whose rows begin where engines reach them."""
        (_, stationary, _), (_, moving, _) = values
        outer = [axis for axis in where.part if axis not in stationary]
        inner = where.part[len(outer) :]
        shared = {*outer} <= {*product.batch, *moving} and bool(inner)
        if outer and not (shared and {*inner} <= {*stationary}):
            odd = outer[0].name
            raise NotNested(f"{name} is a product, and both its operands depend on {odd}")
        if where.lanes(outer) > 1 and (rows := where.lanes(inner)) not in STARTS:
            raise NotNested(f"{name} has {rows} rows for each {outer[0].name}, not {STARTS}")
        return inner

    def beside(
        self, batch: Collection[Axis], single: Sequence[tuple[Axis, int]], where: Where,
        widths: tuple[int, int],
    ) -> tuple[list[tuple[Axis, int]], list[tuple[Axis, int]], int]:  # fmt: skip
        """Rows of a product in loops, and rows that are summed side by side, with how many: those that share what moves, as far as
        PSUM has banks for them; small products of a `batch`, whose operands are made together, in one bank.
        `widths` are elements of one, and of its operands; 0 for products that are not made together."""
        bank, outer, beside = self.spec.psum_bank_bytes // 4, list(single), list[tuple[Axis, int]]()
        width, each = widths
        room, taken = max(BESIDE_BANKS, bank // width), 1
        while outer:
            axis, count = outer[-1][0], where.span(outer[-1][0]).width
            if axis in batch and each:
                room = min(bank // width, self.stage.columns // each) // taken
            decided = axis in {*self.deciding, *self.masks, *self.copied}
            fits = max((n for n in range(1, min(count, room) + 1) if count % n == 0), default=1)
            if axis in batch and (not each or decided):
                break
            if fits == 1 or (decided and fits < count):
                break
            beside.insert(0, (outer.pop()[0], 1))
            room, taken = room // fits, taken * fits
            if fits < count:
                outer.append((axis, fits))
                break
        return outer, beside, taken

    def is_taken_at_once(
        self, product: ir.Definition, scale: Value, beside: Collection[Axis], moving: Collection[Axis],
        counts: tuple[int, int],
    ) -> bool:  # fmt: skip
        """Whether elements of a product, in parts `beside` each other, are taken by one instruction."""
        reader = self.last.get(product.out)
        value = self.reading.meanings[reader.out].value if reader else None
        taken = [v for v in inputs_of(value) if v.array != product.out] if value else []
        return is_one((scale, *taken), beside, moving, counts, self.spec)

    def evacuate(
        self, product: str, scale: Value, where: Where, axes: tuple[Axis, ...], sums: View,
        aim: View,
    ) -> None:  # fmt: skip
        """Brings a product out of PSUM, times its factor, and through what alone takes it."""
        builder = self.reading.builder
        name = f"psum:{sums.tile.name}"
        inside = frozenset((*axes, *where.part, *self.definitions[product].axes))
        psum = builder.value("input", inside, array=name, indices=())
        self.blocks[-1].locals[name] = [Local(sums, where, axes)]
        value = builder.apply("multiply", psum, scale)
        if reader := self.last.get(product):
            wanted = self.reading.meanings[reader.out].value
            assert wanted is not None
            value = self.reading.exchanged(wanted, product, value)
        self.reading.uses.setdefault(psum, 1)
        self.settled(value, where, aim)


def _taken(stage: Stage) -> set[str]:
    """The axes that a stage has on partitions or takes in parts."""
    parts = {part.axis for part in (*stage.partition, *stage.loops)}
    return parts.union(*(names for _, names in stage.laid))


def reductions_of(value: Value) -> list[Value]:
    """What a value combines, the outermost."""
    if value.kind == "reduce":
        return [value]
    return [found for argument in value.arguments for found in reductions_of(argument)]
