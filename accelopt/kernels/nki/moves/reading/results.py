"""Shapes, dtypes and memory of what instructions make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accelopt.kernels.nki.moves.reading.polynomial import ONE, ZERO, Polynomial
from accelopt.kernels.nki.moves.reading.signatures import (
    BUFFERS,
    DTYPE_BYTES,
    IN_PSUM,
    REDUCTIONS,
    SHAPED_LIKE,
)
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    Name,
    Number,
    ReadValue,
    Sequence,
    TensorValue,
    UnboundResult,
    Unknown,
    shape_of,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.moves.reading.reader import ReadStatement


@dataclass(frozen=True)
class Partition(Unknown):
    """nl.par_dim(n)."""

    polynomial: Polynomial = ZERO


def declared(call: KnownCall, name: str, statement: ReadStatement) -> KernelTensor:
    """The tensor that nl.ndarray, nl.zeros, nl.ones or nl.full declares."""
    shape, block_rank = None, 0
    value = call.values.get("shape")
    if isinstance(value, Sequence):
        sizes = [item for item in value.items if isinstance(item, (Number, Partition))]
        if len(sizes) == len(value.items):
            shape = tuple(item.polynomial for item in sizes)
            marked = [i for i, item in enumerate(value.items) if isinstance(item, Partition)]
            block_rank = marked[0] if marked else 0
    buffer = call.values.get("buffer")
    fill = {"nl.ndarray": None, "nl.zeros": "0", "nl.ones": "1"}.get(call.name, "value")
    return KernelTensor(
        name,
        shape,
        dtype_named(call.values.get("dtype")),
        BUFFERS.get(buffer.canonical, "sbuf") if isinstance(buffer, Name) else "sbuf",
        statement.path,
        tuple(facts.symbol for facts in statement.loops),
        declared=True,
        fill=fill,
        block_rank=block_rank,
    )


def result_of(call: KnownCall) -> ReadValue:
    """What a call of a known instruction makes."""
    dtype = dtype_named(call.values.get("dtype"))
    shape = _result_shape(call)
    if dtype is None and "dtype" not in call.values:
        dtype = _result_dtype(call)
    return UnboundResult(shape, dtype, "psum" if _lands_in_psum(call) else "sbuf")


def _lands_in_psum(call: KnownCall) -> bool:
    if call.name == "nisa.nc_transpose":
        engine = call.values.get("engine")
        return not (isinstance(engine, Name) and engine.canonical.endswith("vector_engine"))
    return call.name in IN_PSUM


def _result_shape(call: KnownCall) -> tuple[Polynomial, ...] | None:
    name, values = call.name, call.values
    if name in SHAPED_LIKE:
        return shape_of(values[SHAPED_LIKE[name]]) if SHAPED_LIKE[name] in values else None
    if name in {"nisa.memset", "nl.broadcast_to", "nl.ndarray", "nl.zeros", "nl.full", "nl.ones"}:
        sizes = values.get("shape")
        if isinstance(sizes, Sequence) and all(isinstance(i, Number) for i in sizes.items):
            return tuple(i.polynomial for i in sizes.items if isinstance(i, Number))
        return None
    if name == "nisa.tensor_tensor":
        return broadcast(values.get("data1"), values.get("data2"))
    if name == "nl.where":
        return broadcast(values.get("x"), values.get("y"))
    if name in {"nisa.nc_transpose", "nl.transpose", "nl.load_transpose2d"}:
        shape = shape_of(next(iter(values.values()), Unknown()))
        return (shape[1], shape[0]) if shape and len(shape) == 2 else None
    if name in {"nisa.nc_matmul", "nl.matmul"}:
        return _matmul_shape(call)
    if name == "nisa.tensor_reduce" or name.removeprefix("nl.") in REDUCTIONS:
        shape = shape_of(values.get("data" if name == "nisa.tensor_reduce" else "x", Unknown()))
        return (shape[0], ONE) if shape and len(shape) == 2 else None
    return broadcast(values.get("x"), values.get("y"))


def _matmul_shape(call: KnownCall) -> tuple[Polynomial, ...] | None:
    first, second = list(call.values.values())[:2]
    left, right = shape_of(first), shape_of(second)
    if not left or not right or len(left) != 2 or len(right) != 2:
        return None
    flag = call.values.get("transpose_x")
    stationary = call.name == "nisa.nc_matmul" or (
        isinstance(flag, KnownConstant) and flag.value is True
    )
    return (left[1] if stationary else left[0], right[1])


def _result_dtype(call: KnownCall) -> str | None:
    if call.name in IN_PSUM:
        return "float32"
    values = [v for k, v in call.values.items() if k not in {"shape", "axis", "mask", "op"}]
    if call.name.startswith("nisa.") and call.name != "nisa.tensor_tensor":
        return dtype_of(values[0]) if values else None
    if call.name in {"nl.load", "nl.load_transpose2d", "nl.copy"}:
        return dtype_of(call.values.get("src", Unknown()))
    operands = [v for k, v in call.values.items() if k in {"x", "y", "data1", "data2", "data"}]
    return promoted(*operands) if operands else None


def broadcast(*values: ReadValue | None) -> tuple[Polynomial, ...] | None:
    """NumPy's broadcast shape of the tensors among the operands."""
    result: tuple[Polynomial, ...] | None = None
    for value in values:
        if not isinstance(value, (TensorValue, UnboundResult)):
            continue
        shape = shape_of(value)
        if shape is None or (result is not None and len(shape) != len(result)):
            return None
        if result is None:
            result = shape
        else:
            result = tuple(b if a == ONE else a for a, b in zip(result, shape, strict=True))
    return result


def dtype_named(value: ReadValue | None) -> str | None:
    """The dtype that `nl.float32`, `np.float32` or "float32" names."""
    if isinstance(value, Name):
        short = value.canonical.rpartition(".")[2]
        return short if short in DTYPE_BYTES else None
    if isinstance(value, KnownConstant) and value.value in DTYPE_BYTES:
        return str(value.value)
    return None


def dtype_of(value: ReadValue) -> str | None:
    """The dtype of a tensor-like value, None when not known."""
    if isinstance(value, TensorValue):
        return value.access.tensor.dtype
    if isinstance(value, UnboundResult):
        return value.dtype
    return None


def promoted(*values: ReadValue) -> str | None:
    """The common dtype; Python floats count as float32. None when it takes a table to know."""
    dtypes = {
        dtype_of(v) if isinstance(v, (TensorValue, UnboundResult)) else "float32" for v in values
    }
    return dtypes.pop() if len(dtypes) == 1 else None
