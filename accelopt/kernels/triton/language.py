"""Triton solutions on a GPU: their moves, knobs and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelopt.awaiting import in_thread
from accelopt.kernels.gpu.language import Solutions
from accelopt.kernels.notes import note_on
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.tile_space import tile_space, with_values
from accelopt.kernels.triton.names import NOTES, sheet
from accelopt.kernels.triton.schemas import SCHEMAS, schema_of, solution_text
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Node

MOST_PROPOSALS = 48


class Triton(Solutions):
    """Solutions whose work is done by Triton kernels."""

    name = "triton"
    work = "by Triton kernels"

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """What `accelopt.kernels.triton.moves` can do, the most promising ones."""
        return await in_thread(proposals, node.source, MOST_PROPOSALS)

    async def space(self, node: Node) -> Space | None:
        """The knobs of a shipped kernel, else tiles and launch options of every launch."""
        if name := schema_of(node.source):
            sizes = self._problem(node.case).workload.workload.axes
            return SCHEMAS[name].space(name).model_copy(update={"shape": sizes})
        return await in_thread(tile_space, node.source, node.case.problem)

    def with_values(self, source: str, values: Mapping[str, Parameter]) -> str:
        """The solution with these tiles and launch options."""
        if name := schema_of(source):
            return solution_text(name, values)
        return with_values(source, values)

    def look_up(self, name: str, kernel: str) -> str:
        """Our notes on one Triton name."""
        return note_on(name, NOTES)

    def sheet(self, texts: Sequence[str]) -> str:
        """Our notes on the Triton names that stand in `texts`."""
        return sheet(texts)
