"""Instructions of nki.isa that compute every element by itself, and copies."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import check, copied, emit, fail, fill, refuse, tile
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa.checks import ALU_UNARY
from accelopt.sim.dialects.neuronxcc.operation_names import ACTIVATIONS, op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import (
    alike,
    destination,
    generation,
    instruction,
    member,
    on_engine,
    scalar_or_column,
)
from accelopt.sim.dialects.nki.isa import enums
from accelopt.sim.dialects.nki.isa.enums import reduce_cmd as commands
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import elementwise, movement
from accelopt.sim.operators import ARITHMETIC, BINARY
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands

STANDALONE_ACTIVATIONS = ACTIVATIONS | {"gelu_apprx_sigmoid_dx"}
UNARY_OPERATORS = ALU_UNARY | {"square", "relu"}


def accumulator(
    result: Any, command: Any, op: Any, allowed: frozenset[str]
) -> tuple[Any, dict[str, Any]]:
    """The tile that the accumulation registers are read into, and the attributes that say how they
    are used."""
    given = member(commands, command, "reduce_cmd")
    if given is commands.load_reduce:
        said = "reduce_cmd.load_reduce is not simulated."
        fail(KernelValueError("reduce_cmd", said, "Start with reset_reduce and add afterwards."))
    target = None if result is None else destination(result, "reduce_res")
    if given is commands.idle and target is None:
        return None, {}
    return target, {"reduce_op": op_name(op or "add", allowed), "reduce_cmd": given.name}


@instruction
def activation(
    dst: Any,
    op: Any,
    data: Any,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = commands.idle,
) -> None:
    """dst = op(data * scale + bias) on the Scalar engine; optionally its sum over the free axes."""
    target, source = alike(elementwise.ACTIVATION, destination(dst), data=tile(data, "data"))
    column, moved = _bias(bias, source), scalar_or_column(scale, "scale", source)
    if isinstance(moved, TensorView) and moved.dtype != dtypes.FLOAT32:
        refuse(operands.scale_format(dtypes.name_of(moved.dtype)))
    check(elementwise.ACTIVATION, data=source, reduce_res=reduce_res)
    result, reduction = accumulator(reduce_res, reduce_cmd, reduce_op, frozenset({"add"}))
    emit(
        elementwise.ACTIVATION,
        result=target,
        inputs={"data": source, "bias": column, "scale": moved},
        outputs={"reduce_result": result},
        attributes={"op": op_name(op, STANDALONE_ACTIVATIONS), **reduction},
    )


def _bias(bias: Any, source: TensorView) -> Any:
    """The bias as a column; a number is possible from NeuronCore-v3 on."""
    if bias is None or (builder.is_number(bias) and float(builder.number(bias)) == 0.0):
        return None
    if builder.is_number(bias):
        if generation() < 3:
            mend = "Make a (P, 1) tile with nisa.memset."
            refuse(KernelTypeError("bias", "NeuronCore-v2 takes a bias tile, no number.", mend))
        return bias
    view = scalar_or_column(bias, "bias", source)
    if view.dtype == dtypes.TFLOAT32:
        refuse(operands.bias_format(dtypes.name_of(view.dtype)))
    return view


@instruction
def activation_reduce(
    dst: Any, op: Any, data: Any, reduce_op: Any, reduce_res: Any, bias: Any = None,
    scale: Any = 1.0,
) -> None:  # fmt: skip
    """activation, and the sum of its result over the free axes into `reduce_res`."""
    activation(dst, op, data, bias, scale, reduce_op, reduce_res, commands.reset_reduce)


@instruction
def tensor_tensor(
    dst: Any, data1: Any, data2: Any, op: Any, engine: Any = enums.engine.unknown
) -> None:
    """dst = op(data1, data2), element by element."""
    left, right = tile(data1, "data1"), tile(data2, "data2")
    target, left, right = alike(
        elementwise.TENSOR_TENSOR, destination(dst), data1=left, data2=right
    )
    check(elementwise.TENSOR_TENSOR, data1=left, data2=right)
    name = op_name(op, BINARY)
    checks.check_bitwise(name, left, right)
    chosen = on_engine(engine, dst=target, data1=left, data2=right)
    if name == "power":
        chosen = Engine.GPSIMD
        builder.in_reach_of_gpsimd(dst=target, data1=left, data2=right)
    builder.of_two(name, target, left, right, engine=chosen)


@instruction
def tensor_scalar(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = enums.engine.unknown,
) -> None:
    """dst = op1(op0(data, operand0), operand1), the operands numbers or one value a partition."""
    target, source = alike(elementwise.TENSOR_SCALAR, destination(dst), data=tile(data, "data"))
    known = BINARY | UNARY_OPERATORS
    first, second = checks.tensor_scalar_operators(op0, op1, known, source, operand0)
    chosen = on_engine(engine, dst=target, data=source)
    steps = [(first, operand0, reverse0)]
    if second is not None:
        steps.append((second, operand1, reverse1))
    operand = [
        None if name in UNARY_OPERATORS else scalar_or_column(value, f"operand{n}", source)
        for n, (name, value, _) in enumerate(steps)
    ]
    if any(name in UNARY_OPERATORS for name, _, _ in steps):
        ready = [(s[0], o, s[2]) for s, o in zip(steps, operand, strict=True)]
        checks.one_by_one(source, ready, UNARY_OPERATORS, source.dtype, lambda: target)
        return
    attributes = checks.operator_attributes(first, reverse0, second, reverse1, known)
    inputs = {"data": source} | {f"operand{n}": value for n, value in enumerate(operand)}
    emit(
        elementwise.TENSOR_SCALAR,
        result=target,
        inputs=inputs,
        attributes=attributes,
        engine=chosen,
    )


@instruction
def tensor_scalar_reduce(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any = None,
    reverse0: bool = False,
    reduce_cmd: Any = commands.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
) -> None:
    """dst = op0(data, operand0), and its reduction over the free axes into `reduce_res`."""
    target, source = alike("tensor_scalar_reduce", destination(dst), data=tile(data, "data"))
    if reverse0:
        refuse(KernelValueError("reverse0", "tensor_scalar_reduce has no reverse0 yet."))
    if reduce_init is not None or reduce_res_negate:
        said = "reduce_init and reduce_res_negate are not simulated."
        fail(KernelValueError("tensor_scalar_reduce", said, "Use another instruction for them."))
    allowed = frozenset("add multiply maximum minimum".split())
    result, reduction = accumulator(reduce_res, reduce_cmd, reduce_op, allowed)
    name, operand = op_name(op0, ARITHMETIC | {"abs"}), operand0
    if name == "abs":
        name, operand = "abs_max", 0.0
    emit(
        elementwise.TENSOR_SCALAR,
        result=target,
        inputs={"data": source, "operand0": scalar_or_column(operand, "operand0", source)},
        outputs={"reduce_result": result},
        attributes={"op0": name, "reverse0": False, **reduction},
        engine=Engine.VECTOR,
    )


@instruction
def scalar_tensor_tensor(
    dst: Any,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
) -> None:
    """dst = op1(op0(data, operand0), operand1): operand1 as large as data."""
    source, full = tile(data, "data"), tile(operand1, "operand1")
    target, source, full = alike(
        elementwise.SCALAR_TENSOR_TENSOR, destination(dst), data=source, operand1=full
    )
    if source.in_psum and full.in_psum:
        refuse(operands.both_in_psum(elementwise.SCALAR_TENSOR_TENSOR, "data", "operand1"))
    emit(
        elementwise.SCALAR_TENSOR_TENSOR,
        result=target,
        inputs={
            "data": source,
            "operand0": scalar_or_column(operand0, "operand0", source),
            "operand1": full,
        },
        attributes=checks.operator_attributes(op0, reverse0, op1, reverse1, ARITHMETIC),
    )


@instruction
def reciprocal(dst: Any, data: Any) -> None:
    """dst = 1 / data on the Vector engine."""
    target, source = alike(elementwise.RECIPROCAL, destination(dst), data=tile(data, "data"))
    emit(elementwise.RECIPROCAL, result=target, inputs={"data": source})


@instruction
def tensor_copy(dst: Any, src: Any, engine: Any = enums.engine.unknown) -> None:
    """dst = src between tiles on-chip."""
    target, source = alike("tensor_copy", destination(dst), src=tile(src, "src"))
    chosen = on_engine(engine, dst=target, src=source)
    if chosen is Engine.SCALAR and generation() < 3:
        mend = "Use nisa.activation with op=nl.copy."
        refuse(
            KernelValueError("engine", "NeuronCore-v2's Scalar engine has no tensor_copy.", mend)
        )
    copied(target, source, engine=chosen)


@instruction
def tensor_copy_predicated(dst: Any, src: Any, predicate: Any, reverse_pred: bool = False) -> None:
    """dst = src where the predicate is not zero; elsewhere dst stays as it is."""
    target, where = destination(dst), tile(predicate, "predicate")
    if not isinstance(src, TensorView):
        filled = builder.new_tile(target.tile_shape, target.dtype)
        src = fill(filled, src)
    check("tensor_copy_predicated", src=src, dst=target, predicate=where)
    target, source, where = alike(
        "tensor_copy_predicated", target, src=tile(src, "src"), predicate=where
    )
    checks.check_format("tensor_copy_predicated", "src", source, target)
    emit(movement.COPY_PREDICATED, result=target, inputs={"source": source, "predicate": where},
         attributes={"reverse": bool(reverse_pred)})  # fmt: skip


@instruction
def memset(dst: Any, value: Any, engine: Any = enums.engine.unknown) -> None:
    """dst = value; a whole number for integer formats, 0 for packed ones (NKI 0.3)."""
    target = destination(dst)
    given = builder.number(value)
    if dtypes.is_integer(target.dtype) and isinstance(given, float):
        mend = f"Pass {int(given) if math.isfinite(given) else 0}, a whole number."
        kind = dtypes.name_of(target.dtype)
        refuse(KernelTypeError("memset_value", f"memset of {given!r} into a {kind} tile.", mend))
    if dtypes.is_packed(target.dtype) and given != 0:
        kind = dtypes.name_of(target.dtype)
        mend = "Load packed elements from HBM with nisa.dma_copy."
        refuse(KernelTypeError("memset_value", f"memset of {given!r} into a {kind} tile.", mend))
    fill(target, given, engine=on_engine(engine, dst=target))
