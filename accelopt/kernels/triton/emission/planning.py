"""Schedules of an Algorithm, the ones first that are expected to take least time.

Definitions are joined into kernels as long as the joint one is not expected to take longer. For each kernel
tiles are tried from a few sizes an axis: those of products by the tensor cores, those along which elements lie
beside each other, and others; reduced axes whole or walked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from accelopt.algorithm.index import Axis, Floor
from accelopt.algorithm.ir import Algorithm, Array, Reduce, Scan, arrays_read
from accelopt.hardware.gpus import GPU
from accelopt.kernels.triton.emission.descriptors import LEAST_CAPABILITY, feeds_products
from accelopt.kernels.triton.emission.groups import (
    Group,
    arrays_of,
    flat,
    joined,
    member_of,
    needs,
    together,
    with_member,
)
from accelopt.kernels.triton.emission.module_text import prepared
from accelopt.kernels.triton.emission.prices import price
from accelopt.kernels.triton.emission.schedule import Kernel, NotEmitted, Schedule, Split, Tile
from accelopt.kernels.triton.emission.segments import segments_in
from accelopt.kernels.triton.emission.simplifying import product_in
from accelopt.kernels.triton.emission.tiles import LEAST_OF_DOT, Tiles, power_of_two

MOST_ELEMENTS = 1 << 15
"""Of a tile with all of its dimensions."""
MOST_DEFINITIONS = 64
"""Of an Algorithm: one with more is a loop that was unrolled, since what it carries has no form."""
LONGEST_ROW = 1 << 16
"""Elements of a row that one program holds."""
WORTH = 1.6
"""Times the least expected time that another way of joining definitions may be expected to take."""
LIMITED_WARPS = (8, 16)
"""Of a program whose registers may be limited so that a multiprocessor holds two: 128 or 64 a thread."""
NEAR = 1.15
"""Times its expected time in which a kernel is tried with and without a limit of registers."""
THREAD_SHARE = 16
"""Elements of the largest tile that a thread has best, other things equal."""
OPTIONS = 6
"""Ways of computing one kernel that are kept."""
THREAD_ELEMENTS = (4, 64)
"""Fewest and most elements of the largest tile that a thread has."""


class Plan(NamedTuple):
    """A schedule and the seconds that it is expected to take."""

    schedule: Schedule
    seconds: float


@dataclass(frozen=True)
class _Choice:
    """A group and the ways of computing it, the fastest first."""

    names: tuple[str, ...]
    raw: Group
    options: tuple[tuple[float, Kernel], ...]

    @property
    def seconds(self) -> float:
        """Of the fastest one."""
        return self.options[0][0]


def plans(algorithm: Algorithm, gpu: GPU, most: int = 8) -> list[Plan]:
    """The schedules that are expected to take least time. Raises NotEmitted where a definition has none."""
    if len(algorithm.definitions) > MOST_DEFINITIONS:
        raise NotEmitted(
            f"{len(algorithm.definitions)} definitions are more than the {MOST_DEFINITIONS} that are scheduled"
        )
    plain = prepared(algorithm)
    ways = [_ranked(algorithm, gpu, most, "")]
    for segments in segments_in(plain):
        with suppress(NotEmitted):
            ways.append(_ranked(algorithm, gpu, most, segments.name))
    # How long segments are is not known: the fastest of each way, in turn.
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ways))
    return [plan for plan in turns if plan is not None][:most]


def _ranked(algorithm: Algorithm, gpu: GPU, most: int, segments: str) -> list[Plan]:
    """The schedules of rows as they are, or segment by segment, that are expected to take least time."""
    found: dict[Schedule, float] = {}
    best: list[Plan] = []
    for splits in _splits(prepared(algorithm, segments=segments), gpu):
        known: dict[tuple[str, ...], _Choice | NotEmitted] = {}
        for alike in (False, True):
            try:
                ready = prepared(algorithm, splits, segments)
                choices = _grouped(ready, gpu, alike, known)
            except NotEmitted:
                if splits or alike:
                    continue
                raise
            for n, (kernels, seconds) in enumerate(_combinations(choices, most)):
                schedule = Schedule(kernels=kernels, segments=segments, splits=splits)
                if n == 0 and schedule not in found:
                    best.append(Plan(schedule, seconds))
                found.setdefault(schedule, seconds)
    fastest = min(found.values())
    best = sorted((p for p in best if p.seconds < fastest * WORTH), key=lambda p: p.seconds)
    ranked = [Plan(*pair) for pair in sorted(found.items(), key=lambda pair: pair[1])]
    first = [*best[: max(1, most // 2)], *ranked]
    return list(dict.fromkeys(first))[:most]


def _splits(algorithm: Algorithm, gpu: GPU) -> Iterator[tuple[Split, ...]]:
    """No reduction split; those split that give few results of many elements, in so many parts that all
    multiprocessors have programs, or in as many parts as there are programs of a whole row each."""
    yield ()
    starved: list[tuple[str, int, int]] = []
    for definition in algorithm.definitions:
        if not isinstance(definition, Reduce):
            continue
        results = math.prod(axis.extent for axis in definition.axes)
        summed = math.prod(axis.extent for axis in definition.reduced)
        along = definition.reduced and definition.reduced[-1] in _beside(
            Group((member_of(definition),)), arrays_of(algorithm)
        )
        tile = 64 * 64 if product_in(definition) is not None else 1 if along else 64
        programs = -(-results // tile)
        if programs < 2 * gpu.multiprocessors and summed >= 512:
            starved.append((definition.out, definition.reduced[0].extent, programs))
    for wanted in (1, 4, 0) if starved else ():
        made: dict[str, int] = {}
        for name, extent, programs in starved:
            several = wanted * gpu.multiprocessors // programs
            parts = min(extent, power_of_two(several) if wanted else 2 * gpu.multiprocessors)
            parts = min(extent, 1 << parts.bit_length() - 1)
            while parts > 1 and extent % parts and extent > 64:
                parts //= 2
            if parts > 1:
                made[name] = parts
        yield tuple(_alike(algorithm, made))


def _alike(algorithm: Algorithm, parts: Mapping[str, int]) -> Iterator[Split]:
    """Reductions in some parts, and in as many those of the same computed elements, which are in one kernel with
    them."""
    defined = {definition.out for definition in algorithm.definitions}
    sums = [d for d in algorithm.definitions if isinstance(d, Reduce) and d.reduced]
    read = {d.out: arrays_read(d) & defined for d in sums}
    for own in sums:
        same = [parts[d.out] for d in sums if d.out in parts and read[d.out] & read[own.out]
                and d.reduced[0].extent == own.reduced[0].extent]  # fmt: skip
        if same or own.out in parts:
            yield Split(definition=own.out, parts=min(same, default=parts.get(own.out, 1)))


def _grouped(
    algorithm: Algorithm, gpu: GPU, alike: bool,
    known: dict[tuple[str, ...], _Choice | NotEmitted],
) -> list[_Choice]:  # fmt: skip
    """The definitions in kernels, in an order in which they can be launched. Where only those that are
    `alike` are joined, no large one lacks an axis that programs have parts of. `known` keeps what was
    found of each."""
    arrays = arrays_of(algorithm)
    results = {array.name for array in algorithm.outputs}
    readers: dict[str, set[str]] = {}
    for definition in algorithm.definitions:
        for name in arrays_read(definition):
            readers.setdefault(name, set()).add(definition.out)

    def chosen(raw: Group) -> _Choice:
        if alike and len(raw.members) > 1 and _differ(raw):
            raise NotEmitted(f"{raw.members[0].out} is computed apart from others")
        names = tuple(member.out for member in raw.members)
        if names not in known:
            stored = [n for n in names if n in results or readers.get(n, set()) - {*names}]
            try:
                options = _options(joined(raw), names, arrays, stored, gpu)
                known[names] = _Choice(names, raw, options)
            except NotEmitted as error:
                known[names] = error
        choice = known[names]
        if isinstance(choice, NotEmitted):
            raise choice
        return choice

    found: list[_Choice] = []
    for definition in algorithm.definitions:
        raw = Group((member_of(definition),))
        try:
            alone: _Choice | None = chosen(raw)
        except NotEmitted as error:
            alone, refusal = None, error
        needed = arrays_read(definition)
        first = max((n for n, c in enumerate(found) if needed & {*c.names}), default=0)
        best: tuple[float, int, _Choice] | None = None
        for n in range(first, len(found)):
            group = with_member(found[n].raw, raw.members[0], arrays)
            if group is None and len(needed & {*found[n].names}) > 1:
                parts = [member_of(algorithm.definition(name)) for name in found[n].names]
                group = together(Group((parts[0],)), [*parts[1:], *raw.members], arrays)
            if group is None:
                continue
            try:
                joint = chosen(group)
            except NotEmitted:
                continue
            gained = found[n].seconds + (alone.seconds if alone else math.inf) - joint.seconds
            if best is None or gained > best[0]:
                best = gained, n, joint
        if first and needed & {*found[first - 1].names}:
            members = (*found[first].raw.members, *raw.members)
            group = together(found[first - 1].raw, members, arrays)
            with suppress(NotEmitted):
                all_of_it = chosen(group) if group is not None else None
                apart = found[first - 1].seconds + found[first].seconds - (best[0] if best else 0)
                apart += alone.seconds if alone else math.inf
                if all_of_it is not None and all_of_it.seconds <= apart:
                    found[first - 1 : first + 1] = [all_of_it]
                    continue
        if best is not None and best[0] >= 0:
            found[best[1]] = best[2]
        elif alone is not None:
            found.append(alone)
        else:
            raise refusal
    return _in_order(found)


def _differ(group: Group) -> bool:
    sizes = [math.prod(axis.extent for axis in member.axes) for member in group.members]
    return any(
        size * 16 > max(sizes) and not {*group.free} <= {*member.axes}
        for member, size in zip(group.members, sizes, strict=True)
    )


def _in_order(found: list[_Choice]) -> list[_Choice]:
    """Kernels behind those that they need."""
    waiting, order = list(found), list[_Choice]()
    while waiting:
        missing = {name for choice in waiting for name in choice.names}
        own = next((c for c in waiting if not needs(c.raw) & (missing - {*c.names})), None)
        if own is None:
            raise NotEmitted("two kernels need each other")
        order.append(own)
        waiting.remove(own)
    return order


def _combinations(choices: Sequence[_Choice], most: int) -> list[tuple[tuple[Kernel, ...], float]]:
    """The fastest way of each kernel, and others of one at a time of those that take most of the time."""
    best = tuple(choice.options[0][1] for choice in choices)
    total = sum(choice.seconds for choice in choices)
    found = [(best, total)]
    for n, choice in enumerate(choices):
        if choice.seconds * len(choices) < total * 0.7:
            continue
        for seconds, kernel in choice.options[1:]:
            made = (*best[:n], kernel, *best[n + 1 :])
            found.append((made, total - choice.seconds + seconds))
    found.sort(key=lambda pair: pair[1])
    return found[:most]


def _options(
    group: Group, names: tuple[str, ...], arrays: Mapping[str, Array], stored: Sequence[str], gpu: GPU,
) -> tuple[tuple[float, Kernel], ...]:  # fmt: skip
    """Ways of computing a group, those that differ most in their tiles among the fastest. Raises
    NotEmitted."""
    priced: list[tuple[float, Kernel]] = []
    refusal: NotEmitted | None = None
    for kernel in _described(group, _kernels(group, names, arrays), arrays, gpu):
        try:
            found = price(group, kernel, arrays, stored, gpu)
            if Tiles(group, kernel, stored).packable is not None:
                packed = kernel.model_copy(update={"packed": True})
                other = price(group, packed, arrays, stored, gpu)
                kernel, found = min((found, kernel), (other, packed), key=lambda p: p[0].seconds)[
                    ::-1
                ]
            uneven = 1 + 0.01 * _uneven(group, kernel)
            priced.append((found.seconds * uneven, kernel))
            limit = gpu.registers // (2 * kernel.warps * gpu.warp_threads)
            if kernel.warps in LIMITED_WARPS and found.registers > limit:
                limited = kernel.model_copy(update={"registers": limit})
                seconds = price(group, limited, arrays, stored, gpu).seconds
                priced.append((seconds * uneven, limited))
        except NotEmitted as error:
            refusal = refusal or error
    if not priced:
        raise refusal or NotEmitted(f"{names[0]}: no tile of it fits on a multiprocessor")
    priced.sort(key=lambda pair: pair[0])
    kept: list[tuple[float, Kernel]] = []
    for seconds, kernel in priced:
        apart = all(_apart(kernel, other) >= 2 for _, other in kept)
        if apart or any(
            seconds < least * NEAR
            and kernel == other.model_copy(update={"registers": kernel.registers})
            for least, other in kept
        ):
            kept.append((seconds, kernel))
        if len(kept) == OPTIONS:
            break
    return tuple(kept)


def _described(
    group: Group, kernels: Iterator[Kernel], arrays: Mapping[str, Array], gpu: GPU
) -> Iterator[Kernel]:
    """Kernels, and behind each the same with descriptors where these bring what its products read."""
    for kernel in kernels:
        yield kernel
        moves = kernel.walked and gpu.capability >= LEAST_CAPABILITY
        if moves and feeds_products(Tiles(group, kernel), arrays):
            yield kernel.model_copy(update={"descriptors": True})


def _uneven(group: Group, kernel: Kernel) -> float:
    """Halvings and doublings that the elements of a thread are away from what suits it."""
    largest = _largest(Tiles(group, kernel))
    return abs(math.log2(max(largest, 1) / (kernel.warps * 32 * THREAD_SHARE)))


def _largest(tiles: Tiles) -> int:
    """Elements of the largest tile that is computed element by element, or is a result."""
    return max(
        math.prod(tiles.sizes[a] for a in tiles.dims(axes))
        for member in tiles.group.members
        for axes in [member.definition.axes if tiles.product(member) is not None else member.axes]
    )


def _apart(one: Kernel, other: Kernel) -> int:
    """How many halvings and doublings two ways of computing a group differ by, and stages."""
    names = {tile.axis for tile in (*one.tiles, *other.tiles)}
    pairs = [(one.size(name), other.size(name)) for name in names]
    pairs.append((one.warps, other.warps))
    stages = abs(one.stages - other.stages)
    kinds = (one.walked != other.walked) + (one.descriptors != other.descriptors)
    return sum(abs(a.bit_length() - b.bit_length()) for a, b in pairs) + stages + 2 * kinds


def _kernels(group: Group, names: tuple[str, ...], arrays: Mapping[str, Array]) -> Iterator[Kernel]:
    """Tiles, warps and stages to choose among."""
    products = [m.product for m in group.members if m.product is not None]
    each = [side for p in products for side in (p.rows, p.columns, p.contracted)]
    # of a side's axes one has a tile: that which is reduced elsewhere, where one is
    sides = {a for side in each for a in side if a in group.reduced or not {*side} & group.reduced}
    beside = _beside(group, arrays)
    sizes: list[list[int]] = []
    for axis in group.free:
        limit = power_of_two(axis.extent)
        if axis in sides:
            whole = max(LEAST_OF_DOT, limit)
            least = min(axis.extent, 1024) // 16
            sizes.append([s for s in (16, 32, 64, 128, 256, 512) if least <= s <= whole])
        elif products:
            sizes.append([1])
        elif axis in beside:
            wide = [16, 32, 64, 128] if group.reduced else [256, 512, 1024, 2048, 4096]
            own = {axis in member.definition.axes for member in group.members}
            wide += [limit] if group.reduced and own == {True, False} and limit <= 1024 else []
            sizes.append(sorted({s for s in wide if s <= limit}) or [limit])
        else:
            sizes.append([s for s in (1, 2, 4, 8, 16, 32) if s <= limit])
    scanned = {m.definition.along for m in group.members if isinstance(m.definition, Scan)}
    walks: list[tuple[Axis | None, int]] = [(None, 1)]
    for axis in sorted(group.reduced - scanned, key=lambda a: -a.extent)[:2]:
        limit = power_of_two(axis.extent)
        if axis in sides:
            wide = [16, 32, 64, 128]
        elif axis in beside:
            wide = [256, 1024, 2048, 4096]
        else:
            wide = [1, 4, 16, 32, 64]
        walks += [(axis, s) for s in wide if s < limit]
    for walked, step in walks:
        held = [power_of_two(a.extent) for a in group.reduced if a != walked]
        if math.prod(held) > LONGEST_ROW:
            continue
        for chosen in itertools.product(*sizes):
            tiles = [
                Tile(axis=a.name, size=s) for a, s in zip(group.free, chosen, strict=True) if s > 1
            ]
            if walked is not None:
                tiles.append(Tile(axis=walked.name, size=step))
            kernel = Kernel(members=names, tiles=tuple(tiles), walked=walked.name if walked else "")
            yield from _configured(group, kernel, bool(products))


def _configured(group: Group, kernel: Kernel, products: bool) -> Iterator[Kernel]:
    """Warps and stages for some tiles, where they fit together."""
    tiles = Tiles(group, kernel)
    largest = _largest(tiles)
    if largest > max(
        MOST_ELEMENTS, max((power_of_two(a.extent) for a in group.reduced), default=0)
    ):
        return
    low, high = THREAD_ELEMENTS
    two = len(tiles.grid) == 2 and any(
        {*p.rows, *p.columns} == {*tiles.grid}
        for p in map(tiles.product, group.members)
        if p is not None
    )
    for warps in (1, 2, 4, 8, 16, 32):
        share = largest / (warps * 32)
        if not (low <= share <= high * (1 + products) or (warps == 1 and share < low)):
            continue
        if products and warps not in (4, 8):
            continue
        stages = (2, 3, 4) if products and kernel.walked else (2,)
        for count in stages:
            together = 8 if two else 1
            yield kernel.model_copy(update={"warps": warps, "stages": count, "together": together})
    if products and largest / 128 < low:
        yield kernel.model_copy(update={"warps": 4, "stages": 3})


def _beside(group: Group, arrays: Mapping[str, Array]) -> set[Axis]:
    """The axes along which elements lie beside each other in memory, of what most elements are read of."""
    places = [
        flat(read, arrays)
        for member in group.members
        for read in member.reads
        if group.member(read.array) is None
    ]
    sizes = [math.prod(axis.extent for axis in place.axes) for place in places]
    most = max(sizes, default=0)
    return {
        axis
        for place, size in zip(places, sizes, strict=True)
        for term, factor in place.terms
        for axis in (term.inner.axes if isinstance(term, Floor) else (term,))
        if factor == (term.divisor if isinstance(term, Floor) else 1) and size * 4 >= most
    }
