"""Kernels of a plane that read along one axis and write along the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.launching import with_launch
from accelopt.kernels.cuda.programs.accesses import Access
from accelopt.kernels.cuda.programs.plane import Axis, PlaneReader, times_of
from accelopt.kernels.cuda.programs.quantities import number
from accelopt.kernels.cuda.programs.syntax import (
    Kernel,
    Unread,
    assigned,
    declared,
    names,
    replaced,
    said,
    walk,
)

SIDE = 32  # elements along each axis of a tile: a warp's threads


class Transposition(NamedTuple):
    """A kernel whose threads read `source` with neighbours along one axis, and store with neighbours
    along the other."""

    kernel: Kernel
    reads: Axis
    writes: Axis
    source: Access
    body: tuple[Node, ...]


def transposition(kernel: Kernel) -> Transposition:
    """The kernel as that. Raises Unread for any other."""
    reader = PlaneReader(kernel)
    body = [*reader.opening()]
    body = [*reader.before, *body]
    found = reader.accesses(body)
    if found.escaped or found.atomics:
        raise Unread("pointers that go elsewhere")
    inside = {made.name for part in body for one in walk(part) if one.type == "declaration"
              for made in declared(one)}  # fmt: skip
    if {name for part in body for name in assigned(part)} - inside:
        raise Unread("a thread that sets what is not its own")
    text = " ".join(map(said, body))
    parts = any(names(part) & reader.parts for part in body)
    if parts or "threadIdx" in text or re.search(r"blockIdx\s*\.\s*[xy]", text) or "return" in text:
        raise Unread("a thread that knows its place otherwise")
    x, y = reader.axes["x"], reader.axes["y"]
    stored = [one for one in found.found if one.writes]
    written = {one.pointer for one in stored}
    if len(stored) != 1 or any(one.pointer in written and not one.writes for one in found.found):
        raise Unread("no single store")
    (store,) = stored
    for writes, reads in ((x, y), (y, x)):
        if times_of(store.at, writes.name) != number(1) or store.reads:
            continue
        for one in found.found:
            across = times_of(one.at, writes.name)
            along = one.certain and times_of(one.at, reads.name) == number(1)
            apart = across is not None and across.terms and across != number(1)
            if along and apart and _same_only(found.found, one):
                _known_above(kernel, one, (x, y))
                return Transposition(kernel, reads, writes, one, tuple(body))
    raise Unread("nothing to turn")


def _same_only(every: tuple[Access, ...], one: Access) -> bool:
    """Whether the parameter is read at this index alone."""
    return all(other.at == one.at for other in every if other.pointer == one.pointer)


def _known_above(kernel: Kernel, one: Access, axes: tuple[Axis, Axis]) -> None:
    allowed = {*kernel.parameters, *(axis.name for axis in axes), "blockIdx.z"}
    if one.at.names - allowed:
        raise Unread("an index of other values")


def turned(found: Transposition, rows: int) -> str:
    """The source with tiles that are read along one axis and stored along the other, by blocks of 32 by
    `rows` threads."""
    kernel, launch = found.kernel, found.kernel.launch
    if launch.block[2] != 1:
        raise Unread("a block of three dimensions")
    across, down = -(-found.reads.covered // SIDE), -(-found.writes.covered // SIDE)
    if down > 65535:
        raise Unread("too many tiles")
    text = kernel.with_body(_lines(found, rows))
    text = re.sub(r"__launch_bounds__\s*\([^)]*\)\s*", "", text)
    grid = (across, down, launch.grid[2])
    return with_launch(text, launch._replace(grid=grid, block=(SIDE, rows, 1), shared=0))


def _lines(found: Transposition, rows: int) -> Iterator[str]:
    reads, writes, source = found.reads, found.writes, found.source
    kind = found.kernel.parameters[source.pointer].type
    inside = f"if ({reads.name} < ({reads.bound}) && {writes.name} < ({writes.bound})) {{"
    begin = {reads.name: f"blockIdx.x * {SIDE}", writes.name: f"blockIdx.y * {SIDE}"}
    yield f"__shared__ {kind} tile_[{SIDE}][{SIDE + 1}];"
    yield "#pragma unroll"
    yield f"for (int line_ = threadIdx.y; line_ < {SIDE}; line_ += {rows}) {{"
    yield f"  const {reads.type} {reads.name} = {begin[reads.name]} + threadIdx.x;"
    yield f"  const {writes.type} {writes.name} = {begin[writes.name]} + line_;"
    yield f"  {inside}"
    yield f"    tile_[line_][threadIdx.x] = {source.pointer}[{source.at.text}];"
    yield "  }"
    yield "}"
    yield "__syncthreads();"
    yield "#pragma unroll"
    yield f"for (int line_ = threadIdx.y; line_ < {SIDE}; line_ += {rows}) {{"
    yield f"  const {reads.type} {reads.name} = {begin[reads.name]} + line_;"
    yield f"  const {writes.type} {writes.name} = {begin[writes.name]} + threadIdx.x;"
    yield f"  {inside}"

    def change(node: Node) -> str | None:
        return "tile_[threadIdx.x][line_]" if node.id == source.node.id else None

    for part in found.body:
        yield from (f"    {line}" for line in replaced(part, change).splitlines())
    yield "  }"
    yield "}"
