"""Shapes of a kernel's arguments, read from the text of its NumPy reference without running it.

The reference's `get_inputs` and `transform_to_nki_inputs` make arrays of constant shapes and reshape
them. This reads exactly that much Python and gives up, with None, on anything else.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accelopt.kernels.nki.kernel_function import kernel_parameters
from accelopt.parsing import parse_python

MAKERS = frozenset("ones zeros empty full".split())
DRAWS = frozenset("normal uniform standard_normal random randint exponential".split())
CASTS: dict[str, Callable[[float], float]] = {
    "np.float32": lambda value: float(np.float32(value)),
    "float": float,
    "int": int,
}
SAME_SHAPE = frozenset("abs exp sqrt square negative copy ascontiguousarray array asarray".split())

PlainValue = float | int | bool | str | None
"""What a kernel may be given beside tensors."""
UNKNOWN = 1e-5
"""Stands for a plain argument of which nobody knows what it is."""


@dataclass(frozen=True)
class ParameterFacts:
    """What is known of a kernel parameter: a tensor's shape and dtype; a plain argument has no
    dimensions, and a value."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    value: PlainValue = UNKNOWN


@dataclass(frozen=True)
class ShapedArray:
    """An array that is only its shape and dtype."""

    shape: tuple[int, ...]
    dtype: str = "float64"


class _Unclear(Exception):
    """The reference does something this reading does not follow."""


def kernel_arguments(kernel: str, reference: str) -> dict[str, ParameterFacts]:
    """What the reference passes for each parameter of a kernel; empty when it is unclear.

    A number has no dimensions. Parameters that are left to their defaults are not named.
    """
    try:
        values = _reference_inputs(reference)
    except (_Unclear, SyntaxError, RecursionError, ArithmeticError, LookupError):
        return {}
    except (TypeError, ValueError):  # the reference would fail as well, or is read wrongly here
        return {}
    return by_parameter(
        kernel,
        [
            ParameterFacts(value.shape, value.dtype)
            if isinstance(value, ShapedArray)
            else ParameterFacts((), value=_plain(value))
            for value in values
        ],
    )


def by_parameter(kernel: str, given: Sequence[ParameterFacts]) -> dict[str, ParameterFacts]:
    """What is passed to a kernel, in order, by the names of its parameters; by numbers where its text
    does not say these (it is imported from another file)."""
    names = kernel_parameters(kernel) or [f"argument{number}" for number in range(len(given))]
    return dict(zip(names, given, strict=False))


@lru_cache(maxsize=64)
def _reference_inputs(reference: str) -> list[object]:
    return _Reference(reference).nki_inputs()


class _Reference:
    def __init__(self, text: str) -> None:
        self.globals: dict[str, object] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        for node in parse_python(text).body:
            if isinstance(node, ast.FunctionDef):
                self.functions[node.name] = node
            elif isinstance(node, ast.Assign):
                try:
                    self._assign(node, self.globals)
                except _Unclear:
                    continue

    def nki_inputs(self) -> list[object]:
        result = self._run("get_inputs", [])
        if "transform_to_nki_inputs" in self.functions:
            result = self._run("transform_to_nki_inputs", [result])
        if not isinstance(result, (list, tuple)):
            raise _Unclear
        return list(result)

    def _run(self, name: str, arguments: list[object]) -> object:
        if name not in self.functions:
            raise _Unclear(name)
        function = self.functions[name]
        plain = [argument.arg for argument in function.args.args]
        if len(plain) != len(arguments):
            raise _Unclear(name)
        names: dict[str, object] = dict(zip(plain, arguments, strict=True))
        for statement in function.body:
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self._value(statement.value, names)
            self._statement(statement, names)
        raise _Unclear(name)

    def _statement(self, statement: ast.stmt, names: dict[str, object]) -> None:
        if isinstance(statement, ast.Assign):
            self._assign(statement, names)
        elif isinstance(statement, ast.Expr):
            self._expression_statement(statement.value, names)
        elif not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assert, ast.Pass)):
            raise _Unclear(ast.dump(statement))

    def _expression_statement(self, node: ast.expr, names: dict[str, object]) -> None:
        """A docstring, `values.append(x)`, or a call whose result is dropped (a seed)."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "append":
                owner = self._value(node.func.value, names)
                if not isinstance(owner, list):
                    raise _Unclear("append")
                owner.append(self._value(node.args[0], names))
        elif not isinstance(node, (ast.Constant, ast.Call)):
            raise _Unclear(ast.dump(node))

    def _assign(self, node: ast.Assign, names: dict[str, object]) -> None:
        value = self._value(node.value, names)
        target = node.targets[0]
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (list, tuple)):
            for element, item in zip(target.elts, value, strict=True):
                if isinstance(element, ast.Name):
                    names[element.id] = item
        else:
            raise _Unclear(ast.dump(node))

    def _value(self, node: ast.expr, names: dict[str, object]) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in names:
                return names[node.id]
            if node.id in self.globals:
                return self.globals[node.id]
            raise _Unclear(node.id)
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(element, names) for element in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, names)
            return value if isinstance(value, ShapedArray) else -_number(value)
        if isinstance(node, ast.BinOp):
            return self._binary(node, names)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, names)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, names)
        if isinstance(node, ast.Call):
            return self._call(node, names)
        raise _Unclear(ast.dump(node))

    def _binary(self, node: ast.BinOp, names: dict[str, object]) -> object:
        left, right = self._value(node.left, names), self._value(node.right, names)
        arrays = [v for v in (left, right) if isinstance(v, ShapedArray)]
        if arrays:
            formats = {array.dtype for array in arrays}
            if isinstance(node.op, ast.MatMult) or len(formats) > 1:
                raise _Unclear(ast.dump(node))
            return ShapedArray(np.broadcast_shapes(*(a.shape for a in arrays)), formats.pop())
        known: dict[type[ast.operator], Callable[[float, float], float]] = {
            ast.Add: operator.add,
            ast.Sub: operator.sub,
            ast.Mult: operator.mul,
            ast.FloorDiv: operator.floordiv,
            ast.Div: operator.truediv,
            ast.Pow: operator.pow,
        }
        if type(node.op) not in known:
            raise _Unclear(ast.dump(node))
        return known[type(node.op)](_number(left), _number(right))

    def _subscript(self, node: ast.Subscript, names: dict[str, object]) -> object:
        value, index = self._value(node.value, names), self._value(node.slice, names)
        if isinstance(value, (list, tuple)) and isinstance(index, int):
            return value[index]
        raise _Unclear(ast.dump(node))

    def _attribute(self, node: ast.Attribute, names: dict[str, object]) -> object:
        value = self._value(node.value, names)
        if isinstance(value, ShapedArray):
            if node.attr == "shape":
                return list(value.shape)
            if node.attr == "T":
                return ShapedArray(value.shape[::-1], value.dtype)
            if node.attr == "size":
                return math.prod(value.shape)
        raise _Unclear(node.attr)

    def _call(self, node: ast.Call, names: dict[str, object]) -> object:
        name = ast.unparse(node.func)
        short = name.rpartition(".")[2]
        keywords = {k.arg: k.value for k in node.keywords if k.arg}
        if name in self.functions and not node.keywords:
            return self._run(name, [self._value(argument, names) for argument in node.args])
        if short == "astype" and isinstance(node.func, ast.Attribute):
            value = self._value(node.func.value, names)
            if not isinstance(value, ShapedArray):
                raise _Unclear(name)
            return ShapedArray(value.shape, _dtype_name(node.args[0]))
        arguments = [self._value(a, names) for a in node.args if not _is_dtype(a)]
        usual = "int64" if short == "randint" else "float64"
        dtype = _dtype_name(keywords["dtype"]) if "dtype" in keywords else usual
        if ".random." in name or short in DRAWS or short in {"randn", "rand"}:
            return ShapedArray(self._drawn(short, arguments, keywords, names), dtype)
        if short in MAKERS and name.startswith("np."):
            types = [_dtype_name(a) for a in node.args if _is_dtype(a)]
            return ShapedArray(_sizes(arguments[0]), types[0] if types else dtype)
        if name in CASTS and arguments:
            return CASTS[name](_number(arguments[0]))
        return self._method(node, name, short, arguments, names)

    def _method(
        self,
        node: ast.Call,
        name: str,
        short: str,
        arguments: list[object],
        names: dict[str, object],
    ) -> object:
        """Methods of an array, and the same as functions of np."""
        if isinstance(node.func, ast.Attribute) and not name.startswith("np."):
            arguments = [self._value(node.func.value, names), *arguments]
        array = arguments[0] if arguments else None
        if not isinstance(array, ShapedArray):
            raise _Unclear(name)
        rest = arguments[1:]
        if short == "reshape":
            return ShapedArray(_reshaped(array.shape, _flat(rest)), array.dtype)
        if short in {"transpose", "swapaxes"}:
            axes = [int(_number(a)) for a in _flat(rest)] or list(range(len(array.shape)))[::-1]
            if short == "swapaxes":
                order = list(range(len(array.shape)))
                order[axes[0]], order[axes[1]] = order[axes[1]], order[axes[0]]
                axes = order
            return ShapedArray(tuple(array.shape[axis] for axis in axes), array.dtype)
        if short in SAME_SHAPE:
            return array
        raise _Unclear(name)

    def _drawn(
        self,
        short: str,
        arguments: list[object],
        keywords: dict[str, ast.expr],
        names: dict[str, object],
    ) -> tuple[int, ...]:
        if "size" in keywords:
            return _sizes(self._value(keywords["size"], names))
        if short in {"randn", "rand"}:
            return _sizes(arguments)
        if arguments and isinstance(arguments[-1], (list, tuple)):
            return _sizes(arguments[-1])
        raise _Unclear(short)


def _plain(value: object) -> PlainValue:
    if value is None or isinstance(value, (float, int, str)):
        return value
    raise _Unclear(repr(value))


def _number(value: object) -> float | int:
    if isinstance(value, (int, float)):
        return value
    raise _Unclear(repr(value))


def _sizes(value: object) -> tuple[int, ...]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(int(_number(item)) for item in items)


def _flat(values: list[object]) -> list[object]:
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        return list(values[0])
    return values


def _reshaped(shape: tuple[int, ...], wanted: list[object]) -> tuple[int, ...]:
    sizes = [int(_number(size)) for size in wanted]
    known = math.prod(size for size in sizes if size >= 0)
    total = math.prod(shape)
    if sizes.count(-1) > 1 or not known or total % known:
        raise _Unclear("reshape")
    return tuple(total // known if size == -1 else size for size in sizes)


def _is_dtype(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.rstrip("0123456789") in {
        "float",
        "bfloat",
        "int",
        "uint",
    }


def _dtype_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unclear(ast.dump(node))
