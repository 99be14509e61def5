"""Instructions that move elements: between memories, between tiles, between partitions."""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.access import Access
from accelopt.sim.errors import SourceLine
from accelopt.sim.isa.limits import UNSIGNED, OperandLimits, call
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.isa.shapes import anything, moves
from accelopt.sim.program import Engine, Instruction

ASSIGN = "assign"
"""Attribute of a `copy` that stands for `dst[...] = value`, and of the `tensor_tensor` that stands
for `dst[...] += value`; gone from finished Programs."""
TURNED_BY_VECTOR = 32
TURNED_BY_TENSOR = 128


def _transposed(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    turned = (data.free_elements, data.partitions)
    fits = result.shape == turned if len(result.shape) == 2 else data.elements == result.elements
    if not fits:
        yield f"cannot turn {data.shape} into {result.shape}"
    most = TURNED_BY_VECTOR if instruction.engine is Engine.VECTOR else TURNED_BY_TENSOR
    if max(data.partitions, data.free_elements) > most:
        yield f"turns {data.shape}, more than {most} x {most}"


def _shuffled(instruction: Instruction) -> Iterator[str]:
    source, result = instruction.inputs["source"], instruction.result
    if source.free_elements != result.free_elements:
        yield f"cannot bring {source.shape} into {result.shape}"


DMA_COPY = Opcode(
    "dma_copy", ("source",),
    {"accumulate": kinds.ACCUMULATION, "descriptors": kinds.DESCRIPTORS, "oob_mode": kinds.OUT_OF_BOUNDS,
        "transpose": kinds.TRUTH},
    (Engine.DMA,), optional=("accumulate", "descriptors", "oob_mode", "transpose"),
    meaning="result = source, element by element, converting; at least one side in HBM or both in "
    "SBUF; `accumulate` adds; `transpose` True marks load_transpose2d and dma_transpose, whose "
    "accesses already carry the transposed strides; `descriptors` are made before the run, or while "
    "it runs by software or by the hardware beside one of two engines; where none is named the "
    "compiler chooses",
    fits=moves("source"), elementwise=True, copied="source", computes=False, packed=True,
    reaches_hbm=True,
)  # fmt: skip
DMA_WINDOW = Opcode(
    "dma_window", ("source", "window", "like"), {"accumulate": kinds.ACCUMULATION}, (Engine.DMA,),
    optional=("accumulate", "like"),
    meaning="the first n elements of result = those of source from s on, (n, s) = window; the others stay; "
    "`accumulate` adds; `like` is a window that has the same n",
    fits=anything, not_lifted="how many elements it moves is known at run time only", keeps=True,
    computes=False, packed=True, reaches_hbm=True,
)  # fmt: skip
COPY = Opcode(
    "copy", ("data",), {ASSIGN: kinds.TRUTH}, (Engine.SCALAR, Engine.VECTOR, Engine.GPSIMD),
    optional=(ASSIGN,),
    meaning="result = data, broadcasting",
    fits=moves("data"), cost=Cost.FAST_PASS, elementwise=True, copied="data", computes=False,
    packed=True, widened=True,
    indirect=("data", "result"),
)  # fmt: skip
MEMSET = Opcode(
    "memset", attributes={"value": kinds.NUMBER}, engines=(Engine.VECTOR, Engine.GPSIMD),
    meaning="result = value",
    cost=Cost.FILL, verb="set", elementwise=True, fills=True, computes=False, packed=True,
    widened=True,
)  # fmt: skip
TRANSPOSE = Opcode(
    "transpose", ("data",), engines=(Engine.TENSOR, Engine.VECTOR),
    meaning="(F, P) = data(P, F).T",
    calls={
        "nc_transpose on Tensor engine": call(data=OperandLimits(psum=False, free=128)),
        "transpose": call(x=OperandLimits(free=128, rank=2)),
    },
    fits=_transposed, transposes=True, computes=False,
)  # fmt: skip
COPY_PREDICATED = Opcode(
    "copy_predicated", ("source", "predicate"), {"reverse": kinds.TRUTH}, (Engine.VECTOR,),
    optional=("reverse",),
    meaning="result = source where predicate != 0, else kept",
    calls={
        "tensor_copy_predicated": call(("src", "predicate"),
            predicate=OperandLimits(formats=UNSIGNED)),
    },
    cost=Cost.PREDICATED, elementwise=True, keeps=True,
    indirect=("predicate", "result"),
)  # fmt: skip
STREAM_SHUFFLE = Opcode(
    "stream_shuffle", ("source",), {"shuffle_mask": kinds.SHUFFLE}, (Engine.VECTOR,),
    meaning="partition p of each group of 32 takes shuffle_mask[p]; 255 keeps",
    calls={"nc_stream_shuffle": call(same_partitions=False)},
    fits=_shuffled, keeps=True, packed=True, starts_anywhere=True,
)  # fmt: skip


def transfer(into: Access, data: Access, source: SourceLine) -> Instruction:
    """A DMA between HBM and the chip."""
    return Instruction(DMA_COPY, Engine.DMA, {"result": into}, {"source": data}, source=source)
