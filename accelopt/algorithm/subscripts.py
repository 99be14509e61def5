"""Inputs in the shape of the problem: row-major addresses as subscripts.

A kernel may have cut an argument in tiles (`(32, 128, 1024)`); its accesses say what its dimensions
are, since each of their strides is the size of what lies below a dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accelopt.algorithm.index import Index
from accelopt.algorithm.linear import row_major
from accelopt.algorithm.values import follows


class GuardedAddress(NamedTuple):
    """A row-major address, read where each of the guards is at least 0."""

    address: Index
    guards: tuple[Index, ...] = ()


def view_of(accesses: Sequence[GuardedAddress], given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which all accesses have subscripts in range, as near to how they are used as
    can be; one dimension where there is none."""
    size = 1
    strides: list[int] = []
    for extent in reversed(given):
        strides.append(size)
        size *= extent
    used = {abs(c) for access in accesses for _, c in access.address.terms} | {1}
    for wanted in (used, {*strides, 1}):
        chain = _chain(wanted, size)
        while chain:
            found = [_failing(access, chain, size) for access in accesses]
            failing = [dimension for dimension in found if dimension is not None]
            if not failing:
                return _shape(chain, size)
            worst = max(failing)
            if not worst:
                break
            del chain[worst - 1]  # the dimension above takes both
    return (size,)


def subscripts(access: GuardedAddress, shape: Sequence[int]) -> tuple[Index, ...]:
    """A row-major address as one index a dimension."""
    strides = row_major(shape)
    for found in _divided(access.address, strides):
        if not _outside(found, shape, access.guards):
            return found
    address = access.address
    result: list[Index] = []
    for extent in reversed(shape[1:]):
        result.append(address % extent)
        address = address // extent
    return (address, *result[::-1])


def _chain(strides: set[int], size: int) -> list[int]:
    """The strides that divide each other, largest first."""
    chain: list[int] = []
    for stride in sorted(s for s in strides if 0 < s < size or s == 1):
        if size % stride == 0 and (not chain or stride % chain[-1] == 0):
            chain.append(stride)
    return chain[::-1]


def _shape(chain: Sequence[int], size: int) -> tuple[int, ...]:
    above = [size, *chain[:-1]]
    return tuple(high // low for high, low in zip(above, chain, strict=True))


def _failing(access: GuardedAddress, chain: list[int], size: int) -> int | None:
    """The number of the last dimension that an access leaves; None when it leaves none."""
    shape = _shape(chain, size)
    worst = len(chain) - 1
    for found in _divided(access.address, chain):
        outside = _outside(found, shape, access.guards)
        if not outside:
            return None
        worst = outside[-1]
    return worst


def _divided(address: Index, strides: Sequence[int]) -> Iterator[tuple[Index, ...]]:
    """An address by strides, its constant rounded down or to the nearest multiple of each; nothing where
    a coefficient is no multiple of one."""
    if not strides:
        yield ()
        return
    stride, *rest = strides
    terms = tuple((t, c) for t, c in address.terms if abs(c) >= stride)
    if any(c % stride for _, c in terms):
        return
    constants = (address.constant // stride, (address.constant + stride // 2) // stride)
    for constant in dict.fromkeys(constants):
        index = Index(constant, tuple((t, c // stride) for t, c in terms))
        for below in _divided(address - index * stride, rest):
            yield index, *below


def _outside(indices: Sequence[Index], shape: Sequence[int], guards: Sequence[Index]) -> list[int]:
    """The dimensions whose subscripts may be out of range where the guards hold."""
    return [
        number
        for number, (index, extent) in enumerate(zip(indices, shape, strict=True))
        if not (follows(index, guards) and follows(index * -1 + (extent - 1), guards))
    ]
