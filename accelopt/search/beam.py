"""Beam search."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.published import ServiceResult
from accelopt.search.selection import Selected, Selection


class Beam:
    """Beam search: the `width` kernels that `selection` takes from each iteration's results."""

    def __init__(self, start: Selected, width: int, selection: Selection) -> None:
        self.width = width
        self.selection = selection
        self.best = start
        self._beam: Sequence[Selected] = (start,)

    def ask(self) -> Sequence[Selected]:
        """The present beam."""
        return self._beam

    def tell(self, results: Sequence[ServiceResult]) -> None:
        """Make the next beam."""
        self._beam = tuple(self.selection(results, self.width))
        self.best = min((self.best, *self._beam), key=lambda selected: selected.latency)
