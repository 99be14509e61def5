"""min() and max() of loop indices in a kernel: not affine, so no slice may end there (S10), and no
number. Compared, they are conditions like those of their parts: `i < min(a, b)` is `i < a` and `i < b`.

Measured on trn1 (layernorm of autocomp): `mask=i_f < min(512, n - j * 512)` is a mask; a slice that
ends there, and a name bound in a branch on such a difference, are refused.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.dialects.neuronxcc.index import MaskExpression, TileIndex, enter_branch
from accelopt.sim.rules import kernels
from accelopt.sim.tracer import current


class Extremum:
    """The smallest (`least`) or largest of `parts`; without parts a sum or product of such, of which
    no more is known than the loops that it depends on."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, least: bool, parts: Sequence[TileIndex], variables: frozenset[LoopVariable]
    ) -> None:
        constant = [part for part in parts if part.affine.is_constant and not part.shape]
        if parts and len(constant) == len(parts):
            function = builtins.min if least else builtins.max
            value = function(part.affine.constant for part in parts)
            parts = [TileIndex(Affine(value), (), frozenset().union(*(p.loops for p in parts)))]
        self.least = least
        self.parts = tuple(parts)
        self.variables = variables

    def _shifted(self, other: Any, sign: int) -> Extremum:
        if isinstance(other, Extremum):
            variables = self.variables | other.variables
            if len(other.parts) == 1:
                return self._shifted(other.parts[0], sign)
            if len(self.parts) == 1 and other.parts:
                turned = other if sign > 0 else -other
                return turned._shifted(self.parts[0], 1)
            return Extremum(True, (), variables)
        if not isinstance(other, (int, np.integer, TileIndex)):
            return NotImplemented  # type: ignore[no-any-return]
        more = other.affine.loop_variables if isinstance(other, TileIndex) else frozenset()
        parts = [part + other if sign > 0 else part - other for part in self.parts]
        return Extremum(self.least, parts, self.variables | more)

    def __neg__(self) -> Extremum:
        return Extremum(not self.least, [-part for part in self.parts], self.variables)

    def __add__(self, other: Any) -> Extremum:
        return self._shifted(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Extremum:
        return self._shifted(other, -1)

    def __rsub__(self, other: Any) -> Extremum:
        return (-self)._shifted(other, 1)

    def __mul__(self, factor: Any) -> Extremum:
        if isinstance(factor, (int, np.integer)):
            parts = [part * factor for part in self.parts]
            return Extremum(self.least == (factor >= 0), parts, self.variables)
        more = _variables((factor,))
        return Extremum(True, (), self.variables | more)

    __rmul__ = __mul__

    def _number(self, *_: Any) -> NoReturn:
        raise current().blamed(kernels.undecided_extremum())

    __index__ = __int__ = __float__ = __floordiv__ = __mod__ = __truediv__ = __trunc__ = _number

    # Comparisons. They also answer those of an index with an extremum.

    def _all(self, holds: Callable[[TileIndex, int], MaskExpression]) -> MaskExpression:
        """True where it holds for every part."""
        if not self.parts:
            enter_branch()
            current().demand(self.variables)
        found = holds(self.parts[0], 0)
        for part in self.parts[1:]:
            found = found & holds(part, 0)
        return found

    def _compared(
        self,
        other: Any,
        holds: Callable[[TileIndex, int], MaskExpression],
        fails: Callable[[TileIndex, int], MaskExpression],
        least: bool,
    ) -> MaskExpression:
        difference: Extremum = self - other
        if len(difference.parts) == 1 or difference.least == least:
            return difference._all(holds)
        otherwise = difference._all(fails)
        return MaskExpression(otherwise.mask, otherwise.shape, negated=True, loops=otherwise.loops)

    def __lt__(self, other: Any) -> MaskExpression:
        return self._compared(other, operator.lt, operator.ge, least=False)

    def __le__(self, other: Any) -> MaskExpression:
        return self._compared(other, operator.le, operator.gt, least=False)

    def __gt__(self, other: Any) -> MaskExpression:
        return self._compared(other, operator.gt, operator.le, least=True)

    def __ge__(self, other: Any) -> MaskExpression:
        return self._compared(other, operator.ge, operator.lt, least=True)

    def _equals(self, other: Any) -> bool:
        """Not a mask, so it is worked out for each iteration."""
        difference: Extremum = self - other
        enter_branch()
        if len(difference.parts) != 1:
            current().demand(difference.variables)
        return bool(difference.parts[0] == 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, TileIndex, Extremum)) and self._equals(other)

    def __bool__(self) -> bool:
        return not self._equals(0)


def _variables(values: Sequence[Any]) -> frozenset[LoopVariable]:
    """The loops that values depend on."""
    found: frozenset[LoopVariable] = frozenset()
    for value in values:
        if isinstance(value, Extremum):
            found |= value.variables
        elif isinstance(value, TileIndex):
            found |= value.affine.loop_variables
    return found


def kernel_extremum(function: Callable[..., Any], least: bool) -> Callable[..., Any]:
    """Python's min or max as a kernel sees it."""

    def chosen(*values: Any, **options: Any) -> Any:
        symbolic = any(isinstance(value, (TileIndex, Extremum)) for value in values)
        plain = all(isinstance(value, (int, TileIndex, Extremum)) for value in values)
        if options or len(values) < 2 or not symbolic or not plain:
            return function(*values, **options)
        parts: list[TileIndex] = []
        for value in values:
            if isinstance(value, Extremum) and value.least != least and len(value.parts) != 1:
                return Extremum(True, (), _variables(values))
            inner = value.parts if isinstance(value, Extremum) else (value,)
            parts += [v if isinstance(v, TileIndex) else TileIndex(Affine(int(v))) for v in inner]
        return Extremum(least, parts, _variables(values))

    return chosen


kernel_min = kernel_extremum(builtins.min, least=True)
kernel_max = kernel_extremum(builtins.max, least=False)
