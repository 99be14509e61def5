"""What the calls of a kernel turned out to be: shapes, formats and memories, by place in the source.

Learned by tracing the kernel once, for arguments of given shapes. A place is the line and the column
where a call's expression begins and ends, as CPython keeps them since 3.11.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.call_sites import running_frame
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.program import Program
from accelopt.sim.tracer import observed

CallRange = tuple[int, int, int, int]
"""First line and column, last line and column; columns count characters from 0."""


class TileFact(NamedTuple):
    """A tensor as an operand."""

    shape: tuple[int, ...]
    dtype: str
    buffer: str
    blocks: int


class Fact(NamedTuple):
    """One call: the function, its tensor arguments by parameter, its other arguments, and what it
    returned."""

    function: str
    tiles: dict[str, TileFact]
    values: dict[str, Any]
    result: TileFact | None


class CallFacts:
    """The calls of one kernel, by place."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: dict[CallRange, Fact] = {}
        self.device_loops: frozenset[int] = frozenset()  # lines of those that the device counts
        self.tile_lines: frozenset[int] = frozenset()  # where two whole tiles are combined

    def at(self, place: CallRange) -> Fact | None:
        """The call that stands there."""
        return self.found.get(place)

    def note(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any, result: Any
    ) -> None:
        """One call, told by the tracer."""
        frame = running_frame(3)
        if frame is None or frame.f_code.co_filename != self.file:
            return
        place = _place(frame)
        if place is None:
            return
        given = inspect.signature(function).bind(*args, **kwargs).arguments
        tiles = {name: tile_of(value) for name, value in given.items() if _is_tensor(value)}
        values = {name: value for name, value in given.items() if not _is_tensor(value)}
        made = tile_of(result) if _is_tensor(result) else None
        self.found[place] = Fact(function.__name__, tiles, values, made)


def learn(trace: Callable[[], Program], file: str) -> tuple[CallFacts, Program]:
    """The facts of a kernel in `file`, and its Program, by one trace of it."""
    facts = CallFacts(file)
    with observed(facts.note):
        program = trace()
    facts.device_loops = frozenset(
        node.source.line for _, node in program.walk() if node.opcode.ends_loop
    )
    facts.tile_lines = frozenset(
        node.source.line for _, node in program.walk() if "data2" in node.inputs
    )
    return facts, program


def _is_tensor(value: Any) -> bool:
    return isinstance(value, TensorView)


def tile_of(view: TensorView) -> TileFact:
    """What a translation needs to know of a tensor."""
    name = dtypes.name_of(np.dtype(view.dtype))
    return TileFact(view.shape, name, view.storage.buffer.value, view.storage.block_rank)


def _place(frame: FrameType) -> CallRange | None:
    positions = frame.f_code.co_positions()
    found = next(itertools.islice(positions, frame.f_lasti // 2, None), None)
    line, last, column, end = found or (None,) * 4
    if line is None or last is None or column is None or end is None:
        return None
    return (line, column, last, end)
