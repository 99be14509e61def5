"""neuronxcc.nki.isa: one call, one NeuronCore instruction."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelTypeError, KernelValueError
from accelopt.sim.nki import builder
from accelopt.sim.nki.builder import emit, mask_of, new_tile, tile
from accelopt.sim.nki.index import broadcast_shapes
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.nki.tokens import op_name
from accelopt.sim.operators import BINARY, REDUCTIONS, UNARY
from accelopt.sim.program import Buffer, Engine
from accelopt.sim.trace import current


class engine(IntEnum):
    """Which engine runs an instruction."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    sync = 6
    unknown = 0


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def nc_matmul(
    stationary: Any, moving: Any, *, is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False, is_transpose: bool = False, mask: Any = None, **_: Any,
) -> TensorView:  # fmt: skip
    """stationary (K, M).T @ moving (K, N) into PSUM, in fp32."""
    left, right = tile(stationary, "stationary"), tile(moving, "moving")
    for name, operand in (("stationary", left), ("moving", right)):
        if operand.storage.buffer is not Buffer.SBUF:
            raise KernelError(
                "err_unsupported_memory", f"'{name}' of nc_matmul must lie in SBUF.",
                "Copy it from PSUM with nl.copy first.", current().here(),
            )  # fmt: skip
    builder.check_same_partitions(stationary=left, moving=right)
    rows, columns = math.prod(left.tile_shape[1:]), right.tile_shape[1:]
    if rows > 128 or math.prod(columns) > 512:
        raise KernelSyntaxError(
            "err_size_of_dimension_exceed_arch_limit",
            f"nc_matmul of stationary {left.tile_shape} and moving {right.tile_shape} exceeds "
            "128 stationary columns or 512 moving columns.",
            "Tile the free dimensions.", current().here(),
        )  # fmt: skip
    element = left.dtype if is_transpose else dtypes.FLOAT32
    result = new_tile((rows, *columns), element, Buffer.PSUM)
    return emit(
        "matmul",
        result=result,
        inputs={"stationary": left, "moving": right},
        attributes={
            "is_stationary_onezero": bool(is_stationary_onezero),
            "is_moving_onezero": bool(is_moving_onezero),
            "is_transpose": bool(is_transpose),
        },
        mask=mask_of(mask),
    )


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any
) -> TensorView:
    """(P, F) to (F, P): Tensor engine into PSUM (128 by 128), Vector engine 32 by 32."""
    source = tile(data, "data")
    rows, columns = source.tile_shape[0], math.prod(source.tile_shape[1:])
    chosen = builder.engine_of(engine) or (
        Engine.VECTOR if rows <= 32 and columns <= 32 else Engine.TENSOR
    )
    limit = 32 if chosen is Engine.VECTOR else 128
    if rows > limit or columns > limit:
        raise KernelSyntaxError(
            "err_size_of_dimension_exceed_arch_limit",
            f"nc_transpose of {source.tile_shape} exceeds {limit} by {limit}.", "Tile it.",
            current().here(),
        )  # fmt: skip
    buffer = Buffer.PSUM if chosen is Engine.TENSOR else Buffer.SBUF
    result = new_tile((columns, rows), dtype or source.dtype, buffer)
    flat = source.reshape((rows, columns))
    return emit("transpose", result=result, inputs={"data": flat}, mask=mask_of(mask),
                engine=chosen)  # fmt: skip


def activation(
    op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, reduce_op: Any = None,
    reduce_res: Any = None, reduce_cmd: Any = None, mask: Any = None, dtype: Any = None, **_: Any,
) -> TensorView:  # fmt: skip
    """op(data * scale + bias) on the Scalar engine."""
    source = tile(data, "data")
    if bias is not None and not isinstance(bias, TensorView):
        raise KernelTypeError(
            "operand_type", "Expect operand 'bias' to be a tile, not a number.",
            "Make a (P, 1) tile, for example with nl.full.", current().here(),
        )  # fmt: skip
    builder.check_same_partitions(data=source, bias=bias,
                                  scale=scale if isinstance(scale, TensorView) else None)  # fmt: skip
    result = new_tile(source.tile_shape, dtype or source.dtype)
    outputs = {"reduce_result": reduce_res} if reduce_res is not None else {}
    return emit(
        "activation",
        result=result,
        inputs={"data": source, "bias": bias, "scale": scale},
        outputs=outputs,
        attributes={
            "op": op_name(op, UNARY),
            **({"reduce_op": op_name(reduce_op, REDUCTIONS)} if reduce_op is not None else {}),
            **({"reduce_cmd": getattr(reduce_cmd, "name", "")} if reduce_cmd is not None else {}),
        },
        mask=mask_of(mask),
    )


def tensor_scalar(
    data: Any, op0: Any, operand0: Any, reverse0: bool = False, op1: Any = None,
    operand1: Any = None, reverse1: bool = False, *, dtype: Any = None, mask: Any = None,
    engine: Any = None, **_: Any,
) -> TensorView:  # fmt: skip
    """op1(op0(data, operand0), operand1) with numbers or (P, 1) operands."""
    source = tile(data, "data")
    for name, operand in (("operand0", operand0), ("operand1", operand1)):
        if isinstance(operand, TensorView):
            tile(operand, name)
            builder.check_same_partitions(data=source, **{name: operand})
            if math.prod(operand.tile_shape[1:]) != 1:
                raise KernelSyntaxError(
                    "operand_shape",
                    f"{name}'s free dimension should be 1 (a vector), got "
                    f"{math.prod(operand.tile_shape[1:])}.",
                    "Use nisa.tensor_tensor for two full tiles.", current().here(),
                )  # fmt: skip
    result = new_tile(source.tile_shape, dtype or source.dtype)
    attributes: dict[str, Any] = {"op0": op_name(op0, BINARY), "reverse0": bool(reverse0)}
    if op1 is not None:
        attributes |= {"op1": op_name(op1, BINARY), "reverse1": bool(reverse1)}
    return emit(
        "tensor_scalar", result=result, attributes=attributes,
        inputs={"data": source, "operand0": operand0, "operand1": operand1},
        mask=mask_of(mask), engine=engine,
    )  # fmt: skip


def tensor_tensor(
    data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Any = None,
    **_: Any,
) -> TensorView:  # fmt: skip
    """op(data1, data2), elementwise."""
    left, right = tile(data1, "data1"), tile(data2, "data2")
    builder.check_same_partitions(data1=left, data2=right)
    if left.storage.buffer is Buffer.PSUM and right.storage.buffer is Buffer.PSUM:
        raise KernelError(
            "err_unsupported_memory", "both operands of tensor_tensor lie in PSUM.",
            "Copy one to SBUF.", current().here(),
        )  # fmt: skip
    name = op_name(op, BINARY)
    shape = broadcast_shapes(left.tile_shape, right.tile_shape)
    promoted = builder.result_dtype(name, dtypes.promote(left.dtype, right.dtype))
    return emit(
        "tensor_tensor", result=new_tile(shape, dtype or promoted), attributes={"op": name},
        inputs={"data1": left.broadcast_to(shape), "data2": right.broadcast_to(shape)},
        mask=mask_of(mask), engine=engine,
    )  # fmt: skip


def tensor_reduce(
    op: Any, data: Any, axis: Any, *, mask: Any = None, dtype: Any = None, negate: bool = False,
    keepdims: bool = False, **_: Any,
) -> TensorView:  # fmt: skip
    """Reduction over free axes on the Vector engine."""
    from accelopt.sim.nki import language

    return language._reduce(op_name(op, REDUCTIONS), data, axis, dtype, mask, keepdims, negate)


def tensor_copy(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None, **_: Any
) -> TensorView:
    """A copy of a tile."""
    source = tile(src, "src")
    result = new_tile(source.tile_shape, dtype or source.dtype)
    return emit("copy", result=result, inputs={"data": source}, mask=mask_of(mask), engine=engine)


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
    """1 / data on the Vector engine."""
    source = tile(data, "data")
    result = new_tile(source.tile_shape, dtype or source.dtype)
    return emit("reciprocal", result=result, inputs={"data": source}, mask=mask_of(mask))


def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Any = None, **_: Any
) -> TensorView:
    """A new SBUF tile of one value."""
    result = new_tile(tuple(int(n) for n in shape), dtype)
    return emit("memset", result=result, attributes={"value": builder.number(value)},
                mask=mask_of(mask), engine=engine)  # fmt: skip


def tensor_tensor_scan(
    data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, reverse0: bool = False,
    reverse1: bool = False, *, dtype: Any = None, mask: Any = None, **_: Any,
) -> TensorView:  # fmt: skip
    """r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis."""
    left, right = tile(data0, "data0"), tile(data1, "data1")
    builder.check_same_partitions(data0=left, data1=right,
                                  initial=initial if isinstance(initial, TensorView) else None)  # fmt: skip
    if left.tile_shape != right.tile_shape:
        raise KernelValueError(
            "operand_shape", f"data0 {left.tile_shape} and data1 {right.tile_shape} differ.", "",
            current().here(),
        )  # fmt: skip
    result = new_tile(left.tile_shape, dtype or dtypes.promote(left.dtype, right.dtype))
    return emit(
        "tensor_tensor_scan", result=result,
        inputs={"data0": left, "data1": right, "initial": initial},
        attributes={"op0": op_name(op0, BINARY), "op1": op_name(op1, BINARY),
                    "reverse0": bool(reverse0), "reverse1": bool(reverse1)},
        mask=mask_of(mask),
    )  # fmt: skip
