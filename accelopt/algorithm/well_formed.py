"""Whether a record is an Algorithm in every part: for one that another process says it has found."""

from __future__ import annotations

import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from accelopt.algorithm import ir
from accelopt.algorithm.value_nodes import NEUTRAL


def well_formed(algorithm: ir.Algorithm) -> ir.Algorithm:
    """The Algorithm. Raises ValueError where a field holds what it is not for, an extent is below 1, an
    expression reads what no input and no earlier definition is, with another number of indices than that
    has axes, or has axes that its definition has not."""
    for record in ir.each_once(algorithm, _records):
        _check_fields(record)
    ranks = {array.name: len(array.shape) for array in algorithm.inputs}
    for definition in algorithm.definitions:
        reduced = definition.reduced if isinstance(definition, ir.Reduce) else ()
        if isinstance(definition, ir.Scan) and definition.along not in definition.axes:
            raise ValueError(f"{definition.out} runs along an axis that it has not")
        if isinstance(definition, ir.Reduce) and definition.combiner not in NEUTRAL:
            raise ValueError(f"{definition.out} combines by {definition.combiner}")
        axes = {*definition.axes, *reduced}
        for expression in ir.expressions_of(definition):
            if ir.axes_of(expression) - axes:
                raise ValueError(f"{definition.out} is made of axes that it has not")
            for part in ir.walk(expression):
                if isinstance(part, ir.Read) and ranks.get(part.array) != len(part.indices):
                    raise ValueError(f"{definition.out} reads {part.array}, which is not there")
                if isinstance(part, ir.Indirect) and not isinstance(
                    part.element, (ir.Read, ir.Indirect)
                ):
                    raise ValueError(f"{definition.out} looks up what is no element")
        ranks[definition.out] = len(definition.axes)
    defined = {d.out: tuple(axis.extent for axis in d.axes) for d in algorithm.definitions}
    if len(ranks) != len(algorithm.inputs) + len(algorithm.definitions):
        raise ValueError("two arrays have one name")
    for output in algorithm.outputs:
        if defined.get(output.name) != output.shape:
            raise ValueError(f"the output {output.name} is not what defines it")
    return algorithm


def _records(record: Any) -> list[Any]:
    """The records right below one."""
    found: list[Any] = []
    waiting = [getattr(record, field.name) for field in fields(record)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting.extend(value)
        elif is_dataclass(value):
            found.append(value)
    return found


def _check_fields(record: Any) -> None:
    for name, kind in _kinds(record.__class__).items():
        value = getattr(record, name)
        if not _is(value, kind):
            raise ValueError(f"the {name} of this {type(record).__name__} is {value!r:.40}")
        if name in ("extent", "divisor", "shape", "given"):
            sizes = value if isinstance(value, tuple) else (value,)
            if any(size < 1 for size in sizes):
                raise ValueError(f"the {name} of this {type(record).__name__} is {value!r:.40}")


@cache
def _kinds(record: Any) -> dict[str, Any]:
    """What the fields of a record are for."""
    hints = typing.get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


def _is(value: object, kind: Any) -> bool:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_is(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(_is(one, arguments[0]) for one in value)
        return len(value) == len(arguments) and all(map(_is, value, arguments))
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind
