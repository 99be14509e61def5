"""What is read at indices that are known only when the kernel runs, as values: elements in whose address
an axis is a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelopt.algorithm.index import ZERO, Axis, Index
from accelopt.algorithm.lookups import ComputedElements, bound, index_by
from accelopt.algorithm.value_nodes import Value
from accelopt.algorithm.values import Values
from accelopt.kernels.nki.lift.execution_points import Contents, Moment
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.sim.access import Access, Indirect
from accelopt.sim.errors import SourceLine


def gathered(
    reaching: Contents, access: Access, address: Index, coordinates: Sequence[Index], place: Moment
) -> Value:
    """An element of a tile with run-time indices, `address` being the rest of its address. Raises
    NotLifted where indices out of bounds are skipped, and where what is gathered has no such form."""
    source = reaching.instruction_at(place).source
    numbers: dict[Axis, Value] = {}
    for item in access.indirect:
        value = number_at(reaching, item, access, coordinates, place)
        found = index_by(reaching.values, value, item.size, [address, *place.trips], numbers)
        address = address + found * item.stride
    element = reaching.content(access.tensor, address, place)
    return looked_up(reaching.values, element, numbers, source)


def number_at(
    reaching: Contents, item: Indirect, access: Access, coordinates: Sequence[Index], place: Moment
) -> Value:
    """A run-time index of an element of a tile. Raises NotLifted where indices out of bounds are skipped."""
    instruction = reaching.instruction_at(place)
    if instruction.attributes.get("oob_mode") == "skip":
        raise NotLifted("it skips run-time indices that are out of bounds", instruction.source)
    if item.group:
        raise NotLifted("it has indices that partitions share", instruction.source)
    own = tuple(coordinates)[-len(item.index.shape) :]
    if item.index.shape[0] == access.shape[0]:
        own = tuple(coordinates)[: len(item.index.shape)]
    at = [i if n > 1 else ZERO for i, n in zip(own, item.index.shape, strict=True)]
    return reaching.read(item.index, at, place)


def looked_up(
    values: Values, value: Value, numbers: Mapping[Axis, Value], source: SourceLine
) -> Value:
    """The value with its elements looked up where some axes are numbers. Raises NotLifted."""
    try:
        return bound(values, value, numbers)
    except ComputedElements:
        raise NotLifted("it gathers from what several instructions wrote", source) from None
