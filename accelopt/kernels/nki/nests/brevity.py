"""Statements of a kernel, one a line, in fewer words: all of a tile by its name, and a result as the tile that an
instruction makes, where nothing else was to be declared for it (neuronxcc)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TILE = re.compile(
    r"^ *(?P<name>\w+) = nl\.(?:ndarray|zeros)\(\((?:nl\.par_dim\()?(?P<rows>\d+)\)?, (?P<width>.+?)\), "
    r"dtype=nl\.(?P<dtype>\w+), buffer=nl\.(?P<buffer>\w+)\)$"
)
_ALSO = re.compile(r"^ *(\w+) = (\w+)$")
_PART = re.compile(r"\b(\w+)\[0:(\d+), 0:([^\[\],]+)\]")
_WHOLE = re.compile(r"\b(\w+)\[\.\.\.\](?!\.)(?! \+?= )")
_RESULT = re.compile(
    r"^ *(?P<name>\w+)\[\.\.\.\] (?P<sign>\+?=) nisa\.(?P<function>\w+)\((?P<given>.*)\)$"
)
_INDEX = re.compile(r"\w\[([^\[\]]*)\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
_IN_PSUM = ("nc_transpose", "nc_matmul")
"""Instructions whose results stand in PSUM."""


class _Declared(NamedTuple):
    rows: str
    width: str
    dtype: str
    buffer: str


def brief(lines: Sequence[str]) -> list[str]:
    """Lines without numbers that add nothing, with whole tiles by their names.

    before: y = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            y[0:128, 0:512] = nisa.activation(op=nl.exp, data=x[0:128, 0:512])
    after:  y = nisa.activation(op=nl.exp, data=x)
    """
    tiles = {
        found["name"]: _Declared(found["rows"], found["width"], found["dtype"], found["buffer"])
        for line in lines
        if (found := _TILE.match(line))
    }
    for line in reversed(lines):  # the tile of a round before is like that of this one
        if (also := _ALSO.match(line)) and also[2] in tiles:
            tiles[also[1]] = tiles[also[2]]

    def whole(match: re.Match[str]) -> str:
        tile = tiles.get(match[1])
        return f"{match[1]}[...]" if tile and tile[:2] == (match[2], match[3]) else match[0]

    shorter = [_PART.sub(whole, re.sub(r" \+ 0(?![\w.])", "", line)) for line in lines]
    return [_WHOLE.sub(r"\1", line) for line in _made(shorter, tiles)]


def _made(lines: list[str], tiles: Mapping[str, _Declared]) -> list[str]:
    """Lines without the declarations of tiles that one instruction makes as a whole."""
    found = list(lines)
    for n, line in enumerate(lines):
        declared = _TILE.match(line)
        at = _first_use(found, n, declared["name"]) if declared else None
        if declared is None or at is None:
            continue
        result = _RESULT.match(found[at])
        if result and result["name"] == declared["name"] and _depth(found[at]) == _depth(line):
            name, pad = result["name"], line[: _depth(line)]
            written = re.compile(rf"^ *{name}\[.*\] \+?= |\b(?:dst|reduce_res)={name}\b")
            said = [own for own in found if name in own and written.search(own)]
            if len(said) == 1 and _is_made(result, tiles):
                found[at] = f"{pad}{name} = nisa.{result['function']}({result['given']})"
                found[n] = ""
    return [line for line in found if line]


def _first_use(lines: Sequence[str], declared: int, name: str) -> int | None:
    """The line of the same block that uses a name first after it is declared."""
    for n in range(declared + 1, len(lines)):
        if lines[n] and _depth(lines[n]) < _depth(lines[declared]):
            return None
        if name in lines[n] and name in _WORD.findall(lines[n]):
            return n
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_made(result: re.Match[str], tiles: Mapping[str, _Declared]) -> bool:
    """Whether an instruction's result has by itself the memory, the format and the two axes of the tile that it is
    assigned to."""
    own, given = tiles[result["name"]], result["given"]
    if (own.buffer == "psum") != (result["function"] in _IN_PSUM):
        return False
    if any(part != "..." and part.count(",") != part.count(":") + part.count("nl.ds(") * 2 - 1
           for part in _INDEX.findall(given)):  # fmt: skip
        return False
    read = [tiles[word].dtype for word in _WORD.findall(given) if word in tiles]
    if result["name"] in _WORD.findall(given):
        return False
    said = re.search(r"\bdtype=nl\.(\w+)", given)
    if said or result["function"] == "nc_matmul":
        return said is None or said[1] == own.dtype
    return {*read} == {own.dtype}
