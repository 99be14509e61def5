"""What a DMA transfer costs: descriptors, the engines they go to, bytes.

A descriptor moves one run of bytes that is contiguous on both sides. Partitions map to DMA engines
eight at a time, so a tile of few partitions uses few engines (nki-dma-overview).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accelopt.sim.access import Access
from accelopt.sim.spec import Spec
from accelopt.sim.timing.cells import row_elements
from accelopt.sim.timing.expansion import Instances


class Transfer(NamedTuple):
    """One DMA instance."""

    first_engine: int
    engines: int
    engine_ns: float  # time on each of its engines
    bytes: int
    descriptors: int
    hbm_read: int
    hbm_write: int
    conflict_ns: float = 0.0  # time at the HBM channel that its rows share, 0 when they do not


class Layout(NamedTuple):
    """How the rows of a transfer lie in HBM."""

    contiguous: bool = False  # each row follows the one before
    conflicting: bool = False  # rows fall on the same HBM channel


def descriptor_ns(run_bytes: float, layout: Layout, spec: Spec) -> float:
    """Time of one descriptor on its engine."""
    slope = (
        spec.dma_contiguous_ns_per_byte
        if layout.contiguous
        else spec.dma_small_descriptor_ns_per_byte
    )
    floor = min(spec.dma_descriptor_ns, spec.dma_small_descriptor_ns + slope * run_bytes)
    return max(floor, spec.dma_overhead_ns + run_bytes / spec.dma_bytes_per_ns)


def hbm_layout(access: Access, spec: Spec) -> Layout:
    """Whether the partitions of a tile follow each other in HBM, or collide there."""
    if access.partitions <= 1:
        return Layout()
    step = access.strides[0] * access.dtype.itemsize
    return Layout(
        contiguous=run_elements(access) == access.free_elements == access.strides[0],
        conflicting=step != 0 and step % spec.hbm_conflict_stride == 0,
    )


def run_elements(access: Access) -> int:
    """Elements of the longest piece of a partition's part of the tile that is contiguous."""
    run = 1
    axes = list(zip(access.shape[1:], access.strides[1:], strict=True))
    for size, stride in reversed(axes):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return run


def transfers(item: Instances, spec: Spec) -> list[Transfer]:
    """The DMA costs of all iterations of one transfer."""
    operation = item.operation
    source, target = operation.reads[0], operation.writes[0]
    n = item.positions.size
    size = min(source.dtype.itemsize, target.dtype.itemsize)
    run = min(run_elements(source), run_elements(target))
    chip = next((a for a in (target, source) if a.tensor.buffer.on_chip), None)
    transposed = bool(operation.instruction and operation.instruction.attributes.get("transpose"))
    reads_hbm = not source.tensor.buffer.on_chip
    writes_hbm = not target.tensor.buffer.on_chip
    hbm = next((a for a in (source, target) if not a.tensor.buffer.on_chip), None)
    layout = hbm_layout(hbm, spec) if hbm else Layout()
    if n == 1 and item.partitions is None:
        start = None
        if chip:
            values = {variable: int(array[0]) for variable, array in item.values.items()}
            start = chip.offset.evaluate(values) // row_elements(chip)
        only = _transfer(
            target.partitions, target.free_elements, start, run, size, transposed, layout, spec
        )
        return [
            only._replace(
                hbm_read=only.bytes if reads_hbm else 0, hbm_write=only.bytes if writes_hbm else 0
            )
        ]
    partitions = item.partitions if item.partitions is not None else _full(n, target.partitions)
    elements = item.elements if item.elements is not None else _full(n, target.free_elements)
    first = _first_partition(chip, item, n)
    made: dict[tuple[int, int, int], Transfer] = {}
    result: list[Transfer] = []
    for p, e, start in zip(partitions.tolist(), elements.tolist(), first.tolist(), strict=True):
        key = (p, e, start)
        transfer = made.get(key)
        if transfer is None:
            transfer = _transfer(
                p, e, start if chip else None, min(run, e), size, transposed, layout, spec
            )
            transfer = transfer._replace(
                hbm_read=transfer.bytes if reads_hbm else 0,
                hbm_write=transfer.bytes if writes_hbm else 0,
            )
            made[key] = transfer
        result.append(transfer)
    return result


def _full(n: int, value: int) -> np.ndarray:
    return np.full(n, value, dtype=np.int64)


def _first_partition(chip: Access | None, item: Instances, n: int) -> np.ndarray:
    if chip is None:
        return np.zeros(n, dtype=np.int64)
    offset = np.broadcast_to(chip.offset.evaluate_many(item.values), (n,))
    return np.asarray(offset // row_elements(chip))


def _transfer(
    partitions: int,
    elements: int,
    first: int | None,
    run: int,
    size: int,
    transposed: bool,
    layout: Layout,
    spec: Spec,
) -> Transfer:
    share = spec.dma_partitions_per_engine
    per_partition = -(-elements // max(run, 1))
    descriptors = partitions * per_partition
    total = partitions * elements * size
    if first is None:
        engines, begin = min(spec.dma_engines, descriptors), 0
        busiest = -(-descriptors // engines)
    else:
        begin = first // share
        engines = min(-(-(first % share + partitions) // share), spec.dma_engines)
        busiest = min(partitions, share) * per_partition
    time = busiest * descriptor_ns(run * size, layout, spec)
    if transposed:
        time = max(time, total / engines / (spec.dma_bytes_per_ns * spec.dma_transpose_fraction))
    conflict = 0.0
    if layout.conflicting:
        each = spec.hbm_conflict_ns + run * size / spec.hbm_conflict_bytes_per_ns
        conflict = descriptors * each
    return Transfer(begin % spec.dma_engines, engines, time, total, descriptors, 0, 0, conflict)


def spill_transfer(bytes_per_partition: int, partitions: int, save: bool, spec: Spec) -> Transfer:
    """Moving one unit of SBUF to HBM or back."""
    transfer = _transfer(
        partitions, bytes_per_partition, 0, bytes_per_partition, 1, False, Layout(), spec
    )
    return transfer._replace(
        hbm_write=transfer.bytes if save else 0, hbm_read=0 if save else transfer.bytes
    )
