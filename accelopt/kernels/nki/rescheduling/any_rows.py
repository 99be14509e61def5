"""One kernel for any numbers of rows, where only trip counts depend on them.

The Algorithm is written by the same nest for other numbers of rows. Where the texts differ in trip
counts, shapes of results and asserts alone, and each differing number is a multiple of a share of the
rows, that of the argument's shape takes its place.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.nests.nest import Nest, NotNested
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted

TIMES = (2, 3, 5)
"""Multiples of the least number of rows for which the text is looked at."""
FREE = ("range(", "assert ", "shared_hbm", ".reshape(")
"""What stands in lines whose numbers may depend on the rows: nothing on the chip does."""
SHAPE_ASSERT = re.compile(r'(assert tuple\(\w+\.shape\) == \()([^()]*)(\), "\w+ must be )[^"]*"')


class Rows(NamedTuple):
    """An axis of which there may be any number, with its `name` in the text and the argument's dimension
    that it is read from; of the tokens that depend on it, the share of the number in the axis."""

    axis: Axis
    longer: Longer
    name: str
    read: str
    shares: Mapping[int, Fraction]

    @property
    def least(self) -> int:
        """What a number of rows is a multiple of."""
        return math.lcm(*(share.denominator for share in self.shares.values()))


def for_any_rows(lifted: Lifted, nest: Nest, source: str, target: str) -> str:
    """The kernel `source` of a nest for any numbers of rows that the tiles divide; `source` itself
    where there is no such kernel."""
    text = _Text(lifted, nest, source, target)
    found: list[Rows] = []
    for axis, longer in _row_axes(lifted.algorithm):
        rows = text.rows(axis, longer, found)
        if rows is not None and text.holds([*found, rows]):
            found.append(rows)
    return text.written(found) if found else source


def authored(lifted: Lifted, nest: Nest, source: str, target: str) -> str:
    """The kernel `source` of a nest for any numbers of rows, in its author's module and words."""
    return lifted.authored(for_any_rows(lifted, nest, source, target))


class _Text:
    """A lowered kernel by its tokens, and what they are for other numbers of rows."""

    def __init__(self, lifted: Lifted, nest: Nest, source: str, target: str) -> None:
        self.lifted = lifted
        self.nest = nest
        self.source = source
        self.target = target
        self.own = _tokens(source)

    def other(self, rows: Sequence[tuple[Axis, Longer, int]]) -> list[tokenize.TokenInfo]:
        """The tokens for other extents of some axes; none where it has no such kernel."""
        lifted = self.lifted
        for axis, longer, extent in rows:
            lifted = _with_rows(lifted, axis, longer, extent)
        try:
            return _tokens(lifted.lowered(self.nest, self.target).source)
        except NotNested:
            return []

    def rows(self, axis: Axis, longer: Longer, found: Sequence[Rows]) -> Rows | None:
        """The tokens that double with an axis; None where others change, or one that does with an axis
        that was `found`."""
        taken = {n for one in found for n in one.shares}
        if any(one.longer.axes & longer.axes or one.longer.dimensions & longer.dimensions
               for one in found):  # fmt: skip
            return None
        other = self.other([(axis, longer, 2 * axis.extent)])
        shares: dict[int, Fraction] = {}
        if len(other) != len(self.own):
            return None
        for n, (one, twice) in enumerate(zip(self.own, other, strict=True)):
            if one.string == twice.string or one.type == twice.type == tokenize.STRING:
                continue
            if one.type != tokenize.NUMBER or not one.string.isdigit() or n in taken:
                return None
            alone = self.own[n - 1].string in ("(", ",") and self.own[n + 1].string in (")", ",")
            free = alone and any(mark in one.line for mark in FREE)
            if twice.string != str(2 * int(one.string)) or one.string == "0" or not free:
                return None
            shares[n] = Fraction(int(one.string), axis.extent)
        array, place = next(
            (a.name, k) for a in self.lifted.algorithm.inputs
            if (k := _given(a, axis, longer)) is not None
        )  # fmt: skip
        name = f"size_{axis.name}"
        while re.search(rf"\b{name}\b", self.source):
            name += "_"
        rows = Rows(axis, longer, name, f"{array}.shape[{place}]", shares)
        return rows if shares and rows.least < axis.extent else None

    def holds(self, found: list[Rows]) -> bool:
        """Whether the text is that for other numbers of rows, too."""
        for times in TIMES:
            other = self.other([(r.axis, r.longer, times * r.least) for r in found])
            if len(other) != len(self.own):
                return False
            wanted = {
                n: str(share * times * r.least) for r in found for n, share in r.shares.items()
            }
            if any(
                token.string != wanted.get(n, self.own[n].string)
                for n, token in enumerate(other)
                if token.type != tokenize.STRING
            ):
                return False
        return True

    def written(self, found: list[Rows]) -> str:
        """The text with names for numbers of rows, which it asks to be multiples of the least."""
        said = {
            n: f"{rows.name}{'' if share.numerator == 1 else f' * {share.numerator}'}"
            f"{'' if share.denominator == 1 else f' // {share.denominator}'}"
            for rows in found
            for n, share in rows.shares.items()
        }
        lines = self.source.splitlines(keepends=True)
        for n in sorted(said, reverse=True):
            (row, first), (_, last) = self.own[n].start, self.own[n].end
            lines[row - 1] = lines[row - 1][:first] + said[n] + lines[row - 1][last:]
        begins = next(n for n, line in enumerate(lines) if line.startswith("def "))
        body = next(n for n in range(begins, len(lines)) if lines[n].rstrip().endswith('"""')) + 1
        algorithm = self.lifted.algorithm
        for array in (*algorithm.inputs, *algorithm.outputs):
            shape = list(map(str, array.given))
            for rows in found:
                if (place := _given(array, rows.axis, rows.longer)) is not None:
                    shape[place] = rows.name
            before, after = f"{array.name} {array.given}", ", ".join(shape)
            for n in range(begins + 1, body):
                lines[n] = lines[n].replace(before, f"{array.name} ({after})")
        top = [f"    {rows.name} = {rows.read}\n" for rows in found]
        top += [
            f'    assert {rows.name} % {rows.least} == 0, "{rows.name} must be a multiple of '
            f'{rows.least}"\n'
            for rows in found
            if rows.least > 1
        ]
        text = "".join([*lines[:body], *top, *lines[body:]])
        return SHAPE_ASSERT.sub(_with_message, text)


def _with_message(asked: re.Match[str]) -> str:
    """An assert on a shape, with what it asks in its message."""
    shape = asked[2].rstrip(",").replace(", ", " x ")
    return f'{asked[1]}{asked[2]}{asked[3]}{shape}"'


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


class Longer(NamedTuple):
    """What grows with an axis: other axes that it is the outermost part of, and dimensions of arrays."""

    axes: frozenset[Axis]
    dimensions: frozenset[tuple[str, int]]


def _row_axes(algorithm: ir.Algorithm) -> Iterator[tuple[Axis, Longer]]:
    """The axes of results that stand alone, or outermost, wherever they stand: along them all is
    independent."""
    for axis in algorithm.definitions[-1].axes:
        if axis.extent > 1 and (longer := _longer(algorithm, axis)):
            yield axis, longer


def _longer(algorithm: ir.Algorithm, axis: Axis) -> Longer | None:
    """What grows with an axis; None where that is more than trip counts and shapes, or no argument has
    the axis as a dimension."""
    extents = {array.name: array.shape for array in (*algorithm.inputs, *algorithm.outputs)}
    extents |= {d.out: tuple(a.extent for a in d.axes) for d in algorithm.definitions}
    places = list(_places(algorithm))
    axes, dimensions = {axis}, set[tuple[str, int]]()
    before = -1
    while before != len(axes) + len(dimensions):
        before = len(axes) + len(dimensions)
        for array, n, index in places:
            if (array, n) in dimensions or axes.intersection(index.axes):
                own = _outermost(index, extents[array][n])
                if own is None or axes.intersection(
                    (index - index_of(own) * _step(index, own)).axes
                ):
                    return None
                axes.add(own)
                dimensions.add((array, n))
    if len({array for array, _ in dimensions}) < len(dimensions):
        return None
    for definition in algorithm.definitions:
        bound = (
            (definition.along,)
            if isinstance(definition, ir.Scan)
            else ir.own_axes(definition)[len(definition.axes) :]
        )
        parts = [part for part in ir.parts_in(definition) if not isinstance(part, ir.Read)]
        if axes.intersection(bound) or any(
            axes.intersection(index.axes) for part in parts for index in ir.indices_of(part)
        ):
            return None
    found = Longer(frozenset(axes), frozenset(dimensions))
    arrays = [*algorithm.inputs, *algorithm.outputs]
    grown = [a for a in arrays if any(name == a.name for name, _ in dimensions)]
    known = all(_given(a, axis, found) is not None for a in grown)
    return found if known and any(a in algorithm.inputs for a in grown) else None


def _places(algorithm: ir.Algorithm) -> Iterator[tuple[str, int, Index]]:
    """Each dimension of an array that is written or read, with its index."""
    for definition in algorithm.definitions:
        for n, own in enumerate(definition.axes):
            yield definition.out, n, index_of(own)
        for read in ir.reads_in(definition):
            for n, index in enumerate(read.indices):
                yield read.array, n, index


def _step(index: Index, axis: Axis) -> int:
    return dict(index.terms).get(axis, 0)


def _outermost(index: Index, extent: int) -> Axis | None:
    """The axis that cuts a dimension of this extent into its largest parts; None where there is none."""
    for axis in index.axes:
        step = _step(index, axis)
        low, high = (index - index_of(axis) * step).bounds
        if step * axis.extent == extent and low >= 0 and high < step:
            return axis
    return None


def _given(array: ir.Array, axis: Axis, longer: Longer) -> int | None:
    """The dimension of an array, as it is given, that an axis is; None where it is none alone."""
    for n, extent in enumerate(array.shape):
        if (array.name, n) in longer.dimensions:
            after = extent // axis.extent * math.prod(array.shape[n + 1 :])
            return next(
                (k for k, e in enumerate(array.given)
                 if e == axis.extent and math.prod(array.given[k + 1 :]) == after), None
            )  # fmt: skip
    return None


def _with_rows(lifted: Lifted, axis: Axis, longer: Longer, extent: int) -> Lifted:
    """The same with another extent of an axis."""
    algorithm = lifted.algorithm

    def grown(number: int) -> int:
        return number // axis.extent * extent

    texts = {}
    for one in longer.axes:
        forms = (
            ir.Map("", (Axis(one.name, e),), ir.Read("", ()))
            for e in (one.extent, grown(one.extent))
        )
        old, new = (
            ir.Algorithm("", (), (form,), ()).to_json().partition('"axes": [')[2].partition("]")[0]
            for form in forms
        )
        texts[old] = new
    pattern = "|".join(map(re.escape, texts))
    changed = ir.from_json(re.sub(pattern, lambda found: texts[found[0]], algorithm.to_json()))

    def longer_array(array: ir.Array) -> ir.Array:
        place = _given(array, axis, longer)
        shape = (
            grown(e) if (array.name, n) in longer.dimensions else e
            for n, e in enumerate(array.shape)
        )  # fmt: skip
        given = (extent if k == place else e for k, e in enumerate(array.given))
        return replace(array, shape=tuple(shape), given=tuple(given))

    inputs = tuple(map(longer_array, algorithm.inputs))
    changed = replace(changed, inputs=inputs, outputs=tuple(map(longer_array, algorithm.outputs)))
    arrays = iter(inputs)
    arguments = tuple(
        TensorArgument(next(arrays).given, a.dtype) if isinstance(a, TensorArgument) else a
        for a in lifted.arguments
    )
    return lifted._replace(algorithm=changed, arguments=arguments, twins=())
