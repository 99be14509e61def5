"""One kernel for any number of rows, where only trip counts depend on them.

The Algorithm is written by the same schedule for other numbers of rows. Where the texts differ in trip
counts, shapes of results and asserts alone, and each differing number is a share of the rows, that share
of the argument's shape takes its place.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
from dataclasses import replace

from accelopt.algorithm.algorithm import (
    Algorithm,
    Array,
    Map,
    Read,
    Reduce,
    Scan,
    expressions_of,
    from_json,
    indices_of,
    walk,
)
from accelopt.algorithm.index import Axis, index_of
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.nests.nest import Nest, NotNested

TIMES = (2, 3, 5)
"""Multiples of the least number of rows for which the text is looked at."""
FREE = ("range(", "assert ", "shared_hbm", ".reshape(")
"""What stands in lines whose numbers may depend on the rows: nothing on the chip does."""


def for_any_rows(lifted: Lifted, schedule: Schedule | Nest, source: str, target: str) -> str:
    """The kernel `source` of a schedule for any number of rows that the tiles divide; `source` itself
    where there is no such kernel."""
    for axis in _row_axes(lifted.algorithm):
        name, place = next(
            (a.name, n) for a in lifted.algorithm.inputs for n in _places(lifted.algorithm, a, axis)
        )
        rows = f"{name}.shape[{place}]"
        made = _general(lifted, schedule, source, target, axis, rows)
        if made is not None:
            return made
    return source


def _general(
    lifted: Lifted, schedule: Schedule | Nest, source: str, target: str, axis: Axis, rows: str
) -> str | None:
    def written(extent: int) -> list[tokenize.TokenInfo]:
        text = _with_rows(lifted, axis, extent).lowered(schedule, target).source
        return list(tokenize.generate_tokens(io.StringIO(text).readline))

    try:
        doubled = written(2 * axis.extent)
    except (NotLowered, NotNested, ResourceShort):
        return None
    own = list(tokenize.generate_tokens(io.StringIO(source).readline))
    shares = _shares(own, doubled, axis.extent)
    if not shares:
        return None
    least = math.lcm(*(axis.extent // number for number in shares.values()))
    if axis.extent % least or axis.extent == least:
        return None
    for times in TIMES:
        try:
            other = written(times * least)
        except (NotLowered, NotNested, ResourceShort):
            return None
        if len(other) != len(own) or any(
            token.string != _at(own, n, shares, axis.extent, times * least)
            for n, token in enumerate(other)
            if token.type != tokenize.STRING
        ):
            return None
    lines = source.splitlines(keepends=True)
    for n, number in sorted(shares.items(), reverse=True):
        (row, first), (_, last) = own[n].start, own[n].end
        share = axis.extent // number
        said = rows if share == 1 else f"{rows} // {share}"
        lines[row - 1] = lines[row - 1][:first] + said + lines[row - 1][last:]
    for n, line in enumerate(lines):
        if line.lstrip().startswith("assert tuple("):
            head, mark, said = line.rpartition(', "')
            lines[n] = head + mark + re.sub(rf"\b{axis.extent}\b", "any", said)
    begins = next(n for n, line in enumerate(lines) if line.startswith("def "))
    body = next(n for n in range(begins, len(lines)) if lines[n].rstrip().endswith('"""')) + 1
    for n in range(begins + 1, body):
        lines[n] = re.sub(rf"\b{axis.extent}\b", "any", lines[n])
    check = f'    assert {rows} % {least} == 0, "{rows} must be a multiple of {least}"\n'
    return "".join([*lines[:body], check, *lines[body:]])


def _at(
    own: list[tokenize.TokenInfo], n: int, shares: dict[int, int], extent: int, rows: int
) -> str:
    """A token as it is for another number of rows."""
    return str(shares[n] * rows // extent) if n in shares else own[n].string


def _shares(
    own: list[tokenize.TokenInfo], doubled: list[tokenize.TokenInfo], extent: int
) -> dict[int, int]:
    """The tokens that double with the rows, with their numbers; none where others differ."""
    if len(own) != len(doubled):
        return {}
    found: dict[int, int] = {}
    for n, (one, other) in enumerate(zip(own, doubled, strict=True)):
        if one.string == other.string or one.type == other.type == tokenize.STRING:
            continue
        if one.type != tokenize.NUMBER or not one.string.isdigit():
            return {}
        number = int(one.string)
        free = any(mark in one.line for mark in FREE)
        if other.string != str(2 * number) or not number or extent % number or not free:
            return {}
        found[n] = number
    return found


def _row_axes(algorithm: Algorithm) -> list[Axis]:
    """The axes of results that stand alone wherever they stand: along them all is independent."""
    found = []
    for axis in algorithm.definitions[-1].axes:
        if axis.extent > 1 and _is_free(algorithm, axis):
            found.append(axis)
    return found


def _is_free(algorithm: Algorithm, axis: Axis) -> bool:
    own = index_of(axis)
    for definition in algorithm.definitions:
        bound = definition.reduced if isinstance(definition, Reduce) else ()
        if any(a.name == axis.name for a in bound) or (
            isinstance(definition, Scan) and definition.along == axis
        ):
            return False
        for part in (p for e in expressions_of(definition) for p in walk(e)):
            for index in indices_of(part):
                if axis in index.axes and (index != own or not isinstance(part, Read)):
                    return False
    arrays = [*algorithm.inputs, *algorithm.outputs]
    return any(_places(algorithm, a, axis) for a in algorithm.inputs) and all(
        a.given == a.shape for a in arrays if _places(algorithm, a, axis)
    )


def _places(algorithm: Algorithm, array: Array, axis: Axis) -> tuple[int, ...]:
    """The dimensions of an array that an axis runs along."""
    found: dict[int, None] = {}
    for definition in algorithm.definitions:
        if definition.out == array.name:
            found.update({n: None for n, a in enumerate(definition.axes) if a == axis})
        for part in (p for e in expressions_of(definition) for p in walk(e)):
            if isinstance(part, Read) and part.array == array.name:
                found.update({n: None for n, i in enumerate(part.indices) if axis in i.axes})
    return tuple(found)


def _with_rows(lifted: Lifted, axis: Axis, extent: int) -> Lifted:
    """The same with another extent of an axis."""
    algorithm = lifted.algorithm
    old, new = (Map("", (Axis(axis.name, e),), Read("", ())) for e in (axis.extent, extent))
    old_text, new_text = (
        Algorithm("", (), (d,), ()).to_json().partition('"axes": [')[2].partition("]")[0]
        for d in (old, new)
    )
    changed = from_json(algorithm.to_json().replace(old_text, new_text))

    def longer(array: Array) -> Array:
        places = _places(algorithm, array, axis)
        shape = tuple(extent if n in places else e for n, e in enumerate(array.shape))
        return replace(array, shape=shape, given=shape if places else array.given)

    inputs = tuple(map(longer, algorithm.inputs))
    changed = replace(changed, inputs=inputs, outputs=tuple(map(longer, algorithm.outputs)))
    arrays = iter(inputs)
    arguments = tuple(
        TensorArgument(next(arrays).given, a.dtype) if isinstance(a, TensorArgument) else a
        for a in lifted.arguments
    )
    return lifted._replace(algorithm=changed, arguments=arguments, twins=())
