"""Nests to begin a search with: as much as possible in one stage, for each choice of what lies on partitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import Axis
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.computed_together import (
    NotTogether,
    accumulating,
    again_of,
    appended,
    appending,
    brought,
    repeating,
    shared,
    sharing,
)
from accelopt.kernels.nki.nests.diagonals import diagonals, with_diagonals
from accelopt.kernels.nki.nests.hbm_reads import LITTLE
from accelopt.kernels.nki.nests.matmul_operands import STARTS
from accelopt.kernels.nki.nests.nest import (
    PLAIN,
    Nest,
    NotNested,
    Part,
    Stage,
    Way,
    along_free,
    default_nest,
    evenly,
    filled,
    product_in,
    ready,
)
from accelopt.kernels.nki.nests.preparing import combined_by_readers, prepared
from accelopt.kernels.nki.nests.pricing import Prices
from accelopt.kernels.nki.nests.primitives import (
    Cores,
    Tile,
    changed,
    contractions,
    read_later,
    side_by_side,
    split,
)
from accelopt.kernels.nki.nests.read_ranges import made_of
from accelopt.kernels.nki.nests.skipping import masks_of
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.sim.dtypes import parse

ROUND = 512
"""Elements of a round along what a product sums over."""
MOST_ROUNDS = 64
"""Elements that are combined one by one."""
SHORT = 2048
"""Elements of rows that lie beside each other on a partition."""
MOST_TILES = 4
ROUNDS_OF_LOADS = (4, 8, 16)
"""In which a stage's axis is taken, so that loads come in as many parts."""


def starting_nests(
    algorithm: ir.Algorithm, target: str = "trn1", prices: Prices | None = None
) -> Iterator[Nest]:
    """Different nests from which all others are reached by single primitives."""
    seen: set[Nest] = set()
    has_kernel = (prices or Prices(algorithm, target)).has_kernel
    for chosen in choices(algorithm, target):
        here = {f"{array}_here" for array in chosen.brought}
        nests = _starting(algorithm, chosen, target, seen, has_kernel)
        yield from (nest for nest in nests if not here or here & {*nest.held})


def choices(algorithm: ir.Algorithm, target: str) -> Iterator[Nest]:
    """What may be computed together, without stages: nothing, all sums that can be columns of products, products
    again for those that combine them along other axes, what others wait with for sums of all, products with diagonals for sums of scaled operands, numbers
    times elements by the sums that take them, sums over free axes in place of products with ones."""
    yield PLAIN
    plain, pairs = prepared(algorithm), list[tuple[str, str]]()
    made = plain
    while (pair := next(appending(made), None)) is not None:
        made = appended(made, *pair)
        pairs.append(pair)
    if pairs:
        yield PLAIN.but(appended=tuple(pairs))
    inputs = list[str]()
    for array in plain.inputs:
        readers = [d for d in plain.definitions if array.name in ir.arrays_read(d)]
        with suppress(NotTogether):
            brought(plain, array.name)
            inputs += [array.name] * (len(readers) > 1)
    if inputs:
        yield PLAIN.but(brought=tuple(inputs))
    waiting, made = list[tuple[str, str]](), plain
    while pair := next(sharing(made), None):
        made = shared(made, *pair)
        waiting.append(pair)
    if waiting:
        twice = (pair for pair in itertools.permutations(made.definitions, 2)
                 if pair[0].out in made_of(made, pair[1].out))  # fmt: skip
        kept = (a for one, other in twice for a in inputs if a in ir.arrays_read(one) & ir.arrays_read(other))  # fmt: skip
        yield PLAIN.but(shared=tuple(waiting), brought=tuple(dict.fromkeys(kept)))
    for steps in repeating(plain):
        yield PLAIN.but(repeated=steps)
    sums = tuple(pair for pair in diagonals(algorithm) if _is_faster(algorithm, pair, target))
    if sums:
        yield PLAIN.but(diagonals=sums)
    for inner in (_scaled_elements(plain), _windows_of_windows(plain)):
        if names := tuple(inner):
            yield PLAIN.but(inlined=names)
    if along := tuple(_sums_of_shared_elements(plain)):
        yield PLAIN.but(along_free=along)


def _sums_of_shared_elements(algorithm: ir.Algorithm) -> Iterator[str]:
    """Products with ones of elements that another reduction takes too: an array that comes transposed once is read
    by both."""
    combined = [d for d in algorithm.definitions if isinstance(d, ir.Reduce)]
    for definition in combined:
        with suppress(NotNested):
            along_free(definition)
            others = (other for other in combined if other is not definition)
            if any(_are_better_together(algorithm, definition, other) for other in others):
                yield definition.out


def _are_better_together(algorithm: ir.Algorithm, product: ir.Reduce, other: ir.Reduce) -> bool:
    """Whether two take the same elements over the same axes, and the other can be no product, or one takes the result
    of the other."""
    if (other.reduced, other.axes) != (product.reduced, product.axes):
        return False
    taken = ({r for r in ir.reads_in(d) if {*d.reduced} <= ir.axes_of(r)} for d in (product, other))
    pairs = (product.out, other.out), (other.out, product.out)
    depends = any(first in made_of(algorithm, second) for first, second in pairs)
    return bool(set.intersection(*taken)) and (depends or product_in(other) is None)


def _scaled_elements(algorithm: ir.Algorithm) -> Iterator[str]:
    """Definitions that are numbers times an element, which an instruction that adds takes as they are."""
    results = {array.name for array in algorithm.outputs}
    for definition in algorithm.definitions:
        match definition:
            case ir.Map(
                expression=ir.Apply(function="multiply", arguments=(ir.Read(), ir.Constant()))
            ):
                if definition.out not in results:
                    yield definition.out


def _windows_of_windows(algorithm: ir.Algorithm) -> Iterator[str]:
    """What is combined over a part of a window, and over the rest by all that read it: where elements that are far
    apart come slowly, or windows share few, it takes longer than all at once."""
    for definition in algorithm.definitions:
        readers = [d for d in algorithm.definitions if definition.out in ir.arrays_read(d)]
        moving = (
            set(reader.axes) & index.axes and set(reader.reduced) & index.axes
            for reader in readers if isinstance(reader, ir.Reduce)
            for read in ir.reads_in(reader)
            for index in read.indices
        )  # fmt: skip
        if readers and any(moving) and combined_by_readers(definition.out, algorithm):
            yield definition.out


def _is_faster(algorithm: ir.Algorithm, pair: tuple[str, str], target: str) -> bool:
    """Whether the Tensor engine multiplies by the diagonals of a sum faster than Vector adds up what it is the sum of."""
    spec, made = TARGETS[target], with_diagonals(algorithm, *pair).definitions
    products = [d for d in made if isinstance(d, ir.Reduce) and d not in algorithm.definitions]
    found = Reading(replace(algorithm, definitions=tuple(products))).meanings.values()
    formats = [meaning.product.dtype for meaning in found if meaning.product]
    vector = ROUND * spec.two_input_cycles_per_element / spec.vector_ghz
    return all(spec.matmul_ns(ROUND, spec.partitions, dtype) < vector for dtype in formats)


def _starting(
    algorithm: ir.Algorithm, chosen: Nest, target: str, seen: set[Nest],
    has_kernel: Callable[[Nest], bool],
) -> Iterator[Nest]:  # fmt: skip
    """Those of one choice that are not `seen`."""
    plain = ready(algorithm, chosen)
    first = default_nest(algorithm, target, chosen)
    seen.add(first)
    yield first
    others = again_of(plain, chosen.repeated)
    for lying in _lying(plain):
        stages: list[Stage] = []
        last: Sequence[str] = ()

        def of(*stages: Stage) -> Nest:
            return chosen.but(stages=stages)

        for definition, alone in zip(plain.definitions, first.stages, strict=True):
            rest = first.stages[len([m for s in stages for m in s.members]) + 1 :]
            own: Sequence[str] = others.get(definition.out, lying)
            if (
                others
                and definition.out not in others
                and not {*own} <= {a.name for a in definition.axes}
            ):
                own = last
            for joined in _joined(plain, stages, definition, own, target) if own == last else ():
                if has_kernel(of(*stages[:-1], joined, *rest)):
                    stages[-1] = joined
                    break
            else:
                last = own
                stages.append(_stage(plain, (definition.out,), own, target) or alone)
                if not has_kernel(of(*stages, *rest)):
                    stages[-1] = alone
        nest = of(*stages)
        blocks = [*_blocked(algorithm, nest, target)]
        for made in (
            nest,
            _on_chip(algorithm, nest, has_kernel),
            _alike_on_all(algorithm, nest, has_kernel),
            *_filled_up(algorithm, nest, target),
            *_beside(algorithm, nest, target),
            *blocks,
            *(made for one in (nest, *blocks) for made in _in_rounds(algorithm, one)),
            *_joined_sums(algorithm, nest, target),
            *_side_by_side(algorithm, nest, target),
            *_by_terms(algorithm, nest),
            *_summed_as_laid(algorithm, chosen, target),
            *(laid := [*_laid_as_read(algorithm, chosen, lying, target)]),
            *(made for one in laid for made in _laid_side_by_side(algorithm, one, target)),
            *_on_all_partitions(algorithm, chosen, lying, target),
        ):
            if made not in seen and (made == nest or has_kernel(made)):
                made = _added(algorithm, made, has_kernel)
                for one in dict.fromkeys((made, _skipping(algorithm, made, has_kernel))):
                    seen.add(one)
                    yield one


def on_two_cores(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """A nest with halves of an axis on two cores: each of the result's and, of earlier stages without it, the
    outermost of theirs that has halves."""
    for chosen in ready(algorithm, nest).definition(nest.stages[-1].members[-1]).axes:
        made = nest
        for stage in reversed(nest.stages):
            axes = ready(algorithm, made).definition(stage.members[-1]).axes
            if any(axis.name in made.cores for axis in axes):
                continue
            for axis in (chosen,) if made == nest else axes:
                try:
                    primitive = Cores(definition=stage.members[-1], axis=axis.name)
                    made = changed(primitive, algorithm, made, target)
                    break
                except NotNested:
                    continue
        if made != nest:
            yield made


def _on_chip(algorithm: ir.Algorithm, nest: Nest, has_kernel: Callable[[Nest], bool]) -> Nest:
    """With all that can stay in SBUF for later stages there."""
    definitions = ready(algorithm, nest).definitions

    def holding(nest: Nest, names: Sequence[str]) -> Nest:
        made = nest.but(held=(*nest.held, *names))
        if not names or has_kernel(made):
            return made
        half = len(names) // 2
        return holding(holding(nest, names[:half]), names[half:]) if half else nest

    stages = range(len(nest.stages))
    read = [name for at in stages for name in read_later(definitions, nest, at)]
    return holding(nest, [name for name in read if name not in nest.held])


def _alike_on_all(algorithm: ir.Algorithm, nest: Nest, has_kernel: Callable[[Nest], bool]) -> Nest:
    """With what has none of the axes on partitions of the stages that read it computed by all partitions, alike;
    and all that can stay in SBUF there."""
    made, definitions = nest, {d.out: d for d in ready(algorithm, nest).definitions}
    for at, stage in enumerate(nest.stages):
        members = [definitions[name] for name in stage.members]
        readers = [
            later
            for later in made.stages[at + 1 :]
            if any({*ir.arrays_read(definitions[m])} & {*stage.members} for m in later.members)
        ]
        parts = {part.axis: part for later in readers for part in later.partition}
        summed = {axis.name for d in members for axis in {*ir.own_axes(d)} - {*d.axes}}
        if not parts or parts.keys() & {axis.name for d in members for axis in d.axes}:
            continue
        lying = tuple(part for axis, part in parts.items() if axis in summed)
        own = made.in_place_of(at, stage.but(partition=lying, loops=()))
        trial = own.but(held=(*made.held, *stage.members))
        made = trial if has_kernel(trial) else made
    return made if made == nest else _on_chip(algorithm, made, has_kernel)


def _added(algorithm: ir.Algorithm, nest: Nest, has_kernel: Callable[[Nest], bool]) -> Nest:
    """With products of one stage whose sum alone is taken computed as one."""
    stages = [{*stage.members} for stage in nest.stages]
    pairs = accumulating(ready(algorithm, nest))
    chosen = tuple(pair for pair in pairs if any({*pair} <= stage for stage in stages))
    made = nest.but(accumulated=chosen)
    return made if chosen and has_kernel(made) else nest


def _skipping(algorithm: ir.Algorithm, nest: Nest, has_kernel: Callable[[Nest], bool]) -> Nest:
    """Without the blocks that masks empty, where they count for nothing."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    for at, stage in enumerate(nest.stages):
        members = [definitions[name] for name in stage.members]
        axes = dict.fromkeys(axis for d in members for axis in ir.own_axes(d))
        for axis in reversed(axes):
            if masks_of(members, axis):
                made = nest.in_place_of(at, stage.but(skipped=(axis.name,)))
                if has_kernel(made):
                    nest = made
                    break
    return nest


def _joined(
    algorithm: ir.Algorithm, stages: Sequence[Stage], definition: ir.Definition, lying: Sequence[str],
    target: str,
) -> Iterator[Stage]:  # fmt: skip
    """The last stage with one more member: as it is; with what the member combines of it in rounds; in the
    rounds in which members before are combined."""
    if not stages:
        return
    members = (*stages[-1].members, definition.out)
    plain = _stage(algorithm, members, lying, target)
    if plain is None:
        return
    yield plain
    if isinstance(definition, ir.Reduce) and product_in(definition) is None:
        rounds = tuple(
            Part(axis=axis.name, size=1)
            for axis in definition.reduced
            if axis.name not in plain.taken and axis.extent <= MOST_ROUNDS
        )
        if rounds:
            yield plain.but(loops=(*plain.loops, *rounds))
    own = {axis.name for axis in ir.own_axes(definition)}
    looped = {part.axis for part in stages[-1].loops}
    if (
        stages[-1].partition == plain.partition
        and looped <= own
        and looped - {part.axis for part in plain.loops}
    ):
        yield stages[-1].but(members=members)


def _filled_up(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """Where half of the partitions or more are empty, a part of another axis beside what lies there."""
    made, most = nest, TARGETS[target].partitions
    for at in range(len(nest.stages)):
        stage = made.stages[at]
        rows = math.prod(part.size for part in stage.partition)
        definitions = [ready(algorithm, made).definition(name) for name in stage.members]
        free = [axis for axis in shared_axes(definitions) if axis.name not in stage.taken]
        sizes = [
            (axis, size)
            for axis in free
            for size in range(2, most // rows + 1)
            if axis.extent % size == 0 and axis.extent > size
        ]
        if rows * 2 > most or not sizes:
            continue
        axis, size = max(sizes, key=lambda pair: (pair[1], pair[0].extent))
        made = split(made, definitions[0], axis.name, axis.extent // size)
        part, stage = Part(axis=f"{axis.name}_1", size=size), made.stages[at]
        made = made.in_place_of(at, stage.but(partition=(*stage.partition, part)))
    if made != nest:
        yield made


def _beside(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """With several short rows beside each other on each partition: in one tile of all, or in a few; all
    rows of a partition where there is the same number for each, in rounds of as many as fit a tile."""
    most = TARGETS[target].partitions
    for stage in nest.stages:
        definitions = [ready(algorithm, nest).definition(name) for name in stage.members]
        part = stage.partition[-1] if len(stage.partition) == 1 else None
        found = {a.name: a.extent for d in definitions for a in ir.own_axes(d)}
        extent = found.get(part.axis, 1) if part else 1
        if part is None or extent <= part.size or any(map(product_in, definitions)):
            continue
        held = {part.axis, *(loop.axis for loop in stage.loops)}
        axes = [[a for a in ir.own_axes(d) if a.name not in held] for d in definitions]
        width = max(math.prod(a.extent for a in own) for own in axes)
        fits = [n for n in range(2, SHORT // width + 1) if extent % n == 0]
        chosen = [
            (sizes[-1], 0)
            for tiles in (1, MOST_TILES)
            if (sizes := [n for n in fits if extent // n >= most * tiles])
        ]
        rows = extent // part.size
        if extent % part.size == 0 and rows > 1:
            divisors = [n for n in range(1, rows + 1) if rows % n == 0]
            chosen += [
                (rows, max(n for n in divisors if n == 1 or n * width <= limit))
                for limit in (SHORT, 4 * SHORT)
            ]
        for size, tile in dict.fromkeys(chosen):
            cut_ = split(nest, definitions[0], part.axis, size)
            lying = filled((Axis(f"{part.axis}_1", extent // size),), most)
            looped = (Part(axis=f"{part.axis}_0", size=tile),) if 1 < tile < size else ()
            stages = tuple(
                new.but(partition=lying, loops=(*new.loops, *looped))
                if old.partition == (part,)
                else new
                for old, new in zip(nest.stages, cut_.stages, strict=True)
            )
            yield cut_.but(stages=stages)


def _by_terms(algorithm: ir.Algorithm, nest: Nest) -> Iterator[Nest]:
    """With a loop along what a sum of few terms runs over: what its stage makes for a term is added at once."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    for at, stage in enumerate(nest.stages):
        made: set[Axis] = set()
        for name in stage.members:
            definition = definitions[name]
            summed = {*definition.reduced} if isinstance(definition, ir.Reduce) else set()
            few = math.prod(axis.extent for axis in summed) <= MOST_ROUNDS
            if summed & made and few and not product_in(definition):
                names = [axis.name for axis in sorted(summed) if axis.name not in stage.taken]
                rounds = [Part(axis=name, size=1) for name in names]
                yield nest.in_place_of(at, stage.but(loops=(*stage.loops, *rounds)))
                break
            made.update(definition.axes)


def _joined_sums(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """With as many elements of several summed axes on partitions as there is room for."""
    for at in range(2):
        entries = tuple(
            (definition.out, joined[min(at, len(joined) - 1)])
            for definition in ready(algorithm, nest).definitions
            if (joined := contractions(definition, TARGETS[target].partitions))
        )
        if entries:
            yield nest.but(contracted=entries)


def _side_by_side(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """With as many products of a batch on partitions, in what they sum over, as there is room for."""
    most, found = TARGETS[target].partitions, dict[str, tuple[Part, ...]]()
    outer = {part.axis for stage in nest.stages for part in stage.partition[:-1]}

    def shared(definition: ir.Definition) -> list[Axis]:
        product = product_in(definition)
        if product is None or not product.rows:
            return []
        others = (*product.rows, *product.columns)
        return [*product.batch[::-1], *(axis for axis in others if axis.name in outer)]

    for definition in ready(algorithm, nest).definitions:
        rows = math.prod(a.extent for a in ir.own_axes(definition)[len(definition.axes) :])
        axis = next(iter(shared(definition) if rows in STARTS else ()), None)
        if axis and axis.extent > most // rows:
            with suppress(NotNested):
                nest = split(nest, definition, axis.name, most // rows)
    outer |= {f"{name}_0" for name in outer}
    for definition in ready(algorithm, nest).definitions:
        parts = {p[0].axis: p for p in side_by_side(definition, most)}
        if names := [axis.name for axis in shared(definition) if axis.name in parts]:
            found[definition.out] = parts[names[0]]
    if found:
        yield nest.but(contracted=tuple(found.items()))


def _laid_side_by_side(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """With parts of another axis of the result on partitions, too, where all is laid along what one product sums over:
    each of their elements has a product of its own, and what is laid fills the partitions."""
    (stage,), most = nest.stages, TARGETS[target].partitions
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    products = {name: p for name in stage.members if (p := product_in(definitions[name]))}
    summed = {axis for product in products.values() for axis in product.contracted}
    rows = math.prod(axis.extent for axis in summed)
    names = tuple(axis.name for axis in summed)
    if (
        len(products) != 1
        or len(names) != 1
        or rows not in STARTS
        or {*dict(stage.laid).values()} != {names}
    ):
        return
    (product,) = products
    held = {part.axis for part in stage.partition}
    laid = [set(definitions[name].axes) for name, _ in stage.laid]
    for axis in definitions[product].axes:
        if axis.name in held or axis.extent < most // rows or not all(axis in own for own in laid):
            continue
        with suppress(NotNested):
            first, loops = axis.name, tuple[Part, ...]()
            if axis.extent > most // rows:
                nest = split(nest, definitions[product], axis.name, most // rows)
                first, loops = f"{axis.name}_0", (Part(axis=f"{axis.name}_1", size=1),)
            lying = (Part(axis=first, size=most // rows), Part(axis=names[0], size=rows))
            own = tuple((name, (first, *names)) for name, _ in stage.laid)
            made = nest.in_place_of(0, stage.but(loops=loops, laid=own))
            yield made.but(contracted=((product, lying),))
        return


def _blocked(algorithm: ir.Algorithm, nest: Nest, target: str) -> Iterator[Nest]:
    """With several tiles of rows in each round, which share what a product brings for them."""
    most = TARGETS[target].partitions
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    products = {name for name, d in definitions.items() if product_in(d)}
    for stage in nest.stages:
        if not products & set(stage.members) or not stage.partition:
            continue
        first = definitions[stage.members[0]]
        part = stage.partition[-1]
        extent = next((a.extent for a in ir.own_axes(first) if a.name == part.axis), 0)
        if part.size != most or extent % (2 * most) or extent < 2 * most:
            continue
        made = split(nest, first, part.axis, most)
        for tiles in (2, 4):
            if extent // most % tiles == 0 and extent // most > tiles:
                block = Part(axis=f"{part.axis}_1", size=tiles)
                rows = f"{part.axis}_0"
                yield made.each_stage(
                    lambda s, block=block, rows=rows: (  # type: ignore[misc]
                        s.but(loops=(*s.loops, block)) if rows in s.lying else s
                    )
                )
        return


def _in_rounds(algorithm: ir.Algorithm, nest: Nest) -> Iterator[Nest]:
    """With a loop along what a product sums over, where a member before it makes its operand: each part
    is transposed while the next is computed, by the Tensor engine or in squares by Vector."""
    definitions = {d.out: d for d in ready(algorithm, nest).definitions}
    for at, stage in enumerate(nest.stages):
        members = [definitions[name] for name in stage.members]
        ways: list[tuple[str, str, Way]] = []
        rounds: list[Part] = []
        for definition in members:
            found = product_in(definition)
            if found is None or not found.rows or not found.columns:
                continue
            for side, own in (("left", found.rows), ("right", found.columns)):
                if stage.lying & {axis.name for axis in own}:
                    ways.append((definition.out, side, "squares"))
            read = ir.arrays_read(definition) & set(stage.members)
            if read and len(found.contracted) == 1 and found.contracted[0].extent > ROUND:
                rounds.append(Part(axis=found.contracted[0].name, size=ROUND))
        if len(rounds) == 1:
            made = nest.in_place_of(at, stage.but(loops=(*stage.loops, *rounds), columns=ROUND))
            for chosen in ((), tuple(ways)):
                yield made.but(ways=(*nest.ways, *chosen))


def _summed_as_laid(algorithm: ir.Algorithm, chosen: Nest, target: str) -> Iterator[Nest]:
    """With products that later products sum over laid along the axis that is summed, so that they are
    operands as they lie: all in one stage, blocks of a few tiles of rows at a time."""
    most = TARGETS[target].partitions
    plain = ready(algorithm, chosen)
    for last in plain.definitions:
        found = product_in(last)
        if found is None or len(found.contracted) != 1 or not found.rows or not found.columns:
            continue
        (along,) = found.contracted
        before = made_of(plain, last.out)
        first = next(
            (d for d in plain.definitions if d.out in before and product_in(d)
             and along.name in {a.name for a in d.axes}), None,
        )  # fmt: skip
        if first is None or along.extent % most:
            continue
        yield from _laid(algorithm, chosen, (first, last), along, most)


def _laid_as_read(
    algorithm: ir.Algorithm, chosen: Nest, lying: Sequence[str], target: str
) -> Iterator[Nest]:
    """All in one stage, with each definition laid as those that read it take it: along what a product sums
    over, else as its reader lies; in loops along what all have and no recurrence runs along. Of what is
    summed over, as much as partitions hold lies there, and the rest beside it; of the result, in rounds or so."""
    most = TARGETS[target].partitions
    whole = default_nest(algorithm, target, chosen)
    beside, cut_ = _cut_to_fit(algorithm, whole, lying, most)
    if beside != whole:
        for made in _laid_so(algorithm, beside, cut_, most):
            yield made
            if runs := with_sums_in_runs(algorithm, made, target):
                yield runs
    yield from _laid_so(algorithm, whole, lying, most)


def _cut_to_fit(
    algorithm: ir.Algorithm, whole: Nest, lying: Sequence[str], most: int
) -> tuple[Nest, list[str]]:
    """A nest with the last of the result's axes that lie on partitions and are longer cut, and what lies there then."""
    last = ready(algorithm, whole).definitions[-1]
    fits = {a.name for a in last.axes if a.extent <= most or a.extent % most}
    long = [a.name for a in last.axes if a.name in {*lying} - fits]
    if long:
        whole = split(whole, last, long[-1], most)
    return whole, [f"{name}_0" if name in long[-1:] else name for name in lying]


def _on_all_partitions(
    algorithm: ir.Algorithm, chosen: Nest, lying: Sequence[str], target: str
) -> Iterator[Nest]:
    """All in one stage with axes of the result on partitions, whole: what is combined over them comes to all
    partitions, and what does not depend on them is computed on each."""
    most = TARGETS[target].partitions
    whole, lying = _cut_to_fit(algorithm, default_nest(algorithm, target, chosen), lying, most)
    definitions = ready(algorithm, whole).definitions
    own = {a.name: a for a in definitions[-1].axes}
    if not lying or not {*lying} <= own.keys():
        return
    partition = tuple(Part(axis=name, size=own[name].extent) for name in lying)
    summed = {
        d.out
        for d in definitions
        if isinstance(d, ir.Reduce) and {own[n] for n in lying} <= {*d.reduced}
    }
    if summed and math.prod(part.size for part in partition) <= most:
        stage = Stage(
            members=tuple(d.out for d in definitions), partition=partition,
            laid=tuple((d.out, tuple(lying)) for d in definitions if d.out in summed),
        )  # fmt: skip
        yield whole.but(stages=(stage,))


def _laid_so(
    algorithm: ir.Algorithm, whole: Nest, lying: Sequence[str], most: int
) -> Iterator[Nest]:
    """The nests of `_laid_as_read`, of one with axes that are cut."""
    definitions = ready(algorithm, whole).definitions
    for definition in definitions:
        product = product_in(definition)
        made = {a for d in definitions if d.out in ir.arrays_read(definition) for a in d.axes}
        for axis in product.contracted if product else ():
            if (axis.name in lying or axis in made) and (
                size := evenly(axis.extent, most)
            ) < axis.extent:
                if axis.extent % size:
                    return
                whole = split(whole, definition, axis.name, size)
                lying = [f"{name}_0" if name == axis.name else name for name in lying]
    plain = ready(algorithm, whole)
    *_, last = plain.definitions
    own = {axis.name: axis for axis in last.axes}
    if len(plain.definitions) < 2 or not set(lying) <= own.keys():
        return
    partition = filled(tuple(own[name] for name in lying), most)
    found: dict[str, tuple[str, ...]] = {}
    for definition in reversed(plain.definitions):
        axes = {axis.name: axis.extent for axis in definition.axes}
        wanted: list[tuple[str, ...]] = []
        for reader in plain.definitions:
            if definition.out in ir.arrays_read(reader):
                product = product_in(reader)
                summed = [a for a in product.contracted if a.name in axes] if product else []
                if summed:
                    wanted.insert(0, (max(summed, key=lambda axis: axis.extent).name,))
                else:
                    wanted.append(found.get(reader.out, tuple(lying)))
        chosen = next((names for names in wanted if set(names) <= axes.keys()), tuple(lying))
        if not set(chosen) <= axes.keys():
            return
        if chosen != tuple(lying):
            if math.prod(axes[name] for name in chosen) > most:
                return
            found[definition.out] = chosen
    along = {d.along.name for d in plain.definitions if isinstance(d, ir.Scan)}
    taken = along.union(lying, *found.values())
    loops = tuple(
        Part(axis=a.name, size=1) for a in shared_axes(plain.definitions) if a.name not in taken
    )
    if found:
        stage = Stage(
            members=tuple(d.out for d in plain.definitions), partition=partition, loops=loops,
            laid=tuple(reversed(found.items())),
        )  # fmt: skip
        # A maximum over what lies on partitions is taken of as much as a bank of PSUM holds.
        across = any(
            isinstance(d, ir.Reduce) and d.combiner != "add"
            and {*found.get(d.out, lying)} & {axis.name for axis in d.reduced}
            for d in plain.definitions
        )  # fmt: skip
        for kept in dict.fromkeys((loops, loops[:1])):
            for columns in (stage.columns, ROUND)[: 1 + across]:
                yield whole.but(stages=(stage.but(loops=kept, columns=columns),))


def with_sums_in_runs(algorithm: ir.Algorithm, nest: Nest, target: str) -> Nest | None:
    """With axes that products sum over in several rounds cut so that what one partition takes of all rounds
    lies beside each other in memory; None where there are none."""
    most, splits = TARGETS[target].partitions, dict(nest.splits)
    contracted = dict(nest.contracted)
    for definition in ready(algorithm, nest).definitions:
        found = product_in(definition)
        axis = max(found.contracted, key=lambda a: a.extent) if found and found.rows else None
        if (
            axis
            and axis.extent > most
            and axis.extent % most == 0
            and definition.out not in contracted
        ):
            splits[axis.name] = axis.extent // most
            contracted[definition.out] = (Part(axis=f"{axis.name}_1", size=most),)
    if len(contracted) == len(nest.contracted):
        return None
    return nest.but(splits=tuple(splits.items()), contracted=tuple(contracted.items()))


def with_elements_kept(algorithm: ir.Algorithm, nest: Nest) -> Iterator[Nest]:
    """With what a sum takes of each element as a member of its stage, for one that computes the same when it has the sum:
    a filtered exponential, which is divided by the sum of its row, is computed once, however long rows are."""
    plain = ready(algorithm, nest)
    for at, stage in enumerate(nest.stages):
        members = [d for d in plain.definitions if d.out in stage.members]
        for one, other in itertools.permutations(members, 2):
            with suppress(NotTogether):
                made = shared(plain, one.out, other.out)
                own = made.definition(f"{one.out}_shared")
                if isinstance(one, ir.Reduce) and {*own.axes} == {*ir.own_axes(one)}:
                    names = (d.out for d in made.definitions if d.out in {*stage.members, own.out})
                    kept = nest.in_place_of(at, stage.but(members=tuple(names)))
                    yield kept.but(shared=(*nest.shared, (one.out, other.out)))


def with_operands_summed(algorithm: ir.Algorithm, nest: Nest) -> Nest:
    """With sums of what a product has as an operand, over the same, as products with ones, which take it as it lies."""
    definitions, ways = ready(algorithm, nest).definitions, dict.fromkeys(nest.ways)
    products = [found for d in definitions if (found := product_in(d))]
    for d in definitions:
        if isinstance(d, ir.Reduce) and d.combiner == "add" and product_in(d) is None:
            taking = [p for p in products if d.expression in (p.left, p.right)]
            if any({*p.contracted} == {*d.reduced} for p in taking):
                ways[d.out, "left", "direct"] = None
    return nest.but(ways=tuple(ways))


def with_loads_in_rounds(
    algorithm: ir.Algorithm, nest: Nest, target: str, most_bytes: float
) -> Iterator[Nest]:
    """With one more axis of a stage, which all its members have and no recurrence runs along, taken in rounds, where
    a round brings more than `most_bytes` of an array otherwise: work on the first begins before the last are there."""
    plain = ready(algorithm, nest)
    definitions, inputs = {d.out: d for d in plain.definitions}, {a.name: a for a in plain.inputs}
    for stage in nest.stages:
        members = [definitions[name] for name in stage.members]
        sizes = {part.axis: part.size for part in (*stage.partition, *stage.loops)}
        taken = {*sizes, *stage.skipped}.union(*(names for _, names in stage.laid))
        along = {d.along.name for d in members if isinstance(d, ir.Scan)}
        own = set.intersection(*({*ir.own_axes(d)} for d in members))
        reads = {
            r
            for d in members
            for r in ir.reads_in(d)
            if r.array not in {*stage.members, *nest.held}
        }
        brought = dict[Axis, int]()
        for read in reads:
            axes = ir.axes_of(read)
            each = parse(inputs[read.array].dtype).itemsize if read.array in inputs else 4
            size = each * math.prod(sizes.get(axis.name, axis.extent) for axis in axes)
            for axis in own & axes:
                if size > most_bytes and axis.name not in taken | along:
                    brought[axis] = max(size, brought.get(axis, 0))
        for axis, size in brought.items():
            for rounds in ROUNDS_OF_LOADS:
                if axis.extent % rounds == 0 and size >= rounds * LITTLE:
                    primitive = Tile(
                        definition=members[-1].out, axis=axis.name, size=axis.extent // rounds
                    )
                    with suppress(NotNested):
                        yield changed(primitive, algorithm, nest, target)


def _laid(
    algorithm: ir.Algorithm, chosen: Nest, products: tuple[ir.Definition, ir.Definition], along: Axis,
    most: int,
) -> Iterator[Nest]:  # fmt: skip
    """The nests of `_summed_as_laid` for two products."""
    plain, (first, last) = ready(algorithm, chosen), products
    found = product_in(last)
    assert found is not None
    side: Literal["left", "right"] = "left"
    for read in {p.array for p in ir.walk(found.right) if isinstance(p, ir.Read)}:
        if read in {d.out for d in plain.definitions} and first.out in {
            read,
            *made_of(plain, read),
        }:
            side = "right"
    rows, columns = (found.rows, found.columns) if side == "left" else (found.columns, found.rows)
    other: Literal["left", "right"] = "right" if side == "left" else "left"
    moving = next((a for a in reversed(rows) if a.extent % most == 0), None)
    if moving is None or len(columns) != 1 or columns[0].extent > most:
        return
    stage = Stage(members=tuple(d.out for d in plain.definitions))
    whole = chosen.but(stages=(stage,))
    cut = along.name, moving.name
    try:
        for name in cut:
            extent = next(a.extent for a in (along, moving) if a.name == name)
            if extent > most:
                whole = split(whole, last, name, most)
    except NotNested:
        return
    inner = [f"{name}_0" if (name, most) in whole.splits else name for name in cut]
    definitions = ready(algorithm, whole).definitions
    after = [d.out for d in definitions if last.out in made_of(plain, d.out)]
    laid = tuple(
        (d.out, (axis,))
        for d in definitions
        for axis in (inner[0], columns[0].name)
        if axis in {a.name for a in ir.own_axes(d)} and not (axis == inner[0] and d.out == last.out)
        if d.out not in after or inner[1] not in {a.name for a in d.axes}
    )
    if {*after, *(name for name, _ in laid)} != {d.out for d in definitions}:
        return
    shared = {a.name for a in shared_axes(definitions)} | {a.name for a in definitions[-1].axes}
    outer = [a for a in definitions[-1].axes if a.name in shared and a.name not in (
        inner[1], f"{moving.name}_1", columns[0].name)]  # fmt: skip
    loops = tuple(Part(axis=a.name, size=1) for a in outer)
    for tiles in (4, 2):
        block = (Part(axis=f"{moving.name}_1", size=tiles),) if len(whole.splits) > 1 else ()
        stage = Stage(
            members=tuple(d.out for d in definitions), loops=(*loops, *block), laid=laid,
            partition=(Part(axis=inner[1], size=min(moving.extent, most)),),
        )  # fmt: skip
        ways = ((last.out, side, "direct"), (last.out, other, "direct"))
        yield whole.but(stages=(stage,), ways=ways)


def _lying(algorithm: ir.Algorithm) -> list[tuple[str, ...]]:
    """Names of axes that could lie on partitions together: of each definition the leading axes, the
    trailing ones but for the last, each alone."""
    found: dict[tuple[str, ...], None] = {}
    products = [product for d in algorithm.definitions if (product := product_in(d))]
    if any(product.batch and not product.rows for product in products):
        found[()] = None  # one row for each of a batch of vectors
    for definition in algorithm.definitions:
        names = tuple(axis.name for axis in definition.axes)
        for count in range(1, len(names) + 1):
            found[names[:count]] = None
        for name in names:
            found[(name,)] = None
    return list(found)


def _stage(
    algorithm: ir.Algorithm, members: Sequence[str], lying: Sequence[str], target: str
) -> Stage | None:
    """A stage of these members with some axes on partitions; what else they share runs in loops, where
    a member sums or multiplies."""
    definitions = [algorithm.definition(name) for name in members]
    common = shared_axes(definitions)
    names = {axis.name for axis in common}
    chosen = tuple(axis for axis in common if axis.name in lying)
    if not set(lying) <= names:
        return None
    order = tuple(sorted(chosen, key=lambda axis: list(lying).index(axis.name)))
    products = [
        found for d in definitions if (found := product_in(d)) and (found.rows or found.batch)
    ]
    partition = _with_room(order, products, TARGETS[target].partitions)
    held = {part.axis for part in partition}
    turning = {axis for found in products for axis in (*found.batch, *_on_rows(found, held))}
    rest = [axis for axis in common if axis.name not in held and axis in turning]
    whole = all(set(rest) <= set(d.axes) for d in definitions)
    loops = tuple(Part(axis=axis.name, size=1) for axis in rest) if whole else ()
    if len(definitions) == 1:
        loops = ()
    return Stage(members=tuple(members), partition=partition, loops=loops)


def _with_room(
    order: tuple[Axis, ...], products: Sequence[Contraction], most: int
) -> tuple[Part, ...]:
    """What fills the partitions; where each of some axes has rows of a product of its own, each of their elements
    has room for as many rows that the next begin where engines reach them."""
    for product in products:
        rows = product.columns if order and order[-1] in product.columns else product.rows
        inner = tuple(axis for axis in order if axis in rows)
        outer = order[: len(order) - len(inner)]
        count = math.prod(axis.extent for axis in inner)
        if not outer or inner != order[len(outer) :] or count == 1:
            continue
        room = next((n for n in STARTS if count <= n), 0)
        if not room or (len(inner) > 1 and count != room):
            return filled(inner, most)
        sizes = [room // (count // axis.extent) for axis in inner]
        last = (Part(axis=a.name, size=n) for a, n in zip(inner, sizes, strict=True))
        return (*filled(outer, most // room), *last)
    return filled(order, most)


def _on_rows(product: Contraction, held: set[str]) -> tuple[Axis, ...]:
    """The axes that lie where some on partitions do: of the rows of a product, or of its columns."""
    beside = held & {axis.name for axis in product.columns}
    return product.columns if beside and not held & {a.name for a in product.rows} else product.rows


def shared_axes(definitions: Sequence[ir.Definition]) -> tuple[Axis, ...]:
    """The axes that all definitions have, those of results first; a plain sum over an axis has it too."""
    sets = []
    for definition in definitions:
        own = set(definition.axes)
        found = product_in(definition)
        if isinstance(definition, ir.Reduce) and found is not None and not found.rows:
            own |= set(definition.reduced)
        sets.append(own)
    common = set.intersection(*sets)
    return tuple(axis for axis in definitions[0].axes if axis in common)
