"""nki.language on tiles: convenience functions that return new tiles (experimental since NKI 0.3).

They are those of `neuronxcc.nki.language` without masks; two tiles must have the same shape.
"""

from __future__ import annotations

from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc.builder import copied, fail, new_tile, tile
from accelopt.sim.dialects.neuronxcc.language import elementwise, movement, reductions
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.call_conventions import call
from accelopt.sim.dialects.nki.formats import element_of
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.rules import operands

BINARY = (
    "add subtract multiply divide maximum minimum power mod fmod equal not_equal less less_equal "
    "greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "left_shift right_shift"
).split()
UNARY = (
    "exp log sqrt rsqrt square abs sign floor ceil trunc relu sigmoid silu silu_dx tanh gelu "
    "gelu_apprx_tanh gelu_apprx_sigmoid gelu_dx erf erf_dx sin cos tan arctan softplus mish "
    "negative reciprocal invert logical_not"
).split()
REDUCTIONS = "sum max min prod mean".split()
TOKENS = "gelu_apprx_sigmoid_dx prelu bypass average abs_max abs_min".split()
"""Operators that instructions take and no function of nki.language computes."""


def _of(dtype: Any) -> Any:
    return None if dtype is None else element_of(dtype)


def _binary(name: str) -> Any:
    inner = getattr(elementwise, name)

    def function(x: Any, y: Any, dtype: Any = None) -> TensorView:
        if isinstance(x, TensorView) and isinstance(y, TensorView) and x.shape != y.shape:
            shapes = {"x": x.shape, "y": y.shape}
            mend = "Repeat it with .broadcast or nl.broadcast_to first."
            fail(operands.different_shapes(f"nl.{name}", shapes, mend))
        return inner(x, y, dtype=_of(dtype))  # type: ignore[no-any-return]

    return _named(name, function, inner.__doc__)


def _unary(name: str) -> Any:
    inner = getattr(elementwise, name)

    def function(x: Any, dtype: Any = None) -> TensorView:
        if name == "rsqrt" and isinstance(x, TensorView) and x.in_psum:
            versions.use("nl.rsqrt of a tile in PSUM")
        return inner(x, dtype=_of(dtype))  # type: ignore[no-any-return]

    return _named(name, function, inner.__doc__)


def _reduction(name: str) -> Any:
    inner = getattr(reductions, name)

    def function(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> TensorView:
        return inner(x, axis, dtype=_of(dtype), keepdims=keepdims)  # type: ignore[no-any-return]

    return _named(name, function, inner.__doc__)


def _named(name: str, function: Any, doc: str | None) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return call(function)


def _token(name: str) -> Any:
    def function(*_: Any, **__: Any) -> Any:
        mend = "Pass it as op= to an instruction of nki.isa."
        fail(KernelTypeError("operator", f"nl.{name} computes nothing by itself.", mend))

    function.__name__ = function.__qualname__ = name
    return function


FUNCTIONS: dict[str, Any] = {
    **{name: _binary(name) for name in BINARY},
    **{name: _unary(name) for name in UNARY},
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _token(name) for name in TOKENS},
}


@call
def var(x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> TensorView:
    """The variance over free axes; the axes stay, with length 1."""
    found = reductions.var(x, axis, dtype=_of(dtype))
    shape = _kept_shape(x, axis)
    return found if found.shape == shape else found.reshape(shape)


def _kept_shape(x: TensorView, axis: Any) -> tuple[int, ...]:
    rank = x.ndim
    axes = {int(n) % rank for n in (axis if isinstance(axis, (tuple, list)) else (axis,))}
    return tuple(1 if n in axes else size for n, size in enumerate(x.shape))


@call
def all(x: Any, axis: Any, dtype: Any = None) -> TensorView:
    """True where every element over the axes is not zero."""
    return reductions.all(x, axis, dtype=_of(dtype) or dtypes.BOOL)


@call
def softmax(x: Any, axis: Any = -1, dtype: Any = None) -> TensorView:
    """exp(x - max) / sum(exp(x - max)) over free axes."""
    return reductions.softmax(x, axis, dtype=_of(dtype))


@call
def rms_norm(
    x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-6, dtype: Any = None,
    compute_dtype: Any = None,
) -> TensorView:  # fmt: skip
    """x / sqrt(sum(x * x) / n + epsilon) * w."""
    return reductions.rms_norm(x, w, axis, n, epsilon, dtype=_of(dtype),
                               compute_dtype=_of(compute_dtype))  # fmt: skip


@call
def where(condition: Any, x: Any, y: Any, dtype: Any = None) -> TensorView:
    """x where the condition is not zero, else y."""
    return elementwise.where(condition, x, y, dtype=_of(dtype))


@call
def dropout(x: Any, rate: Any, dtype: Any = None) -> TensorView:
    """x with elements zeroed at random with probability `rate`."""
    return reductions.dropout(x, rate, dtype=_of(dtype))


@call
def matmul(x: Any, y: Any, transpose_x: bool = False) -> TensorView:
    """x @ y, or x.T @ y, in PSUM."""
    return reductions.matmul(x, y, transpose_x=transpose_x)


@call
def load(src: Any, dtype: Any = None) -> TensorView:
    """HBM to a new tile in SBUF."""
    return movement.load(src, dtype=_of(dtype))


@call
def store(dst: Any, value: Any) -> None:
    """A tile in SBUF to HBM."""
    movement.store(dst, tile(value, "value"))


@call
def load_transpose2d(src: Any, dtype: Any = None) -> TensorView:
    """HBM (N, M) to a new tile (M, N) in SBUF."""
    return movement.load_transpose2d(src, dtype=_of(dtype))


@call
def copy(x: Any, dtype: Any = None) -> TensorView:
    """A new tile in SBUF with the same values."""
    return movement.copy(x, dtype=_of(dtype))


@call
def transpose(x: Any, dtype: Any = None) -> TensorView:
    """(P, F) to (F, P), at most 128 by 128."""
    return movement.transpose(x, dtype=_of(dtype))


@call
def expand_dims(x: Any, axis: Any) -> TensorView:
    """A view with a new axis of length 1."""
    return tile(x, "x").expanded(int(axis))  # type: ignore[attr-defined,no-any-return]


@call
def broadcast_to(x: Any, shape: Any, dtype: Any = None) -> TensorView:
    """The tile repeated along axes of length 1, partitions included, as a new tile."""
    source = tile(x, "x")
    wanted = tuple(int(n) for n in shape)
    if len(wanted) != source.ndim:
        said = f"shape {wanted} does not have the {source.ndim} dimensions of x."
        fail(KernelValueError("broadcast", said))
    element = _of(dtype) or source.dtype
    if source.shape == wanted and element == source.dtype:
        return source
    wide = source.broadcast_to(wanted)
    return copied(new_tile(wanted, element), wide)


@call
def gather_flattened(data: Any, indices: Any, axis: int = 0, dtype: Any = None) -> TensorView:
    """result[p, i] = data[p].flat[indices[p, i]]."""
    return movement.gather_flattened(data, indices, dtype=_of(dtype))


@call
def device_print(print_prefix: str, tensor: Any) -> None:
    """Prints a tile when the Program is executed."""
    movement.device_print(print_prefix, tensor)
