"""What one instruction costs: cycles by the documented formulas, bytes by the profiler's rules.

Formulas are those of `nki/api/nki/isa/__init__.py` (SDK 2.26.1) with N the elements a partition;
where a measurement contradicts them, the constant in `accelopt.hardware` says so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.dtypes import is_packed
from accelopt.sim.isa.matrix import rows_at_once
from accelopt.sim.isa.opcode import Cost
from accelopt.sim.microscaling import PACKED
from accelopt.sim.program import Buffer, Engine, Instruction
from accelopt.sim.timing.stream.operation import (
    ARRIVE,
    BROADCAST,
    QUEUE_NAMES,
    WAIT,
    Operation,
    Queue,
)

SIXTEEN_BIT = 2
FAST_OPS = frozenset({"add", "subtract", "multiply"})


class Traffic(NamedTuple):
    """What one instance of an operation adds to the counters, as the profiler counts."""

    flops: int = 0
    transpose_flops: int = 0
    psum_read: int = 0
    psum_write: int = 0
    sbuf_read: int = 0
    sbuf_write: int = 0


class OperationCost(NamedTuple):
    """What one instance of an operation costs. It occupies its engine for `issue_ns`; what it
    writes can be used `latency_ns` after that. Transfers are priced by `transfers`."""

    issue_ns: float = 0.0
    latency_ns: float = 0.0
    traffic: Traffic = Traffic()
    true_flops: int = 0
    touches_psum: bool = False
    touches_sbuf: bool = False
    array_use: float = 0.0  # part of the Tensor engine's rows


def price(operation: Operation, spec: Hardware) -> OperationCost:
    """Issue time, latency and counters of an operation."""
    if operation.is_dma:
        return OperationCost()
    if operation.opcode in (ARRIVE, WAIT) or operation.queue is Queue.SYNC:
        return _of_sequencer(operation, spec)
    buffers = {a.tensor.buffer for a in operation.accesses}
    clock = spec.ghz(QUEUE_NAMES[operation.queue])
    if operation.queue is Queue.TENSOR:
        issue, latency = _matmul_cycles(operation, spec) / clock, spec.engine_latency_ns
    else:
        elements, overhead = engine_cycles(operation, spec)
        least = 0 if operation.queue is Queue.VECTOR else spec.minimum_issue_cycles
        if has_dynamic_address(operation):
            least = spec.dynamic_issue_cycles
        issue = max(elements + overhead, least) / clock
        latency = elements / clock + spec.engine_latency_ns - issue
        if operation.queue is Queue.SCALAR and operation.opcode.engine is Engine.SCALAR:
            latency += spec.function_ns
    return OperationCost(
        issue,
        max(latency, 0.0),
        _traffic(operation, spec),
        _true_flops(operation),
        Buffer.PSUM in buffers,
        Buffer.SBUF in buffers,
        _matmul_sizes(operation)[0] / spec.partitions if operation.queue is Queue.TENSOR else 0.0,
    )


def _of_sequencer(operation: Operation, spec: Hardware) -> OperationCost:
    """Half of a barrier between two cores, or an instruction on registers. Nothing was measured: each takes
    as long as an engine's shortest instruction; telling the other core, and reading and writing memory,
    an engine's latency."""
    issue = spec.minimum_issue_cycles / spec.ghz(QUEUE_NAMES[operation.queue])
    afar = operation.opcode == ARRIVE or (
        operation.queue is Queue.SYNC
        and any(a.tensor.buffer is not Buffer.REGISTER for a in operation.accesses)
    )
    return OperationCost(issue, spec.engine_latency_ns if afar else 0.0)


def has_dynamic_address(operation: Operation) -> bool:
    """True where the place of an operand is read at run time: GpSimd's gathers are made for that, and
    tensor indirection needs no other instruction (trainium3_arch.rst); that it takes no longer is assumed."""
    items = [item for access in operation.accesses for item in access.indirect]
    return bool(operation.opcode.copied) and not all(item.group for item in items)


def engine_cycles(operation: Operation, spec: Hardware) -> tuple[float, float]:
    """Cycles of Vector, Scalar or GpSimd engine: for the elements, and on top of them before the
    next instruction can start. Both together take no less than MIN_II, but on VectorE (conv1d)."""
    n = operation.wide
    if operation.queue is Queue.GPSIMD:
        return _gpsimd_elements(operation, n, spec), spec.gpsimd_start_cycles
    if operation.queue is Queue.VECTOR:
        overhead = spec.vector_access_cycles * _reads_in_turn(operation, n, spec)
    else:
        overhead = spec.access_cycles
    if "reduce_result" in (tuple(operation.instruction.outputs) if operation.instruction else ()):
        overhead += (
            spec.accumulator_read_cycles
            if operation.queue is Queue.SCALAR
            else spec.minimum_issue_cycles
        )
    elements = _elements(operation, n, spec) * _stride_penalty(operation)
    if spec.vector_fast_modes and operation.queue is Queue.VECTOR:
        elements += spec.vector_access_cycles * _operands_beside(operation)
    return elements, overhead


def _operands_beside(operation: Operation) -> int:
    """Operands of a tensor_scalar that are columns: each is read before the first element, which takes
    trn2 another 60 ns (trn2_instructions.csv: 128 elements of PSUM 349 ns, where a copy takes 290)."""
    return len(operation.reads) - 1 if operation.opcode.cost is Cost.FAST_PASS else 0


def _reads_in_turn(operation: Operation, n: int, spec: Hardware) -> int:
    """How many accesses VectorE opens one after the other: two for two operands that share SBUF's
    read port, which is when each element of theirs takes two turns as well."""
    if not operation.opcode.cost.two_tiles or not spec.reads_in_turn:
        return 1
    return 2 if _elements(operation, n, spec) > spec.vector_cycles_per_element * n else 1


def _elements(operation: Operation, n: int, spec: Hardware) -> float:
    """Cycles for the elements alone."""
    cost = operation.opcode.cost
    if operation.queue is Queue.SCALAR:
        return spec.scalar_cycles_per_element * n
    one, two = spec.vector_cycles_per_element * n, spec.two_input_cycles_per_element * n
    if cost is Cost.QUANTIZATION:
        return spec.quantize_cycles_per_element * n
    if cost is Cost.DIVISION:
        return spec.reciprocal_cycles_per_element * n
    if cost is Cost.TWO_TILES:
        return _two_input(operation, n, spec)
    if cost is Cost.SCAN:
        return spec.scan_cycles_per_element * n
    if cost is Cost.SELECTION:
        return two
    if cost is Cost.CHAIN:
        fast = _all_sixteen_bit(operation) and n % 2 == 0 and _fast(operation)
        return min(one, two) if fast else two
    if cost is Cost.PREDICATED:
        return min(one, two) if _in_psum(operation) else two
    if cost is Cost.STATISTICS:
        return 13 * one / 3
    if cost is Cost.FILL:
        value = operation.attributes.get("value")
        return one / 2 if value == 0 and _all_sixteen_bit(operation) else one
    if cost is Cost.SUM:
        fast = _all_sixteen_bit(operation) and _op(operation) in ("add", "maximum")
        return one / 2 if fast else one
    if spec.vector_fast_modes and cost is Cost.FAST_PASS:
        return one / _fast_mode(operation)
    return one


def _gpsimd_elements(operation: Operation, n: int, spec: Hardware) -> float:
    """One element a cycle (isa: iota, affine_select). No rate is documented for what VectorE does as
    well: it takes no less time here, on the engine for what others do not do efficiently (arch
    guide). A vector of it has one element of each of a processor's 16 partitions, so adding up over
    those takes four more steps."""
    opcode, alone = operation.opcode, spec.gpsimd_cycles_per_element * n
    if opcode.cost.two_tiles or opcode.copied or opcode.fills:
        two = opcode.cost.two_tiles
        there = spec.two_input_cycles_per_element if two else spec.vector_cycles_per_element
        return max(alone, there * n * spec.gpsimd_ghz / spec.vector_ghz)
    if opcode.cost is Cost.PARTITIONS:
        return 5 * alone
    if opcode.cost not in (Cost.GATHER, Cost.LARGEST) or operation.instruction is None:
        return alone
    attributes = operation.instruction.attributes
    if opcode.cost is Cost.LARGEST:  # SDK 2.32, nisa.topk
        return 4 * int(str(attributes["elements"])) + int(str(attributes["count"]))
    per_index = int(str(attributes.get("elements_per_index") or 1))
    size = operation.reads[0].dtype.itemsize
    rate = ((28 + 4 * per_index) / (4 * per_index)) / min(4 / size, per_index)
    return n / rate


def _two_input(operation: Operation, n: int, spec: Hardware) -> float:
    """Cycles of two operands. A quotient is no cheaper than a reciprocal: nothing else would need the
    instruction that isa gives 8N."""
    if _op(operation) == "divide":
        return max(spec.reciprocal_cycles_per_element, spec.two_input_cycles_per_element) * n
    one, two = spec.vector_cycles_per_element * n, spec.two_input_cycles_per_element * n
    if _in_psum(operation):
        return min(one, two)
    if _all_sixteen_bit(operation) and _contiguous(operation):
        if spec.vector_fast_modes:
            return one / 2
        if _fast(operation):
            return one
    return two


def _op(operation: Operation) -> str:
    return str(operation.attributes.get("op") or operation.attributes.get("op0") or "")


def _fast(operation: Operation) -> bool:
    return _op(operation) in FAST_OPS


def _in_psum(operation: Operation) -> bool:
    return any(access.tensor.buffer is Buffer.PSUM for access in operation.reads)


def _all_sixteen_bit(operation: Operation) -> bool:
    return all(access.dtype.itemsize == SIXTEEN_BIT for access in operation.accesses)


def inner_stride(access: Access) -> int:
    """Elements between neighbours of the innermost free axis that is longer than one."""
    for size, stride in zip(reversed(access.shape[1:]), reversed(access.strides[1:]), strict=True):
        if size > 1:
            return abs(stride)
    return 1


def _contiguous(operation: Operation) -> bool:
    return all(inner_stride(a) == 1 for a in operation.accesses)


def _stride_penalty(operation: Operation) -> float:
    """A stride over 16 bytes halves the bandwidth of an access (arch guide)."""
    return 2.0 if bytes_apart(operation) else 1.0


def bytes_apart(operation: Operation) -> int:
    """The largest stride of an operand's or a result's neighbours, 0 where none is over 16 bytes."""
    accesses = (*map(_walked, operation.reads, repeat(operation)), *operation.writes)
    wide = max((inner_stride(a) * a.dtype.itemsize for a in accesses), default=0)
    return wide if wide > 16 else 0


def _walked(access: Access, operation: Operation) -> Access:
    """An operand with the axes last that a reduction runs over (isa: tensor_reduce), as the engine
    walks it."""
    instruction = operation.instruction
    axes = instruction.attributes.get("axes") if instruction else None
    if instruction is None or not isinstance(axes, tuple):
        return access
    if len(access.shape) != len(instruction.inputs["data"].shape):
        return access  # widened
    order = sorted(range(len(access.shape)), key=lambda axis: axis in axes)
    return replace(
        access,
        shape=tuple(access.shape[axis] for axis in order),
        strides=tuple(access.strides[axis] for axis in order),
    )


def _fast_mode(operation: Operation) -> float:
    """trn2: 4 elements a cycle for contiguous 16-bit data in SBUF, 2 when strided or one side
    lies in PSUM; half of that for other data (trainium2_arch.rst: a data path of 512 and of 256
    elements; 512 of fp32 in SBUF by a column take 481 ns, trn2_instructions.csv)."""
    psum = any(a.tensor.buffer is Buffer.PSUM for a in operation.accesses)
    fast = 2.0 if psum or not _contiguous(operation) else 4.0
    return fast if _all_sixteen_bit(operation) else fast / 2


def _matmul_cycles(operation: Operation, spec: Hardware) -> float:
    """Loading the stationary tile, as far as nothing hides it, and streaming the moving one, once
    a pass."""
    _, columns, rows = _matmul_sizes(operation)
    passes = spec.broadcast_passes if operation.opcode is BROADCAST else _passes(operation, spec)
    return passes * spec.matmul_cycles(rows, columns, is_slow(operation))


def is_slow(operation: Operation) -> bool:
    """True for a matmul at the rate of fp32."""
    return slow_operands(operation.reads)


def slow_operands(operands: tuple[Access, ...]) -> bool:
    """True at the rate of fp32: for operands wider than 16 bits, and for those that are no floating
    point numbers, which the Tensor engine does not multiply at all (isa: nc_matmul). Packed elements
    move at the rate of bfloat16, four times the numbers (trainium3_arch.rst)."""
    if operands and is_packed(operands[0].dtype):
        return False
    return any(a.dtype.itemsize > SIXTEEN_BIT or a.dtype.kind in "iub" for a in operands)


def _passes(operation: Operation, spec: Hardware) -> int:
    if not is_slow(operation) or operation.opcode is BROADCAST:
        return 1
    return spec.fp32_transpose_passes if operation.by_identity else spec.fp32_matmul_passes


def is_transpose(operation: Operation) -> bool:
    """True for Tensor engine transposes, however they are written."""
    if operation.queue is not Queue.TENSOR:
        return False
    instruction = operation.instruction
    return operation.opcode.transposes or bool(
        instruction and instruction.attributes.get("is_transpose")
    )


def _matmul_sizes(operation: Operation) -> tuple[int, int, int]:
    """Contraction rows, stationary columns, moving columns."""
    stationary, moving = operation.reads[0], operation.reads[-1]
    if operation.opcode.transposes:
        return stationary.partitions, stationary.free_elements, stationary.partitions
    if operation.opcode is BROADCAST:
        return 1, operation.writes[0].partitions, moving.free_elements
    rows = rows_at_once(operation.instruction) if operation.instruction else 1
    return stationary.partitions, stationary.free_elements // rows, moving.free_elements // rows


def _true_flops(operation: Operation) -> int:
    if operation.queue is not Queue.TENSOR or is_transpose(operation):
        return 0
    if operation.opcode is BROADCAST:
        return 0
    rows, columns, n = _matmul_sizes(operation)
    return 2 * rows * columns * n * _numbers(operation)


def _numbers(operation: Operation) -> int:
    """That a row of a product's operands has at one place: packed in an element, or of two rows at once,
    which makes a product of fp8 twice as fast (trainium2_arch.rst: 158 TFLOPS)."""
    if is_packed(operation.reads[0].dtype):
        return PACKED
    return rows_at_once(operation.instruction) if operation.instruction else 1


def _traffic(operation: Operation, spec: Hardware) -> Traffic:
    """Engine bytes are those of one partition; a two-tensor Vector instruction counts nothing,
    others only their first operand; matmuls count what each pass reads and writes (measured on
    NKIBench)."""
    if operation.queue is Queue.TENSOR:
        passes = _passes(operation, spec)
        rows, columns, n = _matmul_sizes(operation)
        flops = 2 * rows * columns * n * passes * _numbers(operation)
        size = max(access.dtype.itemsize for access in operation.reads)
        return Traffic(
            flops=flops,
            transpose_flops=flops if is_transpose(operation) else 0,
            psum_write=4 * n * passes,
            sbuf_read=(columns + n) * size * passes,
        )
    totals = {"psum_read": 0, "psum_write": 0, "sbuf_read": 0, "sbuf_write": 0}
    if operation.queue is Queue.VECTOR and operation.opcode.cost.two_tiles:
        return Traffic()
    for direction, accesses in (("read", operation.reads[:1]), ("write", operation.writes[:1])):
        for access in accesses:
            memory = "psum" if access.tensor.buffer is Buffer.PSUM else "sbuf"
            totals[f"{memory}_{direction}"] += _bytes(operation, access)
    return Traffic(**totals)


def _bytes(operation: Operation, access: Access) -> int:
    """Bytes of one partition."""
    elements = access.free_elements
    if operation.width is not None and elements > 1:
        elements = operation.width
    return elements * access.dtype.itemsize


def opcode_label(instruction: Instruction) -> str:
    """The name an event carries: opcode and, where there is one, its op."""
    op = instruction.attributes.get("op") or instruction.attributes.get("op0")
    return f"{instruction.opcode}.{op}" if op else instruction.opcode
