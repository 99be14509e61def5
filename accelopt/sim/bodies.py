"""What a trace has open: bodies of loops, and iterations of unrolled ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.sim.affine import LoopVariable
from accelopt.sim.call_sites import LoopKey
from accelopt.sim.program import LoopKind, ProgramNode, Tensor


class LoopIteration(NamedTuple):
    """One iteration of an unrolled loop. `loop` numbers this execution of the loop, `key` is the
    loop in the source. `depth` counts the bodies that were open before it."""

    key: LoopKey
    loop: int
    value: int
    traced_once: bool  # by the real tracer: not a static_range
    depth: int


@dataclass(eq=False)
class Body:
    """A list of nodes under construction and the scope of the tensors declared in it."""

    nodes: list[ProgramNode] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    variable: LoopVariable | None = None
    kind: LoopKind | None = None
    open: bool = True
    unrolled_loop: int | None = None

    def unrolled_child(self, loop: int | None) -> Body:
        """A scope of its own whose nodes go to this body: one iteration of an unrolled loop."""
        return Body(self.nodes, self.tensors, unrolled_loop=loop)
