"""Whole numbers of a kernel as sums of products, so that two ways to write an index are one.

`blockIdx.x * blockDim.x + threadIdx.x` with blocks of 256 is 256 blockIdx.x + threadIdx.x, however it
is written; what is no sum or product (`i / 2`) is a factor of its own that knows its names. Numbers do
not wrap around here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.syntax import (
    BUILT_IN,
    Unread,
    bare,
    field,
    names,
    said,
    tight,
)

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0|[1-9]\d*)[uUlL]*")
_CASTS = frozenset(
    "int unsigned long size_t int64_t uint64_t int32_t uint32_t ptrdiff_t signed "
    "static_cast".split()
)


class Factor(NamedTuple):
    """What is not taken apart further, and the names on which it depends."""

    text: str
    names: frozenset[str]


class Quantity(NamedTuple):
    """Products with their whole factors; a product is its factors in order."""

    terms: tuple[tuple[tuple[Factor, ...], int], ...]

    @property
    def names(self) -> frozenset[str]:
        """All names on which it depends."""
        return frozenset(name for product, _ in self.terms for one in product for name in one.names)

    @property
    def number(self) -> int | None:
        """Its value where it depends on nothing."""
        if not self.terms:
            return 0
        return self.terms[0][1] if self.terms[0][0] == () and len(self.terms) == 1 else None

    @property
    def text(self) -> str:
        """As an expression of 64-bit whole numbers."""
        parts = []
        for product, times in self.terms:
            factors = [f"(long long)({one.text})" for one in product]
            if times != 1 or not factors:
                factors.insert(0, f"{times}LL")
            parts.append(" * ".join(factors))
        return " + ".join(parts) or "0LL"

    def plus(self, other: Quantity, times: int = 1) -> Quantity:
        """The sum with some times another."""
        terms = dict(self.terms)
        for product, count in other.terms:
            terms[product] = terms.get(product, 0) + count * times
        return _quantity(terms)

    def times(self, other: Quantity) -> Quantity:
        """The product."""
        terms: dict[tuple[Factor, ...], int] = {}
        for one, count in self.terms:
            for two, by in other.terms:
                product = tuple(sorted(one + two))
                terms[product] = terms.get(product, 0) + count * by
        return _quantity(terms)

    def value(self, known: Mapping[str, int]) -> int | None:
        """Its number where all it depends on is known."""
        total = 0
        for product, times in self.terms:
            for one in product:
                if one.text not in known:
                    return None
                times *= known[one.text]
            total += times
        return total


def _quantity(terms: Mapping[tuple[Factor, ...], int]) -> Quantity:
    kept = [(p, n) for p, n in terms.items() if n]
    return Quantity(tuple(sorted(kept, key=lambda term: [one.text for one in term[0]])))


def number(value: int) -> Quantity:
    """A number."""
    return _quantity({(): value})


def named(name: str) -> Quantity:
    """A variable that is not known by others."""
    return _quantity({(Factor(name, frozenset({name})),): 1})


Known = Mapping[str, Quantity]
"""Variables that keep one value, by that value."""


def quantity(node: Node | None, known: Known) -> Quantity:
    """The value of an expression. Raises Unread for what is none."""
    node = bare(node)
    if node is None:
        raise Unread("no expression")
    match node.type:
        case "number_literal":
            found = _INTEGER.fullmatch(said(node))
            if found is None:
                raise Unread(f"{said(node)} is no whole number")
            return number(int(found[1], 0))
        case "identifier":
            return known.get(said(node), named(said(node)))
        case "field_expression" if said(node.children[0]) in BUILT_IN:
            return known.get(tight(node), named(tight(node)))
        case "cast_expression" if _is_cast(field(node, "type")):
            return quantity(field(node, "value"), known)
        case "call_expression" if _is_cast(field(node, "function")):
            given = field(node, "arguments").named_children
            if len(given) == 1:
                return quantity(given[0], known)
        case "unary_expression" if node.children[0].type in ("-", "+"):
            sign = -1 if node.children[0].type == "-" else 1
            return number(0).plus(quantity(field(node, "argument"), known), sign)
        case "binary_expression":
            return _of_two(node, known)
    return _whole(node, known)


def _of_two(node: Node, known: Known) -> Quantity:
    left, right = (quantity(field(node, side), known) for side in ("left", "right"))
    by = right.number
    match field(node, "operator").type:
        case "+":
            return left.plus(right)
        case "-":
            return left.plus(right, -1)
        case "*":
            return left.times(right)
        case "<<" if by is not None and 0 <= by < 31:
            return left.times(number(1 << by))
        case "/" | ">>" as operator if by is not None and by >= 0 and left.number is not None:
            divisor = 1 << by if operator == ">>" else by
            if left.number >= 0 and divisor:
                return number(left.number // divisor)
        case "%" if by and left.number is not None and left.number >= 0:
            return number(left.number % by)
    return _whole(node, known)


def _is_cast(node: Node) -> bool:
    words = re.findall(r"\w+", said(node))
    return bool(words) and set(words) <= _CASTS


def _whole(node: Node, known: Known) -> Quantity:
    """An expression as one factor: equal for equal text, whatever it depends on."""
    inside = frozenset(
        name for one in names(node) for name in (known[one].names if one in known else {one})
    )
    return _quantity({(Factor(tight(node), inside),): 1})
