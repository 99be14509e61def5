"""A program written out for chosen teams: how many threads they have, how many neighbouring elements a
thread takes at once, and whether a row's elements stay in registers between its loops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.kernels.cuda.launching import MOST_THREADS, with_launch
from accelopt.kernels.cuda.programs.program import (
    Accumulator,
    Edit,
    Item,
    Loop,
    Once,
    Program,
    Team,
    Uniform,
)
from accelopt.kernels.cuda.programs.syntax import Unread
from accelopt.kernels.cuda.programs.wide import WIDEST, Group, body, groups, plain

WARP = 32


class Shape(NamedTuple):
    """How a program is distributed. `team` threads work together (0: the whole grid), blocks have
    `threads`, a thread takes `lanes` neighbours at once (1: no wide accesses). `kept` is how many such
    pieces of a row stay in registers (0: none). A grid along x has `blocks`, or as many as cover it.
    `counted` is how many places of what is counted a block has for itself (0: none)."""

    threads: int
    team: int = 0
    lanes: int = 1
    kept: int = 0
    blocks: int = 0
    streaming: bool = False
    counted: int = 0


def lanes_of(program: Program) -> list[int]:
    """How many elements make accesses of 16 bytes, for the smallest and the largest type that is
    accessed side by side, and twice as many; none where nothing is."""
    sizes = {group.size for loop in program.loops for group in groups(program.kernel, loop)}
    if not sizes:
        return []
    most = [WIDEST // min(sizes), WIDEST // max(sizes), 2 * WIDEST // min(sizes)]
    return [lanes for lanes in dict.fromkeys(most) if 1 < lanes <= WIDEST]


def written(program: Program, shape: Shape) -> str:
    """The source of a program in a shape. Raises Unread where it cannot have it."""
    writer = _Writer(program, shape)
    if (shape.threads % WARP or shape.team % WARP) and (shape.team or writer.sums()):
        raise Unread("blocks that are no whole warps")
    kernel = program.kernel
    text = kernel.with_body(writer.lines())
    text = re.sub(r"__launch_bounds__\s*\([^)]*\)", f"__launch_bounds__({shape.threads})", text)
    launch = kernel.launch
    blocks = writer.blocks()
    block = (shape.threads, *launch.block[1:])
    if block[0] * block[1] * block[2] > MOST_THREADS:
        raise Unread("blocks of too many threads")
    return with_launch(
        text, launch._replace(grid=(blocks, *launch.grid[1:]), block=block, shared=0)
    )


class _Writer:
    def __init__(self, program: Program, shape: Shape) -> None:
        self.program, self.shape, self.kernel = program, shape, program.kernel
        self.arrays = 0
        self.groups = [groups(self.kernel, loop) for loop in program.loops]

    def blocks(self) -> int:
        """Of the grid along x."""
        launch, shape = self.kernel.launch, self.shape
        if self.program.team is Team.GRID:
            if shape.blocks:
                return shape.blocks
            # the elements that the grid covered, or walked over in as many steps as before
            return max(1, -(-launch.grid[0] * launch.block[0] // (shape.threads * shape.lanes)))
        return -(-self.program.teams * shape.team // shape.threads)

    def lines(self) -> Iterator[str]:
        """The kernel's body."""
        yield from self._lines()
        if self.program.walks:
            yield "}"

    def _lines(self) -> Iterator[str]:
        shape, grid = self.shape, self.program.team is Team.GRID
        if grid:
            yield "const long long thread_ = (long long)blockIdx.x * blockDim.x + threadIdx.x;"
            yield "const long long threads_ = (long long)gridDim.x * blockDim.x;"
            if self.sums():
                yield f"const bool first_ = {self._first_of_block()};"
            if shape.counted:
                yield from self._counted()
                return
        else:
            team = "blockIdx.x"
            if shape.team != shape.threads:
                if self.program.walks:
                    raise Unread("blocks that walk over rows")
                per = shape.threads // shape.team
                yield f"const int team_ = blockIdx.x * {per} + threadIdx.x / {shape.team};"
                team = "team_"
            yield f"const int thread_ = threadIdx.x % {shape.team};"
            yield f"const int threads_ = {shape.team};"
            yield "const bool first_ = thread_ == 0;"
            if self.program.teams * shape.team % shape.threads:
                yield f"if ({team} >= {self.program.teams}) return;"
            text = list(self._items())
            yield from (re.sub(r"\bblockIdx\s*\.\s*x\b", team, line) for line in text)
            return
        yield from self._items()

    def _counted(self) -> Iterator[str]:
        """The kernel with a block's own places in shared memory, added to memory in the end. What is
        counted beyond them goes to memory at once."""
        counts = [one for loop in self.program.loops for one in loop.counts]
        if len({one.pointer for one in counts}) != 1 or self.kernel.launch.block[1:] != (1, 1):
            raise Unread("not one thing that is counted")
        pointer, kind = counts[0].pointer, counts[0].type
        each = (
            f"for (int at_ = threadIdx.x; at_ < {self.shape.counted}; at_ += {self.shape.threads})"
        )
        yield f"__shared__ {kind} places_[{self.shape.counted}];"
        yield f"{each} places_[at_] = 0;"
        yield "__syncthreads();"
        yield from self._items()
        yield "__syncthreads();"
        yield f"{each} {{"
        yield f"  if (places_[at_] != 0) atomicAdd(&{pointer}[at_], places_[at_]);"
        yield "}"

    def _counting(self, loop: Loop) -> Loop:
        edits = dict(loop.edits)
        for one in loop.counts if self.shape.counted else ():
            there = (f"{one.function}(&{{}}[", one.place, "], ", one.value, ")")
            own, memory = ((there[0].format(name), *there[1:]) for name in ("places_", one.pointer))
            test = ("((unsigned long long)(", one.place, f") < {self.shape.counted} ? ")
            edits[one.call.id] = Edit((*test, *own, " : ", *memory, ")"))
        return loop._replace(edits=edits)

    def _first_of_block(self) -> str:
        axes = [axis for axis, n in zip("xyz", self.kernel.launch.block, strict=True)
                if n > 1 or axis == "x"]  # fmt: skip
        return " && ".join(f"threadIdx.{axis} == 0" for axis in axes)

    def sums(self) -> bool:
        """Whether threads put values together."""
        return any(loop.accumulators for loop in self.program.loops)

    def _items(self) -> Iterator[str]:
        if self.sums() and self.kernel.launch.block[1:] != (1, 1):
            raise Unread("sums of a block of several dimensions")
        if not self.shape.kept:
            yield from self._sequence(self.program.items)
            return
        items = list(self.program.items)
        at = next(n for n, item in enumerate(items) if isinstance(item, Loop))
        yield from self._sequence(items[:at])
        rest = items[at:]
        yield f"if ({self._fits(items[:at])}) {{"
        yield from _indented(self._kept(rest))
        yield "} else {"
        yield from _indented(self._sequence(rest, lanes=1))
        yield "}"

    def _sequence(self, items: Sequence[Item], lanes: int = 0) -> Iterator[str]:
        loops = list(self.program.loops)
        for item in items:
            if isinstance(item, Loop):
                number = loops.index(item)
                yield from self._loop(
                    self._counting(item), self.groups[number], lanes or self.shape.lanes
                )
                yield from self._reduced(item.accumulators)
            else:
                yield from self._statement(item)

    def _statement(self, item: Uniform | Once) -> Iterator[str]:
        if isinstance(item, Once):
            yield "if (first_) {"
            yield from _indented(iter(item.text.splitlines()))
            yield "}"
        else:
            yield from item.text.splitlines()

    # Loops over memory

    def _loop(self, loop: Loop, parts: tuple[Group, ...], lanes: int) -> Iterator[str]:
        """Before: `for (i = low + thread; i < high; i += threads) body`. After: the same for groups of
        `lanes` neighbours where they are aligned, and for what is left over behind them."""
        low = loop.low.text if loop.low.terms else "0"
        if lanes == 1 or not parts:
            yield from self._one_by_one(loop, low)
            return
        if loop.low.number is None:
            raise Unread("neighbours from nobody knows where")
        first = -(-loop.low.number // lanes)
        aligned = " && ".join(group.aligned(lanes) for group in parts)
        yield "{"
        yield f"  long long whole_ = ({aligned}) ? (long long)({loop.high}) / {lanes} : 0;"
        yield (
            f"  if (whole_ < {first}) whole_ = {first};"
            if first
            else "  if (whole_ < 0) whole_ = 0;"
        )
        yield f"  for (long long group_ = {first} + thread_; group_ < whole_; group_ += threads_) {{"
        yield f"    const long long base_ = group_ * {lanes};"
        places = {group.name: group.name for group in parts}
        for group in parts:
            yield f"    alignas({WIDEST}) {group.type} {group.name}[{lanes}];"
        yield from _indented(self._group(loop, parts, places, lanes), 2)
        yield "  }"
        if first:
            yield from _indented(self._one_by_one(loop, low, f" && at_ < {first * lanes}"))
        yield from _indented(self._one_by_one(loop, f"whole_ * {lanes}"))
        yield "}"

    def _one_by_one(self, loop: Loop, start: str, below: str = "") -> Iterator[str]:
        """The loop with one element at a time, counted in 64 bits so that no step runs over."""
        bound = f"at_ < (long long)({loop.high}){below}"
        yield f"for (long long at_ = {start} + thread_; {bound}; at_ += threads_) {{"
        yield f"  const {loop.type} {loop.variable} = at_;"
        yield from _indented(plain(loop))
        yield "}"

    def _group(
        self, loop: Loop, parts: tuple[Group, ...], places: Mapping[str, str], lanes: int,
        quiet: frozenset[str] = frozenset(), skips: bool = False,
    ) -> Iterator[str]:  # fmt: skip
        """One group of neighbours: loads, the body for each, stores but for those in `quiet`;
        `skips` where the first may be below the loop's."""
        streaming = self.shape.streaming
        for group in parts:
            if group.loads:
                yield from group.load(places[group.name], "base_", lanes, streaming)
        yield "#pragma unroll"
        yield f"for (int lane_ = 0; lane_ < {lanes}; ++lane_) {{"
        yield f"  const {loop.type} {loop.variable} = base_ + lane_;"
        if skips:
            yield f"  if ({loop.variable} < {loop.low.number}) continue;"
        yield from _indented(body(loop, parts, places, lanes))
        yield "}"
        for group in parts:
            if group.stores and group.pointer not in quiet:
                yield from group.store(places[group.name], "base_", lanes, streaming)

    # Loops over registers

    def _fits(self, before: Sequence[Item]) -> str:
        """Whether a row is as wide as the registers hold, and its groups are aligned."""
        shape, loops = self.shape, self.program.loops
        whole = {g.pointer for loop, parts in zip(loops, self.groups, strict=True) for g in parts
                 if not loop.low.terms}  # fmt: skip
        for loop, parts in zip(loops, self.groups, strict=True):
            if loop.low.terms and (loop.low.number or -1) < 0:
                raise Unread("rows from nobody knows where")
            if loop.low.terms and any(g.stores or g.pointer not in whole for g in parts):
                raise Unread("rows of which the first elements may not be there")
        if len({loop.bound for loop in loops}) != 1 or shape.lanes == 1:
            raise Unread("rows of several widths")
        scope = " ".join(item.text for item in before if not isinstance(item, Loop))
        for part in [group for parts in self.groups for group in parts]:
            for name in part.rest.names:
                plainly = name in self.kernel.parameters or "." in name
                if not plainly and not re.search(rf"\b{name}\b", scope):
                    raise Unread("rows that begin nobody knows where yet")
        most = shape.team * shape.lanes * shape.kept
        high = f"(long long)({loops[0].high})"
        tests = [f"{high} % {shape.lanes} == 0", f"{high} <= {most}"]
        tests += [group.aligned(shape.lanes) for parts in self.groups for group in parts]
        return " && ".join(dict.fromkeys(tests))

    def _kept(self, items: Sequence[Item]) -> Iterator[str]:
        """The loops over pieces of a row that stay in registers from the first loop that reads them."""
        shape = self.shape
        every = {group.name: group for parts in self.groups for group in parts}
        for group in every.values():
            if any(g.rest != group.rest for parts in self.groups for g in parts
                   if g.name == group.name):  # fmt: skip
                raise Unread("rows that are read from several places")
            yield f"alignas({WIDEST}) {group.type} {group.name}[{shape.kept}][{shape.lanes}];"
        there: set[str] = set()
        leaves = any(not isinstance(item, Loop) and "return" in item.text for item in items)
        loops = list(self.program.loops)
        for item in items:
            if not isinstance(item, Loop):
                yield from self._statement(item)
                continue
            number = loops.index(item)
            parts = self.groups[number]
            yield "#pragma unroll"
            yield f"for (int piece_ = 0; piece_ < {shape.kept}; ++piece_) {{"
            yield f"  const long long base_ = (long long)(piece_ * {shape.team} + thread_) * {shape.lanes};"
            yield f"  if (base_ < ({item.high})) {{"
            fresh = tuple(g._replace(loads=g.loads and g.name not in there) for g in parts)
            later = {g.pointer for after in self.groups[number + 1 :] for g in after
                     if g.stores and _stores_all(g) and not leaves}  # fmt: skip
            places = {g.name: f"{g.name}[piece_]" for g in parts}
            skips = bool(item.low.terms)
            lines = self._group(item, fresh, places, shape.lanes, frozenset(later), skips)
            yield from _indented(lines, 2)
            yield "  }"
            yield "}"
            there |= set(places)
            yield from self._reduced(item.accumulators)

    # Sums

    def _reduced(self, sums: Sequence[Accumulator]) -> Iterator[str]:
        """Each thread's part of a sum becomes the team's: by shuffles in a warp, through shared memory
        between warps."""
        if not sums:
            return
        team = self.shape.team or self.shape.threads
        for one in sums:
            yield f"for (int step_ = {WARP // 2}; step_ > 0; step_ /= 2) {{"
            yield f"  const {one.type} other_ = __shfl_xor_sync(0xffffffffu, {one.name}, step_);"
            yield f"  {one.name} = {one.of(one.name, 'other_')};"
            yield "}"
        warps = team // WARP
        if warps == 1:
            return
        if team != self.shape.threads:
            raise Unread("several teams of several warps in a block")
        if self.program.walks:
            yield "__syncthreads();"
        for one in sums:
            self.arrays += 1
            array = f"parts{self.arrays}_"
            yield f"__shared__ {one.type} {array}[{warps}];"
            yield f"if (threadIdx.x % {WARP} == 0) {array}[threadIdx.x / {WARP}] = {one.name};"
        yield "__syncthreads();"
        for number, one in enumerate(reversed(sums)):
            array = f"parts{self.arrays - number}_"
            yield f"{one.name} = {array}[0];"
            yield "#pragma unroll"
            yield f"for (int warp_ = 1; warp_ < {warps}; ++warp_) {{"
            yield f"  {one.name} = {one.of(one.name, f'{array}[warp_]')};"
            yield "}"


def _stores_all(group: Group) -> bool:
    """Whether every iteration stores its element."""
    return any(one.writes and one.certain for one in group.shifts[0])


def _indented(lines: Iterator[str], by: int = 1) -> Iterator[str]:
    return ("  " * by + line for line in lines)
