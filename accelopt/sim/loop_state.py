"""What a loop body changed in Python's own data: lists, dicts, objects, globals.

A loop is traced once, which is right only when its body leaves Python as it found it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType, FunctionType, ModuleType
from typing import NamedTuple

import numpy as np

PLAIN = (int, float, str, bytes, bool, complex, type(None))
DEPTH = 4
MOST = 20_000
"""Containers beyond this many items, and objects nested deeper than DEPTH, are not looked into."""


def same(old: object, new: object) -> bool:
    """True for the same object, or equal plain values of one type."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, PLAIN) and bool(old == new)


class Contents(NamedTuple):
    """A fingerprint, and what it is of: identities only tell objects apart while they live."""

    prints: list[object]
    kept: list[object]


def contents(frame: FrameType, values: Mapping[str, object]) -> Contents:
    """A fingerprint of everything mutable that these values, and the globals that the frame names,
    lead to; its prints are equal before and after when nothing was changed."""
    prints: list[object] = []
    seen: dict[int, object] = {}
    code = frame.f_code
    local = frame.f_locals
    for value in values.values():
        _look(value, prints, seen, DEPTH)
    for name in code.co_names:
        if name in frame.f_globals and name not in local:
            value = frame.f_globals[name]
            prints.append((name, value if isinstance(value, PLAIN) else id(value)))
            _look(value, prints, seen, DEPTH)
    return Contents(prints, list(seen.values()))


def _look(value: object, prints: list[object], seen: dict[int, object], depth: int) -> None:
    if isinstance(value, (*PLAIN, ModuleType, type)) or depth == 0 or id(value) in seen:
        return
    if type(value).__module__.startswith("accelopt.sim"):
        return  # tensors, indices and ranges are ours
    seen[id(value)] = value
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    elif isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
    elif isinstance(value, np.ndarray):
        prints.append(hash(value.tobytes()) if value.size <= MOST else None)
    elif hasattr(value, "__dict__"):
        inner = list(vars(value).values())
    if not inner or len(inner) > MOST:
        prints.append(len(inner))
        return
    prints.append(tuple(item if isinstance(item, PLAIN) else id(item) for item in inner))
    seen[id(inner)] = inner
    for item in inner:
        _look(item, prints, seen, depth - 1)


def _filled(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return False
    return True
