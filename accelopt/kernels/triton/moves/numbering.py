"""Host loops that number the pieces between offsets."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelopt.kernels.triton.moves.source import called, target_of


class NumberedPieces(NamedTuple):
    """The table, or list, that a loop writes the numbers of pieces to, and the pieces' offsets."""

    table: str
    offsets: str


def numbered_pieces(loop: ast.For) -> NumberedPieces | None:
    """What a loop numbers that does nothing else: `for i in range(n): t[b[i]:b[i + 1]] = i`, or
    `t[b[i]:b[i + 1]].fill_(i)`, or `t += [i] * (b[i + 1] - b[i])` for a list, empty pieces left
    out or not."""
    piece = loop.target.id if isinstance(loop.target, ast.Name) else ""
    if called(loop.iter) != "range" or not piece or loop.orelse:
        return None
    assert isinstance(loop.iter, ast.Call)
    return _Loop(piece).numbered(loop.body) if len(loop.iter.args) == 1 else None


class _Loop:
    """Reads the statements of a loop over pieces: `ends` are names of offsets, as the tensor and 0
    for a piece's own or 1 for the next one's, `lengths` names of their differences."""

    def __init__(self, piece: str) -> None:
        self.piece = piece
        self.ends: dict[str, tuple[str, int]] = {}
        self.lengths: dict[str, str] = {}

    def numbered(self, body: list[ast.stmt]) -> NumberedPieces | None:
        """The names of the table and the offsets where statements only number one piece."""
        for place, statement in enumerate(body):
            is_last = place == len(body) - 1
            name = target_of(statement)
            if name is not None and isinstance(statement, ast.Assign):
                offset, length = self._offset(statement.value), self._length(statement.value)
                if offset is not None:
                    self.ends[name] = offset
                elif length is not None:
                    self.lengths[name] = length
                else:
                    return None
            elif isinstance(statement, ast.If) and not statement.orelse:
                leaves = all(isinstance(s, ast.Continue) for s in statement.body)
                if not self._asks_for_length(statement.test, none=leaves):
                    return None
                if not leaves:
                    return self.numbered(statement.body) if is_last else None
            else:
                return self._filled(statement) if is_last else None
        return None

    def _offset(self, value: ast.expr) -> tuple[str, int] | None:
        """`b[i]` or `b[i + 1]`, as the name and 0 or 1, however its value is read."""
        value = _as_it_stands(value)
        if isinstance(value, ast.Name):
            return self.ends.get(value.id)
        if not (isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name)):
            return None
        place = ast.unparse(value.slice)
        steps = {self.piece: 0, f"{self.piece} + 1": 1}
        return (value.value.id, steps[place]) if place in steps else None

    def _length(self, value: ast.expr) -> str | None:
        """The offsets that a piece's length is told by, `b[i + 1] - b[i]`."""
        value = _as_it_stands(value)
        if isinstance(value, ast.Name):
            return self.lengths.get(value.id)
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub)):
            return None
        return _piece_between(self._offset(value.right), self._offset(value.left))

    def _asks_for_length(self, test: ast.expr, *, none: bool) -> bool:
        """Whether a condition asks if a piece has any length, or if it has `none`."""
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return False
        left, operator, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(operator, (ast.Lt, ast.LtE)):
            left, right = right, left
            operator = ast.Gt() if isinstance(operator, ast.Lt) else ast.GtE()
        # Lengths are not negative; `start >= end` stands for none, `end > start` for some.
        zero = ast.unparse(right) == "0" and self._length(left) is not None
        some = zero or _piece_between(self._offset(right), self._offset(left)) is not None
        empty = _piece_between(self._offset(left), self._offset(right)) is not None
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            return (some or empty) and none == isinstance(operator, ast.Eq)
        if none:
            lengthless = ast.unparse(left) == "0" and self._length(right) is not None
            return isinstance(operator, ast.GtE) and (empty or lengthless)
        return isinstance(operator, ast.Gt) and some

    def _filled(self, statement: ast.stmt) -> NumberedPieces | None:
        """The table and the offsets in the statement that writes a piece's number."""
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            return self._listed(statement.target, statement.value)
        if isinstance(statement, ast.Assign):
            return self._sliced(statement.targets[0], statement.value)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = statement.value
            if isinstance(call.func, ast.Attribute) and len(call.args) == 1:
                if call.func.attr == "fill_":
                    return self._sliced(call.func.value, call.args[0])
                if call.func.attr == "extend":
                    return self._listed(call.func.value, call.args[0])
        return None

    def _sliced(self, target: ast.expr, value: ast.expr) -> NumberedPieces | None:
        """`t[b[i]:b[i + 1]]` and `i`."""
        if not (isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)):
            return None
        place = target.slice
        if ast.unparse(value) != self.piece or place.step or not (place.lower and place.upper):
            return None
        offsets = _piece_between(self._offset(place.lower), self._offset(place.upper))
        if offsets is None or not isinstance(target.value, ast.Name):
            return None
        return NumberedPieces(target.value.id, offsets)

    def _listed(self, target: ast.expr, value: ast.expr) -> NumberedPieces | None:
        """A list and `[i] * (b[i + 1] - b[i])`."""
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)):
            return None
        if ast.unparse(value.left) != f"[{self.piece}]" or not isinstance(target, ast.Name):
            return None
        offsets = self._length(value.right)
        return None if offsets is None else NumberedPieces(target.id, offsets)


def _piece_between(first: tuple[str, int] | None, last: tuple[str, int] | None) -> str | None:
    """The offsets where two of them are a piece's own and the next one's."""
    if first is None or last is None or first[0] != last[0]:
        return None
    return first[0] if (first[1], last[1]) == (0, 1) else None


def _as_it_stands(value: ast.expr) -> ast.expr:
    """An expression without `int(...)` and `.item()` around it."""
    while isinstance(value, ast.Call):
        if called(value) == "int" and len(value.args) == 1:
            value = value.args[0]
        elif isinstance(value.func, ast.Attribute) and value.func.attr == "item":
            value = value.func.value
        else:
            break
    return value
