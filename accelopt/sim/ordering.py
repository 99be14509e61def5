"""Does a kernel's answer depend on the order in which parallel iterations run? (S20)

nl.affine_range promises that it does not, and the compiler relies on it. The executor runs such
loops in order; here they run in random orders as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from accelopt.sim import compute
from accelopt.sim.program import Program

TOLERANCE = 1e-4
"""Relative 2-norm that reassociated fp32 sums stay well below."""


class OrderDifference(NamedTuple):
    """A result that came out differently: which one, with which seed, and by how much (relative
    2-norm; infinity when only one of the two is finite)."""

    result: int
    seed: int
    relative: float


def order_differences(
    program: Program,
    arrays: Sequence[np.ndarray],
    *,
    seeds: Sequence[int] = (0, 1),
    tolerance: float = TOLERANCE,
) -> list[OrderDifference]:
    """Results that change by more than `tolerance` when affine loops run in shuffled order."""
    usual = compute.execute(program, arrays)
    found: list[OrderDifference] = []
    for seed in seeds:
        shuffled = compute.execute(program, arrays, order="shuffled", seed=seed)
        for number, (one, other) in enumerate(zip(usual, shuffled, strict=True)):
            relative = _relative(one, other)
            if relative > tolerance:
                found.append(OrderDifference(number, seed, relative))
    return found


def _relative(one: np.ndarray | None, other: np.ndarray | None) -> float:
    if one is None or other is None:
        return 0.0
    first, second = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(first) & np.isfinite(second)
    if not np.array_equal(np.isfinite(first), np.isfinite(second)):
        return float("inf")
    size = float(np.linalg.norm(first[finite]))
    return float(np.linalg.norm((first - second)[finite])) / (size or 1.0)
