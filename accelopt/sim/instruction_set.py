"""Every opcode a Program can hold: its operands by name, its attributes, and who may run it.

This table is the contract between the three rooms that know instructions: `nki/` emits them,
`compute/` gives them meaning, `timing/` gives them a price. Shapes: P partitions, F free elements
(any number of free axes), K contraction rows, M and N result rows and columns.

Operands that may be a number or a (P, 1) tile stand in `inputs` when they are a tile and in
`attributes` under the same name when they are a number. `op` attributes hold the names of
`operators.py` (`add`, `multiply`, `maximum`, `exp`, ...).
"""

from __future__ import annotations

from dataclasses import dataclass

from accelopt.sim.microscaling import QUADRANTS
from accelopt.sim.program import Engine, Instruction


@dataclass(frozen=True)
class Opcode:
    """One row of the table. The first engine is the default; UNASSIGNED means the compiler's
    choice among them. `optional` names inputs, outputs and attributes that may be absent."""

    name: str
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]
    engines: tuple[Engine, ...]
    outputs: tuple[str, ...] = ("result",)
    optional: tuple[str, ...] = ()
    meaning: str = ""


def scale_names(operand: str) -> tuple[str, ...]:
    """The tiles (4, F) with the scales of a microscaling operand: one for each 32 partitions."""
    return tuple(f"{operand}{quadrant}" for quadrant in range(QUADRANTS))


QUANTIZED_SCALES = scale_names("scale")
STATIONARY_SCALES, MOVING_SCALES = scale_names("stationary_scale"), scale_names("moving_scale")

_T, _V, _S, _G, _D, _Y = (
    Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA, Engine.SYNC
)  # fmt: skip

OPCODES: dict[str, Opcode] = {
    row.name: row
    for row in (
        # Data movement. `accumulate` names an op (`add`) for read-modify-write, or is None.
        Opcode("dma_copy", ("source",), ("accumulate", "oob_mode", "transpose"), (_D,),
               optional=("accumulate", "oob_mode", "transpose"),
               meaning="result = source, element by element, converting; at least one side in HBM "
               "or both in SBUF; `transpose` True marks load_transpose2d and dma_transpose, whose "
               "accesses already carry the transposed strides"),
        Opcode("copy", ("data",), (), (_S, _V, _G), meaning="result = data, broadcasting"),
        Opcode("memset", (), ("value",), (_V, _G), meaning="result = value"),
        # Tensor engine.
        Opcode("matmul", ("stationary", *STATIONARY_SCALES, *MOVING_SCALES, "moving"),
               ("accumulate", "is_stationary_onezero", "is_moving_onezero", "is_transpose",
                "perf_mode"), (_T,),
               optional=("accumulate", "is_stationary_onezero", "is_moving_onezero",
                         "is_transpose", "perf_mode", *STATIONARY_SCALES, *MOVING_SCALES),
               meaning="(M, N) = stationary(K, M).T @ moving(K, N) in fp32; `accumulate` True adds "
               "to the PSUM tile, whose first write of a group overwrites; of packed elements also "
               "over the four of each, all times their scales"),
        Opcode("quantize_mx", ("data",), (), (_V,), ("result", *QUANTIZED_SCALES),
               optional=QUANTIZED_SCALES, meaning="result (P, F / 4) = data (P, F) over its scales, "
               "packed; a scale for each 8 partitions of each packed column"),
        Opcode("transpose", ("data",), (), (_T, _V), meaning="(F, P) = data(P, F).T"),
        # Elementwise.
        Opcode("activation", ("data", "bias", "scale"),
               ("op", "scale", "bias", "reduce_op", "reduce_cmd"), (_S,), ("result", "reduce_result"),
               ("bias", "scale", "reduce_op", "reduce_cmd", "reduce_result"),
               "result = op(data * scale + bias); reduce_result (P, 1) = reduction of the result "
               "over the free axes"),
        Opcode("tensor_scalar", ("data", "operand0", "operand1"),
               ("op0", "operand0", "reverse0", "op1", "operand1", "reverse1", "reduce_op"),
               (_V, _S, _G), ("result", "reduce_result"),
               ("operand0", "operand1", "op1", "reverse0", "reverse1", "reduce_op",
                "reduce_result"),
               "result = op1(op0(data, operand0), operand1); reverse swaps an op's arguments"),
        Opcode("tensor_tensor", ("data1", "data2"), ("op",), (_V, _G),
               meaning="result = op(data1, data2), free axes broadcast"),
        Opcode("scalar_tensor_tensor", ("data", "operand0", "operand1"),
               ("op0", "operand0", "reverse0", "op1", "reverse1"), (_V,),
               optional=("operand0", "reverse0", "reverse1"),
               meaning="result = op1(op0(data, operand0), operand1)"),
        Opcode("reciprocal", ("data",), (), (_V,), meaning="result = 1 / data"),
        Opcode("select", ("predicate", "on_true", "on_false"), ("on_true", "on_false"), (_V,),
               optional=("on_true", "on_false"), meaning="result = where(predicate, ...)"),
        Opcode("copy_predicated", ("source", "predicate"), ("reverse",), (_V,),
               optional=("reverse",), meaning="result = source where predicate != 0, else kept"),
        # Reductions and scans. `axes` count from the front of data's shape.
        Opcode("tensor_reduce", ("data",), ("op", "axes", "negate"), (_V, _G),
               optional=("negate",), meaning="result = (-) reduction of data over `axes`; result "
               "has the axes kept with length 1, or dropped, or is (P, 1): same element count"),
        Opcode("partition_reduce", ("data",), ("op",), (_G,), meaning="(1, F) over partitions"),
        Opcode("loop_reduce", ("data",), ("op", "loops"), (_V,),
               meaning="result = op(result, data); the first iteration of the loops whose variable "
               "ids are in `loops` assigns"),
        Opcode("tensor_tensor_scan", ("data0", "data1", "initial"),
               ("op0", "op1", "initial", "reverse0", "reverse1"), (_V,),
               optional=("initial", "reverse0", "reverse1"),
               meaning="r[i] = op1(op0(data0[i], r[i-1]), data1[i]), r[-1] = initial"),
        Opcode("bn_stats", ("data",), (), (_V,), meaning="(P, 6): count, mean, variance*count of "
               "the even, then of the odd elements"),
        Opcode("bn_aggr", ("data",), (), (_V,), meaning="(P, 2): mean, variance of the groups"),
        Opcode("max8", ("data",), (), (_V,), meaning="(P, 8): the largest, descending"),
        Opcode("find_index8", ("data", "values"), ("successive",), (_V,),
               optional=("successive",), meaning="(P, 8) first positions"),
        Opcode("match_replace8", ("data", "values"), ("replacement", "from_last"), (_V,),
               ("result", "indices"), ("indices", "from_last"), "first match of each value replaced"),
        # Index-driven.
        Opcode("nonzero", ("data",), ("offset", "padding"), (_G,),
               meaning="(P, F + 1): where data is not 0, plus offset; padding; and how many, last"),
        Opcode("iota", (), ("expression",), (_G,), meaning="result = affine expression of axes"),
        Opcode("affine_select", ("data",), ("predicate", "negate", "on_false"), (_G,),
               optional=("negate",), meaning="result = data where predicate, else on_false"),
        Opcode("range_select", ("data", "bound0", "bound1"),
               ("op0", "op1", "reduce_op", "reduce_cmd", "range_start", "on_false"), (_V,),
               ("result", "reduce_result"), ("reduce_op", "reduce_cmd", "reduce_result"),
               "result = data where op0(i, bound0) and op1(i, bound1), i = range_start + column"),
        Opcode("select_reduce", ("predicate", "on_true", "on_false"),
               ("on_false", "reverse", "reduce_op", "reduce_cmd"), (_V,),
               ("result", "reduce_result"),
               ("on_false", "reverse", "reduce_op", "reduce_cmd", "reduce_result"),
               "result = where(predicate, on_true, on_false)"),
        Opcode("stream_shuffle", ("source",), ("shuffle_mask",), (_V,),
               meaning="partition p of each group of 32 takes shuffle_mask[p]; 255 keeps"),
        Opcode("local_gather", ("source", "index"), ("elements_per_index", "valid_indices"), (_G,),
               optional=("valid_indices",), meaning="per 16 partitions gather by shared indices"),
        Opcode("gather", ("data", "indices"), (), (_G,),
               meaning="result[p, i] = data[p].flat[indices[p, i]]"),
        Opcode("sequence_bounds", ("segment_ids",), (), (_G,), meaning="(1, 2, F) starts, ends"),
        Opcode("random", (), (), (_G, _V), meaning="uniform in [0, 1)"),
        Opcode("dropout", ("data", "probability"), ("probability",), (_V,),
               optional=("probability",), meaning="zero with the given probability"),
        Opcode("while", ("condition",), (), (_Y,), outputs=(),
               meaning="the first of a loop's body: the loop ends where its condition (1, 1) is 0"),
        Opcode("print", ("data",), ("prefix",), (_G,), outputs=(), meaning="device_print"),
    )
}  # fmt: skip

_MASKED_BY_DATA = frozenset(
    "tensor_reduce partition_reduce bn_stats bn_aggr max8 find_index8 match_replace8 print".split()
)


def mask_shape(instruction: Instruction) -> tuple[int, ...]:
    """The shape over whose axes an instruction's mask is written: that of `data` for reductions
    and searches, of the result for all others."""
    if instruction.opcode in _MASKED_BY_DATA:
        return instruction.inputs["data"].shape
    if instruction.opcode == "while":
        return instruction.inputs["condition"].shape
    return instruction.result.shape
