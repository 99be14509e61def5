"""Number formats of the dialect: those that are simulated, and those that are only named."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import Unsupported
from accelopt.sim.nki import builder


class MicroscalingFormat:
    """A format of microscaling data (trn3). It can be named and compared, not computed with."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def element_of(dtype: Any) -> np.dtype:
    """A number format; microscaling formats are refused by name."""
    if isinstance(dtype, MicroscalingFormat):
        mend = "It would take the packed formats, their scales, and nc_matmul_mx (trn3)."
        raise Unsupported(f"tensors of {dtype.name}, a microscaling format", mend, running_line())
    return builder.parse_dtype(dtype)
