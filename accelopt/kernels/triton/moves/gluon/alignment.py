"""Whether 16 bytes of a tile can be copied at once, as Triton's compiler sees it, and what the host
has to ask for that: it compiles a kernel anew for numbers that are 1 or multiples of 16."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import TypeAlias

from accelopt.kernels.triton.moves.columns import number_of
from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.source import called, target_of

TOGETHER = 8  # elements of 16 bits in 16 bytes

_Needs: TypeAlias = "Callable[[ast.expr, frozenset[str]], list[str] | None]"


class Alignment:
    """Collects in `asked` what must hold of a kernel's parameters, as text.

    `values` are the known constants by name; `given` what the launch gives the other parameters;
    `pointers` those that tiles begin at, of which the host asks that they are aligned; `columns`
    the extents of tiles along which elements lie side by side.
    """

    def __init__(
        self,
        node: ast.FunctionDef,
        shapes: Shapes,
        values: Mapping[str, int],
        given: Mapping[str, str],
        pointers: set[str],
        columns: set[str],
    ) -> None:
        self.shapes, self.values, self.given = shapes, values, given
        self.pointers, self.columns = pointers, columns
        self.asked: dict[str, None] = {}
        self.made: dict[str, list[ast.expr]] = {}
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign) and (name := target_of(statement)) is not None:
                self.made.setdefault(name, []).append(statement.value)

    def ask(self, pointer: ast.expr, mask: ast.expr | None) -> None:
        """Adds what a tile's address and its condition ask for; raises NotWritten where no number
        of the host's can make them aligned."""
        needs = [(pointer, self._beside(pointer, frozenset()))]
        if mask is not None:
            needs.append((mask, self._alike(mask)))
        for part, texts in needs:
            if texts is None:
                raise NotWritten(f"{ast.unparse(part)} is not aligned")
            self.asked.update(dict.fromkeys(texts))

    def _in_columns(self, node: ast.expr) -> bool:
        return any(axis in self.columns for axis in self.shapes.of(node).lines)

    def _beside(self, node: ast.expr, seen: frozenset[str]) -> list[str] | None:
        """What is needed for elements along columns to lie side by side, from a multiple on."""
        if isinstance(node, ast.Name):
            return self._of_all(node.id, seen, self._beside)
        if isinstance(node, ast.Subscript):
            return self._beside(node.value, seen)
        if called(node) == "tl.arange":
            return []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":  # fmt: skip
            return self._beside(node.func.value, seen)
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult))):
            return None
        sides = sorted((node.left, node.right), key=self._in_columns)
        if self._in_columns(sides[0]):
            return None
        inside = self._beside(sides[1], seen)
        if isinstance(node.op, ast.Add):
            return _both(self._multiple(sides[0], seen), inside)
        once = ast.unparse(sides[0])
        if once in self.made:
            return None
        if self.values.get(once) == 1:
            return inside
        return _both([f"({self.given[once]}) == 1"], inside) if once in self.given else None

    def _multiple(self, node: ast.expr, seen: frozenset[str]) -> list[str] | None:
        """What is needed for a number to be a multiple of as many elements as are copied at once."""
        number = number_of(node, self.values)
        if number is not None:
            return [] if number % TOGETHER == 0 else None
        if isinstance(node, ast.Name):
            stored = self._of_all(node.id, seen, self._multiple)
            if node.id not in self.pointers | self.given.keys():
                return stored
            is_asked = node.id not in self.pointers
            own = [f"({self.given[node.id]}) % 16 == 0"] if is_asked else []
            return _both(own, stored) if node.id in self.made else own
        if isinstance(node, ast.Subscript):
            return self._multiple(node.value, seen)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                return self._multiple(node.func.value, seen)
            return (
                _both(*(self._multiple(a, seen) for a in node.args[1:]))
                if called(node) == "tl.where" and len(node.args) == 3
                else None
            )
        if not isinstance(node, ast.BinOp):
            return None
        left, right = self._multiple(node.left, seen), self._multiple(node.right, seen)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return _both(left, right)
        if not isinstance(node.op, ast.Mult):
            return None
        if left and right and len(left) == len(right) == 1:
            return [f"({left[0]} or {right[0]})"]
        return min((one for one in (left, right) if one is not None), key=len, default=None)

    def _of_all(self, name: str, seen: frozenset[str], needs: _Needs) -> list[str] | None:
        """What all values of a name need; a value that is made of the name's own is one more."""
        if name in seen:
            return []
        found: list[str] | None = [] if name in self.made else None
        for value in self.made.get(name, []):
            found = _both(found, needs(value, seen | {name}))
        return found

    def _alike(self, mask: ast.expr) -> list[str] | None:
        """What is needed for a condition to hold for all or none of the elements of a copy."""
        if not self._in_columns(mask):
            return []
        if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
            return _both(self._alike(mask.left), self._alike(mask.right))
        if isinstance(mask, ast.Compare) and [type(op) for op in mask.ops] == [ast.Lt]:
            return _both(
                self._beside(mask.left, frozenset()),
                self._multiple(mask.comparators[0], frozenset()),
            )
        return None


def _both(one: list[str] | None, two: list[str] | None) -> list[str] | None:
    return None if one is None or two is None else [*one, *two]
