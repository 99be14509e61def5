"""How often the loops of the device run, by executing what their conditions depend on.

Only that is executed: registers, the instructions that write them, the loops around. Where no argument
is among it, the numbers are the text's; otherwise they hold for the arguments that are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from accelopt.sim.access import Tensor
from accelopt.sim.compute.executor import Executable
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Instruction, Loop, Program, ProgramNode, is_dynamic, rewritten


def counted(program: Program, arrays: Sequence[np.ndarray] | None = None) -> Program:
    """The Program with its loops of the device as loops of so many iterations as they run on the
    arrays of its arguments; itself where it has none. One that other loops enter several times has
    the mean of its iterations, rounded up.

    Raises KernelValueError where the numbers depend on arguments and there are no arrays.
    """
    around = dict.fromkeys(loop for loops, _ in program.walk() for loop in loops)
    dynamic = [loop for loop in around if is_dynamic(loop)]
    if not dynamic:
        return program
    deciding = _deciding(program)
    by_data = bool(deciding.intersection(program.arguments))
    if by_data and arrays is None:
        said = "how often this loop of the device runs depends on the inputs."
        mend = "Without them no time is known: give inputs, or bounds that are numbers."
        raise KernelValueError("dynamic_loop", said, mend, source=dynamic[0].source)
    part = replace(
        program,
        body=rewritten(program.body, lambda node: node if _decides(node, deciding) else None),
        arguments=program.arguments if by_data else (),
        results=(),
        result_shapes=(),
    )
    executable = Executable(part, threads=1)
    executable.run(arrays if arrays is not None and by_data else ())
    trips = {
        variable.id: -(-sum(entries) // max(len(entries), 1))
        for variable, entries in executable.trips.items()
    }
    return replace(program, body=rewritten(program.body, partial(_with_trips, trips=trips)))


def _deciding(program: Program) -> set[Tensor]:
    """All tensors on which a condition may depend."""
    found: set[Tensor] = set()
    grows = True
    while grows:
        before = len(found)
        for _, instruction in program.walk():
            if instruction.opcode.ends_loop or not found.isdisjoint(_written(instruction)):
                found.update(access.tensor for access in instruction.accesses_read)
        grows = len(found) > before
    return found


def _written(instruction: Instruction) -> set[Tensor]:
    return {access.tensor for access in instruction.outputs.values()}


def _decides(node: ProgramNode, deciding: set[Tensor]) -> bool:
    """Whether a node is an instruction that decides, or a loop of such."""
    if isinstance(node, Loop):
        return bool(node.body)
    return node.opcode.ends_loop or not deciding.isdisjoint(_written(node))


def _with_trips(node: ProgramNode, trips: dict[int, int]) -> ProgramNode | None:
    if not isinstance(node, Loop) or not is_dynamic(node):
        return node
    times = trips.get(node.variable.id, 0)
    variable = replace(node.variable, trips=times)
    return replace(node, variable=variable, body=node.body[1:]) if times else None
