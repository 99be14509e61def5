"""Masks: which elements of a tile take part in an instruction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable, TileAxis

MAX_ENUMERATION = 1 << 21
"""Masks over more combinations of values than this are judged by their bounds alone."""


@dataclass(frozen=True, slots=True)
class Mask:
    """A conjunction of `expression >= 0` over the axes of a tile and the loops around it."""

    constraints: tuple[Affine, ...] = ()

    def __and__(self, other: Mask) -> Mask:
        if not other.constraints:
            return self
        if not self.constraints:
            return other
        return Mask(
            (*self.constraints, *(c for c in other.constraints if c not in self.constraints))
        )

    @property
    def always(self) -> bool:
        """True when every constraint holds for all values of its terms."""
        return all(c.bounds[0] >= 0 for c in self.constraints)

    @property
    def never(self) -> bool:
        """True when some constraint holds for no value."""
        return any(c.bounds[1] < 0 for c in self.constraints)

    def simplified(self) -> Mask:
        """Without the constraints that always hold."""
        if not self.constraints:
            return self
        return Mask(tuple(c for c in self.constraints if c.bounds[0] < 0))

    def keeps(self, expression: Affine, low: int, high: int) -> bool:
        """True when the expression lies in low..high wherever the mask holds. Decided by bounds,
        and by trying every value of the terms when bounds do not tell and there are few."""
        least, most = expression.bounds
        if least >= low and most <= high:
            return True
        if -self.upper_bound(expression * -1) >= low and self.upper_bound(expression) <= high:
            return True
        return self._keeps_exactly(expression, low, high)

    def _keeps_exactly(self, expression: Affine, low: int, high: int) -> bool:
        involved = Mask(tuple(c for c in self.constraints if c.bounds[0] < 0))
        variables: dict[LoopVariable | TileAxis, None] = dict.fromkeys(expression.variables)
        for constraint in involved.constraints:
            variables.update(dict.fromkeys(constraint.variables))
        sizes = [term.size for term in variables]
        if not involved.constraints or math.prod(sizes) > MAX_ENUMERATION:
            return False
        grids = np.ix_(*(np.asarray(term.values, dtype=np.int64) for term in variables))
        values = dict(zip(variables, grids, strict=True))
        holds = np.ones((1,) * len(sizes), dtype=bool)
        for constraint in involved.constraints:
            holds = holds & (constraint.evaluate_many(values) >= 0)
        reached = expression.evaluate_many(values)
        return not bool((holds & ((reached < low) | (reached > high))).any())

    def upper_bound(self, expression: Affine) -> int:
        """The largest value of an expression where the mask holds, as far as one or two of its
        constraints can tell (never too small)."""
        best = expression.bounds[1]
        for first in self.constraints:
            candidate = _bounded_by(expression, first)
            best = min(best, candidate.bounds[1])
            for second in self.constraints:
                if second is not first:
                    best = min(best, _bounded_by(candidate, second).bounds[1])
        return best


def _bounded_by(expression: Affine, constraint: Affine) -> Affine:
    """`expression + k * constraint` (>= expression where the mask holds) with k >= 0 chosen to
    cancel a shared term."""
    for term, coefficient in constraint.terms:
        mine = expression.coefficient(term)
        if mine and (mine > 0) != (coefficient > 0) and mine % coefficient == 0:
            return expression + constraint * (-mine // coefficient)
    return expression


EVERYTHING = Mask()
"""The mask that lets every element through."""

NOTHING = Mask((Affine(-1),))
"""The mask that lets no element through."""
