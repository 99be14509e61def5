"""Inputs in the shape of the problem: row-major addresses as subscripts.

A kernel may have cut an argument in tiles (`(32, 128, 1024)`); its accesses say what its dimensions
are, since each of their strides is the size of what lies below a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.kernels.nki.lift.index import Index


def view_of(addresses: Sequence[Index], given: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which all addresses have subscripts in range, as near to how they are used as
    can be; one dimension where there is none. Subscripts that a condition keeps in range may reach
    out of it, where no shape holds all."""
    size = 1
    strides: list[int] = []
    for extent in reversed(given):
        strides.append(size)
        size *= extent
    used = {abs(c) for address in addresses for _, c in address.terms} | {1}
    for wanted, guarded in ((used, False), (used, True), ({*strides, 1}, True)):
        chain = _chain(wanted, size)
        while chain:
            found = [_failing(address, chain, size, guarded) for address in addresses]
            failing = [dimension for dimension in found if dimension is not None]
            if not failing:
                return _shape(chain, size)
            worst = max(failing)
            if not worst:
                break
            del chain[worst - 1]  # the dimension above takes both
    return (size,)


def subscripts(address: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """A row-major address as one index a dimension, which add up to it in any case."""
    strides = _strides(shape)
    for fits in (_in_range, _partly_in_range):
        for nearest in (False, True):
            found = _divided(address, strides, nearest)
            if found is not None and fits(found, shape):
                return found
    return _divided(address, strides, False) or _divided(address, strides, True) or (
        _digits(address, shape))  # fmt: skip


def _digits(address: Index, shape: Sequence[int]) -> tuple[Index, ...]:
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


def _strides(shape: Sequence[int]) -> list[int]:
    result: list[int] = []
    size = 1
    for extent in reversed(shape):
        result.append(size)
        size *= extent
    return result[::-1]


def _failing(address: Index, chain: list[int], size: int, guarded: bool) -> int | None:
    """The number of the first dimension that an address leaves; None when it leaves none."""
    shape = _shape(chain, size)
    best: int | None = None
    for nearest in (False, True):
        found = _divided(address, chain, nearest)
        if found is None:
            best = len(chain) - 1
            continue
        outside = [
            n
            for n, (index, extent) in enumerate(zip(found, shape, strict=True))
            if (index.bounds[1] < 0 or index.bounds[0] >= extent)
            or (not guarded and (index.bounds[0] < 0 or index.bounds[1] >= extent))
        ]
        if not outside:
            return None
        best = outside[-1]
    return best


def _divided(address: Index, strides: Sequence[int], nearest: bool) -> tuple[Index, ...] | None:
    """An address by strides; None where a coefficient is no multiple of one."""
    result: list[Index] = []
    for stride in strides:
        terms = tuple((t, c) for t, c in address.terms if abs(c) >= stride)
        if any(c % stride for _, c in terms):
            return None
        constant = (address.constant + (stride // 2 if nearest else 0)) // stride
        index = Index(constant, tuple((t, c // stride) for t, c in terms))
        address = address - index * stride
        result.append(index)
    return tuple(result)


def _in_range(indices: Sequence[Index], shape: Sequence[int]) -> bool:
    return all(
        i.bounds[0] >= 0 and i.bounds[1] < extent for i, extent in zip(indices, shape, strict=True)
    )


def _partly_in_range(indices: Sequence[Index], shape: Sequence[int]) -> bool:
    return all(
        i.bounds[1] >= 0 and i.bounds[0] < extent for i, extent in zip(indices, shape, strict=True)
    )
