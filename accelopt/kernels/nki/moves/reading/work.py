"""A rough count of the work in a kernel's source, per resource: what a change is expected to save.

Not a timing model (that is `accelopt.sim.timing`): it needs no trace, runs no kernel code, and only
ranks changes of one kernel. Rates are trn1's, from the vendor's guides and measured profiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import libcst as cst

from accelopt.hardware import TRN1
from accelopt.kernels.nki.moves.reading.legality import uses_of
from accelopt.kernels.nki.moves.reading.polynomial import ONE, Polynomial
from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.signatures import BINARY, DTYPE_BYTES, REDUCTIONS, UNARY
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, parts
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    Name,
    Number,
    TensorValue,
    TileUse,
    shape_of,
)

RESOURCES = ("dma", "tensor", "vector", "scalar", "gpsimd")

UNKNOWN_TRIPS = 8  # a loop whose length is not known
UNKNOWN_WIDTH = 512
CLOCK = {engine: TRN1.ghz(engine) for engine in ("vector", "scalar", "gpsimd")}
FIXED_CYCLES = 120  # of one elementwise instruction
STATIONARY_CYCLES = TRN1.partitions + TRN1.matmul_pass_overhead_cycles  # of one load
DMA_FLOOR_NS = TRN1.dma_strided_ns + 2 * TRN1.dma_buffer_ns  # of one descriptor
DMA_START_NS = 30.0  # of one transfer, spread over the engines


def work(kernel: ParsedKernel) -> dict[str, float]:
    """Nanoseconds of busy time by resource."""
    reading = read(kernel)
    total = dict.fromkeys(RESOURCES, 0.0)
    for statement in reading.statements:
        times = math.prod(_trips(loop.trips) for loop in statement.loops)
        for resource, nanoseconds in _statement(reading, statement).items():
            total[resource] += times * nanoseconds
    overflow = resident_bytes(reading) / TRN1.sbuf_usable_bytes - 1.0
    if overflow > 0:
        total["dma"] *= 1.0 + 2.0 * overflow
    return total


def latency(times: Mapping[str, float]) -> float:
    """Engines overlap: the busiest sets the pace, the others show through a little."""
    return float(sum(value**4 for value in times.values()) ** 0.25)


def resident_bytes(reading: Reading) -> float:
    """SBUF bytes per partition of all buffers, without block dimensions that only tell the
    iterations of a loop apart."""
    total = 0.0
    for tensor in reading.tensors:
        if tensor.buffer != "sbuf" or tensor.shape is None:
            continue
        size = float(DTYPE_BYTES.get(tensor.dtype or "float32", 4))
        for axis, extent in enumerate(tensor.shape):
            if axis != tensor.block_rank:
                size *= _live_extent(reading, tensor, axis, extent.constant or UNKNOWN_TRIPS)
        total += size
    return total


def _live_extent(reading: Reading, tensor: KernelTensor, axis: int, extent: int) -> int:
    """How many blocks along an axis are in use at a time: all, but for what a loop around every use
    steps over."""
    if axis >= tensor.block_rank:
        return extent
    dims = [a.dims[axis] if a.dims else None for _, a in uses_of(reading, tensor)]
    if not dims or None in dims:
        return extent
    common = frozenset.intersection(*(dim.symbols for dim in dims if dim is not None))
    for symbol in common:
        steps = {dim.factor_of(symbol).constant for dim in dims if dim is not None}
        if len(steps) == 1 and symbol.kind == "loop":
            step = steps.pop()
            extent = min(extent, abs(step)) if step else extent
    return extent


def _statement(reading: Reading, statement: ReadStatement) -> dict[str, float]:
    costs: dict[str, float] = {}

    def add(more: Mapping[str, float]) -> None:
        for resource, value in more.items():
            costs[resource] = costs.get(resource, 0.0) + value

    if not statement.opaque and isinstance(statement.line.node, cst.SimpleStatementLine):
        for piece in parts(statement.line.node):
            if piece in reading.calls:
                add(_call(reading.calls[piece], statement))
            elif isinstance(piece, cst.BinaryOperation):
                add(_operator(reading, piece))
        part = statement.line.node.body[0]
        target = statement.target
        # The tensor engine adds up in PSUM by itself.
        if isinstance(part, cst.AugAssign) and target and target.tensor.buffer != "psum":
            add(_binary("add", target.shape, [None, None]))
    return costs


def _operator(reading: Reading, node: cst.BinaryOperation) -> dict[str, float]:
    """`x * y` of tensors, priced as a product whatever the operator."""
    shape = shape_of(reading.values.get(node, Number(ONE)))
    if shape is None:
        return {}
    tensors = [reading.values.get(node.left), reading.values.get(node.right)]
    return _binary("multiply", shape, [v for v in tensors if shape_of(v or Number(ONE))])


def _call(call: KnownCall, statement: ReadStatement) -> dict[str, float]:
    name = call.name
    if name in {"nl.load", "nl.store"}:
        access = call.access("src" if name == "nl.load" else "dst")
        return {"dma": _dma(access)} if access is not None else {}
    if name == "nl.load_transpose2d":
        access = call.access("src")
        return {"dma": _dma(access, transposing=True)} if access is not None else {}
    if name in {"nisa.nc_matmul", "nl.matmul"}:
        return _matmul(call)
    shape = shape_of(next((v for v in call.values.values() if shape_of(v)), Number(ONE)))
    width = _width(shape)
    if name in {"nisa.nc_transpose", "nl.transpose"}:
        return {"tensor": _passes(128)}
    engine = call.values.get("engine")
    chosen = engine.canonical.rpartition(".")[2] if isinstance(engine, Name) else ""
    for resource in ("vector", "scalar", "gpsimd"):
        if chosen.startswith(resource):
            return _elementwise(resource, width)
    short = name.rpartition(".")[2]
    if short in BINARY or name == "nisa.tensor_tensor":
        operands = [v for k, v in call.values.items() if k in {"x", "y", "data1", "data2"}]
        return _binary(short, shape, [v for v in operands if shape_of(v)])
    if name == "nisa.activation" and "reduce_res" in call.arguments:
        return _elementwise("scalar", width + 64)
    if short in {"reciprocal"}:
        return _elementwise("vector", 3 * width)
    if short in REDUCTIONS or name == "nisa.tensor_reduce" or short in {"loop_reduce"}:
        return _elementwise("vector", width)
    if name in {"nisa.scalar_tensor_tensor", "nisa.tensor_tensor_scan", "nl.where"}:
        return _elementwise("vector", 2 * width)
    if short in UNARY or name in {"nl.copy", "nisa.activation", "nisa.tensor_scalar"}:
        return _elementwise("scalar", width)
    if name == "nisa.activation_reduce":
        return _elementwise("scalar", width + 64)
    if name in {"nisa.tensor_copy", "nisa.memset"}:
        return _elementwise("vector", width)
    if name in {"nisa.affine_select", "nisa.iota"}:
        return _elementwise("gpsimd", width + 30)
    return {}


def _binary(
    operation: str, shape: tuple[Polynomial, ...] | None, tensors: list[object]
) -> dict[str, float]:
    width = _width(shape)
    narrow = any(_width(shape_of(t)) == 1 for t in tensors if t is not None)  # type: ignore[arg-type]
    if (len(tensors) < 2 or narrow) and operation in {"add", "subtract", "multiply"}:
        return _elementwise("scalar", width)
    in_psum = any(isinstance(t, TensorValue) and t.access.tensor.buffer == "psum" for t in tensors)
    passes = 3 if operation == "divide" else (1 if in_psum or len(tensors) < 2 else 2)
    return _elementwise("vector", passes * width)


def _elementwise(resource: str, cycles: float) -> dict[str, float]:
    return {resource: (cycles + FIXED_CYCLES) / CLOCK[resource]}


def _matmul(call: KnownCall) -> dict[str, float]:
    values = list(call.values.values())
    moving = shape_of(values[1]) if len(values) > 1 else None
    costs = {"tensor": _passes(_width(moving))}
    stationary = call.name == "nisa.nc_matmul" or "transpose_x" in call.arguments
    if not stationary:  # the compiler transposes x for every product
        costs["tensor"] += _passes(128)
        costs.update(_elementwise("scalar", 128))
    return costs


def _passes(width: float) -> float:
    """fp32 products run as two passes, each with an exposed load of the stationary operand."""
    cycles = TRN1.fp32_matmul_cycles_per_row * width + STATIONARY_CYCLES
    return TRN1.fp32_matmul_passes * cycles / TRN1.tensor_ghz


def _dma(access: TileUse, *, transposing: bool = False) -> float:
    """Time of one transfer: descriptors of contiguous bytes, or of single elements where it
    transposes, over 16 engines."""
    if access.shape is None or access.tensor.shape is None or access.dims is None:
        return 128 * max(DMA_FLOOR_NS, UNKNOWN_WIDTH * 4 / TRN1.dma_bytes_per_ns) / TRN1.dma_engines
    element = DTYPE_BYTES.get(access.tensor.dtype or "float32", 4)
    elements = math.prod(size.constant or UNKNOWN_WIDTH for size in access.shape)
    contiguous = 1.0
    for dim, size in zip(reversed(access.dims), reversed(access.tensor.shape), strict=True):
        ramps = dim.ramps
        if not ramps or dim.factor_of(ramps[-1]) != ONE:
            break
        extent = math.prod((r.size.constant if r.size else None) or UNKNOWN_WIDTH for r in ramps)
        contiguous *= extent
        if extent != (size.constant or UNKNOWN_WIDTH):
            break
    partitions = access.shape[0].constant or 128
    contiguous = 1.0 if transposing else min(contiguous, elements / partitions)
    descriptors = elements / contiguous
    engines = min(TRN1.dma_engines, math.ceil(partitions / 8))
    each = max(DMA_FLOOR_NS, contiguous * element / TRN1.dma_bytes_per_ns)
    return descriptors * each / engines + DMA_START_NS


def _width(shape: tuple[Polynomial, ...] | None) -> float:
    """Elements per partition."""
    if shape is None:
        return UNKNOWN_WIDTH
    return float(math.prod(size.constant or UNKNOWN_WIDTH for size in shape[1:]))


def _trips(trips: Polynomial | None) -> int:
    constant = trips.constant if trips is not None else None
    return constant if constant is not None else UNKNOWN_TRIPS
