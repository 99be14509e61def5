"""How the shapes of one instruction's operands must fit each other.

The tracer makes operands that fit; a Program that came from elsewhere is proven by these rules, so that
neither the executor nor the timing meets shapes that their arithmetic was not made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accelopt.sim.access import Access
from accelopt.sim.isa.opcode import Rule
from accelopt.sim.program import Instruction


def one_each(partitions: tuple[int, ...], access: Access) -> tuple[int, ...]:
    """The shape of one element for each partition, of the rank of `access`."""
    return (*partitions, *(1 for _ in access.shape[1:]))


def _fits(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether a tile is repeated along axes of length 1; one of fewer axes lacks its last ones."""
    if len(shape) > len(result):
        return False
    padded = (*shape, *(1 for _ in range(len(result) - len(shape))))
    return all(mine in (1, theirs) for mine, theirs in zip(padded, result, strict=True))


def into_result(instruction: Instruction) -> Iterator[str]:
    """Every operand fits into the result."""
    result = instruction.outputs.get("result")
    for name, access in instruction.inputs.items():
        if result is not None and not _fits(access.shape, result.shape):
            yield f"cannot bring its operand {name} {access.shape} into {result.shape}"


def moves(name: str) -> Rule:
    """Elements are copied in order: shapes fit, or only group the same number of them differently."""

    def rule(instruction: Instruction) -> Iterator[str]:
        data, result = instruction.inputs[name], instruction.result
        regrouped = len(data.shape) != len(result.shape) and data.elements == result.elements
        if not regrouped and not _fits(data.shape, result.shape):
            yield f"cannot bring {data.shape} into {result.shape}"

    return rule


def counts(expected: Callable[[Instruction], dict[str, int]]) -> Rule:
    """Operands have so many elements."""

    def rule(instruction: Instruction) -> Iterator[str]:
        operands = {**instruction.inputs, **instruction.outputs}
        for name, count in expected(instruction).items():
            if name in operands and operands[name].elements != count:
                yield f"has an operand {name} of {operands[name].shape}, not of {count} elements"

    return rule


def anything(instruction: Instruction) -> Iterator[str]:
    """No rule."""
    return iter(())
