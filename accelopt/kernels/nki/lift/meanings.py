"""The meaning of each opcode: the value of one element of an instruction's result.

As `accelopt.sim.compute` computes it, but in real numbers: what is left of formats are roundings to
narrower ones.
"""

from __future__ import annotations

from collections.abc import Callable

from accelopt.algorithm.index import Index
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.nki.lift import elementwise, movement, reductions
from accelopt.kernels.nki.lift.execution_points import Contents, Moment
from accelopt.kernels.nki.lift.instruction_element import WriteSite
from accelopt.sim.instruction_set import by_opcode
from accelopt.sim.program import Instruction

MEANINGS: dict[str, Callable[[WriteSite], Value]] = by_opcode(movement, elementwise, reductions)


def meaning(
    reaching: Contents,
    instruction: Instruction,
    output: str,
    coordinates: tuple[Index, ...],
    place: Moment,
) -> Value:
    """The value of the element at `coordinates` of an output. Raises NotLifted."""
    site, opcode = WriteSite(reaching, instruction, coordinates, place), instruction.opcode
    found = MEANINGS.get(opcode)
    if found is None or output not in ("result", "reduce_result"):
        raise site.refusal(opcode.not_lifted or f"{opcode} has no algorithm")
    if output == "reduce_result":
        return site.stored(reductions.register(site, found), instruction.outputs[output])
    value = found(site)
    same = opcode.transfers and site.same_format()
    return value if same else site.stored(value, instruction.result)
