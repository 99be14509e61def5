"""Which instructions compute elementwise values.

An activation takes a scale and a bias on the way, a tensor_scalar two operations with numbers, a
scalar_tensor_tensor one with a number and one with a tile. Whatever is used by one instruction alone and
fits into it is no instruction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from accelopt.algorithm.functions import COMMUTES, CONVERSIONS, ROUNDINGS
from accelopt.kernels.nki.nests.values import Value

ACTIVATIONS = frozenset(
    "exp log sqrt rsqrt square reciprocal abs sign relu sigmoid silu silu_dx tanh gelu "
    "gelu_apprx_tanh gelu_apprx_sigmoid gelu_dx erf erf_dx sin arctan softplus mish".split()
)
"""What the Scalar engine computes of one operand (nki.isa.activation)."""

ARITHMETIC = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod less less_equal greater "
    "greater_equal equal not_equal".split()
)
"""What the Vector engine computes of two operands."""

BEFORE_TILE = ARITHMETIC - {"divide", "power", "mod", "fmod"}
"""What a scalar_tensor_tensor computes with its number before it takes the second tile."""


@dataclass
class Selection:
    """One instruction that gives `value`: `opcode` with its functions, the tile it works on, a
    second tile, and the numbers (constants, or one a partition) that go with its functions."""

    value: Value
    opcode: str
    functions: tuple[str, ...]
    data: Value
    other: Value | None = None
    numbers: tuple[Value | None, ...] = ()
    reversed: bool = False

    @property
    def tiles(self) -> tuple[Value, ...]:
        """The operands that are tiles."""
        return (self.data,) if self.other is None else (self.data, self.other)


class NoEngine(Exception):
    """A function that no engine has."""


def is_positive_part(function: str, number: Value | None) -> bool:
    """Whether a function with a number is the larger of a value and 0, which Scalar has as `relu`."""
    zero = number is not None and number.kind == "constant" and number.constant == 0
    return function == "maximum" and zero


def select(
    values: Sequence[Value],
    is_number: Callable[[Value], bool],
    single: Collection[Value],
    times: Callable[[Value | None, float], Value],
    on_scalar: bool = False,
) -> list[Selection]:
    """The steps, in order. `single` are the values that one other value alone reads; `times` makes a number times a constant,
    of no number the constant.
    Where either engine has an instruction, it is one that the Scalar engine has, too, if `on_scalar`."""
    chooser = _Chooser(is_number, set(single), times, on_scalar)
    steps: list[Selection] = []
    for value in reversed(values):
        if value.kind in ("apply", "where") and value not in chooser.taken:
            steps.append(chooser.step(value))
    steps.reverse()
    return steps


class _Chooser:
    def __init__(
        self,
        is_number: Callable[[Value], bool],
        single: set[Value],
        times: Callable[[Value | None, float], Value],
        on_scalar: bool,
    ) -> None:
        self.is_number = is_number
        self.single = single
        self.times = times
        self.on_scalar = on_scalar
        self.taken: set[Value] = set()

    def step(self, value: Value) -> Selection:
        """The instruction for one value, with what it takes along."""
        function, arguments = value.function, value.arguments
        if value.kind == "where":
            return Selection(value, "select", (), arguments[0], numbers=arguments[1:])
        if function in ROUNDINGS or function in CONVERSIONS:
            (exact,) = arguments
            if exact not in self.single or exact.kind == "input":
                return Selection(value, "copy", (), exact)
            self.taken.add(exact)
            step = self.step(exact)
            step.value = value  # engines write any format
            return step
        if function in ACTIVATIONS and len(arguments) == 1:
            return self._activation(value, function, arguments[0])
        if function in ARITHMETIC and len(arguments) == 2:
            numbers = [self.is_number(argument) for argument in arguments]
            if numbers[0] != numbers[1]:
                return self._with_number(value, arguments, numbers[0])
            return self._with_tile(value, arguments)
        raise NoEngine(f"no engine computes {function} of {len(arguments)} operands")

    def _inside(self, value: Value, functions: Collection[str]) -> tuple[Value, Value] | None:
        """Tile and number of a value that only this instruction reads and that is one function of
        them."""
        if value not in self.single or value.function not in functions:
            return None
        if len(value.arguments) != 2:
            return None
        left, right = value.arguments
        if self.is_number(right) and not self.is_number(left):
            return left, right
        if value.function in COMMUTES and self.is_number(left) and not self.is_number(right):
            return right, left
        return None

    def _less(self, value: Value) -> tuple[Value, Value] | None:
        """Tile and number of a number less a tile that only this instruction reads."""
        if value not in self.single or value.function != "subtract":
            return None
        number, data = value.arguments
        return (data, number) if self.is_number(number) and not self.is_number(data) else None

    def _activation(self, value: Value, function: str, data: Value) -> Selection:
        bias: Value | None = None
        scale: Value | None = None
        factor = 1.0
        scaled = self._inside(data, ("multiply",))
        if scaled and scaled[1].kind == "constant":  # f(scale * (x + shift))
            self.taken.add(data)
            data, scale = scaled
            factor = scale.constant
        shifted, less = self._inside(data, ("add", "subtract")), self._less(data)
        if shifted and function != "reciprocal":
            sign = -factor if data.function == "subtract" else factor
            self.taken.add(data)
            data, number = shifted
            bias = self.times(number, sign) if sign != 1.0 else number
        elif less and function != "reciprocal":  # f(scale * (shift - x))
            self.taken.add(data)
            data, number = less
            bias = self.times(number, factor) if factor != 1.0 else number
            factor = -factor
            scale = self.times(None, factor)
        scaled = self._inside(data, ("multiply",))
        if scaled and (scale is None or scaled[1].kind != "constant"):
            self.taken.add(data)
            data, number = scaled
            scale = self.times(number, factor) if factor != 1.0 else number
        return Selection(value, "activation", (function,), data, numbers=(scale, bias))

    def _with_number(
        self, value: Value, arguments: tuple[Value, ...], number_first: bool
    ) -> Selection:
        data, number = arguments if not number_first else arguments[::-1]
        backwards = number_first and value.function not in COMMUTES
        if is_positive_part(value.function, number):
            shifted = self._inside(data, ("add", "subtract"))
            if self.on_scalar or (shifted and self._inside(shifted[0], ("multiply",))):
                return self._activation(value, "relu", data)
        shifts = value.function == "subtract" and not backwards and number.kind != "constant"
        if self.on_scalar and shifts:
            return Selection(
                value, "activation", ("copy",), data, numbers=(None, self.times(number, -1.0))
            )
        inside = None if backwards else self._inside(data, ARITHMETIC)
        if inside:
            self.taken.add(data)
            return Selection(
                value, "tensor_scalar", (data.function, value.function), inside[0],
                numbers=(inside[1], number),
            )  # fmt: skip
        return Selection(
            value, "tensor_scalar", (value.function,), data, numbers=(number,), reversed=backwards
        )

    def _with_tile(self, value: Value, arguments: tuple[Value, ...]) -> Selection:
        left, right = arguments
        for first, second in ((left, right), (right, left)):
            if first is right and value.function not in COMMUTES:
                continue
            inside = self._inside(first, BEFORE_TILE)
            if inside and first is not second:
                self.taken.add(first)
                return Selection(
                    value, "scalar_tensor_tensor", (first.function, value.function), inside[0],
                    second, (inside[1],),
                )  # fmt: skip
        return Selection(value, "tensor_tensor", (value.function,), left, right)
