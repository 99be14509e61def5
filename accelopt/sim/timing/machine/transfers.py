"""What a DMA transfer costs: buffers, the engines they go to, bytes.

A transfer gathers a list of source buffers and scatters them into a list of destination buffers, each
contiguous where it lies, and pays for every entry of both lists (arch guide). Partitions map to DMA
engines eight at a time, so a tile of few partitions uses few engines (nki-dma-overview).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.stream.expansion import Instances
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Operation
from accelopt.sim.timing.stream.stream import Stream
from accelopt.sim.timing.stream.touches import row_elements

ACCESS_BYTES = 64
"""HBM rows that begin and end at multiples of this cost nothing extra."""


RINGS = ("static", "software", "sync", "scalar")
"""Who makes a transfer's descriptors: the host before the run, or while it runs GpSimd's software or the
hardware beside one of two engines (nki-dge.rst). What the compiler adds itself is known before."""
SOFTWARE = RINGS.index("software")


class Transfer(NamedTuple):
    """One DMA instance. Its descriptors take `issue_ns` on its ring, an index into RINGS, one transfer
    after the other."""

    first_engine: int
    engines: int
    engine_ns: float  # time on each of its engines
    bytes: int  # of the wider format, where it converts
    descriptors: int  # entries of the longer list
    hbm_read: int
    hbm_write: int
    ring: int = 0
    issue_ns: float = 0.0
    conflict_ns: float = 0.0  # time at the HBM channel that its rows share, 0 when they do not

    @property
    def moved(self) -> int:
        """Bytes in HBM, of which one that converts has other than on the chip; without HBM, all."""
        return max(self.hbm_read, self.hbm_write) or self.bytes


class TransferLayout(NamedTuple):
    """How the data of a transfer lie on both sides, in elements of `size` bytes: of the wider format
    where it converts, because that side is moved too."""

    size: int
    source_run: int  # elements that are contiguous, within a partition
    target_run: int
    hbm_run: int
    contiguous: bool = False  # in HBM each row follows the one before
    conflicting: bool = False  # rows fall on the same HBM channel
    transposed: bool = False  # asked for as a DMA transpose
    aligned: bool = True  # its rows in HBM begin at multiples of ACCESS_BYTES
    within_hbm: bool = False  # read there and written there

    def entries(self, elements: int) -> tuple[int, int]:
        """Source and destination buffers for so many elements of a partition."""
        return -(-elements // self.source_run), -(-elements // self.target_run)


def layout_of(
    source: Access, target: Access, spec: Hardware, transposed: bool = False
) -> TransferLayout:
    """How a copy lies in the memories."""
    hbm = next((a for a in (source, target) if not a.tensor.buffer.on_chip), None)
    runs = run_elements(source), run_elements(target)
    step = hbm.strides[0] * hbm.dtype.itemsize if hbm and hbm.partitions > 1 else 0
    return TransferLayout(
        max(source.dtype.itemsize, target.dtype.itemsize),
        *runs,
        run_elements(hbm) if hbm else min(runs),
        hbm is None or (step != 0 and run_elements(hbm) == hbm.free_elements == hbm.strides[0]),
        step != 0 and step % spec.hbm_conflict_stride == 0,
        transposed,
        hbm is None or _aligned(hbm),
        not (source.tensor.buffer.on_chip or target.tensor.buffer.on_chip),
    )


def _aligned(access: Access) -> bool:
    """True where rows begin at multiples of ACCESS_BYTES, and for rows that are shorter."""
    run, size = run_elements(access), access.dtype.itemsize
    steps = [
        abs(s) for n, s in zip(access.shape, access.strides, strict=True) if n > 1 and s >= run
    ]
    return run * size < ACCESS_BYTES or all(
        step * size % ACCESS_BYTES == 0 for step in (run, *steps)
    )


def partition_ns(elements: int, layout: TransferLayout, spec: Hardware) -> float:
    """Time that one engine spends on the elements of one partition. Rows that do not follow each
    other in HBM cost more than their bytes, up to a limit."""
    sources, targets = layout.entries(elements)
    if layout.transposed and spec.dma_transpose_fraction:
        return elements * layout.size / (spec.dma_bytes_per_ns * spec.dma_transpose_fraction)
    run = min(layout.hbm_run, elements) * layout.size
    row = run / spec.dma_bytes_per_ns
    if layout.within_hbm:  # its bytes pass the engine once, HBM twice
        row = max(row, 2 * run * spec.dma_engines / spec.hbm_bytes_per_ns)
    if not layout.contiguous:
        row = max(row, min(spec.dma_strided_ns, spec.dma_strided_ns_per_byte * run))
    if not layout.aligned:
        row += spec.dma_unaligned_ns
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


class _Copy(NamedTuple):
    """What the transfers of one form have in common."""

    layout: TransferLayout
    partitions: int
    elements: int  # of each partition
    row: int  # elements from one partition of the tile on the chip to the next; 0 without a tile
    loads: bool  # the tile is what it writes
    hbm_read: int  # bytes of an element that come from HBM
    hbm_write: int  # and that go there
    ring: int


def price_transfers(
    stream: Stream, spec: Hardware, bounds: CompilerBounds
) -> list[Transfer | None]:
    """The DMA cost of every instance that is a transfer."""
    copies = by_form(
        stream.instances, lambda form: _copy(form, spec, bounds) if form.is_dma else None
    )
    made: dict[tuple[_Copy, int, int, int], Transfer] = {}

    def transfer(copy: _Copy, partitions: int, elements: int, first: int) -> Transfer:
        key = (copy, partitions, elements, first)
        if key not in made:
            made[key] = _transfer_of(*key, spec)
        return made[key]

    by_kind = [
        [transfer(copy, *sizes) for sizes in _sizes(item, copy)] if copy else []
        for item, copy in zip(stream.instances, copies, strict=True)
    ]
    return [
        by_kind[kind][row] if copies[kind] else None
        for kind, row in zip(stream.kind, stream.row, strict=True)
    ]


def _copy(form: Operation, spec: Hardware, bounds: CompilerBounds) -> _Copy:
    # Of an exchange between cores each knows one side; both are alike.
    source, target = (form.reads or form.writes)[0], (form.writes or form.reads)[0]
    chip = next((a for a in (target, source) if a.tensor.buffer.on_chip), None)
    attributes = form.instruction.attributes if form.instruction else {"descriptors": "static"}
    transposed = bool(attributes.get("transpose"))
    descriptors = str(attributes.get("descriptors") or bounds.descriptors)
    return _Copy(
        layout_of(source, target, spec, transposed),
        target.partitions,
        target.free_elements,
        row_elements(chip) if chip else 0,
        bool(form.writes) and chip is target,
        0 if source.tensor.buffer.on_chip else source.dtype.itemsize,
        0 if target.tensor.buffer.on_chip else target.dtype.itemsize,
        RINGS.index(descriptors),
    )


def _sizes(item: Instances, copy: _Copy) -> Iterable[tuple[int, int, int]]:
    """Partitions, elements of each, and the first partition of the tile, of every iteration."""
    n = item.positions.size
    offset = (item.operation.writes if copy.loads else item.operation.reads)[0].offset
    if n == 1 and item.partitions is None and not offset.terms:
        return [(copy.partitions, copy.elements, offset.constant // copy.row if copy.row else 0)]
    first = np.broadcast_to(offset.evaluate_many(item.values), (n,)) // max(copy.row, 1)
    return zip(
        [copy.partitions] * n if item.partitions is None else item.partitions.tolist(),
        [copy.elements] * n if item.elements is None else item.elements.tolist(),
        first.tolist() if copy.row else [0] * n,
        strict=True,
    )


def _transfer_of(
    copy: _Copy, partitions: int, elements: int, first: int, spec: Hardware
) -> Transfer:
    transfer = _transfer(partitions, elements, first if copy.row else None, copy.layout, spec)
    moved = partitions * elements
    return transfer._replace(
        hbm_read=moved * copy.hbm_read,
        hbm_write=moved * copy.hbm_write,
        ring=copy.ring,
        issue_ns=spec.descriptors_ns if copy.ring else 0.0,
    )


def _transfer(
    partitions: int, elements: int, first: int | None, layout: TransferLayout, spec: Hardware
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
    return Transfer(
        begin % spec.dma_engines, engines, time, total, descriptors, 0, 0, conflict_ns=conflict
    )


def spill_transfer(
    bytes_per_partition: int, partitions: int, save: bool, spec: Hardware
) -> Transfer:
    """Moving one unit of SBUF to HBM or back."""
    run = max(bytes_per_partition, 1)
    layout = TransferLayout(1, run, run, run)
    transfer = _transfer(partitions, bytes_per_partition, 0, layout, spec)
    return transfer._replace(
        hbm_write=transfer.bytes if save else 0, hbm_read=0 if save else transfer.bytes
    )
