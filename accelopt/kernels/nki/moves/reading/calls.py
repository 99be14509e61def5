"""What calls in a kernel give: NKI's instructions, methods of tensors, index arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from accelopt.kernels.nki.moves.reading.arithmetic import constant_of, float_of
from accelopt.kernels.nki.moves.reading.indexing import IndexSlice
from accelopt.kernels.nki.moves.reading.polynomial import ZERO, Polynomial, Symbol, opaque
from accelopt.kernels.nki.moves.reading.results import Partition, dtype_named, result_of
from accelopt.kernels.nki.moves.reading.signatures import SIGNATURES, WRITES
from accelopt.kernels.nki.moves.reading.source import code_of
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    Number,
    Ramp,
    ReadValue,
    Sequence,
    TensorValue,
    UnboundResult,
    Unknown,
    whole,
)

if TYPE_CHECKING:
    from accelopt.kernels.nki.moves.reading.expressions import Scope


def read_call(scope: Scope, node: cst.Call) -> ReadValue:
    """What a call gives; what it reads and writes is noted in the scope's statement."""
    assert scope.statement is not None
    name = scope.kernel.canonical(node.func)
    if isinstance(node.func, cst.Attribute) and name not in SIGNATURES:
        method = _method(scope, node)
        if method is not None:
            return method
    values = [scope.evaluate(argument.value) for argument in node.args]
    if name == "nl.program_id" and len(values) == 1 and constant_of(values[0]) is not None:
        return Number(Polynomial.symbol(Symbol(code_of(node))))
    simple = _simple_call(name, values)
    if simple is not None:
        return simple
    if name not in SIGNATURES:
        return _unknown_call(scope, values)
    arguments: dict[str, cst.BaseExpression] = {}
    by_name: dict[str, ReadValue] = {}
    for position, (argument, value) in enumerate(zip(node.args, values, strict=True)):
        signature = SIGNATURES[name]
        if argument.keyword is None and position >= len(signature):
            return _unknown_call(scope, values)
        key = argument.keyword.value if argument.keyword else signature[position]
        arguments[key], by_name[key] = argument.value, value
    call = KnownCall(name, node, arguments, by_name)
    scope.calls[node] = call
    for key, value in by_name.items():
        if key in WRITES.get(name, ()) and isinstance(value, TensorValue):
            scope.statement.writes.append(value.access)
            for dim in value.access.dims or ():
                scope.statement.mentions |= dim.loops
            if key != "reduce_res" and name == "nl.store":
                continue
            if key == "dst":
                continue
        scope.use(value)
    return result_of(call)


def _unknown_call(scope: Scope, values: list[ReadValue]) -> Unknown:
    """A helper or an instruction not known here: it may write whatever it is given."""
    assert scope.statement is not None
    scope.statement.opaque = True
    for value in values:
        scope.use(value)
        if isinstance(value, TensorValue):
            scope.statement.writes.append(value.access)
    return Unknown(tuple(values))


def _method(scope: Scope, node: cst.Call) -> ReadValue | None:
    assert isinstance(node.func, cst.Attribute)
    base = node.func.value
    if isinstance(base, cst.Name) and base.value in scope.kernel.aliases:
        return None
    if scope.kernel.canonical(node.func) in {"np.dtype.type", "nl.float32", "np.float32"}:
        return None
    owner = scope.evaluate(base)
    values = [scope.evaluate(argument.value) for argument in node.args]
    if isinstance(owner, Unknown) and code_of(node.func).endswith(".type") and values:
        return KnownConstant(float_of(values[0]))
    if not isinstance(owner, TensorValue):
        return None
    member = node.func.attr.value
    sizes = values[0].items if values and isinstance(values[0], Sequence) else tuple(values)
    shape = tuple(item.polynomial for item in sizes if isinstance(item, Number))
    if member == "reshape" and len(shape) == len(sizes) and owner.access.tensor.buffer == "hbm":
        tensor = owner.access.tensor
        alias = KernelTensor(tensor.name, shape, tensor.dtype, "hbm", tensor.path, root=tensor)
        return TensorValue(whole(alias, node))
    if member == "broadcast_to" and len(shape) == len(sizes):
        scope.use(owner)
        return UnboundResult(shape, owner.access.tensor.dtype, "sbuf")
    if member == "astype":
        scope.use(owner)
        return UnboundResult(owner.access.shape, dtype_named(values[0]) if values else None, "sbuf")
    return _unknown_call(scope, [owner, *values])


def _simple_call(name: str | None, values: list[ReadValue]) -> ReadValue | None:
    numbers = [v.polynomial for v in values if isinstance(v, Number)]
    exact = len(numbers) == len(values) and bool(values)
    if name == "nl.arange" and exact:
        start = numbers[0] if len(numbers) > 1 else ZERO
        return Ramp(start, numbers[-1] - start)
    if name == "nl.ds" and exact and len(numbers) == 2:
        bounds = Number(numbers[0]), Number(numbers[0] + numbers[1])
        return IndexSlice((*bounds, KnownConstant(None)))
    if name == "slice" and exact and len(numbers) == 2:
        return IndexSlice((Number(numbers[0]), Number(numbers[1]), KnownConstant(None)))
    if name == "nl.par_dim" and exact:
        return Partition((), numbers[0])
    if name in {"min", "max"} and exact:
        constants = [number.constant for number in numbers]
        if None not in constants:
            choose = min if name == "min" else max
            return Number(Polynomial.number(choose(constants)))  # type: ignore[type-var,arg-type]
        text = ", ".join(n.render(lambda symbol: symbol.name) for n in numbers)
        return Number(opaque(f"{name}({text})", tuple(numbers)))
    if name == "int" and exact:
        return Number(numbers[0])
    if name in {"np.float32", "nl.float32", "np.int32", "np.uint16", "float"} and values:
        return KnownConstant(float_of(values[0]))
    if name and name.split(".")[0] in {"np", "math"}:
        return Unknown(tuple(values))
    return None
