"""Bit operations on whole numbers, which real numbers have as remainders, quotients and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.functions import COMPARISONS, CONVERSIONS
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import FLIPPED
from accelopt.algorithm.value_nodes import (
    Application,
    Choice,
    Element,
    Fold,
    Lookup,
    Product,
    Sum,
    Value,
)
from accelopt.algorithm.values import Values

LEFT_SHIFTS = ("left_shift", "logical_left_shift")
RIGHT_SHIFTS = ("right_shift", "logical_right_shift", "arithmetic_shift_right")
SHORT = ("int8", "uint8", "int16", "uint16")
MOST_HELD = 2**24
"""Up to which fp32 holds every whole number."""

Reach = tuple[float, float]


def of_bits(
    values: Values, function: str, arguments: Sequence[Value], held: np.dtype
) -> Value | None:
    """What a bit operation in an integer format computes: of a whole number that fp32 holds and a known
    number, or one that has other bits alone. None where arithmetic has no exact counterpart."""
    if held.kind not in "iu" or (ends := reach(arguments[0])) is None:
        return None
    limits, value = np.iinfo(held), arguments[0]
    bits = _Bits(values, value, ends, held.itemsize * 8, limits.min < 0)
    if function == "invert":
        inverse = values.sum([(value, -1.0)], limits.min + limits.max)
        return inverse if bits.is_short else None
    if not isinstance(arguments[1], Constant):
        return _apart(values, function, arguments)
    count = int(arguments[1].value)
    if function in RIGHT_SHIFTS:
        return bits.over(count, function == "arithmetic_shift_right")
    if function in LEFT_SHIFTS:
        return bits.shifted(count)
    number = int(np.asarray(count).astype(held))
    kept = bits.masked(number)
    if function == "bitwise_and" or kept is None:
        return kept
    both = 1.0 if function == "bitwise_or" else 2.0
    return values.sum([(value, 1.0), (kept, -both)], number) if bits.is_short else None


class _Bits(NamedTuple):
    """A whole number between two ends in a format of so many bits."""

    values: Values
    value: Value
    ends: Reach
    width: int
    is_signed: bool

    @property
    def is_short(self) -> bool:
        """Whether fp32 holds every number of its size."""
        return max(-self.ends[0], self.ends[1]) <= MOST_HELD

    def below(self, count: int) -> Value:
        """Its lowest bits."""
        if self.ends[0] >= 0 and self.ends[1] < 2**count:
            return self.value
        return apply(self.values, "mod", [self.value, self.values.number(2**count)])

    def over(self, count: int, keeps_sign: bool) -> Value | None:
        """What is left when its lowest bits are taken off at its end."""
        whole = self.value if keeps_sign else self.below(self.width)
        if not count:
            return self.value
        if whole != self.value and self.width > 16:
            return None
        return apply(self.values, "floor", [self.values.product([(whole, 1.0)], 2.0**-count)])

    def masked(self, number: int) -> Value | None:
        """Its bits that a number has."""
        if number < 0:
            others = self.masked(~number)
            kept = None if others is None else [(self.value, 1.0), (others, -1.0)]
            return self.values.sum(kept) if kept and self.is_short else None
        terms: list[tuple[Value, float]] = []
        for bit in range(number.bit_length()):
            here, above = number >> bit & 1, number >> bit + 1 & 1
            if here != above:  # an end of a run of ones
                terms.append((self.below(bit + 1), 1.0 if here else -1.0))
        return self.values.sum(terms)

    def shifted(self, count: int) -> Value | None:
        """It times a power of two, without the bits that its format does not hold."""
        moved = self.values.product([(self.value, 1.0)], 2.0**count)
        top = 2.0 ** (self.width - self.is_signed)
        low, high = (end * 2**count for end in self.ends)
        if (-top if self.is_signed else 0) <= low and high < top:
            return moved
        if self.width > 16:
            return None
        moved = apply(self.values, "mod", [moved, self.values.number(2.0**self.width)])
        if not self.is_signed:
            return moved
        negative = apply(self.values, "greater_equal", [moved, self.values.number(top)])
        return self.values.sum([(moved, 1.0), (negative, -2 * top)])


def _apart(values: Values, function: str, arguments: Sequence[Value]) -> Value | None:
    """The sum of two numbers of which one is made of bits that are all above those of the other."""
    if function not in ("bitwise_or", "bitwise_xor"):
        return None
    for high, low in (arguments, arguments[::-1]):
        step = high.coefficient if isinstance(high, Product) else 1.0
        ends, own = reach(low), reach(high)
        if not ends or not own or int(step) & int(step) - 1:
            continue
        if min(ends[0], own[0]) >= 0 and ends[1] < step and own[1] <= MOST_HELD:
            return values.sum([(high, 1.0), (low, 1.0)])
    return None


def reach(value: Value) -> Reach | None:
    """The least and the greatest that a whole number may be which fp32 holds; None for others."""
    if isinstance(value, Lookup):
        return reach(value.element)
    if isinstance(value, Position):
        return value.index.bounds
    if isinstance(value, Constant) and float(value.value).is_integer():
        return value.value, value.value
    if isinstance(value, Element) and value.dtype in SHORT:
        return np.iinfo(value.dtype).min, np.iinfo(value.dtype).max
    if isinstance(value, Fold) and value.combiner in FLIPPED:
        return reach(value.body)
    if isinstance(value, Choice):
        return _either(value.on_true, value.on_false)
    if isinstance(value, Application):
        return _reach_of(value)
    if isinstance(value, Product) and len(value.factors) == 1 and value.factors[0][1] == 1:
        return _scaled(value.factors[0][0], value.coefficient)
    if isinstance(value, Sum) and float(value.constant).is_integer():
        ends = [_scaled(term, factor) for term, factor in value.terms]
        known = [end for end in ends if end]
        low, high = (value.constant + sum(end[n] for end in known) for n in (0, 1))
        return (low, high) if len(known) == len(ends) else None
    return None


def _either(one: Value, other: Value) -> Reach | None:
    ends, others = reach(one), reach(other)
    return ends and others and (min(ends[0], others[0]), max(ends[1], others[1]))


def _scaled(value: Value, factor: float) -> Reach | None:
    ends = reach(value) if float(factor).is_integer() else None
    return ends and (min(e * factor for e in ends), max(e * factor for e in ends))


def _reach_of(value: Application) -> Reach | None:
    inner = value.arguments[0]
    if value.function in COMPARISONS:
        return 0, 1
    if value.function in CONVERSIONS:  # of what fp32 holds
        return np.iinfo(value.function).min, np.iinfo(value.function).max
    if value.function == "select":
        return _either(*value.arguments[1:])
    if value.function == "mod" and isinstance(value.arguments[1], Constant):
        return (0, value.arguments[1].value - 1) if reach(inner) else None
    if value.function == "floor" and isinstance(inner, Product) and len(inner.factors) == 1:
        step = inner.coefficient
        ends = reach(inner.factors[0][0]) if inner.factors[0][1] == 1 and step <= 1 else None
        return (ends[0] * step // 1, ends[1] * step // 1) if ends and step > 0 else None
    return None
