"""Elementwise arithmetic as terms: what a value is made of, across statements and spellings.

`nisa.activation(op=nl.exp, data=x, scale=-1.0)`, `nl.exp(nl.negative(x))` and `nl.exp(-x)` all
become exp(multiply(x, -1)), so that a move recognises a pattern however it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from accelopt.kernels.nki.moves.reading.polynomial import ONE, Polynomial
from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement
from accelopt.kernels.nki.moves.reading.signatures import BINARY, UNARY
from accelopt.kernels.nki.moves.reading.source import code_of
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    Name,
    Number,
    PolynomialMask,
    TensorValue,
    TileUse,
    UnboundResult,
)

NUMPY_NAMES = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "sum": "add",
    "true_divide": "divide",
}
OPERATORS = {
    cst.Add: "add",
    cst.Subtract: "subtract",
    cst.Multiply: "multiply",
    cst.Divide: "divide",
}


@dataclass(frozen=True, eq=False)
class FusedTerm:
    """An operation over parts, a tile in use ("tile"), or a number ("number").

    `text` spells it in the source, where it has a name or is a number; a value that was made by
    `statements` has both a name and parts.
    """

    operation: str
    parts: tuple[FusedTerm, ...] = ()
    text: str = ""
    value: float | None = None
    access: TileUse | None = None
    shape: tuple[Polynomial, ...] | None = None
    statements: tuple[ReadStatement, ...] = ()

    def same(self, other: FusedTerm) -> bool:
        """True when both surely have the same value."""
        if self.access is not None and other.access is not None:
            return self.access.same_part(other.access)
        if self.operation != other.operation or len(self.parts) != len(other.parts):
            return False
        if self.operation in {"number", "tile"}:
            return self.is_number and self.value == other.value
        return all(a.same(b) for a, b in zip(self.parts, other.parts, strict=True))

    @property
    def is_column(self) -> bool:
        """One number a partition, which instructions take as a scalar operand."""
        if self.access is None or self.shape is None or len(self.shape) != 2:
            return False
        return self.shape[1] == ONE and self.shape[0] != ONE

    @property
    def is_number(self) -> bool:
        """A number known here."""
        return self.operation == "number" and self.value is not None

    def everything(self) -> tuple[ReadStatement, ...]:
        """The definitions looked through in the whole term, each once, in order of the source."""
        found = list(self.statements)
        for part in self.parts:
            found += part.everything()
        return tuple(sorted(set(found), key=lambda s: s.path))

    def depth(self) -> int:
        """How many operations deep it is."""
        return 1 + max((p.depth() for p in self.parts), default=0) if self.parts else 0


class Terms:
    """Builds terms of a kernel's expressions."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def of(self, node: cst.BaseExpression, statement: ReadStatement) -> FusedTerm | None:
        """The term of an expression used in a statement; None when it is not elementwise."""
        value = self.reading.values.get(node)
        if isinstance(value, Number) and value.rank == 0:
            number = value.polynomial.constant
            known = float(number) if number is not None else None
            return FusedTerm("number", text=code_of(node), value=known)
        if isinstance(value, KnownConstant):
            known = value.value if isinstance(value.value, (int, float)) else None
            return FusedTerm("number", text=code_of(node), value=known)
        if isinstance(value, TensorValue):
            return self._tile(node, value.access, statement)
        if isinstance(value, UnboundResult):
            return self._result(node, value, statement)
        return None

    def tile(self, node: cst.BaseExpression, access: TileUse) -> FusedTerm:
        """A tile as it stands."""
        return FusedTerm("tile", text=code_of(node), access=access, shape=access.shape)

    def _tile(
        self, node: cst.BaseExpression, access: TileUse, statement: ReadStatement
    ) -> FusedTerm:
        definition = self._definition(access, statement)
        if definition is not None and definition.value is not None:
            inner = self.of(definition.value, definition)
            if inner is not None and inner.operation != "tile":
                return FusedTerm(
                    inner.operation,
                    inner.parts,
                    code_of(node),
                    inner.value,
                    access,
                    inner.shape,
                    (*inner.statements, definition),
                )
        return self.tile(node, access)

    def _definition(self, access: TileUse, user: ReadStatement) -> ReadStatement | None:
        """The one statement that makes this very part, when its operands still hold at the user."""
        tensor = access.tensor
        if tensor.parameter or tensor.buffer == "hbm" or tensor.fill is not None:
            return None
        writers = self.reading.writers(tensor)
        makers = [s for s in writers if s.kind == "compute"]
        if len(makers) != 1 or makers[0].opaque or makers[0].accumulates:
            return None
        maker = makers[0]
        if maker.path >= user.path or len(maker.writes) > (0 if maker.result else 1):
            return None
        if user.loops[: len(maker.loops)] != maker.loops:
            return None
        if maker.result is tensor:
            if not access.whole:
                return None
        elif maker.target is None or not maker.target.same_part(access):
            return None
        if _mask_text(maker) != _mask_text(user) or not self._unchanged(maker, user):
            return None
        return maker

    def _unchanged(self, maker: ReadStatement, user: ReadStatement) -> bool:
        """True when nothing that `maker` reads is written between it and `user`, in any iteration."""
        for access in maker.reads:
            for writer in self.reading.writers(access.tensor):
                if writer is not maker and writer.path >= maker.path and writer.path < user.path:
                    return False
                outer = [loop for loop in writer.loops if loop in maker.loops]
                if writer.path > user.path and len(outer) > len(access.tensor.loops):
                    return False
        return True

    def _result(
        self, node: cst.BaseExpression, value: UnboundResult, statement: ReadStatement
    ) -> FusedTerm | None:
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
            inner = self.of(node.expression, statement)
            return None if inner is None else _product(inner, -1.0, value)
        if isinstance(node, cst.BinaryOperation) and type(node.operator) in OPERATORS:
            parts = [self.of(node.left, statement), self.of(node.right, statement)]
            return _operation(OPERATORS[type(node.operator)], parts, value)
        call = self.reading.calls.get(node)
        return self._call(call, value, statement) if call is not None else None

    def _call(
        self, call: KnownCall, value: UnboundResult, statement: ReadStatement
    ) -> FusedTerm | None:
        short = call.name.rpartition(".")[2]

        def part(argument: str) -> FusedTerm | None:
            node = call.arguments.get(argument)
            return self.of(node, statement) if node is not None else None

        if call.name in {"nl.copy", "nisa.tensor_copy"}:
            source = part("src")
            if source is None or source.access is None:
                return None
            return source if source.access.tensor.dtype == value.dtype else None
        if call.name == "nisa.reciprocal" or call.name == "nl.reciprocal":
            inner = part("data" if "data" in call.arguments else "x")
            return _operation("divide", [_number(1.0), inner], value)
        if short == "negative":
            inner = part("x")
            return None if inner is None else _product(inner, -1.0, value)
        if call.name.startswith("nl.") and short in UNARY:
            return _operation(short, [part("x")], value)
        if call.name.startswith("nl.") and short in BINARY:
            return _operation(short, [part("x"), part("y")], value)
        if call.name == "nisa.tensor_tensor":
            return _operation(operation_name(call, "op"), [part("data1"), part("data2")], value)
        if call.name == "nisa.tensor_scalar":
            return self._tensor_scalar(
                call, value, part("data"), part("operand0"), part("operand1")
            )
        if call.name == "nisa.activation" and "reduce_res" not in call.arguments:
            return self._activation(call, value, part("data"), part("scale"), part("bias"))
        return None

    def _tensor_scalar(
        self,
        call: KnownCall,
        value: UnboundResult,
        data: FusedTerm | None,
        operand0: FusedTerm | None,
        operand1: FusedTerm | None,
    ) -> FusedTerm | None:
        term = data
        for index, operand in (("0", operand0), ("1", operand1)):
            name = operation_name(call, f"op{index}")
            if name is None:
                return term if index == "1" else None
            flag = call.values.get(f"reverse{index}")
            reverse = isinstance(flag, KnownConstant) and flag.value is True
            term = _operation(name, [operand, term] if reverse else [term, operand], value)
        return term

    def _activation(
        self,
        call: KnownCall,
        value: UnboundResult,
        data: FusedTerm | None,
        scale: FusedTerm | None,
        bias: FusedTerm | None,
    ) -> FusedTerm | None:
        name = operation_name(call, "op")
        term = data
        if scale is not None and not (scale.is_number and scale.value == 1.0):
            term = _operation("multiply", [term, scale], value)
        if bias is not None and not self.is_zero(bias):
            term = _operation("add", [term, bias], value)
        return term if name == "copy" else _operation(name, [term], value)

    def is_zero(self, term: FusedTerm) -> bool:
        """True for the number zero and for tiles that are only ever set to it."""
        if term.is_number:
            return term.value == 0
        if term.access is None:
            return False
        return self.constant_of(term.access.tensor) == 0.0

    def constant_of(self, tensor: KernelTensor) -> float | None:
        """The one value a tensor is filled with, when it is never anything else."""
        writers = [s for s in self.reading.writers(tensor) if s.kind == "compute"]
        if not writers and tensor.fill in {"0", "1"}:
            return float(tensor.fill)
        if len(writers) != 1 or writers[0].call is None or writers[0].accumulates:
            return None
        call = writers[0].call
        value = call.values.get("value")
        if call.name != "nisa.memset" or not (
            writers[0].result is tensor or (writers[0].target and writers[0].target.whole)
        ):
            return None
        if isinstance(value, KnownConstant) and isinstance(value.value, (int, float)):
            return float(value.value)
        number = value.polynomial.constant if isinstance(value, Number) else None
        return None if number is None else float(number)


def operation_name(call: KnownCall, argument: str) -> str | None:
    """`add` for `op0=nl.add` or `op0=np.add`."""
    value = call.values.get(argument)
    if not isinstance(value, Name):
        return None
    short = value.canonical.rpartition(".")[2]
    return NUMPY_NAMES.get(short, short)


def _operation(
    name: str | None, parts: Sequence[FusedTerm | None], value: UnboundResult
) -> FusedTerm | None:
    if name is None or any(part is None for part in parts):
        return None
    return FusedTerm(name, tuple(p for p in parts if p is not None), shape=value.shape)


def _product(inner: FusedTerm, factor: float, value: UnboundResult) -> FusedTerm:
    return FusedTerm("multiply", (inner, _number(factor)), shape=value.shape)


def _number(value: float) -> FusedTerm:
    return FusedTerm("number", text=repr(value), value=value)


def _mask_text(statement: ReadStatement) -> tuple[Polynomial, ...]:
    mask = statement.call.values.get("mask") if statement.call is not None else None
    return mask.conditions if isinstance(mask, PolynomialMask) else ()
