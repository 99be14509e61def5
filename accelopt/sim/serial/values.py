"""Single values of an untrusted document: what they must be, or MalformedProgram."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.attribute_kinds import is_line, is_number
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Placement
from accelopt.sim.serial.layout import MAX_INTEGER, MAX_RANK, MalformedProgram


def integer(value: Any) -> int:
    """An integer that addresses can be made of."""
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise MalformedProgram(f"{value!r} is not an integer")
    return value


def natural(value: Any) -> int:
    """An integer of 0 or more."""
    if integer(value) < 0:
        raise MalformedProgram(f"{value!r} is negative")
    return int(value)


def positive(value: Any) -> int:
    """An integer of 1 or more."""
    if natural(value) == 0:
        raise MalformedProgram("a length or divisor is 0")
    return int(value)


def shape_of(values: Any) -> tuple[int, ...]:
    """A shape: of a rank and a number of elements that addresses can count."""
    if not isinstance(values, list) or len(values) > MAX_RANK:
        raise MalformedProgram(f"{str(values)[:40]} is not a shape")
    shape = tuple(positive(value) for value in values)
    integer(math.prod(shape))
    return shape


def one_of(value: Any, known: Iterable[str]) -> str:
    """A name out of those that are known."""
    text = text_of(value)
    if text not in known:
        raise MalformedProgram(f"{text[:40]!r} is none of {', '.join(known)}")
    return text


def text_of(value: Any) -> str:
    """One line of printable text, of a bounded length."""
    if not is_line(value):
        raise MalformedProgram(f"{str(value)[:40]!r} is not printable text of a line")
    return str(value)


def format_of(value: Any) -> np.dtype:
    """A number format by its NKI name."""
    if text_of(value) not in dtypes.FORMATS:
        raise MalformedProgram(f"{value!r} is no number format")
    return dtypes.FORMATS[value]


def truth(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise MalformedProgram(f"{value!r} is neither true nor false")
    return value


def scalar(value: Any) -> int | float | str | bool | None:
    """A plain attribute."""
    if isinstance(value, str):
        return text_of(value)
    if value is not None and not is_number(value):
        raise MalformedProgram(f"{str(value)[:40]} is not a plain value")
    return value  # type: ignore[no-any-return]


def source_line(item: Any) -> SourceLine:
    """A place in the kernel's file."""
    file, line = item
    return SourceLine(text_of(file), natural(line))


def placement_of(item: Any, blocks: tuple[int, ...]) -> Placement | None:
    """A direct allocation for tensors with these block dimensions, or None."""
    if item is None:
        return None
    partitions, addresses = (np.asarray(part) for part in item[:2])
    [core] = item[2:]
    for part in (partitions, addresses):
        if part.shape != blocks or (part.size and part.dtype.kind != "i") or (part < 0).any():
            raise MalformedProgram("a direct allocation does not fit its block dimensions")
    partitions, addresses = partitions.astype(np.int64), addresses.astype(np.int64)
    return Placement(partitions, addresses, None if core is None else natural(core))
