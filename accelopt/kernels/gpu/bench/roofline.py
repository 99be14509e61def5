"""The least time a workload can take: bytes over bandwidth, operations over arithmetic rate."""

from __future__ import annotations

from typing import NamedTuple

from accelopt.algorithm.ir import Algorithm, Indirect, parts_in
from accelopt.algorithm.least_work import least_work
from accelopt.hardware.gpus import GPU
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, DefinitionTensor, Workload

BITS = {"float4_e2m1": 4, "float8_e4m3fn": 8, "float8_e5m2": 8, "int8": 8, "bool": 8,
        "float16": 16, "bfloat16": 16, "int16": 16, "float32": 32, "int32": 32, "int64": 64}  # fmt: skip


class Bound(NamedTuple):
    """Bytes and operations that no kernel can avoid, and the time they take in milliseconds; `source` is
    what they are counted in."""

    bytes: float
    operations: float
    memory_ms: float
    compute_ms: float
    source: str = "by the kind of problem"

    @property
    def milliseconds(self) -> float:
        """The larger of the two times."""
        return max(self.memory_ms, self.compute_ms)

    @property
    def limit(self) -> str:
        """What sets the bound, in a word."""
        return "memory" if self.memory_ms >= self.compute_ms else "arithmetic"


def bound(definition: Definition, workload: Workload, target: GPU) -> Bound:
    """The roofline of one workload: each input read once, each output written once.

    Of a paged cache only the pages that are referred to count. Operations are known for matrix
    products and attention; for other kinds the bound is the memory's.
    """
    specs = [*definition.inputs.values(), *definition.outputs.values()]
    moved = sum(_bytes(spec, definition, workload) for spec in specs)
    operations = _operations(definition, workload)
    wide = all(spec.dtype == "float32" for spec in definition.inputs.values() if spec.shape)
    rate = target.single_tflops if wide else target.half_tflops
    return Bound(
        moved,
        operations,
        moved / target.gigabytes_per_second / 1e6,
        operations / rate / 1e9,
    )


def bound_of(algorithm: Algorithm, plain: Bound, target: GPU) -> Bound:
    """The roofline of what is computed: elements of inputs that decide an output and outputs once, products
    at the tensor cores' rate for 16 bits, which inputs of 8 bits double. Of what numbers of inputs
    choose at run time nothing is counted: there the `plain` bound stands where it is larger."""
    work = least_work(algorithm)
    moved, operations = work.read_bytes + work.write_bytes, work.fp32_flops + work.narrow_flops
    bits = [BITS.get(array.dtype, 16) for array in algorithm.inputs if "float" in array.dtype]
    rate = target.half_tflops * max(1.0, 16 / min(bits, default=16))
    found = Bound(
        moved, operations, moved / target.gigabytes_per_second / 1e6, operations / rate / 1e9,
        "by what is computed",
    )  # fmt: skip
    parts = (part for d in algorithm.definitions for part in parts_in(d))
    chosen = any(isinstance(part, Indirect) for part in parts)
    return plain if chosen and plain.milliseconds > found.milliseconds else found


# Problems that use every element of their inputs; of others it is only known that outputs are written.
READ_WHOLE = ("rmsnorm", "gemm", "softmax", "activation", "gqa_ragged")


def floor_ms(definition: Definition, workload: Workload, target: GPU) -> float:
    """What no kernel can be faster than, in milliseconds, at the data sheet's peaks.

    Of the bytes, what the L2 cache can hold need not move while a call runs: what it has not evicted
    of the inputs, and what it has not written back of the outputs. Products run at the tensor cores'
    16-bit rate, which 8-bit operands double.
    """
    specs = list(definition.outputs.values())
    if definition.op_type in READ_WHOLE:
        specs += definition.inputs.values()
    moved = sum(_bytes(spec, definition, workload) for spec in specs) - 2 * target.l2_bytes
    operations = _operations(definition, workload) if definition.op_type == "gemm" else 0.0
    bits = min((BITS.get(spec.dtype, 16) for spec in definition.inputs.values()), default=16)
    rate = target.half_tflops * max(1.0, 16 / bits)
    return max(moved / target.gigabytes_per_second / 1e6, operations / rate / 1e9, 0.0)


def _bytes(spec: DefinitionTensor, definition: Definition, workload: Workload) -> float:
    shape = definition.shape(spec, workload)
    if shape is None:
        return 0.0
    size = BITS.get(spec.dtype, 16) / 8
    sizes = definition.sizes(workload)
    for axis, extent in zip(spec.shape or [], shape, strict=True):
        used = sizes.get("num_kv_indices", extent) if axis == "num_pages" else extent
        size *= min(used, extent)
    return size


def _operations(definition: Definition, workload: Workload) -> float:
    sizes = definition.sizes(workload)
    if definition.op_type == "gemm":
        product = 2.0
        for axis in ("M", "N", "K"):
            product *= sizes.get(axis, 1)
        return product
    if not definition.op_type.startswith(("gqa", "mla")):
        return 0.0
    width = sizes.get("head_dim", 0)
    depth = 2 * width if width else 2 * sizes.get("head_dim_ckv", 0) + sizes.get("head_dim_kpe", 0)
    keys = sizes.get("total_kv", sizes.get("num_kv_indices", 0) * sizes.get("page_size", 1))
    sequences = max(1, sizes.get("len_indptr", 2) - 1)
    queries = sizes.get("total_q", sequences)
    pairs = queries * keys / sequences
    if "causal" in definition.name:
        # Queries are the last of their sequence: half of their own square is hidden.
        pairs -= queries * queries / sequences / 2
    return 2.0 * pairs * depth * sizes.get("num_qo_heads", 1)
