"""Two loops as one: that over tiles, and that over a tile's steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from accelopt.kernels.cuda.programs.loops import Head
from accelopt.kernels.cuda.programs.quantities import Quantity, named, number
from accelopt.kernels.cuda.programs.syntax import Unread, said

STEP = "a step"  # of the loop that both become; no name of C's


class MergedLoops(NamedTuple):
    """The loop over tiles and that over a tile's `steps` as one."""

    inner: str
    outer: Head
    steps: int
    axes: Mapping[str, str]
    block: Mapping[str, int]

    def rewritten(self, of: Quantity, by: Mapping[str, Quantity]) -> Quantity:
        """A number of the thread `by` in a tile, by this thread's place and the step of all tiles."""
        tile = self.outer.variable
        first = named(STEP).plus(named(self.inner), -1)  # of a tile
        total = number(0)
        for factors, times in _replaced(of, by).terms:
            rest = tuple(one for one in factors if one.text != tile)
            if len(rest) == len(factors):
                total = total.plus(Quantity(((factors, times),)))
                continue
            of_tiles = self.outer.step == number(1)
            if len(rest) != len(factors) - 1 or (of_tiles and times % self.steps):
                raise Unread("tiles that are not side by side")
            times = times // self.steps if of_tiles else times
            total = total.plus(Quantity(((rest, times),)).times(first))
        found = _replaced(total, {f"threadIdx.{axis}": self._own(axis) for axis in self.axes})
        if found.names & {tile, self.inner, "blockIdx.x", "blockIdx.y"}:
            raise Unread("an index that knows its tile")
        return found

    def _own(self, axis: str) -> Quantity:
        block = named(f"blockIdx.{axis}").times(number(self.block[axis]))
        return named(self.axes[axis]).plus(block, -1)

    def depth(self, bounds: set[str], tiles: str) -> str:
        """How many steps there are: those of all tiles, below the bound. `tiles` is how far the outer loop
        goes, with constants by their values. Raises Unread for several bounds."""
        if len(bounds) > 1:
            raise Unread("two bounds of one sum")
        count, high = self.steps, f"({said(self.outer.high)})"
        by_tile = self.outer.step == number(1)
        steps = f"{high} * {count}" if by_tile else f"({high} + {count - 1}) / {count} * {count}"
        if not bounds:
            return steps
        (bound,) = bounds
        whole, last = (re.sub(r"[\s()]", "", text) for text in (tiles, bound))
        up = (f"{last}+{count}-1/{count}", f"{last}+{count - 1}/{count}", f"{last}-1/{count}+1")
        if (last.isidentifier() and whole in up) if by_tile else whole == last:
            return bound
        return f"({steps} < ({bound}) ? {steps} : ({bound}))"

    def text(self, index: Quantity) -> str:
        """An index in C."""
        parts = []
        for factors, times in index.terms:
            words = [] if times == 1 and factors else [str(times)]
            words += [self.inner if one.text == STEP else _bracketed(one.text) for one in factors]
            parts.append(" * ".join(words))
        return " + ".join(parts) or "0"


def _replaced(of: Quantity, by: Mapping[str, Quantity]) -> Quantity:
    """A whole number with others in the place of some variables, all at once."""
    total = number(0)
    for factors, times in of.terms:
        term = number(times)
        for one in factors:
            if one.text not in by and one.names & set(by):
                raise Unread("an index that is no sum of products")
            term = term.times(by.get(one.text, Quantity((((one,), 1),))))
        total = total.plus(term)
    return total


def _bracketed(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+", text) else f"({text})"
