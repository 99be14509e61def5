"""What each instruction takes: memories, sizes and formats of its operands, as one table.

Sources: the parameter descriptions of SDK 2.26.1 `nki/api/nki/isa` and `language`, and for the
general limits of trn1 (64K elements a partition in SBUF, 4K in PSUM, four free axes) the reference
`nki-api.md` 1.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accelopt.hardware import TRN1
from accelopt.sim.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN_X4,
    FLOAT8_E5M2,
    FLOAT8_E5M2_X4,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    PACKED,
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
)

MAX_PARTITIONS = TRN1.partitions
MAX_STATIONARY_FREE = TRN1.partitions
MAX_MOVING_FREE = TRN1.psum_bank_bytes // FLOAT32.itemsize
MAX_BN_STATS_FREE = 512
PSUM_BANK_BYTES = TRN1.psum_bank_bytes
PSUM_BANKS = TRN1.psum_partition_bytes // TRN1.psum_bank_bytes
USABLE_SBUF_BYTES = TRN1.sbuf_usable_bytes
"""Of a partition on NeuronCore-v2, which is what `nl.tile_size` tells; rules ask the target."""
MAX_FREE_IN_SBUF = 65_536
MAX_FREE_IN_PSUM = 4_096
MAX_RANK = 5
"""Partition axis and four free axes."""

Formats = tuple[np.dtype, ...]

FLOATS: Formats = (FLOAT32, TFLOAT32, BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)
QUANTIZED: Formats = (FLOAT8_E4M3FN_X4, FLOAT8_E5M2_X4)
SCALE_CODES: Formats = (FLOAT8_E8M0FNU, UINT8)
UNSIGNED: Formats = (UINT8, UINT16, UINT32, BOOL)
PREDICATES: Formats = (INT8, UINT8, INT16, UINT16, BOOL)
SELECTABLE: Formats = (*FLOATS, INT8, UINT8, INT16, UINT16, BOOL)


class OperandLimits(NamedTuple):
    """One operand. `free` and `at_least` count elements a partition; `vector` is one element a
    partition."""

    sbuf: bool = True
    psum: bool = True
    partitions: int = MAX_PARTITIONS
    free: int | None = None
    at_least: int = 1
    vector: bool = False
    rank: int = MAX_RANK
    formats: Formats = ()

    @property
    def memories(self) -> str:
        """For messages."""
        return " or ".join(name for name, ok in (("SBUF", self.sbuf), ("PSUM", self.psum)) if ok)


TILE = OperandLimits()
VECTOR = OperandLimits(vector=True)


@dataclass(frozen=True)
class InstructionLimits:
    """One NKI call. Operands not named here are plain tiles."""

    operands: dict[str, OperandLimits]
    not_both_in_psum: tuple[tuple[str, str], ...] = ()
    same_partitions: bool = True


def _row(
    *exclusive: tuple[str, str], same_partitions: bool = True, **operands: OperandLimits
) -> InstructionLimits:
    return InstructionLimits(operands, exclusive, same_partitions)


LIMITS: dict[str, InstructionLimits] = {
    "nc_matmul": _row(
        stationary=OperandLimits(psum=False, free=MAX_STATIONARY_FREE, formats=FLOATS),
        moving=OperandLimits(psum=False, free=MAX_MOVING_FREE, formats=FLOATS),
    ),
    # SDK 2.32: a moving tile of all 8 PSUM banks, 4096 float32; 8192 bfloat16 exceed MAX_FREE_IN_PSUM.
    "nc_matmul_mx": _row(
        stationary=OperandLimits(psum=False, free=MAX_STATIONARY_FREE, formats=PACKED),
        moving=OperandLimits(psum=False, free=MAX_FREE_IN_PSUM, formats=PACKED),
    ),
    "nc_matmul_mx scale": _row(
        same_partitions=False,
        stationary=OperandLimits(psum=False, formats=SCALE_CODES),
        moving=OperandLimits(psum=False, formats=SCALE_CODES),
    ),
    "nc_matmul_mx result": _row(dst=OperandLimits(sbuf=False, formats=(FLOAT32, BFLOAT16))),
    "quantize_mx": _row(
        same_partitions=False,
        src=OperandLimits(psum=False, formats=(FLOAT16, BFLOAT16)),
        dst=OperandLimits(psum=False, formats=QUANTIZED),
        dst_scale=OperandLimits(psum=False, formats=SCALE_CODES),
    ),
    "nc_transpose on Tensor engine": _row(data=OperandLimits(psum=False, free=128)),
    "transpose": _row(x=OperandLimits(free=128, rank=2)),
    "activation": _row(reduce_res=VECTOR),
    "tensor_tensor": _row(("data1", "data2")),
    "tensor_scalar": _row(operand0=VECTOR, operand1=VECTOR),
    "tensor_scalar_reduce": _row(operand0=VECTOR, reduce_res=VECTOR),
    "scalar_tensor_tensor": _row(
        ("data", "operand1"),
        data=OperandLimits(rank=2),
        operand0=VECTOR,
        operand1=OperandLimits(rank=2),
    ),
    "tensor_tensor_scan": _row(("data0", "data1"), initial=VECTOR),
    "tensor_copy_predicated": _row(("src", "predicate"), predicate=OperandLimits(formats=UNSIGNED)),
    "select_reduce": _row(
        ("on_true", "predicate"),
        on_true=OperandLimits(formats=SELECTABLE),
        on_false=VECTOR,
        predicate=OperandLimits(formats=PREDICATES),
        reduce_res=OperandLimits(vector=True, formats=FLOATS),
    ),
    "range_select": _row(
        on_true_tile=OperandLimits(formats=FLOATS),
        bound0=OperandLimits(vector=True, formats=(FLOAT32,)),
        bound1=OperandLimits(vector=True, formats=(FLOAT32,)),
        reduce_res=VECTOR,
    ),
    "affine_select": _row(on_true_tile=OperandLimits(formats=SELECTABLE)),
    "bn_stats": _row(data=OperandLimits(free=MAX_BN_STATS_FREE)),
    "bn_aggr": _row(),
    "max8": _row(src=OperandLimits(at_least=8, free=16_384)),
    "nc_find_index8": _row(
        data=OperandLimits(at_least=8, free=16_384), vals=OperandLimits(rank=3, at_least=8, free=8)
    ),
    "nc_match_replace8": _row(
        data=OperandLimits(free=16_384),
        vals=OperandLimits(rank=3, at_least=8, free=8),
        dst_idx=OperandLimits(at_least=8, free=8, formats=(UINT16, UINT32, INT32)),
    ),
    "nc_stream_shuffle": _row(same_partitions=False),
    "local_gather": _row(
        src_buffer=OperandLimits(psum=False), index=OperandLimits(psum=False, formats=(UINT16,))
    ),
    "gather_flattened": _row(
        data=OperandLimits(rank=4), indices=OperandLimits(rank=4, formats=(UINT32, INT32))
    ),
    "sequence_bounds": _row(segment_ids=OperandLimits(partitions=1, formats=(FLOAT32, INT32))),
    "dropout": _row(prob=VECTOR),
    "tensor_partition_reduce": _row(data=OperandLimits(psum=False)),
}
"""By the name of the nisa (or nl) call. Calls without a row take any tiles of equal partitions."""

ANY = InstructionLimits({})
