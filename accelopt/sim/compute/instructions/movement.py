"""Instructions that move or set elements: dma_copy, copy, memset, transpose, predicated copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.compute.tiles.elements import Elements
from accelopt.sim.compute.tiles.operands import Closure, LaneSite, ReadClosure, flat_free
from accelopt.sim.errors import KernelIndexError
from accelopt.sim.program import Engine


def copy(site: LaneSite) -> Closure:
    """result = data, converting. The same format is copied bit by bit, except that the Scalar
    engine passes everything through float32 (SDK 2.26.1 `nisa.tensor_copy`)."""
    data, result = site.instruction.inputs["data"], site.result
    through = site.instruction.engine is Engine.SCALAR and dtypes.is_integer(data.dtype)
    read = site.values(data) if through else site.view(data)
    return site.put(_shaped(read, data, result))


def _shaped(read: ReadClosure, data: Access, result: Access) -> ReadClosure:
    """The data in the result's shape, when the two only group their elements differently."""
    if len(data.shape) == len(result.shape) or data.elements != result.elements:
        return read
    shape = result.shape
    return lambda: read().reshape(shape)


def memset(site: LaneSite) -> Closure:
    """result = value."""
    held = dtypes.stored(site.result.dtype)
    value = site.attribute("value")
    assert isinstance(value, (int, float))
    if dtypes.is_integer(held) and isinstance(value, int) and held != dtypes.BOOL:
        limits = np.iinfo(held)
        constant = np.asarray(min(max(value, limits.min), limits.max), dtype=held)
    elif dtypes.is_packed(held):
        constant = np.zeros((), held)
    else:
        constant = dtypes.convert(np.asarray(value, dtype=np.float64), held)
    target, commit, _ = site.destination(site.result, held)
    if commit is None:
        return lambda: target().fill(constant)
    return lambda: commit(np.broadcast_to(constant, target().shape))


def dma_copy(site: LaneSite) -> Closure:
    """result = source (or result += source), with run-time indices on either side."""
    source, result = site.instruction.inputs["source"], site.result
    skip = site.attribute("oob_mode") == "skip"
    accumulate = site.attribute("accumulate")
    if skip and (source.indirect or result.indirect):
        return _skipping_copy(site, source, result)
    if accumulate:
        return _accumulating_copy(site, source, result)
    return site.put(_shaped(site.view(source), source, result))


def dma_window(site: LaneSite) -> Closure:
    """The first n elements of result = (or +=) those of source from s on, (n, s) = window; the others stay."""
    inputs, by = site.instruction.inputs, site.text("accumulate")
    source, window, old = map(site.view, (inputs["source"], inputs["window"], site.result))
    like = site.view(inputs.get("like", inputs["window"]))

    def read() -> np.ndarray:
        found = old().reshape(-1).copy()
        number, first = (int(n) for n in window().reshape(-1))
        given = source().reshape(-1)
        if not 0 <= number <= found.size or not 0 <= first <= given.size - number:
            said = f"{number} elements from {first} on, of {given.size} into {found.size}."
            raise KernelIndexError("window", said, "", site.instruction.source)
        if number != (due := int(like().flat[0])):
            said = f"{number} elements to combine with {due} of another rank."
            raise KernelIndexError("window", said, "", site.instruction.source)
        part = given[first : first + number]
        if by:
            both = (one.astype(np.float32) for one in (found[:number], part))
            part = getattr(np, by)(*both)
        found[:number] = part
        return found.reshape(site.result.shape)

    return site.put(read)


def _keys(access: Access) -> tuple[int, ...]:
    return tuple(range(-len(access.shape), 0))


def _skipping_copy(site: LaneSite, source: Access, result: Access) -> Closure:
    """Elements whose run-time index is out of range, on either side, are left as they are."""
    taken, given = Elements(site, source, _keys(source)), Elements(site, result, _keys(result))
    held = dtypes.stored(result.dtype)

    def step() -> None:
        pattern = site.pattern_now()
        numbers = taken.numbers(pattern, skip=True)
        places = given.numbers(pattern, skip=True)
        allowed = np.broadcast_to(numbers >= 0, places.shape)
        if pattern is not None:
            allowed = allowed & pattern
        given.write(places, dtypes.convert(taken.read(numbers), held), allowed)

    return step


def _accumulating_copy(site: LaneSite, source: Access, result: Access) -> Closure:
    """result += source, where elements that are named twice receive both; or the larger, or the smaller."""
    read = site.values(source)
    if site.attribute("accumulate") != "add" and not result.indirect:
        larger = np.maximum if site.attribute("accumulate") == "maximum" else np.minimum
        old = site.values(result)
        return site.put(lambda: larger(old(), read()))
    elements = Elements(site, result, _keys(result))

    def step() -> None:
        pattern = site.pattern_now()
        elements.add(elements.numbers(pattern), read(), pattern)

    return step


def transpose(site: LaneSite) -> Closure:
    """(F, P) = data (P, F).T, free axes as one."""
    data, result = site.instruction.inputs["data"], site.result
    flat = flat_free(data) or data
    rank = len(result.shape)
    if len(flat.shape) == 2 and rank == 2:
        turned = replace(flat, shape=flat.shape[::-1], strides=flat.strides[::-1])
        return site.put(site.view(turned, (-2, -1)))
    read = site.view(data)

    def turn() -> np.ndarray:
        values = read()
        turned: np.ndarray = values.reshape(values.shape[0], -1).T.reshape(result.shape)
        return turned

    return site.put(turn)


def copy_predicated(site: LaneSite) -> Closure:
    """result = source where predicate, else as it was."""
    result = site.result
    predicate = site.view(site.instruction.inputs["predicate"])
    reverse = bool(site.attribute("reverse"))
    target, commit, held = site.destination(result, None)
    source = site.input("source")
    read = site.operand("source", len(result.shape)) if source is None else site.view(source)
    view = site.view(result)

    def step() -> None:
        chosen = predicate() == 0 if reverse else predicate() != 0
        values = dtypes.convert(np.asarray(read()), held)
        if commit is None:
            np.copyto(target(), values, where=chosen)
        else:
            commit(np.where(chosen, values, view()))

    return step


def stream_shuffle(site: LaneSite) -> Closure:
    """Partition p of each group of 32 takes partition shuffle_mask[p] of the source's group; 255
    keeps what is there."""
    source, result = site.instruction.inputs["source"], site.result
    order = site.attribute("shuffle_mask")
    assert isinstance(order, tuple)
    partitions = result.shape[0]
    taken = np.array([order[p % 32] for p in range(partitions)], dtype=np.int64)
    kept = taken == 255
    groups = (source.shape[0] + 31) // 32
    rows = taken + 32 * np.minimum(np.arange(partitions) // 32, groups - 1)
    rows = np.where(kept | (rows >= source.shape[0]), 0, rows)
    read, old = site.view(source), site.view(result)
    where = np.flatnonzero(~kept)

    def shuffled() -> np.ndarray:
        values = np.array(old())
        values[where] = dtypes.convert(read(), values.dtype)[rows[where]].reshape(
            len(where), *values.shape[1:]
        )
        return values

    return site.put(shuffled)
