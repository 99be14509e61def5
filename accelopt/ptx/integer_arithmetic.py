"""Integer results of PTX instructions: for addresses, sizes and the bounds of loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from accelopt.ptx.module import Statement

_KIND = re.compile(r"([subp])(8|16|32|64)")
_PLAIN: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << min(b, 64),
    "shr": lambda a, b: a >> min(b, 64),
}


def calculated(one: Statement, given: Sequence[int]) -> int | None:
    """The result of `one` from its operands, as its type holds it; None for what is not known here.
    Semantics: "PTX ISA" 9.0, 9.7.1 and 9.7.8 (NVIDIA)."""
    matches = map(_KIND.fullmatch, one.modifiers)
    kinds = [(found[1], int(found[2])) for found in matches if found]
    if not kinds or {"sat", "cc"} & set(one.modifiers):
        return None
    kind, size = kinds[-1]
    values = [held(value, kind, size) for value in given]
    result: int | None = None
    if one.opcode in ("mov", "cvta") and len(values) == 1:
        result = values[0]
    elif one.opcode == "cvt" and len(kinds) == 2 and len(values) == 1:
        return held(values[0], *kinds[0])
    elif one.opcode in _PLAIN and len(values) == 2:
        result = _PLAIN[one.opcode](*values)
    elif one.opcode in ("mul", "mad") and len(values) == 2 + (one.opcode == "mad"):
        result = values[0] * values[1]
        if "hi" in one.modifiers:
            result >>= size
        elif "wide" in one.modifiers:
            size *= 2
        result += given[2] if one.opcode == "mad" else 0
    elif one.opcode in ("div", "rem") and len(values) == 2 and values[1]:
        quotient = abs(values[0]) // abs(values[1])
        quotient = quotient if (values[0] < 0) == (values[1] < 0) else -quotient
        result = quotient if one.opcode == "div" else values[0] - quotient * values[1]
    return None if result is None else held(result, kind, size)


def held(value: int, kind: str, size: int) -> int:
    """An integer in so many bits, signed (`s`) or not."""
    value %= 1 << size
    return value - (1 << size) if kind == "s" and value >> (size - 1) else value
