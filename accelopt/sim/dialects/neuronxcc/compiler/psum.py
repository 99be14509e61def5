"""neuronxcc.nki.compiler.psum: where PSUM tensors lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accelopt.sim.dialects.neuronxcc.compiler.placement import DirectBuffer, as_tuple, modulo
from accelopt.sim.dialects.neuronxcc.language.creation import BufferName
from accelopt.sim.program import Buffer


def alloc(func: Callable[..., Any]) -> DirectBuffer:
    """Blocks at the (bank, start_partition, byte_addr) that `func(index, partitions, bytes)`
    gives."""
    return DirectBuffer(Buffer.PSUM, func)


def mod_alloc(
    *,
    base_bank: int,
    base_addr: int = 0,
    base_partition: int = 0,
    num_bank_tiles: Any = (),
    num_par_tiles: Any = (),
    num_free_tiles: Any = (),
) -> DirectBuffer:
    """Blocks in banks that repeat after so many tiles."""

    def place(index: tuple[int, ...], partitions: int, size: int) -> tuple[int, int, int]:
        return (
            modulo(base_bank, as_tuple(num_bank_tiles), 1)(index),
            modulo(base_partition, as_tuple(num_par_tiles), partitions)(index),
            modulo(base_addr, as_tuple(num_free_tiles), size)(index),
        )

    return DirectBuffer(Buffer.PSUM, place)


def auto_alloc() -> BufferName:
    """The compiler places the tensor."""
    return BufferName(Buffer.PSUM)
