"""What expressions of a kernel stand for: numbers, indices, tensors and the parts of them in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import libcst as cst

from accelopt.kernels.nki.moves.reading.polynomial import ONE, Polynomial, Symbol, ramp
from accelopt.kernels.nki.moves.reading.signatures import DTYPE_BYTES
from accelopt.kernels.nki.moves.reading.source import StatementPath


@dataclass(frozen=True)
class Number:
    """An integer or an index. `rank`: of the index arrays in it, 0 for a scalar."""

    polynomial: Polynomial
    rank: int = 0


@dataclass(frozen=True)
class Ramp:
    """`nl.arange(start, stop)` before it is given an axis."""

    start: Polynomial
    size: Polynomial


@dataclass(frozen=True)
class KnownConstant:
    """A float, a string, a bool or None; `value` is None also when it is not known."""

    value: float | str | bool | None


@dataclass(frozen=True)
class Sequence:
    """A tuple or list."""

    items: tuple[ReadValue, ...]


@dataclass(frozen=True)
class Name:
    """A canonical name such as `nl.exp`, or a dtype such as `nl.float32`."""

    canonical: str


@dataclass(frozen=True)
class PolynomialMask:
    """A conjunction of `polynomial >= 0`."""

    conditions: tuple[Polynomial, ...]


@dataclass(frozen=True)
class Unknown:
    """Anything else, with what it was made of."""

    parts: tuple[ReadValue, ...] = ()


@dataclass(eq=False)
class KernelTensor:
    """Storage, or the result of one instruction; compared by identity.

    `shape` has one polynomial a dimension, block dimensions first, None when unknown.
    `loops`: the loops around its declaration. `declared`: it comes from nl.ndarray and the like.
    """

    name: str
    shape: tuple[Polynomial, ...] | None
    dtype: str | None
    buffer: str
    path: StatementPath
    loops: tuple[Symbol, ...] = ()
    declared: bool = False
    parameter: bool = False
    fill: str | None = None
    block_rank: int = 0
    root: KernelTensor | None = None

    @property
    def storage(self) -> KernelTensor:
        """The tensor whose memory this is: itself, but for reshaped tensors."""
        return self.root.storage if self.root else self

    def bytes_per_partition(self) -> int | None:
        """Size of one tile in a partition, all blocks together."""
        if self.shape is None:
            return None
        total = DTYPE_BYTES.get(self.dtype or "float32", 4)
        for axis, size in enumerate(self.shape):
            if axis != self.block_rank:
                if size.constant is None:
                    return None
                total *= size.constant
        return total


@dataclass(eq=False)
class TileUse:
    """One use of a tensor. `dims` has an index polynomial a dimension; a slice is start + ramp.

    `node` is the expression in the source, `style` "whole" (a bare name), "basic" (slices) or
    "advanced" (arange). `view` is set when `node` subscripts or names a view bound earlier.
    """

    tensor: KernelTensor
    dims: tuple[Polynomial, ...] | None
    shape: tuple[Polynomial, ...] | None
    node: cst.BaseExpression
    style: str = "whole"
    view: bool = False

    def mentions(self, symbol: Symbol) -> bool:
        """True when the part in use may depend on a loop."""
        if self.dims is None:
            return self.style != "whole" or self.view
        return any(symbol in dim.loops for dim in self.dims)

    def same_part(self, other: TileUse) -> bool:
        """True when both name the same elements of the same tensor in the same iteration."""
        return (
            self.tensor is other.tensor
            and self.dims is not None
            and other.dims is not None
            and [_plain(dim) for dim in self.dims] == [_plain(dim) for dim in other.dims]
        )

    @property
    def whole(self) -> bool:
        """True when it covers the tensor entirely, every dimension from 0 to its size."""
        shape = self.tensor.shape
        if self.dims is None or shape is None or len(self.dims) != len(shape):
            return False
        return all(
            covers(dim, size) or (size == ONE and not _plain(dim).terms)
            for dim, size in zip(self.dims, shape, strict=True)
        )


@dataclass(frozen=True)
class TensorValue:
    """An expression whose value is a tensor or a part of one."""

    access: TileUse


@dataclass(frozen=True)
class UnboundResult:
    """The value of an instruction before it is bound or stored."""

    shape: tuple[Polynomial, ...] | None
    dtype: str | None
    buffer: str


ReadValue = (
    Number
    | Ramp
    | KnownConstant
    | Sequence
    | Name
    | PolynomialMask
    | Unknown
    | TensorValue
    | UnboundResult
)


@dataclass(frozen=True, eq=False)
class KnownCall:
    """A call of a known function, arguments by parameter name."""

    name: str
    node: cst.Call
    arguments: Mapping[str, cst.BaseExpression]
    values: Mapping[str, ReadValue] = field(default_factory=dict)

    def access(self, argument: str) -> TileUse | None:
        """The tensor an argument names, if it does."""
        value = self.values.get(argument)
        return value.access if isinstance(value, TensorValue) else None


def covers(dim: Polynomial, size: Polynomial) -> bool:
    """True when an index polynomial runs over 0 .. size-1 with stride one."""
    ramps = dim.ramps
    if len(ramps) == 1:
        return dim == Polynomial.symbol(ramps[0]) and ramps[0].size == size
    return False


def shape_of(value: ReadValue) -> tuple[Polynomial, ...] | None:
    """The shape of a tensor-like value."""
    if isinstance(value, TensorValue):
        return value.access.shape
    if isinstance(value, UnboundResult):
        return value.shape
    return None


def _plain(dim: Polynomial) -> Polynomial:
    """Without ramps of one element, which are constant zero."""
    return dim.without(*(ramp for ramp in dim.ramps if ramp.size == ONE))


def whole(tensor: KernelTensor, node: cst.BaseExpression) -> TileUse:
    """A tensor by its bare name."""
    dims = None
    if tensor.shape is not None:
        rank = len(tensor.shape)
        dims = tuple(ramp(size, axis - rank) for axis, size in enumerate(tensor.shape))
    return TileUse(tensor, dims, tensor.shape, node)
