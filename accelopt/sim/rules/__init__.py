"""What a legal Program obeys."""

from __future__ import annotations

from accelopt.sim.errors import KernelError
from accelopt.sim.program import Program


def verify(program: Program) -> list[KernelError]:
    """Every rule that the Program breaks."""
    return []


def check(program: Program) -> None:
    """Raises the first violation."""
    for violation in verify(program):
        raise violation
