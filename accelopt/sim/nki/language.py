"""neuronxcc.nki.language: tensors, loops, data movement and mathematics on tiles."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import LoopVariable
from accelopt.sim.errors import KernelError, KernelSyntaxError, KernelTypeError, KernelValueError
from accelopt.sim.loops import KernelRange
from accelopt.sim.nki import assignment, builder
from accelopt.sim.nki.builder import emit, mask_of, new_tile, tile
from accelopt.sim.nki.index import (
    Index,
    LoopIndex,
    MeshGridMaker,
    arange,
    broadcast_shapes,
)
from accelopt.sim.nki.tensor import DynamicSlice, TensorView, whole
from accelopt.sim.nki.tokens import op_name
from accelopt.sim.operators import REDUCTIONS
from accelopt.sim.program import Buffer, LoopKind
from accelopt.sim.trace import active, current

__all__ = ["arange"]

# Number formats.

float32 = np.float32
float16 = np.float16
bfloat16 = ml_dtypes.bfloat16
tfloat32 = dtypes.TFLOAT32
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e5m2 = ml_dtypes.float8_e5m2
int8, int16, int32 = np.int8, np.int16, np.int32
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
bool_ = np.bool_


# Buffers and shapes.


class BufferName:
    """nl.sbuf and the other memories; compiler.sbuf adds direct allocation to it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def __repr__(self) -> str:
        return f"nl.{self.buffer.value}"


sbuf = BufferName(Buffer.SBUF)
psum = BufferName(Buffer.PSUM)
hbm = private_hbm = BufferName(Buffer.HBM)
shared_hbm = BufferName(Buffer.SHARED_HBM)


class PartitionDimension(int):
    """nl.par_dim(n): the dimension of a shape that maps to partitions."""


def par_dim(size: int) -> PartitionDimension:
    """Marks the partition dimension of a shape."""
    return PartitionDimension(size)


class tile_size:
    """Limits of tiles (SDK 2.26.1 `nl.tile_size`)."""

    pmax = 128
    psum_fmax = 512
    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1
    total_available_sbuf_size = 180_224


class _SmallestFloat32:
    min = float(np.finfo(np.float32).min)
    max = float(np.finfo(np.float32).max)


fp32 = _SmallestFloat32()

# Loops and indices.

mgrid = MeshGridMaker()


def ds(start: Any, size: int) -> DynamicSlice:
    """A slice of constant size whose start may be a loop index."""
    return DynamicSlice(start, size)


def _bounds(values: tuple[Any, ...]) -> tuple[int, int, int]:
    numbers = [int(n) for n in values]
    if len(numbers) == 1:
        return 0, numbers[0], 1
    return numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else 1


def affine_range(*bounds: Any, **_: Any) -> Any:
    """A loop whose iterations are independent."""
    return KernelRange(LoopKind.AFFINE, *_bounds(bounds))


def sequential_range(*bounds: Any, **_: Any) -> Any:
    """A loop whose iterations run in order."""
    return KernelRange(LoopKind.SEQUENTIAL, *_bounds(bounds))


def static_range(*bounds: Any, **_: Any) -> Any:
    """A loop that is unrolled: its index is a Python number."""
    return range(*_bounds(bounds))


# Creation.


def _layout(shape: Any, buffer: Buffer) -> tuple[tuple[int, ...], int]:
    """Plain shape and number of block dimensions (S5: first is partition unless par_dim)."""
    dimensions = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    marked = [at for at, size in enumerate(dimensions) if isinstance(size, PartitionDimension)]
    sizes = tuple(int(size) for size in dimensions)
    if not buffer.on_chip:
        return sizes, 0
    rank = marked[0] if marked else 0
    if len(sizes) - rank < 2:
        raise KernelSyntaxError(
            "insufficient_rank",
            f"Insufficient rank: on-chip shape {sizes} needs a partition and a free dimension.",
            "Add a free dimension of length 1.",
            current().here(),
        )
    builder.check_partitions(sizes[rank:])
    return sizes, rank


def ndarray(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **_: Any) -> TensorView:
    """A new tensor; fresh on-chip memory is NaN."""
    return _new(shape, dtype, buffer, name)


def _new(
    shape: Any,
    dtype: Any,
    buffer: Any,
    name: str,
    fill: float | int | None = None,
    lazy: bool = False,
) -> TensorView:
    tracer = current()
    where = sbuf if buffer is None else buffer
    if isinstance(where, str):
        where = globals().get(where)
    if not hasattr(where, "buffer"):
        raise KernelTypeError("buffer", f"unknown buffer {buffer!r}.", "", tracer.here())
    kind: Buffer = where.buffer
    if fill is not None and not kind.on_chip:
        raise KernelError(
            "err_hbm_tensor_with_init_value_not_supported",
            "a tensor in HBM cannot be made with an initial value.",
            "Use nl.ndarray and nl.store the value.",
            tracer.here(),
        )
    sizes, rank = _layout(shape, kind)
    element = builder.parse_dtype(dtype)
    if kind is Buffer.SHARED_HBM:
        return whole(_shared(sizes, element, name))
    placement = where.placement(sizes, rank, element) if hasattr(where, "placement") else None
    tensor = tracer.declare(
        sizes, element, kind, name=name, block_rank=rank, fill=fill, lazy_fill=lazy,
        placement=placement,
    )  # fmt: skip
    return whole(tensor)


def _shared(sizes: tuple[int, ...], element: np.dtype, name: str) -> Any:
    """One allocation a launch, the same for every program (S29)."""
    tracer = current()
    if tracer.depth > 1 or any(body.kind not in (None, LoopKind.PROGRAM) for body in tracer.bodies):
        raise KernelError(
            "err_shared_hbm_must_in_kernel_level",
            "a shared_hbm tensor is made inside a loop or a called kernel.",
            "Make it at the top level of the kernel.",
            tracer.here(),
        )
    if tracer.shared_cursor == len(tracer.shared):
        tracer.shared.append(
            tracer.declare(sizes, element, Buffer.SHARED_HBM, name=name, body=tracer.bodies[0])
        )
    tracer.shared_cursor += 1
    return tracer.shared[tracer.shared_cursor - 1]


def zeros(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "",
    lazy_initialization: bool = False, **_: Any,
) -> TensorView:  # fmt: skip
    """A new tensor of zeros."""
    return _new(shape, dtype, buffer, name, 0, lazy_initialization)


def ones(
    shape: Any, dtype: Any, *, buffer: Any = None, name: str = "",
    lazy_initialization: bool = False, **_: Any,
) -> TensorView:  # fmt: skip
    """A new tensor of ones."""
    return _new(shape, dtype, buffer, name, 1, lazy_initialization)


def full(
    shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "",
    lazy_initialization: bool = False, **_: Any,
) -> TensorView:  # fmt: skip
    """A new tensor of one value."""
    return _new(shape, dtype, buffer, name, builder.number(fill_value), lazy_initialization)


def shared_constant(value: Any, dtype: Any = None) -> TensorView:
    """A constant in HBM with the array's contents."""
    data = np.asarray(value, dtype=None if dtype is None else builder.parse_dtype(dtype))
    data = np.ascontiguousarray(data)
    return whole(current().declare(data.shape, data.dtype, Buffer.HBM, data=data))


# Data movement.


def load(
    src: Any, *, mask: Any = None, dtype: Any = None, mode: Any = None, **_: Any
) -> TensorView:
    """HBM to a new SBUF tile; the first dimension of the index is the partition dimension."""
    source = _in_hbm(src, "src")
    condition = mask_of(mask)
    while source.ndim < 2:
        source = source.expand_dims(source.ndim)
    if source.indirect and source.tile_shape != broadcast_shapes(source.tile_shape):
        raise KernelValueError("indirect", "unsupported indirect load.", "", current().here())
    result = new_tile(source.shape, dtype or source.dtype)
    return emit("dma_copy", result=result, inputs={"source": source}, mask=condition,
                attributes={"oob_mode": _oob(mode)})  # fmt: skip


def store(dst: Any, value: Any, *, mask: Any = None, mode: Any = None, **_: Any) -> None:
    """SBUF (or PSUM) to HBM."""
    target = _in_hbm(dst, "dst")
    assignment.check_writable(target)
    condition = mask_of(mask)
    while target.ndim < 2:
        target = target.expand_dims(target.ndim)
    if builder.is_number(value):
        constant = new_tile((min(target.shape[0], 128), *target.shape[1:]), target.dtype)
        value = emit("memset", result=constant, attributes={"value": builder.number(value)})
    source = assignment.fit(tile(value, "value"), target.shape)
    if source.storage.buffer is Buffer.PSUM:
        source = copy(source)
    emit("dma_copy", result=target, inputs={"source": source}, mask=condition,
         attributes={"oob_mode": _oob(mode)})  # fmt: skip


def _oob(mode: Any) -> str:
    return "error" if mode is None else str(getattr(mode, "name", mode))


def _in_hbm(value: Any, name: str) -> TensorView:
    if not isinstance(value, TensorView):
        raise KernelTypeError(
            "operand_type",
            f"Expect operand '{name}' to be a tensor, not {type(value).__name__}.", "",
            current().here(),
        )  # fmt: skip
    if value.on_chip:
        raise KernelError(
            "err_unsupported_memory",
            f"'{name}' ({value!r}) lies on-chip, but must lie in HBM.",
            "Use nl.copy or plain assignment between on-chip tiles.",
            current().here(),
        )
    return value


def copy(src: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
    """A new SBUF tile with the same values."""
    source = tile(src, "src")
    result = new_tile(source.tile_shape, dtype or source.dtype)
    return emit("copy", result=result, inputs={"data": source}, mask=mask_of(mask))


def broadcast_to(src: Any, *, shape: Any, **_: Any) -> TensorView:
    """The tile repeated along axes of length 1, partitions included."""
    wide = tile(src, "src").broadcast_to(tuple(shape))
    result = new_tile(wide.shape, wide.dtype)
    return emit("copy", result=result, inputs={"data": wide})


# Mathematics. Shapes broadcast, partitions included; dtypes promote.


def _binary(op: str, x: Any, y: Any, dtype: Any, mask: Any) -> TensorView:
    builder.refuse_index(x, "x")
    builder.refuse_index(y, "y")
    promoted = dtypes.promote(builder.operand_dtype(x), builder.operand_dtype(y))
    element = (
        builder.parse_dtype(dtype) if dtype is not None else builder.result_dtype(op, promoted)
    )
    condition = mask_of(mask)
    if not isinstance(x, TensorView) and not isinstance(y, TensorView):
        raise KernelTypeError(
            "operand_type", f"nl.{op} needs at least one tile.", "", current().here()
        )
    if isinstance(x, TensorView) and isinstance(y, TensorView):
        tile(x, "x"), tile(y, "y")
        shape = broadcast_shapes(x.tile_shape, y.tile_shape)
        for data, operand, reverse in ((x, y, False), (y, x, True)):
            if data.tile_shape == shape and _is_column(operand, shape):
                return _scalar_form(op, data, operand, reverse, element, condition)
        return emit(
            "tensor_tensor",
            result=new_tile(shape, element),
            inputs={"data1": assignment.fit(x, shape), "data2": assignment.fit(y, shape)},
            attributes={"op": op},
            mask=condition,
        )
    data, operand, reverse = (x, y, False) if isinstance(x, TensorView) else (y, x, True)
    return _scalar_form(op, tile(data, "x"), operand, reverse, element, condition)


def _is_column(view: TensorView, shape: tuple[int, ...]) -> bool:
    """True for a (P, 1) operand of a (P, F) tile with F > 1."""
    return (
        view.tile_shape[0] == shape[0]
        and math.prod(view.tile_shape[1:]) == 1
        and math.prod(shape[1:]) > 1
        and view.dtype.kind != "b"
    )


def _scalar_form(
    op: str, data: TensorView, operand: Any, reverse: bool, element: np.dtype, mask: Any
) -> TensorView:
    if isinstance(operand, TensorView):
        operand = operand.reshape((operand.tile_shape[0], 1))
    return emit(
        "tensor_scalar",
        result=new_tile(data.tile_shape, element),
        inputs={"data": data, "operand0": operand},
        attributes={"op0": op, "reverse0": reverse},
        mask=mask,
    )


def _binary_function(op: str) -> Any:
    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
        return _binary(op, x, y, dtype, mask)

    function.__name__ = op
    function.__doc__ = f"`{op}` of tiles or numbers, elementwise, broadcasting."
    return function


add = _binary_function("add")
subtract = _binary_function("subtract")
multiply = _binary_function("multiply")
divide = _binary_function("divide")
maximum = _binary_function("maximum")
minimum = _binary_function("minimum")
power = _binary_function("power")
mod = _binary_function("mod")
equal = _binary_function("equal")
not_equal = _binary_function("not_equal")
less = _binary_function("less")
less_equal = _binary_function("less_equal")
greater = _binary_function("greater")
greater_equal = _binary_function("greater_equal")


def _unary_function(op: str) -> Any:
    def function(x: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
        builder.refuse_index(x, "x")
        source = tile(x, "x")
        element = builder.parse_dtype(dtype) if dtype is not None else source.dtype
        result = new_tile(source.tile_shape, element)
        return emit("activation", result=result, inputs={"data": source},
                    attributes={"op": op, "scale": 1.0}, mask=mask_of(mask))  # fmt: skip

    function.__name__ = op
    function.__doc__ = f"`{op}` of a tile, elementwise."
    return function


exp = _unary_function("exp")
log = _unary_function("log")
sqrt = _unary_function("sqrt")
rsqrt = _unary_function("rsqrt")
square = _unary_function("square")
abs = _unary_function("abs")
negative = _unary_function("negative")
sigmoid = _unary_function("sigmoid")
silu = _unary_function("silu")
tanh = _unary_function("tanh")
relu = _unary_function("relu")
gelu = _unary_function("gelu")


def reciprocal(x: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
    """1 / x on the Vector engine."""
    source = tile(x, "x")
    result = new_tile(source.tile_shape, dtype or source.dtype)
    return emit("reciprocal", result=result, inputs={"data": source}, mask=mask_of(mask))


def _reduce(
    op: str, x: Any, axis: Any, dtype: Any, mask: Any, keepdims: bool, negate: bool = False
) -> TensorView:
    source = tile(x, "x")
    axes = tuple(
        sorted(n % source.ndim for n in (axis if isinstance(axis, (list, tuple)) else (axis,)))
    )
    if 0 in axes:
        raise KernelError(
            "reduce_axis", "the partition dimension cannot be reduced on the Vector engine.",
            "Reduce free axes, or multiply with ones on the Tensor engine.", current().here(),
        )  # fmt: skip
    shape = tuple(1 if n in axes else size for n, size in enumerate(source.tile_shape))
    result = new_tile(shape, dtype or source.dtype)
    emit("tensor_reduce", result=result, inputs={"data": source},
         attributes={"op": op, "axes": axes, "negate": negate}, mask=mask_of(mask))  # fmt: skip
    if keepdims:
        return result
    kept = tuple(size for n, size in enumerate(source.tile_shape) if n not in axes)
    return result.reshape(kept if len(kept) > 1 else (kept[0], 1))


def _reduce_function(name: str, op: str) -> Any:
    def function(
        x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False, **_: Any
    ) -> TensorView:
        return _reduce(op, x, axis, dtype, mask, keepdims)

    function.__name__ = name
    function.__doc__ = f"`{op}` over free axes; a 2-D tile gives (P, 1)."
    return function


sum = _reduce_function("sum", "add")
max = _reduce_function("max", "maximum")
min = _reduce_function("min", "minimum")
prod = _reduce_function("prod", "multiply")
mean = _reduce_function("mean", "mean")


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **_: Any) -> TensorView:
    """(P, F) to (F, P), at most 128 by 128."""
    from accelopt.sim.nki import isa

    return copy(isa.nc_transpose(x, mask=mask), dtype=dtype)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **_: Any) -> TensorView:
    """x (M, K) times y (K, N), K on the partitions of y; with transpose_x, x is (K, M)."""
    from accelopt.sim.nki import isa

    left = tile(x, "x")
    if not transpose_x:
        left = copy(isa.nc_transpose(left))
    return isa.nc_matmul(left, y, mask=mask)


def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, **_: Any
) -> TensorView:
    """The running reduction of x over the named loops (S14)."""
    source = tile(x, "x")
    indices = loop_indices if isinstance(loop_indices, (list, tuple)) else [loop_indices]
    variables: set[LoopVariable] = set()
    unrolled = True
    for index in indices:
        if isinstance(index, Index):
            variables |= index.affine.loop_variables
        elif isinstance(index, LoopIndex):
            unrolled = unrolled and index.position == 0
    tracer = current()
    name = op_name(op, REDUCTIONS)
    body = tracer.body_outside(frozenset(variables))
    storage = tracer.declare(
        source.tile_shape, builder.parse_dtype(dtype or source.dtype), Buffer.SBUF,
        temporary=True, body=body,
    )  # fmt: skip
    return emit("loop_reduce", result=whole(storage), inputs={"data": source},
                attributes={"op": name, "loops": tuple(sorted(v.id for v in variables))},
                mask=mask_of(mask))  # fmt: skip


# SPMD.


def program_id(axis: int) -> Any:
    """This program's coordinate in the launch grid."""
    return current().grid[axis]


def num_programs(axes: Any = None) -> Any:
    """Sizes of the launch grid."""
    shape = current().grid_shape
    if axes is None:
        return math.prod(shape) if shape else 1
    if isinstance(axes, (tuple, list)):
        return tuple(shape[n] for n in axes)
    return shape[axes]


def program_ndim() -> int:
    """Number of grid dimensions; 0 without a grid."""
    return len(current().grid_shape)


def static_cast(value: Any, dtype: Any) -> Any:
    """A conversion: of an array on the host, of a tile in a kernel."""
    if active() is None or isinstance(value, np.ndarray):
        return np.asarray(value).astype(builder.parse_dtype(dtype))
    return copy(value, dtype=dtype)


def _install_operators() -> None:
    forward = {
        "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "lt": less,
        "le": less_equal, "gt": greater, "ge": greater_equal, "eq": equal, "ne": not_equal,
        "pow": power, "mod": mod,
    }  # fmt: skip
    for name, function in forward.items():
        setattr(TensorView, f"__{name}__", _operator(function, False))
        if name in ("add", "sub", "mul", "truediv", "pow", "mod"):
            setattr(TensorView, f"__r{name}__", _operator(function, True))
    for name, op in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"),
                     ("truediv", "divide")):  # fmt: skip
        setattr(TensorView, f"__i{name}__", _in_place(op))
    TensorView.__neg__ = lambda self: _scalar_form(  # type: ignore[attr-defined]
        "multiply", tile(self, "x"), -1.0, False, self.dtype, None
    )


def _operator(function: Any, reverse: bool) -> Any:
    def method(self: TensorView, other: Any) -> TensorView:
        if isinstance(other, TensorView):
            builder.check_same_partitions(x=self, y=other)
        return function(other, self) if reverse else function(self, other)

    return method


def _in_place(op: str) -> Any:
    def method(self: TensorView, other: Any) -> TensorView:
        return assignment.accumulate(self, other, op)

    return method


_install_operators()
