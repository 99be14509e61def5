"""What both directions of a translation know: names, the facts of each call, and what has no counterpart."""

from __future__ import annotations

from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

from accelopt.kernels.nki.translation.facts import CallFacts, Fact
from accelopt.kernels.nki.translation.names import ModuleNames


class Rewriter(cst.CSTTransformer):
    """Rewrites a module; `problems` are what it could not, as (line, sentence)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, facts: CallFacts, names: ModuleNames) -> None:
        super().__init__()
        self.facts, self.names = facts, names
        self.nl, self.nisa = names.language, names.isa
        self.problems: list[tuple[int, str]] = []

    def _fact(self, node: cst.CSTNode) -> Fact | None:
        place = self.get_metadata(PositionProvider, node, None)
        if place is None:
            return None
        return self.facts.at(
            (place.start.line, place.start.column, place.end.line, place.end.column)
        )

    def _line(self, node: cst.CSTNode) -> int:
        place: Any = self.get_metadata(PositionProvider, node, None)
        return 0 if place is None else int(place.start.line)

    def _give_up(self, node: cst.CSTNode, said: str) -> None:
        self.problems.append((self._line(node), said))
