"""Where kernel code is running: its lines among the frames of the Python stack."""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
from pathlib import Path
from types import FrameType

from accelopt.sim.errors import NOWHERE, SourceLine

OUR_FOLDER = str(Path(__file__).parent)
NOT_KERNEL_CODE = ("<frozen", functools.__file__, contextlib.__file__)

BETWEEN = frozenset({"COPY", "TO_BOOL", "NOP", "CACHE", "NOT_TAKEN"})
"""What Python's compiler puts between a value and its test."""

LoopKey = tuple[tuple[str, int], ...]
"""A loop in the source: file and line of every call from the kernel's entry down to its `for`."""


@functools.lru_cache(maxsize=1024)
def is_kernel_code(file: str) -> bool:
    """True unless the file is the simulated core's or the interpreter's own."""
    return not file.startswith(OUR_FOLDER) and not file.startswith(NOT_KERNEL_CODE)


@functools.lru_cache(maxsize=1 << 16)
def source_line(file: str, line: int) -> SourceLine:
    """The line, one object for all the instructions that it makes."""
    return SourceLine(file, line)


def running_line() -> SourceLine:
    """The innermost line of kernel code that is running."""
    frame = running_frame(3)
    return NOWHERE if frame is None else source_line(frame.f_code.co_filename, frame.f_lineno)


def running_frame(depth: int = 2) -> FrameType | None:
    """The innermost frame of kernel code. The innermost `depth` frames are ours."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and not is_kernel_code(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def asks_whether_it_is_there(frame: FrameType) -> bool:
    """True when what a frame tests is a parameter or a field, which may be None: `if bias:`."""
    code = frame.f_code
    loaded = None
    for step in dis.get_instructions(code):
        if step.offset >= frame.f_lasti:
            break
        if step.opname not in BETWEEN:
            loaded = step
    if loaded is None:
        return False
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    field = loaded.opname == "LOAD_ATTR"
    return field or (loaded.opname.startswith("LOAD_FAST") and loaded.argval in parameters)


def call_chain(frame: FrameType | None) -> LoopKey:
    """File and line of every kernel frame from the kernel's entry down to this one."""
    chain: list[tuple[str, int]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if is_kernel_code(file):
            chain.append((file, frame.f_lineno))
        elif frame.f_code.co_name == "run_kernel" and file.startswith(OUR_FOLDER):
            break
        frame = frame.f_back
    return tuple(reversed(chain))
