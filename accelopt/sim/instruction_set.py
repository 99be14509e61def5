"""Every opcode a Program can hold: its operands by name, its attributes, and who may run it.

This table is the contract between the rooms that know instructions: `nki/` emits them, `serial/`
carries them, `compute/` gives them meaning, `timing/` gives them a price. An operand or attribute
that does not stand here is refused where it is emitted and where it is read. Shapes: P partitions, F
free elements (any number of free axes), K contraction rows, M and N result rows and columns.

Operands that may be a number or a (P, 1) tile stand in `inputs` when they are a tile and in
`attributes` under the same name when they are a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.attribute_kinds import Kind
from accelopt.sim.microscaling import QUADRANTS
from accelopt.sim.operators import BINARY
from accelopt.sim.program import AttributeValue, Engine, Instruction

ASSIGN = "assign"
"""Attribute of a `copy` that stands for `dst[...] = value`, and of the `tensor_tensor` that stands
for `dst[...] += value`; gone from finished Programs."""
ROUNDING = "dtype"
"""Attribute of every instruction with a result: the format that it is rounded to."""


@dataclass(frozen=True)
class Opcode:
    """One row of the table; `attributes` have their kinds. The first engine is the default;
    UNASSIGNED means the compiler's choice among them. `optional` names inputs, outputs and
    attributes that may be absent."""

    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Kind]
    engines: tuple[Engine, ...]
    outputs: tuple[str, ...] = ("result",)
    optional: tuple[str, ...] = ()
    meaning: str = ""

    @property
    def kinds(self) -> dict[str, Kind]:
        """Of every attribute that an instruction of this opcode may have."""
        return {**self.attributes, **({ROUNDING: kinds.FORMAT} if self.outputs else {})}

    @property
    def required(self) -> frozenset[str]:
        """Names that must be there, as an operand or as an attribute."""
        return frozenset((*self.outputs, *self.inputs, *self.attributes)) - {*self.optional}


def scale_names(operand: str) -> tuple[str, ...]:
    """The tiles (4, F) with the scales of a microscaling operand: one for each 32 partitions."""
    return tuple(f"{operand}{quadrant}" for quadrant in range(QUADRANTS))


QUANTIZED_SCALES = scale_names("scale")
STATIONARY_SCALES, MOVING_SCALES = scale_names("stationary_scale"), scale_names("moving_scale")

_T, _V, _S, _G, _D, _Y = (
    Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA, Engine.SYNC
)  # fmt: skip
_REGISTERS = {"reduce_op": kinds.COMBINATION, "reduce_cmd": kinds.REGISTER_COMMAND}
"""How an instruction's result is reduced over its free axes into its engine's registers."""
_REDUCED = ("reduce_op", "reduce_cmd", "reduce_result")

OPCODES: dict[str, Opcode] = {
    row.name: row
    for row in (
        # Data movement. `accumulate` names an op (`add`) for read-modify-write, or is None.
        Opcode("dma_copy", ("source",),
               {"accumulate": kinds.ADDITION, "descriptors": kinds.DESCRIPTORS,
                "oob_mode": kinds.OUT_OF_BOUNDS, "transpose": kinds.TRUTH}, (_D,),
               optional=("accumulate", "descriptors", "oob_mode", "transpose"),
               meaning="result = source, element by element, converting; at least one side in HBM "
               "or both in SBUF; `transpose` True marks load_transpose2d and dma_transpose, whose "
               "accesses already carry the transposed strides; `descriptors` are made before the run, or "
               "while it runs by software or by the hardware beside one of two engines; where none is "
               "named the compiler chooses"),
        Opcode("copy", ("data",), {ASSIGN: kinds.TRUTH}, (_S, _V, _G), optional=(ASSIGN,),
               meaning="result = data, broadcasting"),
        Opcode("memset", (), {"value": kinds.NUMBER}, (_V, _G), meaning="result = value"),
        # Tensor engine.
        Opcode("matmul", ("stationary", *STATIONARY_SCALES, *MOVING_SCALES, "moving"),
               {"accumulate": kinds.TRUTH, "is_stationary_onezero": kinds.TRUTH,
                "is_moving_onezero": kinds.TRUTH, "is_transpose": kinds.TRUTH,
                "perf_mode": kinds.PERFORMANCE_MODE}, (_T,),
               optional=("accumulate", "is_stationary_onezero", "is_moving_onezero",
                         "is_transpose", "perf_mode", *STATIONARY_SCALES, *MOVING_SCALES),
               meaning="(M, N) = stationary(K, M).T @ moving(K, N) in fp32; `accumulate` True adds "
               "to the PSUM tile, whose first write of a group overwrites; of packed elements also "
               "over the four of each, all times their scales"),
        Opcode("quantize_mx", ("data",), {}, (_V,), ("result", *QUANTIZED_SCALES),
               optional=QUANTIZED_SCALES, meaning="result (P, F / 4) = data (P, F) over its scales, "
               "packed; a scale for each 8 partitions of each packed column"),
        Opcode("transpose", ("data",), {}, (_T, _V), meaning="(F, P) = data(P, F).T"),
        # Elementwise.
        Opcode("activation", ("data", "bias", "scale"),
               {"op": kinds.UNARY_OPERATOR, "scale": kinds.NUMBER, "bias": kinds.NUMBER,
                **_REGISTERS}, (_S,), ("result", "reduce_result"), ("bias", "scale", *_REDUCED),
               "result = op(data * scale + bias); reduce_result (P, 1) = reduction of the result "
               "over the free axes"),
        Opcode("tensor_scalar", ("data", "operand0", "operand1"),
               {"op0": kinds.OPERATOR, "operand0": kinds.NUMBER, "reverse0": kinds.TRUTH,
                "op1": kinds.OPERATOR, "operand1": kinds.NUMBER, "reverse1": kinds.TRUTH,
                **_REGISTERS}, (_V, _S, _G), ("result", "reduce_result"),
               ("operand0", "operand1", "op1", "reverse0", "reverse1", *_REDUCED),
               "result = op1(op0(data, operand0), operand1); reverse swaps an op's arguments; "
               "reduce_result as of activation"),
        Opcode("tensor_tensor", ("data1", "data2"),
               {"op": kinds.BINARY_OPERATOR, ASSIGN: kinds.TRUTH}, (_V, _G), optional=(ASSIGN,),
               meaning="result = op(data1, data2), free axes broadcast"),
        Opcode("scalar_tensor_tensor", ("data", "operand0", "operand1"),
               {"op0": kinds.BINARY_OPERATOR, "operand0": kinds.NUMBER, "reverse0": kinds.TRUTH,
                "op1": kinds.BINARY_OPERATOR, "reverse1": kinds.TRUTH}, (_V,),
               optional=("operand0", "reverse0", "reverse1"),
               meaning="result = op1(op0(data, operand0), operand1)"),
        Opcode("reciprocal", ("data",), {}, (_V,), meaning="result = 1 / data"),
        Opcode("select", ("predicate", "on_true", "on_false"),
               {"on_true": kinds.NUMBER, "on_false": kinds.NUMBER}, (_V,),
               meaning="result = where(predicate, ...)"),
        Opcode("copy_predicated", ("source", "predicate"), {"reverse": kinds.TRUTH}, (_V,),
               optional=("reverse",), meaning="result = source where predicate != 0, else kept"),
        # Reductions and scans. `axes` count from the front of data's shape.
        Opcode("tensor_reduce", ("data",),
               {"op": kinds.REDUCTION, "axes": kinds.AXES, "negate": kinds.TRUTH}, (_V, _G),
               optional=("negate",), meaning="result = (-) reduction of data over `axes`; result "
               "has the axes kept with length 1, or dropped, or is (P, 1): same element count"),
        Opcode("partition_reduce", ("data",), {"op": kinds.COMBINATION}, (_G,),
               meaning="(1, F) over partitions"),
        Opcode("loop_reduce", ("data",), {"op": kinds.COMBINATION, "loops": kinds.LOOPS}, (_V,),
               meaning="result = op(result, data); the first iteration of the loops whose variable "
               "ids are in `loops` assigns"),
        Opcode("tensor_tensor_scan", ("data0", "data1", "initial"),
               {"op0": kinds.BINARY_OPERATOR, "op1": kinds.BINARY_OPERATOR,
                "initial": kinds.NUMBER, "reverse0": kinds.TRUTH, "reverse1": kinds.TRUTH}, (_V,),
               optional=("initial", "reverse0", "reverse1"),
               meaning="r[i] = op1(op0(data0[i], r[i-1]), data1[i]), r[-1] = initial"),
        Opcode("bn_stats", ("data",), {}, (_V,), meaning="(P, 6): count, mean, variance*count of "
               "the even, then of the odd elements"),
        Opcode("bn_aggr", ("data",), {}, (_V,), meaning="(P, 2): mean, variance of the groups"),
        Opcode("max8", ("data",), {}, (_V,), meaning="(P, 8): the largest, descending"),
        Opcode("find_index8", ("data", "values"), {"successive": kinds.TRUTH}, (_V,),
               optional=("successive",), meaning="(P, 8) first positions"),
        Opcode("match_replace8", ("data", "values"),
               {"replacement": kinds.NUMBER, "from_last": kinds.TRUTH}, (_V,),
               ("result", "indices"), ("indices", "from_last"), "first match of each value replaced"),
        # Index-driven.
        Opcode("nonzero", ("data",), {"offset": kinds.INTEGER, "padding": kinds.INTEGER}, (_G,),
               meaning="(P, F + 1): where data is not 0, plus offset; padding; and how many, last"),
        Opcode("iota", (), {"expression": kinds.EXPRESSION}, (_G,),
               meaning="result = affine expression of axes"),
        Opcode("affine_select", ("data",),
               {"predicate": kinds.PREDICATE, "negate": kinds.TRUTH, "on_false": kinds.NUMBER},
               (_G,), optional=("negate",),
               meaning="result = data where predicate, else on_false"),
        Opcode("range_select", ("data", "bound0", "bound1"),
               {"op0": kinds.COMPARISON, "op1": kinds.COMPARISON, **_REGISTERS,
                "range_start": kinds.POSITION, "on_false": kinds.NUMBER}, (_V,),
               ("result", "reduce_result"), _REDUCED,
               "result = data where op0(i, bound0) and op1(i, bound1), i = range_start + column"),
        Opcode("select_reduce", ("predicate", "on_true", "on_false"),
               {"on_false": kinds.NUMBER, "reverse": kinds.TRUTH, **_REGISTERS}, (_V,),
               ("result", "reduce_result"), ("reverse", *_REDUCED),
               "result = where(predicate, on_true, on_false)"),
        Opcode("stream_shuffle", ("source",), {"shuffle_mask": kinds.SHUFFLE}, (_V,),
               meaning="partition p of each group of 32 takes shuffle_mask[p]; 255 keeps"),
        Opcode("local_gather", ("source", "index"),
               {"elements_per_index": kinds.WIDTH, "valid_indices": kinds.COUNT}, (_G,),
               optional=("valid_indices",), meaning="per 16 partitions gather by shared indices"),
        Opcode("gather", ("data", "indices"), {}, (_G,),
               meaning="result[p, i] = data[p].flat[indices[p, i]]"),
        Opcode("sequence_bounds", ("segment_ids",), {}, (_G,), meaning="(1, 2, F) starts, ends"),
        Opcode("random", (), {}, (_G, _V), meaning="uniform in [0, 1)"),
        Opcode("dropout", ("data", "probability"), {"probability": kinds.NUMBER}, (_V,),
               meaning="zero with the given probability"),
        Opcode("while", ("condition",), {}, (_Y,), outputs=(),
               meaning="the first of a loop's body: the loop ends where its condition (1, 1) is 0"),
        Opcode("core_barrier", (), {"tensor": kinds.INTEGER}, (_G, _T, _V, _S, _Y), outputs=(),
               optional=("tensor",),
               meaning="both cores of a logical core come here before either goes on; the number of "
               "the tensor that the kernel names"),
        Opcode("print", ("data",), {"prefix": kinds.TEXT}, (_G,), outputs=(),
               meaning="device_print"),
    )
}  # fmt: skip


def fault(
    opcode: str,
    outputs: Iterable[str],
    inputs: Iterable[str],
    attributes: Mapping[str, AttributeValue],
) -> str:
    """In words, the operand or attribute that this opcode does not have, lacks, or has of another
    kind; empty where there is none."""
    found = _form(opcode, tuple(outputs), tuple(inputs), tuple(attributes))
    if found.fault:
        return found.fault
    for name, kind in found.kinds:
        value = attributes[name]
        if not kind.accepts(value):
            return f"{opcode} cannot have {name}={str(value)[:40]!r}"
    for op, operand in found.without_operand:
        if attributes.get(op) in BINARY:
            return f"{opcode} lacks {operand}"
    return ""


class _Form(NamedTuple):
    """What the names in an instruction tell: a fault, the kinds of its attributes, and the operators
    that must be of one argument since there is no operand."""

    fault: str
    kinds: tuple[tuple[str, Kind], ...] = ()
    without_operand: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def _form(
    opcode: str, outputs: tuple[str, ...], inputs: tuple[str, ...], attributes: tuple[str, ...]
) -> _Form:
    row = OPCODES.get(opcode)
    if row is None:
        return _Form(f"there is no instruction {opcode}")
    unknown = {*outputs, *inputs} - {*row.outputs, *row.inputs}
    if unknown or not {*outputs} <= {*row.outputs}:
        return _Form(
            f"{opcode} does not have the operands {', '.join(sorted((*outputs, *inputs)))}"
        )
    given, known = (*outputs, *inputs, *attributes), row.kinds
    for name in given:
        if given.count(name) > 1:
            return _Form(f"{opcode} has {name} twice")
    for name in attributes:
        if name not in known:
            return _Form(f"{opcode} has no attribute {name!r}")
    if lacking := row.required - {*given}:
        return _Form(f"{opcode} lacks {min(lacking)}")
    operators = (("op0", "operand0"), ("op1", "operand1"))
    bare = tuple(pair for pair in operators if pair[1] in row.inputs and pair[1] not in given)
    return _Form("", tuple((name, known[name]) for name in attributes), bare)


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
    return instruction.result.shape if instruction.outputs else ()
