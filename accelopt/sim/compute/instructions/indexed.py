"""Instructions driven by indices: iota, selections by position, gathers, the eight largest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, TileAxis
from accelopt.sim.compute.instructions import arithmetic
from accelopt.sim.compute.instructions.reductions import and_registers, masked
from accelopt.sim.compute.tiles.addressing import Address
from accelopt.sim.compute.tiles.masked_tiles import Pattern
from accelopt.sim.compute.tiles.operands import Closure, LaneSite, ReadClosure
from accelopt.sim.errors import KernelIndexError
from accelopt.sim.isa.indexed import GATHERING_PARTITIONS
from accelopt.sim.mask import Mask


def iota(site: LaneSite) -> Closure:
    """result = an affine expression of the tile's axes, in 32-bit integers, then converted."""
    expression = site.attribute("expression")
    assert isinstance(expression, Affine)
    shape, held = site.result.shape, dtypes.stored(site.result.dtype)
    keys = range(-len(shape), 0)
    values: dict[LoopVariable | TileAxis, np.ndarray | int] = {
        axis: np.arange(shape[axis.position], dtype=np.int64).reshape(
            (-1,) + (1,) * (-axis.position - 1)
        )
        for axis in expression.axes
    }
    slots = {loop: site.lane.slots[loop] for loop in expression.loop_variables}

    def read() -> np.ndarray:
        values.update((loop, site.lane.registers[slot]) for loop, slot in slots.items())
        numbers = expression.evaluate_many(values)
        exact = numbers.astype(np.int32)
        if dtypes.is_integer(held):
            exact = exact.astype(held)
        whole = np.broadcast_to(exact, shape)
        return whole[site.window.slices(list(keys), shape)]

    return site.put(read)


def affine_select(site: LaneSite) -> Closure:
    """result = data where the predicate over the tile's axes holds, else a number."""
    predicate = site.attribute("predicate")
    assert isinstance(predicate, Mask)
    shape = site.result.shape
    pattern = Pattern(list(predicate.constraints), shape, site.compile)
    negate = bool(site.attribute("negate"))
    other = site.operand("on_false", len(shape))
    data = site.values(site.instruction.inputs["data"])
    keys = list(range(-len(shape), 0))

    def calculate(out: np.ndarray) -> None:
        chosen = pattern()[site.window.slices(keys, shape)]
        values = data()
        if values is not out:
            np.copyto(out, values)
        np.copyto(out, other(), where=chosen if negate else ~chosen)

    return site.computed(calculate)


def _number(site: LaneSite, name: str) -> Address:
    value = site.attribute(name, 0)
    if isinstance(value, Affine):
        return site.compile(value)
    assert isinstance(value, (int, float))
    return lambda: int(value)


def range_select(site: LaneSite) -> Closure:
    """result = data where op0(i, bound0) and op1(i, bound1), i = range_start + free index."""
    rank = len(site.result.shape)
    data = site.values(site.instruction.inputs["data"])
    bounds = [site.operand(name, rank) for name in ("bound0", "bound1")]
    compare = [arithmetic.binary(site.text(name)) for name in ("op0", "op1")]
    start, other = _number(site, "range_start"), site.operand("on_false", rank)
    free = site.result.shape[1:]
    columns = np.arange(int(np.prod(free)), dtype=np.float32).reshape((1, *free))
    keys = list(range(-rank, 0))

    def calculate(out: np.ndarray) -> None:
        window = (slice(None), *site.window.slices(keys, site.result.shape)[1:])
        index = columns[window] + np.float32(start())
        values = data()
        chosen = [np.empty(values.shape, bool) for _ in compare]
        for function, bound, found in zip(compare, bounds, chosen, strict=True):
            function(index, bound(), found)
        np.copyto(out, np.where(chosen[0] & chosen[1], values, other()))

    return and_registers(site, "vector", calculate)


def select_reduce(site: LaneSite) -> Closure:
    """result = where(predicate, on_true, on_false), with a reduction of it."""
    rank = len(site.result.shape)
    predicate = site.view(site.instruction.inputs["predicate"])
    true = site.values(site.instruction.inputs["on_true"])
    false = site.operand("on_false", rank)
    reverse = bool(site.attribute("reverse"))

    def calculate(out: np.ndarray) -> None:
        chosen = predicate() == 0 if reverse else predicate() != 0
        np.copyto(out, np.where(chosen, true(), false()))

    return and_registers(site, "vector", calculate)


def gather(site: LaneSite) -> Closure:
    """result[p, i] = data[p].flat[indices[p, i]]."""
    data = site.view(site.instruction.inputs["data"])
    indices = site.view(site.instruction.inputs["indices"])

    def read() -> np.ndarray:
        values, places = data(), indices().astype(np.int64)
        rows = values.reshape(values.shape[0], -1)
        _check_bounds(site, "data", "indices", places, rows.shape[1])
        found = np.take_along_axis(rows, places.reshape(places.shape[0], -1), axis=1)
        result: np.ndarray = found.reshape(places.shape)
        return result

    return site.put(read)


def local_gather(site: LaneSite) -> Closure:
    """Each GpSimd core gathers from its 16 partitions at the indices it reads, partition first,
    from the same 16 partitions of `index`; an index is an element offset in a partition."""
    source = site.view(site.instruction.inputs["source"])
    index = site.view(site.instruction.inputs["index"])
    width = site.attribute("elements_per_index", 1)
    valid = site.attribute("valid_indices")
    assert isinstance(width, int)
    spread = np.arange(width)

    def read() -> np.ndarray:
        values, places = source(), index()
        rows = values.reshape(values.shape[0], -1)
        cores: list[np.ndarray] = []
        for first in range(0, rows.shape[0], 16):
            order = places[first : first + 16].reshape(16, -1).flatten(order="F")
            order = order[: int(valid)] if isinstance(valid, int) else order
            _check_bounds(site, "source", "index", order, rows.shape[1] - width + 1)
            offsets = (order.astype(np.int64)[:, None] + spread).reshape(-1)
            cores.append(rows[first : first + 16][:, offsets])
        return np.concatenate(cores).reshape(site.result.shape)

    return site.put(read)


def sequence_bounds(site: LaneSite) -> Closure:
    """(1, 2, F): where each element's segment starts and ends; (F, -1) for padding (id 0)."""
    data = site.values(site.instruction.inputs["segment_ids"])

    def read() -> np.ndarray:
        ids = data().reshape(-1)
        length = len(ids)
        change = np.flatnonzero(np.diff(ids)) + 1
        first = np.repeat(np.r_[0, change], np.diff(np.r_[0, change, length]))
        last = np.repeat(np.r_[change, length], np.diff(np.r_[0, change, length]))
        bounds = np.stack([np.where(ids == 0, length, first), np.where(ids == 0, -1, last)])
        return bounds.astype(np.float32).reshape(site.result.shape)

    return site.put(read)


def _check_bounds(site: LaneSite, operand: str, index: str, places: np.ndarray, bound: int) -> None:
    """Raises KernelIndexError for indices that are not in 0..bound - 1."""
    wrong = (places < 0) | (places >= bound)
    if wrong.any():
        inputs = site.instruction.inputs
        raise KernelIndexError(
            "indirect_index_out_of_bounds",
            f"the index {int(places[wrong][0])} of '{inputs[index].tensor.name}' is not one of 0 to "
            f"{bound - 1}, the elements that each partition of '{inputs[operand].tensor.name}' has.",
            "Keep run-time indices inside of the tile.",
            site.instruction.source,
        )


def _rows(read: ReadClosure) -> Callable[[], np.ndarray]:
    def rows() -> np.ndarray:
        values = read()
        return values.reshape(values.shape[0], -1)

    return rows


def _by_partition(site: LaneSite, access: Access) -> Callable[[np.ndarray], None]:
    """Stores what is computed of each partition, one row of values for each."""
    return site.destination(access, None, site.by_partition(access)).put_all


def max8(site: LaneSite) -> Closure:
    """(P, 8): the largest elements of each partition, descending."""
    read = _rows(masked(site, site.values(site.instruction.inputs["data"]), "maximum"))
    store = _by_partition(site, site.result)
    return lambda: store(-np.sort(-read(), axis=1)[:, :8])


def find_index8(site: LaneSite) -> Closure:
    """(P, 8): the first position of each of eight values in its partition. With `successive` equal
    values have successive ones, and what does not occur has all bits set (NKI 0.6 release notes)."""
    data = _rows(site.values(site.instruction.inputs["data"]))
    eights = site.instruction.inputs["values"]
    wanted = _rows(site.values(eights, site.by_partition(eights)))
    store = _by_partition(site, site.result)
    held = dtypes.stored(site.result.dtype)
    successive = bool(site.attribute("successive"))
    absent = np.iinfo(held).max if successive else 0

    def run() -> None:
        values, eight = data(), wanted()
        found = np.full((values.shape[0], eight.shape[1]), absent, held)
        free = np.ones(values.shape, bool)
        every = np.arange(values.shape[0])
        for number in range(eight.shape[1]):
            matches = free & (values == eight[:, number : number + 1])
            first = np.argmax(matches, axis=1)
            hit = matches[every, first]
            found[hit, number] = first[hit]
            if successive:
                free[every[hit], first[hit]] = False
        store(found)

    return run


def nonzero(site: LaneSite) -> Closure:
    """(P, F + 1): the positions of what is not 0, padding, and their number."""
    data = _rows(site.values(site.instruction.inputs["data"]))
    store = _by_partition(site, site.result)
    offset, padding = (int(site.instruction.attributes[name]) for name in ("offset", "padding"))  # type: ignore[arg-type]
    held = dtypes.stored(site.result.dtype)

    def run() -> None:
        values = data()
        found = np.full((values.shape[0], values.shape[1] + 1), padding, held)
        for row, line in zip(found, values, strict=True):
            (places,) = np.nonzero(line)
            row[: len(places)] = places + offset
            row[-1] = len(places)
        store(found)

    return run


def topk(site: LaneSite) -> Closure:
    """Per 16 partitions, whose elements lie in turn, the largest in the same layout, ascending, and their
    positions; of equal ones the first. Slots that complete the last column are no results: NaN, all bits
    set."""
    data = _rows(site.values(site.instruction.inputs["data"]))
    together = GATHERING_PARTITIONS
    elements, count = (int(site.instruction.attributes[name]) for name in ("elements", "count"))  # type: ignore[arg-type]
    largest, positions = (
        _by_partition(site, site.instruction.outputs[name]) for name in ("result", "indices")
    )

    def run() -> None:
        values = data()
        columns = -(-count // together)
        best = np.full((len(values), columns), np.nan, values.dtype)
        found = np.full((len(values), columns), np.iinfo(np.uint32).max, np.uint32)
        for first in range(0, len(values), together):
            group = slice(first, first + together)
            line = values[group].T.reshape(-1)[:elements]
            order = np.argsort(-line, kind="stable")[:count][::-1]
            for table, entries in ((best, line[order]), (found, order)):
                turned = table[group].T.copy()
                turned.reshape(-1)[:count] = entries
                table[group] = turned.T
        largest(best)
        positions(found)

    return run


def match_replace8(site: LaneSite) -> Closure:
    """result = data with the first match of each of eight values replaced, one after the other, from
    the last value with `from_last` (NKI 0.6 release notes);
    `indices` receives their positions."""
    inputs, places = site.instruction.inputs, site.instruction.outputs.get("indices")
    data = site.values(inputs["data"])
    wanted = _rows(site.values(inputs["values"], site.by_partition(inputs["values"])))
    replacement = site.attribute("replacement")
    assert isinstance(replacement, (int, float))
    numbers = range(inputs["values"].free_elements)
    order = numbers[::-1] if site.attribute("from_last") else numbers
    store = site.destination(site.result).put_all
    store_positions = _by_partition(site, places) if places is not None else None

    def run() -> None:
        values = data()
        rows = np.array(values.reshape(values.shape[0], -1))
        eight = wanted()
        every = np.arange(rows.shape[0])
        positions = np.zeros(eight.shape, np.uint32)
        for number in order:
            matches = rows == eight[:, number : number + 1]
            first = np.argmax(matches, axis=1)
            hit = matches[every, first]
            positions[hit, number] = first[hit]
            rows[every[hit], first[hit]] = replacement
        store(rows)
        if store_positions is not None:
            store_positions(positions)

    return run


def while_(site: LaneSite) -> Closure:
    """Whether a loop of the device goes on."""
    read = site.view(site.instruction.inputs["condition"])
    return lambda: bool(read().flat[0])  # type: ignore[return-value]


def core_barrier(site: LaneSite) -> Closure:
    """Nothing: a Program has what both cores do in an order that keeps their barriers."""
    return lambda: None


def print_(site: LaneSite) -> Closure:
    """Prints a tile with its prefix."""
    read, prefix = site.view(site.instruction.inputs["data"]), site.text("prefix")
    return lambda: print(prefix, read())
