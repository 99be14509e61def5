"""Instructions that compute every element by itself: activation, tensor_tensor, tensor_scalar; and copies."""

from __future__ import annotations

from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.isa import checks
from accelopt.sim.dialects.neuronxcc.isa.shared_calls import Result, instruction
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import elementwise, movement
from accelopt.sim.operators import ARITHMETIC, BINARY, COMBINATIONS
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands

BIAS_FORMATS = (dtypes.FLOAT32, dtypes.FLOAT16, dtypes.BFLOAT16)


@instruction("op data")
def activation(
    result: Result, op: Any, data: TensorView, bias: Any = None, scale: Any = 1.0,
    reduce_op: Any = None, reduce_res: Any = None, reduce_cmd: Any = None,
) -> TensorView:  # fmt: skip
    """op(data * scale + bias) on the Scalar engine; optionally a reduction of the result over its
    free axes into accumulation registers, read out into `reduce_res` (P, 1)."""
    target, data = result.alike(elementwise.ACTIVATION, data.dtype, data=data)
    name = op_name(op, result.activations)
    allowed = frozenset({"add"}) if result.in_nki else COMBINATIONS
    total, reduction = result.accumulation(reduce_res, reduce_cmd, reduce_op, allowed)
    if reduction and reduction["reduce_op"] != "add" and builder.generation() < 3:
        mend = "Use nisa.tensor_reduce for other reductions."
        problem = (
            f"the Scalar engine of NeuronCore-v2 reduces with add, not {reduction['reduce_op']}."
        )
        builder.refuse(KernelValueError("reduce_op", problem, mend))
    inputs = {"data": data, "bias": _bias(result, bias, data), "scale": _scale(result, scale, data)}
    return result.emit(
        elementwise.ACTIVATION, target, inputs, {"op": name, **reduction}, {"reduce_result": total}
    )


@instruction("op data", limits="activation")
def activation_reduce(
    result: Result, op: Any, data: TensorView, reduce_op: Any, reduce_res: Any, bias: Any = None,
    scale: Any = 1.0,
) -> TensorView:  # fmt: skip
    """activation, and the reduction of its result over the free axes into `reduce_res`."""
    command = result.commands.reset_reduce
    own = activation.shared.function  # type: ignore[attr-defined]
    return own(result, op, data, bias, scale, reduce_op, reduce_res, command)  # type: ignore[no-any-return]


def _bias(result: Result, bias: Any, data: TensorView) -> Any:
    """The bias as a column; in `nki` a number is possible from NeuronCore-v3 on."""
    if bias is None:
        return None
    if result.in_nki and builder.is_number(bias):
        if float(builder.number(bias)) == 0.0:
            return None
        if builder.generation() < 3:
            mend = "Make a (P, 1) tile with nisa.memset."
            problem = "NeuronCore-v2 takes a bias tile, no number."
            builder.refuse(KernelTypeError("bias", problem, mend))
        return bias
    if not isinstance(bias, TensorView):
        mend = (
            f"Make a (P, 1) tile, for example with {'nisa.memset' if result.in_nki else 'nl.full'}."
        )
        builder.fail(operands.operand_type("bias", type(bias).__name__, mend))
    column = result.column(bias, "bias", data)
    if column.dtype == dtypes.TFLOAT32 if result.in_nki else column.dtype not in BIAS_FORMATS:
        builder.refuse(operands.bias_format(dtypes.name_of(column.dtype)))
    return column


def _scale(result: Result, scale: Any, data: TensorView) -> Any:
    """The scale, a number or a column of float32."""
    if builder.is_number(scale):
        return scale
    view = builder.tile(scale, "scale")
    if view.free_elements != 1:
        builder.fail(operands.scale_shape(view.tile_shape))
    if view.dtype != dtypes.FLOAT32:
        builder.refuse(operands.scale_format(dtypes.name_of(view.dtype)))
    return result.column(view, "scale", data)


@instruction("data op0 operand0 reverse0 op1 operand1 reverse1")
def tensor_scalar(
    result: Result, data: TensorView, op0: Any, operand0: Any, reverse0: bool = False,
    op1: Any = None, operand1: Any = None, reverse1: bool = False, engine: Any = None,
) -> TensorView:  # fmt: skip
    """op1(op0(data, operand0), operand1) with numbers or (P, 1) operands."""
    target, data = result.alike(elementwise.TENSOR_SCALAR, data.dtype, data=data)
    unary = result.unary_operators
    known = BINARY | unary
    first, second = checks.tensor_scalar_operators(op0, op1, known, data, operand0)
    chosen = result.engine(engine, dst=target, data=data)
    given = [(first, operand0, reverse0)]
    given += [] if second is None else [(second, operand1, reverse1)]
    steps = [
        (name, None if name in unary else result.column(value, f"operand{n}", data), reverse)
        for n, (name, value, reverse) in enumerate(given)
    ]
    if any(name in unary for name, _, _ in steps):
        inverted = data.dtype if result.in_nki else target.dtype
        return checks.one_by_one(data, steps, unary, inverted, target, result.mask)
    inputs = {"data": data} | {f"operand{n}": value for n, (_, value, _) in enumerate(steps)}
    attributes = checks.operator_attributes(first, reverse0, second, reverse1, known)
    return result.emit(elementwise.TENSOR_SCALAR, target, inputs, attributes, engine=chosen)


@instruction(later="reduce_cmd reduce_init reduce_res_negate")
def tensor_scalar_reduce(
    result: Result, data: TensorView, op0: Any, operand0: Any, reduce_op: Any,
    reduce_res: Any, reverse0: bool = False, reduce_cmd: Any = None,
    reduce_init: Any = None, reduce_res_negate: bool = False,
) -> TensorView:  # fmt: skip
    """op0(data, operand0), and its reduction over the free axes into `reduce_res` (P, 1)."""
    target, data = result.alike("tensor_scalar_reduce", data.dtype, data=data)
    if reverse0:
        mend = "Swap the operands by other arithmetic."
        said = "tensor_scalar_reduce has no reverse0 yet."
        builder.refuse(KernelValueError("reverse0", said, mend))
    if reduce_init is not None or reduce_res_negate:
        said, mend = (
            "reduce_init and reduce_res_negate are not simulated.",
            "Use another instruction for them.",
        )
        builder.fail(KernelValueError("tensor_scalar_reduce", said, mend))
    allowed = frozenset("add multiply maximum minimum".split())
    allowed |= frozenset() if result.in_nki else {"subtract"}
    total, reduction = result.accumulation(reduce_res, reduce_cmd, reduce_op, allowed)
    name = op_name(op0, ARITHMETIC | {"abs"})
    if name == "abs":  # of one operand: the other is ignored
        name, operand0 = "abs_max", 0.0
    return result.emit(
        elementwise.TENSOR_SCALAR,
        target,
        {"data": data, "operand0": result.column(operand0, "operand0", data)},
        {"op0": name, "reverse0": bool(reverse0), **reduction},
        {"reduce_result": total},
        Engine.VECTOR,
    )


@instruction()
def scalar_tensor_tensor(
    result: Result, data: TensorView, op0: Any, operand0: Any, op1: Any, operand1: TensorView,
    reverse0: bool = False, reverse1: bool = False,
) -> TensorView:  # fmt: skip
    """op1(op0(data, operand0), operand1): operand0 a number or (P, 1), operand1 as large as data."""
    target, data, operand1 = result.alike(
        elementwise.SCALAR_TENSOR_TENSOR, data.dtype, data=data, operand1=operand1
    )
    if result.in_nki and data.in_psum and operand1.in_psum:
        builder.refuse(operands.both_in_psum(elementwise.SCALAR_TENSOR_TENSOR, "data", "operand1"))
    column = result.column(operand0, "operand0", data)
    return result.emit(
        elementwise.SCALAR_TENSOR_TENSOR,
        target,
        {"data": data, "operand0": column, "operand1": operand1},
        checks.operator_attributes(
            op0, reverse0, op1, reverse1, ARITHMETIC if result.in_nki else BINARY
        ),
    )


@instruction("data1 data2 op")
def tensor_tensor(
    result: Result, data1: TensorView, data2: TensorView, op: Any, engine: Any = None
) -> TensorView:
    """op(data1, data2), element by element; in `neuronxcc.nki` free axes of length 1 repeat."""
    name = op_name(op, BINARY)
    checks.check_bitwise(name, data1, data2)
    promoted = builder.result_dtype(name, dtypes.promote(data1.dtype, data2.dtype))
    target, left, right = result.alike(
        elementwise.TENSOR_TENSOR, promoted, repeats=True, data1=data1, data2=data2
    )
    chosen = result.engine(engine, dst=target, data1=data1, data2=data2)
    if name == "power":
        chosen = Engine.GPSIMD
        builder.in_reach_of_gpsimd(dst=target, data1=data1, data2=data2)
    return builder.of_two(name, target, left, right, result.mask, chosen)


@instruction("data")
def reciprocal(result: Result, data: TensorView) -> TensorView:
    """1 / data on the Vector engine."""
    target, data = result.alike(elementwise.RECIPROCAL, data.dtype, data=data)
    return result.emit(elementwise.RECIPROCAL, target, {"data": data})


@instruction("src")
def tensor_copy(result: Result, src: TensorView, engine: Any = None) -> TensorView:
    """A copy of a tile."""
    target, src = result.alike("tensor_copy", src.dtype, src=src)
    chosen = result.engine(engine, dst=target, src=src)
    if result.in_nki and chosen is Engine.SCALAR and builder.generation() < 3:
        mend = "Use nisa.activation with op=nl.copy."
        problem = "NeuronCore-v2's Scalar engine has no tensor_copy."
        builder.refuse(KernelValueError("engine", problem, mend))
    return builder.copied(target, src, result.mask, chosen)


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
    result = Result(dst, dtype, mask)
    source = builder.tile(src, "src")
    target, fitted = result.alike("tensor_copy_dynamic_dst", None, src=source)
    chosen = result.engine(engine, src=source, dst=target)
    builder.copied(target, fitted, result.mask, chosen)


@instruction(in_place=True)
def tensor_copy_predicated(
    result: Result, src: Any, predicate: TensorView, reverse_pred: bool = False
) -> None:
    """dst = src where the predicate is not zero; elsewhere dst stays as it is."""
    target = result.named
    if not isinstance(src, TensorView):
        src = builder.fill(builder.new_tile(target.tile_shape, target.dtype), src)
    checks.check_format("tensor_copy_predicated", "src", builder.tile(src, "src"), target)
    target, src, predicate = result.alike(
        "tensor_copy_predicated", src.dtype, src=src, predicate=predicate
    )
    inputs = {"source": src, "predicate": predicate}
    result.emit(movement.COPY_PREDICATED, target, inputs, {"reverse": bool(reverse_pred)})


@builder.api
def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None
) -> TensorView:
    """A new SBUF tile of one value; the first dimension is the partition dimension."""
    result = builder.new_tile(tuple(int(n) for n in shape), dtype)
    return builder.fill(result, value, mask=builder.mask_of(mask), engine=engine)
