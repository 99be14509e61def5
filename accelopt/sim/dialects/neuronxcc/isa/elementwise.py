"""Instructions that compute every element by itself: activation, tensor_tensor, tensor_scalar."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa.checks import ALU_UNARY
from accelopt.sim.dialects.neuronxcc.isa.enums import reduce_cmd as commands
from accelopt.sim.dialects.neuronxcc.operation_names import ACTIVATIONS, op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelValueError
from accelopt.sim.isa import elementwise, movement
from accelopt.sim.operators import ARITHMETIC, BINARY, COMBINATIONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

BIAS_FORMATS = (dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)


@builder.api
def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = commands.idle,
    mask: Any = None,
    dtype: Any = None,
) -> TensorView:
    """op(data * scale + bias) on the Scalar engine; optionally a reduction of the result over its
    free axes into accumulation registers, read out into `reduce_res` (P, 1)."""
    source = builder.tile(data, "data")
    name = op_name(op, ACTIVATIONS)
    _check_bias(bias)
    _check_scale(scale)
    builder.check(
        elementwise.ACTIVATION, data=source, bias=bias, scale=scale, reduce_res=reduce_res
    )
    attributes: dict[str, Any] = {"op": name}
    if reduce_op is not None or reduce_res is not None:
        attributes["reduce_op"] = op_name(reduce_op or "add", COMBINATIONS)
        attributes["reduce_cmd"] = commands(reduce_cmd).name
        _check_add_on_trn1(attributes["reduce_op"])
    elif commands(reduce_cmd) is not commands.idle:
        attributes |= {"reduce_op": "add", "reduce_cmd": commands(reduce_cmd).name}
    return builder.emit(
        elementwise.ACTIVATION,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "bias": builder.column(bias), "scale": builder.column(scale)},
        outputs={"reduce_result": destination(reduce_res, "reduce_res")},
        attributes=attributes,
        mask=builder.mask_of(mask),
    )


@builder.api
def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
) -> TensorView:
    """activation, and the reduction of its result over the free axes into `reduce_res`."""
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd=commands.reset_reduce,
        mask=mask,
        dtype=dtype,
    )


def _check_bias(bias: Any) -> None:
    if bias is None:
        return
    if not isinstance(bias, TensorView):
        mend = "Make a (P, 1) tile, for example with nl.full."
        builder.fail(operands.operand_type("bias", type(bias).__name__, mend))
    view = builder.tile(bias, "bias")
    if view.dtype not in BIAS_FORMATS:
        builder.refuse(operands.bias_format(dtypes.name_of(view.dtype)))
    if math.prod(view.tile_shape[1:]) != 1:
        builder.refuse(operands.not_a_vector("bias", math.prod(view.tile_shape[1:])))


def _check_scale(scale: Any) -> None:
    if builder.is_number(scale):
        return
    view = builder.tile(scale, "scale")
    if math.prod(view.tile_shape[1:]) != 1:
        builder.fail(operands.scale_shape(view.tile_shape))
    if view.dtype != dtypes.FLOAT32:
        builder.refuse(operands.scale_format(dtypes.name_of(view.dtype)))


def _check_add_on_trn1(op: str) -> None:
    if op != "add" and current().target == "trn1":
        mend = "Use nisa.tensor_reduce for other reductions."
        problem = f"the Scalar engine of NeuronCore-v2 reduces with add, not {op}."
        builder.refuse(KernelValueError("reduce_op", problem, mend))


def destination(value: Any, name: str) -> TensorView | None:
    """A tile that an instruction writes in place, or None."""
    if value is None:
        return None
    view = builder.tile(value, name)
    assignment.check_writable(view)
    return view


@builder.api
def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = None,
) -> TensorView:
    """op1(op0(data, operand0), operand1) with numbers or (P, 1) operands."""
    source = builder.tile(data, "data")
    columns = {
        name: builder.tile(operand, name)
        for name, operand in (("operand0", operand0), ("operand1", operand1))
        if operand is not None and not builder.is_number(operand)
    }
    builder.check(elementwise.TENSOR_SCALAR, data=source, operand0=operand0, operand1=operand1)
    known = BINARY | ALU_UNARY
    first, second = checks.tensor_scalar_operators(op0, op1, known, source, operand0)
    element = builder.parse_dtype(dtype) if dtype is not None else source.dtype
    masks = builder.mask_of(mask)
    if first in ALU_UNARY or second in ALU_UNARY:
        steps = [(first, operand0, reverse0)]
        if second is not None:
            steps.append((second, operand1, reverse1))
        return checks.one_by_one(source, steps, ALU_UNARY, element,
                                 lambda: builder.new_tile(source.tile_shape, element), masks)  # fmt: skip
    return builder.emit(
        elementwise.TENSOR_SCALAR,
        result=builder.new_tile(source.tile_shape, element),
        attributes=checks.operator_attributes(first, reverse0, second, reverse1, known),
        inputs={
            "data": source,
            "operand0": builder.column(operand0),
            "operand1": builder.column(operand1),
        },
        mask=masks,
        engine=_engine_for(engine, data=source, **columns),
    )


def _engine_for(engine: Any, **tiles: TensorView) -> Engine | None:
    """The engine asked for; GpSimd cannot reach PSUM, in which none of these operands may lie."""
    chosen = builder.engine_of(engine)
    if chosen is Engine.GPSIMD:
        builder.in_reach_of_gpsimd("Use nisa.vector_engine, or copy the operand to SBUF.", **tiles)
    return chosen


@builder.api
def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> TensorView:
    """op0(data, operand0), and its reduction over the free axes into `reduce_res` (P, 1)."""
    source = builder.tile(data, "data")
    builder.check("tensor_scalar_reduce", data=source, operand0=operand0, reduce_res=reduce_res)
    if reverse0:
        mend = "Swap the operands by other arithmetic."
        builder.refuse(
            KernelValueError("reverse0", "tensor_scalar_reduce has no reverse0 yet.", mend)
        )
    allowed = frozenset("add subtract multiply maximum minimum".split())
    name = op_name(op0, ARITHMETIC | {"abs"})
    if name == "abs":  # of one operand: the other is ignored
        name, operand0 = "abs_max", 0.0
    return builder.emit(
        elementwise.TENSOR_SCALAR,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "operand0": builder.column(operand0)},
        outputs={"reduce_result": destination(reduce_res, "reduce_res")},
        attributes={
            "op0": name,
            "reverse0": bool(reverse0),
            "reduce_op": op_name(reduce_op, allowed),
        },
        mask=builder.mask_of(mask),
        engine=Engine.VECTOR,
    )


@builder.api
def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> TensorView:
    """op1(op0(data, operand0), operand1): operand0 a number or (P, 1), operand1 as large as data."""
    source, full = builder.tile(data, "data"), builder.tile(operand1, "operand1")
    builder.check(elementwise.SCALAR_TENSOR_TENSOR, data=source, operand0=operand0, operand1=full)
    if source.tile_shape != full.tile_shape:
        given = {"data": source.tile_shape, "operand1": full.tile_shape}
        builder.fail(operands.different_shapes(elementwise.SCALAR_TENSOR_TENSOR, given))
    return builder.emit(
        elementwise.SCALAR_TENSOR_TENSOR,
        result=builder.new_tile(source.tile_shape, dtype or source.dtype),
        inputs={"data": source, "operand0": builder.column(operand0), "operand1": full},
        attributes=checks.operator_attributes(op0, reverse0, op1, reverse1, BINARY),
        mask=builder.mask_of(mask),
    )


@builder.api
def tensor_tensor(
    data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None
) -> TensorView:
    """op(data1, data2), elementwise; free axes of length 1 repeat."""
    left, right = builder.tile(data1, "data1"), builder.tile(data2, "data2")
    builder.check(elementwise.TENSOR_TENSOR, data1=left, data2=right)
    name = op_name(op, BINARY)
    checks.check_bitwise(name, left, right)
    shape = assignment.common_shape(left, right)
    promoted = builder.result_dtype(name, dtypes.promote(left.dtype, right.dtype))
    asked = Engine.GPSIMD if name == "power" else engine
    chosen = _engine_for(asked, data1=left, data2=right)
    result = builder.new_tile(shape, dtype or promoted)
    left, right = assignment.fit(left, shape), assignment.fit(right, shape)
    return builder.of_two(name, result, left, right, builder.mask_of(mask), chosen)


@builder.api
def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """1 / data on the Vector engine."""
    source = builder.tile(data, "data")
    builder.check(elementwise.RECIPROCAL, data=source)
    result = builder.new_tile(source.tile_shape, dtype or source.dtype)
    return builder.emit(
        elementwise.RECIPROCAL, result=result, inputs={"data": source}, mask=builder.mask_of(mask)
    )


@builder.api
def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None) -> TensorView:
    """A copy of a tile."""
    source = builder.tile(src, "src")
    builder.check("tensor_copy", src=source)
    result = builder.new_tile(source.tile_shape, dtype or source.dtype)
    chosen = _engine_for(engine, src=source)
    return builder.copied(result, source, mask=builder.mask_of(mask), engine=chosen)


@builder.api
def tensor_copy_dynamic_src(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None
) -> TensorView:
    """A copy of a tile whose place within each partition is read from SBUF at run time."""
    return tensor_copy(src, mask=mask, dtype=dtype, engine=engine)


@builder.api
def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Any = None
) -> None:
    """A copy into a tile whose place within each partition is read from SBUF at run time."""
    target = destination(dst, "dst")
    assert target is not None
    source = assignment.fit(builder.tile(src, "src"), target.tile_shape)
    builder.copied(
        target,
        source,
        mask=builder.mask_of(mask),
        engine=_engine_for(engine, src=source, dst=target),
    )


@builder.api
def tensor_copy_predicated(
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
) -> None:
    """dst = src where the predicate is not zero; elsewhere dst stays as it is."""
    target, where = destination(dst, "dst"), builder.tile(predicate, "predicate")
    assert target is not None
    builder.check("tensor_copy_predicated", src=src, dst=target, predicate=where)
    if isinstance(src, TensorView):
        checks.check_format("tensor_copy_predicated", "src", src, target)
    else:
        src = builder.fill(builder.new_tile(target.tile_shape, target.dtype), src)
    builder.emit(
        movement.COPY_PREDICATED,
        result=target,
        inputs={
            "source": assignment.fit(builder.tile(src, "src"), target.tile_shape),
            "predicate": assignment.fit(where, target.tile_shape),
        },
        attributes={"reverse": bool(reverse_pred)},
        mask=builder.mask_of(mask),
    )


@builder.api
def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None
) -> TensorView:
    """A new SBUF tile of one value; the first dimension is the partition dimension."""
    result = builder.new_tile(tuple(int(n) for n in shape), dtype)
    return builder.fill(result, value, mask=builder.mask_of(mask), engine=engine)
