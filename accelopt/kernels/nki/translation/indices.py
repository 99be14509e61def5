"""nl.arange and nl.mgrid indices, and masks over them, as slices: what replaces them in `nki`."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import libcst as cst

LETTERS = "pxyzw"


class Untranslated(Exception):
    """A form that has no counterpart, in words."""


class Unreached(Untranslated):
    """A call that the trace does not come to."""


RAISES = "and the translation raises there"
"""How a sentence of one ends."""


class IndexAxis(NamedTuple):
    """One axis of an index: where it was made, its position and rank, its factor and length."""

    made: str
    position: int
    rank: int
    factor: str
    extent: str


class IndexText(NamedTuple):
    """An affine index as text: `start` plus its axes."""

    start: str
    axes: tuple[IndexAxis, ...]


class Limit(NamedTuple):
    """`bounded < stop` in a mask."""

    bounded: IndexText
    stop: str

    @property
    def left(self) -> str:
        """How many positions of its axis it leaves."""
        start, factor = self.bounded.start, self.bounded.axes[0].factor
        stop = self.stop if start == "0" else f"{self.stop} - ({start})"
        return stop if factor == "1" else f"-(-({stop}) // ({factor}))"


def text_of(node: cst.CSTNode) -> str:
    """A node's source."""
    return cst.Module([]).code_for_node(node).strip()


def plus(one: str, other: str) -> str:
    """A sum, without zeros."""
    if one == "0":
        return other
    return one if other == "0" else f"{one} + {other}"


def product(text: str, factor: str) -> str:
    """A product, without ones and zeros."""
    if text == "0" or factor == "1":
        return text
    if text == "1":
        return factor
    wrapped = f"({text})" if any(sign in text for sign in "+-/%") else text
    return f"{wrapped} * {factor}"


class Indices:
    """The indices and masks that a kernel's names stand for."""

    def __init__(self, language: str) -> None:
        self.language = language
        self.names: dict[str, IndexText | tuple[IndexText, ...]] = {}
        self.masks: dict[str, tuple[Limit, ...]] = {}
        self.conditions: dict[str, cst.Comparison] = {}

    def learn(self, target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
        """Notes an assignment of an index, an nl.mgrid or a mask; False for any other."""
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            pairs = list(zip(target.elements, value.elements, strict=True))
            if all(self.index(made.value) is not None for _, made in pairs):
                return all(self.learn(name.value, made.value) for name, made in pairs)
        grid = self._grid(value)
        if grid is not None:
            if isinstance(target, cst.Tuple):
                for element, index in zip(target.elements, grid, strict=True):
                    self.names[text_of(element.value)] = index
            else:
                self.names[text_of(target)] = grid
            return True
        if not isinstance(target, cst.Name):
            return False
        found = self.index(value)
        if found is not None:
            self.names[target.value] = found
            return True
        if isinstance(value, cst.Comparison):
            sides = [value.left, *(other.comparator for other in value.comparisons)]
            if all(self.index(side) is not None for side in sides):
                self.conditions[target.value] = value
                return True
        limits = self.limits(value)
        if limits:
            self.masks[target.value] = limits
            return True
        return False

    def index(self, node: cst.BaseExpression) -> IndexText | None:
        """The index that an expression is; None where no axis takes part."""
        if isinstance(node, cst.Name):
            found = self.names.get(node.value)
            return found if isinstance(found, IndexText) else None
        if isinstance(node, cst.Attribute):
            grid = self.names.get(text_of(node.value)) if isinstance(node.value, cst.Name) else None
            at = LETTERS.find(node.attr.value)
            return grid[at] if isinstance(grid, tuple) and not isinstance(grid, IndexText) else None
        if isinstance(node, cst.Call) and text_of(node.func) == f"{self.language}.arange":
            return self._arange(node)
        if isinstance(node, cst.Subscript):
            inner = self.index(node.value)
            return None if inner is None else _spread(inner, node)
        if isinstance(node, cst.BinaryOperation):
            return self._combined(node)
        return None

    def _combined(self, node: cst.BinaryOperation) -> IndexText | None:
        left, right = self.index(node.left), self.index(node.right)
        if left is None and right is None:
            return None
        one = left or IndexText(text_of(node.left), ())
        other = right or IndexText(text_of(node.right), ())
        if isinstance(node.operator, cst.Add):
            return IndexText(plus(one.start, other.start), (*one.axes, *other.axes))
        if isinstance(node.operator, cst.Subtract) and right is None:
            return IndexText(f"{one.start} - {other.start}", one.axes)
        if isinstance(node.operator, cst.Multiply) and (left is None or right is None):
            index, factor = (one, other.start) if right is None else (other, one.start)
            axes = tuple(a._replace(factor=product(a.factor, factor)) for a in index.axes)
            return IndexText(product(index.start, factor), axes)
        raise Untranslated(f"the index {text_of(node)}")

    def _arange(self, node: cst.Call) -> IndexText:
        bounds = [text_of(argument.value) for argument in node.args]
        start, stop = ("0", bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        extent = stop if start == "0" else f"{stop} - {start}"
        return IndexText(start, (IndexAxis(f"arange{id(node)}", 0, 1, "1", extent),))

    def _grid(self, node: cst.BaseExpression) -> tuple[IndexText, ...] | None:
        if not isinstance(node, cst.Subscript) or text_of(node.value) != f"{self.language}.mgrid":
            return None
        found: list[IndexText] = []
        for at, element in enumerate(node.slice):
            part = element.slice
            assert isinstance(part, cst.Slice) and part.upper is not None
            start = "0" if part.lower is None else text_of(part.lower)
            stop = text_of(part.upper)
            extent = stop if start == "0" else f"{stop} - {start}"
            axis = IndexAxis(f"mgrid{id(node)}.{at}", at, len(node.slice), "1", extent)
            found.append(IndexText(start, (axis,)))
        return tuple(found)

    # Masks.

    def limits(self, node: cst.BaseExpression) -> tuple[Limit, ...]:
        """What a mask demands; empty for what is none."""
        if isinstance(node, cst.Name):
            return self.masks.get(node.value, ())
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitAnd):
            return (*self.limits(node.left), *self.limits(node.right))
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return self._limit(node)
        return ()

    def _limit(self, node: cst.Comparison) -> tuple[Limit, ...]:
        [other] = node.comparisons
        left, right = node.left, other.comparator
        turned = isinstance(other.operator, (cst.GreaterThan, cst.GreaterThanEqual))
        index = self.index(right if turned else left)
        bound = text_of(left if turned else right)
        if index is None or len(index.axes) != 1:
            return ()
        inclusive = isinstance(other.operator, (cst.LessThanEqual, cst.GreaterThanEqual))
        return (Limit(index, f"{bound} + 1" if inclusive else bound),)

    # Subscripts.

    def sliced(self, index: IndexText, limits: tuple[Limit, ...]) -> tuple[str, tuple[str, ...]]:
        """The slice that an index is, and the lengths that its dimension splits into where the index
        has several axes."""
        ordered = sorted(index.axes, key=lambda axis: axis.position)
        if len(ordered) == 1:
            [axis] = ordered
            if axis.factor != "1":
                return _stepped(index.start, axis), ()
            return f"{index.start} : {self._stop(index, axis, limits)}", ()
        sizes = [axis.extent for axis in ordered]
        for outer, inner in itertools.pairwise(ordered):
            if outer.factor != product(inner.extent, inner.factor) and outer.factor != inner.extent:
                raise Untranslated("an index of several axes that do not follow one another")
        whole = " * ".join(f"({size})" if " " in size else size for size in sizes)
        return f"{index.start} : {plus(index.start, whole)}", tuple(sizes)

    def _stop(self, index: IndexText, axis: IndexAxis, limits: tuple[Limit, ...]) -> str:
        for limit in limits:
            bound = limit.bounded.axes[0]
            if (bound.position, bound.rank) != (axis.position, axis.rank):
                continue
            if limit.bounded.start == index.start and bound.factor == "1":
                return f"min({plus(index.start, axis.extent)}, {limit.stop})"
            return plus(index.start, f"min({axis.extent}, {limit.left})")
        return plus(index.start, axis.extent)


def _stepped(start: str, axis: IndexAxis) -> str:
    stop = plus(start, product(axis.extent, axis.factor))
    return f"{start} : {stop} : {axis.factor}"


def _spread(index: IndexText, node: cst.Subscript) -> IndexText:
    """`index[:, None]`: the axis at its place among others."""
    items = [element.slice for element in node.slice]
    kinds = [isinstance(item, cst.Index) and text_of(item.value) == "None" for item in items]
    if len(index.axes) != 1:
        raise Untranslated(f"the index {text_of(node)}")
    [axis] = index.axes
    return IndexText(index.start, (axis._replace(position=kinds.index(False), rank=len(kinds)),))
