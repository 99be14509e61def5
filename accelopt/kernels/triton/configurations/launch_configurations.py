"""Tile sizes, warps, stages and registers to try, by the kind of work that a kernel does.

The values are those that fit the machine in general: tiles that fill the tensor core's 64-row
instruction and the 228 KiB of shared memory (CUDA programming guide, compute capability 9.0),
16-byte accesses by every thread, and enough bytes in flight in memory-bound kernels. Their order
is what a sweep over plain kernels on an H200 ranked (`experiments/flb_h200/README.md`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from accelopt.kernels.triton.configurations.knobs import Knob, Role
from accelopt.kernels.triton.configurations.source import JitFunction, called, is_range


class KernelKind(StrEnum):
    """The shapes of work that want different knobs."""

    PRODUCT = "matrix product"
    ATTENTION = "attention over blocks of queries"
    DECODE = "products in a loop"
    ROWS = "a loop along a row"
    ELEMENTS = "elementwise blocks"
    WHOLE = "a whole row at once"


class LaunchConfiguration(NamedTuple):
    """Values by knob name and launch options, None for those that are left alone; `registers` is the most that a
    thread may have, None for as many as the compiler takes."""

    tiles: tuple[tuple[str, int], ...]
    warps: int | None
    stages: int | None
    registers: int | None = None

    def sentence(self) -> str:
        """The configuration in words."""
        tiles = ", ".join(f"{name} = {value}" for name, value in self.tiles)
        stages = "" if self.stages is None else f", {self.stages} stages"
        registers = "" if self.registers is None else f", {self.registers} registers a thread"
        return f"{tiles + ', ' if tiles else ''}{self.warps} warps{stages}{registers}"


# (first program tile, second program tile, loop tile, warps, stages)
PRODUCT = (
    (128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 4, 4),
    (128, 256, 64, 8, 4), (128, 128, 32, 4, 4), (64, 256, 64, 8, 3), (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4), (64, 64, 64, 4, 4), (64, 128, 128, 4, 3), (16, 128, 128, 4, 4),
    (32, 128, 64, 4, 4), (16, 64, 128, 4, 4), (64, 256, 32, 4, 4),
)  # fmt: skip
# (program tile, loop tile, warps, stages, registers): where sequences are short, programs beside
# each other on a multiprocessor hide more than long pipelines do
ATTENTION = (
    (64, 32, 4, 2, 128), (64, 64, 4, 2, None), (128, 64, 8, 2, 128), (128, 128, 8, 3, None),
    (128, 64, 8, 3, None), (64, 64, 4, 3, None), (128, 128, 8, 2, None), (128, 64, 4, 2, None),
    (128, 64, 8, 2, None), (64, 128, 4, 3, None), (64, 32, 4, 3, 128), (128, 32, 4, 3, None),
    (32, 64, 4, 3, None), (64, 64, 4, 4, None), (16, 64, 4, 3, None), (16, 128, 4, 2, None),
)  # fmt: skip
# (loop tile, warps, stages)
DECODE = (
    (128, 4, 2), (64, 4, 2), (32, 4, 3), (64, 4, 3), (128, 8, 2), (64, 8, 2), (128, 4, 3),
    (64, 4, 4), (32, 4, 4), (256, 8, 2), (16, 4, 4), (32, 2, 3), (64, 2, 3),
)  # fmt: skip
# (loop tile, warps)
ROWS = (
    (8192, 16), (4096, 16), (1024, 4), (2048, 8), (4096, 8), (8192, 32), (4096, 4), (2048, 4),
    (1024, 8), (2048, 16), (8192, 8), (16384, 32), (512, 4), (1024, 2),
)  # fmt: skip
ELEMENTS = (
    (1024, 4), (2048, 8), (2048, 4), (4096, 8), (512, 4), (1024, 8), (4096, 4), (8192, 8), (512, 2),
)  # fmt: skip
# Rows, heads or tokens a program: a small tile beside another dimension.
SMALL = ((16, 4), (8, 2), (8, 4), (32, 4), (4, 4), (16, 8), (32, 8), (8, 1), (4, 2), (2, 2), (2, 4))
PAIRS = (
    (16, 128, 4),
    (32, 64, 4),
    (64, 64, 8),
    (8, 256, 4),
    (32, 128, 8),
    (4, 512, 4),
    (1, 1024, 4),
)
WARPS = (8, 16, 2, 4, 1, 32)
LARGEST_SMALL = 32


def kind_of(kernel: JitFunction, knobs: list[Knob]) -> KernelKind:
    """The kind of a kernel's work, from its dots, its loops and its tiles."""
    dots = sum(called(node).endswith("tl.dot") for node in ast.walk(kernel.node))
    loops = any(isinstance(n, ast.For) and is_range(n.iter) for n in ast.walk(kernel.node))
    programs = sum(knob.role is Role.PROGRAM for knob in knobs)
    stepped = sum(knob.role is Role.LOOP for knob in knobs)
    if dots and programs >= 2 and stepped:
        return KernelKind.PRODUCT
    if dots >= 2 and programs == 1 and stepped:
        return KernelKind.ATTENTION
    if stepped and ((dots and loops) or _has_tiles(kernel)):
        return KernelKind.DECODE
    if stepped:
        return KernelKind.ROWS
    return KernelKind.ELEMENTS if programs else KernelKind.WHOLE


def _has_tiles(kernel: JitFunction) -> bool:
    """Whether a loop gives a vector a second axis: it handles tiles, not a piece of a row."""
    return any(
        isinstance(inner, ast.Subscript) and ast.unparse(inner.slice).strip("()") == ":, None"
        for loop in ast.walk(kernel.node)
        if isinstance(loop, (ast.For, ast.While))
        for inner in ast.walk(loop)
    )


def configurations(kernel: JitFunction, knobs: list[Knob]) -> Iterator[LaunchConfiguration]:
    """Run with other tiles, warps or stages: configurations, the best expected first."""
    programs = [knob for knob in knobs if knob.role is Role.PROGRAM]
    stepped = [knob for knob in knobs if knob.role is Role.LOOP]
    kind = kind_of(kernel, knobs)
    names = [knob.name for knob in (*programs, *stepped)]
    if kind is KernelKind.PRODUCT:
        names = [programs[0].name, programs[1].name, stepped[0].name]
        for *sizes, warps, stages in PRODUCT:
            yield LaunchConfiguration(tuple(zip(names, sizes, strict=True)), warps, stages)
    elif kind is KernelKind.ATTENTION:
        for first, loop, warps, stages, registers in ATTENTION:
            tiles = ((names[0], first), (stepped[0].name, loop))
            yield LaunchConfiguration(tiles, warps, stages, registers)
    elif kind is KernelKind.DECODE:
        for loop, warps, stages in DECODE:
            yield LaunchConfiguration(((stepped[0].name, loop),), warps, stages)
    elif kind is KernelKind.ROWS:
        for loop, warps in ROWS:
            yield LaunchConfiguration(((stepped[0].name, loop),), warps, None)
    elif kind is KernelKind.ELEMENTS:
        yield from _elements(programs)
    else:
        for warps in WARPS:
            yield LaunchConfiguration((), warps, None)


def _elements(programs: list[Knob]) -> Iterator[LaunchConfiguration]:
    if len(programs) >= 2:
        for first, second, warps in PAIRS:
            yield LaunchConfiguration(
                ((programs[0].name, first), (programs[1].name, second)), warps, None
            )
        return
    table = SMALL if programs[0].value <= LARGEST_SMALL else ELEMENTS
    for tile, warps in table:
        yield LaunchConfiguration(((programs[0].name, tile),), warps, None)
