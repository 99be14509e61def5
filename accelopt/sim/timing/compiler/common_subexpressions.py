"""What the compiler computes once although the source says it several times.

Value numbering over the unrolled program, in program order: an instance that does the same thing to
the same values as an earlier one is removed, and its readers read the earlier result. Invariant work
leaves its loop this way, repeated loads are read once. The reuse is given up when too much else is
defined in between: the compiler repeats what it would otherwise have to keep or spill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer, LoopKind
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import BROADCAST, Decisions, Operation
from accelopt.sim.timing.stream.stream import Stream


def merge_repeated(stream: Stream, bounds: CompilerBounds, decisions: Decisions) -> bool:
    """Removes repeated work from the stream, in place, within the windows of `compiler_constants`. True when
    anything was removed."""
    signatures = _signatures(stream)
    if not _may_repeat(stream, signatures):
        return False
    loads = by_form(stream.instances, lambda form: any(map(_in_hbm, form.reads)))
    places = [
        None if signature is None else _places(item, cells)
        for item, signature, cells in zip(
            stream.instances, signatures, stream.read_cells, strict=True
        )
    ]
    window_of = [
        inf if item.loops and bounds.merge_over_sequential and _in_sequential_loop(item)
        else bounds.load_window_bytes if is_load and signature is not None
        else bounds.merge_window_bytes
        for item, is_load, signature in zip(stream.instances, loads, signatures, strict=True)
    ]  # fmt: skip
    kept = [bounds.kept_load_bytes if is_load else bounds.kept_result_bytes for is_load in loads]
    numbering = _Numbering(stream, kept, places)
    defined = _Defined(stream)
    removed: set[int] = set()
    for at, kind in enumerate(stream.kind):
        signature = signatures[kind]
        numbering.count(kind)
        defined.before.append(defined.total)
        if signature is None or not numbering.single(at):
            numbering.new_values(at)
        elif numbering.repeats(at, signature, defined.before, window_of[kind]):
            removed.add(at)
            continue
        defined.begin(at)
    if not removed:
        return False
    kinds = [stream.kind[at] for at in sorted(removed)]
    stream.tell(decisions, "{} is done once for several iterations", kinds)
    drop(stream, removed, numbering.alias)
    return True


class _Numbering:
    """What is in each cell: the version of a result, and where in the tile that version begins.
    Cells say who may have written what an instance reads; what makes two reads equal is the same part
    of the same versions, in bytes, however the tiles are cut."""

    def __init__(self, stream: Stream, kept: list[float], places: list[_Places | None]) -> None:
        self.stream = stream
        self.once = _written_once(stream)
        self.kept = kept  # by operation: most bytes a partition that are kept from want to want
        self.places = places
        self.ordinal: list[int] = []  # of each instance among those of its operation
        self.times: dict[int, int] = {}  # by operation: its instances up to now
        self.iterated = [item.positions.size > 1 for item in stream.instances]
        self.version = list(range(len(self.once)))
        self.origin = [0] * len(self.once)
        self.fresh = len(self.once)
        self.made: dict[tuple[object, ...], int] = {}  # by what was done: the version it made
        self.alias: dict[int, int] = {}  # cell of removed work -> the cell that has its value
        # By what was done and by whom: where it was done, and where it was wanted last.
        self.seen: dict[tuple[object, ...], tuple[int, int]] = {}
        self.latest: dict[tuple[object, ...], int] = {}  # by what was done: where it was done last

    def count(self, kind: int) -> None:
        """One more instance of an operation."""
        self.ordinal.append(self.times.get(kind, 0))
        self.times[kind] = self.ordinal[-1] + 1

    def single(self, at: int) -> bool:
        """True when an instance writes, and only cells that nobody else writes."""
        once, writes = self.once, self.stream.writes[at]
        return bool(writes) and False not in [once[cell] for cell in writes]

    def new_values(self, at: int) -> None:
        """What an instance writes is like nothing that was there before."""
        for cell in self.stream.writes[at]:
            self.version[cell] = self.fresh
            self.origin[cell] = 0
            self.fresh += 1

    def _reads(self, at: int, places: _Places) -> Iterator[tuple[tuple[int, int], ...]]:
        """Of each tile that an instance reads, the versions, and how far behind the beginning of
        each what it reads begins."""
        version, origin = self.version, self.origin
        cells = self.stream.reads[at]
        row = places.reads[self.stream.row[at]]
        for place, (first, last) in zip(row, places.cells, strict=True):
            if last - first == 1:
                cell = cells[first]
                yield ((version[cell], place - origin[cell]),)
            else:
                found = [(version[cell], place - origin[cell]) for cell in cells[first:last]]
                yield tuple(dict.fromkeys(found))

    def repeats(self, at: int, signature: int, defined: list[float], window: float) -> bool:
        """True when an instance of the same instruction, or one beside this, did the same to the
        same values before, within the window; its results then stand for this one's."""
        alias, writes = self.alias, self.stream.writes
        kind, row = self.stream.kind[at], self.stream.row[at]
        places = self.places[kind]
        assert places is not None
        does = (signature, places.others[row], *self._reads(at, places))
        made = self.made.get(does)
        if made is None:
            made = self.made[does] = self.fresh
            self.fresh += 1
        begins = places.writes[row]
        for cell in writes[at]:
            self.version[cell] = made
            self.origin[cell] = begins
        # A tile that is cut into other pieces cannot stand for this one piece by piece.
        weight = self.stream.cell_weight
        key = (made, *[weight[cell] for cell in writes[at]])
        own = (kind, *key) if self.iterated[kind] else None
        latest = self.latest.get(key)
        found = self.seen.get(own) if own else None
        within = found is not None and defined[at] - defined[found[1]] <= window
        if not within and latest is not None and self._side_by_side(at, latest):
            found = (latest, latest)
        if found is not None and not self._fits(at, found[1]):
            found = None
        if found is not None and defined[at] - defined[found[1]] <= window:
            done = found[0]
            if own:
                self.seen[own] = (done, at)
            for mine, theirs in zip(writes[at], writes[done], strict=True):
                alias[mine] = alias.get(theirs, theirs)
            return True
        if own:
            self.seen[own] = (at, at)
        self.latest[key] = at
        return False

    def _fits(self, at: int, wanted: int) -> bool:
        """Whether what an operation made since a value was wanted last is no more than the compiler
        keeps: where a loop in between changes the value, keeping it takes an array."""
        kind = self.stream.kind[at]
        if self.kept[kind] == inf or kind != self.stream.kind[wanted]:
            return True
        units, cell_unit = self.stream.units, self.stream.cell_unit
        size = sum(
            units[unit].bytes for unit in {cell_unit[cell] for cell in self.stream.writes[at]}
        )
        return (self.ordinal[at] - self.ordinal[wanted] - 1) * size <= self.kept[kind]

    def _side_by_side(self, at: int, done: int) -> bool:
        """True for two instructions in one iteration of the same loops. Work in sibling loops is
        done again: the compiler moves what is invariant out of a loop but does not look from one
        loop into the next."""
        stream = self.stream
        here, there = (stream.instances[stream.kind[one]] for one in (at, done))
        if here.loops != there.loops:
            return False
        return not here.loops or bool(
            np.array_equal(here.iterations[stream.row[at]], there.iterations[stream.row[done]])
        )


def merge_loads(stream: Stream, bounds: CompilerBounds, decisions: Decisions) -> None:
    """Drops loads of what a tile already holds, in place, by a compiler that merges nothing else: both
    fill a whole tile that nobody else writes, of a tensor that the kernel does not write, and the loads
    since the first brought no more than is kept. Blocks that several loads fill are loaded again."""
    signatures = _signatures(stream)
    loads = by_form(
        stream.instances,
        lambda form: form.is_dma and all(map(_in_hbm, form.reads)) and not form.is_store,
    )
    places = [
        _places(item, ()) if load and signature is not None else None
        for item, load, signature in zip(stream.instances, loads, signatures, strict=True)
    ]
    whole = [len(cells) for cells in stream.cells_of_units()]
    writes = Counter(chain.from_iterable(stream.writes))
    seen: dict[tuple[object, ...], tuple[int, float]] = {}  # by what is loaded: by whom, bytes then
    loaded = 0.0
    alias: dict[int, int] = {}
    removed: set[int] = set()
    for at, (kind, row) in enumerate(zip(stream.kind, stream.row, strict=True)):
        if not loads[kind]:
            continue
        place, cells = places[kind], stream.writes[at]
        target = stream.instances[kind].operation.writes[0]
        alone = {writes[cell] for cell in cells} == {1} and not stream.reads[at]
        if place and alone and len(cells) == whole[stream.cell_unit[cells[0]]]:
            does = (signatures[kind], place.others[row])
            done, then = seen.get(does, (at, -inf))
            alike = len(cells) == len(stream.writes[done])  # others read both in the same parts
            if alike and loaded - then <= bounds.kept_load_bytes:
                alias.update(zip(cells, stream.writes[done], strict=True))
                removed.add(at)
                continue
            seen[does] = at, loaded
        loaded += target.free_elements * target.dtype.itemsize * target.partitions / 128
    kinds = [stream.kind[at] for at in sorted(removed)]
    stream.tell(decisions, "what a tile already holds is not loaded again", kinds)
    drop(stream, removed, alias)


def _written_once(stream: Stream) -> list[bool]:
    """For each cell, whether one instance writes it and the kernel does not say that each iteration
    of a loop has its own."""
    writes = np.bincount(
        np.fromiter(chain.from_iterable(stream.writes), np.int64), minlength=len(stream.cell_unit)
    )
    own = np.array([unit.depth > 0 and not unit.tensor.temporary for unit in stream.units], bool)
    once: list[bool] = ((writes == 1) & ~own[np.asarray(stream.cell_unit, np.int64)]).tolist()
    return once


def drop(stream: Stream, removed: set[int], alias: dict[int, int]) -> None:
    """Takes instances out of the stream and lets readers of aliased cells read the originals."""
    keep = [at for at in range(len(stream)) if at not in removed]
    stream.kind = [stream.kind[at] for at in keep]
    stream.row = [stream.row[at] for at in keep]
    stream.writes = [stream.writes[at] for at in keep]
    if alias:
        get = alias.get
        stream.reads = [[get(cell, cell) for cell in stream.reads[at]] for at in keep]
    else:
        stream.reads = [stream.reads[at] for at in keep]


def _may_repeat(stream: Stream, signatures: list[int | None]) -> bool:
    """Quick look: is there any site whose instances, or two sites alike, could repeat? Only loads
    start a chain of repeats, and work on what is already in place."""
    known: set[int] = set()
    for item, signature in zip(stream.instances, signatures, strict=True):
        if signature is not None:
            if item.positions.size > 1 or signature in known:
                return True
            known.add(signature)
    return False


def _in_sequential_loop(item: Instances) -> bool:
    """Work inside of a sequential loop that does not depend on an outer loop left it in lora
    (NKIBench) however much lay in between; the same work in matmul's affine loops stayed."""
    return len(item.loops) > 1 and any(loop.kind is LoopKind.SEQUENTIAL for loop in item.loops[1:])


def _rows_for_broadcast(stream: Stream) -> set[Operation]:
    """Loads, in loops, of one row that is only ever spread over partitions, and the spreading: mamba
    (NKIBench) repeats both for every channel tile, mamba_v2 of trn2, which Python unrolls, does not."""
    rows = [
        item.operation
        for item in stream.instances
        if item.loops
        and item.form.is_dma
        and any(access.partitions == 1 for access in item.form.writes[:1])
    ]
    if not rows:
        return set()
    readers: dict[object, list[Operation]] = {}
    for item in stream.instances:
        for access in item.operation.reads:
            readers.setdefault(access.tensor, []).append(item.operation)
    found: set[Operation] = set()
    for operation in rows:
        users = readers.get(operation.writes[0].tensor, [])
        if users and all(user.opcode is BROADCAST for user in users):
            found.add(operation)
            found.update(users)
    return found


def _signatures(stream: Stream) -> list[int | None]:
    """For each operation a number for what it does; None when it must not be merged."""
    numbers: dict[tuple[object, ...], int] = {}

    def number(form: Operation) -> int | None:
        signature = _signature(form)
        return None if signature is None else numbers.setdefault(signature, len(numbers))

    does = by_form(stream.instances, number)
    apart: dict[object, int] = {}
    found = [
        None
        if signature is None
        or _masks_by_iteration(item.operation)
        or any(access.tensor in stream.shared for access in item.operation.reads)
        else apart.setdefault((signature, _operands(item.operation)), len(apart))
        for item, signature in zip(stream.instances, does, strict=True)
    ]
    broadcast_rows = _rows_for_broadcast(stream)
    if not broadcast_rows:
        return found
    return [
        None if item.operation in broadcast_rows else signature
        for item, signature in zip(stream.instances, found, strict=True)
    ]


def _signature(operation: Operation) -> tuple[object, ...] | None:
    """What an operation does, apart from where its data lie; None when it must not be merged."""
    if operation.opcode.ordered or operation.accumulates or operation.is_store:
        return None
    if operation.kept and not operation.is_dma:
        return None
    if operation.belongs_to_matmul or len(operation.writes) != 1:
        return None
    attributes: tuple[object, ...] = ()
    instruction = operation.instruction
    if instruction:
        if "loops" in instruction.attributes:
            return None
        if instruction.mask.constraints and not operation.is_dma:
            return None
        if any(isinstance(v, (Affine, Mask)) for v in instruction.attributes.values()):
            return None
        if any(access.indirect for access in operation.accesses):
            return None
        attributes = tuple(sorted((k, str(v)) for k, v in instruction.attributes.items()))
        attributes += tuple(_directions(c) for c in instruction.mask.constraints)
    return (
        operation.opcode,
        operation.queue,
        operation.again,
        attributes,
        tuple(map(_layout, operation.reads)),
        tuple(map(_layout, operation.writes)),
    )


def _operands(operation: Operation) -> tuple[object, ...]:
    """What operands and results are called, and which of their elements count."""
    instruction = operation.instruction
    if instruction is None:
        return ()
    masks = [access.mask for access in operation.accesses if access.mask.constraints]
    return (*instruction.inputs, *instruction.outputs, *masks)


def _masks_by_iteration(operation: Operation) -> bool:
    """True when which elements of an operand count changes from iteration to iteration."""
    return any(
        cut.loop_variables for access in operation.accesses for cut in access.mask.constraints
    )


def _directions(constraint: Affine) -> tuple[tuple[int, int], ...]:
    """Along which axes of the tile a condition cuts."""
    return tuple(sorted(constraint.split()[1].items()))


def _layout(access: Access) -> tuple[object, ...]:
    return (access.shape, access.strides, access.dtype.str, access.tensor.buffer.on_chip)


def _in_hbm(access: Access) -> bool:
    return not access.tensor.buffer.on_chip


class _Places(NamedTuple):
    """Where the accesses of an operation begin in each of its iterations, in bytes of a tile."""

    cells: list[tuple[int, int]]  # of each read that has cells: its own among those of all reads
    reads: list[tuple[int, ...]]  # of those reads
    writes: list[int]
    others: list[tuple[int, ...]]  # of reads of all HBM: tensor and place; where conditions cut


def _places(item: Instances, read_cells: tuple[tuple[int, int], ...]) -> _Places:
    operation, n = item.operation, item.positions.size
    ends = [0, *accumulate(count for _, count in read_cells)]
    others: list[Affine] = []
    for access in filter(_in_hbm, operation.reads):
        others += [Affine(access.tensor.id), access.offset]
    if operation.instruction is not None:
        others += [cut.split()[0] for cut in operation.instruction.mask.constraints]

    def rows(numbers: list[Affine], sizes: list[int]) -> list[tuple[int, ...]]:
        if all(number.is_constant for number in numbers):
            constant = [one.constant * size for one, size in zip(numbers, sizes, strict=True)]
            return [tuple(constant)] * n
        columns = [
            np.broadcast_to(one.evaluate_many(item.values) * size, (n,)).tolist()
            for one, size in zip(numbers, sizes, strict=True)
        ]
        return list(zip(*columns, strict=True))

    reads = [operation.reads[at] for at, _ in read_cells]
    (write,) = operation.writes
    return _Places(
        list(pairwise(ends)),
        rows([access.offset for access in reads], [access.dtype.itemsize for access in reads]),
        [place for (place,) in rows([write.offset], [write.dtype.itemsize])],
        rows(others, [1] * len(others)),
    )


class _Defined:
    """Bytes per partition of the SBUF units that work which stays has begun."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.before: list[float] = []  # each instance that was looked at
        self.total = 0.0
        self.begun: set[int] = set()

    def begin(self, at: int) -> None:
        """Counts the units that an instance is the first to write."""
        stream = self.stream
        for cell in stream.writes[at]:
            unit = stream.cell_unit[cell]
            if unit not in self.begun:
                self.begun.add(unit)
                info = stream.units[unit]
                if info.tensor.buffer is Buffer.SBUF:
                    self.total += info.bytes * info.partitions / 128


def remove_dead(stream: Stream, decisions: Decisions) -> None:
    """Takes out what nobody reads, backwards from the stores."""
    needed = bytearray(len(stream.cell_unit))
    removed: set[int] = set()
    is_store = by_form(stream.instances, lambda form: form.is_store or form.kept)
    for at in range(len(stream) - 1, -1, -1):
        writes = stream.writes[at]
        if is_store[stream.kind[at]] or not writes or 1 in [needed[cell] for cell in writes]:
            for cell in stream.reads[at]:
                needed[cell] = 1
        else:
            removed.add(at)
    if not removed:
        return
    kinds = [stream.kind[at] for at in sorted(removed, reverse=True)]
    stream.tell(decisions, "{} is never read", kinds)
    drop(stream, removed, {})
