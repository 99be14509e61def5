"""Every move by name."""

from __future__ import annotations

import importlib
from functools import cache

from accelopt.kernels.moves import methods_of
from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Move, Option, Site
from accelopt.kernels.nki.moves.reading.source import ParsedKernel

MOVES = {name: method for name, method in methods_of("nki").items() if not method.of_schedules}


@cache
def move(name: str) -> Move:
    """The move of a name. Raises IllegalMove when there is none."""
    if name not in MOVES:
        raise IllegalMove(f"there is no move {name!r}; there are: {', '.join(MOVES)}")
    module, _, attribute = MOVES[name].place.partition(":")
    found: Move = getattr(importlib.import_module(module), attribute)()
    return found


def option(site: Site, kernel: ParsedKernel, facts: Facts) -> Option:
    """What `site` stands for on this kernel. Raises IllegalMove when its move offers no such thing."""
    for found in move(site.move).options(kernel, facts):
        if found.site.parameters == site.parameters:
            return found
    raise IllegalMove(f"{site.move} with {dict(site.parameters)} is not possible here")
