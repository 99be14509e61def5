"""The numbers by which the emulated compiler decides; the same for every generation.

Units, sources and status as in `accelopt.hardware`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accelopt.hardware.neuroncore import Sourced, constants_of


@dataclass(frozen=True)
class CompilerBounds(Sourced):
    """How far the Neuron compiler looks, and from where on it does something else."""

    merge_window_bytes: float
    load_window_bytes: float
    merge_over_sequential: bool
    tiny_elements: int
    widest_elements: int
    kept_load_bytes: float
    kept_result_bytes: float
    reload_horizon: int
    repeat_share: float
    own_bytes: int
    load_buffers: int
    load_buffer_bytes: int
    computed_buffers: int
    transposes_after_loading: bool
    makes_results_apart: bool
    descriptors: str
    rewrites: bool
    whole_rounds: int
    lookahead: tuple[int, ...]


_TABLE = constants_of("sim/timing/compilers.csv")
COMPILER_BOUNDS = CompilerBounds.stated(_TABLE["2.21"])
COMPILERS: Mapping[str, CompilerBounds] = {
    "2.21": COMPILER_BOUNDS,
    **{version: COMPILER_BOUNDS.changed(_TABLE[version]) for version in ("2.26", "0.6")},
}
"""By version, as `hardware.front_ends` has them. For `neuronxcc.nki` the SDK: 2.21 is the compiler of
NKIBench's published measurements on trn1, 2.26 that of the kernels of that package measured on trn2. For
`nki` its own version. What differs is only what figures show; all other numbers are the oldest one's."""


def default_compiler(target: str, dialect: str) -> str:
    """The version, in `COMPILERS`, whose kernels of a dialect were measured on a generation; trn3 has
    trn2's."""
    if dialect == "nki":
        return "0.6"
    return "2.21" if target == "trn1" else "2.26"
