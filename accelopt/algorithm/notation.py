"""Algorithms as people write them: `out[m, n] = sum_k a[m, k] * b[k, n]`."""

from __future__ import annotations

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of

INFIX = {
    "add": ("+", 4), "subtract": ("-", 4), "multiply": ("*", 5), "divide": ("/", 5),
    "less": ("<", 3), "less_equal": ("<=", 3), "greater": (">", 3), "greater_equal": (">=", 3),
    "equal": ("==", 3), "not_equal": ("!=", 3), "power": ("**", 7),
}  # fmt: skip
"""Functions that are written between their arguments, and how closely they bind."""
SUM_BINDS = 5
PREFIXES = {"add": "sum", "multiply": "product", "maximum": "max", "minimum": "min"}


def algorithm_text(algorithm: ir.Algorithm) -> str:
    """Inputs, definitions and outputs, a line each."""
    lines = [f"{algorithm.name}({', '.join(map(array_text, algorithm.inputs))})"]
    lines += [f"    {definition_text(d)}" for d in algorithm.definitions]
    lines.append(f"    -> {', '.join(map(array_text, algorithm.returned))}")
    return "\n".join(lines)


def array_text(array: ir.Array) -> str:
    """Name, shape and format of an array."""
    shape = " x ".join(map(str, array.shape)) or "scalar"
    return f"{array.name}: {shape} {array.dtype}"


def definition_text(definition: ir.Definition) -> str:
    """A definition as an equation."""
    left = _element(definition.out, tuple(axis.name for axis in definition.axes))
    if isinstance(definition, ir.Scan):
        return f"{left} = {_scan(definition)}"
    if isinstance(definition, ir.Reduce):
        reduced = ",".join(axis.name for axis in definition.reduced)
        body = expression_text(definition.expression, SUM_BINDS)
        return f"{left} = {PREFIXES.get(definition.combiner, definition.combiner)}_{reduced} {body}"
    put = f", put at {expression_text(definition.at)}" if definition.at is not None else ""
    return f"{left} = {expression_text(definition.expression)}{put}"


def expression_text(expression: ir.Expression, binds: int = 0) -> str:
    """An expression; in brackets where what is around it binds closer than `binds`."""
    if isinstance(expression, ir.Constant):
        text = f"{expression.value:.7g}"
        return f"({text})" if expression.value < 0 and binds else text
    if isinstance(expression, ir.Read):
        return _element(expression.array, tuple(map(str, expression.indices)))
    if isinstance(expression, ir.Position):
        text = str(expression.index)
        return f"({text})" if binds and " " in text else text
    if isinstance(expression, ir.Apply):
        return _application(expression, binds)
    if isinstance(expression, ir.Indirect):  # its axis has the text of the number for a name
        named = index_of(Axis(expression_text(expression.at), expression.axis.extent))
        return expression_text(
            ir.substituted(expression.element, {expression.axis: named}, {}), binds
        )
    conditions = " and ".join(map(condition_text, expression.conditions))
    branches = (expression_text(expression.on_true, 2), expression_text(expression.on_false, 1))
    text = f"{branches[0]} if {conditions} else {branches[1]}"
    return f"({text})" if binds else text


def condition_text(condition: Index) -> str:
    """`condition >= 0` with what is subtracted on the other side."""
    gains = Index(max(condition.constant, 0), tuple((t, c) for t, c in condition.terms if c > 0))
    losses = gains - condition
    return f"{gains} >= {losses}"


def _application(expression: ir.Apply, binds: int) -> str:
    name, arguments = expression.function, expression.arguments
    if name == "negative":
        text = f"-{expression_text(arguments[0], 6)}"
        return f"({text})" if binds > SUM_BINDS else text
    if name == "square":
        return f"{expression_text(arguments[0], 8)}**2"
    if name in INFIX and len(arguments) == 2:
        sign, own = INFIX[name]
        right = own if name in ("add", "multiply") else own + 1
        pieces = (expression_text(arguments[0], own), expression_text(arguments[1], right))
        text = f"{pieces[0]} {sign} {pieces[1]}"
        return f"({text})" if own < binds else text
    return f"{name}({', '.join(map(expression_text, arguments))})"


def _scan(scan: ir.Scan) -> str:
    previous = tuple(f"{a.name} - 1" if a == scan.along else a.name for a in scan.axes)
    before = _element(scan.out, previous)
    factor, term = expression_text(scan.factor, 5), expression_text(scan.term, 4)
    if (scan.scale, scan.combine) == ("multiply", "add"):
        one = scan.factor == ir.Constant(1.0)
        text = f"{before} + {term}" if one else f"{factor} * {before} + {term}"
    else:
        factor, term = expression_text(scan.factor), expression_text(scan.term)
        text = f"{scan.combine}({scan.scale}({factor}, {before}), {term})"
    return f"{text}, from {expression_text(scan.initial)}"


def _element(name: str, indices: tuple[str, ...]) -> str:
    return f"{name}[{', '.join(indices)}]" if indices else name


def axes_text(axes: tuple[Axis, ...]) -> str:
    """`m = 4096, n = 2048`."""
    return ", ".join(f"{axis.name} = {axis.extent}" for axis in axes)
