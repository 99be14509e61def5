"""The draw of a set of inputs: seed, distribution of values, sequence lengths."""

from __future__ import annotations

import secrets
from typing import NamedTuple

NORMAL, EVEN = "normal", "even"
# Beside the standard normal values that FlashInfer-Bench draws: three other scales; a mean far from zero
# with a small spread; one-sided values with a long tail; a value a row far larger than all others;
# rows that differ in scale. A kernel that was written for what the generator draws fails on them.
VALUES = ("small", "large", "huge", "shifted", "skewed", "spiked", "uneven")
SCALES = VALUES[:3]  # in every evaluation
# How large "huge" and "spiked" get: as much as the reference is defined on.
LARGEST = (1e4, 1e3, 1e2)
# Sequences of about equal length; one that has nearly everything; and some that have nothing.
LENGTHS = ("lopsided", "gaps")
TOUCH = 32.0  # far from all others, so that who looks at a few values misses what has changed


class Draw(NamedTuple):
    """What one set of inputs is made of: the same in every process on the same kind of device.

    `fresh_indices` draws the index tensors too, where ours stand in for any, with `lengths`; `scalars`
    the workload's numbers, near what it says. `largest` bounds "huge" and "spiked" values. `touched`: of
    the same values one in each tensor is another, `TOUCH`.
    """

    seed: int
    values: str = NORMAL
    lengths: str = EVEN
    fresh_indices: bool = False
    scalars: bool = False
    largest: float = LARGEST[0]
    touched: bool = False

    @property
    def stressed(self) -> bool:
        """Whether the values are on another scale than the package's absolute tolerance is for."""
        return self.values != NORMAL or self.touched

    @property
    def unusual(self) -> bool:
        """Whether it differs in more than its seed from what the workload says."""
        return self.stressed or self.lengths != EVEN or self.scalars


def fresh(
    values: str = NORMAL,
    lengths: str = EVEN,
    *,
    indices: bool = False,
    scalars: bool = False,
    largest: float = LARGEST[0],
    touched: bool = False,
) -> Draw:
    """A draw that nobody can foresee."""
    indices = indices or lengths != EVEN
    return Draw(secrets.randbits(40), values, lengths, indices, scalars, largest, touched)
