"""The PTX of each line of the source, by `.loc`."""

from __future__ import annotations

from collections.abc import Mapping

from accelopt.ptx.module import Module, SourcePlace, Statement


def by_source(module: Module) -> Mapping[SourcePlace, tuple[Statement, ...]]:
    """The statements of each line of the source, in the order of the text. What was inlined stands
    under its own line and under the lines that called it; empty when the text has no `.loc`."""
    found: dict[SourcePlace, list[Statement]] = {}
    for function in module.functions:
        for one in function.statements:
            for place in dict.fromkeys(one.source):
                found.setdefault(place, []).append(one)
    return {place: tuple(statements) for place, statements in sorted(found.items())}
