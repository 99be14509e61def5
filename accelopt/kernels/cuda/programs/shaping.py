"""Rules that read a kernel as a program of a team and write it for another shape."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launching import MOST_THREADS
from accelopt.kernels.cuda.programs.distribution import WARP, Shape, lanes_of, written
from accelopt.kernels.cuda.programs.matrices import MatrixTile, with_tensor_cores
from accelopt.kernels.cuda.programs.plainly import plainly
from accelopt.kernels.cuda.programs.products import Product, product
from accelopt.kernels.cuda.programs.program import Program, Team
from accelopt.kernels.cuda.programs.shuffles import by_trees
from accelopt.kernels.cuda.programs.syntax import SIZES, Kernel, Unread, body_of, read, said, walk
from accelopt.kernels.cuda.programs.teams import programs
from accelopt.kernels.cuda.programs.tiles import SIDE, THREADS, Tile, tiled
from accelopt.kernels.cuda.programs.transposes import transposition, turned
from accelopt.kernels.cuda.programs.wide import groups
from accelopt.kernels.moves import METHODS
from accelopt.nodes import Action, Rewrite, made

Values = Mapping[str, int]
"""Whole numbers that the contract gives, by the kernel's parameters."""
MULTIPROCESSORS = 132  # of an H100 or H200: grids that walk are multiples of it
MOST_PIECES = 8
MOST_KEPT = 256  # bytes of a row that a thread keeps: 64 registers
MOST_SHARED = 48 << 10  # bytes of static shared memory
COUNTED = ("int", "unsigned", "unsigned int", "unsigned long long", "float", "double")
MATRIX_TILES = (  # of as many sums, the faster on an H200 first (2048 by 2048 by 2048 halves)
    MatrixTile(128, 256, 32, 4, blocks=1),
    MatrixTile(128, 256, 64, 3, blocks=1),
    MatrixTile(256, 128, 64, 3, blocks=1),
    MatrixTile(128, 128, 64, 3),
    MatrixTile(128, 128, 32, 4),
    MatrixTile(128, 128, 64, 3, warp_columns=32),
    MatrixTile(128, 128, 32, 4, warp_columns=32),
    MatrixTile(64, 64, 64, 4, warp_rows=32, warp_columns=32, blocks=3),
)
READ = 32  # sums that take as long as reading a line of an operand's tile; an assumption
TEAMS = (256, 128, 512, 64, 1024, 32)


class Offer(NamedTuple):
    """A shape, and the share of the time that is expected to go away with it."""

    shape: Shape
    sentence: str
    promise: float


def vector_loads(source: str, name: str, values: Values) -> Iterator[Action]:
    """Let each thread load and store 8 or 16 neighbouring bytes at once.

    Before: `if (i < n) out[i] = f(x[i])`, or a loop that steps by the grid or the block. After: each
    thread takes 16 bytes of neighbours where pointers are aligned at run time, all else as before; the
    grid shrinks with it. Legal where iterations do not need each other.
    """
    found = read_programs(source, name)
    for program in found:
        if _sums(program) or program.team is Team.THREAD or _loops_inside(program):
            continue
        grid = program.team is Team.GRID
        offers = _of_elements(program) if grid else _of_rows(program, values, False)
        yield from _made("vectorize_global_loads", program, offers)


def block_reductions(source: str, name: str, values: Values) -> Iterator[Action]:
    """Reduce within a warp by shuffles and within a block in shared memory before any atomic.

    Before: an `atomicAdd` for each element or thread, or a tree in shared memory with a barrier a step.
    After: each thread sums what it walks over, warps by shuffles, blocks by one shared array, and one
    thread adds to memory. Legal where sums may be taken in another order.
    """
    for program in read_programs(source, name):
        if program.team is Team.GRID:
            yield from _made("avoid_atomics_reduce", program, _of_counts(program, values))
        if not _sums(program):
            continue
        offers = (
            _of_sums(program) if program.team is Team.GRID else _of_rows(program, values, False)
        )
        if program.team is not Team.THREAD:
            yield from _made("avoid_atomics_reduce", program, offers)


def row_teams(source: str, name: str, values: Values) -> Iterator[Action]:
    """Let a warp or a block walk along a row in the place of one thread.

    Before: `for (j = 0; j < width; ++j)` by the thread of a row, whose neighbours are a row apart.
    After: the lanes of a team take neighbours of one row and put sums together by shuffles. Legal where
    iterations only gather sums, maxima and minima, and what they write nobody else reads.
    """
    for program in read_programs(source, name):
        if program.team is Team.THREAD:
            yield from _made("team_a_row", program, _of_rows(program, values, False))


def kept_rows(source: str, name: str, values: Values) -> Iterator[Action]:
    """Keep a row's elements in registers between the loops that read them.

    Before: two or three loops over one row. After: each thread loads its elements once, by 16 bytes,
    where the row is as narrow as the contract says and aligned; any other row goes by loops. Legal where
    iterations only read what they write themselves.
    """
    for program in read_programs(source, name):
        if program.team is not Team.GRID:
            yield from _made("read_row_once", program, _of_rows(program, values, True))


def read_programs(source: str, name: str) -> list[Program]:
    """A kernel as a program, by each team in whose way it can be read; none where it cannot."""
    try:
        kernel = _read(source, name)
        return list(programs(by_trees(kernel) if "__shfl" in source else kernel))
    except (Unread, ConfigError):
        return []


def _read(source: str, name: str) -> Kernel:
    """A kernel, said plainly."""
    kernel = read(source, name)
    types = {one.name: one.type for one in kernel.parameters.values() if one.pointer}
    return kernel._replace(body=body_of(plainly(said(kernel.body), types)))


def _sums(program: Program) -> bool:
    return any(loop.accumulators for loop in program.loops)


def _loops_inside(program: Program) -> bool:
    """Whether an element takes a loop of its own, beside which its store is nothing."""
    return any(one.type in ("for_statement", "while_statement") for loop in program.loops
               for part in loop.body for one in walk(part))  # fmt: skip


def _of_elements(program: Program) -> Iterator[Offer]:
    launch = program.kernel.launch
    sizes = [launch.block[0]]
    if launch.block[1:] == (1, 1):
        sizes += [size for size in (256, 128, 512) if size != launch.block[0]]
    for place, threads in enumerate(sizes):
        for rank, lanes in enumerate(lanes_of(program)):
            for streaming in (False, True):
                if place and (rank or not streaming) and place > 1:
                    continue
                promise = 0.2 * 0.93**place * 0.97**rank - 0.004 * (not streaming)
                past = ", past the caches" if streaming else ""
                sentence = f"Let each of {threads} threads a block take {lanes} neighbours{past}."
                yield Offer(Shape(threads, 0, lanes, streaming=streaming), sentence, promise)


def _of_sums(program: Program) -> Iterator[Offer]:
    for lanes in (*lanes_of(program), 1):
        for place, waves in enumerate((8, 4, 16)):
            for threads in (256, 512):
                blocks = MULTIPROCESSORS * waves
                most = -(-program.kernel.launch.grid[0] * program.kernel.launch.block[0] // threads)
                shape = Shape(threads, 0, lanes, blocks=min(blocks, most))
                sentence = (
                    f"Sum over {shape.blocks} blocks of {threads} threads that walk, {lanes} elements at "
                    "once, by shuffles, with one atomic a block."
                )
                yield Offer(shape, sentence, 0.6 * 0.96**place * (1 if lanes > 1 else 0.8))


def _of_counts(program: Program, values: Values) -> Iterator[Offer]:
    """Blocks that count for themselves, where the contract says how many places there are."""
    counts = [one for loop in program.loops for one in loop.counts]
    places = values.get(counts[0].pointer, 0) if counts else 0
    kind = counts[0].type if counts else ""
    if not 0 < places * SIZES.get(kind, MOST_SHARED) <= MOST_SHARED or kind not in COUNTED:
        return
    launch = program.kernel.launch
    for lanes in (*lanes_of(program), 1):
        for place, (waves, threads) in enumerate(((4, 512), (8, 256), (2, 1024))):
            most = -(-launch.grid[0] * launch.block[0] // threads)
            blocks = min(MULTIPROCESSORS * waves, most)
            shape = Shape(threads, 0, lanes, blocks=blocks, counted=places)
            sentence = (
                f"Count in shared memory of {blocks} blocks of {threads} threads, {lanes} elements at "
                "once."
            )
            yield Offer(shape, sentence, 0.6 * 0.96**place * (1 if lanes > 1 else 0.8))


def _of_rows(program: Program, values: Values, kept: bool) -> Iterator[Offer]:
    width = _width(program, values)
    loops = len(program.loops)
    thread = program.team is Team.THREAD
    base = 0.8 if thread else 0.15 + 0.12 * (loops > 1 and kept)
    wide = lanes_of(program)[:2]
    for rank, lanes in enumerate((*wide, *((1,) if not kept else ()))):
        teams = sorted(TEAMS, key=lambda team: _misfit(width, team * lanes))
        for place, team in enumerate(teams[: 3 if kept or lanes > 1 else 2]):
            pieces = _pieces(program, width, team, lanes) if kept else 0
            if kept and not pieces:
                continue
            promise = base * 0.96**place * 0.97**rank * (1 if lanes > 1 else 0.7) + 0.02 * kept
            how = "in registers" if kept else "in loops"
            sentence = f"Let {team} threads take a row, {lanes} elements at once, {how}."
            shape = Shape(max(team, 128) if team == WARP else team, team, lanes, pieces)
            yield Offer(shape, sentence, promise)
            if kept and not place:
                past = sentence.replace(".", ", past the caches.")
                yield Offer(shape._replace(streaming=True), past, promise - 0.005)


def _misfit(width: int | None, at_once: int) -> float:
    """How far a team is from one that takes a row in two steps; without a width, from one of 256."""
    return abs(math.log2((width or 2048) / 2 / at_once))


def _width(program: Program, values: Values) -> int | None:
    """How wide the rows are by the contract, where it says it and all are alike."""
    known: dict[str, int] = dict(values)
    widths = {loop.bound.value(known) for loop in program.loops}
    return widths.pop() if len(widths) == 1 else None


def _pieces(program: Program, width: int | None, team: int, lanes: int) -> int:
    """How many pieces of `lanes` elements a thread keeps; 0 where that is none, or too many."""
    if lanes == 1 or not width or width < 1:
        return 0
    pieces = -(-width // (team * lanes))
    sizes = {g.pointer: g.size for loop in program.loops for g in groups(program.kernel, loop)}
    fits = pieces * lanes * sum(sizes.values()) <= MOST_KEPT
    return pieces if pieces <= MOST_PIECES and fits else 0


def _made(method: str, program: Program, offers: Iterator[Offer]) -> Iterator[Action]:
    for offer in offers:
        try:
            text = written(program, offer.shape)
        except Unread:
            continue
        text = _declared(text, program.kernel, offer.shape)
        parameters = {name: int(value) for name, value in offer.shape._asdict().items()}
        change = Rewrite(move=method, parameters=dict(parameters), sentence=offer.sentence)
        yield made(change, text, promise=offer.promise, touches=METHODS[method].touches)


def _declared(text: str, kernel: Kernel, shape: Shape) -> str:
    """The source with pointers that do not overlap, as its reading took for granted, and where registers
    are used in plenty with the threads that a block has."""
    bounds = f"__launch_bounds__({min(shape.threads, MOST_THREADS)})" if shape.kept else ""
    return _with_head(text, kernel.name, bounds)


def _with_head(text: str, name: str, bounds: str) -> str:
    head = re.search(rf"(\b__global__\b[^;{{]*\b{name}\s*\()([^)]*)\)", text)
    if head is None:
        return text
    parameters = head[2]
    if "__restrict__" not in parameters:
        parameters = re.sub(r"\*\s*(?=\w+\s*(,|$))", "* __restrict__ ", parameters)
    before = head[1]
    if bounds and "__launch_bounds__" not in before:
        before = re.sub(r"\bvoid\b", f"{bounds} void", before, count=1)
    return text[: head.start()] + before + parameters + ")" + text[head.end() :]


def matrix_instructions(source: str, name: str, values: Values) -> Iterator[Action]:
    """Multiply tiles by the tensor cores' instructions.

    Before: a thread a sum, `sum += __half2float(a[i]) * __half2float(b[j])`. After: blocks share tiles of
    both operands, which come by asynchronous copies, and multiply them 16 by 16 by 16. Legal for half and
    bfloat16 with sums in float.
    """
    with suppress(Unread, ConfigError):
        found = product(_read(source, name))
        for place, tile in enumerate(sorted(MATRIX_TILES, key=partial(_longest, found))):
            sentence = (
                f"Multiply tiles of {tile.rows} by {tile.columns} by {tile.steps} by tensor cores, "
                f"{tile.stages} at a time, {tile.warp_rows} by {tile.warp_columns} sums a warp."
            )
            text = with_tensor_cores(found, tile)
            text = _plainly_declared(text, found.kernel.name, tile.threads, tile.blocks)
            yield _action(
                "switch_to_mma_or_wgmma", tile._asdict(), sentence, text, 0.95 - 0.01 * place
            )


def _longest(found: Product, tile: MatrixTile) -> int:
    """What the busiest multiprocessor does, in sums: those of its blocks, and READ for each line of an
    operand that they read."""
    blocks = -(-found.row.covered // tile.rows) * -(-found.column.covered // tile.columns)
    return -(-blocks // MULTIPROCESSORS) * (
        tile.rows * tile.columns + READ * (tile.rows + tile.columns)
    )


def shared_tiles(source: str, name: str, values: Values) -> Iterator[Action]:
    """Let a block share tiles of both operands of a product, and a thread keep many sums in registers.

    Before: every thread of a plane reads a row of one matrix and a column of another. After: 256 threads
    read tiles once, the next while they work on this one, and add 16 to 64 sums each. Legal where a step
    needs one element of each operand and nothing else of its place.
    """
    with suppress(Unread, ConfigError):
        found = product(_read(source, name))
        for place, tile in enumerate(
            (Tile(8, 8, 16), Tile(8, 8, 8), Tile(8, 4, 16), Tile(4, 4, 16), Tile(4, 4, 32))
        ):
            if max(found.left.size, found.right.size) > 4 and tile.rows * tile.columns > 16:
                continue
            size = f"{SIDE * tile.rows} by {SIDE * tile.columns} by {tile.steps}"
            sentence = f"Share tiles of {size}, {tile.rows} by {tile.columns} sums a thread."
            with suppress(Unread):
                several = 2 if tile.rows * tile.columns > 32 else 1
                text = _plainly_declared(tiled(found, tile), found.kernel.name, THREADS, several)
                yield _action("share_tiles", tile._asdict(), sentence, text, 0.85 - 0.02 * place)


def transposed_tiles(source: str, name: str, values: Values) -> Iterator[Action]:
    """Turn tiles in shared memory, so that both reads and writes touch neighbours.

    Before: `out[x * height + y] = in[y * width + x]`, where reads or writes are a row apart. After: a
    block reads 32 by 32 elements along one axis and writes them along the other. Legal where each thread
    reads an element of its own and stores what it makes of it.
    """
    with suppress(Unread, ConfigError):
        found = transposition(_read(source, name))
        for place, rows in enumerate((8, 16)):
            sentence = f"Turn tiles of 32 by 32 in shared memory by 32 by {rows} threads."
            text = _with_head(turned(found, rows), found.kernel.name, "")
            yield _action("turn_tiles", {"rows": rows}, sentence, text, 0.5 - 0.02 * place)


def _action(
    method: str, parameters: Mapping[str, int], sentence: str, text: str, promise: float
) -> Action:
    change = Rewrite(move=method, parameters=dict(parameters), sentence=sentence)
    return made(change, text, promise=promise, touches=METHODS[method].touches)


def _plainly_declared(text: str, name: str, threads: int, several: int) -> str:
    """With pointers that do not overlap, for blocks of so many threads, `several` at a time."""
    text = re.sub(r"__launch_bounds__\s*\([^)]*\)\s*", "", text)
    return _with_head(text, name, f"__launch_bounds__({threads}, {several})")
