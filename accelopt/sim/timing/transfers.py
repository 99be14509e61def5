"""What a DMA transfer costs: buffers, the engines they go to, bytes.

A transfer gathers a list of source buffers and scatters them into a list of destination buffers, each
contiguous where it lies, and pays for every entry of both lists (arch guide). Partitions map to DMA
engines eight at a time, so a tile of few partitions uses few engines (nki-dma-overview).
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
    descriptors: int  # entries of the longer list
    hbm_read: int
    hbm_write: int
    conflict_ns: float = 0.0  # time at the HBM channel that its rows share, 0 when they do not


class Layout(NamedTuple):
    """How the data of a transfer lie on both sides, in elements of `size` bytes."""

    size: int
    source_run: int  # elements that are contiguous, within a partition
    target_run: int
    hbm_run: int
    contiguous: bool = False  # in HBM each row follows the one before
    conflicting: bool = False  # rows fall on the same HBM channel
    transposed: bool = False  # asked for as a DMA transpose

    def entries(self, elements: int) -> tuple[int, int]:
        """Source and destination buffers for so many elements of a partition."""
        return -(-elements // self.source_run), -(-elements // self.target_run)


def layout_of(source: Access, target: Access, spec: Spec, transposed: bool = False) -> Layout:
    """How a copy lies in the memories."""
    hbm = next((a for a in (source, target) if not a.tensor.buffer.on_chip), None)
    runs = run_elements(source), run_elements(target)
    step = hbm.strides[0] * hbm.dtype.itemsize if hbm and hbm.partitions > 1 else 0
    return Layout(
        min(source.dtype.itemsize, target.dtype.itemsize),
        *runs,
        run_elements(hbm) if hbm else min(runs),
        hbm is None or (step != 0 and run_elements(hbm) == hbm.free_elements == hbm.strides[0]),
        step != 0 and step % spec.hbm_conflict_stride == 0,
        transposed,
    )


def partition_ns(elements: int, layout: Layout, spec: Spec) -> float:
    """Time that one engine spends on the elements of one partition. Rows that do not follow each
    other in HBM cost more than their bytes, up to a limit."""
    sources, targets = layout.entries(elements)
    if layout.transposed and spec.dma_transpose_fraction:
        return elements * layout.size / (spec.dma_bytes_per_ns * spec.dma_transpose_fraction)
    run = min(layout.hbm_run, elements) * layout.size
    row = run / spec.dma_bytes_per_ns
    if not layout.contiguous:
        row = max(row, min(spec.dma_strided_ns, spec.dma_strided_ns_per_byte * run))
    rows = -(-elements // layout.hbm_run)
    return spec.dma_buffer_ns * (sources + targets) + rows * row


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
    chip = next((a for a in (target, source) if a.tensor.buffer.on_chip), None)
    transposed = bool(operation.instruction and operation.instruction.attributes.get("transpose"))
    layout = layout_of(source, target, spec, transposed)
    partitions = item.partitions if item.partitions is not None else _full(n, target.partitions)
    elements = item.elements if item.elements is not None else _full(n, target.free_elements)
    first = _first_partition(chip, item, n)
    made: dict[tuple[int, int, int], Transfer] = {}
    result: list[Transfer] = []
    for key in zip(partitions.tolist(), elements.tolist(), first.tolist(), strict=True):
        transfer = made.get(key)
        if transfer is None:
            p, e, start = key
            transfer = _transfer(p, e, start if chip else None, layout, spec)
            transfer = made[key] = transfer._replace(
                hbm_read=0 if source.tensor.buffer.on_chip else transfer.bytes,
                hbm_write=0 if target.tensor.buffer.on_chip else transfer.bytes,
            )
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
    partitions: int, elements: int, first: int | None, layout: Layout, spec: Spec
) -> Transfer:
    share = spec.dma_partitions_per_engine
    descriptors = partitions * max(layout.entries(elements))
    each = partition_ns(elements, layout, spec)
    if first is None:
        engines, begin = min(spec.dma_engines, descriptors), 0
        time = partitions * each / engines
    else:
        begin = first // share
        engines = min(-(-(first % share + partitions) // share), spec.dma_engines)
        time = min(partitions, share) * each
    conflict = 0.0
    if layout.conflicting:
        run = min(layout.hbm_run, elements) * layout.size
        conflict = descriptors * (spec.hbm_conflict_ns + run / spec.hbm_conflict_bytes_per_ns)
    time += 2 * spec.dma_buffer_ns  # the engine's report, a write to a semaphore (nki-dma-overview)
    total = partitions * elements * layout.size
    return Transfer(begin % spec.dma_engines, engines, time, total, descriptors, 0, 0, conflict)


def spill_transfer(bytes_per_partition: int, partitions: int, save: bool, spec: Spec) -> Transfer:
    """Moving one unit of SBUF to HBM or back."""
    run = max(bytes_per_partition, 1)
    layout = Layout(1, run, run, run)
    transfer = _transfer(partitions, bytes_per_partition, 0, layout, spec)
    return transfer._replace(
        hbm_write=transfer.bytes if save else 0, hbm_read=0 if save else transfer.bytes
    )
