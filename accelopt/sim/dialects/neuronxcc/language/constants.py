"""neuronxcc.nki.language.constants: sizes under their older address."""

from __future__ import annotations

from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc.language.formats import tile_size

__all__ = ["psum_min_align", "sbuf_min_align", "sizeinbytes"]

sbuf_min_align = tile_size.sbuf_min_align
psum_min_align = tile_size.psum_min_align


def sizeinbytes(dtype: Any) -> int:
    """Bytes an element."""
    return dtypes.parse(dtype).itemsize
