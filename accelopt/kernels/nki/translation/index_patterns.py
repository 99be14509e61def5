"""Calls by position: expressions of nl.arange in `neuronxcc.nki`, patterns of steps in `nki`, and the
access patterns of `.ap` as indices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from accelopt.kernels.nki.translation.indices import (
    IndexText,
    Indices,
    Limit,
    Untranslated,
    plus,
    product,
    text_of,
)

FLAT = re.compile(r"(\w+)\.reshape\(\(math\.prod\(\1\.shape\),\)\)")
ROWS = re.compile(r"(\w+)\.reshape\(\(\1\.shape\[0\], math\.prod\(\1\.shape\[1:\]\)\)\)")
COMPARED = {
    "Equal": "equal", "NotEqual": "not_equal", "LessThan": "less", "LessThanEqual": "less_equal",
    "GreaterThan": "greater", "GreaterThanEqual": "greater_equal",
}  # fmt: skip


def position(indices: Indices, node: cst.BaseExpression) -> IndexText:
    """An affine expression of positions."""
    found = indices.index(node)
    if found is None:
        raise Untranslated(f"the expression {text_of(node)}")
    return found


def compared(indices: Indices, node: cst.BaseExpression) -> tuple[IndexText, str]:
    """`left < right` as a position that is compared with 0, and the comparison's name."""
    node = indices.conditions.get(text_of(node), node)
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        raise Untranslated(f"the condition {text_of(node)}")
    [other] = node.comparisons
    name = COMPARED.get(type(other.operator).__name__)
    if name is None:
        raise Untranslated(f"the condition {text_of(node)}")
    left, right = (
        indices.index(side) or IndexText(text_of(side), ())
        for side in (node.left, other.comparator)
    )
    turned = tuple(axis._replace(factor=_negative(axis.factor)) for axis in right.axes)
    start = left.start if right.start == "0" else plus(left.start, _negative(right.start))
    return IndexText(start, (*left.axes, *turned)), name


def pattern(index: IndexText, shape: tuple[int, ...]) -> dict[str, str]:
    """pattern, offset and channel_multiplier of a position over a tile of this shape."""
    factors = ["0"] * len(shape)
    for axis in index.axes:
        if axis.rank != len(shape):
            raise Untranslated(f"an index of {axis.rank} dimensions for a tile of {len(shape)}")
        factors[axis.position] = plus(factors[axis.position], axis.factor)
    steps = ", ".join(f"[{f}, {n}]" for f, n in zip(factors[1:], shape[1:], strict=True))
    return {"pattern": f"[{steps}]", "offset": index.start, "channel_multiplier": factors[0]}


def _negative(text: str) -> str:
    simple = text.isidentifier() or text.isdigit()
    return f"-{text}" if simple else f"-({text})"


def gathered(indices: Indices, node: cst.Subscript) -> str | None:
    """`table[rows[nl.arange(p)[:, None], 0], nl.arange(n)[None, :]]` with run-time rows as `.ap`."""
    items = [e.slice.value for e in node.slice if isinstance(e.slice, cst.Index)]
    if len(items) != 2 or len(node.slice) != 2 or not isinstance(items[0], cst.Subscript):
        return None
    inner = [e.slice.value for e in items[0].slice if isinstance(e.slice, cst.Index)]
    if len(inner) != 2 or indices.index(items[0]) is not None:
        return None
    rows, columns = indices.index(inner[0]), indices.index(items[1])
    if rows is None or columns is None or len(rows.axes) != 1 or len(columns.axes) != 1:
        return None
    owner, at = text_of(node.value), text_of(inner[1])
    tile = text_of(items[0].value) + ("" if at == "0" else f"[:, {at} : {at} + 1]")
    step = columns.axes[0].factor
    offset = "" if columns.start == "0" else f"offset={columns.start}, "
    return (
        f"{owner}.ap([[{owner}.shape[1], {rows.axes[0].extent}], [{step}, "
        f"{columns.axes[0].extent}]], {offset}vector_offset={tile}, indirect_dim=0)"
    )


def patterned(
    indices: Indices, node: cst.Subscript, limits: Sequence[Limit] = (), model: str = ""
) -> str:
    """Indices of which one has several axes, which may overlap as windows do, into a tensor or into its flat view,
    as an access pattern; masks, and the end of a tile that ends early (`model`, empty for none), cut it. Raises
    Untranslated for others."""
    base = text_of(node.value)
    flat, rows = FLAT.fullmatch(base), ROWS.fullmatch(base)
    owner = (flat or rows or [base, base])[1]
    items = [element.slice for element in node.slice]
    if not owner.isidentifier() or not all(isinstance(item, cst.Index) for item in items):
        raise Untranslated("an index of several axes that do not follow one another")
    strides = [_row(owner, dim + 1, len(items)) for dim in range(len(items))]
    strides = ["1"] if flat else [f"math.prod({owner}.shape[1:])", "1"] if rows else strides
    offset, axes = "0", dict[int, tuple[str, str]]()
    for dim, (item, stride) in enumerate(zip(items, strides, strict=True)):
        value = cst.ensure_type(item, cst.Index).value
        at = indices.index(value) or IndexText(text_of(value), ())
        offset = plus(offset, product(at.start, stride))
        for axis in at.axes:
            step, extent = axes.get(axis.position, ("0", axis.extent))
            ends = [limit.left for limit in limits if limit.bounded.axes[0].made == axis.made]
            ends += [f"{model}.shape[0]"] if model and dim == 0 else []
            extent = f"min({', '.join([extent, *ends])})" if ends else extent
            axes[axis.position] = plus(step, product(axis.factor, stride)), extent
    if sorted(axes) != list(range(len(axes))) or not axes:
        raise Untranslated("an index of axes that are not all there")
    pairs = ", ".join(f"[{step}, {extent}]" for step, extent in (axes[n] for n in sorted(axes)))
    return f"{owner}.ap([{pairs}]{'' if offset == '0' else f', offset={offset}'})"


def _row(owner: str, first: int, sizes: int) -> str:
    """The elements of a tensor's dimensions from one on."""
    if first >= sizes - 1:
        return "1" if first == sizes else f"{owner}.shape[{first}]"
    return f"math.prod({owner}.shape[{first}:])"
