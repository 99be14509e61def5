"""Products on the Tensor engine, and what makes microscaling operands of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.access import Access
from accelopt.sim.dtypes import BFLOAT16, FLOAT16, FLOAT32, PACKED, is_packed, name_of
from accelopt.sim.isa.limits import (
    FLOATS,
    MAX_FREE_IN_PSUM,
    MAX_MOVING_FREE,
    MAX_STATIONARY_FREE,
    QUANTIZED,
    SCALE_CODES,
    OperandLimits,
    call,
)
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.microscaling import PACKED as ELEMENTS
from accelopt.sim.microscaling import QUADRANT, QUADRANTS, SCALES
from accelopt.sim.program import Engine, Instruction

ROWS_AT_ONCE = 2
"""Rows of each operand that a product with `perf_mode` takes together (double_row_gen3)."""


def rows_at_once(instruction: Instruction) -> int:
    """Rows of each operand that a product takes at once: of operands (K, 2, F) in double-row mode both."""
    double = (
        instruction.attributes.get("perf_mode") and len(instruction.inputs["stationary"].shape) == 3
    )
    return ROWS_AT_ONCE if double else 1


def scale_names(operand: str) -> tuple[str, ...]:
    """The tiles (4, F) with the scales of a microscaling operand: one for each 32 partitions."""
    return tuple(f"{operand}{quadrant}" for quadrant in range(QUADRANTS))


QUANTIZED_SCALES = scale_names("scale")
STATIONARY_SCALES, MOVING_SCALES = scale_names("stationary_scale"), scale_names("moving_scale")


def _multiplied(instruction: Instruction) -> Iterator[str]:
    stationary, moving = (instruction.inputs[name] for name in ("stationary", "moving"))
    rows = rows_at_once(instruction)
    if rows > 1 and (
        stationary.shape[1] != rows or moving.shape[1:2] != (rows,) or len(moving.shape) != 3
    ):
        yield f"takes two rows at a time, not {stationary.shape} and {moving.shape}"
    made = stationary.free_elements // rows * (moving.free_elements // rows)
    if instruction.result.elements != made:
        yield f"makes {made} elements of {stationary.shape} and {moving.shape}"

    for names, data in ((STATIONARY_SCALES, stationary), (MOVING_SCALES, moving)):
        packed = is_packed(stationary.dtype) or is_packed(moving.dtype)
        count = data.partitions // QUADRANT if packed else 0
        if packed and (data.partitions % QUADRANT or not is_packed(data.dtype)):
            yield f"multiplies {data.shape} of {name_of(data.dtype)} as packed elements"
        yield from _scales({n: instruction.inputs.get(n) for n in names}, count, data)
    if stationary.partitions != moving.partitions:
        yield f"has operands of {stationary.partitions} and {moving.partitions} partitions"


def _quantized(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    fits = data.partitions == result.partitions and data.partitions % QUADRANT == 0
    if not fits or data.free_elements != ELEMENTS * result.free_elements:
        yield f"cannot pack {data.shape} into {result.shape}"
    found = {name: instruction.outputs.get(name) for name in QUANTIZED_SCALES}
    yield from _scales(found, data.partitions // QUADRANT, result)


def _scales(found: Mapping[str, Access | None], count: int, data: Access) -> Iterator[str]:
    """The scales of packed elements: a tile for each 32 partitions, and no more."""
    for number, (name, access) in enumerate(found.items()):
        wanted = (SCALES, data.free_elements) if number < count else None
        given = None if access is None else (access.partitions, access.free_elements)
        if given != wanted:
            yield f"has an operand {name} of {given}, not {wanted}"


_STATIONARY = OperandLimits(psum=False, free=MAX_STATIONARY_FREE, formats=FLOATS)
_MOVING = OperandLimits(psum=False, free=MAX_MOVING_FREE, formats=FLOATS)
_MANY = OperandLimits(psum=False, free=MAX_FREE_IN_PSUM, formats=PACKED)
"""SDK 2.32: the 8 PSUM banks, 4096 float32; 8192 bfloat16 exceed MAX_FREE_IN_PSUM."""
_CODES = OperandLimits(psum=False, formats=SCALE_CODES)

MATMUL = Opcode(
    "matmul", ("stationary", *STATIONARY_SCALES, *MOVING_SCALES, "moving"),
    {"accumulate": kinds.TRUTH, "is_stationary_onezero": kinds.TRUTH,
        "is_moving_onezero": kinds.TRUTH, "is_transpose": kinds.TRUTH,
        "perf_mode": kinds.PERFORMANCE_MODE}, (Engine.TENSOR,),
    optional=("accumulate", "is_stationary_onezero", "is_moving_onezero", "is_transpose",
        "perf_mode", *STATIONARY_SCALES, *MOVING_SCALES),
    meaning="(M, N) = stationary(K, M).T @ moving(K, N) in fp32; `accumulate` True adds to the "
    "PSUM tile, whose first write of a group overwrites; of packed elements also over the four of "
    "each, all times their scales",
    limits={
        "stationary": _STATIONARY._replace(formats=(*FLOATS, *PACKED)),
        "moving": _MOVING._replace(formats=(*FLOATS, *PACKED)),
        "result": OperandLimits(sbuf=False),
        **dict.fromkeys((*STATIONARY_SCALES, *MOVING_SCALES), _CODES),
    },
    calls={
        "nc_matmul": call(stationary=_STATIONARY, moving=_MOVING),
        "nc_matmul_mx": call(stationary=_STATIONARY._replace(formats=PACKED), moving=_MANY),
        "nc_matmul_mx scale": call(same_partitions=False, stationary=_CODES, moving=_CODES),
        "nc_matmul_mx result": call(dst=OperandLimits(sbuf=False, formats=(FLOAT32, BFLOAT16))),
    },
    fits=_multiplied, product=True, packed=True,
    indirect=("stationary", "moving", "result"),
)  # fmt: skip
QUANTIZE_MX = Opcode(
    "quantize_mx", ("data",), {}, (Engine.VECTOR,), ("result", *QUANTIZED_SCALES),
    optional=QUANTIZED_SCALES,
    meaning="result (P, F / 4) = data (P, F) over its scales, packed; a scale for each 8 "
    "partitions of each packed column",
    limits={
        "data": OperandLimits(psum=False, formats=(FLOAT16, BFLOAT16)),
        "result": OperandLimits(psum=False, formats=QUANTIZED),
        **dict.fromkeys(QUANTIZED_SCALES, _CODES),
    },
    calls={
        "quantize_mx": call(same_partitions=False, src=OperandLimits(psum=False, formats=(FLOAT16,
            BFLOAT16)), dst=OperandLimits(psum=False, formats=QUANTIZED), dst_scale=_CODES),
    },
    fits=_quantized, cost=Cost.QUANTIZATION, computes=False, packed=True, starts_anywhere=True,
)  # fmt: skip
