"""Values that a loop carries, where partial results can be combined: maxima and sums."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import Renamed
from accelopt.kernels.triton.moves.source import assigned_in, called, names_in, target_of

OLD, NEW = "state_before", "state_after"


class NotJoined(Exception):
    """The loop carries something whose parts cannot be joined."""


class States(NamedTuple):
    """The names that a loop carries: the running `maximum`, if there is one, and `sums`, each with
    the factor that a step scales it by, in terms of OLD and NEW, the maximum before and after; None
    where sums are not scaled."""

    maximum: str | None
    sums: dict[str, ast.expr | None]

    @property
    def names(self) -> list[str]:
        """All of them, the maximum first."""
        return [*([self.maximum] if self.maximum else []), *self.sums]


def states_of(loop: ast.For, before: list[ast.stmt]) -> States:
    """The states of a loop behind the statements `before` it; raises NotJoined.

    Recognised are sums `x = x * f + t`, in one statement or several, where `f` depends on the
    running maximum before and after the step alone, and that maximum, `m = tl.maximum(m, t)`.
    """
    carried = _carried(loop.body, assigned_in(before))
    reading = _Reading(carried, assigned_in(loop.body))
    reading.body(loop.body)
    maxima = [name for name in carried if reading.is_new(name)]
    if len(maxima) > 1 or (reading.has_maximum and not maxima):
        raise NotJoined("more than one maximum is carried")
    sums = {}
    for name in carried:
        if name not in maxima:
            if name not in reading.scales or name not in reading.added:
                raise NotJoined(f"{name} is no sum and no maximum")
            sums[name] = reading.scales[name]
    return States(maxima[0] if maxima else None, sums)


def _carried(body: list[ast.stmt], known: set[str]) -> list[str]:
    """Names from before a loop that a step reads before it stores them."""
    found: list[str] = []
    stored: set[str] = set()
    inside = assigned_in(body)
    for statement in body:
        reads = [
            inner.id
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
        ]
        if isinstance(statement, ast.AugAssign):
            reads.append(ast.unparse(statement.target))
        found += [n for n in reads if n in inside and n in known and n not in stored]
        stored |= assigned_in([statement])
    return list(dict.fromkeys(found))


class _Reading:
    """Follows the statements of one step. `values` holds what is made of the maximum alone."""

    def __init__(self, carried: list[str], changing: set[str]) -> None:
        self.carried = carried
        self.changing = changing
        self.values: dict[str, ast.expr] = {}
        self.scales: dict[str, ast.expr | None] = dict.fromkeys(carried)
        self.added: set[str] = set()
        self.copies: dict[str, str] = {}
        self.has_maximum = False

    def is_new(self, name: str) -> bool:
        """Whether a carried name holds the new maximum by the end."""
        return name in self.values and ast.unparse(self.values[name]) == NEW

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            target = _target(statement)
            stored = assigned_in([statement])
            if target is None:
                if stored & set(self.carried) or called(getattr(statement, "value", statement)) == (
                    "tl.store"
                ):
                    raise NotJoined(ast.unparse(statement))
                continue
            value = statement.value if isinstance(statement, ast.Assign) else None
            if isinstance(statement, ast.AugAssign):
                value = ast.BinOp(ast.Name(target, ast.Load()), statement.op, statement.value)
            assert value is not None
            self._store(target, value)

    def _store(self, target: str, value: ast.expr) -> None:
        if self._is_next_maximum(value):
            self.values[target] = ast.Name(NEW, ast.Load())
            return
        of_maximum = self._of_maximum(value)
        if of_maximum is not None:
            self.values[target] = of_maximum
            return
        self.values.pop(target, None)
        name = target
        if isinstance(value, ast.Name) and value.id in self.copies:
            name, value = self.copies[value.id], ast.Name(self.copies[value.id], ast.Load())
            if name != target:
                raise NotJoined(f"{target} takes the place of {name}")
            return
        read = names_in(value) & (set(self.carried) - set(self.values))
        if target not in self.carried:
            if len(read) != 1:
                return  # of a step alone, or read of several: refused where it is stored
            name = read.pop()
            if self._is_factor_only(name, value):
                self.copies[target] = name
                self._accumulate(name, value)
            return
        if read != {target}:
            raise NotJoined(f"{target} is no sum of its own")
        self._accumulate(target, value)

    def _is_factor_only(self, name: str, value: ast.expr) -> bool:
        try:
            self._linear(name, value)
        except NotJoined:
            return False
        return True

    def _is_next_maximum(self, value: ast.expr) -> bool:
        if called(value) != "tl.maximum" or not isinstance(value, ast.Call):
            return False
        for one, other in (value.args, value.args[::-1]):
            if isinstance(one, ast.Name) and one.id in self.carried:
                if one.id in self.values or names_in(other) & set(self.carried):
                    return False
                if self.has_maximum:
                    raise NotJoined("two maxima are carried")
                self.has_maximum = True
                self.values[one.id] = ast.Name(OLD, ast.Load())
                return True
        return False

    def _of_maximum(self, value: ast.expr) -> ast.expr | None:
        """An expression of the maximum before and after, and of what is fixed; None for any other."""
        known = {n for n in names_in(value) if n in self.values}
        free = (names_in(value) & self.changing) - known
        if not known or free:
            return None
        found = Renamed({}, self.values).visit(copy.deepcopy(value))
        assert isinstance(found, ast.expr)
        return found

    def _accumulate(self, name: str, value: ast.expr) -> None:
        factor, adds = self._linear(name, value)
        if adds:
            self.added.add(name)
        if factor is not None:
            if self.scales[name] is not None or (name in self.added and not adds):
                raise NotJoined(f"{name} is scaled twice")
            self.scales[name] = factor

    def _linear(self, name: str, value: ast.expr) -> tuple[ast.expr | None, bool]:
        """The factor of `name` in `value`, None for one, and whether something is added."""
        if isinstance(value, ast.Name) and value.id == name:
            return None, False
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult)):
            for own, other in ((value.left, value.right), (value.right, value.left)):
                if name in names_in(own) and name not in names_in(other):
                    factor, adds = self._linear(name, own)
                    if isinstance(value.op, ast.Add):
                        return factor, True
                    scale = self._of_maximum(_bare(other))
                    if scale is not None and factor is None and not adds:
                        return scale, False
        raise NotJoined(f"{name} is no scaled sum")


def _target(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return target_of(statement)


def _bare(node: ast.expr) -> ast.expr:
    """An operand without the `[:, None]` that spreads it."""
    if isinstance(node, ast.Subscript) and "None" in ast.unparse(node.slice):
        return node.value
    return node


def with_maxima(factor: ast.expr, before: str, after: str) -> str:
    """The text of a factor for a step from one maximum to another."""
    named: dict[str, ast.expr] = {
        OLD: ast.Name(before, ast.Load()),
        NEW: ast.Name(after, ast.Load()),
    }
    return ast.unparse(Renamed({}, named).visit(copy.deepcopy(factor)))
