"""What expressions of a kernel's text compute, as far as it takes to know a step of one kernel again
in another: functions and arrays, without factors, signs, places and the order of operands.

A meaning is a number; equal meanings have equal numbers in one `Meanings`.
"""

from __future__ import annotations

from collections.abc import Sequence

SAME = frozenset(
    "ap copy tensor_copy transpose nc_transpose dma_transpose load_transpose2d broadcast_to broadcast "
    "reshape astype expand_dims view float32 bfloat16 float16 negative abs_max load dma_copy".split()
)
"""Functions that give what they take, in another place, layout, format or sign."""
OTHER_NAMES = {
    "sub": "add", "subtract": "add", "mult": "multiply", "mul": "multiply", "div": "divide",
    "truediv": "divide", "max2": "maximum", "mean": "sum", "nc_matmul": "matmul", "dot": "matmul",
    "matmult": "matmul", "pow": "power",
}  # fmt: skip


class Meanings:
    """Makes meanings. `number` is that of any number, `fresh` that of a tile filled with one."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}
        self._parts: list[tuple[object, ...]] = []
        self.number = self._made("number")
        self.fresh = self._made("fresh")

    def _made(self, kind: str, *parts: object) -> int:
        key = (kind, *parts)
        if key not in self._known:
            self._known[key] = len(self._parts)
            self._parts.append(key)
        return self._known[key]

    def _is(self, meaning: int, kind: str) -> bool:
        return self._parts[meaning][0] == kind

    def _below(self, meaning: int) -> tuple[int, ...]:
        return tuple(part for part in self._parts[meaning][1:] if isinstance(part, int))

    def plain(self, meaning: int) -> bool:
        """Whether it is a number, or read as it is."""
        return meaning in (self.number, self.fresh) or self._is(meaning, "in")

    def read(self, array: str, offsets: Sequence[float]) -> int:
        """Elements of an argument, with what their indices begin at where that is not 0."""
        return self._made("in", array, tuple(sorted(offset for offset in offsets if offset)))

    def moved(self, meaning: int, offsets: Sequence[float]) -> int:
        """A part of what is read, beginning at other indices."""
        if not self._is(meaning, "in") or not any(offsets):
            return meaning
        array, old = self._parts[meaning][1:]
        assert isinstance(array, str) and isinstance(old, tuple)
        return self.read(array, [*old, *offsets])

    def apply(self, function: str, arguments: Sequence[int]) -> int:
        """A function of what some meanings stand for."""
        function = OTHER_NAMES.get(function, function)
        values = [a for a in arguments if a != self.fresh]
        if not values:
            return self.fresh
        tiles = [value for value in values if value != self.number]
        if not tiles:
            return self.number
        if function in SAME or (function in ("add", "maximum", "minimum") and len(values) == 1):
            return tiles[0]  # also what a loop gathers, beginning with nothing
        made = getattr(self, f"_{function}", None)
        if made is not None:
            return int(made(values, tiles))
        return self._made(function, *tiles)

    def _flat(self, kind: str, tiles: Sequence[int]) -> list[int]:
        parts: list[int] = []
        for tile in tiles:
            parts += self._below(tile) if self._is(tile, kind) else [tile]
        return sorted(parts)

    def _multiply(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        factors = self._flat("product of", tiles)
        for factor in factors:
            gate = self._made("sigmoid", factor)
            if gate in factors:
                factors.remove(factor)
                factors.remove(gate)
                return self._multiply((), [*factors, self._made("silu", factor)])
        return factors[0] if len(factors) == 1 else self._made("product of", *factors)

    def _square(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._multiply((), [tiles[0], tiles[0]])

    def _divide(self, values: Sequence[int], tiles: Sequence[int]) -> int:
        below = [value for value in values[1:2] if value != self.number]
        return self.apply("multiply", [values[0], *(self._reciprocal((), [b]) for b in below)])

    def _reciprocal(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        tile = tiles[0]
        if self._is(tile, "inverse of"):
            return self._below(tile)[0]
        if self._is(tile, "product of"):
            return self._multiply((), [self._reciprocal((), [f]) for f in self._below(tile)])
        if self._is(tile, "shifted"):
            (inner,) = self._below(tile)
            if self._is(inner, "exp"):
                return self._made("sigmoid", *self._below(inner))
        return self._made("inverse of", tile)

    def _rsqrt(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._reciprocal((), [self._made("sqrt", tiles[0])])

    def _add(self, values: Sequence[int], tiles: Sequence[int]) -> int:
        if self.number in values:
            inner = self._add(tiles, tiles) if len(tiles) > 1 else tiles[0]
            return inner if self._is(inner, "shifted") else self._made("shifted", inner)
        terms = self._flat("sum of", tiles)
        return self._made("sum of", *terms)

    def _relu(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._maximum([tiles[0], self.number], tiles)

    def _maximum(self, values: Sequence[int], _: Sequence[int]) -> int:
        return self._made("larger of", *sorted(values))

    def _matmul(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._made("matmul", *sorted(tiles))

    def _sum(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._reduced("sum", tiles[0])

    def _max(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._reduced("max", tiles[0])

    def _min(self, _: Sequence[int], tiles: Sequence[int]) -> int:
        return self._reduced("min", tiles[0])

    def _reduced(self, kind: str, tile: int) -> int:
        """What a tile is combined to; what pieces of it were combined to is no other value."""
        return tile if self._is(tile, kind) else self._made(kind, tile)
