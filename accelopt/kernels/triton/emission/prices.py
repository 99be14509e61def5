"""The expected time of a kernel of a schedule, in closed form, before anything is built.

Programs run in waves of as many as registers, shared memory and warps allow. A wave takes as long as its
slowest part: bytes from memory, bytes from the caches, products, elements, special functions. The numbers
of the machine are `hardware.gpus`'; those below are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import ml_dtypes
import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction
from accelopt.algorithm.index import Axis, Index, element_number
from accelopt.hardware.gpus import GPU
from accelopt.kernels.triton.emission.functions import COSTLY, FORMATS
from accelopt.kernels.triton.emission.groups import Group, Member, flat
from accelopt.kernels.triton.emission.runtime_bounds import Bound, bound_by, index_in
from accelopt.kernels.triton.emission.schedule import Kernel, NotEmitted
from accelopt.kernels.triton.emission.simplifying import conditions_of, unguarded
from accelopt.kernels.triton.emission.tiles import NARROW, Tiles

EMPTY_SECONDS = 1e-7
"""Of a multiprocessor for a program that finds nothing to do: 134,000 such took 0.11 ms of an H100."""
UNORDERED = 1.13
"""Times as long as where programs with most work begin first, by a model of a ragged prefill on an H200."""
LAUNCH_SECONDS = 2.5e-6
"""Between the starts of two kernels that wait for each other (assumed)."""
PROGRAM_SECONDS = 1.0e-6
"""Of a wave: the first loads, and the last stores (assumed)."""
LATENCY_SECONDS = 0.7e-6
"""Of a load, which a round of a loop waits for, the less the more stages loads run ahead (assumed)."""
SHARED_LOADS = 1.3
"""Times what the L2 cache gives that programs take: those of a multiprocessor find each other's in L1. An H100
gave 2.1 GB in 0.246 ms to 128 x 128 tiles of a product."""
IN_FLIGHT_BYTES = 24 << 10
"""Loads of a multiprocessor that its share of the bandwidth needs under way: Little's law with 0.8 us."""
OTHER_REGISTERS = 24
"""Of a thread: addresses and masks (assumed)."""
UNLIMITED = 1.35
"""Times the registers that a loop of products needs that ptxas takes of it where it may: 216 of 153, 175 of 121 and
255 of 153 in ragged attentions, 150 and 160 of 120 in plain ones, 104 of 88 in a product."""
SPILLED_ELEMENTS = 4
"""Results that an instruction for memory takes the time of: 32 lanes a clock for 128."""
MASK_LEFT = 0.55
"""Of a walk that a mask ends at the diagonal."""
FULL_TILE = (128, 256, 64)
"""Rows, columns and summed elements with which products reach most of the peak: an H100 took
0.246 ms for 4096 x 4096 x 4096 in fp16 with 128 x 128 x 64 and four stages."""
WARP_ROWS = 16
"""Rows of a product that another one reads which a warp has: warps without rows of their own repeat others' (read
off Triton 3.6's output for an attention)."""
AGAIN = 0.35
"""Of the bytes of a row that is read again soon, those that come from memory (assumed)."""
DOT_REACHED, DESCRIBED_REACHED = 0.75, 0.95
"""By loads of pointers, and of descriptors: 8192 x 4096 x 4096 in fp16 by tiles of 128 x 256 x 64 took an H100
0.482 and 0.378 ms."""


class Price(NamedTuple):
    """Seconds of a kernel, what its programs take of a multiprocessor, and what limits it."""

    seconds: float
    registers: int
    shared_bytes: int
    limit: str


@dataclass
class _Work:
    """Of one program."""

    bytes: float = 0.0
    flops: dict[str, float] = field(default_factory=dict)
    elements: float = 0.0
    special: float = 0.0
    shared: int = 0
    live: float = 0.0
    carried: float = 0.0
    in_flight: float = 0.0
    rounds: float = 0.0
    chained: float = 0.0


def price(
    group: Group, kernel: Kernel, arrays: Mapping[str, ir.Array], stored: Iterable[str], gpu: GPU
) -> Price:
    """The expected time. Raises NotEmitted for tiles that no multiprocessor holds, or that make several
    programs store the same elements."""
    stored = set(stored)
    tiles = Tiles(group, kernel, stored)
    for name in stored:
        member = group.member(name)
        if member is not None and not tiles.stores(member):
            raise NotEmitted(f"several programs would store the same elements of {name}")
    work = _work(tiles, arrays, set(stored))
    threads = kernel.warps * gpu.warp_threads
    needed = int(OTHER_REGISTERS + work.live / threads)
    if needed > gpu.thread_registers:
        raise NotEmitted(f"{kernel.members[0]}: its tiles take {needed} registers a thread")
    registers = needed
    if work.flops and work.rounds:
        registers = min(int(needed * UNLIMITED), gpu.thread_registers)
    if kernel.registers and registers > kernel.registers:
        if OTHER_REGISTERS + work.carried / threads > kernel.registers:
            raise NotEmitted(
                f"{kernel.members[0]}: {kernel.registers} registers do not hold its sums"
            )
        spilled = max(0, needed - kernel.registers) * threads  # stored and loaded in each round
        work.elements += 2 * SPILLED_ELEMENTS * spilled * max(work.rounds, 1.0)
        registers = kernel.registers
    if work.shared > gpu.block_shared_bytes:
        raise NotEmitted(
            f"{kernel.members[0]}: its tiles take {work.shared} bytes of shared memory"
        )
    blocks = min(
        gpu.blocks,
        gpu.warps // kernel.warps,
        gpu.registers // (max(registers, 32) * threads),
        gpu.shared_bytes // (work.shared + gpu.block_reserve_bytes),
    )
    if blocks < 1:
        raise NotEmitted(f"{kernel.members[0]}: a multiprocessor holds no program of its tiles")
    programs, cores = max(1, int(tiles.programs * _staying(tiles, stored))), gpu.multiprocessors
    busy = min(blocks, -(-programs // cores))
    waves = -(-programs // (cores * blocks))
    rounds = waves * busy if waves > 1 else busy
    # Programs of the fullest multiprocessor, one after the other at its rates.
    core = cores * 1.0
    unique = _unique_bytes(tiles, arrays, set(stored))
    reach = min(1.0, max(busy * work.in_flight, 1.0) / IN_FLIGHT_BYTES)
    used = min(programs, cores) / core
    clock = gpu.single_tflops * 1e12 / (2 * gpu.single_results_per_clock * cores)
    traffic = work.bytes * programs
    parts = {
        "memory": max(unique, 0.0)
        / (gpu.gigabytes_per_second * 1e9 * 0.92)
        / min(1.0, reach * used * 1.6),
        "caches": traffic / (gpu.l2_gigabytes_per_second * 1e9 * SHARED_LOADS) / used,
        "products": _product_seconds(work, gpu, kernel.warps) * rounds * core,
        "elements": work.elements / (gpu.single_results_per_clock * clock) * rounds,
        "special": work.special / (gpu.special_results_per_clock * clock) * rounds,
    }
    limit = max(parts, key=lambda name: parts[name])
    lesser = sum(parts.values()) - parts[limit]
    ahead = work.rounds / max(1, kernel.stages - 1) ** 2 + work.chained
    waiting = LATENCY_SECONDS * ahead / min(busy, 2)
    apart = (1.0 if work.flops and kernel.stages == 2 else 0.6) / min(busy, 4)
    seconds = (
        parts[limit]
        + apart * lesser
        + waves**0.5 * PROGRAM_SECONDS
        + waves * 0.5 * waiting
        + LAUNCH_SECONDS
    )
    if tiles.packing is not None:
        seconds *= UNORDERED if tiles.walked is not None else 1.0
    seconds += EMPTY_SECONDS * (tiles.programs - programs) / cores
    return Price(seconds, registers, work.shared, limit)


def _product_seconds(work: _Work, gpu: GPU, warps: int) -> float:
    """Of one program's products, were all multiprocessors its own."""
    total = 0.0
    for kind, flops in work.flops.items():
        peak = gpu.half_tflops * 1e12 / (1 if kind in NARROW else 2)  # fp32 is taken as TF32
        total += flops / (peak * (1.0 if warps >= 4 else 0.7))
    return total


def _reached(sizes: list[int]) -> float:
    """The part of what products reach at most that one of rows, columns and summed elements does."""
    rows, columns, summed = sizes
    tile = min(1.0, rows * columns / (FULL_TILE[0] * FULL_TILE[1]))
    narrow = min(1.0, min(rows, columns) / 64) * min(1.0, summed / FULL_TILE[2]) ** 0.5
    return float(tile**0.2 * narrow**0.5)


def _size(tiles: Tiles, axes: Iterable[Axis]) -> int:
    return math.prod(tiles.sizes.get(axis, 1) for axis in axes)


def item_bytes(array: ir.Array) -> int:
    """Of an element."""
    named = getattr(ml_dtypes, array.dtype, array.dtype) if array.dtype in FORMATS else "float32"
    return np.dtype(named).itemsize


def _evaluated(tiles: Tiles) -> dict[int, list[Member]]:
    """The members that each walk computes, and under -1 those that none does."""
    passes, found = tiles.passes, dict[int, list[Member]]()
    for member in tiles.group.members:
        walks = tiles.walked is not None and tiles.walked in member.every_axis
        found.setdefault(passes[member.out] if walks else -1, []).append(member)
    for number, members in found.items():
        waiting = list(members) if number >= 0 else []
        while waiting:
            member = waiting.pop()
            for read in member.reads:
                other = tiles.group.member(read.array)
                if other is None or other in members or tiles.walked in other.reduced:
                    continue
                if tiles.walked in other.every_axis:
                    members.append(other)
                    waiting.append(other)
    return found


def _chained(expression: ir.Expression, tiles: Tiles) -> bool:
    """Whether each round of the walk loads from where another load of it says: nothing is loaded ahead."""
    return any(
        isinstance(part, ir.Indirect) and tiles.walked in ir.axes_of(part.at)
        for part in ir.walk(expression)
    )


def _buffers(side: int, product: Contraction, tiles: Tiles) -> int:
    """Tiles of an operand in shared memory: one a stage of what is loaded in each round, or two where that
    waits for a lookup, and one more beside a left operand that is computed (as Triton 3.5 and 3.9 compile
    for an H100); none of that one, which stays in registers."""

    def computed(operand: ir.Expression) -> bool:
        reads = (p for p in ir.walk(operand) if isinstance(p, ir.Read))
        return any(tiles.group.member(read.array) is not None for read in reads)

    operand = (product.left, product.right)[side]
    if tiles.walked not in ir.axes_of(operand):
        return 1
    if computed(operand):
        return side
    return 2 + computed(product.left) if _chained(operand, tiles) else tiles.kernel.stages


def _share(tiles: Tiles, members: Iterable[Member]) -> float:
    """The part of a walk that is left by what ends it: a mask, or a length that is read. Lengths are taken to
    add up to the axis, as those of parts of it do."""
    sums = [m.definition for m in members if tiles.walked in m.reduced]
    found = [_left(tiles, d) for d in sums if isinstance(d, ir.Reduce)]
    return max(found, default=1.0)


def _staying(tiles: Tiles, stored: Iterable[str]) -> float:
    """The part of the programs that store something, where all rows end at lengths that are read."""
    scatters = [m.scatter for m in tiles.group.members if m.out in stored]
    if tiles.packing is not None or None in scatters:
        return 1.0
    kept = [test for scatter in scatters if scatter is not None for test in scatter.tests]
    return min((1 / _parts(b) for b in map(bound_by, kept) if b is not None), default=1.0)


def _parts(bound: Bound) -> int:
    """How many lengths there are of what a bound reads."""
    reads = [p for term, _ in bound.terms for p in ir.walk(term) if isinstance(p, ir.Read)]
    ends = [index.bounds for read in reads for index in read.indices]
    return max((high - low + 1 for low, high in ends), default=1)


def _left(tiles: Tiles, definition: ir.Reduce) -> float:
    masked, part = 1.0, 1.0
    for condition in conditions_of(definition):
        bound = None if isinstance(condition, Index) else bound_by(condition)
        index = index_in(condition)
        if index is None or tiles.walked not in index.axes:
            continue
        masked = MASK_LEFT if len(index.axes) > 1 else masked
        part = min(part, 1 / _parts(bound)) if bound is not None else part
    return masked * part


def _work(tiles: Tiles, arrays: Mapping[str, ir.Array], stored: set[str]) -> _Work:
    work = _Work()
    kernel = tiles.kernel
    state, live = 0.0, dict[int, float]()
    alike: dict[ir.Expression, ir.Expression] = {}
    chain = sum(tiles.product(member) is not None for member in tiles.group.members) > 1
    for number, members in _evaluated(tiles).items():
        rounds = (
            tiles.count(tiles.walked) * _share(tiles, members)
            if number >= 0 and tiles.walked
            else 1.0
        )
        known: set[ir.Expression] = set()
        operands: set[tuple[ir.Expression, int]] = set()
        largest = held = 0.0
        work.rounds += rounds if number >= 0 else 0
        found = (e for m in members for e in ir.expressions_of(m.definition) if _chained(e, tiles))
        work.chained += rounds if number >= 0 and any(found) else 0
        for member in members:
            product = tiles.product(member)
            own = tiles.dims(tuple(member.every_axis))
            kept = _size(tiles, tiles.dims(member.definition.axes))
            if tiles.walked in member.reduced or product is not None:
                state += kept
            if product is not None:
                kept_rows = tiles.sizes[tiles.dims(member.definition.axes)[0]]
                sides = [
                    tiles.dims(side) for side in (product.rows, product.columns, product.contracted)
                ]
                kinds = [_kind(side, tiles.group, arrays) for side in (product.left, product.right)]
                kind = kinds[0] if kinds[0] == kinds[1] and kinds[0] in NARROW else "float32"
                sizes = [_size(tiles, side) for side in sides]
                reached = DESCRIBED_REACHED if kernel.descriptors else DOT_REACHED
                flops = 2.0 * math.prod(sizes) * rounds / (reached * _reached(sizes))
                flops *= max(1.0, WARP_ROWS * kernel.warps / kept_rows) if chain else 1.0
                work.flops[kind] = work.flops.get(kind, 0.0) + flops
                wide = 2 if kind in NARROW else 4
                both = 0
                for side, operand in enumerate((product.left, product.right)):
                    own_tile = ir.substituted(operand, tiles.alike, alike), wide
                    if own_tile not in operands:
                        both += _buffers(side, product, tiles) * sizes[side] * sizes[2] * wide
                    operands.add(own_tile)
                work.shared = max(work.shared, both) if number < 0 else work.shared + both
            else:
                largest = max(largest, float(_size(tiles, own)))
            for part, axes in member.parts:
                size, varies = _size(tiles, tiles.dims(axes)), tiles.walked in axes
                if isinstance(part, ir.Read) and tiles.group.member(part.array) is None:
                    if (first := ir.substituted(part, tiles.alike, alike)) in known:
                        continue
                    known.add(first)
                    moved = _moved(part, tiles, arrays, size)
                    held += size if product is None and size > 1 else 0
                    under_way = max(1, min(kernel.stages - 1, rounds)) if varies else 1
                    work.bytes += moved * (rounds if varies else 1)
                    work.in_flight += moved * under_way
                elif isinstance(part, (ir.Apply, ir.Where)) and part not in known:
                    known.add(part)
                    work.elements += size * rounds
                    if isinstance(part, ir.Apply) and part.function in COSTLY:
                        several = 1 if part.function in ("exp", "rsqrt") else 2
                        work.special += size * rounds * several
            if member.out in stored:
                size = _size(tiles, tiles.dims(member.definition.axes))
                times = rounds if tiles.walked in member.definition.axes else 1
                work.bytes += item_bytes(arrays[member.out]) * size * times
        live[number] = min(held, 3 * largest) + largest
    before = live.pop(-1, 0.0)  # what no walk computes: the results of products are among it
    work.carried = state
    work.live = max([state + max(live.values(), default=0.0), before])
    return work


def _moved(read: ir.Read, tiles: Tiles, arrays: Mapping[str, ir.Array], size: int) -> float:
    """Bytes through the caches for a tile: a sector at least for what lies apart."""
    array = arrays[read.array]
    index = flat(read, arrays)
    beside = next((t for t, f in index.terms if f == 1 and isinstance(t, Axis)), None)
    run = tiles.sizes.get(beside, 1) if beside is not None else 1
    one = item_bytes(array)
    return size * one * max(1.0, 32 / max(run * one, 1) if size > 1 else 1.0)


def _kind(expression: ir.Expression, group: Group, arrays: Mapping[str, ir.Array]) -> str:
    expression = unguarded(expression, 0.0)
    if isinstance(expression, ir.Indirect):
        return _kind(expression.element, group, arrays)
    if isinstance(expression, ir.Apply) and expression.function in NARROW:
        return expression.function
    if isinstance(expression, ir.Read) and group.member(expression.array) is None:
        return arrays[expression.array].dtype
    return "float32"


def _unique_bytes(tiles: Tiles, arrays: Mapping[str, ir.Array], stored: set[str]) -> float:
    """Bytes between the memory and the caches, were these large enough."""
    total = 0.0
    seen: set[str] = set()
    walks: dict[str, int] = {}
    for number, members in _evaluated(tiles).items():
        for name in (
            {read.array for member in members for read in member.reads} if number >= 0 else ()
        ):
            walks[name] = walks.get(name, 0) + 1
    for member in tiles.group.members:
        found = _places_found(member, arrays)
        for read in member.reads:
            if read.array in seen or tiles.group.member(read.array) is not None:
                continue
            seen.add(read.array)
            array = arrays[read.array]
            axes = flat(read, arrays).axes
            touched = math.prod(min(axis.extent, found.get(axis, axis.extent)) for axis in axes)
            bytes_once = item_bytes(array) * min(math.prod(array.shape), touched)
            total += bytes_once * (1 + AGAIN * max(0, walks.get(read.array, 1) - 1))
        if member.out in stored:
            array = arrays[member.out]
            touched = math.prod(a.extent for a in element_number(member.place, array.shape).axes)
            total += item_bytes(array) * min(math.prod(array.shape), touched)
    return total


def _places_found(member: Member, arrays: Mapping[str, ir.Array]) -> dict[Axis, int]:
    """How many places each axis of looked-up elements has at most: as many as there are numbers to read."""
    return {
        part.axis: min((math.prod(arrays[r.array].shape) for r in ir.walk(part.at)
                        if isinstance(r, ir.Read)), default=part.axis.extent)
        for whole, _ in member.parts for part in [whole] if isinstance(part, ir.Indirect)
    }  # fmt: skip
