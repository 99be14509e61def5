"""What masks become in `nki`, which has none: tiles that end early (`ragged`), and other tiles cut where
these, or the destinations of masked instructions, end.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from accelopt.kernels.nki.translation.facts import Fact
from accelopt.kernels.nki.translation.forms import like, masked
from accelopt.kernels.nki.translation.indices import Limit
from accelopt.kernels.nki.translation.rewriter import Rewriter


class Masking(Rewriter):
    """The part of the rewriting that knows where tiles end."""

    call_limits: dict[int, tuple[Limit, ...]]
    ragged: set[str]

    def _named(self, text: str, kind: str) -> str:
        raise NotImplementedError

    def _place(self, target: str, limits: tuple[Limit, ...] = ()) -> str:
        raise NotImplementedError

    def _is_ragged(self, text: str) -> bool:
        return bool(self.ragged & set(re.findall(r"\b[A-Za-z_]\w*\b", text)))

    def _cut(self, given: dict[str, str], fact: Fact) -> dict[str, str]:
        """Operands that are whole where another one ends early, as a mask said, cut to its size."""
        tiles = {
            key: tile
            for key, tile in fact.tiles.items()
            if key in given and "hbm" not in tile.buffer
        }
        early = [key for key in tiles if self._is_ragged(given[key])]
        if not early or len(early) == len(tiles):
            return given
        model = early[0]
        like = self._named(given[model], "operand")
        self.ragged.add(like)
        made = {**given, model: like}
        for key in tiles.keys() - set(early):
            ends = _ends(tiles[key].shape, tiles[model].shape, like)
            made[key] = f"{self._named(given[key], 'operand')}[{ends}]"
        return made

    def _masked_place(
        self, node: cst.Call, function: str, given: dict[str, str], fact: Fact, target: str
    ) -> tuple[str, dict[str, str]]:
        """What a mask leaves of a statement's target, and of the operands that are whole."""
        whole, place = self._place(target), self._place(target, self.call_limits[id(node)])
        early = [key for key in fact.tiles if key in given and self._is_ragged(given[key])]
        if (
            not (like(function) or masked(function))
            or fact.result is None
            or not (early or place != whole)
        ):
            return place, given
        if place == whole:
            model = self._named(given[early[0]], "operand")
            ends = _ends(fact.result.shape, fact.tiles[early[0]].shape, model)
            return f"{place}[{ends}]", {**given, early[0]: model}
        name = self._named(place, "place")
        made = dict(given)
        for key, tile in fact.tiles.items():
            if key in given and key not in early and "hbm" not in tile.buffer:
                ends = _ends(tile.shape, fact.result.shape, name)
                made[key] = f"{self._named(given[key], 'operand')}[{ends}]"
        return name, made

    def _limited(self, text: str, fact: Fact, key: str, limits: tuple[Limit, ...]) -> str:
        """What a mask leaves of an operand that is reduced."""
        tile = fact.tiles.get(key)
        axes = {limit.bounded.axes[0]: limit for limit in limits}
        found = {
            axis.position: limit.left
            for axis, limit in axes.items()
            if tile is not None and axis.rank == len(tile.shape)
        }
        if not found or tile is None:
            return text
        name = self._named(text, "operand")
        ends = [f"0 : min({name}.shape[{n}], {found[n]})" if n in found else ":"
                for n in range(len(tile.shape))]  # fmt: skip
        return f"{name}[{', '.join(ends)}]"

    def _store(
        self, made: cst.Call, given: dict[str, str], fact: Fact | None, limits: tuple[Limit, ...]
    ) -> Any:
        """A whole value is cut where a mask ends its destination."""
        dst, value = given["dst"], given["value"]
        tiles = {} if fact is None else fact.tiles
        if limits and not self._is_ragged(value) and {"dst", "value"} <= tiles.keys():
            place = self._named(dst, "place")
            ends = _ends(tiles["value"].shape, tiles["dst"].shape, place)
            dst, value = place, f"{self._named(value, 'operand')}[{ends}]"
        return cst.parse_expression(f"{self.nl}.store({dst}, {value})")


def _ends(shape: tuple[int, ...], like: tuple[int, ...], name: str) -> str:
    """A tile of one shape cut where another one of the same sizes, of that name, ends."""
    sizes = enumerate(zip(shape, like, strict=False))
    return ", ".join(
        f"0 : {name}.shape[{n}]" if one == other > 1 else ":" for n, (one, other) in sizes
    )
