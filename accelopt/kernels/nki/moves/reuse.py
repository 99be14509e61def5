"""Moves that fetch or compute less often: hoisting, blocking and reordering loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, Parameter, Site, ready
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, SourceLoop
from accelopt.kernels.nki.moves.reading.work import resident_bytes
from accelopt.kernels.nki.moves.surgery.hoisting import HoistPlan, hoist, plan_hoist
from accelopt.kernels.nki.moves.surgery.loops import distribute, interchange, split

BLOCK_FACTORS = (2, 4, 8)


class Hoist:
    """Compute a loop-invariant value once, before the loop, and keep its tiles in SBUF.

    before: for m in M: for k in K: w_tile = nl.load(w[k]); f(m, w_tile)
    after:  w_tiles = nl.ndarray((K, nl.par_dim(128), F), ...)
            for k_1 in K: w_tiles[k_1, 0:128, 0:F] = nl.load(w[k_1])
            for m in M: for k in K: f(m, w_tiles[k, 0:128, 0:F])

    Legal when nothing in the value's making depends on the loop or is written by the rest of it,
    and all tiles fit into SBUF together with the kernel's other buffers.
    """

    name = "hoist"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every value that can leave a loop and fits."""
        reading = read(kernel)
        for loop, plan in _hoistable(reading, facts):
            value = plan.kept_values[-1].name
            kept = ", ".join(tensor.name for tensor in plan.kept_values)
            size = plan.resident_bytes()
            number = plan.statements[0].line.number
            text = (
                f"Make {value} (line {number}) before the loop over {loop.node.variable} instead of "
                f"in each of its {_times(loop)} iterations, since it does not depend on "
                f"{loop.node.variable}; keep {kept} in SBUF"
                + (f" ({size / 1024:.0f} KiB per partition)." if size is not None else ".")
            )
            site = Site(self.name, {"value": str(value), "loop": loop.node.variable}, text)
            yield Option(site, partial(hoist, kernel, loop.node.variable, str(value)))


class BlockLoop:
    """Run `factor` iterations of an outer loop inside the next loop, so that what the inner loop
    fetches serves all of them.

    before: for m in M: a = f(m); for n in N: b = nl.load(B[n]); g(a, b, m, n)
    after:  for m_block in M / 4:
                for m_in in 4: a_tiles[m_in] = f(m_block * 4 + m_in)
                for n in N:
                    b = nl.load(B[n])
                    for m_in_1 in 4: g(a_tiles[m_in_1], b, m_block * 4 + m_in_1, n)

    Legal when iterations of both loops are independent, `factor` divides the outer one, and the
    tiles that must be kept fit into SBUF.
    """

    name = "block"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every loop that ends in a loop, by every block factor that shares something."""
        reading = read(kernel)
        for outer in reading.loops:
            inner = _last_loop(outer)
            trips = outer.trips.constant if outer.trips is not None else None
            if inner is None or trips is None:
                continue
            for factor in BLOCK_FACTORS:
                if trips % factor or factor >= trips:
                    continue
                try:
                    blocked, shared = _block(kernel, outer.node.variable, factor, facts)
                except TooLarge:
                    continue
                except IllegalMove:
                    break
                parameters: dict[str, Parameter] = {
                    "loop": outer.node.variable,
                    "factor": factor,
                    "keep": False,
                }
                text = (
                    f"Block loop {outer.node.variable} by {factor} inside loop {inner.variable}: "
                    f"{', '.join(shared)} made once for {factor} iterations of "
                    f"{outer.node.variable} instead of once for each"
                )
                yield Option(Site(self.name, parameters, f"{text}."), ready(blocked))
                keeping, kept = _hoist_all(blocked, inner.variable, facts)
                if kept:
                    text += f"; {', '.join(kept)} kept in SBUF across {inner.variable}."
                    site = Site(self.name, {**parameters, "keep": True}, text)
                    yield Option(site, ready(keeping))


class Interchange:
    """Swap two nested loops, and make what the new inner loop does not change before it.

    before: for i in A: for j in B: x = nl.load(X[j]); f(i, x)
    after:  for j in B: x = nl.load(X[j]); for i in A: f(i, x)

    Legal when iterations of both loops are independent and the inner range does not depend on the
    outer loop.
    """

    name = "interchange"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every pair of loops with nothing between them."""
        reading = read(kernel)
        for outer in reading.loops:
            if len(outer.node.body) != 1 or not isinstance(outer.node.body[0], SourceLoop):
                continue
            inner = outer.node.body[0].variable
            try:
                swapped = interchange(kernel, outer.node.variable)
            except IllegalMove:
                continue
            swapped, values = _hoist_all(swapped, outer.node.variable, facts)
            gain = f", so that {', '.join(values)} is made once per {inner}" if values else ""
            text = f"Swap loops {outer.node.variable} and {inner}{gain}."
            site = Site(self.name, {"loop": outer.node.variable}, text)
            yield Option(site, ready(swapped))


class TooLarge(IllegalMove):
    """What would have to be kept does not fit into SBUF."""


def _block(
    kernel: ParsedKernel, variable: str, factor: int, facts: Facts
) -> tuple[ParsedKernel, list[str]]:
    """The blocked kernel, and the values that a block now shares."""
    kernel, _, inner = split(kernel, variable, factor)
    _, node = kernel.loop(inner)
    last = len(node.body) - 1
    if not isinstance(node.body[last], SourceLoop):
        raise IllegalMove(f"loop {variable} does not end in a loop")
    if last > 0:
        kernel, _, inner = distribute(kernel, inner, last)
    kernel = interchange(kernel, inner)
    kernel, shared = _hoist_all(kernel, inner, facts)
    if not shared:
        raise IllegalMove(f"nothing in the loop is shared by iterations of {variable}")
    if resident_bytes(read(kernel)) > facts.sbuf_bytes:
        raise TooLarge("the blocks do not fit into SBUF")
    return kernel, shared


def _hoist_all(kernel: ParsedKernel, variable: str, facts: Facts) -> tuple[ParsedKernel, list[str]]:
    """Everything that can leave a loop, one value after the other."""
    made: list[str] = []
    while True:
        for loop, plan in _hoistable(read(kernel), facts):
            value = plan.kept_values[-1].name
            if loop.node.variable != variable:
                continue
            try:
                kernel = hoist(kernel, variable, value)
            except IllegalMove:  # a tile that cannot be declared outside
                continue
            made.append(value)
            break
        else:
            return kernel, made


def _hoistable(reading: Reading, facts: Facts) -> Iterator[tuple[LoopFacts, HoistPlan]]:
    """Values that can leave a loop and fit, with what it takes; last in a chain of such values."""
    room = facts.sbuf_bytes - resident_bytes(reading)
    for loop in reading.loops:
        plans: list[HoistPlan] = []
        for statement in reading.inside(loop):
            tensor = statement.result or (statement.target.tensor if statement.target else None)
            if tensor is None or statement.kind != "compute" or tensor.buffer == "psum":
                continue
            try:
                plan = plan_hoist(reading, loop.node.variable, tensor.name)
            except IllegalMove:
                continue
            size = plan.resident_bytes()
            if plan.kept_values and size is not None and size <= room:
                plans.append(plan)
        for plan in plans:
            inside = set(map(id, plan.statements))
            if not any(p is not plan and inside < set(map(id, p.statements)) for p in plans):
                yield loop, plan


def _last_loop(outer: LoopFacts) -> SourceLoop | None:
    """The loop that ends an outer loop's body, when no other loop stands beside it."""
    body = outer.node.body
    return body[-1] if body and isinstance(body[-1], SourceLoop) else None


def _times(loop: LoopFacts) -> str:
    constant = loop.trips.constant if loop.trips is not None else None
    return str(constant) if constant is not None else "many"
