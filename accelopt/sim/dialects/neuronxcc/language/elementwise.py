"""Mathematics on every element. Shapes broadcast, partitions included; formats promote."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.builder import api, emit, fail, mask_of, new_tile, tile
from accelopt.sim.dialects.neuronxcc.index import TileIndex
from accelopt.sim.dialects.neuronxcc.isa import elementwise as instructions
from accelopt.sim.dialects.neuronxcc.isa.checks import check_bitwise
from accelopt.sim.dialects.neuronxcc.isa.products import in_sbuf
from accelopt.sim.dialects.neuronxcc.tensor import RuntimeIndex, TensorView
from accelopt.sim.isa import elementwise
from accelopt.sim.mask import Mask
from accelopt.sim.operators import BITWISE
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands


def binary(op: str, x: Any, y: Any, dtype: Any, mask: Any) -> TensorView:
    """`op` of two tiles, or of a tile and a number."""
    promoted = dtypes.promote(builder.operand_dtype(x), builder.operand_dtype(y))
    element = builder.result_dtype(op, promoted) if dtype is None else builder.parse_dtype(dtype)
    condition = mask_of(mask)
    if builder.is_number(x) and builder.is_number(y):
        mend = "Compute with numbers in Python."
        fail(operands.operand_type("x", "a number, as 'y' is", mend))
    check_bitwise(op, x, y)
    if not isinstance(x, TensorView) or not isinstance(y, TensorView):
        data, operand, reverse = (y, x, True) if builder.is_number(x) else (x, y, False)
        if not builder.is_number(operand):
            tile(operand, "y")
        return with_scalar(op, tile(data, "x"), operand, reverse, element, condition)
    tile(x, "x"), tile(y, "y")
    shape = assignment.common_shape(x, y)
    for data, operand, reverse in ((x, y, False), (y, x, True)):
        if data.tile_shape == shape and _is_column(operand, shape):
            return with_scalar(op, data, operand, reverse, element, condition)
    if (x.in_psum and y.in_psum) or op == "power":
        x, y = in_sbuf(x), in_sbuf(y) if op == "power" else y
    one, other, result = (
        assignment.fit(x, shape),
        assignment.fit(y, shape),
        new_tile(shape, element),
    )
    engine = Engine.GPSIMD if op == "power" else None
    return builder.of_two(op, result, one, other, condition, engine)


def _is_column(view: TensorView, shape: tuple[int, ...]) -> bool:
    """True for a (P, 1) operand of a (P, F) tile with F > 1."""
    return view.tile_shape[0] == shape[0] and view.free_elements == 1 and math.prod(shape[1:]) > 1


def with_scalar(
    op: str, data: TensorView, operand: Any, reverse: bool, element: np.dtype, mask: Mask | None
) -> TensorView:
    """`op` of a tile and one value a partition, or one number."""
    result, engine = new_tile(data.tile_shape, element), Engine.VECTOR if op in BITWISE else None
    return builder.with_operand(op, result, data, operand, reverse, mask, engine)


def _binary_function(op: str) -> Callable[..., TensorView]:
    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
        return binary(op, x, y, dtype, mask)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`{op}` of tiles or numbers, elementwise."
    return api(function)


def unary(op: str, x: Any, dtype: Any, mask: Any) -> TensorView:
    """`op` of a tile on the Scalar engine."""
    source = tile(x, "x")
    default = dtypes.BOOL if op == "logical_not" else source.dtype
    element = default if dtype is None else builder.parse_dtype(dtype)
    return builder.applied(op, new_tile(source.tile_shape, element), source, mask_of(mask))


def _unary_function(op: str) -> Callable[..., TensorView]:
    def function(x: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
        return unary(op, x, dtype, mask)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`{op}` of a tile, elementwise."
    return api(function)


BINARY = (
    "add subtract multiply divide maximum minimum power mod fmod equal not_equal less less_equal "
    "greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "left_shift right_shift"
).split()
UNARY = (
    "exp log sqrt rsqrt square abs sign floor ceil trunc sin cos tan arctan tanh erf erf_dx sigmoid "
    "relu silu silu_dx gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid softplus mish logical_not"
).split()
FUNCTIONS: dict[str, Any] = {
    **{name: _binary_function(name) for name in BINARY},
    **{name: _unary_function(name) for name in UNARY},
}
globals().update(FUNCTIONS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., TensorView]: ...


@api
def reciprocal(x: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """1 / x on the Vector engine."""
    return instructions.reciprocal(x, dtype=dtype, mask=mask)


@api
def negative(x: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """-x."""
    source = tile(x, "x")
    element = source.dtype if dtype is None else builder.parse_dtype(dtype)
    return with_scalar("multiply", source, -1.0, False, element, mask_of(mask))


@api
def invert(x: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """Bitwise not of integers; logical not of bools."""
    source = tile(x, "x")
    if source.dtype == dtypes.BOOL:
        return unary("logical_not", source, dtype, mask)
    check_bitwise("invert", source)
    return unary("invert", source, dtype, mask)


@api
def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """x where the condition tile is not zero, elsewhere y."""
    predicate = tile(condition, "condition")
    promoted = dtypes.promote(builder.operand_dtype(x), builder.operand_dtype(y))
    views = [predicate, *(tile(v, n) for v, n in ((x, "x"), (y, "y")) if not builder.is_number(v))]
    shape = assignment.common_shape(*views)
    return emit(
        elementwise.SELECT,
        result=new_tile(shape, dtype or promoted),
        inputs={
            "predicate": assignment.fit(predicate, shape),
            "on_true": assignment.fit(x, shape) if isinstance(x, TensorView) else x,
            "on_false": assignment.fit(y, shape) if isinstance(y, TensorView) else y,
        },
        mask=mask_of(mask),
    )


# Operators of tensors. Unlike the functions they do not broadcast partitions (S27).

_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
    "mod": "mod", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal",
}  # fmt: skip
_IN_PLACE = ("add", "sub", "mul", "truediv", "and", "or", "xor")
_LOGICAL = {
    name: f"logical_{name.removeprefix('bitwise_')}"
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
}


def _operator(op: str, reverse: bool) -> Any:
    function = FUNCTIONS[op]

    def method(self: TensorView, other: Any) -> Any:
        if other is None or isinstance(other, (str, tuple, list, dict)):
            return NotImplemented
        if isinstance(other, TileIndex) and op == "add":
            return RuntimeIndex(self, other)
        if isinstance(other, TensorView):
            if self.dtype == other.dtype == dtypes.BOOL and op in _LOGICAL:
                return FUNCTIONS[_LOGICAL[op]](self, other)
            builder.check_same_partitions(x=self, y=other)
        return function(other, self) if reverse else function(self, other)

    return method


def _in_place(op: str) -> Any:
    def method(self: TensorView, other: Any) -> TensorView:
        return assignment.accumulate(self, other, op)

    return method


def give_operators(view: Any) -> None:
    """Defines the Python operators of tensor views."""
    for name, op in {**_OPERATORS, **_COMPARISONS}.items():
        setattr(view, f"__{name}__", _operator(op, False))
    for name, op in _OPERATORS.items():
        setattr(view, f"__r{name}__", _operator(op, True))
    for name in _IN_PLACE:
        setattr(view, f"__i{name}__", _in_place(_OPERATORS[name]))
    view.__neg__ = lambda self: negative(self)
    view.__invert__ = lambda self: invert(self)
    view.__abs__ = lambda self: FUNCTIONS["abs"](self)
