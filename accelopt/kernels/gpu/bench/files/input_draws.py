"""The draw of a set of inputs: seed, distribution of values, sequence lengths."""

from __future__ import annotations

import secrets
from typing import NamedTuple

NORMAL, EVEN = "normal", "even"
# Beside the standard normal values that FlashInfer-Bench draws: other scales; a mean far from zero
# with a small spread; one-sided values with a long tail; a few values far larger than all others;
# rows that differ in scale. A kernel that was written for what the generator draws fails on them.
VALUES = ("small", "large", "shifted", "skewed", "spiked", "uneven")
# Sequences of about equal length; one that has nearly everything; and some that have nothing.
LENGTHS = ("lopsided", "gaps")


class Draw(NamedTuple):
    """What one set of inputs is made of: the same in every process on the same kind of device.

    `fresh_indices` draws the index tensors too, where ours stand in for any, with `lengths`.
    """

    seed: int
    values: str = NORMAL
    lengths: str = EVEN
    fresh_indices: bool = False

    @property
    def stressed(self) -> bool:
        """Whether the values are on another scale than the package's absolute tolerance is for."""
        return self.values != NORMAL


def fresh(values: str = NORMAL, lengths: str = EVEN, *, indices: bool = False) -> Draw:
    """A draw that nobody can foresee."""
    return Draw(secrets.randbits(40), values, lengths, indices or lengths != EVEN)
