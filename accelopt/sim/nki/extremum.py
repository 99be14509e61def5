"""min() and max() of loop indices in a kernel: not affine, so no slice may end there (S10), and any
use as a number unrolls the loop."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, NoReturn

from accelopt.sim.affine import LoopVariable
from accelopt.sim.nki.index import Index
from accelopt.sim.tracer import current


class Extremum:
    """The smaller or larger of expressions whose order depends on the iteration."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, variables: frozenset[LoopVariable]) -> None:
        self.variables = variables

    def _moved(self, other: Any) -> Extremum:
        more = other.affine.loop_variables if isinstance(other, Index) else frozenset()
        return Extremum(self.variables | more)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _moved

    def _needed(self, *_: Any) -> NoReturn:
        current().demand(self.variables)

    __index__ = __int__ = __float__ = __bool__ = __floordiv__ = __mod__ = __truediv__ = _needed
    __lt__ = __le__ = __gt__ = __ge__ = _needed

    def __eq__(self, other: object) -> bool:
        self._needed()


def kernel_extremum(function: Callable[..., Any]) -> Callable[..., Any]:
    """Python's min or max as a kernel sees it."""

    def chosen(*values: Any, **options: Any) -> Any:
        symbolic = [value for value in values if isinstance(value, (Index, Extremum))]
        plain = all(isinstance(value, (int, Index, Extremum)) for value in values)
        if options or len(values) < 2 or not symbolic or not plain:
            return function(*values, **options)
        best = values[0]
        for value in values[1:]:
            if isinstance(best, Extremum) or isinstance(value, Extremum):
                return _undecided(values)
            comparison = best <= value if function is builtins.min else best >= value
            mask = getattr(comparison, "mask", None)
            if mask is not None and not mask.always and not mask.never:
                return _undecided(values)
            best = best if comparison else value
        return best

    return chosen


def _undecided(values: tuple[Any, ...]) -> Extremum:
    variables: frozenset[LoopVariable] = frozenset()
    for value in values:
        if isinstance(value, Index):
            variables |= value.affine.loop_variables
        elif isinstance(value, Extremum):
            variables |= value.variables
    return Extremum(variables)


kernel_min = kernel_extremum(builtins.min)
kernel_max = kernel_extremum(builtins.max)
