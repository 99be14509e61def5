"""When code may move: independent iterations, private slices, values that do not change."""

from __future__ import annotations

from collections.abc import Iterable

from accelopt.kernels.nki.moves.reading.polynomial import Polynomial, Symbol
from accelopt.kernels.nki.moves.reading.reader import LoopFacts, Reading, ReadStatement
from accelopt.kernels.nki.moves.reading.values import KernelTensor, TileUse


def dependence(reading: Reading, loop: LoopFacts) -> str | None:
    """Why the loop's iterations may not run in another order; None when they may.

    `nl.affine_range` promises independence (sums into one accumulator apart). Any other range must
    show it: no name carries a value over, and whatever is written is either a sum or a part that
    belongs to one iteration alone.
    """
    if loop.carried:
        return (
            f"{sorted(loop.carried)[0]} carries a value from one iteration of the loop to the next"
        )
    inside = reading.inside(loop)
    for statement in inside:
        if statement.opaque:
            return f"line {statement.line.number} is not understood"
    if loop.kind == "affine":
        return None
    for tensor in {a.tensor.storage for s in inside for a in s.writes}:
        if loop.symbol in tensor.loops or not _outlives(reading, tensor, loop):
            continue
        uses = [a for s in inside for a in (*s.reads, *s.writes) if a.tensor.storage is tensor]
        if private_axis(reading, uses, loop.symbol) is not None:
            continue
        users = [s for s in inside if tensor in s.touched]
        if all(s.accumulates and s.target and s.target.tensor is tensor for s in users):
            continue
        return f"iterations may share elements of {tensor.name}"
    return None


def private_axis(reading: Reading, uses: Iterable[TileUse], symbol: Symbol) -> int | None:
    """The axis along which every use takes the same part, a different one in each iteration."""
    accesses = list(uses)
    if not accesses or any(a.dims is None for a in accesses):
        return None
    first = accesses[0].dims
    assert first is not None
    for axis, dim in enumerate(first):
        if symbol not in dim.symbols or not injective(reading, dim, symbol):
            continue
        if all(
            a.dims is not None
            and len(a.dims) == len(first)
            and dim.factor_of(symbol) == a.dims[axis].factor_of(symbol)
            and injective(reading, a.dims[axis], symbol)
            and _outer_part(a.dims[axis], symbol) == _outer_part(dim, symbol)
            for a in accesses
        ):
            return axis
    return None


def _outer_part(dim: Polynomial, symbol: Symbol) -> Polynomial:
    """The part of an index that neither the loop nor ramps move."""
    rest = dim.without(symbol, *dim.ramps)
    return rest.without(*(s for s in rest.symbols if s.kind == "loop"))


def injective(reading: Reading, dim: Polynomial, symbol: Symbol) -> bool:
    """True when two iterations never meet: the step is at least as wide as what one spans."""
    factor = next((f.step for f in reading.loops if f.symbol == symbol), 1)
    if factor is None:
        return False
    step = dim.factor_of(symbol) * Polynomial.number(factor)
    rest = dim.without(symbol)
    if any(symbol in s.mentions for s in dim.symbols):
        return False
    ramps = rest.ramps
    moving = [s for s in rest.symbols if s.kind == "loop"]
    if len(ramps) == 1 and not moving:
        only = ramps[0]
        if rest.factor_of(only).constant == 1 and only.size == step:
            return True
    if step.constant is None:
        return False
    span = 1
    for part in (*ramps, *moving):
        factor, size = rest.factor_of(part).constant, _extent(reading, part)
        if factor is None or size is None or factor < 0:
            return False
        span += factor * (size - 1)
    return abs(step.constant) >= span


def _extent(reading: Reading, symbol: Symbol) -> int | None:
    if symbol.kind == "ramp":
        return symbol.size.constant if symbol.size else None
    for loop in reading.loops:
        if loop.symbol == symbol and loop.plain and loop.trips is not None:
            return loop.trips.constant
    return None


def _outlives(reading: Reading, tensor: KernelTensor, loop: LoopFacts) -> bool:
    """True when the tensor exists before the loop's body runs."""
    return tensor.path[: len(loop.path)] != loop.path or tensor.parameter


def uses_of(reading: Reading, tensor: KernelTensor) -> list[tuple[ReadStatement, TileUse]]:
    """Every access to a tensor's storage, with its statement."""
    return [
        (s, a)
        for s in reading.statements
        for a in (*s.reads, *s.writes)
        if a.tensor.storage is tensor.storage
    ]
