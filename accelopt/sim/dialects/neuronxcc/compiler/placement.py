"""Direct allocation: from a kernel's placement function to checked addresses of every block.

Rules and the modulo formula: SDK 2.26.1 `nki/nki_direct_allocation_guide.rst` and
`nki/api/nki/compiler/{sbuf,psum}.py`.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.language.creation import BufferName
from accelopt.sim.isa.limits import MAX_PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS
from accelopt.sim.program import Buffer, Placement
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

MAX_BLOCKS = 1 << 20

PlacingFunction = Callable[..., Any]


class DirectBuffer(BufferName):
    """A memory whose blocks the kernel places itself: `place(index, partitions, bytes)`."""

    def __init__(self, buffer: Buffer, place: PlacingFunction) -> None:
        super().__init__(buffer)
        self.place = place

    def placement(self, sizes: tuple[int, ...], rank: int, element: np.dtype) -> Placement | None:
        """Checked start partitions and addresses (SBUF: bytes; PSUM: banks) of all blocks."""
        blocks, partitions = sizes[:rank], sizes[rank]
        size = math.prod(sizes[rank + 1 :]) * element.itemsize
        if math.prod(blocks) > MAX_BLOCKS:
            fail(operands.bad_placement(f"{math.prod(blocks)} blocks.", "Use fewer blocks."))
        starts = np.zeros(blocks, dtype=np.int64)
        addresses = np.zeros(blocks, dtype=np.int64)
        in_psum = self.buffer is Buffer.PSUM
        for index in itertools.product(*(range(n) for n in blocks)):
            placed = _called(self.place, index, partitions, size)
            check = _psum_place if in_psum else _sbuf_place
            starts[index], addresses[index] = check(placed, partitions, size)
        return Placement(starts, addresses)


def _called(place: PlacingFunction, index: tuple[int, ...], partitions: int, size: int) -> Any:
    """The function's answer; its parameters are passed by their documented names when it has them,
    so that functools.partial may bind others."""
    names = ("idx", "pdim_size", "fdim_size")
    try:
        parameters = inspect.signature(place).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    if all(name in parameters for name in names):
        return place(**dict(zip(names, (index, partitions, size), strict=True)))
    return place(index, partitions, size)


def _sbuf_place(placed: Any, partitions: int, size: int) -> tuple[int, int]:
    start, address = (int(value) for value in placed)
    _check_start(start, partitions)
    core = TARGETS[current().target]
    usable, end = core.sbuf_usable_bytes, core.sbuf_partition_bytes
    if not 0 <= address < usable or address + size > end:
        problem = f"bytes {address} to {address + size} of a partition lie outside of SBUF."
        mend = f"Start below {usable}, end by {end}."
        fail(operands.bad_placement(problem, mend))
    return start, address


def _psum_place(placed: Any, partitions: int, size: int) -> tuple[int, int]:
    bank, start, address = (int(value) for value in placed)
    if size > PSUM_BANK_BYTES:
        problem = f"a PSUM tile of {size} bytes a partition exceeds a bank."
        fail(operands.bad_placement(problem, f"At most {PSUM_BANK_BYTES} bytes."))
    if not 0 <= bank < PSUM_BANKS:
        problem = f"PSUM bank {bank} does not exist."
        fail(operands.bad_placement(problem, f"There are banks 0 to {PSUM_BANKS - 1}."))
    if start != 0 or address != 0:
        problem = f"a PSUM tile starts at partition {start}, byte {address}."
        fail(operands.bad_placement(problem, "Both must be 0."))
    return start, bank


def _check_start(start: int, partitions: int) -> None:
    if partitions > 64:
        allowed: tuple[int, ...] = (0,)
    elif partitions > 32:
        allowed = (0, 64)
    else:
        allowed = (0, 32, 64, 96)
    if start not in allowed or start + partitions > MAX_PARTITIONS:
        problem = f"a tile of {partitions} partitions starts at partition {start}."
        fail(operands.bad_placement(problem, f"It may start at {allowed}."))


def modulo(base: int, tiles: tuple[int, ...], scale: int) -> Callable[[tuple[int, ...]], int]:
    """The address of a block when blocks share `tiles` places: index modulo tiles, row-major."""

    def address(index: tuple[int, ...]) -> int:
        if not index:
            return base
        counts = tuple(int(n) for n in tiles) or (1,) * len(index)
        if len(counts) != len(index):
            problem = f"{len(counts)} tile counts for {len(index)} block dimensions."
            fail(operands.bad_placement(problem, "Give one a dimension, or none."))
        linear = 0
        for position, count in zip(index, counts, strict=True):
            linear = linear * count + position % count
        return linear * scale + base

    return address


def as_tuple(value: Any) -> tuple[int, ...]:
    """Tile counts as a tuple."""
    return (int(value),) if isinstance(value, int) else tuple(int(n) for n in value)
