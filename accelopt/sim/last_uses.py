"""Where the tensors of a body were last used, for passes that move instructions within it."""

from __future__ import annotations

from accelopt.sim.access import Access
from accelopt.sim.program import Loop, ProgramNode, Tensor


class LastUses:
    """The last position among some nodes at which a tensor is touched, and is written; -1 before
    the first. Positions may be noted in any order."""

    def __init__(self) -> None:
        self._touched: dict[Tensor, int] = {}
        self._written: dict[Tensor, int] = {}

    def note(self, position: int, node: ProgramNode) -> None:
        """Takes note of a node that stands at a position."""
        if isinstance(node, Loop):
            for child in node.body:
                self.note(position, child)
            return
        for access in node.inputs.values():
            self._touch(access, position)
        written = self._written
        for access in node.outputs.values():
            self._touch(access, position)
            if written.get(access.tensor, -1) < position:
                written[access.tensor] = position

    def _touch(self, access: Access, position: int) -> None:
        if self._touched.get(access.tensor, -1) < position:
            self._touched[access.tensor] = position
        for item in access.indirect:
            self._touch(item.index, position)

    def touched(self, tensor: Tensor) -> int:
        """Where the tensor was last read or written."""
        return self._touched.get(tensor, -1)

    def written(self, tensor: Tensor) -> int:
        """Where the tensor was last written."""
        return self._written.get(tensor, -1)
