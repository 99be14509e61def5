"""Reductions along free axes, partitions and loops, scans, and batch-norm statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.isa.limits import MAX_BN_STATS_FREE, VECTOR, OperandLimits, call
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.isa.shapes import counts, one_each
from accelopt.sim.program import Engine, Instruction

STATISTICS, GROUP, AGGREGATE = 6, 3, 2


def _reduced(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    axes = instruction.attributes["axes"]
    assert isinstance(axes, tuple)
    kept = tuple(1 if n in axes else size for n, size in enumerate(data.shape))
    same_rank = len(result.shape) == len(data.shape)
    fits = result.shape == kept if same_rank else result.elements == math.prod(kept)
    if not fits:
        yield f"makes {kept} of {data.shape}, not {result.shape}"


def _scanned(instruction: Instruction) -> Iterator[str]:
    result = instruction.result
    for name in ("data0", "data1"):
        data = instruction.inputs[name]
        if (data.partitions, data.elements) != (result.partitions, result.elements):
            yield f"has an operand {name} of {data.shape} for {result.shape}"
    initial = instruction.inputs.get("initial")
    if initial is not None and initial.shape != one_each(result.shape[:1], initial):
        yield f"begins with {initial.shape} for {result.shape}"


def _aggregated(instruction: Instruction) -> Iterator[str]:
    data = instruction.inputs["data"]
    if data.free_elements % GROUP:
        yield f"takes groups of three, not {data.shape}"
    yield from counts(lambda i: {"result": AGGREGATE * data.partitions})(instruction)


TENSOR_REDUCE = Opcode(
    "tensor_reduce", ("data",), {"op": kinds.REDUCTION, "axes": kinds.AXES, "negate": kinds.TRUTH},
    (Engine.VECTOR, Engine.GPSIMD), optional=("negate",),
    meaning="result = (-) reduction of data over `axes`, counted from the front of data's shape; "
    "result has the axes kept with length 1, or dropped, or is (P, 1): same element count",
    fits=_reduced, cost=Cost.SUM, verb="reduce", mask_over="data", widened=True,
    indirect=("data", "result"),
)  # fmt: skip
PARTITION_REDUCE = Opcode(
    "partition_reduce", ("data",), {"op": kinds.COMBINATION}, (Engine.GPSIMD,),
    meaning="(1, F) over partitions",
    calls={"tensor_partition_reduce": call(data=OperandLimits(psum=False))},
    fits=counts(lambda i: {"result": i.inputs["data"].free_elements}), cost=Cost.PARTITIONS,
    mask_over="data",
)  # fmt: skip
LOOP_REDUCE = Opcode(
    "loop_reduce", ("data",), {"op": kinds.COMBINATION, "loops": kinds.LOOPS}, (Engine.VECTOR,),
    meaning="result = op(result, data); the first iteration of the loops whose variable ids are "
    "in `loops` assigns",
    cost=Cost.TWO_TILES, elementwise=True,
)  # fmt: skip
TENSOR_TENSOR_SCAN = Opcode(
    "tensor_tensor_scan", ("data0", "data1", "initial"),
    {"op0": kinds.BINARY_OPERATOR, "op1": kinds.BINARY_OPERATOR, "initial": kinds.NUMBER,
        "reverse0": kinds.TRUTH, "reverse1": kinds.TRUTH}, (Engine.VECTOR,),
    optional=("initial", "reverse0", "reverse1"),
    meaning="r[i] = op1(op0(data0[i], r[i-1]), data1[i]), r[-1] = initial",
    calls={"tensor_tensor_scan": call(("data0", "data1"), initial=VECTOR)},
    fits=_scanned, cost=Cost.SCAN, verb="scan",
)  # fmt: skip
BN_STATS = Opcode(
    "bn_stats", ("data",), engines=(Engine.VECTOR,),
    meaning="(P, 6): count, mean, variance*count of the even, then of the odd elements",
    limits={"data": OperandLimits(free=MAX_BN_STATS_FREE)},
    calls={"bn_stats": call(data=OperandLimits(free=MAX_BN_STATS_FREE))},
    fits=counts(lambda i: {"result": STATISTICS *i.inputs["data"].partitions}), mask_over="data",
)  # fmt: skip
BN_AGGR = Opcode(
    "bn_aggr", ("data",), engines=(Engine.VECTOR,),
    meaning="(P, 2): mean, variance of the groups",
    fits=_aggregated, cost=Cost.STATISTICS, mask_over="data",
)  # fmt: skip
