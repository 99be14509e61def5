"""Random search: any untried action on any kernel found so far, all alike. What others are compared
with."""

from __future__ import annotations

import random
from collections.abc import Sequence

from accelopt.nodes import Action, Job, Node, Result, Want
from accelopt.search.strategy import Settings, options_of


class RandomWalk:
    """Draws evenly from all (kernel, untried action). A round is as many kernels as a beam's."""

    def __init__(self, start: Node, settings: Settings, seed: int) -> None:
        options_of("random", settings)
        self.best = start
        self.round = 1
        self._size = settings.beam * settings.plans * settings.samples
        self._random = random.Random(seed)
        self._known = {start.key: start}
        self._unlisted = [start]
        self._untried: list[tuple[Node, Action]] = []
        self._numbers = 0
        self._built = 0

    @property
    def kept(self) -> Sequence[Node]:
        """Every correct kernel, the fastest first."""
        return sorted(self._known.values(), key=lambda node: node.latency or 0.0)

    def ask(self) -> Job | None:
        """What can be done to a new kernel, else any action that nobody tried."""
        if self._unlisted:
            return self._job(Want.ACTIONS, self._unlisted.pop(0))
        while self._untried:
            drawn = self._random.randrange(len(self._untried))
            node, action = self._untried.pop(drawn)
            if action.key not in self._known:
                return self._job(Want.BUILD, node, action)
        return None

    def tell(self, result: Result) -> None:
        """Actions are untried; a correct kernel that is new may be gone on from."""
        self._untried += [(result.job.node, action) for action in result.actions]
        for node in result.nodes:
            if node.latency is not None and node.key not in self._known:
                self._known[node.key] = node
                self._unlisted.append(node)
        self.best = min(self._known.values(), key=lambda node: node.latency or float("inf"))
        self._built += result.job.want is Want.BUILD
        self.round = 1 + self._built // self._size

    def state(self) -> dict[str, object]:
        """All kernels by name with latency in milliseconds, and how much is left to try."""
        kernels = [{"name": node.name, "latency": node.latency} for node in self._known.values()]
        return {"kernels": kernels, "untried": len(self._untried)}

    def _job(self, want: Want, node: Node, action: Action | None = None) -> Job:
        self._numbers += 1
        return Job(self._numbers - 1, self.round, want, node, action)
