"""Memory regions and data types of the `nki` package."""

from __future__ import annotations

from enum import Enum
from typing import Any

from accelopt.hardware import TARGETS
from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc.language.formats import TileLimits
from accelopt.sim.dialects.nki import versions
from accelopt.sim.isa import limits
from accelopt.sim.program import Buffer
from accelopt.sim.tracer import active

DEFAULT_TARGET = "trn2"
"""Of kernels in this dialect: trn1 stays with `neuronxcc.nki` on an older SDK."""


_FORMATS = {name: element for name, element in dtypes.FORMATS.items() if name != "bool"}
globals().update(_FORMATS)
bool_ = dtypes.BOOL

__all__ = [
    "MemoryRegion", "bool_", "hbm", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "private_hbm", "psum",
    "sbuf", "shared_hbm", "tile_size", *_FORMATS,
]  # fmt: skip


class MemoryRegion(Enum):
    """Where a tensor lives."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def buffer(self) -> Buffer:
        """The simulated core's name of it."""
        return BUFFERS[self]


sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm

BUFFERS = {
    sbuf: Buffer.SBUF,
    psum: Buffer.PSUM,
    private_hbm: Buffer.HBM,
    shared_hbm: Buffer.SHARED_HBM,
}
REGIONS = {buffer: region for region, buffer in BUFFERS.items()}


def is_hbm(buffer: Any) -> bool:
    """True for either kind of HBM."""
    return buffer in (private_hbm, shared_hbm)


def is_on_chip(buffer: Any) -> bool:
    """True for SBUF and PSUM."""
    return buffer in (sbuf, psum)


def is_psum(buffer: Any) -> bool:
    """True for PSUM."""
    return bool(buffer == psum)


def is_sbuf(buffer: Any) -> bool:
    """True for SBUF."""
    return bool(buffer == sbuf)


class _TileSize(TileLimits):
    """Limits of tiles on the generation that the kernel is traced for."""

    psum_bank_fmax = TileLimits.psum_fmax
    psum_bank_fmax_bytes = limits.PSUM_BANK_BYTES
    psum_num_banks = limits.PSUM_BANKS

    @property
    def sbuf_fmax_bytes(self) -> int:
        """The newer name of total_available_sbuf_size."""
        return self.total_available_sbuf_size

    @property
    def sbuf_fmax(self) -> int:
        """The same in float32 elements."""
        return self.total_available_sbuf_size // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition that tiles can take."""
        tracer = active()
        return TARGETS[DEFAULT_TARGET if tracer is None else tracer.target].sbuf_usable_bytes

    @property
    def sbuf_size_bytes(self) -> int:
        """Of all partitions."""
        return self.total_available_sbuf_size * self.pmax


for _name, _limit in versions.changed("tile_size", vars(_TileSize)).items():
    setattr(_TileSize, _name, _limit)
tile_size = _TileSize()
