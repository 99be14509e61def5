"""What changes bring, alone and beside each other, as learned from the kernels that were judged.

Bayesian regression: the logarithm of a speedup is what was foretold of the changes that made a kernel,
and for each method, each single change, and each two methods that met, an effect that nobody foretold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Protocol

import numpy as np
import numpy.typing as npt

from accelopt.nodes import Action

Array = npt.NDArray[np.float64]

ALONE, TOGETHER = 0.1, 0.3  # how far, in logarithms, one effect is off what is foretold
NOISE = 0.03  # of one measurement
FIRM = 16  # kernels that this is believed as firmly as
CURIOSITY = 1.0  # standard deviations by which what is not known looks better than expected


class EstimatedAction(Protocol):
    """One change: what it is, and what is foretold of it now, as the logarithm of a speedup."""

    action: Action
    estimate: float


Made = tuple[EstimatedAction, ...]
"""The changes that made a kernel."""


class Effects:
    """Learns from every kernel that was judged."""

    def __init__(self) -> None:
        self._made: list[Made] = []
        self._worths: list[float] = []

    def add(self, made: Made, worth: float) -> None:
        """A kernel, and the logarithm of its speedup or what stands for a failure."""
        self._made.append(made)
        self._worths.append(worth)

    def hopes(self, asked: Sequence[Made], under_way: Sequence[Made]) -> list[float]:
        """What may be hoped of kernels: what is expected, and more where it is not known. Of what is
        `under_way` it will be known."""
        counts = len(self._made), len(under_way)
        rows = self._rows([*self._made, *under_way, *asked])
        known, near, new = rows[: counts[0]], rows[: sum(counts)], rows[sum(counts) :]
        left = np.array(self._worths) - _foretold(self._made)
        solved = np.linalg.solve(_covariance(known), left)
        spread = (FIRM + left @ solved) / (FIRM + len(left))
        expected = _foretold(asked) + new @ (known.T @ solved)
        beside = new @ near.T
        told = np.einsum("ij,ji->i", beside, np.linalg.solve(_covariance(near), beside.T))
        variance = np.maximum(0.0, np.einsum("ij,ij->i", new, new) - told)
        found: list[float] = (expected + CURIOSITY * np.sqrt(spread * variance)).tolist()
        return found

    def _rows(self, kernels: Sequence[Made]) -> Array:
        """A row for each kernel, a column for each effect: its spread where the kernel has it."""
        effects = [dict(self._effects(made)) for made in kernels]
        columns = {name: at for at, name in enumerate(dict.fromkeys(n for e in effects for n in e))}
        rows = np.zeros((len(kernels), len(columns)))
        for row, found in zip(rows, effects, strict=True):
            row[[columns[name] for name in found]] = [*found.values()]
        return rows

    def _effects(self, made: Made) -> Iterator[tuple[tuple[str, ...], float]]:
        methods = sorted({step.action.method for step in made})
        for step in made:
            yield ("change", step.action.sentence), ALONE
        for method in methods:
            yield ("method", method), ALONE
        for one, other in combinations(methods, 2):
            yield ("pair", one, other), TOGETHER


def _foretold(kernels: Sequence[Made]) -> Array:
    return np.array([sum(step.estimate for step in made) for made in kernels])


def _covariance(rows: Array) -> Array:
    covariance: Array = rows @ rows.T + NOISE**2 * np.eye(len(rows))
    return covariance
