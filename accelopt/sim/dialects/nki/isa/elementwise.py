"""Instructions of nki.isa that compute every element by itself, and copies: those of `neuronxcc.nki`, and
memset."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import fill, refuse
from accelopt.sim.dialects.neuronxcc.isa import elementwise as shared
from accelopt.sim.dialects.nki.call_conventions import destination, instruction, on_engine
from accelopt.sim.dialects.nki.isa import enums
from accelopt.sim.dialects.nki.isa.destinations import destinations_first
from accelopt.sim.dialects.nki.isa.enums import reduce_cmd as commands
from accelopt.sim.errors import KernelTypeError

globals().update(
    destinations_first(
        shared,
        __name__,
        tensor_scalar_reduce={"reduce_res": None, "reduce_cmd": commands.reset_reduce},
    )
)


@instruction
def memset(dst: Any, value: Any, engine: Any = enums.engine.unknown) -> None:
    """dst = value; a whole number for integer formats, 0 for packed ones (NKI 0.3)."""
    target = destination(dst)
    given = builder.number(value)
    if dtypes.is_integer(target.dtype) and isinstance(given, float):
        mend = f"Pass {int(given) if math.isfinite(given) else 0}, a whole number."
        kind = dtypes.name_of(target.dtype)
        refuse(KernelTypeError("memset_value", f"memset of {given!r} into a {kind} tile.", mend))
    if dtypes.is_packed(target.dtype) and given != 0:
        kind = dtypes.name_of(target.dtype)
        mend = "Load packed elements from HBM with nisa.dma_copy."
        refuse(KernelTypeError("memset_value", f"memset of {given!r} into a {kind} tile.", mend))
    fill(target, given, engine=on_engine(engine, dst=target))
