"""A kernel's text as steps: which statement computes what."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from accelopt.kernels.nki.kernel_function import name_of
from accelopt.kernels.nki.nests.statement_trees import DESTINATIONS, base
from accelopt.kernels.nki.rescheduling.authorship.expression_numbers import Meanings
from accelopt.parsing import names_stored

Key = tuple[int, str]
"""What is computed, with the function's name where that gives no other value than it takes."""

REDUCTIONS = {"add": "sum", "maximum": "max", "minimum": "min", "max": "max", "min": "min"}
FILLED = frozenset("ndarray zeros full ones memset empty zeros_like".split())
FORMS = frozenset("shape dtype".split())
OPERATORS: dict[type[ast.operator | ast.unaryop], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}


@dataclass(frozen=True)
class Step:
    """A statement: the names that it gives a value to (by the meaning of each), and all that it
    computes, the whole before its parts."""

    statement: ast.stmt
    targets: Mapping[str, int]
    keys: tuple[Key, ...]


@dataclass
class Steps:
    """The steps of a kernel in order, all that each name comes to mean, and its numbers: those of
    the module, the `constants`, and those that follow from shapes. `loops` are variables of loops,
    `helpers` the module's functions, which count as what they return."""

    function: ast.FunctionDef
    meanings: Meanings
    numbers: dict[str, float | tuple[float, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    helpers: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    found: list[Step] = field(default_factory=list)
    constants: frozenset[str] = frozenset()
    loops: set[str] = field(default_factory=set)
    named: dict[str, set[int]] = field(default_factory=dict)
    _values: dict[str, int] = field(default_factory=dict)
    _keys: list[Key] = field(default_factory=list)
    _targets: dict[str, int] = field(default_factory=dict)

    def read(self) -> Steps:
        """Reads the kernel."""
        self.constants = frozenset(self.numbers)
        arguments = self.function.args
        for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            name = parameter.arg
            shaped = self.shapes.get(name, ())
            self._values[name] = self.meanings.read(name, ()) if shaped else self.meanings.number
        self._block(self.function.body)
        return self

    def computed(self, key: Key, near: Collection[float] = ()) -> Step | None:
        """The first step that computes this, of those with the most fractions from `near`: keys do not tell numbers
        apart. What gives no other value must be all that it does."""
        same = [s for s in self.found if key in (s.keys[:1] if key[1] else s.keys)]
        return max(
            same, key=lambda step: len(self.fractions(step).intersection(near)), default=None
        )

    def fractions(self, step: Step) -> set[float]:
        """The numbers of a step that are not whole, in fp32."""
        values = map(self.value, (n for n in ast.walk(step.statement) if isinstance(n, ast.expr)))
        return {float(np.float32(value)) for value in values if value is not None and value % 1}

    def negative(self, step: Step) -> bool:
        """Whether a step turns a sign by a number."""
        values = (self.value(n) for n in ast.walk(step.statement) if isinstance(n, ast.UnaryOp))
        return any(value is not None and value < 0 for value in values)

    def value(self, node: ast.expr) -> float | None:
        """An expression of numbers that are known before the kernel runs; loops are at their first
        iteration."""
        try:
            found = self._number(node)
        except (ArithmeticError, ValueError, TypeError, IndexError, KeyError):
            return None
        return found if isinstance(found, (int, float)) and math.isfinite(found) else None

    def extents(self, node: ast.expr) -> tuple[float, ...] | None:
        """A shape whose numbers are known before the kernel runs."""
        if isinstance(node, ast.Tuple):
            found = [self.value(part) for part in node.elts]
            return None if None in found else tuple(n for n in found if n is not None)
        number = self._static(node)
        return number if isinstance(number, tuple) else None

    def _number(self, node: ast.expr) -> float | tuple[float, ...] | None:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Tuple(elts=parts):
                found = [self._number(part) for part in parts]
                numbers = tuple(n for n in found if isinstance(n, (int, float)))
                return numbers if len(numbers) == len(parts) else None
            case ast.Name(id=name):
                return self.numbers.get(name)
            case ast.Attribute(value=ast.Name(id=name), attr="shape"):
                return self.shapes.get(name)
            case ast.Subscript(value=inner, slice=index):
                shape, at = self._number(inner), self._number(index)
                if isinstance(shape, tuple) and isinstance(at, int):
                    return shape[at]
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                below = self._number(inner)
                return -below if isinstance(below, (int, float)) else None
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                pair = self._number(left), self._number(right)
                if all(isinstance(one, (int, float)) for one in pair):
                    return OPERATORS[type(op)](*pair)
            case ast.Call(func=function, args=[argument]) if name_of(function) in ("sqrt", "rsqrt"):
                below = self._number(argument)
                if isinstance(below, (int, float)) and below > 0:
                    root = math.sqrt(below)
                    return root if name_of(function) == "sqrt" else 1 / root
        return None

    # Statements.

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.For):
                for name in names_stored(statement.target):
                    self.numbers[name] = 0
                    self.loops.add(name)
                self._block(statement.body)
            elif isinstance(statement, (ast.If, ast.With)):
                self._block(statement.body)
                self._block(getattr(statement, "orelse", []))
            else:
                self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        self._keys, self._targets = [], {}
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assigned(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assigned(target, value)
            case ast.AugAssign(target=target, op=op, value=value):
                self._give(target, self._applied(type(op).__name__.lower(), [target, value]))
            case ast.Expr(value=ast.Call() as call):
                self._meaning(call)
        for name, meaning in self._targets.items():
            self.named.setdefault(name, set()).add(meaning)
        keys = tuple(dict.fromkeys(reversed(self._keys)))
        self.found.append(Step(statement, dict(self._targets), keys))

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if any(isinstance(n, ast.Name) and n.id in self.loops for n in ast.walk(value)):
            self.loops.update(names_stored(target))
        if names := self.numbers_of(target, value):
            self.numbers |= names
            self._values |= dict.fromkeys(names, self.meanings.number)
            return
        self._give(target, self._meaning(value))

    def numbers_of(self, target: ast.expr, value: ast.expr) -> dict[str, float | tuple[float, ...]]:
        """The numbers that an assignment gives names, where all are known before the kernel runs."""
        number = self._static(value)
        if isinstance(target, ast.Name) and number is not None:
            return {target.id: number}
        if isinstance(target, ast.Tuple) and isinstance(number, tuple):
            pairs = zip(target.elts, number, strict=False)
            return {name.id: n for name, n in pairs if isinstance(name, ast.Name)}
        return {}

    def _static(self, node: ast.expr) -> float | tuple[float, ...] | None:
        try:
            return self._number(node)
        except (ArithmeticError, ValueError, TypeError, IndexError, KeyError):
            return None

    def _give(self, target: ast.expr, meaning: int) -> None:
        if name := base(target):
            self._values[name] = meaning
            self._targets[name] = meaning

    # Expressions.

    def _meaning(self, node: ast.expr) -> int:
        match node:
            case ast.Name(id=name):
                return self._values.get(name, self.meanings.number)
            case ast.Subscript(value=inner, slice=index):
                return self.meanings.moved(self._meaning(inner), list(self._starts(index)))
            case ast.BinOp(left=left, op=op, right=right):
                return self._applied(type(op).__name__.lower(), [left, right])
            case ast.UnaryOp(operand=operand):
                return self._applied("negative", [operand])
            case ast.Call():
                return self._call(node)
            case ast.Attribute(attr=name) if name not in FORMS:
                return self._meaning(node.value)
        return self.meanings.number

    def _starts(self, index: ast.expr) -> Iterator[float]:
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            match part:
                case ast.Slice(lower=lower):
                    yield 0 if lower is None else self.value(lower) or 0
                case ast.Call(func=function, args=[start, *_]) if name_of(function) == "ds":
                    yield self.value(start) or 0
                case ast.expr():
                    yield self.value(part) or 0

    def _applied(self, function: str, arguments: Sequence[ast.expr]) -> int:
        return self._made(function, [self._meaning(argument) for argument in arguments])

    def _made(self, function: str, arguments: Sequence[int]) -> int:
        made = self.meanings.apply(function, arguments)
        if made != self.meanings.number:
            self._keys.append((made, function if made in arguments else ""))
        return made

    def _call(self, node: ast.Call) -> int:
        function = name_of(node.func)
        if isinstance(node.func, ast.Name) and function in self.helpers:
            return self._helped(self.helpers[function], node)
        if function in FILLED:
            return self.meanings.fresh
        given = {keyword.arg or "": keyword.value for keyword in node.keywords}
        places = [given.pop(name) for name in DESTINATIONS if name in given]
        operations = [
            name_of(given.pop(name)) for name in ("op", "op0", "op1", "reduce_op") if name in given
        ]
        arguments = [self._meaning(argument) for argument in node.args]
        options = (self._meaning(argument) for argument in given.values())
        arguments += [option for option in options if option != self.meanings.number]
        if isinstance(node.func, ast.Attribute):
            tile = node.func.value  # of a method; modules have no value
            if not isinstance(tile, ast.Name) or tile.id in self._values:
                arguments.insert(0, self._meaning(tile))
        made = self._instruction(function, operations, arguments, node, given)
        for place in places:
            self._give(place, made)
        if function == "activation_reduce" and places:
            self._give(places[-1], self._made("sum", [made]))
        if function == "store" and node.args:
            self._give(node.args[0], made)
        return made

    def _helped(self, helper: ast.FunctionDef, node: ast.Call) -> int:
        """What a function of the module returns; its own names are nobody else's."""
        values = [self._meaning(argument) for argument in node.args]
        named = {k.arg: self._meaning(k.value) for k in node.keywords if k.arg}
        others = {name: f for name, f in self.helpers.items() if f is not helper}
        names = [parameter.arg for parameter in helper.args.args]
        inside = replace(
            self, function=helper, helpers=others, found=[], named={}, _keys=[], _targets={},
            numbers=dict(self.numbers), _values={**self._values, **dict(zip(names, values, strict=False)), **named},
        )  # fmt: skip
        inside._block(helper.body)
        returned = [s.value for s in ast.walk(helper) if isinstance(s, ast.Return) and s.value]
        made = inside._meaning(returned[-1]) if returned else self.meanings.number
        self._keys += [key for step in inside.found for key in reversed(step.keys)] + inside._keys
        return made

    def _instruction(
        self,
        function: str,
        operations: Sequence[str],
        arguments: Sequence[int],
        node: ast.Call,
        given: Mapping[str, ast.expr],
    ) -> int:
        """What a call computes; `given` are its arguments by name but for destinations and
        operations."""

        def of(*names: str) -> list[int]:
            return [self._meaning(given[name]) for name in names if name in given]

        data = of("data") or list(arguments[:1])
        if function in ("activation", "activation_reduce") and operations:
            scaled = self._made("multiply", [*data, *of("scale")]) if "scale" in given else data[0]
            shifted = self._made("add", [scaled, *of("bias")]) if "bias" in given else scaled
            return self._made(operations[0], [shifted])
        if function in ("tensor_scalar", "scalar_tensor_tensor") and operations:
            made = data[0]
            for operation, operand in zip(operations, of("operand0", "operand1"), strict=False):
                made = self._made(operation, [made, operand])
            return made
        if function == "tensor_reduce":
            names = operations or [name_of(argument) for argument in node.args[:1]]
            tiles = of("data") or list(arguments[1:2])
            return self._made(REDUCTIONS.get(names[0], names[0]), tiles)
        if function == "tensor_tensor" and operations:
            return self._made(operations[0], arguments)
        if function == "store":
            return (of("value") or list(arguments[1:2]) or [self.meanings.number])[0]
        return self._made(function, arguments)


def arrays(steps: Steps) -> Iterator[tuple[str, ast.Call]]:
    """The arrays in HBM that a kernel declares."""
    for step in steps.found:
        match step.statement:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Call(args=[_], keywords=options) as call
            ) if name_of(call.func) == "ndarray":
                places = [name_of(o.value) for o in options if o.arg == "buffer"]
                if places in (["shared_hbm"], ["hbm"]):
                    yield name, call


_VIEW = re.compile(r"_(view|flat)$")


def transfers(steps: Steps) -> Iterator[tuple[str, str, bool]]:
    """The tiles that are brought from arrays in HBM or stored to them: tile, array, and whether it is
    stored."""
    outside = {*steps.shapes, *(name for name, _ in arrays(steps))}
    for function, parts in moves(steps):
        if function in ("load", "store", "dma_copy") and len(parts) > 1:
            to, of = (_VIEW.sub("", base(part)) for part in parts[:2])
            known = outside.union(steps.named)
            if {to, of} <= known and (to in outside) != (of in outside):
                yield (of, to, True) if to in outside else (to, of, False)


def fills(steps: Steps) -> Iterator[tuple[str, float]]:
    """The tiles that are filled with a number."""
    for function, parts in moves(steps):
        number = steps.value(parts[-1]) if function in ("memset", "full") else None
        if number is not None:
            yield base(parts[0]), float(np.float32(number))


def moves(steps: Steps) -> Iterator[tuple[str, list[ast.expr]]]:
    """The calls in statements by their function, with what they write first, and what that becomes."""
    for step in steps.found:
        into = step.statement.targets[:1] if isinstance(step.statement, ast.Assign) else []
        call = getattr(step.statement, "value", None)
        if isinstance(call, ast.Call):
            named = [k.value for k in call.keywords if k.arg in ("dst", "src", "value")]
            yield name_of(call.func), [*into, *call.args, *named]
