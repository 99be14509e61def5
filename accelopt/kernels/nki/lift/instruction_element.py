"""One element of one execution of an instruction: what lifting an opcode starts from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.bit_operations import reach
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import Axis, Index
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.value_nodes import (
    PLACES,
    Application,
    Carried,
    Choice,
    Element,
    Fold,
    Lookup,
    Product,
    Sum,
    Value,
)
from accelopt.algorithm.values import fresh_axis
from accelopt.kernels.nki.lift.execution_points import Contents, Moment
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.tile_addresses import index_from
from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import Instruction

EXACT_FOLDS = frozenset({"add", "maximum", "minimum"})
"""Of whole numbers give whole ones."""


def written_where(
    instruction: Instruction, variables: Mapping[LoopVariable, Index], coordinates: Sequence[Index]
) -> list[Index]:
    """The conditions (each >= 0) under which an instruction writes an element of its result."""
    if instruction.opcode.mask_over != "result":
        return []
    masks = instruction.mask.constraints + instruction.result.mask.constraints
    return [index_from(c, variables, coordinates) for c in masks]


def before_rounding(number: float) -> float:
    """What a number of fp32 was before, as it was meant: the shortest that rounds to it, or one over a shorter one."""
    short = str(np.float32(number))
    inverse = f"{1 / number:.6g}" if number and math.isfinite(number) else short
    if len(inverse) < len(short) and np.float32(1 / float(inverse)) == np.float32(number):
        return 1 / float(inverse)
    return float(short)


class WriteSite(NamedTuple):
    """One element of one execution of an instruction."""

    reaching: Contents
    instruction: Instruction
    coordinates: tuple[Index, ...]
    place: Moment

    def refusal(self, reason: str) -> NotLifted:
        """What to raise."""
        return NotLifted(reason, self.instruction.source)

    def same_format(self) -> bool:
        """True where a copy keeps the format."""
        return self.instruction.inputs["source"].dtype == self.instruction.result.dtype

    def text(self, name: str) -> str:
        """An attribute that is a word; empty when absent."""
        value = self.instruction.attributes.get(name)
        return "" if value is None else str(value)

    def indexed(self, expression: Affine, coordinates: Sequence[Index]) -> Index:
        """An affine expression of the loops around and of some axes."""
        return index_from(expression, self.reaching.variables(self.place), coordinates)

    def taken(self) -> list[Axis]:
        """Every axis that stands in the element's coordinates."""
        return [a for i in (*self.coordinates, *self.place.trips) for a in i.axes]

    def fresh(self, extents: Sequence[int]) -> list[Axis]:
        """Axes to reduce over."""
        axes: list[Axis] = []
        for extent in extents:
            axes.append(fresh_axis(extent, [*self.taken(), *axes]))
        return axes

    def read(self, access: Access, coordinates: Sequence[Index]) -> Value:
        """An element of an operand."""
        return self.reaching.read(access, coordinates, self.place)

    def old(self) -> Value:
        """What the element of the result holds before."""
        return self.read(self.instruction.result, self.coordinates)

    def operand(self, name: str) -> Value:
        """The element of a tile (or the number) that belongs to the element of the result."""
        access = self.instruction.inputs.get(name)
        if access is None:
            value = self.instruction.attributes.get(name)
            if not isinstance(value, (int, float)):
                raise self.refusal(f"its operand {name} is missing")
            return self.reaching.values.number(before_rounding(value))
        return self.read(access, self.fitted(access))

    def fitted(self, access: Access) -> list[Index]:
        """The result's coordinates as those of an operand, which may lack free axes or group its
        elements differently."""
        shape, result = access.shape, self.instruction.result.shape
        own = list(self.coordinates)
        if len(shape) != len(result) and math.prod(shape) == math.prod(result):
            return reshaped(own, result, shape)
        if len(shape) < len(result):
            own = own[: len(shape)]
        elif len(shape) > len(result):
            own = [Index()] * (len(shape) - len(result)) + own
        return [i if extent > 1 else Index() for i, extent in zip(own, shape, strict=True)]

    def stored(self, value: Value, access: Access) -> Value:
        """A value as it is after it was rounded to the result's format."""
        name = self.instruction.attributes.get("dtype")
        main = access is self.instruction.outputs.get("result")
        if main and isinstance(name, str):
            value = self._rounded(value, dtypes.parse(name))
        return self._rounded(value, access.dtype)

    def _rounded(self, value: Value, dtype: np.dtype) -> Value:
        if dtype == dtypes.FLOAT32 or _is_exact(value, dtype):
            return value
        name = dtypes.name_of(dtype)
        values = self.reaching.values
        if isinstance(value, Constant):
            stored = dtypes.convert(np.asarray(value.value, np.float32), dtype)
            return values.number(float(stored))
        if isinstance(value, Choice):
            parts = (self._rounded(value.on_true, dtype), self._rounded(value.on_false, dtype))
            return values.where(value.conditions, *parts)
        if name not in FUNCTIONS:
            raise self.refusal(f"it converts to {name}, which real numbers have no counterpart for")
        return values.same(Application(name, (value,)))


def _is_exact(value: Value, dtype: np.dtype) -> bool:
    """True where a value is a number of a format for certain."""
    name = dtypes.name_of(dtype)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if limits and (ends := reach(value)) and limits.min <= ends[0] and ends[1] <= limits.max:
        return True
    if isinstance(value, Lookup):
        return _is_exact(value.element, dtype)
    if isinstance(value, Element):
        own = dtypes.parse(value.dtype)
        if dtypes.is_integer(own) and dtypes.is_integer(dtype):
            return bool(np.can_cast(own, dtype))
        return dtypes.promote(own, dtype) == dtype and dtypes.is_float(dtype)
    if isinstance(value, Position):
        return dtypes.is_integer(dtype) or value.index.bounds[1] <= 256
    if isinstance(value, (Sum, Product)) and dtype.itemsize < 4:
        return False  # its terms may be, it may not
    if isinstance(value, Sum):
        whole = float(value.constant).is_integer() and all(
            float(c).is_integer() for _, c in value.terms
        )
        return (
            whole and dtypes.is_integer(dtype) and all(_is_exact(t, dtype) for t, _ in value.terms)
        )
    if isinstance(value, Product):
        whole = float(value.coefficient).is_integer() and dtypes.is_integer(dtype)
        return whole and all(
            p > 0 and p == int(p) and _is_exact(f, dtype) for f, p in value.factors
        )
    if isinstance(value, Choice):
        return _is_exact(value.on_true, dtype) and _is_exact(value.on_false, dtype)
    if isinstance(value, Application):
        return value.function == name or value.function in COMPARISONS
    if isinstance(value, Fold) and value.combiner in PLACES:
        return dtypes.is_integer(dtype) and dtype.itemsize > 1
    if isinstance(value, Fold):
        wide = dtypes.is_integer(dtype) and dtype.itemsize >= 4
        return wide and value.combiner in EXACT_FOLDS and _is_exact(value.body, dtype)
    if isinstance(value, Carried):
        return True  # rounded where it is written
    if isinstance(value, Constant):
        return bool(
            float(dtypes.convert(np.asarray(value.value, np.float32), dtype)) == value.value
        )
    return False


def reshaped(
    coordinates: Sequence[Index], shape: Sequence[int], other: Sequence[int]
) -> list[Index]:
    """The coordinates that a row-major element has in another shape."""
    number = Index()
    for coordinate, extent in zip(coordinates, shape, strict=True):
        number = number * extent + coordinate
    result: list[Index] = []
    for extent in reversed(other):
        result.append(number % extent)
        number = number // extent
    return result[::-1]
