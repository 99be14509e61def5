"""New tensors: their memory, shape, initial value."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.call_sites import call_chain
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import api, emit, fail, new_tile, refuse
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.errors import KernelTypeError
from accelopt.sim.isa import elementwise
from accelopt.sim.program import Buffer, LoopKind, Placement, Tensor
from accelopt.sim.rules import kernels, operands
from accelopt.sim.tracer import current


class BufferName:
    """nl.sbuf and the other memories; compiler.sbuf adds direct allocation to it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __repr__(self) -> str:
        return f"nl.{self.buffer.value}"

    def placement(self, sizes: tuple[int, ...], rank: int, element: np.dtype) -> Placement | None:
        """Where the blocks lie; None leaves it to the compiler."""
        return None


__all__ = ["hbm", "par_dim", "private_hbm", "psum", "sbuf", "shared_hbm"]

sbuf = BufferName(Buffer.SBUF)
psum = BufferName(Buffer.PSUM)
hbm = private_hbm = BufferName(Buffer.HBM)
shared_hbm = BufferName(Buffer.SHARED_HBM)

NAMES = {"sbuf": sbuf, "psum": psum, "hbm": hbm, "private_hbm": hbm, "shared_hbm": shared_hbm}


class PartitionDimension(int):
    """nl.par_dim(n): the dimension of a shape that maps to partitions."""


def par_dim(size: int) -> PartitionDimension:
    """Marks the partition dimension of a shape."""
    return PartitionDimension(size)


def _layout(shape: Any, buffer: Buffer) -> tuple[tuple[int, ...], int]:
    """Plain shape and number of block dimensions: the first is the partition dimension unless
    par_dim says otherwise, and what stands before it are blocks (S5)."""
    dimensions = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [at for at, size in enumerate(dimensions) if isinstance(size, PartitionDimension)]
    sizes = tuple(int(size) for size in dimensions)
    if any(size <= 0 for size in sizes):
        fail(KernelTypeError("shape", f"shape {sizes} has a dimension without elements."))
    if not buffer.on_chip:
        return sizes, 0
    rank = marked[0] if marked else 0
    if len(sizes) - rank < 2:
        fail(operands.insufficient_rank(sizes))
    builder.check_partitions(sizes[rank:])
    return sizes, rank


def _new(
    shape: Any,
    dtype: Any,
    buffer: Any,
    name: str,
    fill: float | int | None = None,
    lazy: bool = False,
) -> TensorView:
    tracer = current()
    where: Any = NAMES.get(buffer) if isinstance(buffer, str) else buffer or sbuf
    automatic = getattr(where, "auto_alloc", where)  # buffer=ncc.sbuf, the module
    if not hasattr(automatic, "buffer") and callable(automatic):
        where = automatic()
    if not hasattr(where, "buffer"):
        mend = "Use nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm."
        fail(KernelTypeError("buffer", f"unknown buffer {buffer!r}.", mend))
    kind: Buffer = where.buffer
    if fill is not None and not kind.on_chip:
        fail(operands.initial_value_in_hbm())
    sizes, rank = _layout(shape, kind)
    element = builder.parse_dtype(dtype)
    if kind is Buffer.SHARED_HBM:
        return whole(_shared(sizes, element, name))
    placement = None if tracer.force_auto_allocation else _placed(where, sizes, rank, element)
    if placement is not None and fill is not None:
        refuse(operands.initial_value_on_scratchpad())
    tensor = tracer.declare(
        sizes, element, kind, name=name, block_rank=rank, fill=fill, lazy_fill=lazy,
        placement=placement,
    )  # fmt: skip
    return whole(tensor)


def _placed(
    where: BufferName, sizes: tuple[int, ...], rank: int, element: np.dtype
) -> Placement | None:
    """The direct allocation. The real tracer runs a loop's body once, so where we had to unroll the
    loop, every iteration's tensor lies where the first one's does."""
    tracer = current()
    if not any(iteration.traced_once for iteration in tracer.iterations):
        return where.placement(sizes, rank, element)
    key = call_chain(sys._getframe(1))
    if key not in tracer.placements:
        tracer.placements[key] = where.placement(sizes, rank, element)
    return tracer.placements[key]


def _shared(sizes: tuple[int, ...], element: np.dtype, name: str) -> Tensor:
    """One allocation a launch, the same for every program (S29)."""
    tracer = current()
    in_loop = any(body.kind not in (None, LoopKind.PROGRAM) for body in tracer.bodies)
    if tracer.depth > 1 or in_loop or tracer.in_dynamic_condition():
        refuse(kernels.shared_hbm_in_block())
    return tracer.declare_shared(sizes, element, name)


@api
def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> TensorView:
    """A new tensor; fresh on-chip memory is NaN."""
    return _new(shape, dtype, buffer, name)


@api
def zeros(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", lazy_initialization: bool = False
) -> TensorView:
    """A new tensor of zeros."""
    return _new(shape, dtype, buffer, name, 0, bool(lazy_initialization))


@api
def ones(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", lazy_initialization: bool = False
) -> TensorView:
    """A new tensor of ones."""
    return _new(shape, dtype, buffer, name, 1, bool(lazy_initialization))


@api
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any,
    *,
    buffer: Any = None,
    name: str = "",
    lazy_initialization: bool = False,
) -> TensorView:
    """A new tensor of one value."""
    value = builder.number(fill_value)
    return _new(shape, dtype, buffer, name, value, bool(lazy_initialization))


def _shape_of(tensor: TensorView) -> tuple[int, ...]:
    sizes: list[int] = list(tensor.shape)
    if tensor.open_blocks:
        sizes[tensor.open_blocks] = PartitionDimension(sizes[tensor.open_blocks])
    return tuple(sizes)


@api
def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "") -> TensorView:
    """A new tensor of zeros with the shape (and format) of another."""
    return _new(_shape_of(a), dtype or a.dtype, buffer, name, 0)


@api
def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "") -> TensorView:
    """A new tensor with the shape (and format) of another."""
    return _new(_shape_of(a), dtype or a.dtype, buffer, name)


@api
def shared_constant(constant: Any, dtype: Any = None) -> TensorView:
    """A read-only constant in HBM with the array's contents."""
    data = np.asarray(constant)
    wanted = data.dtype if dtype is None else dtype
    if dtype is None and data.dtype in (np.float64, np.int64):
        wanted = np.float32 if data.dtype == np.float64 else np.int32
    element = builder.parse_dtype(wanted)
    contents = np.ascontiguousarray(data.astype(dtypes.stored(element)))
    return whole(current().declare(data.shape, element, Buffer.HBM, data=contents))


@api
def shared_identity_matrix(n: int, dtype: Any = np.uint8) -> TensorView:
    """The identity matrix as a constant in HBM."""
    return shared_constant(np.identity(int(n)), dtype=dtype)


@api
def rand(shape: Any, dtype: Any = np.float32) -> TensorView:
    """A new SBUF tile of random numbers, uniform in [0, 1)."""
    return emit(elementwise.RANDOM, result=new_tile(tuple(int(n) for n in shape), dtype))


@api
def random_seed(seed: Any, *, mask: Any = None) -> None:
    """Seeds the device's generator; the simulated one has one fixed sequence a launch."""
