"""Moves that change how much one instruction or transfer handles."""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, Parameter, Site, ready
from accelopt.kernels.nki.moves.reading.reader import read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel
from accelopt.kernels.nki.moves.reading.work import resident_bytes
from accelopt.kernels.nki.moves.surgery.widening import widen

MOST_FACTORS = 4


class Widen:
    """Do several iterations of a loop in one, on a tile that is as much wider.

    before: for j in nl.affine_range(14): x = nl.load(a[p, j * 512:(j + 1) * 512]); f(x)
    after:  for j in nl.affine_range(2):  x = nl.load(a[p, j * 3584:(j + 1) * 3584]); f(x)

    Fewer, longer transfers and instructions. Legal when the loop holds elementwise instructions,
    loads, stores and products along the moving operand only, its iterations are independent, their
    tiles lie side by side, and PSUM tiles stay within a bank.
    """

    name = "widen"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every loop, by every factor that divides it."""
        for loop in read(kernel).loops:
            trips = loop.trips.constant if loop.trips is not None else None
            if trips is None:
                continue
            for factor in _factors(trips):
                try:
                    wider = widen(kernel, loop.node.variable, factor)
                except IllegalMove:
                    break
                if resident_bytes(read(wider)) > facts.sbuf_bytes / 2:  # room to overlap
                    break
                text = (
                    f"Handle {factor} iterations of loop {loop.node.variable} "
                    f"(line {loop.node.number}) at once, on tiles {factor} times as wide: fewer, "
                    "longer transfers and instructions."
                )
                parameters: dict[str, Parameter] = {"loop": loop.node.variable, "factor": factor}
                yield Option(Site(self.name, parameters, text), ready(wider))


def _factors(trips: int) -> list[int]:
    """At most four divisors, from the smallest to all iterations at once."""
    divisors = [f for f in range(2, trips + 1) if trips % f == 0]
    if len(divisors) <= MOST_FACTORS:
        return divisors
    step = (len(divisors) - 1) / (MOST_FACTORS - 1)
    return [divisors[round(index * step)] for index in range(MOST_FACTORS)]
