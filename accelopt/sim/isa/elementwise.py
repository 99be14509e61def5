"""Instructions that compute every element by itself."""

from __future__ import annotations

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.isa.limits import VECTOR, OperandLimits, call
from accelopt.sim.isa.movement import ASSIGN
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.program import Engine

REGISTERS = {"reduce_op": kinds.COMBINATION, "reduce_cmd": kinds.REGISTER_COMMAND}
"""How an instruction's result is reduced over its free axes into its engine's registers."""
REDUCED = ("reduce_op", "reduce_cmd", "reduce_result")

ACTIVATION = Opcode(
    "activation", ("data", "bias", "scale"),
    {"op": kinds.UNARY_OPERATOR, "scale": kinds.NUMBER, "bias": kinds.NUMBER, **REGISTERS},
    (Engine.SCALAR,), ("result", "reduce_result"), ("bias", "scale", *REDUCED),
    "result = op(data * scale + bias); reduce_result (P, 1) = reduction of the result over the "
    "free axes",
    calls={"activation": call(reduce_res=VECTOR)},
    elementwise=True, widened=True,
    indirect=("data", "result"),
)  # fmt: skip
TENSOR_SCALAR = Opcode(
    "tensor_scalar", ("data", "operand0", "operand1"),
    {"op0": kinds.OPERATOR, "operand0": kinds.NUMBER, "reverse0": kinds.TRUTH,
        "op1": kinds.OPERATOR, "operand1": kinds.NUMBER, "reverse1": kinds.TRUTH, **REGISTERS},
    (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD), ("result", "reduce_result"),
    ("operand0", "operand1", "op1", "reverse0", "reverse1", *REDUCED),
    "result = op1(op0(data, operand0), operand1); reverse swaps an op's arguments; reduce_result "
    "as of activation",
    calls={
        "tensor_scalar": call(operand0=VECTOR, operand1=VECTOR),
        "tensor_scalar_reduce": call(operand0=VECTOR, reduce_res=VECTOR),
    },
    cost=Cost.FAST_PASS, elementwise=True, widened=True,
    indirect=("data", "result"),
)  # fmt: skip
TENSOR_TENSOR = Opcode(
    "tensor_tensor", ("data1", "data2"), {"op": kinds.BINARY_OPERATOR, ASSIGN: kinds.TRUTH},
    (Engine.VECTOR, Engine.GPSIMD), optional=(ASSIGN,),
    meaning="result = op(data1, data2), free axes broadcast",
    calls={"tensor_tensor": call(("data1", "data2"))},
    cost=Cost.TWO_TILES, elementwise=True, widened=True,
    indirect=("data1", "result"),
)  # fmt: skip
SCALAR_TENSOR_TENSOR = Opcode(
    "scalar_tensor_tensor", ("data", "operand0", "operand1"),
    {"op0": kinds.BINARY_OPERATOR, "operand0": kinds.NUMBER, "reverse0": kinds.TRUTH,
        "op1": kinds.BINARY_OPERATOR, "reverse1": kinds.TRUTH}, (Engine.VECTOR,),
    optional=("operand0", "reverse0", "reverse1"),
    meaning="result = op1(op0(data, operand0), operand1)",
    calls={
        "scalar_tensor_tensor": call(("data", "operand1"), data=OperandLimits(rank=2),
            operand0=VECTOR, operand1=OperandLimits(rank=2)),
    },
    cost=Cost.CHAIN, elementwise=True,
)  # fmt: skip
RECIPROCAL = Opcode(
    "reciprocal", ("data",), engines=(Engine.VECTOR,),
    meaning="result = 1 / data",
    cost=Cost.DIVISION, elementwise=True, widened=True,
)  # fmt: skip
SELECT = Opcode(
    "select", ("predicate", "on_true", "on_false"),
    {"on_true": kinds.NUMBER, "on_false": kinds.NUMBER}, (Engine.VECTOR,),
    meaning="result = where(predicate, ...)",
    cost=Cost.SELECTION, elementwise=True, widened=True,
)  # fmt: skip
RANDOM = Opcode(
    "random", engines=(Engine.VECTOR, Engine.GPSIMD),
    meaning="uniform in [0, 1)",
    not_lifted="it draws random numbers", ordered=True, reaches_hbm=True,
)  # fmt: skip
DROPOUT = Opcode(
    "dropout", ("data", "probability"), {"probability": kinds.NUMBER}, (Engine.VECTOR,),
    meaning="zero with the given probability",
    calls={"dropout": call(prob=VECTOR)},
    not_lifted="it draws random numbers", elementwise=True, ordered=True,
)  # fmt: skip
