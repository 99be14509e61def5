"""Number formats as the dialect takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import refuse
from accelopt.sim.dialects.nki import versions
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current


def element_of(dtype: Any) -> np.dtype:
    """A number format; those of microscaling begin with NeuronCore-v4."""
    from accelopt.hardware import TARGETS

    element = builder.parse_dtype(dtype)
    if element == dtypes.FLOAT8_E8M0FNU:
        versions.use("nki.language.float8_e8m0fnu")
    target = current().target
    if dtypes.is_packed(element) and TARGETS[target].generation < 4:
        refuse(operands.needs_microscaling(f"a tensor of {dtypes.name_of(element)}", target))
    return element
