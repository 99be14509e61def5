"""What the compiler computes once although the source says it several times.

Value numbering over the unrolled program, in program order: an instance that does the same thing to
the same values as an earlier one is removed, and its readers read the earlier result. Invariant work
leaves its loop this way, repeated loads are read once. The reuse is given up when too much else is
defined in between: the compiler repeats what it would otherwise have to keep or spill.
"""

from __future__ import annotations

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer, LoopKind
from accelopt.sim.timing.cells import Stream
from accelopt.sim.timing.expansion import Instances
from accelopt.sim.timing.operation import Decision, Operation

NEVER_MERGED = frozenset({"random", "dropout", "all_reduce", "loop_reduce", "print"})


def merge_repeated(
    stream: Stream,
    work_window: float,
    load_window: float,
    over_sequential: bool,
    decisions: list[Decision],
) -> bool:
    """Removes repeated work from the stream, in place. The windows bound what may be defined in
    SBUF, bytes per partition, between two occurrences of an instruction or of a load; they do not
    apply inside of sequential loops when `over_sequential`. True when anything was removed."""
    writes_of = np.zeros(len(stream.cell_unit), np.int64)
    for cells in stream.writes:
        for cell in cells:
            writes_of[cell] += 1
    once = (writes_of == 1).tolist()
    for cell, unit in enumerate(stream.cell_unit):
        info = stream.units[unit]
        if info.depth and not info.tensor.temporary:
            once[cell] = False  # the kernel says where this tile lives: in each iteration anew
    broadcast_rows = _rows_for_broadcast(stream)
    signatures = [
        None if item.operation in broadcast_rows else _signature(item.operation)
        for item in stream.instances
    ]
    if not any(_may_repeat(stream, signatures)):
        return False
    keys = [_load_keys(item) if s is not None else None
            for item, s in zip(stream.instances, signatures, strict=True)]  # fmt: skip
    patient = [over_sequential and _in_sequential_loop(item) for item in stream.instances]
    defined = _defined_bytes(stream)
    value = list(range(len(once)))
    alias: dict[int, int] = {}
    seen: dict[tuple[object, ...], list[int]] = {}
    removed: set[int] = set()
    fresh = len(once)
    counts: dict[int, int] = {}
    for at, kind in enumerate(stream.kind):
        reads, writes = stream.reads[at], stream.writes[at]
        signature = signatures[kind]
        if signature is not None and writes and all(once[cell] for cell in writes):
            key_list = keys[kind]
            key = (
                signature,
                key_list[stream.row[at]] if key_list is not None else None,
                *[value[alias.get(cell, cell)] for cell in reads],
            )
            earlier = seen.get(key)
            if earlier is None:
                seen[key] = [at, at]
            else:
                window = load_window if key_list is not None else work_window
                if patient[kind] or defined[at] - defined[earlier[1]] <= window:
                    earlier[1] = at
                    for mine, theirs in zip(writes, stream.writes[earlier[0]], strict=True):
                        alias[mine] = alias.get(theirs, theirs)
                    removed.add(at)
                    counts[kind] = counts.get(kind, 0) + 1
                    continue
                for mine, theirs in zip(writes, stream.writes[earlier[0]], strict=True):
                    value[mine] = value[alias.get(theirs, theirs)]  # the same, at another place
                earlier[0] = earlier[1] = at
                continue
        for cell in writes:
            value[cell] = fresh
            fresh += 1
    if not removed:
        return False
    for kind, count in counts.items():
        operation = stream.instances[kind].operation
        decisions.append(
            Decision("merge_repeated", f"{operation.label} is done once for several iterations",
                     operation.source, count)
        )  # fmt: skip
    drop(stream, removed, alias)
    return True


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


def _may_repeat(stream: Stream, signatures: list[tuple[object, ...] | None]) -> list[bool]:
    """Quick look: is there any site whose instances, or two sites alike, could repeat? Only loads
    start a chain of repeats, and work on what is already in place."""
    out: list[bool] = []
    known: set[tuple[object, ...]] = set()
    for item, signature in zip(stream.instances, signatures, strict=True):
        if signature is None:
            out.append(False)
            continue
        out.append(item.positions.size > 1 or signature in known)
        known.add(signature)
    return out


def _in_sequential_loop(item: Instances) -> bool:
    """Work inside of a sequential loop that does not depend on an outer loop left it in lora
    (NKIBench) however much lay in between; the same work in matmul's affine loops stayed."""
    return len(item.loops) > 1 and any(loop.kind is LoopKind.SEQUENTIAL for loop in item.loops[1:])


def _rows_for_broadcast(stream: Stream) -> set[Operation]:
    """Loads, inside loops, of one row that is only ever spread over partitions, and the spreading:
    mamba (NKIBench) repeats both for every channel tile."""
    readers: dict[object, list[Operation]] = {}
    for item in stream.instances:
        for access in item.operation.reads:
            readers.setdefault(access.tensor, []).append(item.operation)
    found: set[Operation] = set()
    for item in stream.instances:
        operation = item.operation
        if not (operation.is_dma and item.loops and operation.writes[0].partitions == 1):
            continue
        users = readers.get(operation.writes[0].tensor, [])
        if users and all(user.opcode == "broadcast" for user in users):
            found.add(operation)
            found.update(users)
    return found


def _signature(operation: Operation) -> tuple[object, ...] | None:
    """What an operation does, apart from where its data lie; None when it must not be merged."""
    if operation.opcode in NEVER_MERGED or operation.accumulates or operation.is_store:
        return None
    if operation.belongs_to_matmul or len(operation.writes) != 1:
        return None
    attributes: tuple[object, ...] = ()
    instruction = operation.instruction
    if instruction:
        if instruction.mask.constraints and not operation.is_dma:
            return None
        if any(isinstance(v, (Affine, Mask)) for v in instruction.attributes.values()):
            return None
        if any(access.indirect for access in operation.reads):
            return None
        attributes = tuple(sorted((k, str(v)) for k, v in instruction.attributes.items()))
    return (
        operation.opcode,
        operation.queue,
        attributes,
        tuple(map(_layout, operation.reads)),
        tuple(map(_layout, operation.writes)),
    )


def _layout(access: Access) -> tuple[object, ...]:
    return (access.shape, access.strides, access.dtype.str, access.tensor.buffer.on_chip)


def _load_keys(item: Instances) -> list[tuple[int, ...]] | None:
    """What each instance reads in HBM: tensor, offset, extent."""
    hbm = [a for a in item.operation.reads if not a.tensor.buffer.on_chip]
    if not hbm:
        return None
    n = item.positions.size
    columns = []
    for access in hbm:
        columns.append(np.full(n, access.tensor.id))
        columns.append(np.broadcast_to(access.offset.evaluate_many(item.values), (n,)))
    for extent in (item.partitions, item.elements):
        if extent is not None:
            columns.append(extent)
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def _defined_bytes(stream: Stream) -> list[float]:
    """Bytes per partition of SBUF units begun before each instance."""
    begun: set[int] = set()
    total = 0.0
    out: list[float] = []
    for writes in stream.writes:
        out.append(total)
        for cell in writes:
            unit = stream.cell_unit[cell]
            if unit not in begun:
                begun.add(unit)
                info = stream.units[unit]
                if info.tensor.buffer is Buffer.SBUF:
                    total += info.bytes * info.partitions / 128
    return out


def remove_dead(stream: Stream, decisions: list[Decision]) -> None:
    """Takes out what nobody reads, backwards from the stores."""
    needed: set[int] = set()
    removed: set[int] = set()
    counts: dict[int, int] = {}
    is_store = [item.operation.is_store or item.operation.kept for item in stream.instances]
    for at in range(len(stream) - 1, -1, -1):
        kind = stream.kind[at]
        writes = stream.writes[at]
        if is_store[kind] or not writes or any(cell in needed for cell in writes):
            needed.update(stream.reads[at])
        else:
            removed.add(at)
            counts[kind] = counts.get(kind, 0) + 1
    if not removed:
        return
    for kind, count in counts.items():
        operation = stream.instances[kind].operation
        decisions.append(
            Decision("remove_dead", f"{operation.label} is never read", operation.source, count)
        )
    drop(stream, removed, {})
