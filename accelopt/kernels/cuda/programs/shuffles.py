"""Reductions of a block by shuffles, said as trees in shared memory, which is what programs are read by.

    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? shared[lane] : 0;
    if (warp == 0) for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);

or the first line alone where a block is a warp, in the kernel or in functions that it calls. The total is
one thread's there, or all threads' of a warp; here it is everybody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.inlined import with_functions
from accelopt.kernels.cuda.programs.loops import halved, is_sync, starts_neutral
from accelopt.kernels.cuda.programs.quantities import Quantity, number, quantity
from accelopt.kernels.cuda.programs.state import THREAD
from accelopt.kernels.cuda.programs.syntax import (
    Kernel,
    Unread,
    bare,
    body_of,
    declared,
    field,
    joined,
    replaced,
    said,
    statements,
    tight,
    walk,
)
from accelopt.kernels.cuda.programs.warps import WARP, Lanes, blocks_of_warps

BARRIER = "__syncthreads()"
HALVES = (16, 8, 4, 2, 1)
_ALL = re.compile(r"\(?(?:0[xX][fF]{8}[uU]?|~0[uU]?|-1|(?:\(unsigned\)|\(unsigned int\))-1)\)?")
_SHUFFLE = re.compile(r"__shfl_(?:down|xor)_sync")


class _Total(NamedTuple):
    """A variable that a warp reduces, and how: with places for its value and that of another lane."""

    name: str
    combined: str


class _Ends(NamedTuple):
    """The second half of a reduction: how many lines it takes, the variables that hold a total behind it
    by that which a warp's total had, their declarations, and what the first warp stores."""

    lines: int
    names: Mapping[str, str]
    declared: list[str]
    stores: list[str]


def by_trees(kernel: Kernel) -> Kernel:
    """The kernel with trees in the place of shuffles. Raises Unread where shuffles are left."""
    kernel = with_functions(kernel)
    plain = re.sub(r"\bwarpSize\b", str(WARP), said(kernel.body))
    kernel = blocks_of_warps(kernel._replace(body=body_of(plain)))
    text = _Rewriter(kernel).text()
    if "__shfl" in text:
        raise Unread("shuffles of another kind")
    return kernel._replace(body=body_of(text))


class _Rewriter:
    """Goes through statements; what reduces becomes a tree over an array of the block's threads."""

    def __init__(self, kernel: Kernel) -> None:
        self.body, block = kernel.body, kernel.launch.block
        self.threads = block[0]
        if block[1:] != (1, 1) or self.threads & (self.threads - 1) or self.threads < WARP:
            raise Unread("blocks of other sizes than powers of two")
        self.lanes = Lanes(kernel)
        self.types: dict[str, str] = {}
        self.arrays: list[str] = []
        self.numbers = count()

    def text(self) -> str:
        """The body."""
        lines = self._lines(statements(self.body))
        return "\n".join(["{", *self.arrays, *lines, "}"])

    def _lines(self, lines: list[Node]) -> list[str]:
        found: list[str] = []
        place = 0
        while place < len(lines):
            taken, text = self._reduced(lines[place:])
            if not taken:
                taken, text = 1, [self._other(lines[place])]
            found += text
            place += taken
        return found

    def _other(self, line: Node) -> str:
        """A statement as it is, but for what it may hold."""
        if line.type == "declaration":
            for one in declared(line):
                self.types[one.name] = one.type
                self.lanes.note(one)
        if line.type in ("for_statement", "if_statement") and "__shfl" in said(line):
            part = "body" if line.type == "for_statement" else "consequence"
            inner = field(line, part)
            if line.child_by_field_name("alternative") is None:
                text = "\n".join(["{", *self._lines(statements(inner)), "}"])
                return replaced(line, lambda node: text if node.id == inner.id else None)
        return said(line)

    def _reduced(self, lines: list[Node]) -> tuple[int, list[str]]:
        """A reduction that begins with the first line: how many lines, and what stands for them."""
        totals, taken = self._of_warp(lines)
        if not totals:
            return 0, []
        if self.threads == WARP:
            trees = self._trees(totals)
            return taken, [
                *self._tree(totals, trees),
                *_assigned({one.name: one.name for one in totals}, trees),
            ]
        if len(lines) < taken + 3 or not is_sync(lines[taken + 1]):
            raise Unread("a reduction without its barrier")
        arrays = self._kept(lines[taken], totals)
        at = taken + 1
        while at < len(lines) and is_sync(lines[at]):
            at += 1
        ends = self._ends(lines[at:], totals, arrays)
        at += ends.lines
        words = "".join([*ends.stores, *map(tight, lines[at : at + 1])])
        # Only where all its arrays are told the total may what follows find it there.
        told = all(re.search(rf"\b{array}\[0\]\s*=(?!=)", words) for array in arrays.values())
        trees = arrays if told else self._trees(totals)
        text = [
            *ends.declared,
            *self._tree(totals, trees),
            *_assigned(ends.names, trees),
            *ends.stores,
        ]
        return at, text

    def _trees(self, totals: list[_Total]) -> dict[str, str]:
        """An array of its own for each total."""
        reduction = next(self.numbers)
        trees = {total.name: f"treeOf{reduction}{total.name}" for total in totals}
        self.arrays += [
            f"__shared__ {self._type(name)} {array}[{self.threads}];"
            for name, array in trees.items()
        ]
        return trees

    def _type(self, name: str) -> str:
        if name not in self.types:
            raise Unread(f"nobody knows the type of {name}")
        return self.types[name]

    def _tree(self, totals: list[_Total], arrays: Mapping[str, str]) -> list[str]:
        """Trees over arrays, into element 0 of each."""
        half = "halves"
        work = []
        for one in totals:
            array = arrays[one.name]
            value = one.combined.format(f"{array}[threadIdx.x]", f"{array}[threadIdx.x + {half}]")
            work.append(f"{array}[threadIdx.x] = {value};")
        return [
            *(f"{arrays[one.name]}[threadIdx.x] = {one.name};" for one in totals),
            f"{BARRIER};",
            f"for (int {half} = {self.threads // 2}; {half} > 0; {half} >>= 1) {{",
            f"if (threadIdx.x < {half}) {{ {' '.join(work)} }}",
            f"{BARRIER};",
            "}",
        ]

    def _of_warp(self, lines: list[Node]) -> tuple[list[_Total], int]:
        """What lanes reduce by a loop of shuffles, or by five statements: totals, and how many lines."""
        line = lines[0]
        if "__shfl" not in said(line):
            return [], 0
        if line.type == "for_statement":
            found = halved(line, self.lanes.known, WARP)
            if found is None:
                return [], 0
            step, upwards = found
            if upwards and "__shfl_down" in said(line):
                raise Unread("shuffles in another order")
            return [self._shuffled(one, step) for one in statements(field(line, "body"))], 1
        if line.type != "expression_statement":
            return [], 0
        totals = {
            self._shuffled(one, str(half))
            for one, half in zip(lines[: len(HALVES)], HALVES, strict=False)
        }
        if len(totals) != 1 or len(lines) < len(HALVES):
            raise Unread("shuffles of another kind")
        return list(totals), len(HALVES)

    def _shuffled(self, line: Node, step: str) -> _Total:
        """`v += __shfl_down_sync(all, v, step)` and its kin."""
        one = bare(line)
        if one is None or one.type != "assignment_expression":
            raise Unread("shuffles of another kind")
        name, sign = said(field(one, "left")), field(one, "operator").type
        calls = [
            node for node in walk(field(one, "right"))
            if node.type == "call_expression" and _SHUFFLE.fullmatch(said(field(node, "function")))
        ]  # fmt: skip
        if len(calls) != 1 or sign not in ("=", "+=", "*=") or not name.isidentifier():
            raise Unread("shuffles of another kind")
        mask, value, lanes, *width = map(tight, field(calls[0], "arguments").named_children)
        wide = width in ([], ["32"])
        if not _ALL.fullmatch(mask) or value != name or lanes != step or not wide:
            raise Unread("shuffles of a part of a warp")

        def change(node: Node) -> str | None:
            if node.id == calls[0].id:
                return "{1}"
            return "{0}" if node.type == "identifier" and said(node) == name else None

        right = field(one, "right")
        if any(mark in said(right) for mark in "{}"):
            raise Unread("shuffles of another kind")
        text = replaced(right, change)
        combined = text if sign == "=" else f"{{0}} {sign[0]} {text}"
        if not re.fullmatch(r"\{0\} [+*] \{1\}|\{1\} [+*] \{0\}|f?(?:max|min)f?\(\{(?:0\},\s*\{1|1\},\s*\{0)\}\)",
                            " ".join(combined.split())):  # fmt: skip
            raise Unread("shuffles that combine otherwise")
        return _Total(name, combined)

    def _kept(self, line: Node, totals: list[_Total]) -> dict[str, str]:
        """`if (lane == 0) shared[warp] = v;`: the array that takes each total."""
        if line.type != "if_statement" or not self.lanes.is_lane_0(field(line, "condition")):
            raise Unread("totals of warps that nobody keeps")
        arrays = {}
        for one in map(bare, statements(field(line, "consequence"))):
            if one is None or one.type != "assignment_expression":
                raise Unread("totals of warps that nobody keeps")
            array, at = self._element(field(one, "left"))
            if at is None or not self.lanes.is_warp(at) or field(one, "operator").type != "=":
                raise Unread("totals of warps that nobody keeps")
            name = said(bare(field(one, "right")))
            if self.types.get(array) != self._type(name):
                raise Unread("totals of warps that are kept in another type")
            arrays[name] = array
        if set(arrays) != {one.name for one in totals} or len(set(arrays.values())) != len(arrays):
            raise Unread("totals of warps that nobody keeps")
        return arrays

    def _ends(self, lines: list[Node], totals: list[_Total], arrays: Mapping[str, str]) -> _Ends:
        """The second half of a reduction."""
        inside = lines
        if lines and lines[0].type == "if_statement" and self.lanes.is_warp_0(lines[0]):
            inside = statements(field(lines[0], "consequence"))
        by_array = {array: name for name, array in arrays.items()}
        new: dict[str, str] = {}
        made: list[str] = []
        at = 0
        while at < len(inside) and len(new) < len(totals):
            one, kind = inside[at], ""
            if one.type == "declaration":
                variable, *others = declared(one)
                if others:
                    break
                name, value, kind = variable.name, bare(variable.value), variable.type
            else:
                set_ = bare(one)
                if set_ is None or set_.type != "assignment_expression":
                    break
                name, value = said(field(set_, "left")), bare(field(set_, "right"))
            if value is None:
                break
            array = self._read_back(value, totals, by_array)
            new[name] = by_array[array]
            if kind:
                self.types[name] = kind
                made.append(f"{kind} {name};")
            if self.types.get(name) != self._type(by_array[array]):
                raise Unread("totals of warps that are read back in another type")
            at += 1
        if len(new) != len(totals):
            raise Unread("totals of warps that nobody reads back")
        again = inside[at:]
        apart = bool(again) and again[0].type == "if_statement" and self.lanes.is_warp_0(again[0])
        if apart:
            again = statements(field(again[0], "consequence"))
        warps, taken = self._of_warp(again) if again else ([], 0)
        if apart and taken != len(again):
            raise Unread("what the first warp does")
        at += 1 if apart else taken
        combined = {one.name: one.combined for one in totals}
        if {one.name: one.combined for one in warps} != {
            n: combined[old] for n, old in new.items()
        }:
            raise Unread("totals of warps that are combined otherwise")
        if inside is lines:
            return _Ends(at, new, made, [])
        if made:
            raise Unread("totals that only one warp knows")
        stores = [text for one in inside[at:] for text in self._stores(one, new, by_array)]
        return _Ends(1, new, made, stores)

    def _stores(
        self, line: Node, new: Mapping[str, str], by_array: Mapping[str, str]
    ) -> Iterator[str]:
        """`if (lane == 0) shared[0] = v;` by the first warp, which is thread 0."""
        lines = [line]
        if line.type == "if_statement" and self.lanes.is_lane_0(field(line, "condition")):
            lines = statements(field(line, "consequence"))
        for inner in map(bare, lines):
            if inner is None or inner.type != "assignment_expression":
                raise Unread("what the first warp does")
            array, at = self._element(field(inner, "left"))
            plain = field(inner, "operator").type == "=" and at == number(0)
            if said(field(inner, "right")) not in new or (array in by_array and not plain):
                raise Unread("what the first warp does")
            yield f"if (threadIdx.x == 0) {said(inner)};"

    def _read_back(self, value: Node, totals: list[_Total], by_array: Mapping[str, str]) -> str:
        """The array in `threadIdx.x < warps ? shared[lane] : neutral`, or `shared[lane]` for 32 warps."""
        warps = self.threads // WARP
        neutral = ""
        if value.type == "conditional_expression":
            part, *others = joined(bare(field(value, "condition")), "&&")
            if others or part.type != "binary_expression" or field(part, "operator").type != "<":
                raise Unread("totals of some warps")
            low, high = quantity(field(part, "left"), self.lanes.known), field(part, "right")
            own = low == THREAD or self.lanes.is_lane(low)
            if not own or quantity(high, self.lanes.known) != number(warps):
                raise Unread("totals of some warps")
            neutral = said(bare(field(value, "alternative")))
            value = bare(field(value, "consequence")) or value
        elif warps != WARP:
            raise Unread("totals of more warps than there are")
        array, at = self._element(value)
        if at is None or array not in by_array or not (self.lanes.is_lane(at) or at == THREAD):
            raise Unread("totals of other warps")
        (combined,) = (one.combined for one in totals if one.name == by_array[array])
        if neutral and not _is_neutral(combined, neutral):
            raise Unread("totals that begin with something")
        return array

    def _element(self, node: Node) -> tuple[str, Quantity | None]:
        if node.type != "subscript_expression":
            return "", None
        inside = field(node, "indices").named_children
        if len(inside) != 1:
            return "", None
        return said(field(node, "argument")), quantity(inside[0], self.lanes.known)


def _assigned(names_: Mapping[str, str], arrays: Mapping[str, str]) -> list[str]:
    """Everybody's totals, to variables by the names that warps' totals had."""
    return [f"{name} = {arrays[old]}[0];" for name, old in names_.items()]


def _is_neutral(combined: str, value: str) -> bool:
    """Whether a value that is combined with others changes nothing."""
    text = value.replace(" ", "")
    if "max" in combined:
        return re.fullmatch(r"\(?-(?:INFINITY|FLT_MAX|DBL_MAX|HUGE_VALF?|CUDART_INF_F|1e3\d[fF]?|3\.4\d*e\+?38[fF]?)\)?",
                            text) is not None  # fmt: skip
    if "min" in combined:
        return re.fullmatch(r"(?:INFINITY|FLT_MAX|DBL_MAX|HUGE_VALF?|CUDART_INF_F|1e3\d[fF]?|3\.4\d*e\+?38[fF]?)",
                            text) is not None  # fmt: skip
    return starts_neutral(combined, text)
