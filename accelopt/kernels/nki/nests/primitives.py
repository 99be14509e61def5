"""Changes of one nest into another that computes the same, as typed values: JSON in and out, each legal
or refused with the definition that is in the way and why."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.value_nodes import ORDERED
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


class _Primitive(BaseModel):
    """`str` is what the documentation writes: `tile(scores, k, 512)`, `partition(out, 128 of m)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __str__(self) -> str:
        kind, *values = (getattr(self, name) for name in type(self).model_fields)
        return f"{kind}({', '.join(map(_said, values))})"


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(_said, value)) or "none"
    return f"{value.size} of {value.axis}" if isinstance(value, Part) else str(value)


class Partition(_Primitive):
    """`partition(definition, axes)`: these parts of axes, joined, lie on partitions in its stage. Outside of the rows
    of a product they may be what both its operands depend on: each element has 32 or 64 partitions, or room for that."""

    kind: Literal["partition"] = "partition"
    definition: str
    axes: tuple[Part, ...]


class Tile(_Primitive):
    """`tile(definition, axis, size)`: its stage runs along an axis part by part, outside of the loops
    over what lies on partitions; 0 takes the axis whole again."""

    kind: Literal["tile"] = "tile"
    definition: str
    axis: str
    size: int = Field(ge=0)


class Split(_Primitive):
    """`split(definition, axis, size)`: cuts an axis in two for all definitions that have it. `AXIS_0` are
    `size` elements beside each other, `AXIS_1` counts those."""

    kind: Literal["split"] = "split"
    definition: str
    axis: str
    size: int


class Columns(_Primitive):
    """`columns(definition, size)`: how many elements a partition one instruction of its stage takes."""

    kind: Literal["columns"] = "columns"
    definition: str
    size: int = Field(ge=1)


class At(_Primitive):
    """`at(definition, consumer)`: computes a definition's tiles in the stage of another, on the chip."""

    kind: Literal["at"] = "at"
    definition: str
    consumer: str


class Apart(_Primitive):
    """`apart(definition)`: computes a definition and all after it in its stage in a later stage."""

    kind: Literal["apart"] = "apart"
    definition: str


class Orient(_Primitive):
    """`orient(product, side, way)`: how an operand comes to have the summed axis on partitions."""

    kind: Literal["orient"] = "orient"
    definition: str
    side: Literal["left", "right"]
    way: Way


class Contract(_Primitive):
    """`contract(product, axes)`: these parts of the axes that a product sums over, joined, lie on
    partitions in a round of its sum; without any, as much as there is room for of the longest. Behind an axis of the
    result 32 or 64 of them, all: each of its elements has a product of its own there."""

    kind: Literal["contract"] = "contract"
    definition: str
    axes: tuple[Part, ...]


class Keep(_Primitive):
    """`keep(product, side, memory)`: whether an operand stays in SBUF for as many rounds as half of SBUF
    allows, is `resident` there whatever room that leaves, or is brought from HBM again in each round."""

    kind: Literal["keep"] = "keep"
    definition: str
    side: Literal["left", "right"]
    memory: Memory


class Engine(_Primitive):
    """`engine(definition, engine)`: where several engines can, this one computes its elements; `any`
    leaves it open."""

    kind: Literal["engine"] = "engine"
    definition: str
    engine: Literal["vector", "scalar", "any"]


class Beside(_Primitive):
    """`beside(definition, engine)`: where two tiles in SBUF are read in turn, one comes into PSUM: what is computed on the
    way is written there; of what is not, the `scalar` engine copies one, or the `tensor` engine multiplies what is given
    in 16 bits with the identity. `none`: both are in SBUF. Legal on trn1, where that takes half as long."""

    kind: Literal["beside"] = "beside"
    definition: str
    engine: Literal["scalar", "tensor", "none"]


class Spread(_Primitive):
    """`spread(definition, array, engine)`: how a row of an array that all partitions read alike comes to
    them: by DMA to each, or from one by the Tensor engine."""

    kind: Literal["spread"] = "spread"
    definition: str
    array: str
    engine: Literal["tensor", "dma"]


class Turn(_Primitive):
    """`turn(definition, array, engine)`: how an array that lies in HBM along what is on partitions comes to a
    definition that reads it, or goes there where it is the definition itself: element by element by DMA, or as
    it lies, transposed by the Tensor engine."""

    kind: Literal["turn"] = "turn"
    definition: str
    array: str
    engine: Literal["tensor", "dma"]


class Lay(_Primitive):
    """`lay(definition, axes)`: within its stage, a definition has these of its axes on partitions, whole, in
    the place of those of the stage; none: as the others. What is combined over axes that lie on partitions
    comes to all of them."""

    kind: Literal["lay"] = "lay"
    definition: str
    axes: tuple[str, ...]


class Skip(_Primitive):
    """`skip(definition, axes)`: blocks along these axes of its stage that a mask empties are not computed;
    none: all are. Legal where what the mask puts there counts for nothing in all that is combined along
    the axis."""

    kind: Literal["skip"] = "skip"
    definition: str
    axes: tuple[str, ...]


class Hold(_Primitive):
    """`hold(definition, memory)`: whether a definition that later stages read stays in SBUF, all of it, or
    goes through HBM. Legal where they have the same of its axes on partitions, or multiply it. An input is
    brought, as `INPUT_here`, for the first stage that reads it. Legal where all read the same elements of it."""

    kind: Literal["hold"] = "hold"
    definition: str
    memory: Literal["SBUF", "HBM"]


class Bring(_Primitive):
    """`bring(definition, tiles)`: whether tiles of 512 KiB or more come to its stage `whole`, or in `parts` of
    at least 256 KiB: work on the first begins before the last is there."""

    kind: Literal["bring"] = "bring"
    definition: str
    tiles: Literal["whole", "parts"]


class Inline(_Primitive):
    """`inline(definition)`: whoever reads it computes it anew, or combines what it combines with all else. Legal where
    it is not compared with one of its largest elements, for it could round otherwise."""

    kind: Literal["inline"] = "inline"
    definition: str


class Append(_Primitive):
    """`append(definition, product)`: a sum is one more column of a product over the same. Legal where what is
    summed has all factors of the product but the operand with its columns, and neither is a result."""

    kind: Literal["append"] = "append"
    definition: str
    product: str


class Diagonal(_Primitive):
    """`diagonal(definition, axis)`: a sum of three operands or more that are each scaled by a number for each element of an
    axis is products with diagonals along it, a term each. All stages are those of the default nest again."""

    kind: Literal["diagonal"] = "diagonal"
    definition: str
    axis: str


class Accumulate(_Primitive):
    """`accumulate(definition, product)`: a product is summed on where another has come to, a later one of its stage
    of which nothing is taken but their sum; with no product, on its own."""

    kind: Literal["accumulate"] = "accumulate"
    definition: str
    product: str = ""


class Sum(_Primitive):
    """`sum(definition, over)`: a sum of what lies apart in memory is taken over `partitions`, as a product with ones, or
    over `free` axes, where what is summed is brought so that it lies there."""

    kind: Literal["sum"] = "sum"
    definition: str
    over: Literal["partitions", "free"]


class Repeat(_Primitive):
    """`repeat(definition, readers)`: computed again, as `DEFINITION_again`, for some of its readers, with the axes
    that they keep first. Legal where it is not compared with one of its largest elements."""

    kind: Literal["repeat"] = "repeat"
    definition: str
    readers: tuple[str, ...]


class Share(_Primitive):
    """`share(definition, reader)`: the longest expression that a definition has and another, which waits for what that
    comes to, is a definition of its own, `DEFINITION_shared`. All stages are those of the default nest again, what
    waits for fewer sums first."""

    kind: Literal["share"] = "share"
    definition: str
    reader: str


class Descriptors(_Primitive):
    """`descriptors(definition, made)`: the descriptors of its stage's DMAs are made `before` the run, or where
    the compiler wants to, which is by software, one transfer after the other. Legal in `nki`."""

    kind: Literal["descriptors"] = "descriptors"
    definition: str
    made: Literal["before", "default"]


class Overlap(_Primitive):
    """`overlap(definition, rounds)`: rounds of the loops of its stage begin when those before have `begun`, in the order
    of a modulo schedule, or when those have `ended`. Legal for 3 to 64 rounds that leave each other nothing
    but sums."""

    kind: Literal["overlap"] = "overlap"
    definition: str
    rounds: Literal["begun", "ended"]


class Cores(_Primitive):
    """`cores(definition, axis)`: each of the two cores of a launch computes one half of an axis, in all
    stages that have it and none that was halved before. Legal in `nki` from trn2 on, where all that goes to
    HBM is halved; what a stage reads of the other core's half it waits for."""

    kind: Literal["cores"] = "cores"
    definition: str
    axis: str


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
    made = ready(algorithm, nest)
    definitions = {d.out: d for d in made.definitions}
    if isinstance(primitive, Hold) and primitive.definition in {a.name for a in made.inputs}:
        return _input_held(primitive, algorithm, nest, target)
    if primitive.definition in nest.inlined:
        raise NotNested(f"{primitive.definition} is computed in place and has no loops")
    if primitive.definition not in definitions:
        raise NotNested(f"there is no definition {primitive.definition}")
    definition = definitions[primitive.definition]
    if isinstance(primitive, (Diagonal, Share)):
        field, other = ("diagonals", primitive.axis) if isinstance(primitive, Diagonal) else ("shared", primitive.reader)  # fmt: skip
        update = {field: (*getattr(nest, field), (definition.out, other))}
        return default_nest(algorithm, target, nest.model_copy(update=update))
    if isinstance(primitive, (Orient, Contract, Keep)):
        return _with_operands(primitive, definition, nest, target)
    if isinstance(primitive, (Partition, Tile, Columns, Lay, Skip, Bring, Descriptors, Overlap)):
        if isinstance(primitive, Partition):
            _in_axes(definition.out, "has", ir.own_axes(definition), primitive.axes, room=True)
        return _in_stage(nest, definition.out, lambda stage: _stage_changed(primitive, stage))
    if isinstance(primitive, (Hold, Engine, Beside, Spread, Turn)):
        return _with_arrays(primitive, definitions, nest, target)
    if isinstance(primitive, Split):
        return split(nest, definition, primitive.axis, primitive.size)
    if isinstance(primitive, Accumulate):
        rest = tuple(pair for pair in nest.accumulated if pair[0] != definition.out)
        added = ((definition.out, primitive.product),) if primitive.product else ()
        return nest.model_copy(update={"accumulated": (*rest, *added)})
    if isinstance(primitive, Sum):
        sums = tuple(name for name in nest.along_free if name != definition.out)
        if primitive.over == "free":
            sums = (*sums, along_free(definition).out)
        return nest.model_copy(update={"along_free": sums})
    if isinstance(primitive, Cores):
        return _on_cores(nest, definition, primitive.axis)
    return _computed_elsewhere(primitive, algorithm, nest, target)


def _computed_elsewhere(
    primitive: At | Apart | Inline | Append | Repeat, start: ir.Algorithm, nest: Nest, target: str
) -> Nest:
    """A nest in which a definition is computed in another stage, in place, with another or again."""
    algorithm, name = ready(start, nest), primitive.definition
    if isinstance(primitive, At):
        return _joined(primitive, algorithm, nest)
    if isinstance(primitive, Apart):
        return _apart(name, algorithm.definition(name), nest, target)
    if isinstance(primitive, Inline):
        return _inlined(algorithm.definition(name), algorithm, nest)
    if isinstance(primitive, Repeat):
        return _repeated(primitive, algorithm, nest, target)
    pairs = (*nest.appended, (name, primitive.product))
    made = _without(nest, name).model_copy(update={"appended": pairs})
    later = ready(start, made)
    wide = later.definition(primitive.product)
    return _in_order(_in_stage(made, wide.out, lambda s: _lying(s, wide, target)), later)


def _stage_changed(
    primitive: Partition | Tile | Columns | Lay | Skip | Bring | Descriptors | Overlap, stage: Stage
) -> Stage:
    """The stage of a definition with other loops, or other words for all of its instructions."""
    if isinstance(primitive, Partition):
        return _clear(stage, primitive.axes)
    update: dict[str, object]
    if isinstance(primitive, Tile):
        added = (Part(axis=primitive.axis, size=primitive.size),) if primitive.size else ()
        update = {"loops": (*(p for p in stage.loops if p.axis != primitive.axis), *added)}
    elif isinstance(primitive, Lay):
        entry = ((primitive.definition, primitive.axes),) if primitive.axes else ()
        rest = tuple(pair for pair in stage.laid if pair[0] != primitive.definition)
        update = {"laid": (*rest, *entry)}
    elif isinstance(primitive, Columns):
        update = {"columns": primitive.size}
    elif isinstance(primitive, Skip):
        update = {"skipped": primitive.axes}
    elif isinstance(primitive, Bring):
        update = {"parts": primitive.tiles == "parts"}
    elif isinstance(primitive, Overlap):
        update = {"overlaps": primitive.rounds == "begun"}
    else:
        update = {"static": primitive.made == "before"}
    return stage.model_copy(update=update)


def _with_arrays(
    primitive: Hold | Engine | Beside | Spread | Turn, definitions: Mapping[str, ir.Definition], nest: Nest,
    target: str,
) -> Nest:  # fmt: skip
    """A nest in which a definition is held, computed by an engine, or brought its arrays, in another way."""
    name = primitive.definition
    if isinstance(primitive, Hold):
        held = tuple(other for other in nest.held if other != name)
        added = (name,) if primitive.memory == "SBUF" else ()
        return nest.model_copy(update={"held": (*held, *added)})
    if isinstance(primitive, Engine):
        others = tuple(pair for pair in nest.engines if pair[0] != name)
        chosen = ((name, primitive.engine),) if primitive.engine != "any" else ()
        return nest.model_copy(update={"engines": (*others, *chosen)})
    if isinstance(primitive, Beside):
        if not reads_in_turn(target):
            raise NotNested(f"{name} takes two tiles in SBUF at once on {target}")
        beside = tuple(pair for pair in nest.beside if pair[0] != name)
        own = [(name, primitive.engine)] * (primitive.engine != "none")
        return nest.model_copy(update={"beside": (*beside, *own)})
    pair, array = (name, primitive.array), primitive.array
    if isinstance(primitive, Spread) and array not in ir.arrays_read(definitions[name]):
        raise NotNested(f"{name} does not read {array}")
    stage = next(stage for stage in nest.stages if name in stage.members)
    if isinstance(primitive, Turn) and pair not in across_partitions(stage, definitions):
        raise NotNested(f"{array} does not lie in memory along what {name} has on partitions")
    field = "spread" if isinstance(primitive, Spread) else "turned"
    rest = tuple(entry for entry in getattr(nest, field) if entry != pair)
    return nest.model_copy(update={field: (*rest, pair) if primitive.engine == "tensor" else rest})


def _with_operands(
    primitive: Orient | Contract | Keep, definition: ir.Definition, nest: Nest, target: str
) -> Nest:
    """A nest with the operands of a product brought in another way."""
    found = product_in(definition)
    if found is None:
        raise NotNested(f"{primitive.definition} is no matrix product")
    if isinstance(primitive, Contract):
        return _contracted(primitive, found, nest, TARGETS[target].partitions)
    pair = (primitive.definition, primitive.side)
    if isinstance(primitive, Orient):
        ways = tuple(entry for entry in nest.ways if entry[:2] != pair)
        return nest.model_copy(update={"ways": (*ways, (*pair, primitive.way))})
    kept = {"streamed": nest.streamed, "resident": nest.resident}
    memory = {name: tuple(e for e in entries if e != pair) for name, entries in kept.items()}
    if primitive.memory != "SBUF":
        name = "streamed" if primitive.memory == "HBM" else "resident"
        memory[name] = (*memory[name], pair)
    return nest.model_copy(update=memory)


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


def _contracted(primitive: Contract, found: Contraction, nest: Nest, most: int) -> Nest:
    name = primitive.definition
    own = (*found.batch, *found.rows, *found.columns, *found.contracted)
    _in_axes(name, "sums over", own, primitive.axes)
    if math.prod(part.size for part in primitive.axes) > most:
        raise NotNested(f"{name} has more elements in a round of its sum than {most} partitions")
    rest = tuple(pair for pair in nest.contracted if pair[0] != name)
    entry = ((name, primitive.axes),) if primitive.axes else ()
    return nest.model_copy(update={"contracted": (*rest, *entry)})


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

    stages = tuple(
        stage.model_copy(update={"partition": parts(stage.partition), "loops": parts(stage.loops)})
        for stage in nest.stages
    )
    if any(name in names for stage in stages for _, names in stage.laid):
        raise NotNested(f"{definition.out} has {name}, which lies on partitions whole")
    joined = tuple((product, parts(axes)) for product, axes in nest.contracted)
    splits = (*nest.splits, (name, size))
    return nest.model_copy(update={"stages": stages, "contracted": joined, "splits": splits})


def _on_cores(nest: Nest, definition: ir.Definition, name: str) -> Nest:
    """A nest with the halves of an axis on two cores; no stage runs over them."""
    extent = next((axis.extent for axis in ir.own_axes(definition) if axis.name == name), 0)
    if extent != CORES:
        nest, name = split(nest, definition, name, extent // CORES), f"{name}_1"

    def rest(found: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(part for part in found if part.axis != name)

    stages = tuple(
        stage.model_copy(update={"partition": rest(stage.partition), "loops": rest(stage.loops)})
        for stage in nest.stages
    )
    return nest.model_copy(update={"stages": stages, "cores": (*nest.cores, name)})


def _in_stage(nest: Nest, name: str, change: Callable[[Stage], Stage]) -> Nest:
    stages = tuple(change(s) if name in s.members else s for s in nest.stages)
    return nest.model_copy(update={"stages": stages})


def _clear(stage: Stage, axes: tuple[Part, ...]) -> Stage:
    """A stage with other axes on partitions, which run in no other loop."""
    held = {part.axis for part in axes}
    loops = tuple(part for part in stage.loops if part.axis not in held)
    return stage.model_copy(update={"partition": axes, "loops": loops})


def _joined(primitive: At, algorithm: ir.Algorithm, nest: Nest) -> Nest:
    places = {member: n for n, stage in enumerate(nest.stages) for member in stage.members}
    if primitive.consumer not in places:
        raise NotNested(f"there is no definition {primitive.consumer}")
    here, there = places[primitive.definition], places[primitive.consumer]
    if here >= there:
        raise NotNested(
            f"{primitive.definition} is not computed in a stage before {primitive.consumer}"
        )
    moving = nest.stages[here]
    reads = {d.out: ir.arrays_read(d) for d in algorithm.definitions}
    for stage in nest.stages[here + 1 : there]:
        for member in stage.members:
            if used := reads[member] & set(moving.members):
                raise NotNested(f"{member} reads {min(used)} before {primitive.consumer} does")
    target = nest.stages[there]
    merged = target.model_copy(update={"members": (*moving.members, *target.members)})
    between = nest.stages[here + 1 : there]
    stages = (*nest.stages[:here], *between, merged, *nest.stages[there + 1 :])
    return nest.model_copy(update={"stages": stages})


def _apart(name: str, definition: ir.Definition, nest: Nest, target: str) -> Nest:
    at, stage = next((n, s) for n, s in enumerate(nest.stages) if name in s.members)
    first, rest = (
        stage.members[: stage.members.index(name)],
        stage.members[stage.members.index(name) :],
    )
    if not first:
        raise NotNested(f"{name} begins its stage already")
    later = _lying(stage.model_copy(update={"members": rest}), definition, target)
    now = stage.model_copy(update={"members": first})
    stages = (*nest.stages[:at], now, later, *nest.stages[at + 1 :])
    return nest.model_copy(update={"stages": stages})


def _lying(stage: Stage, definition: ir.Definition, target: str) -> Stage:
    """A stage of a definition that may not have its axes: along those that it has."""
    axes = {axis.name for axis in definition.axes}
    fits = all(part.axis in axes for part in stage.partition)
    partition = stage.partition if fits else partition_of(definition, TARGETS[target])
    loops = tuple(part for part in stage.loops if part.axis in axes)
    return stage.model_copy(update={"partition": partition, "loops": loops})


def _inlined(definition: ir.Definition, algorithm: ir.Algorithm, nest: Nest) -> Nest:
    name = definition.out
    if not isinstance(definition, ir.Map) and not combined_by_readers(name, algorithm):
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
    return _without(nest, name).model_copy(update={"inlined": (*nest.inlined, name)})


def _without(nest: Nest, name: str) -> Nest:
    """A nest in none of whose stages a definition is."""
    stages = tuple(
        s.model_copy(update={"members": tuple(m for m in s.members if m != name)})
        for s in nest.stages
    )
    return nest.model_copy(update={"stages": tuple(stage for stage in stages if stage.members)})


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
    return nest.model_copy(update={"stages": tuple(order)})


def _repeated(primitive: Repeat, algorithm: ir.Algorithm, nest: Nest, target: str) -> Nest:
    """A nest with a definition computed again, in a stage of its own before the first that reads it."""
    try:
        made = repeated(algorithm, primitive.definition, primitive.readers)
    except NotTogether as refusal:
        raise NotNested(str(refusal)) from refusal
    again = made.definition(f"{primitive.definition}_again")
    at = next(n for n, s in enumerate(nest.stages) if {*s.members} & {*primitive.readers})
    own = Stage(members=(again.out,), partition=partition_of(again, TARGETS[target]))
    steps = (*nest.repeated, (primitive.definition, primitive.readers))
    stages = (*nest.stages[:at], own, *nest.stages[at:])
    return nest.model_copy(update={"stages": stages, "repeated": steps})


def _input_held(primitive: Hold, algorithm: ir.Algorithm, nest: Nest, target: str) -> Nest:
    """A nest with an input brought before the first stage that reads it, for all, or to each that reads it."""
    name, here = primitive.definition, f"{primitive.definition}_here"
    rest, held = (
        [one for one in of if one not in (name, here)] for of in (nest.brought, nest.held)
    )
    made = _without(nest, here).model_copy(update={"brought": (*rest,), "held": (*held,)})
    if primitive.memory == "HBM":
        return made
    made = made.model_copy(update={"brought": (*rest, name), "held": (*held, here)})
    definitions = {d.out: d for d in ready(algorithm, made).definitions}
    first = {member for member, d in definitions.items() if here in ir.arrays_read(d)}
    at = next(n for n, stage in enumerate(made.stages) if first & {*stage.members})
    lying, axes = partition_of(definitions[here], TARGETS[target]), definitions[here].axes
    around = {part.axis for part in made.stages[at].partition}
    if len(first) == 1 and not around & {axis.name for axis in axes}:  # alike on all
        lying = ()
    own = Stage(members=(here,), partition=lying)
    return made.model_copy(update={"stages": (*made.stages[:at], own, *made.stages[at:])})


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


def reads_in_turn(target: str) -> bool:
    """Whether the Vector engine reads two tiles in SBUF one after the other."""
    spec = TARGETS[target]
    return spec.two_input_cycles_per_element > spec.vector_cycles_per_element


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
        held = {part.axis for part in stage.partition}
        loops = {part.axis: part.size for part in stage.loops}
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
        if reads_in_turn(target):
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
