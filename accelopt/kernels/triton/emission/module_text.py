"""The module of a schedule: its kernels, and a host function that launches them like the one that was lifted."""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm.index import ZERO, Axis, Index, element_number, index_of
from accelopt.algorithm.ir import Algorithm, Array, Map, Read
from accelopt.kernels.triton.emission.functions import FORMATS, HELPERS, number_text
from accelopt.kernels.triton.emission.groups import (
    Group,
    arrays_of,
    digits,
    flat,
    joined,
    member_of,
    needs,
    together,
)
from accelopt.kernels.triton.emission.kernel_text import KernelText
from accelopt.kernels.triton.emission.schedule import NotEmitted, Schedule, Split
from accelopt.kernels.triton.emission.segments import by_segments
from accelopt.kernels.triton.emission.simplifying import simplified
from accelopt.kernels.triton.emission.splitting import in_two
from accelopt.kernels.triton.emission.tiles import Tiles
from accelopt.kernels.triton.emission.value_text import RESERVED
from accelopt.parsing import parse_python

Arrays = Mapping[str, Array]
IMPORTS = ("import torch", "import triton", "import triton.language as tl",
           "from triton.tools.tensor_descriptor import TensorDescriptor")  # fmt: skip
"""What kernels need, the last where they have descriptors."""


def _returned_as_given(algorithm: Algorithm) -> Algorithm:
    """Without results that are an input that nothing changes."""
    left = set[str]()
    for name, array in ((a.name, a.updates) for a in algorithm.outputs if a.updates):
        definition = algorithm.definition(name)
        body = definition.expression if isinstance(definition, Map) else None
        own = element_number(
            tuple(map(index_of, definition.axes)), [a.extent for a in definition.axes]
        )
        if not isinstance(body, Read) or body.array != array:
            continue
        if element_number(body.indices, algorithm.input(array).shape) == own:
            left.add(name)
    return replace(
        algorithm,
        definitions=tuple(d for d in algorithm.definitions if d.out not in left),
        outputs=tuple(array for array in algorithm.outputs if array.name not in left),
    )


def prepared(algorithm: Algorithm, splits: tuple[Split, ...] = (), segments: str = "") -> Algorithm:
    """The Algorithm whose definitions a schedule's kernels compute."""
    found = simplified(_returned_as_given(algorithm))
    if segments:
        found = by_segments(found, segments) or found
    for split in splits:
        found = in_two(found, split)
    return found


def groups_of(algorithm: Algorithm, members: tuple[tuple[str, ...], ...]) -> list[Group]:
    """The groups of a prepared Algorithm's definitions. Raises NotEmitted."""
    arrays, found = arrays_of(algorithm), list[Group]()
    for names in members:
        own, *others = (member_of(algorithm.definition(name)) for name in names)
        group = together(Group((own,)), others, arrays)
        if group is None:
            raise NotEmitted(f"{', '.join(names)} cannot be computed in one kernel")
        found.append(joined(group))
    return found


class KernelsText(NamedTuple):
    """Kernels with what they call, and the lines of a host function whose arguments have the names of the
    Algorithm's inputs: it launches them and returns the results. `imports` are what both need."""

    imports: tuple[str, ...]
    kernels: tuple[str, ...]
    launches: tuple[str, ...]


def kernels_text(algorithm: Algorithm, schedule: Schedule) -> KernelsText:
    """The kernels and launches of a schedule. Raises NotEmitted for a definition or a schedule that has no
    kernel."""
    ready = prepared(algorithm, schedule.splits, schedule.segments)
    for name in (*(a.name for a in ready.inputs), *(d.out for d in ready.definitions)):
        if not name.isidentifier() or keyword.iskeyword(name) or name in RESERVED:
            raise NotEmitted(f"{name} cannot be the name of a tensor in the kernels")
    arrays = arrays_of(ready)
    groups = groups_of(ready, tuple(kernel.members for kernel in schedule.kernels))
    results = [array.name for array in algorithm.outputs]
    own = {array.name: array.updates for array in algorithm.outputs if array.updates}
    kernels: list[str] = []
    launches: list[str] = []
    helpers: set[str] = set()
    made = {array.name for array in ready.inputs}
    for number, (group, kernel) in enumerate(zip(groups, schedule.kernels, strict=True)):
        later = {name for other in groups[number + 1 :] for name in needs(other)}
        name = f"kernel_{number}"
        stored = {m.out for m in group.members if m.out in results or m.out in later}
        text = KernelText(name, group, kernel, arrays, stored)
        over = {out: own[out] for out in text.parameters if out in own and out not in made
                and _in_place(out, own[out], groups, text.tiles, arrays)}  # fmt: skip
        text.waits = any(_moves(*pair, text.tiles, arrays) for pair in over.items())
        kernels.append(ast.unparse(parse_python("\n".join(text.lines()))) + "\n")
        helpers |= text.values.helpers
        for out in (p for p in text.parameters if p not in made):
            made.add(out)
            if out in over:
                launches.append(f"{out} = {over[out]}")
            else:
                member = group.member(out)
                partial = any(a.name == out and a.partial for a in algorithm.outputs)
                fill = (
                    None
                    if member is None or partial or member.scatter is None
                    else (member.scatter.nothing)
                )
                launches.append(_made(arrays[out], fill, out in results, ready.inputs[0].name))
        count = str(text.tiles.programs)
        options = f"num_warps={kernel.warps}, num_stages={kernel.stages}"
        options += f", maxnreg={kernel.registers}" if kernel.registers else ""
        launches.append(f"{name}[({count},)]({text.arguments()}, {options})")
    for result, array in own.items():
        if f"{result} = {array}" not in launches:
            launches += [f"{array}.copy_({result}.view_as({array}))"] if result in made else []
            launches.append(f"{result} = {array}")
    launches.append(f"return {', '.join(results)}")
    called = [HELPERS[helper] for helper in HELPERS if helper in helpers]
    imports = IMPORTS[: 4 if any(kernel.descriptors for kernel in schedule.kernels) else 3]
    return KernelsText(imports, (*called, *kernels), tuple(launches))


def _in_place(out: str, array: str, groups: list[Group], tiles: Tiles, arrays: Arrays) -> bool:
    """Whether a kernel may write a result over the input whose memory it has: nobody reads an element of
    it but the program that writes the element, before it does."""
    group, number = tiles.group, groups.index(tiles.group)
    member = group.member(out)
    assert member is not None
    if any(array in needs(later) for later in groups[number + 1 :]):
        return False
    if {*group.free} - {*member.definition.axes}:
        return False
    place = element_number(member.place, arrays[out].shape)
    for reader in group.members:
        for read in reader.reads:
            if read.array != array:
                continue
            behind = tiles.walked is not None and (
                not {tiles.walked} <= reader.every_axis & member.every_axis
                or tiles.passes[reader.out] > tiles.passes[out]
            )
            found = flat(read, arrays)
            if behind or (found != place and not _within_tile(found, place, tiles)):
                return False
    return True


def _moves(out: str, array: str, tiles: Tiles, arrays: Arrays) -> bool:
    """Whether elements of a result depend on others of the memory that it is written to."""
    member = tiles.group.member(out)
    place = member and element_number(member.place, arrays[out].shape)
    reads = [read for reader in tiles.group.members for read in reader.reads]
    return any(read.array == array and flat(read, arrays) != place for read in reads)


def _within_tile(found: Index, place: Index, tiles: Tiles) -> bool:
    """Whether what a program reads lies among what it writes: elements beside each other, of one tile."""
    if tiles.walked is not None:
        return False
    programs, own = dict[Axis, Index](), dict[Axis, Index]()
    for axis in tiles.grid:
        size = tiles.sizes[axis]
        programs[axis] = index_of(Axis(f"{axis.name}@", tiles.count(axis))) * size
        own[axis] = programs[axis] + index_of(Axis(f"{axis.name}@in", size))
    others = dict.fromkeys(place.axes - programs.keys(), ZERO)
    first = place.substitute({**programs, **others})
    written, read = place.substitute(own) - first, found.substitute(own) - first
    sides = digits(written)
    if sides is None:
        return False
    low, high = read.bounds
    return low >= 0 and high < math.prod(side.extent for side in sides)


def _made(array: Array, fill: float | None, result: bool, beside: str) -> str:
    if result and array.dtype not in FORMATS:
        raise NotEmitted(f"{array.name} is {array.dtype}, which the kernels do not compute in")
    shape = array.given if result else array.shape
    how = "empty" if fill is None else "full" if fill else "zeros"
    number = f", {number_text(fill)}" if fill else ""
    return (
        f"{array.name} = torch.{how}({shape!r}{number}, dtype=torch.{array.dtype}, "
        f"device={beside}.device)"
    )
