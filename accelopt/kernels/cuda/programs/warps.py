"""What a kernel calls its thread's lane and warp, and kernels whose warps have a row each."""

from __future__ import annotations

import re
from collections.abc import Callable

from tree_sitter import Node

from accelopt.kernels.cuda.programs.quantities import Quantity, number, quantity
from accelopt.kernels.cuda.programs.state import BLOCK, THREAD
from accelopt.kernels.cuda.programs.syntax import (
    WHOLE,
    Declared,
    Kernel,
    assigned,
    bare,
    body_of,
    declared,
    field,
    replaced,
    said,
    statements,
    walk,
)

WARP = 32


def blocks_of_warps(kernel: Kernel) -> Kernel:
    """A kernel whose warps have a row each, with a block for each of them; any other as it is."""
    grid, block = kernel.launch.grid, kernel.launch.block
    text = said(kernel.body)
    if block[0] % WARP or block[0] == WARP or block[1:] != (1, 1) or grid[1:] != (1, 1):
        return kernel
    if "__shared__" in text or "__sync" in text or "gridDim" in text:
        return kernel
    lanes = Lanes(kernel)
    new: dict[int, str] = {}
    places: set[str] = set()
    for line in statements(kernel.body):
        if line.type != "declaration":
            break
        for one in declared(line):
            lanes.note(one)
            value = lanes.known.get(one.name)
            if value is None or one.value is None:
                continue
            if lanes.is_lane(value):
                new[one.value.id] = "threadIdx.x"
            elif lanes.is_row(value):
                new[one.value.id] = "blockIdx.x"
            elif value.names & {"threadIdx.x", "blockIdx.x"}:
                places.add(one.name)
                new[one.value.id] = "0"
    text = replaced(kernel.body, lambda node: new.get(node.id))
    body = body_of(text)
    left = re.findall(r"\b(?:threadIdx|blockIdx|blockDim)\b", text)
    lasting = [word for word in new.values() if word != "0"]
    used = [said(one) for one in walk(body) if one.type == "identifier"]
    if len(left) != len(lasting) or "blockIdx.x" not in lasting:
        return kernel
    if any(used.count(name) > 1 for name in places):
        return kernel
    warps = block[0] // WARP
    launch = kernel.launch._replace(grid=(grid[0] * warps, 1, 1), block=(WARP, 1, 1))
    return kernel._replace(launch=launch, body=body)


class Lanes:
    """The whole numbers of a kernel that keep one value, so that lane and warp are known by any name."""

    def __init__(self, kernel: Kernel) -> None:
        block = kernel.launch.block
        self.threads = block[0]
        self.known: dict[str, Quantity] = {
            f"blockDim.{a}": number(n) for a, n in zip("xyz", block, strict=True)
        }
        declarations = [one for one in walk(kernel.body) if one.type == "declaration"]
        made = [one.name for line in declarations for one in declared(line)]
        self.kept = {name for name in made if made.count(name) == 1} - assigned(kernel.body)

    def note(self, one: Declared) -> None:
        """Know a variable by its value, where it is a whole number that it keeps."""
        if one.value is not None and one.type in WHOLE and one.name in self.kept:
            self.known[one.name] = quantity(one.value, self.known)

    def is_lane_0(self, condition: Node) -> bool:
        """Whether a condition lets the first lane of each warp through and no other."""
        return self._is_zero(condition, lambda q: self.is_lane(q))

    def is_warp_0(self, line: Node) -> bool:
        """Whether an `if` lets the first warp through and no other."""
        condition = field(line, "condition")
        if line.child_by_field_name("alternative") is not None:
            return False
        part = bare(condition)
        if (
            part is not None
            and part.type == "binary_expression"
            and field(part, "operator").type == "<"
        ):
            sides = [quantity(field(part, side), self.known) for side in ("left", "right")]
            if sides == [THREAD, number(WARP)]:
                return True
        return self._is_zero(condition, lambda q: self.is_warp(q))

    def _is_zero(self, condition: Node, of: Callable[[Quantity], bool]) -> bool:
        part = bare(condition)
        if part is None:
            return False
        if part.type == "unary_expression" and part.children[0].type == "!":
            return of(quantity(field(part, "argument"), self.known))
        if part.type != "binary_expression" or field(part, "operator").type != "==":
            return False
        sides = [quantity(field(part, side), self.known) for side in ("left", "right")]
        return any(of(one) and other == number(0) for one, other in (sides, sides[::-1]))

    def is_lane(self, of: Quantity) -> bool:
        """Whether it is the number of the thread in its warp."""
        return self._says(of, r"threadIdx\.x(?:%32|&31|&0x1[fF]|%32u|&\(32-1\))")

    def is_row(self, of: Quantity) -> bool:
        """Whether it is the number of the thread's warp among those of the grid."""
        block = rf"blockIdx\.x\*(?:blockDim\.x|{self.threads})"
        grid = rf"(?:{block}\+threadIdx\.x|threadIdx\.x\+{block})"
        blocks = BLOCK.times(number(self.threads // WARP))
        return self._says(of, rf"\(?{grid}\)?(?:/32|>>5)") or self.is_warp(of.plus(blocks, -1))

    def is_warp(self, of: Quantity) -> bool:
        """Whether it is the number of the warp in its block."""
        return self._says(of, r"threadIdx\.x(?:/32|>>5|/32u)")

    def _says(self, of: Quantity, pattern: str) -> bool:
        """Whether a quantity is one factor of this text, variables by what they stand for."""
        if len(of.terms) != 1 or of.terms[0][1] != 1 or len(of.terms[0][0]) != 1:
            return False
        text = of.terms[0][0][0].text.replace(" ", "")
        of_grid = BLOCK.times(number(self.threads)).plus(THREAD)
        whole = {name: "threadIdx.x" for name, one in self.known.items() if one == THREAD} | {
            name: "threadIdx.x+blockIdx.x*blockDim.x"
            for name, one in self.known.items()
            if one == of_grid
        }
        text = re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda word: whole.get(word[0], word[0]), text)
        constants = {n: str(q.number) for n, q in self.known.items() if q.number is not None}
        text = re.sub(
            r"(?<![.\w])[A-Za-z_]\w*(?![.\w])", lambda word: constants.get(word[0], word[0]), text
        )
        return re.fullmatch(rf"\(?{pattern}\)?", text) is not None
