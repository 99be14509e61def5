"""What a kernel's expressions mean: integers, index arrays, views, calls and their result shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from accelopt.kernels.nki.moves.reading.arithmetic import (
    constant_of,
    float_of,
    floats,
    integers,
    placed,
)
from accelopt.kernels.nki.moves.reading.calls import read_call
from accelopt.kernels.nki.moves.reading.indexing import IndexSlice, is_index, view_through
from accelopt.kernels.nki.moves.reading.polynomial import ONE, ZERO, Polynomial, Symbol, ramp
from accelopt.kernels.nki.moves.reading.results import (
    broadcast,
    dtype_of,
    promoted,
)
from accelopt.kernels.nki.moves.reading.signatures import CONSTANTS
from accelopt.kernels.nki.moves.reading.source import ParsedKernel
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    Name,
    Number,
    PolynomialMask,
    Ramp,
    ReadValue,
    Sequence,
    TensorValue,
    TileUse,
    UnboundResult,
    Unknown,
    shape_of,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.moves.reading.reader import ReadStatement

__all__ = ["Scope", "ShapeOf", "is_index"]

BUILTINS = frozenset({"min", "max", "len", "range", "int", "float", "slice", "tuple", "list"})
OPERATORS = {
    cst.Add: "nl.add",
    cst.Subtract: "nl.subtract",
    cst.Multiply: "nl.multiply",
    cst.Divide: "nl.divide",
}


class ShapeOf(Unknown):
    """The shape of a tensor whose rank is not known until it is unpacked or indexed."""

    def __init__(self, tensor: KernelTensor) -> None:
        super().__init__()
        object.__setattr__(self, "tensor", tensor)

    def of_rank(self, rank: int) -> Sequence:
        """The sizes as symbols, now that the rank is known."""
        tensor: KernelTensor = self.tensor  # type: ignore[attr-defined]
        if tensor.shape is None:
            tensor.shape = tuple(
                Polynomial.symbol(Symbol(f"{tensor.name}.shape[{axis}]")) for axis in range(rank)
            )
        return Sequence(tuple(Number(size) for size in tensor.shape))


@dataclass(eq=False)
class Scope:
    """Names in force at a point of the kernel, and the statement being read."""

    kernel: ParsedKernel
    values: dict[cst.CSTNode, ReadValue]
    calls: dict[cst.CSTNode, KnownCall]
    names: dict[str, ReadValue] = field(default_factory=dict)
    loop_names: dict[Symbol, str] = field(default_factory=dict)
    read_binding: dict[cst.Name, int] = field(default_factory=dict)
    statement: ReadStatement | None = None

    def begin(self, statement: ReadStatement) -> None:
        """From now on, reads and mentions belong to this statement."""
        self.statement = statement

    def quietly(self, node: cst.BaseExpression) -> None:
        """Evaluate only for the names in it."""
        assert self.statement is not None
        opaque_before = self.statement.opaque
        self.evaluate(node)
        self.statement.opaque = opaque_before

    def use(self, value: ReadValue) -> None:
        """A value is consumed as data: its tensors are read."""
        assert self.statement is not None
        if isinstance(value, TensorValue):
            self.statement.reads.append(value.access)
            for dim in value.access.dims or ():
                self.statement.mentions |= dim.loops
        elif isinstance(value, Sequence):
            for item in value.items:
                self.use(item)
        elif isinstance(value, Unknown):
            for item in value.parts:
                self.use(item)

    def evaluate(self, node: cst.BaseExpression) -> ReadValue:
        """The value of an expression; every node's value is kept."""
        value = self._evaluate(node)
        self.values[node] = value
        assert self.statement is not None
        if isinstance(value, Number):
            self.statement.mentions |= value.polynomial.loops
        elif isinstance(value, PolynomialMask):
            for condition in value.conditions:
                self.statement.mentions |= condition.loops
        return value

    def _evaluate(self, node: cst.BaseExpression) -> ReadValue:
        if isinstance(node, cst.Integer):
            return Number(Polynomial.number(int(node.value, 0)))
        if isinstance(node, cst.Float):
            return KnownConstant(float(node.value))
        if isinstance(node, cst.SimpleString):
            return KnownConstant(str(node.evaluated_value))
        if isinstance(node, cst.Name):
            return self._name(node)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, (cst.Tuple, cst.List)):
            return Sequence(tuple(self.evaluate(element.value) for element in node.elements))
        if isinstance(node, cst.Subscript):
            return self._subscript(node)
        if isinstance(node, cst.UnaryOperation):
            return self._unary(node)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node)
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self._comparison(node)
        if isinstance(node, cst.Call):
            return read_call(self, node)
        return self._not_understood(node)

    def _not_understood(self, node: cst.CSTNode) -> Unknown:
        assert self.statement is not None
        self.statement.opaque = True
        parts = [
            self.evaluate(child) for child in node.children if isinstance(child, cst.BaseExpression)
        ]
        return Unknown(tuple(parts))

    def _name(self, node: cst.Name) -> ReadValue:
        assert self.statement is not None
        if node.value in {"None", "True", "False"}:
            return KnownConstant({"None": None, "True": True, "False": False}[node.value])
        self.statement.names.append(node)
        if node.value in self.names:
            value = self.names[node.value]
            if isinstance(value, Unknown) and not isinstance(value, ShapeOf):
                self.statement.opaque = True
            if isinstance(value, TensorValue):
                access = value.access
                return TensorValue(replace_node(access, node))
            return value
        canonical = self.kernel.canonical(node)
        if canonical != node.value or canonical in BUILTINS:
            return Name(canonical or node.value)
        return self._module_level(node)

    def _module_level(self, node: cst.Name) -> ReadValue:
        """A number assigned at the top of the file, or made of such, else unknown."""
        for statement in self.kernel.module.body:
            if isinstance(statement, cst.SimpleStatementLine):
                part = statement.body[0]
                if (
                    isinstance(part, cst.Assign)
                    and isinstance(part.targets[0].target, cst.Name)
                    and part.targets[0].target.value == node.value
                    and _of_numbers(part.value)
                ):
                    return self._evaluate(part.value)
        assert self.statement is not None
        self.statement.opaque = True
        return Unknown()

    def _attribute(self, node: cst.Attribute) -> ReadValue:
        canonical = self.kernel.canonical(node)
        root = node
        while isinstance(root.value, cst.Attribute):
            root = root.value
        if isinstance(root.value, cst.Name) and root.value.value in self.kernel.aliases:
            number = CONSTANTS.get(canonical or "")
            return Number(Polynomial.number(number)) if number else Name(canonical or "")
        base = self.evaluate(node.value)
        member = node.attr.value
        if isinstance(base, TensorValue):
            if member == "shape":
                if base.access.shape is None:
                    return ShapeOf(base.access.tensor)
                return Sequence(tuple(Number(size) for size in base.access.shape))
            if member == "dtype":
                dtype = base.access.tensor.dtype
                return Name(f"nl.{dtype}") if dtype else Unknown()
        if isinstance(base, Sequence) and member in "pxyzw" and len(base.items) > 1:
            position = "pxyzw".index(member)
            if position < len(base.items):
                return base.items[position]
        return Unknown((base,))

    def _subscript(self, node: cst.Subscript) -> ReadValue:
        if self.kernel.canonical(node.value) == "nl.mgrid":
            return self._mgrid(node)
        base = self.evaluate(node.value)
        elements = [self._element(element.slice) for element in node.slice]
        if isinstance(base, TensorValue):
            access = view_through(base.access, elements, node)
            assert self.statement is not None
            for element in elements:
                if isinstance(element, TensorValue):
                    self.use(element)
            for dim in access.dims or ():
                self.statement.mentions |= dim.loops
            return TensorValue(access)
        if isinstance(base, Ramp):
            return placed(base, node)
        position = constant_of(elements[0]) if len(elements) == 1 else None
        if isinstance(base, ShapeOf) and position is not None and position >= 0:
            tensor: KernelTensor = base.tensor  # type: ignore[attr-defined]
            return Number(Polynomial.symbol(Symbol(f"{tensor.name}.shape[{position}]")))
        if isinstance(base, Sequence) and position is not None and position < len(base.items):
            return base.items[position]
        return self._not_understood(node)

    def _element(self, element: cst.BaseSlice) -> ReadValue:
        """One index: a value, or a slice as a Sequence (start, stop) with None for the ends."""
        if isinstance(element, cst.Index):
            if isinstance(element.value, cst.Ellipsis):
                return KnownConstant("...")
            return self.evaluate(element.value)
        assert isinstance(element, cst.Slice)
        start = self.evaluate(element.lower) if element.lower else KnownConstant(None)
        stop = self.evaluate(element.upper) if element.upper else KnownConstant(None)
        step = self.evaluate(element.step) if element.step else KnownConstant(None)
        return IndexSlice((start, stop, step))

    def _mgrid(self, node: cst.Subscript) -> ReadValue:
        rank = len(node.slice)
        items: list[ReadValue] = []
        for axis, element in enumerate(node.slice):
            bounds = self._element(element.slice)
            if not isinstance(bounds, IndexSlice):
                return self._not_understood(node)
            start, stop, _ = bounds.items
            first = start.polynomial if isinstance(start, Number) else ZERO
            if not isinstance(stop, Number):
                return self._not_understood(node)
            items.append(Number(first + ramp(stop.polynomial - first, axis - rank), rank))
        return Sequence(tuple(items)) if rank > 1 else items[0]

    def _unary(self, node: cst.UnaryOperation) -> ReadValue:
        value = self.evaluate(node.expression)
        if isinstance(node.operator, cst.Minus):
            if isinstance(value, Number):
                return Number(-value.polynomial, value.rank)
            if isinstance(value, KnownConstant) and isinstance(value.value, (int, float)):
                return KnownConstant(-value.value)
            if shape_of(value):
                self.use(value)
                return UnboundResult(shape_of(value), dtype_of(value), "sbuf")
        return Unknown((value,))

    def _binary(self, node: cst.BinaryOperation) -> ReadValue:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(left, Number) and isinstance(right, Number):
            return integers(node.operator, left, right)
        if isinstance(left, PolynomialMask) and isinstance(right, PolynomialMask):
            return PolynomialMask((*left.conditions, *right.conditions))
        tensors = [v for v in (left, right) if isinstance(v, (TensorValue, UnboundResult))]
        if tensors and type(node.operator) in OPERATORS:
            self.use(left)
            self.use(right)
            return UnboundResult(broadcast(left, right), promoted(left, right), "sbuf")
        numbers = [float_of(left), float_of(right)]
        if None not in numbers:
            return KnownConstant(floats(node.operator, numbers[0], numbers[1]))  # type: ignore[arg-type]
        if not tensors and all(isinstance(v, (Number, KnownConstant)) for v in (left, right)):
            return KnownConstant(None)
        return Unknown((left, right))

    def _comparison(self, node: cst.Comparison) -> ReadValue:
        left = self.evaluate(node.left)
        right = self.evaluate(node.comparisons[0].comparator)
        if not (isinstance(left, Number) and isinstance(right, Number)):
            return Unknown((left, right))
        difference = right.polynomial - left.polynomial
        operator = node.comparisons[0].operator
        conditions = {
            cst.LessThan: difference - ONE,
            cst.LessThanEqual: difference,
            cst.GreaterThan: -difference - ONE,
            cst.GreaterThanEqual: -difference,
        }
        condition = conditions.get(type(operator))
        return PolynomialMask((condition,)) if condition is not None else Unknown((left, right))


def _of_numbers(node: cst.BaseExpression) -> bool:
    """Whether an expression is arithmetic of numbers and names."""
    if isinstance(node, cst.BinaryOperation):
        return _of_numbers(node.left) and _of_numbers(node.right)
    return isinstance(node, (cst.Integer, cst.Float, cst.Name))


def replace_node(access: TileUse, node: cst.BaseExpression) -> TileUse:
    """The same part, used at another place of the source."""
    return TileUse(access.tensor, access.dims, access.shape, node, access.style, access.view)
