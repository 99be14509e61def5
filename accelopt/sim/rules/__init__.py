"""What a legal Program obeys.

Rules that the kernel's Python breaks while it is traced are decided there, by the functions of
`indexing`, `operands` and `kernels`; the rules here look at the finished Program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accelopt.sim.errors import KernelError
from accelopt.sim.program import Program

Rule = Callable[[Program], Iterator[KernelError]]


def program_rules() -> tuple[Rule, ...]:
    """The rules of finished Programs, in the order in which they are tried."""
    from accelopt.sim.rules import dependencies, instructions, whole_program

    return (
        whole_program.instruction_count,
        instructions.instructions,
        whole_program.addresses,
        whole_program.buffer_sizes,
        whole_program.direct_allocation,
        dependencies.output_dependencies,
        dependencies.unwritten_reads,
    )


def verify(program: Program) -> list[KernelError]:
    """Every rule that the Program breaks."""
    return [violation for rule in program_rules() for violation in rule(program)]


def check(program: Program) -> None:
    """Raises the first violation."""
    for rule in program_rules():
        for violation in rule(program):
            raise violation
