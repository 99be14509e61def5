"""A nest: how an Algorithm is computed, as a plain record that other nests are made of by `primitives`.

A nest is a list of stages, one after the other. A stage is one loop nest over parts of axes; inside of
it the tiles of its members (definitions of the prepared Algorithm) are computed in order. What a member
gives a later member of its stage stays on the chip; what a later stage reads goes through HBM.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal

from pydantic import Field

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import ONE, Contraction, contraction, factors_of, product_of
from accelopt.algorithm.index import Axis
from accelopt.evaluation import Row
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.nests.computed_together import (
    NotTogether,
    appended,
    brought,
    repeated,
    shared,
)
from accelopt.kernels.nki.nests.diagonals import with_diagonals
from accelopt.kernels.nki.nests.preparing import cut, inlined, prepared
from accelopt.kernels.nki.nests.term_sums import (
    in_own_terms,
    is_faster_in_terms,
    is_short,
    is_weighted,
)

Memory = Literal["SBUF", "HBM", "resident"]
"""Where an operand of a product stays: in SBUF for as many rounds as half of that allows, in HBM, or in
SBUF whatever room that leaves."""
Way = Literal["direct", "turned", "squares"]
"""How an operand of a product comes to have the summed axis on partitions: computed that way round, or
computed with its other axis there and transposed, by the Tensor engine or, in squares, by Vector."""


class Part(Row):
    """An axis, taken `size` elements at a time."""

    axis: str
    size: int = Field(ge=1)


class Stage(Row):
    """One loop nest. The elements of `partition`, joined in that order, lie on partitions; `loops`
    are further axes that all is computed along part by part, outside of it. Members that are `laid` have
    other axes on partitions, whole. `columns` bounds the elements a partition that one instruction works
    on. Along axes that are `skipped`, blocks that a mask empties are not computed. Large tiles are brought in
    `parts`, each by a DMA of its own. With `static` its DMAs have descriptors that are made before the run. Where it `overlaps`, rounds of its loops
    begin before those before have ended."""

    members: tuple[str, ...]
    partition: tuple[Part, ...] = ()
    loops: tuple[Part, ...] = ()
    laid: tuple[tuple[str, tuple[str, ...]], ...] = ()
    columns: int = 2048
    skipped: tuple[str, ...] = ()
    parts: bool = False
    static: bool = False
    overlaps: bool = False

    @property
    def lying(self) -> set[str]:
        """The axes on partitions."""
        return {part.axis for part in self.partition}

    @property
    def taken(self) -> set[str]:
        """The axes on partitions, and those that it runs along part by part."""
        return {part.axis for part in (*self.partition, *self.loops)}


class Nest(Row):
    """Stages, and what differs from the usual: for products `ways` by the name of the product and `left`
    or `right`; by product, the parts of summed axes that, joined, lie on partitions in a round of the sum
    (`contracted`; without, a part of one axis); `streamed` operands, which are brought again in every
    round instead of being kept for all of them, or are `resident` for the outermost loop in which SBUF holds them; `engines` by definition; those that bring one of two tiles that Vector takes into PSUM (`beside`); by definition, arrays of which all partitions read one row, which
    is `spread` by the Tensor engine instead of being brought to each by DMA; arrays that are read, or results,
    that lie in HBM along what is on partitions and are `turned` by the Tensor engine; sums
    of what lies apart in memory that are taken `along_free` axes instead of as products with ones; definitions that are `held` in SBUF for later stages instead of going through HBM; those that are `inlined` where they are read; sums
    that are one more column of a product (`appended`); definitions that are computed again for some of their readers
    (`repeated`); what one and another that waits for it compute alike, once (`shared`); sums of scaled operands that are products with `diagonals` along an axis; inputs that are `brought` once for all that read the same elements of them; products that are `accumulated` where the last is with which they are added up; axes that are cut
    in two by `splits`, by name and size, before anything else; axes of two elements, of which each of the
    two `cores` of a launch computes one: in a stage, of the first that all has that it gives others."""

    stages: tuple[Stage, ...]
    ways: tuple[tuple[str, str, Way], ...] = ()
    contracted: tuple[tuple[str, tuple[Part, ...]], ...] = ()
    streamed: tuple[tuple[str, str], ...] = ()
    resident: tuple[tuple[str, str], ...] = ()
    engines: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    spread: tuple[tuple[str, str], ...] = ()
    turned: tuple[tuple[str, str], ...] = ()
    along_free: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    inlined: tuple[str, ...] = ()
    appended: tuple[tuple[str, str], ...] = ()
    repeated: tuple[tuple[str, tuple[str, ...]], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    diagonals: tuple[tuple[str, str], ...] = ()
    brought: tuple[str, ...] = ()
    accumulated: tuple[tuple[str, str], ...] = ()
    splits: tuple[tuple[str, int], ...] = ()
    cores: tuple[str, ...] = ()

    def way(self, product: str, side: str) -> Way | None:
        """How an operand is brought; None where that is left open."""
        found: dict[tuple[str, str], Way] = {(p, s): way for p, s, way in self.ways}
        return found.get((product, side))

    def memory(self, product: str, side: str) -> Memory:
        """Where an operand stays."""
        if (product, side) in self.streamed:
            return "HBM"
        return "resident" if (product, side) in self.resident else "SBUF"

    def place_of(self, name: str) -> tuple[int, Stage]:
        """The number of the stage that a definition is a member of, and that."""
        return next((n, stage) for n, stage in enumerate(self.stages) if name in stage.members)

    def in_place_of(self, at: int, *stages: Stage) -> Nest:
        """With others in the place of a stage."""
        return self.but(stages=(*self.stages[:at], *stages, *self.stages[at + 1 :]))

    def each_stage(self, change: Callable[[Stage], Stage]) -> Nest:
        """With each stage changed."""
        return self.but(stages=tuple(map(change, self.stages)))


PLAIN = Nest(stages=())


def ready(algorithm: ir.Algorithm, nest: Nest) -> ir.Algorithm:
    """The definitions that the stages of a nest name, of the Algorithm that it is a nest of."""
    return _ready(
        algorithm,
        nest.diagonals,
        nest.appended,
        nest.repeated,
        nest.shared,
        nest.brought,
        nest.splits,
        nest.inlined,
        nest.along_free,
    )


@functools.lru_cache(maxsize=256)
def _ready(
    algorithm: ir.Algorithm, diagonals: tuple[tuple[str, str], ...], columns: tuple[tuple[str, str], ...],
    again: tuple[tuple[str, tuple[str, ...]], ...], alike: tuple[tuple[str, str], ...], inputs: tuple[str, ...], splits: tuple[tuple[str, int], ...],
    names: tuple[str, ...], sums: tuple[str, ...],
) -> ir.Algorithm:  # fmt: skip
    try:
        for name, axis in diagonals:
            algorithm = with_diagonals(algorithm, name, axis)
        made = prepared(algorithm)
        for name, product in columns:
            made = appended(made, name, product)
        for name, readers in again:
            made = repeated(made, name, readers)
        for name, reader in alike:
            made = shared(made, name, reader)
        for name in inputs:
            made = brought(made, name)
    except NotTogether as refusal:
        raise NotNested(str(refusal)) from refusal
    found = (along_free(d) if d.out in sums else d for d in made.definitions)
    return inlined(cut(replace(made, definitions=tuple(found)), splits), names)


def in_terms(algorithm: ir.Algorithm, nest: Nest, spec: Hardware) -> tuple[ir.Algorithm, Nest]:
    """An Algorithm with its short sums as their terms, but for those that their stage takes in rounds; and the
    nest of that. Terms that GpSimd adds while Vector adds others are members of their own."""
    definitions = {d.out: d for d in algorithm.definitions}
    stages, terms = list[Stage](), dict[str, list[ir.Map]]()
    by_ones, engines = {name for name, _, _ in nest.ways}, dict(nest.engines)
    for stage in nest.stages:
        widths = {part.axis: part.size for part in stage.loops}
        members: list[str] = []
        for name in stage.members:
            definition, laid = definitions[name], dict(stage.laid).get(name)
            lying = laid or [part.axis for part in stage.partition]
            weighted = is_weighted(definition, lying, widths)
            if isinstance(definition, ir.Reduce) and (
                weighted
                or is_short(definition)
                or is_faster_in_terms(definition, lying, widths, stage.columns, spec)
            ):
                rounds = {*lying, *widths} & {axis.name for axis in definition.reduced}
                if not rounds and product_in(definition) is None and name not in by_ones:
                    shared = weighted and not laid and name not in engines
                    terms[name] = in_own_terms(definition, spec, shared)
                    members += [term.out for term in terms[name][:-1]]
            members.append(name)
        stages.append(stage.but(members=tuple(members)))
    made = tuple(m for d in algorithm.definitions for m in terms.get(d.out, [d]))
    return replace(algorithm, definitions=made), nest.but(stages=tuple(stages))


class NotNested(Exception):
    """A definition, or a nest of one, that has no kernel: the text names the definition and says why."""


class ReadAfterChange(Exception):
    """An input of which a part is read after it was changed in place, in one round."""


class TurnedInParts(NotNested):
    """An operand that differs along its own axes, in parts, is turned: it is to be read beyond those instead."""


@dataclass(frozen=True, slots=True)
class FreeSum(ir.Reduce):
    """A sum over free axes, of what is brought so that it lies there."""


def along_free(definition: ir.Definition) -> FreeSum:
    """A product with ones as a sum over free axes. Raises NotNested for anything else."""
    found = product_in(definition)
    if not isinstance(definition, ir.Reduce) or found is None or found.left != ONE:
        raise NotNested(f"{definition.out} is no sum that is taken as a product with ones")
    return FreeSum(*(getattr(definition, field.name) for field in fields(definition)))


@functools.lru_cache(maxsize=4096)
def product_in(definition: ir.Definition) -> Contraction | None:
    """The matrix product that a definition is. A sum whose results lie beside each other in memory
    where the summed elements do not is one with ones: the Tensor engine sums over partitions."""
    if (
        not isinstance(definition, ir.Reduce)
        or isinstance(definition, FreeSum)
        or definition.combiner != "add"
        or is_short(definition)
    ):
        return None
    found = contraction(definition)
    if found is not None or not definition.axes:
        return found
    if not _beside(definition):
        return None
    vector, rest = _vector(definition)
    own = ir.axes_of(vector)
    batch = tuple(axis for axis in definition.axes if axis in own)
    columns = tuple(axis for axis in definition.axes if axis not in own)
    return Contraction(vector, rest, batch, (), columns, definition.reduced, ONE)


def _vector(definition: ir.Reduce) -> tuple[ir.Expression, ir.Expression]:
    """The factors of a product with a batch of vectors: the one with the summed axes and fewer others, and
    the rest; ones and all of it where there is none."""
    factors = factors_of(definition.expression)
    summed = set(definition.reduced)
    for factor in factors:
        rest = product_of([other for other in factors if other is not factor])
        own, others = ir.axes_of(factor), ir.axes_of(rest)
        if own - summed and summed <= own & others and own < others:
            return factor, rest
    return ONE, definition.expression


def _beside(definition: ir.Reduce) -> bool:
    """Whether what is summed lies apart in memory, and what it gives beside each other."""
    reduced = set(definition.reduced)
    reads = [
        p
        for p in ir.walk(definition.expression)
        if isinstance(p, ir.Read) and ir.axes_of(p) & reduced
    ]
    most = max((len(ir.axes_of(read)) for read in reads), default=0)
    lasts = [read.indices[-1].axes for read in reads if len(ir.axes_of(read)) == most]
    along = any(definition.axes[-1] in last for last in lasts)
    return along and not any(last & reduced for last in lasts)


def default_nest(algorithm: ir.Algorithm, target: str = "trn1", chosen: Nest = PLAIN) -> Nest:
    """Each definition in a stage of its own, over its own axes: slow, but always there. What is computed
    together is `chosen`."""
    spec = TARGETS[target]
    stages = tuple(
        Stage(members=(d.out,), partition=partition_of(d, spec))
        for d in ready(algorithm, chosen).definitions
    )
    return chosen.but(stages=stages)


def partition_of(definition: ir.Definition, spec: Hardware) -> tuple[Part, ...]:
    """The axes of a result that fill the partitions: of a product its rows; otherwise all but the
    one along which the result or, for a sum, what is summed lies in memory."""
    product = product_in(definition)
    if product is not None:
        return filled(product.rows, spec.partitions)
    axes = definition.axes
    inner = set(ir.own_axes(definition)) - set(axes)
    if not inner and len(axes) > 1 and math.prod(a.extent for a in axes[:-1]) > 1:
        axes = axes[:-1]
    if hasattr(definition, "along"):
        axes = tuple(axis for axis in definition.axes if axis != definition.along)
    return filled(axes, spec.partitions)


MORE_ROUNDS = 1.1
"""Times as many parts, that equal ones are worth: no part is left over, which is written on its own."""


def evenly(extent: int, most: int) -> int:
    """As many elements as divide an axis into equal parts, where that is more than half of `most`."""
    size = next(d for d in range(min(most, extent), 0, -1) if extent % d == 0)
    return size if size * 2 > most else most


def filled(axes: tuple[Axis, ...], most: int) -> tuple[Part, ...]:
    """The last axes of some whose product fits on `most` partitions, and a part of the one before."""
    parts: list[Part] = []
    for axis in reversed(axes):
        size = min(axis.extent, most)
        even = evenly(axis.extent, size) if size else 1
        if size and -(-axis.extent // even) <= MORE_ROUNDS * -(-axis.extent // size):
            size = even
        if size < 1 or (parts and size == 1 < axis.extent):
            break
        parts.append(Part(axis=axis.name, size=size))
        most //= size
        if size < axis.extent:
            break
    return tuple(reversed(parts))
