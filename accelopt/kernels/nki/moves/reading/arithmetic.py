"""Arithmetic of integers, index arrays and floats in a kernel's text."""

from __future__ import annotations

import libcst as cst

from accelopt.kernels.nki.moves.reading.polynomial import Polynomial, quotient, ramp, remainder
from accelopt.kernels.nki.moves.reading.values import (
    KnownConstant,
    Number,
    Ramp,
    ReadValue,
    Unknown,
)


def placed(value: Ramp, node: cst.Subscript) -> ReadValue:
    """`nl.arange(n)[:, None]`: the ramp along the axis where the full slice stands."""
    axes = [
        position
        for position, element in enumerate(node.slice)
        if isinstance(element.slice, cst.Slice) and element.slice.lower is None
    ]
    if len(axes) != 1:
        return Unknown()
    rank = len(node.slice)
    return Number(value.start + ramp(value.size, axes[0] - rank), rank)


def integers(operator: cst.BaseBinaryOp, left: Number, right: Number) -> ReadValue:
    """An operator applied to two integers or index arrays."""
    rank = max(left.rank, right.rank)
    a, b = left.polynomial, right.polynomial
    if isinstance(operator, cst.Add):
        return Number(a + b, rank)
    if isinstance(operator, cst.Subtract):
        return Number(a - b, rank)
    if isinstance(operator, cst.Multiply):
        return Number(a * b, rank)
    if isinstance(operator, (cst.FloorDivide, cst.Modulo)) and b.constant != 0:
        exact = quotient if isinstance(operator, cst.FloorDivide) else remainder
        return Number(exact(a, b), rank)
    if isinstance(operator, cst.Power) and a.constant is not None and b.constant is not None:
        return Number(Polynomial.number(a.constant**b.constant), rank)
    if isinstance(operator, cst.Divide) and a.constant is not None and b.constant:
        return KnownConstant(a.constant / b.constant)
    return KnownConstant(None) if rank == 0 else Unknown((left, right))


def floats(operator: cst.BaseBinaryOp, left: float, right: float) -> float | None:
    """An operator applied to two floats."""
    if isinstance(operator, cst.Add):
        return left + right
    if isinstance(operator, cst.Subtract):
        return left - right
    if isinstance(operator, cst.Multiply):
        return left * right
    if isinstance(operator, cst.Divide) and right:
        return left / right
    if isinstance(operator, cst.Power):
        return float(left**right)
    return None


def constant_of(value: ReadValue) -> int | None:
    """The integer a value is, None when it is none or not known."""
    return value.polynomial.constant if isinstance(value, Number) else None


def float_of(value: ReadValue) -> float | None:
    """The number a value is, None when it is none or not known."""
    if isinstance(value, KnownConstant) and isinstance(value.value, (int, float)):
        return float(value.value)
    number = constant_of(value)
    return None if number is None else float(number)


def trips_of(arguments: list[ReadValue]) -> Polynomial | None:
    """How often a range runs, when that is exact."""
    numbers = [a.polynomial for a in arguments if isinstance(a, Number)]
    if len(numbers) != len(arguments) or not numbers:
        return None
    if len(numbers) == 1:
        return numbers[0]
    span = numbers[1] - numbers[0]
    if len(numbers) == 2:
        return span
    step, length = numbers[2].constant, span.constant
    if not step or length is None or length % step:
        return None
    return Polynomial.number(length // step)


def step_of(arguments: list[ReadValue]) -> int | None:
    """The step of a range; None where it is not a number."""
    if len(arguments) < 3:
        return 1
    return arguments[2].polynomial.constant if isinstance(arguments[2], Number) else None
