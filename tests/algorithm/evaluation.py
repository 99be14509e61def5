"""What an Algorithm computes, in NumPy: the meaning that lifting and rewriting are checked against.

An expression over axes is evaluated as an array with one dimension an axis, of length 1 where the
expression does not depend on it; matrix products are left to BLAS.
"""

import math
from collections.abc import Mapping

import numpy as np

from accelopt.algorithm import ir
from accelopt.algorithm.contraction import Contraction, contraction
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import Axis, Index
from accelopt.algorithm.value_nodes import ORDERED, PLACES, RANKED

MOST_ELEMENTS = 1 << 26
"""Of an expression at a time; a larger one is worked through along its first axis."""

UFUNCS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def evaluate(
    algorithm: ir.Algorithm, arrays: Mapping[str, np.ndarray], dtype: type = np.float64
) -> list[np.ndarray]:
    """The outputs, in the shapes that the kernel gives them, from arrays by the inputs' names.

    Everything is computed in `dtype` (np.float64 or np.float32). Roundings to narrower formats
    that the algorithm names are done in fp32 and left out in fp64, which is the exact result.
    Raises KeyError where an input is missing, ValueError where one has another size.
    """
    known: dict[str, np.ndarray] = {}
    for array in algorithm.inputs:
        given = np.asarray(arrays[array.name])
        if given.size != math.prod(array.shape):
            raise ValueError(f"{array.name} has {given.size} elements, not {array.shape}")
        known[array.name] = given.reshape(array.shape).astype(dtype)
    with np.errstate(all="ignore"):
        for definition in algorithm.definitions:
            known[definition.out] = _defined(definition, known, np.dtype(dtype))
        return [_result(algorithm, array, known, np.dtype(dtype)) for array in algorithm.returned]


def _result(
    algorithm: ir.Algorithm, array: ir.Array, known: Mapping[str, np.ndarray], dtype: np.dtype
) -> np.ndarray:
    """A result in the shape that the kernel gives it."""
    if not array.steps:
        return known[array.name].reshape(array.given)
    definition, whole = algorithm.definition(array.name), np.zeros(array.given, dtype)
    if array.updates:
        whole = known[array.updates].copy()
    places = _Grid(definition.axes, known, dtype).values(
        ir.Position(ir.place_of(array, definition))
    )
    if isinstance(definition, ir.Map) and definition.at is not None:
        at = _Grid(definition.axes, known, dtype).values(definition.at)
        places = places + at * array.row
    whole.reshape(-1)[np.broadcast_to(places, array.shape).astype(np.int64)] = known[array.name]
    return whole.reshape(array.given)


def _defined(
    definition: ir.Definition, known: Mapping[str, np.ndarray], dtype: np.dtype
) -> np.ndarray:
    shape = tuple(axis.extent for axis in definition.axes)
    product = contraction(definition) if isinstance(definition, ir.Reduce) else None
    if product is not None:
        return _product(product, definition.axes, known, dtype)
    if isinstance(definition, ir.Scan):
        return _scanned(definition, known, dtype)
    reduced = definition.reduced if isinstance(definition, ir.Reduce) else ()
    out = np.empty(shape, dtype)
    rows = math.prod(shape[1:]) * math.prod(axis.extent for axis in reduced)
    step = max(1, MOST_ELEMENTS // max(rows, 1)) if shape else 1
    for start in range(0, shape[0] if shape else 1, step):
        grid = _Grid((*definition.axes, *reduced), known, dtype, start, step if shape else None)
        values = np.broadcast_to(grid.values(definition.expression), grid.shape)
        if isinstance(definition, ir.Map):
            part = values
        else:
            last = tuple(range(len(shape), values.ndim))
            part = _combined(definition.combiner, values, last)
        if shape:
            out[start : start + step] = part
        else:
            out[...] = part
    return out


def _combined(combiner: str, values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Values combined over their last axes."""
    if combiner not in ORDERED:
        return np.asarray(UFUNCS[combiner].reduce(values, axis=axes))
    flat = values.reshape(*values.shape[: axes[0]], -1)
    if combiner in PLACES:
        order = np.argsort(-flat, axis=-1, kind="stable")
        return np.asarray(order[..., PLACES[combiner] - 1], values.dtype)
    return np.asarray(np.sort(flat, axis=-1)[..., -RANKED[combiner]])


def _product(
    found: Contraction, axes: tuple[Axis, ...], known: Mapping[str, np.ndarray], dtype: np.dtype
) -> np.ndarray:
    """batch x rows x contracted @ batch x contracted x columns, with the result's axes in order."""

    def operand(*groups: tuple[Axis, ...]) -> np.ndarray:
        """One dimension a group; `left` and `right` have the contracted axes in other places."""
        order = tuple(axis for group in groups for axis in group)
        expression = found.left if groups[1] == found.rows else found.right
        grid = _Grid(order, known, dtype)
        values = np.broadcast_to(grid.values(expression), grid.shape)
        return values.reshape([math.prod(axis.extent for axis in group) for group in groups])

    left = operand(found.batch, found.rows, found.contracted)
    right = operand(found.batch, found.contracted, found.columns)
    order = (*found.batch, *found.rows, *found.columns)
    out = np.matmul(left, right).reshape([axis.extent for axis in order])
    out = out.transpose([order.index(axis) for axis in axes])
    return np.asarray(out * _Grid(axes, known, dtype).values(found.scale))


def _scanned(scan: ir.Scan, known: Mapping[str, np.ndarray], dtype: np.dtype) -> np.ndarray:
    position = scan.axes.index(scan.along)
    grid = _Grid(scan.axes, known, dtype)

    def first(expression: ir.Expression) -> np.ndarray:
        values = np.broadcast_to(grid.values(expression), grid.shape)
        return np.ascontiguousarray(np.moveaxis(values, position, 0))

    factor, term = first(scan.factor), first(scan.term)
    state = first(scan.initial)[0]
    scale, combine = FUNCTIONS[scan.scale], FUNCTIONS[scan.combine]
    out = np.empty(factor.shape, dtype)
    for t in range(len(factor)):
        state = out[t] = combine(scale(factor[t], state), term[t])
    return np.moveaxis(out, 0, position)


class _Grid:
    """Expressions over some axes, the first of which runs from `start` for `count` values."""

    def __init__(
        self,
        axes: tuple[Axis, ...],
        known: Mapping[str, np.ndarray],
        dtype: np.dtype,
        start: int = 0,
        count: int | None = None,
    ) -> None:
        self._known = known
        self._dtype = dtype
        self._axes = axes
        self._memory: dict[ir.Expression, np.ndarray] = {}
        ranges = [np.arange(axis.extent) for axis in axes]
        if ranges and count is not None:
            ranges[0] = ranges[0][start : start + count]
        self._starts = [int(r[0]) if len(r) else 0 for r in ranges]
        self.shape = tuple(len(r) for r in ranges)
        self._values = dict(zip(axes, np.ix_(*ranges) if ranges else (), strict=True))

    def values(self, expression: ir.Expression) -> np.ndarray:
        """The expression, one dimension an axis, of length 1 or the axis's."""
        if expression not in self._memory:
            self._memory[expression] = self._computed(expression)
        return self._memory[expression]

    def _computed(self, expression: ir.Expression) -> np.ndarray:
        if isinstance(expression, ir.Constant):
            return np.full((1,) * len(self.shape), expression.value, self._dtype)
        if isinstance(expression, ir.Read):
            return self._read(self._known[expression.array], expression.indices)
        if isinstance(expression, ir.Position):
            return expression.index.evaluate(self._values).astype(self._dtype)
        if isinstance(expression, ir.Apply):
            arguments = [self.values(argument) for argument in expression.arguments]
            return np.asarray(FUNCTIONS[expression.function](*arguments)).astype(
                self._dtype, copy=False
            )
        if isinstance(expression, ir.Indirect):
            return self._gathered(expression)
        assert isinstance(expression, ir.Where)
        holds: np.ndarray = np.ones((1,) * len(self.shape), bool)
        for condition in expression.conditions:
            holds = holds & (condition.evaluate(self._values) >= 0)
        if holds.all():
            return self.values(expression.on_true)
        if not holds.any():
            return self.values(expression.on_false)
        return np.where(holds, self.values(expression.on_true), self.values(expression.on_false))

    def _gathered(self, expression: ir.Indirect) -> np.ndarray:
        """The element where its axis is the number that is found for it."""
        number = self.values(expression.at).astype(np.int64)
        outer, memory = self._values, self._memory
        self._values, self._memory = {**outer, expression.axis: number}, {}
        found = self.values(expression.element)
        self._values, self._memory = outer, memory
        return found

    def _read(self, array: np.ndarray, indices: tuple[Index, ...]) -> np.ndarray:
        view = self._view(array, indices)
        if view is not None:
            return view
        # Where a condition excludes an element, its index may be anything.
        found = [
            np.clip(index.evaluate(self._values), 0, max(extent - 1, 0))
            for index, extent in zip(indices, array.shape, strict=True)
        ]
        return (
            np.asarray(array[tuple(np.broadcast_arrays(*found))])
            if found
            else (array.reshape((1,) * len(self.shape)))
        )

    def _view(self, array: np.ndarray, indices: tuple[Index, ...]) -> np.ndarray | None:
        """The elements as strides over the array; None where they are no such view."""
        strides = [0] * len(self.shape)
        offset = 0
        for index, extent, stride in zip(indices, array.shape, array.strides, strict=True):
            low, high = index.bounds
            if not index.is_affine or low < 0 or high >= extent or index.axes - {*self._axes}:
                return None
            offset += index.constant * stride
            for axis, coefficient in index.terms:
                assert isinstance(axis, Axis)
                place = self._axes.index(axis)
                strides[place] += coefficient * stride
                offset += self._starts[place] * coefficient * stride
        shape = tuple(
            length if stride else 1 for length, stride in zip(self.shape, strides, strict=True)
        )
        flat = array.reshape(-1)[offset // array.itemsize :] if array.flags.c_contiguous else None
        if flat is None or any(stride < 0 for stride in strides) or not array.size:
            return None
        return np.lib.stride_tricks.as_strided(flat, shape, strides, writeable=False)
