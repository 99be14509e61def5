"""Moving elementwise work to an engine with time to spare."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, Option
from accelopt.kernels.nki.moves.places import ValuePlace, places
from accelopt.kernels.nki.moves.reading.polynomial import ONE
from accelopt.kernels.nki.moves.reading.reader import Reading, read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, code_of
from accelopt.kernels.nki.moves.reading.terms import operation_name
from accelopt.kernels.nki.moves.reading.values import (
    KnownCall,
    KnownConstant,
    Name,
    ReadValue,
    TensorValue,
    UnboundResult,
    shape_of,
)
from accelopt.kernels.nki.moves.surgery.rewriting import with_expression

ENGINES = ("vector", "scalar", "gpsimd")
ON_SCALAR = frozenset({"add", "subtract", "multiply"})
ARITHMETIC = frozenset({"add", "subtract", "multiply", "maximum", "minimum"})


class ChangeEngine:
    """Say which engine runs an elementwise instruction.

    before: y = nl.copy(acc)                      (the compiler gives it to the Scalar engine)
    after:  y = nisa.tensor_copy(acc, engine=nisa.vector_engine)

    For copies, one-number-a-row arithmetic and two-tensor arithmetic. Legal when the instruction
    exists on that engine: GpSimd reads no PSUM, the Scalar engine adds, subtracts and multiplies by
    one number a row only, two-tensor arithmetic runs on Vector and GpSimd.
    """

    name = "change_engine"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every instruction with a choice, on each other engine."""
        reading = read(kernel)
        for place in places(reading):
            for engine in ENGINES:
                changed = _rewritten(reading, place, engine)
                if changed is None:
                    continue
                text = (
                    f"Run {code_of(place.node).partition('(')[0]} in line "
                    f"{place.statement.line.number} on the {engine} engine."
                )
                made = partial(_replaced, kernel, place, changed)
                yield Option(place.site(self.name, text, engine=engine), made)


def _replaced(kernel: ParsedKernel, place: ValuePlace, text: str) -> ParsedKernel:
    changed = with_expression(place.statement.line, {place.node: cst.parse_expression(text)})
    return kernel.replaced(place.statement.path, [changed])


def _rewritten(reading: Reading, place: ValuePlace, engine: str) -> str | None:
    """The instruction with the engine named; None where it has no choice or is there already."""
    call = reading.calls.get(place.node)
    if call is None or _engine_of(call) == engine:
        return None
    kernel = reading.kernel
    suffix = f"engine={kernel.spelled(f'nisa.{engine}_engine')}"
    if engine == "gpsimd" and any(_in_psum(value) for value in call.values.values()):
        return None
    kept = [
        f"{keyword}={code_of(call.arguments[keyword])}"
        for keyword in ("dtype", "mask")
        if call.values.get(keyword, KnownConstant(None)) != KnownConstant(None)
    ]
    if call.name in {"nl.copy", "nisa.tensor_copy"}:
        parts = [code_of(call.arguments["src"]), *kept, suffix]
        return f"{kernel.spelled('nisa.tensor_copy')}({', '.join(parts)})"
    if call.name == "nisa.tensor_scalar":
        return _tensor_scalar(kernel, call, engine, suffix)
    return _binary(kernel, call, engine, kept, suffix)


def _in_psum(value: ReadValue) -> bool:
    if isinstance(value, UnboundResult):
        return value.buffer == "psum"
    return isinstance(value, TensorValue) and value.access.tensor.buffer == "psum"


def _tensor_scalar(kernel: ParsedKernel, call: KnownCall, engine: str, suffix: str) -> str | None:
    operations = {operation_name(call, "op0"), operation_name(call, "op1")} - {None}
    if engine == "gpsimd" or not operations <= ARITHMETIC:
        return None
    if engine == "scalar" and not operations <= ON_SCALAR:
        return None
    parts = [
        f"{keyword}={code_of(value)}"
        for keyword, value in call.arguments.items()
        if keyword != "engine"
    ]
    return f"{kernel.spelled('nisa.tensor_scalar')}({', '.join([*parts, suffix])})"


def _binary(
    kernel: ParsedKernel, call: KnownCall, engine: str, kept: list[str], suffix: str
) -> str | None:
    """nl.add and the like, and nisa.tensor_tensor."""
    if call.name == "nisa.tensor_tensor":
        operation, left, right = operation_name(call, "op"), "data1", "data2"
    else:
        operation, left, right = call.name.removeprefix("nl."), "x", "y"
    if operation not in ARITHMETIC or left not in call.arguments or right not in call.arguments:
        return None
    shapes = [shape_of(call.values[left]), shape_of(call.values[right])]
    if shapes[0] is None or _dtypes_differ(call, left, right):
        return None
    texts = [code_of(call.arguments[left]), code_of(call.arguments[right])]
    token = kernel.spelled(f"nl.{operation}")
    if shapes[0] == shapes[1]:
        if engine == "scalar":
            return None
        parts = [*texts, f"op={token}", *kept, suffix]
        return f"{kernel.spelled('nisa.tensor_tensor')}({', '.join(parts)})"
    column = (
        shapes[1] is not None
        and len(shapes[1]) == len(shapes[0]) == 2
        and shapes[1][1] == ONE
        and shapes[1][0] == shapes[0][0]
    )
    number = shapes[1] is None and not isinstance(call.values[right], (TensorValue, Name))
    if not (column or number) or engine == "gpsimd":
        return None
    if engine == "scalar" and operation not in ON_SCALAR:
        return None
    parts = [texts[0], f"op0={token}", f"operand0={texts[1]}", *kept, suffix]
    return f"{kernel.spelled('nisa.tensor_scalar')}({', '.join(parts)})"


def _dtypes_differ(call: KnownCall, left: str, right: str) -> bool:
    dtypes = {
        value.access.tensor.dtype
        for value in (call.values[left], call.values[right])
        if isinstance(value, TensorValue)
    }
    return dtypes != {"float32"}


def _engine_of(call: KnownCall) -> str:
    """Where the compiler puts an instruction (shared/reference/timing.md 1.5, measured)."""
    engine = call.values.get("engine")
    chosen = engine.canonical.rpartition(".")[2] if isinstance(engine, Name) else ""
    for name in ENGINES:
        if chosen.startswith(name):
            return name
    if call.name == "nisa.tensor_copy":
        return ""
    short = call.name.removeprefix("nl.")
    operations = (
        {operation_name(call, "op0"), operation_name(call, "op1")} - {None}
        if call.name == "nisa.tensor_scalar"
        else {short}
    )
    if call.name == "nl.copy" or (call.name == "nisa.tensor_scalar" and operations <= ON_SCALAR):
        return "scalar"
    right = call.values.get("y")
    if right is not None and short in ON_SCALAR and shape_of(right) is None:
        return "scalar"
    return "vector"
