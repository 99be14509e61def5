"""Reductions along free axes, partitions and loops, scans, and batch-norm statistics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.compute.analysis.uses import carried_loops
from accelopt.sim.compute.instructions import arithmetic
from accelopt.sim.compute.tiles.elements import column
from accelopt.sim.compute.tiles.operands import Calculate, Closure, LaneSite, ReadClosure
from accelopt.sim.operators import BITWISE

PARTITIONS = 128


def masked(site: LaneSite, read: ReadClosure, op: str) -> ReadClosure:
    """The values of a reduction, the elements that a pattern excludes replaced by its identity."""
    if site.pattern is None:
        return read

    def values() -> np.ndarray:
        found = read()
        return np.where(np.asarray(site.pattern_now()), found, arithmetic.identity(op, found.dtype))

    return values


def and_registers(
    site: LaneSite, engine: str, calculate: Calculate, alias: bool = False
) -> Closure:
    """Computes the result, and reduces it into the engine's registers where that is asked for."""
    reduces = _register_reduction(site, engine)
    if reduces is None:
        return site.computed(calculate, alias)

    def both(out: np.ndarray) -> None:
        calculate(out)
        reduces(out)

    return site.computed(both, alias=True)


def _register_reduction(site: LaneSite, engine: str) -> Callable[[np.ndarray], None] | None:
    """Reduces an instruction's result over its free axes into the engine's 128 registers as
    `reduce_cmd` says, and reads them out to `reduce_result`; None when nothing asks for it."""
    output = site.instruction.outputs.get("reduce_result")
    command = site.attribute("reduce_cmd", "idle")
    if command == "idle":
        if output is None:
            return None
        command = "reset_reduce"
    op = site.text("reduce_op") or "add"
    function = arithmetic.binary(op)
    held, own = site.lane.accumulators, (site.instruction.core, engine)
    axes = tuple(range(1, len(site.result.shape)))
    keys = (-len(site.result.shape), None)
    store = None if output is None else site.destination(output, keys=keys).put_all

    def run(result: np.ndarray) -> None:
        count = result.shape[0]
        state = held.get(own)
        if state is None or command in ("reset", "reset_reduce"):
            start = arithmetic.identity(op, dtypes.FLOAT32)
            state = held[own] = np.full((PARTITIONS, 1), start, site.computes)
        if command != "reset":
            pattern = site.pattern_now()
            values = (
                result
                if pattern is None
                else np.where(
                    pattern, result, state.dtype.type(arithmetic.identity(op, dtypes.FLOAT32))
                )
            )
            reduced = arithmetic.reduce(op, values, axes).reshape(count, 1)
            function(state[:count], reduced, state[:count])
        if store is not None:
            store(state[:count])

    return run


def tensor_reduce(site: LaneSite) -> Closure:
    """result = (-) reduction of data over axes; the result keeps them with length 1 or drops them."""
    data, result, op = site.instruction.inputs["data"], site.result, site.text("op")
    axes = _axes(site)
    whole = op in BITWISE
    compute = dtypes.stored(data.dtype) if whole else dtypes.FLOAT32
    read = masked(site, site.view(data) if whole else site.values(data), op)
    rank = len(data.shape)
    keys = _kept_keys(rank, axes, len(result.shape))
    negate = bool(site.attribute("negate"))
    mean = op in ("mean", "variance") and site.pattern is not None
    same = len(result.shape) == rank

    def calculate(out: np.ndarray) -> None:
        values = read()
        reduced = (
            _masked_moment(site, op, values, axes)
            if mean
            else arithmetic.reduce(op, values, axes, out if same else None)
        )
        if not same:
            np.copyto(out, reduced.reshape(out.shape))
        elif reduced is not out:
            np.copyto(out, reduced)
        if negate:
            np.negative(out, out)

    return site.destination(result, compute, keys).computed(calculate)


def _axes(site: LaneSite) -> tuple[int, ...]:
    axes = site.attribute("axes")
    assert isinstance(axes, tuple)
    return axes  # type: ignore[return-value]


def _kept_keys(rank: int, axes: tuple[int, ...], result_rank: int) -> list[int | None]:
    """Mask keys of a reduction's result: of the data's axes it keeps."""
    if result_rank == rank:
        return [None if n in axes else n - rank for n in range(rank)]
    kept: list[int | None] = [n - rank for n in range(rank) if n not in axes]
    return kept + [None] * (result_rank - len(kept))


def _masked_moment(
    site: LaneSite, op: str, values: np.ndarray, axes: tuple[int, ...]
) -> np.ndarray:
    pattern = np.broadcast_to(np.asarray(site.pattern_now()), values.shape)
    function = np.mean if op == "mean" else np.var
    return np.asarray(function(values, axis=axes, keepdims=True, where=pattern))


def partition_reduce(site: LaneSite) -> Closure:
    """(1, F) = reduction of data over its partitions."""
    data, op = site.instruction.inputs["data"], site.text("op")
    whole = op in BITWISE
    compute = dtypes.stored(data.dtype) if whole else dtypes.FLOAT32
    read = masked(site, site.view(data) if whole else site.values(data), op)
    keys = [None, *range(1 - len(data.shape), 0)]
    store = site.destination(site.result, compute, keys).put_all
    return lambda: store(arithmetic.reduce(op, read(), (0,)))


def loop_reduce(site: LaneSite) -> Closure:
    """result = op(result, data); the first iteration of the named loops assigns (S14)."""
    op = site.text("op")
    function = arithmetic.binary(op)
    ids = carried_loops(site.instruction)
    positions = site.lane.positions
    slots = [slot for variable, slot in site.lane.slots.items() if variable.id in ids]
    read = site.values(column(site.instruction.inputs["data"], len(site.result.shape)))
    old = site.values(site.result)
    masks = bool(site.instruction.mask.constraints)

    def first() -> bool:
        return not any(positions[slot] for slot in slots)

    if masks:
        whole = site.whole(site.result)
        start = arithmetic.identity(op, dtypes.stored(site.result.dtype))

        def prelude() -> None:
            if first():
                whole().fill(start)

        site.prelude = prelude

    def calculate(out: np.ndarray) -> None:
        if masks or not first():
            function(old(), read(), out)
        else:
            np.copyto(out, read())

    return site.computed(calculate)


SCAN_BLOCK = 512  # columns turned into rows at a time: three blocks of 128 partitions fit the cache
LINE = 16  # elements of the cache


def tensor_tensor_scan(site: LaneSite) -> Closure:
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]), r[-1] = initial, along the free axes.

    Each step is a vector over partitions, so blocks of columns are turned into contiguous rows.
    """
    inputs = site.instruction.inputs
    data0, data1 = site.values(inputs["data0"]), site.values(inputs["data1"])
    initial = site.operand("initial", 2) if _has(site, "initial") else (lambda: np.float32(0))
    reverse0, reverse1 = bool(site.attribute("reverse0")), bool(site.attribute("reverse1"))
    op0, op1 = arithmetic.binary(site.text("op0")), arithmetic.binary(site.text("op1"))
    store = site.destination(site.result).put_all
    blocks = np.empty((3, SCAN_BLOCK, PARTITIONS), site.computes)
    # Rows of a power of two would be in each other's place of the processor's cache.
    untransposed = np.empty((PARTITIONS, SCAN_BLOCK + LINE), site.computes)
    by_count: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}

    def rows(partitions: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        if partitions not in by_count:
            part = blocks[:, :, :partitions]
            by_count[partitions] = list(zip(part[0], part[1], part[2], strict=True))
        return by_count[partitions]

    def run() -> None:
        first, second = data0(), data1()
        partitions = first.shape[0]
        first, second = first.reshape(partitions, -1), second.reshape(partitions, -1)
        state = np.empty(partitions, blocks.dtype)
        state[:] = np.asarray(initial()).reshape(-1)
        length = first.shape[1]
        result = np.empty((partitions, length), blocks.dtype)
        for start in range(0, length, SCAN_BLOCK):
            stop = min(start + SCAN_BLOCK, length)
            part = blocks[:, : stop - start, :partitions]
            near = untransposed[:partitions, : stop - start]
            for here, given in zip(part, (first, second), strict=False):
                np.copyto(near, given[:, start:stop])
                np.copyto(here, near.T)
            for x, y, r in rows(partitions)[: stop - start]:
                if reverse0:
                    op0(state, x, r)
                else:
                    op0(x, state, r)
                if reverse1:
                    op1(y, r, r)
                else:
                    op1(r, y, r)
                state = r
            np.copyto(result[:, start:stop], part[2].T)
            state = state.copy()
        store(result)

    return run


def _has(site: LaneSite, name: str) -> bool:
    return site.input(name) is not None or site.attribute(name) is not None


def bn_stats(site: LaneSite) -> Closure:
    """(P, 6): count, mean and variance times count of the even, then of the odd elements."""
    data = site.values(site.instruction.inputs["data"])
    store = site.destination(site.result, keys=site.by_partition(site.result)).put_all

    def run() -> None:
        values = data()
        values = values.reshape(values.shape[0], -1)
        out = np.zeros((values.shape[0], 6), values.dtype)
        for half in (0, 1):
            part = values[:, half::2]
            if part.shape[1]:
                out[:, 3 * half] = part.shape[1]
                out[:, 3 * half + 1] = part.mean(axis=1)
                out[:, 3 * half + 2] = part.var(axis=1) * values.dtype.type(part.shape[1])
        store(out)

    return run


def bn_aggr(site: LaneSite) -> Closure:
    """(P, 2): mean and variance of the groups (count, mean, variance * count) in data."""
    data = site.values(site.instruction.inputs["data"])
    store = site.destination(site.result, keys=site.by_partition(site.result)).put_all

    def run() -> None:
        values = data()
        groups = values.reshape(values.shape[0], -1, 3)
        counts, means, scatters = groups[:, :, 0], groups[:, :, 1], groups[:, :, 2]
        total = counts.sum(axis=1, keepdims=True)
        mean = (counts * means).sum(axis=1, keepdims=True) / total
        spread = scatters + counts * np.square(means - mean)
        store(np.concatenate([mean, spread.sum(axis=1, keepdims=True) / total], axis=1))

    return run
