"""When a nest may write a result where the input lies that the kernel changes in place."""

from __future__ import annotations

from collections.abc import Collection

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.nests.changed_elements import places_read
from accelopt.kernels.nki.nests.nest import Nest, NotNested


def written_over(algorithm: ir.Algorithm, nest: Nest) -> dict[str, str]:
    """The results that a nest may write where an input of theirs lies, with that. What a nest reads of the
    input is read before, or in the same round of the same stage, or by the core that changes it."""
    stages = {name: n for n, stage in enumerate(nest.stages) for name in stage.members}
    parts = [part for d in algorithm.definitions for part in ir.parts_in(d)]
    chosen = [q for p in parts if isinstance(p, ir.Indirect) for q in ir.walk(p.element)]
    looked_up = {q.array for q in chosen if isinstance(q, ir.Read)}
    found: dict[str, str] = {}
    for array in algorithm.outputs:
        definition = algorithm.definition(array.name)
        if not array.updates or array.name in looked_up:
            continue
        place, shape = ir.place_of(array, definition), algorithm.updated(array).shape
        stage = nest.stages[stages[array.name]]
        rounds = {part.axis for part in (*stage.loops, *stage.partition)}
        for reader in () if array.steps else algorithm.definitions:
            read = places_read(reader, array.updates, shape)
            later = stages[reader.out] - stages[array.name]
            if reader is definition:
                fits = read <= {place}
            else:
                own = rounds if later == 0 else {*nest.cores}
                alone = later < 0 and not nest.cores
                fits = not read or (later <= 0 and (alone or _apart(read, place, own)))
            if not fits:
                break
        else:
            found[array.name] = array.updates
    return found


def check_scatters(algorithm: ir.Algorithm, nest: Nest) -> None:
    """Raises NotNested where a nest reads what a scatter changes later than that, or puts elements into rows in
    another order than that of the axes: of two in one row the last stays."""
    stages = {name: n for n, stage in enumerate(nest.stages) for name in stage.members}
    for array in algorithm.outputs:
        scatter = algorithm.definition(array.name)
        if not isinstance(scatter, ir.Map) or scatter.at is None:
            continue
        axes = {axis.name: axis.extent for axis in scatter.axes if axis in ir.axes_of(scatter.at)}
        stage = nest.stages[stages[array.name]]
        rounds = [part for part in (*stage.loops, *stage.partition) if part.axis in axes]
        lying = [part.axis for part in stage.partition if part.axis in axes]
        single = {part.axis for part in stage.loops if part.size == 1}
        order = [p.axis for p in rounds if p.axis not in lying or p.size < axes[p.axis]]
        # Of each round the rows of free axes one after the other, each a DMA in the order of partitions.
        order += [name for name in axes if name not in {*lying, *single}] + lying
        if order != sorted(order, key=[*axes].index) or axes.keys() & {*nest.cores}:
            raise NotNested(f"{array.name} puts elements into rows in another order")
        for reader in algorithm.definitions:
            later = stages[reader.out] >= stages[array.name] or bool(nest.cores)
            if reader is scatter:  # of one round all is read before anything is put
                later = order != lying
            elif reader.out == array.updates and later:
                raise NotNested(f"{reader.out} is not whole before {array.name} changes rows of it")
            if later and array.updates in ir.arrays_read(reader):
                said = f"reads {array.updates}, of which {array.name} changes rows"
                raise NotNested(f"{reader.out} {said}")


def _apart(read: Collection[Index | None], place: Index, along: Collection[str]) -> bool:
    """Whether no element that is read at some places of the axes `along` is the one of `place` at others."""
    rest, steps = list[Index](), set[tuple[tuple[int, int], ...]]()
    for index in (*read, place):
        if index is None or any(not isinstance(term, Axis) for term, _ in index.terms):
            return False
        own = [(t, step) for t, step in index.terms if isinstance(t, Axis) and t.name in along]
        steps.add(tuple(sorted((abs(step), t.extent) for t, step in own)))
        rest.append(index - sum((index_of(t) * step for t, step in own), Index()))
    width = max(r.bounds[1] for r in rest) - min(r.bounds[0] for r in rest) + 1
    (taken, *others) = steps
    for step, extent in taken:
        if step < width:
            return False
        width = step * extent
    return not others
