"""Which operations are alike but for where their data lie.

A kernel that Python unrolls has as many operations as instances, and few forms of them. What depends
on the form alone (a price, the shape of an access, what an operation computes) is worked out once a
form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from accelopt.sim.timing.stream.operation import Operation

Result = TypeVar("Result")


class Formed(Protocol):
    """Something that knows an operation of its form."""

    @property
    def form(self) -> Operation:
        """The operation that stands for all of that form."""


class Forms:
    """The forms met so far. Each is known by the first operation that had it."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Operation] = {}

    def of(self, operation: Operation) -> Operation:
        """The first operation of the same form; itself when its mask makes it one of its own."""
        instruction = operation.instruction
        key: list[object] = [
            operation.opcode,
            operation.queue,
            operation.accumulates,
            operation.width,
            operation.kept,
            operation.belongs_to_matmul,
            operation.by_identity,
            operation.again,
            len(operation.reads),
        ]
        if instruction is not None:
            if instruction.mask.constraints:
                return operation
            attributes = instruction.attributes
            key += (len(attributes), *instruction.outputs, *attributes, *attributes.values())
            key += map(type, attributes.values())  # 1, 1.0 and True are equal and not the same
        for access in operation.reads:
            key += access.layout
        for access in operation.writes:
            key += access.layout
        return self._known.setdefault(tuple(key), operation)


def by_form(items: Iterable[Formed], function: Callable[[Operation], Result]) -> list[Result]:
    """What a function of the form alone says of each item."""
    known: dict[Operation, Result] = {}
    found: list[Result] = []
    for item in items:
        form = item.form
        if form not in known:
            known[form] = function(form)
        found.append(known[form])
    return found
