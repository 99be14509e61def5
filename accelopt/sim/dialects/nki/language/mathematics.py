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
from accelopt.sim.dialects.nki.call_conventions import call, element_of
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.rules import operands

UNARY = (*elementwise.UNARY, "negative", "reciprocal", "invert")
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


_UNMASKED: dict[str, Any] = {
    "all": lambda x, axis, dtype=None: reductions.all(x, axis, dtype=_of(dtype) or dtypes.BOOL),
    "copy": lambda x, dtype=None: movement.copy(x, dtype=_of(dtype)),
    "device_print": lambda print_prefix, tensor: movement.device_print(print_prefix, tensor),
    "dropout": lambda x, rate, dtype=None: reductions.dropout(x, rate, dtype=_of(dtype)),
    "expand_dims": lambda x, axis: tile(x, "x").expanded(int(axis)),  # type: ignore[attr-defined]
    "gather_flattened": lambda data, indices, axis=0, dtype=None: movement.gather_flattened(
        data, indices, dtype=_of(dtype)
    ),
    "load": lambda src, dtype=None: movement.loaded(src, _of(dtype)),
    "load_transpose2d": lambda src, dtype=None: movement.load_transpose2d(src, dtype=_of(dtype)),
    "matmul": lambda x, y, transpose_x=False: reductions.matmul(x, y, transpose_x=transpose_x),
    "rms_norm": lambda x, w, axis, n, epsilon=1e-6, dtype=None, compute_dtype=None: (
        reductions.rms_norm(
            x, w, axis, n, epsilon, dtype=_of(dtype), compute_dtype=_of(compute_dtype)
        )
    ),
    "softmax": lambda x, axis=-1, dtype=None: reductions.softmax(x, axis, dtype=_of(dtype)),
    "store": lambda dst, value: movement.store(dst, tile(value, "value")),
    "transpose": lambda x, dtype=None: movement.transpose(x, dtype=_of(dtype)),
    "where": lambda condition, x, y, dtype=None: elementwise.where(
        condition, x, y, dtype=_of(dtype)
    ),
}
"""Those of the older dialect that differ in their parameters alone."""


def _documented(name: str) -> str | None:
    """What the older dialect's function of that name says of itself."""
    homes = (elementwise, movement, reductions)
    return next(getattr(home, name).__doc__ for home in homes if hasattr(home, name))  # type: ignore[no-any-return]


FUNCTIONS: dict[str, Any] = {
    **{name: _binary(name) for name in elementwise.BINARY},
    **{name: _unary(name) for name in UNARY},
    **{name: _reduction(name) for name in REDUCTIONS},
    **{name: _named(name, made, _documented(name)) for name, made in _UNMASKED.items()},
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
