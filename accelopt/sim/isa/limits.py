"""What operands may be: memories, sizes and formats. Which instruction has which limits, its entry says.

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
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
)

MAX_PARTITIONS = TRN1.partitions
CORES = {2: 2, 3: 8, 4: 8}
"""NeuronCores of a chip, by generation (SDK 2.33, the architecture pages)."""
MAX_STATIONARY_FREE = TRN1.partitions
MAX_MOVING_FREE = TRN1.psum_bank_bytes // FLOAT32.itemsize
MAX_BN_STATS_FREE = 512
PSUM_BANK_BYTES = TRN1.psum_bank_bytes
PSUM_BANKS = TRN1.psum_partition_bytes // TRN1.psum_bank_bytes
USABLE_SBUF_BYTES = TRN1.sbuf_usable_bytes
"""Of a partition on NeuronCore-v2, which is what `nl.tile_size` tells; rules ask the target."""
MAX_FREE_IN_SBUF = 65_536
MAX_FREE_IN_PSUM = 4_096
SHARING, SHARING_TENSOR = 16, 32
"""Partitions that share their indices in tensor indirection; of the Tensor engine's operands (SDK 2.32)."""
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


def call(
    *exclusive: tuple[str, str], same_partitions: bool = True, **operands: OperandLimits
) -> InstructionLimits:
    """The limits of one call; `exclusive` names operands of which only one may lie in PSUM."""
    return InstructionLimits(operands, exclusive, same_partitions)


ANY = InstructionLimits({})
