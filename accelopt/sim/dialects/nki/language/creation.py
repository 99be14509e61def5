"""New tensors of the `nki` package: memory, shape, address, initial value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import emit, fail, fill, new_tile, refuse, transfer
from accelopt.sim.dialects.neuronxcc.index import number_of
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.dialects.nki.call_conventions import call, element_of
from accelopt.sim.dialects.nki.language.control import program_id
from accelopt.sim.dialects.nki.language.memories import MemoryRegion, psum, sbuf, shared_hbm
from accelopt.sim.dialects.nki.overlapping_tiles import placed
from accelopt.sim.errors import KernelTypeError
from accelopt.sim.isa import elementwise, limits
from accelopt.sim.program import Buffer
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current


def _sizes(shape: Any, on_chip: bool) -> tuple[int, ...]:
    sizes = tuple(number_of(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    if any(size <= 0 for size in sizes):
        fail(KernelTypeError("shape", f"shape {sizes} has a dimension without elements."))
    if on_chip:
        if len(sizes) < 2:
            fail(operands.insufficient_rank(sizes))
        builder.check_partitions(sizes)
    return sizes


def new_tensor(shape: Any, dtype: Any, buffer: Any, name: Any, address: Any = None) -> TensorView:
    """A new tensor; fresh memory is NaN."""
    if not isinstance(buffer, MemoryRegion):
        mend = "Use nl.sbuf, nl.psum, nl.private_hbm or nl.shared_hbm (NKI 0.3 takes no names)."
        fail(KernelTypeError("buffer", f"unknown buffer {buffer!r}.", mend))
    kind = buffer.buffer
    sizes, element = _sizes(shape, kind.on_chip), element_of(dtype)
    title, placement = str(name or ""), None
    if address is not None:
        place = _address(address, kind, sizes, element)
        placement = placed(place, kind, program_id())
    if kind is Buffer.SHARED_HBM:
        return whole(current().declare_shared(sizes, element, title))
    return whole(current().declare(sizes, element, kind, name=title, placement=placement))


def _address(
    address: Any, kind: Buffer, sizes: tuple[int, ...], element: np.dtype
) -> tuple[int, int]:
    """(partition, byte): inside of the memory, and in PSUM at the start of a bank."""
    start, at = (number_of(n) for n in address)
    core = TARGETS[current().target]
    size = math.prod(sizes[1:]) * element.itemsize
    if not kind.on_chip:
        fail(KernelTypeError("address", "only tensors in SBUF and PSUM have an address."))
    room = core.psum_partition_bytes if kind is Buffer.PSUM else core.sbuf_usable_bytes
    if not start >= 0 or start + sizes[0] > limits.MAX_PARTITIONS:
        said = f"a tile of {sizes[0]} partitions starts at partition {start}."
        refuse(operands.bad_placement(said, "There are 128."))
    if at < 0 or at + size > room:
        said = f"bytes {at} to {at + size} of a partition lie outside of {kind.value.upper()}."
        refuse(operands.bad_placement(said, f"There are {room}."))
    if kind is Buffer.PSUM and at % limits.PSUM_BANK_BYTES:
        said = f"a tile in PSUM starts at byte {at}."
        mend = f"Start at a bank: a multiple of {limits.PSUM_BANK_BYTES}."
        refuse(operands.bad_placement(said, mend))
    return start, at


def _filled(shape: Any, value: Any, dtype: Any, buffer: Any, name: Any) -> TensorView:
    result = new_tensor(shape, dtype, buffer, name)
    number = builder.number(value)
    if result.on_chip:
        return fill(result, number)
    if len(result.shape) == 1 or result.shape[0] > limits.MAX_PARTITIONS:
        fail(operands.initial_value_in_hbm())
    constant = fill(new_tile(result.shape, result.dtype), number)
    return transfer(result, constant)


@call
def ndarray(
    shape: Any, dtype: Any, buffer: Any = sbuf, name: Any = "", address: Any = None
) -> TensorView:
    """A new tensor; `address` is (partition, byte of the partition)."""
    return new_tensor(shape, dtype, buffer, name, address)


@call
def zeros(shape: Any, dtype: Any, buffer: Any = sbuf, name: Any = "") -> TensorView:
    """A new tensor of zeros."""
    return _filled(shape, 0, dtype, buffer, name)


@call
def ones(shape: Any, dtype: Any, buffer: Any = sbuf, name: Any = "") -> TensorView:
    """A new tensor of ones."""
    return _filled(shape, 1, dtype, buffer, name)


@call
def full(shape: Any, fill_value: Any, dtype: Any, buffer: Any = sbuf, name: Any = "") -> TensorView:
    """A new tensor of one value."""
    return _filled(shape, fill_value, dtype, buffer, name)


@call
def zeros_like(x: Any, dtype: Any = None, buffer: Any = None, name: Any = "") -> TensorView:
    """A new tensor of zeros with the shape (format, memory) of another."""
    return _filled(x.shape, 0, dtype or x.dtype, buffer or x.buffer, name)


@call
def empty_like(x: Any, dtype: Any = None, buffer: Any = None, name: Any = "") -> TensorView:
    """A new tensor with the shape (format, memory) of another."""
    return new_tensor(x.shape, dtype or x.dtype, buffer or x.buffer, name)


@call
def shared_constant(constant: Any) -> TensorView:
    """A read-only constant in HBM with the contents of an array, or of a .npy file."""
    data = np.load(Path(constant)) if isinstance(constant, (str, Path)) else np.asarray(constant)
    narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}
    element = element_of(narrow.get(data.dtype, data.dtype))
    contents = np.ascontiguousarray(data.astype(dtypes.stored(element)))
    return whole(current().declare(data.shape, element, Buffer.HBM, data=contents))


@call
def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: Any = None) -> TensorView:
    """The identity matrix as a tile in SBUF."""
    size = number_of(n)
    element = element_of(dtype)
    contents = np.identity(size).astype(dtypes.stored(element))
    constant = whole(current().declare((size, size), element, Buffer.HBM, data=contents))
    result = new_tile((size, size), element) if dst is None else dst
    return transfer(result, constant)


@call
def rand(shape: Any, dtype: Any, buffer: Any = sbuf, name: Any = "") -> TensorView:
    """A new tile of random numbers, uniform in [0, 1)."""
    return emit(elementwise.RANDOM, result=new_tensor(shape, dtype, buffer, name))


@call
def random_seed(seed: Any) -> None:
    """Seeds the device's generator; the simulated one has one fixed sequence a launch."""


__all__ = [
    "empty_like", "full", "ndarray", "ones", "psum", "rand", "random_seed", "sbuf",
    "shared_constant", "shared_hbm", "shared_identity_matrix", "zeros", "zeros_like",
]  # fmt: skip
