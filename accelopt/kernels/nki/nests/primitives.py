"""Changes of one nest into another that computes the same, as typed values: JSON in and out, each legal
or refused with the definition that is in the way and why."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar, get_args

from pydantic import Field, TypeAdapter

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.value_nodes import ORDERED
from accelopt.evaluation import Row
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.computed_together import NotTogether, repeated
from accelopt.kernels.nki.nests.emission import CORES
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.matmul_operands import STARTS
from accelopt.kernels.nki.nests.nest import (
    Memory,
    Nest,
    NotNested,
    Part,
    Stage,
    Way,
    along_free,
    default_nest,
    evenly,
    filled,
    partition_of,
    product_in,
    ready,
)
from accelopt.kernels.nki.nests.preparing import combined_by_readers
from accelopt.kernels.nki.nests.skipping import masks_of
from accelopt.sim.dialects.dialect import Dialect

COLUMNS = (512, 1024, 2048, 4096, 8192)
BESIDE: tuple[Literal["scalar", "tensor", "none"], ...] = ("scalar", "tensor", "none")
LOOPS = (1, 2, 4, 512, 1024, 2048)


class _Given(NamedTuple):
    """A nest that a primitive changes: the Algorithm that it is of, its definitions by name, and `own`, the one that
    the primitive names."""

    algorithm: ir.Algorithm
    nest: Nest
    target: str
    definitions: Mapping[str, ir.Definition]
    own: ir.Definition

    def in_stage(self, change: Callable[[Stage], Stage]) -> Nest:
        """The nest with another stage in the place of that of the definition."""
        return _in_stage(self.nest, self.own.out, change)

    def product(self) -> Contraction:
        """The matrix product that the definition is. Raises NotNested."""
        found = product_in(self.own)
        if found is None:
            raise NotNested(f"{self.own.out} is no matrix product")
        return found

    def without(self) -> Nest:
        """The nest, in none of whose stages the definition is."""
        return _without(self.nest, self.own.out)


class _Primitive(Row):
    """`str` is what the documentation writes: `tile(scores, k, 512)`, `partition(out, 128 of m)`. What it makes of a nest,
    `_changed` says; whether that has a kernel, lowering."""

    kind: str
    definition: str

    def __str__(self) -> str:
        kind, *values = (getattr(self, name) for name in type(self).model_fields)
        return f"{kind}({', '.join(map(_said, values))})"


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(_said, value)) or "none"
    return f"{value.size} of {value.axis}" if isinstance(value, Part) else str(value)


Entry = TypeVar("Entry")


def _listed(entries: tuple[Entry, ...], entry: Entry, there: bool) -> tuple[Entry, ...]:
    """The entries with one at the end, or without it."""
    return (*(one for one in entries if one != entry), *[entry] * there)


def _entered(
    entries: tuple[tuple[str, Entry], ...], name: str, value: Entry
) -> tuple[tuple[str, Entry], ...]:
    """The entries with another one of a name at the end; with none of it, where that is of nothing."""
    return (*(one for one in entries if one[0] != name), *[(name, value)] * bool(value))


class Partition(_Primitive):
    """`partition(definition, axes)`: these parts of axes, joined, lie on partitions in its stage. Outside of the rows
    of a product they may be what both its operands depend on: each element has 32 or 64 partitions, or room for that."""

    kind: Literal["partition"] = "partition"
    axes: tuple[Part, ...]

    def _changed(self, given: _Given) -> Nest:
        _in_axes(self.definition, "has", ir.own_axes(given.own), self.axes, room=True)
        held = {part.axis for part in self.axes}
        return given.in_stage(
            lambda s: s.but(
                partition=self.axes, loops=tuple(p for p in s.loops if p.axis not in held)
            )
        )


class Tile(_Primitive):
    """`tile(definition, axis, size)`: its stage runs along an axis part by part, outside of the loops
    over what lies on partitions; 0 takes the axis whole again."""

    kind: Literal["tile"] = "tile"
    axis: str
    size: int = Field(ge=0)

    def _changed(self, given: _Given) -> Nest:
        added = [Part(axis=self.axis, size=self.size)] if self.size else []
        return given.in_stage(
            lambda s: s.but(loops=(*(p for p in s.loops if p.axis != self.axis), *added))
        )


class Split(_Primitive):
    """`split(definition, axis, size)`: cuts an axis in two for all definitions that have it. `AXIS_0` are
    `size` elements beside each other, `AXIS_1` counts those."""

    kind: Literal["split"] = "split"
    axis: str
    size: int

    def _changed(self, given: _Given) -> Nest:
        return split(given.nest, given.own, self.axis, self.size)


class Columns(_Primitive):
    """`columns(definition, size)`: how many elements a partition one instruction of its stage takes."""

    kind: Literal["columns"] = "columns"
    size: int = Field(ge=1)

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(lambda stage: stage.but(columns=self.size))


class At(_Primitive):
    """`at(definition, consumer)`: computes a definition's tiles in the stage of another, on the chip."""

    kind: Literal["at"] = "at"
    consumer: str

    def _changed(self, given: _Given) -> Nest:
        stages = given.nest.stages
        places = {member: n for n, stage in enumerate(stages) for member in stage.members}
        if self.consumer not in places:
            raise NotNested(f"there is no definition {self.consumer}")
        here, there = places[self.definition], places[self.consumer]
        if here >= there:
            raise NotNested(f"{self.definition} is not computed in a stage before {self.consumer}")
        moving, between = stages[here].members, stages[here + 1 : there]
        for member in (member for stage in between for member in stage.members):
            if used := ir.arrays_read(given.definitions[member]) & {*moving}:
                raise NotNested(f"{member} reads {min(used)} before {self.consumer} does")
        merged = stages[there].but(members=(*moving, *stages[there].members))
        return given.nest.but(stages=(*stages[:here], *between, merged, *stages[there + 1 :]))


class Apart(_Primitive):
    """`apart(definition)`: computes a definition and all after it in its stage in a later stage."""

    kind: Literal["apart"] = "apart"

    def _changed(self, given: _Given) -> Nest:
        at, stage = given.nest.place_of(self.definition)
        first = stage.members.index(self.definition)
        if not first:
            raise NotNested(f"{self.definition} begins its stage already")
        later = _lying(stage.but(members=stage.members[first:]), given.own, given.target)
        return given.nest.in_place_of(at, stage.but(members=stage.members[:first]), later)


class Orient(_Primitive):
    """`orient(product, side, way)`: how an operand comes to have the summed axis on partitions."""

    kind: Literal["orient"] = "orient"
    side: Literal["left", "right"]
    way: Way

    def _changed(self, given: _Given) -> Nest:
        given.product()
        pair = self.definition, self.side
        others = (entry for entry in given.nest.ways if entry[:2] != pair)
        return given.nest.but(ways=(*others, (*pair, self.way)))


class Contract(_Primitive):
    """`contract(product, axes)`: these parts of the axes that a product sums over, joined, lie on
    partitions in a round of its sum; without any, as much as there is room for of the longest. Behind an axis of the
    result 32 or 64 of them, all: each of its elements has a product of its own there."""

    kind: Literal["contract"] = "contract"
    axes: tuple[Part, ...]

    def _changed(self, given: _Given) -> Nest:
        name, found, most = self.definition, given.product(), TARGETS[given.target].partitions
        own = (*found.batch, *found.rows, *found.columns, *found.contracted)
        _in_axes(name, "sums over", own, self.axes)
        if math.prod(part.size for part in self.axes) > most:
            raise NotNested(
                f"{name} has more elements in a round of its sum than {most} partitions"
            )
        return given.nest.but(contracted=_entered(given.nest.contracted, name, self.axes))


class Keep(_Primitive):
    """`keep(product, side, memory)`: whether an operand stays in SBUF for as many rounds as half of SBUF
    allows, is `resident` there whatever room that leaves, or is brought from HBM again in each round."""

    kind: Literal["keep"] = "keep"
    side: Literal["left", "right"]
    memory: Memory

    def _changed(self, given: _Given) -> Nest:
        given.product()
        pair, nest = (self.definition, self.side), given.nest
        return nest.but(
            streamed=_listed(nest.streamed, pair, self.memory == "HBM"),
            resident=_listed(nest.resident, pair, self.memory == "resident"),
        )


class Engine(_Primitive):
    """`engine(definition, engine)`: where several engines can, this one computes its elements; `any`
    leaves it open."""

    kind: Literal["engine"] = "engine"
    engine: Literal["vector", "scalar", "any"]

    def _changed(self, given: _Given) -> Nest:
        chosen = "" if self.engine == "any" else self.engine
        return given.nest.but(engines=_entered(given.nest.engines, self.definition, chosen))


class Beside(_Primitive):
    """`beside(definition, engine)`: where two tiles in SBUF are read in turn, one comes into PSUM: what is computed on the
    way is written there; of what is not, the `scalar` engine copies one, or the `tensor` engine multiplies what is given
    in 16 bits with the identity. `none`: both are in SBUF. Legal on trn1, where that takes half as long."""

    kind: Literal["beside"] = "beside"
    engine: Literal["scalar", "tensor", "none"]

    def _changed(self, given: _Given) -> Nest:
        if not TARGETS[given.target].reads_in_turn:
            raise NotNested(f"{self.definition} takes two tiles in SBUF at once on {given.target}")
        chosen = "" if self.engine == "none" else self.engine
        return given.nest.but(beside=_entered(given.nest.beside, self.definition, chosen))


class Spread(_Primitive):
    """`spread(definition, array, engine)`: how a row of an array that all partitions read alike comes to
    them: by DMA to each, or from one by the Tensor engine."""

    kind: Literal["spread"] = "spread"
    array: str
    engine: Literal["tensor", "dma"]

    def _changed(self, given: _Given) -> Nest:
        if self.array not in ir.arrays_read(given.own):
            raise NotNested(f"{self.definition} does not read {self.array}")
        pair, by_tensor = (self.definition, self.array), self.engine == "tensor"
        return given.nest.but(spread=_listed(given.nest.spread, pair, by_tensor))


class Turn(_Primitive):
    """`turn(definition, array, engine)`: how an array that lies in HBM along what is on partitions comes to a
    definition that reads it, or goes there where it is the definition itself: element by element by DMA, or as
    it lies, transposed by the Tensor engine."""

    kind: Literal["turn"] = "turn"
    array: str
    engine: Literal["tensor", "dma"]

    def _changed(self, given: _Given) -> Nest:
        pair, stage = (self.definition, self.array), given.nest.place_of(self.definition)[1]
        if pair not in across_partitions(stage, given.definitions):
            raise NotNested(
                f"{self.array} does not lie in memory along what {self.definition} has on partitions"
            )
        return given.nest.but(turned=_listed(given.nest.turned, pair, self.engine == "tensor"))


class Lay(_Primitive):
    """`lay(definition, axes)`: within its stage, a definition has these of its axes on partitions, whole, in
    the place of those of the stage; none: as the others. What is combined over axes that lie on partitions
    comes to all of them."""

    kind: Literal["lay"] = "lay"
    axes: tuple[str, ...]

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(
            lambda stage: stage.but(laid=_entered(stage.laid, self.definition, self.axes))
        )


class Skip(_Primitive):
    """`skip(definition, axes)`: blocks along these axes of its stage that a mask empties are not computed;
    none: all are. Legal where what the mask puts there counts for nothing in all that is combined along
    the axis."""

    kind: Literal["skip"] = "skip"
    axes: tuple[str, ...]

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(lambda stage: stage.but(skipped=self.axes))


class Hold(_Primitive):
    """`hold(definition, memory)`: whether a definition that later stages read stays in SBUF, all of it, or
    goes through HBM. Legal where they have the same of its axes on partitions, or multiply it. An input is
    brought, as `INPUT_here`, for the first stage that reads it. Legal where all read the same elements of it."""

    kind: Literal["hold"] = "hold"
    memory: Literal["SBUF", "HBM"]

    def _changed(self, given: _Given) -> Nest:
        held = _listed(given.nest.held, self.definition, self.memory == "SBUF")
        return given.nest.but(held=held)


class Bring(_Primitive):
    """`bring(definition, tiles)`: whether tiles of 512 KiB or more come to its stage `whole`, or in `parts` of
    at least 256 KiB: work on the first begins before the last is there."""

    kind: Literal["bring"] = "bring"
    tiles: Literal["whole", "parts"]

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(lambda stage: stage.but(parts=self.tiles == "parts"))


class Inline(_Primitive):
    """`inline(definition)`: whoever reads it computes it anew, or combines what it combines with all else. Legal where
    it is not compared with one of its largest elements, for it could round otherwise."""

    kind: Literal["inline"] = "inline"

    def _changed(self, given: _Given) -> Nest:
        name, algorithm = self.definition, ready(given.algorithm, given.nest)
        if not isinstance(given.own, ir.Map) and not combined_by_readers(name, algorithm):
            raise NotNested(
                f"{name} combines elements, which those that read it do not combine on in the same way"
            )
        if any(array.name == name for array in algorithm.outputs):
            raise NotNested(f"{name} is a result, which is computed anyway")
        ranked = (
            d for d in algorithm.definitions if isinstance(d, ir.Reduce) and d.combiner in ORDERED
        )
        if any(name in ir.arrays_read(reader) for reader in ranked):
            raise NotNested(
                f"{name} is compared with its largest, and computed anew it may round otherwise"
            )
        return given.without().but(inlined=(*given.nest.inlined, name))


class Append(_Primitive):
    """`append(definition, product)`: a sum is one more column of a product over the same. Legal where what is
    summed has all factors of the product but the operand with its columns, and neither is a result."""

    kind: Literal["append"] = "append"
    product: str

    def _changed(self, given: _Given) -> Nest:
        pairs = (*given.nest.appended, (self.definition, self.product))
        made = given.without().but(appended=pairs)
        later = ready(given.algorithm, made)
        wide = later.definition(self.product)
        own = _in_stage(made, wide.out, lambda stage: _lying(stage, wide, given.target))
        return _in_order(own, later)


class Diagonal(_Primitive):
    """`diagonal(definition, axis)`: a sum of three operands or more that are each scaled by a number for each element of an
    axis is products with diagonals along it, a term each. All stages are those of the default nest again."""

    kind: Literal["diagonal"] = "diagonal"
    axis: str

    def _changed(self, given: _Given) -> Nest:
        sums = (*given.nest.diagonals, (self.definition, self.axis))
        return default_nest(given.algorithm, given.target, given.nest.but(diagonals=sums))


class Accumulate(_Primitive):
    """`accumulate(definition, product)`: a product is summed on where another has come to, a later one of its stage
    of which nothing is taken but their sum; with no product, on its own."""

    kind: Literal["accumulate"] = "accumulate"
    product: str = ""

    def _changed(self, given: _Given) -> Nest:
        added = _entered(given.nest.accumulated, self.definition, self.product)
        return given.nest.but(accumulated=added)


class Sum(_Primitive):
    """`sum(definition, over)`: a sum of what lies apart in memory is taken over `partitions`, as a product with ones, or
    over `free` axes, where what is summed is brought so that it lies there."""

    kind: Literal["sum"] = "sum"
    over: Literal["partitions", "free"]

    def _changed(self, given: _Given) -> Nest:
        free = self.over == "free"
        name = along_free(given.own).out if free else self.definition
        return given.nest.but(along_free=_listed(given.nest.along_free, name, free))


class Repeat(_Primitive):
    """`repeat(definition, readers)`: computed again, as `DEFINITION_again`, for some of its readers, with the axes
    that they keep first. Legal where it is not compared with one of its largest elements."""

    kind: Literal["repeat"] = "repeat"
    readers: tuple[str, ...]

    def _changed(self, given: _Given) -> Nest:
        nest, algorithm = given.nest, ready(given.algorithm, given.nest)
        try:
            made = repeated(algorithm, self.definition, self.readers)
        except NotTogether as refusal:
            raise NotNested(str(refusal)) from refusal
        again = made.definition(f"{self.definition}_again")
        at = next(n for n, s in enumerate(nest.stages) if {*s.members} & {*self.readers})
        own = Stage(members=(again.out,), partition=partition_of(again, TARGETS[given.target]))
        steps = (*nest.repeated, (self.definition, self.readers))
        return nest.in_place_of(at, own, nest.stages[at]).but(repeated=steps)


class Share(_Primitive):
    """`share(definition, reader)`: the longest expression that a definition has and another, which waits for what that
    comes to, is a definition of its own, `DEFINITION_shared`. All stages are those of the default nest again, what
    waits for fewer sums first."""

    kind: Literal["share"] = "share"
    reader: str

    def _changed(self, given: _Given) -> Nest:
        pairs = (*given.nest.shared, (self.definition, self.reader))
        return default_nest(given.algorithm, given.target, given.nest.but(shared=pairs))


class Descriptors(_Primitive):
    """`descriptors(definition, made)`: the descriptors of its stage's DMAs are made `before` the run, or where
    the compiler wants to, which is by software, one transfer after the other. Legal in `nki`."""

    kind: Literal["descriptors"] = "descriptors"
    made: Literal["before", "default"]

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(lambda stage: stage.but(static=self.made == "before"))


class Overlap(_Primitive):
    """`overlap(definition, rounds)`: rounds of the loops of its stage begin when those before have `begun`, in the order
    of a modulo schedule, or when those have `ended`. Legal for 3 to 64 rounds that leave each other nothing
    but sums."""

    kind: Literal["overlap"] = "overlap"
    rounds: Literal["begun", "ended"]

    def _changed(self, given: _Given) -> Nest:
        return given.in_stage(lambda stage: stage.but(overlaps=self.rounds == "begun"))


class Cores(_Primitive):
    """`cores(definition, axis)`: each of the two cores of a launch computes one half of an axis, in all
    stages that have it and none that was halved before. Legal in `nki` from trn2 on, where all that goes to
    HBM is halved; what a stage reads of the other core's half it waits for."""

    kind: Literal["cores"] = "cores"
    axis: str

    def _changed(self, given: _Given) -> Nest:
        nest, name = given.nest, self.axis
        extent = next((axis.extent for axis in ir.own_axes(given.own) if axis.name == name), 0)
        if extent != CORES:
            nest, name = split(nest, given.own, name, extent // CORES), f"{name}_1"

        def rest(found: tuple[Part, ...]) -> tuple[Part, ...]:
            return tuple(part for part in found if part.axis != name)

        halved = nest.each_stage(lambda s: s.but(partition=rest(s.partition), loops=rest(s.loops)))
        return halved.but(cores=(*nest.cores, name))


Primitive = Annotated[
    Partition
    | Tile
    | Split
    | Columns
    | At
    | Apart
    | Orient
    | Contract
    | Keep
    | Engine
    | Beside
    | Spread
    | Turn
    | Lay
    | Skip
    | Hold
    | Bring
    | Inline
    | Append
    | Diagonal
    | Accumulate
    | Sum
    | Repeat
    | Share
    | Cores
    | Descriptors
    | Overlap,
    Field(discriminator="kind"),
]
PRIMITIVES: TypeAdapter[Primitive] = TypeAdapter(Primitive)
"""Reads one of JSON: `PRIMITIVES.validate_json(text)`."""


def applied(
    primitive: Primitive, algorithm: ir.Algorithm, nest: Nest, target: str = "trn1",
    dialect: Dialect = "neuronxcc",
) -> Nest:  # fmt: skip
    """The nest after a primitive. Raises NotNested, with the definition and the reason, where that is
    no nest of the Algorithm."""
    made = changed(primitive, algorithm, nest, target)
    sources = [
        lower_nest(algorithm, one, target=target, dialect=dialect).source
        for one in (made, *([nest] if isinstance(primitive, Overlap) else []))
    ]
    if isinstance(primitive, Overlap) and primitive.rounds == "begun" and sources[0] == sources[1]:
        raise NotNested(f"no rounds of the loops that {primitive.definition} is in can overlap")
    return made


def changed(primitive: Primitive, algorithm: ir.Algorithm, nest: Nest, target: str) -> Nest:
    """The nest after a primitive; whether it has a kernel, lowering says."""
    made, name = ready(algorithm, nest), primitive.definition
    definitions = {d.out: d for d in made.definitions}
    if isinstance(primitive, Hold) and name in {array.name for array in made.inputs}:
        return _input_held(primitive, algorithm, nest, target)
    if name in nest.inlined:
        raise NotNested(f"{name} is computed in place and has no loops")
    if name not in definitions:
        raise NotNested(f"there is no definition {name}")
    return primitive._changed(_Given(algorithm, nest, target, definitions, definitions[name]))


def _in_axes(
    name: str, does: str, axes: Iterable[Axis], parts: Sequence[Part], room: bool = False
) -> None:
    """Raises NotNested for parts that are none of these axes, or two of one; of a short axis with `room` for more."""
    extents = {axis.name: axis.extent for axis in axes}
    for number, part in enumerate(parts):
        if part.axis not in extents:
            raise NotNested(f"{name} {does} no axis {part.axis}")
        if part.size > (extent := extents[part.axis]) and not (room and part.size in STARTS):
            raise NotNested(f"{name} {does} {extent} elements of {part.axis}, not {part.size}")
        if any(part.axis == other.axis for other in parts[:number]):
            raise NotNested(f"{name} {does} {part.axis} once, not in two parts")


def contractions(definition: ir.Definition, most: int) -> list[tuple[Part, ...]]:
    """Parts of several axes that a product sums over, joined on partitions in the order in which they lie in
    memory, where those take fewer rounds than the longest alone: the fewest first, then the fewest axes,
    those farthest apart in memory, with the most of the nearest."""
    product = product_in(definition)
    axes = [axis for axis in product.contracted if axis.extent > 1] if product else []
    reads = ir.reads_in(definition)
    order = [axis.name for r in reads for i in r.indices for axis in axes if axis in i.axes]

    def rounds(parts: tuple[Part, ...]) -> int:
        sizes = {part.axis: part.size for part in parts}
        return math.prod(-(-axis.extent // sizes.get(axis.name, 1)) for axis in axes)

    alone = min((rounds(filled((axis,), most)) for axis in axes), default=0)
    found = {
        tuple(sorted(parts, key=lambda part: order.index(part.axis)))
        for some in itertools.permutations(axes, min(len(axes), 3))
        if rounds(parts := filled(some, most)) < alone
    }

    def cost(parts: tuple[Part, ...]) -> tuple[int, int, list[int], int]:
        return rounds(parts), len(parts), [order.index(p.axis) for p in parts], -parts[-1].size

    return sorted(found, key=cost)


def side_by_side(definition: ir.Definition, most: int) -> list[tuple[Part, ...]]:
    """All that a product sums over behind another axis, of each of whose elements it is a product of its own on
    partitions of its own."""
    product = product_in(definition)
    axes = [axis for axis in product.contracted if axis.extent > 1] if product else []
    rows = math.prod(axis.extent for axis in axes)
    if product is None or rows not in STARTS:
        return []
    summed = tuple(Part(axis=axis.name, size=axis.extent) for axis in axes)
    others = (*product.batch, *product.rows, *product.columns)
    return [
        (Part(axis=a.name, size=a.extent), *summed) for a in others if 1 < a.extent <= most // rows
    ]


def split(nest: Nest, definition: ir.Definition, name: str, size: int) -> Nest:
    """A nest with an axis of a definition cut in two everywhere; the stages run over the same."""
    extents = {axis.name: axis.extent for axis in ir.own_axes(definition)}
    if name not in extents:
        raise NotNested(f"{definition.out} has no axis {name}")
    if not 1 < size < extents[name] or extents[name] % size:
        raise NotNested(f"the {extents[name]} of {name} are not cut into parts of {size}")

    def parts(found: tuple[Part, ...]) -> tuple[Part, ...]:
        made: list[Part] = []
        for part in found:
            if part.axis != name:
                made.append(part)
                continue
            if part.size > size:
                made.append(Part(axis=f"{name}_1", size=-(-part.size // size)))
            made.append(Part(axis=f"{name}_0", size=min(part.size, size)))
        return tuple(made)

    if any(name in names for stage in nest.stages for _, names in stage.laid):
        raise NotNested(f"{definition.out} has {name}, which lies on partitions whole")
    joined = tuple((product, parts(axes)) for product, axes in nest.contracted)
    made = nest.each_stage(lambda s: s.but(partition=parts(s.partition), loops=parts(s.loops)))
    return made.but(contracted=joined, splits=(*nest.splits, (name, size)))


def _in_stage(nest: Nest, name: str, change: Callable[[Stage], Stage]) -> Nest:
    return nest.each_stage(lambda stage: change(stage) if name in stage.members else stage)


def _lying(stage: Stage, definition: ir.Definition, target: str) -> Stage:
    """A stage of a definition that may not have its axes: along those that it has."""
    axes = {axis.name for axis in definition.axes}
    fits = stage.lying <= axes
    partition = stage.partition if fits else partition_of(definition, TARGETS[target])
    loops = tuple(part for part in stage.loops if part.axis in axes)
    return stage.but(partition=partition, loops=loops)


def _without(nest: Nest, name: str) -> Nest:
    """A nest in none of whose stages a definition is."""
    made = nest.each_stage(lambda s: s.but(members=tuple(m for m in s.members if m != name)))
    return made.but(stages=tuple(stage for stage in made.stages if stage.members))


def _in_order(nest: Nest, algorithm: ir.Algorithm) -> Nest:
    """A nest with each stage after those that it reads of."""
    reads = {d.out: ir.arrays_read(d) for d in algorithm.definitions}
    read = {s: {a for m in s.members for a in reads.get(m, ())} for s in nest.stages}
    waiting, order = list(nest.stages), list[Stage]()
    while waiting:
        missing = {member for stage in waiting for member in stage.members}
        free = (s for s in waiting if not read[s] & missing - {*s.members})
        order.append(next(free, waiting[-1]))
        waiting.remove(order[-1])
    return nest.but(stages=tuple(order))


def _input_held(primitive: Hold, algorithm: ir.Algorithm, nest: Nest, target: str) -> Nest:
    """A nest with an input brought before the first stage that reads it, for all, or to each that reads it."""
    name, here = primitive.definition, f"{primitive.definition}_here"
    kept = primitive.memory == "SBUF"
    made = _without(nest, here).but(
        brought=_listed(nest.brought, name, kept), held=_listed(nest.held, here, kept)
    )
    if not kept:
        return made
    definitions = {d.out: d for d in ready(algorithm, made).definitions}
    first = {member for member, d in definitions.items() if here in ir.arrays_read(d)}
    at = next(n for n, stage in enumerate(made.stages) if first & {*stage.members})
    lying, axes = partition_of(definitions[here], TARGETS[target]), definitions[here].axes
    if len(first) == 1 and not made.stages[at].lying & {a.name for a in axes}:  # alike on all
        lying = ()
    return made.in_place_of(at, Stage(members=(here,), partition=lying), made.stages[at])


def read_later(definitions: Iterable[ir.Definition], nest: Nest, at: int) -> list[str]:
    """The definitions of a stage that later ones read."""
    after = {member for stage in nest.stages[at + 1 :] for member in stage.members}
    read = {array for d in definitions if d.out in after for array in ir.arrays_read(d)}
    return [member for member in nest.stages[at].members if member in read]


def rows_read(
    definitions: Sequence[ir.Definition], lying: Collection[str]
) -> list[tuple[str, str]]:
    """The arrays, by definition, of which elements along other axes than those on partitions are read
    alone: all partitions read the same."""
    made = {definition.out for definition in definitions}
    return list(
        dict.fromkeys(
            (definition.out, part.array)
            for definition in definitions
            for part in ir.reads_in(definition)
            if part.array not in made
            if ir.axes_of(part)
            and lying
            and not {axis.name for axis in ir.axes_of(part)} & set(lying)
        )
    )


def across_partitions(
    stage: Stage, definitions: Mapping[str, ir.Definition]
) -> list[tuple[str, str]]:
    """The arrays, by definition, that lie in memory along what the definition has on partitions, with other
    elements of a partition farther apart: those that it reads, but for the operands of products, and itself."""
    found: dict[tuple[str, str], None] = {}
    laid = dict(stage.laid)
    for name in stage.members:
        definition = definitions[name]
        lying = set(laid.get(name) or [part.axis for part in stage.partition])
        own = ir.Read(name, tuple(map(index_of, definition.axes)))
        for read in (own, *(() if product_in(definition) else ir.parts_in(definition))):
            if (
                isinstance(read, ir.Read)
                and read.indices
                and (read == own or read.array not in stage.members)
            ):
                *first, last = read.indices
                beside = {a.name for a, step in last.terms if isinstance(a, Axis) and step == 1}
                if beside & lying and any(i.axes - last.axes for i in first):
                    found[name, read.array] = None
    return list(found)


def read_late(algorithm: ir.Algorithm, nest: Nest) -> set[str]:
    """The inputs that one definition alone reads, in no first stage: they may be brought while others work."""
    definitions = ready(algorithm, nest).definitions
    readers = {
        a.name: [d.out for d in definitions if a.name in ir.arrays_read(d)]
        for a in algorithm.inputs
    }
    return {a for a, of in readers.items() if len(of) == 1 and of[0] not in nest.stages[0].members}


def neighbours(algorithm: ir.Algorithm, nest: Nest, target: str = "trn1") -> Iterator[Primitive]:
    """Single changes of a nest that could be worth trying, legal or not."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    most = TARGETS[target].partitions
    cut, late = {axis for axis, _ in nest.splits}, read_late(algorithm, nest)
    by: Literal["tensor", "dma"]
    for array in (a.name for a in algorithm.inputs):
        count = sum(array in ir.arrays_read(d) for d in definitions.values())
        if count > 1 or array in {*nest.brought, *late}:
            yield Hold(definition=array, memory="HBM" if array in nest.brought else "SBUF")
    for at, stage in enumerate(nest.stages):
        name = stage.members[-1]
        members = [definitions[member] for member in stage.members]
        common = [a for a in members[-1].axes if all(a in ir.own_axes(d) for d in members)]
        for size in COLUMNS:
            if size != stage.columns:
                yield Columns(definition=name, size=size)
        for count in range(1, len(common) + 1):
            for first in range(len(common) - count + 1):
                axes = filled(tuple(common[first : first + count]), most)
                if axes != stage.partition:
                    yield Partition(definition=name, axes=axes)
        held, loops = stage.lying, {part.axis: part.size for part in stage.loops}
        for axis in dict.fromkeys((*common, *ir.own_axes(members[-1]))):
            if axis.name in held:
                continue
            if axis.extent > most and axis.extent % most == 0 and axis.name not in cut:
                yield Split(definition=name, axis=axis.name, size=most)
            for size in dict.fromkeys((0, *(evenly(axis.extent, most_) for most_ in LOOPS))):
                if size != loops.get(axis.name, 0) and size < axis.extent:
                    yield Tile(definition=name, axis=axis.name, size=size)
        yield Bring(definition=name, tiles="whole" if stage.parts else "parts")
        if not stage.static:
            yield Descriptors(definition=name, made="before")
        yield Overlap(definition=name, rounds="ended" if stage.overlaps else "begun")
        if at + 1 < len(nest.stages):
            yield At(definition=name, consumer=nest.stages[at + 1].members[0])
        lying = held.union(*(names for _, names in stage.laid))
        for axis in dict.fromkeys(axis for d in members for axis in ir.own_axes(d)):
            if axis.name not in {*stage.skipped, *lying} and masks_of(members, axis):
                yield Skip(definition=name, axes=(axis.name,))
        for member in stage.members[1:]:
            yield Apart(definition=member)
        if TARGETS[target].reads_in_turn:
            for member in stage.members:
                for engine in BESIDE:
                    if engine != dict(nest.beside).get(member, "none"):
                        yield Beside(definition=member, engine=engine)
        for member in read_later(definitions.values(), nest, at):
            held_in: Literal["SBUF", "HBM"] = "HBM" if member in nest.held else "SBUF"
            yield Hold(definition=member, memory=held_in)
        for member, array in rows_read(members, held):
            by = "dma" if (member, array) in nest.spread else "tensor"
            yield Spread(definition=member, array=array, engine=by)
        for member, array in across_partitions(stage, definitions):
            by = "dma" if (member, array) in nest.turned else "tensor"
            yield Turn(definition=member, array=array, engine=by)
        for product in members:
            found = product_in(product)
            if found is None or not found.rows:
                continue
            if product.out in dict(nest.accumulated):
                yield Accumulate(definition=product.out)
            joined = dict(nest.contracted).get(product.out, ())
            for axes in ((), *contractions(product, most), *side_by_side(product, most)):
                if axes != joined:
                    yield Contract(definition=product.out, axes=axes)
            sides: tuple[Literal["left", "right"], ...] = ("left", "right")
            ways: tuple[Way, ...] = ("direct", "turned", "squares")
            for side in sides:
                for way in ways:
                    if nest.way(product.out, side) != way:
                        yield Orient(definition=product.out, side=side, way=way)
                pair, memories = (product.out, side), get_args(Memory)
                for memory in memories:
                    if memory != nest.memory(*pair):
                        yield Keep(definition=product.out, side=side, memory=memory)
