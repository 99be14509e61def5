"""Beam search: plans and samples for each of the best kernels, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.nodes import Job, Node, Result, Want
from accelopt.search.candidate_selection import SELECTIONS
from accelopt.search.strategy import Settings, options_of


class Beam:
    """The `beam` kernels that the run's selection takes from each round's results.

    A round ends when all of its kernels are developed. After one that made nothing new, the fastest
    kernels that were never developed take the places; it is the last where there is none, and it made
    nothing at all. Where another try may do better, one more round of the same kernels follows it.
    """

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        options_of("beam", settings)
        self.width = settings.beam
        self.selection = SELECTIONS[settings.selection]
        self.best = start
        self.round = 1
        self._asked = 0
        self._number = 0
        self._told: list[Result] = []
        self._beam: Sequence[Node] = (start,)
        self._known = {start.key: start}
        self._developed: set[str] = set()
        self._fresh = False
        self._tried_again = False

    @property
    def kept(self) -> Sequence[Node]:
        """The present beam."""
        return self._beam

    def ask(self) -> Job | None:
        """The next kernel of the beam."""
        if self._asked == len(self._beam):
            return None
        node, number = self._beam[self._asked], self._number
        self._asked += 1
        self._number += 1
        self._developed.add(node.key)
        goal = min((n.latency for n in self._beam if n.latency and _simulated(n)), default=None)
        return Job(number, self.round, Want.DEVELOP, node, goal=goal)

    def tell(self, result: Result) -> None:
        """The last result of a round makes the next beam."""
        self._told.append(result)
        correct = (node for node in result.nodes if node.latency is not None)
        self.best = min((self.best, *correct), key=lambda node: node.latency or 0.0)
        self._fresh |= any(node.key not in self._known for node in result.nodes)
        self._known |= {node.key: node for node in result.nodes}
        if len(self._told) < len(self._beam):
            return
        made = any(told.nodes for told in self._told)
        again = not (made or self._tried_again) and any(told.again for told in self._told)
        self._tried_again = again
        chosen = self.selection(self._told, self.width)
        left = [] if self._fresh else self._undeveloped()
        self._beam = self._beam if again and not left else tuple(left or chosen)
        self._told, self._fresh, self._asked = (
            [],
            False,
            0 if made or left or again else len(self._beam),
        )
        self.round += 1

    def _undeveloped(self) -> list[Node]:
        correct = [n for n in self._known.values() if n.latency and n.key not in self._developed]
        return sorted(correct, key=lambda node: node.latency or 0.0)[: self.width]

    def state(self) -> dict[str, object]:
        """The beam by name, with latencies in milliseconds."""
        return {"beam": [{"name": node.name, "latency": node.latency} for node in self._beam]}


def _simulated(node: Node) -> bool:
    """Whether predictions and measurements are the same; a device may well disagree with them."""
    return node.profile is not None and node.profile.simulated
