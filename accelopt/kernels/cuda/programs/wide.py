"""Accesses of neighbouring elements as one access of 16 bytes, and a loop's body for several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import Access
from accelopt.kernels.cuda.programs.program import Loop
from accelopt.kernels.cuda.programs.quantities import Quantity, named, number
from accelopt.kernels.cuda.programs.syntax import (
    SIZES,
    Kernel,
    replaced,
)

WIDEST = 16  # bytes of one access
_PIECES = {16: "uint4", 8: "uint2", 4: "unsigned", 2: "unsigned short", 1: "unsigned char"}


class Group(NamedTuple):
    """Elements behind one parameter that follow a loop's variable, `rest` away from it. `shifts` are
    the accesses by how many elements they are further on."""

    pointer: str
    type: str
    size: int
    rest: Quantity
    shifts: Mapping[int, tuple[Access, ...]]
    loads: bool
    stores: bool
    number: int = 0

    @property
    def name(self) -> str:
        """Of the thread's own copy of the elements."""
        return f"{self.pointer}_wide{self.number or ''}_"

    def aligned(self, lanes: int) -> str:
        """Whether the first of them may be touched by wide accesses."""
        piece = min(WIDEST, lanes * self.size)
        return f"(size_t)({self.pointer} + ({self.rest.text})) % {piece} == 0"

    def load(self, place: str, base: str, lanes: int, streaming: bool) -> Iterator[str]:
        """The statements that copy `lanes` elements from `base` on."""
        for piece, kind, part in self._pieces(lanes):
            source = (
                f"reinterpret_cast<const {kind}*>({self.pointer} + ({self.rest.text}) + {base})"
            )
            value = (
                f"__ldcs({source} + {part})" if streaming and piece >= 4 else f"{source}[{part}]"
            )
            yield f"reinterpret_cast<{kind}*>({place})[{part}] = {value};"

    def store(self, place: str, base: str, lanes: int, streaming: bool) -> Iterator[str]:
        """The statements that copy them back."""
        for piece, kind, part in self._pieces(lanes):
            target = f"reinterpret_cast<{kind}*>({self.pointer} + ({self.rest.text}) + {base})"
            value = f"reinterpret_cast<{kind}*>({place})[{part}]"
            if streaming and piece >= 4:
                yield f"__stcs({target} + {part}, {value});"
            else:
                yield f"{target}[{part}] = {value};"

    def _pieces(self, lanes: int) -> Iterator[tuple[int, str, int]]:
        piece = min(WIDEST, lanes * self.size)
        for part in range(lanes * self.size // piece):
            yield piece, _PIECES[piece], part


def groups(kernel: Kernel, loop: Loop) -> tuple[Group, ...]:
    """What of a loop's accesses may be wide: what follows its variable, is reached in every iteration,
    and is not written in other ways."""
    return tuple(
        group._replace(number=number)
        for pointer in dict.fromkeys(one.pointer for one in loop.accesses)
        for number, group in enumerate(_groups(kernel, loop, pointer))
    )


def _groups(kernel: Kernel, loop: Loop, pointer: str) -> Iterator[Group]:
    mine = [one for one in loop.accesses if one.pointer == pointer]
    along: dict[Quantity, dict[int, list[Access]]] = {}
    for one in mine:
        rest = one.at.plus(named(loop.variable), -1)
        if rest.names & loop.moving:
            continue
        constant = dict(rest.terms).get((), 0)
        base = Quantity(tuple(term for term in rest.terms if term[0]))
        along.setdefault(base, {}).setdefault(constant, []).append(one)
    for rest, shifts in along.items():
        main = 0 if 0 in shifts else min(shifts)
        use = _use(mine, shifts[main])
        size = SIZES.get(kernel.parameters[pointer].type, WIDEST)
        if use is None or size > WIDEST // 2:
            continue
        shifted = {at - main: tuple(ones) for at, ones in shifts.items()}
        whole = rest.plus(number(main))
        yield Group(pointer, kernel.parameters[pointer].type, size, whole, shifted, *use)


def _use(every: list[Access], along: list[Access]) -> tuple[bool, bool] | None:
    """Whether neighbours are to be loaded, and stored; None where they may not be touched at once.

    Where a parameter is written, all its accesses must be these. What is loaded must be read in every
    iteration, and so must what is stored be written, unless it was loaded.
    """
    stores = any(one.writes for one in every)
    if stores and len(every) != len(along):
        return None
    first = along[0]
    if first.writes and not first.reads and first.certain:
        return False, True
    if any(one.reads and one.certain for one in along):
        return True, stores
    if not any(one.reads for one in along) and any(one.certain for one in along):
        return False, True
    return None


def body(
    loop: Loop, parts: tuple[Group, ...], places: Mapping[str, str], lanes: int
) -> Iterator[str]:
    """A loop's body as lines, for the element `lane_` of each group's copy in `places`."""
    edits: dict[int, str] = {}
    for group in parts:
        place = places[group.name]
        for shift, accesses in group.shifts.items():
            for one in accesses:
                text = _shifted(place, shift, lanes) if shift else f"{place}[lane_]"
                edits[one.node.id] = text

    def change(node: Node) -> str | None:
        if node.id in edits:
            text = edits[node.id]
            if "\1" in text:
                own = replaced(node, lambda inner: change(inner) if inner.id != node.id else None)
                return text.replace("\1", own)
            return text
        if node.id in loop.edits:
            parts = loop.edits[node.id].parts
            return "".join(one if isinstance(one, str) else replaced(one, change) for one in parts)
        return None

    for part in loop.body:
        yield from replaced(part, change).splitlines()


def _shifted(place: str, shift: int, lanes: int) -> str:
    """An element further on: of the copy where it is there, else of memory."""
    inside = f"lane_ + {shift} < {lanes}" if shift > 0 else f"lane_ >= {-shift}"
    at = f"lane_ + {shift}" if shift > 0 else f"lane_ - {-shift}"
    return f"({inside} ? {place}[{at}] : \1)"


def plain(loop: Loop) -> Iterator[str]:
    """A loop's body as it is."""
    yield from body(loop, (), {}, 1)
