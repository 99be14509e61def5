"""Sums of a block: through trees in shared memory, by atomics, by one thread that adds them up."""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.accesses import (
    pointer,
)
from accelopt.kernels.cuda.programs.iterations import ATOMIC, Iterations, gathering_into
from accelopt.kernels.cuda.programs.loops import Part, gathered, head, is_sync, starts_neutral, tree
from accelopt.kernels.cuda.programs.program import (
    Accumulator,
    Edit,
    Once,
    Team,
    Uniform,
)
from accelopt.kernels.cuda.programs.quantities import Quantity, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    Unread,
    bare,
    field,
    joined,
    names,
    said,
    tight,
    walk,
)


class Conditions(NamedTuple):
    """Of a guard: the bound of an index from above and below, and what else must hold."""

    high: Node | None
    low: Quantity
    others: tuple[Node, ...]


def same_kind(one: str, other: str) -> bool:
    """Whether two ways to combine are both sums, products, maxima or minima."""

    def kind(combined: str) -> str:
        for sign in ("+", "*"):
            if f"}} {sign} {{" in combined:
                return sign
        if "hadd" in combined:
            return "+"
        least = "min" in combined or " < " in combined
        return "min" if least else "max"

    return kind(one) == kind(other)


class Totals(Iterations):
    """Reads what puts the parts of a team's threads together, and a thread's one element as a loop."""

    def _combined(self, rest: list[Node]) -> str:
        """How the first tree that follows combines."""
        for one in rest:
            try:
                return tree(one, self.known, self.threads)[0].combined
            except Unread:
                continue
        raise Unread("barriers without a tree")

    def _element_value(self, name: str, kind: str, value: Node | None) -> bool:
        """`i < n ? e : 0` of a thread's one element as the loop that sums `e`; whether it is that."""
        value = bare(value)
        if self.element is None or value is None or value.type != "conditional_expression":
            return False
        rest = said(bare(field(value, "alternative")))
        self._element_sum(
            name, kind, field(value, "condition"), field(value, "consequence"), rest, value
        )
        return True

    def _element_if(self, line: Node) -> bool:
        """`if (i < n) v = e;` of a thread's one element as the loop that sums `e`; whether it is that."""
        condition, then = bare(field(line, "condition")), bare(field(line, "consequence"))
        if self.element is None or condition is None or self.element.name not in names(condition):
            return False
        if then is None or then.type != "assignment_expression":
            raise Unread("an element that does more than be summed")
        left, sign = field(then, "left"), field(then, "operator").type
        value, array = field(then, "right"), said(left.child_by_field_name("argument"))
        other = bare(line.child_by_field_name("alternative"))
        if other is not None and other.type == "else_clause":
            other = bare(other.named_children[0])
        if array in self.shared and other is not None and other.type == "assignment_expression":
            same = tight(field(other, "left")) == tight(left) and self._is_own(left)
            if not same or sign != "=":
                raise Unread("an element of another kind")
            name, rest = f"{array}_part_", said(bare(field(other, "right")))
            self._element_sum(name, self.shared[array], condition, value, rest, then)
            self.parts[array] = name
            return True
        name = said(left)
        rest = self.values.get(name, "?")
        if other is not None or sign not in ("=", "+=") or name not in self.types:
            raise Unread("an element of another kind")
        if sign == "+=" and "+" not in self.whole:
            raise Unread("an element of another kind")
        self._element_sum(name, "", condition, value, rest, then)
        return True

    def _element_sum(
        self, name: str, kind: str, condition: Node, value: Node, rest: str, node: Node
    ) -> None:
        assert self.element is not None
        found = self._conditions(condition, self.element.name, False)
        if found.high is None or found.others or not starts_neutral(self.whole, rest):
            raise Unread("an element that does not begin with nothing")
        if kind:
            self.types[name] = kind
            self.items.append(Uniform(f"{kind} {name} = {rest};"))
        sums = (Accumulator(name, self.types[name], self.whole, own=True),)
        gathering = gathering_into(name, self.whole, "", value)
        edits = {node.id: Edit((*gathering.parts, ";"))}
        self.tainted.discard(self.element.name)
        self._append_loop(
            self.element.name, self.element.type, found.low, self._text(found.high),
            quantity(found.high, self.known), [node], edits, sums, [value],
        )  # fmt: skip
        self.tainted.add(self.element.name)
        self.partial[name] = sums[0]

    def _conditions(self, condition: Node, name: str, away: bool) -> Conditions:
        """What a guard says of the index: of `i < n && row < rows`, or `i >= n || row >= rows` where it
        leaves."""
        high, low, others = None, number(0), []
        for one in joined(bare(condition), "||" if away else "&&"):
            if name not in names(one) and not any(
                name in self.known.get(part, number(0)).names for part in names(one)
            ):
                others.append(one)
                continue
            if one.type != "binary_expression":
                raise Unread("a guard of another kind")
            left, right = field(one, "left"), field(one, "right")
            sign = field(one, "operator").type
            if said(bare(right)) == name:
                left, right = right, left
                sign = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(sign, sign)
            if away:
                sign = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}.get(sign, sign)
            if said(bare(left)) != name or name in names(right):
                raise Unread("a guard of another kind")
            if sign == "<" and high is None:
                high = right
            elif sign in (">", ">=") and not low.terms:
                low = quantity(right, self.known).plus(number(sign == ">"))
            else:
                raise Unread("a guard of another kind")
        return Conditions(high, low, tuple(others))

    def _tree(self, lines: list[Node], place: int) -> int:
        """Sums that go to shared memory and through a tree: how many statements they take, or 0.

        Behind them, element 0 of each array is a variable that every thread has.
        """
        if self.team is Team.THREAD:
            return 0
        stored: dict[str, str] = {}
        at = place
        while at < len(lines) and lines[at].type == "if_statement" and self._element_if(lines[at]):
            at += 1
        stored |= self.parts
        self.parts = {}
        while at < len(lines):
            inner = bare(lines[at])
            if inner is None or inner.type != "assignment_expression":
                break
            left = field(inner, "left")
            if (
                left.type != "subscript_expression"
                or said(field(left, "argument")) not in self.shared
            ):
                break
            if not self._is_own(left) or field(inner, "operator").type != "=":
                break
            array, value = said(field(left, "argument")), field(inner, "right")
            if self._element_value(f"{array}_part_", self.shared[array], value):
                stored[array] = f"{array}_part_"
            else:
                stored[array] = said(bare(value))
            at += 1
        if not stored or at >= len(lines) or not is_sync(lines[at]):
            return 0
        while at < len(lines) and is_sync(lines[at]):
            at += 1
        if at < len(lines) and lines[at].type == "if_statement" and self._alone(lines[at]):
            if set(stored.values()) - set(self.partial):
                raise Unread("a sum over what is no sum of a loop")
            self.pending = dict(stored)
            return at - place
        parts: dict[str, Part] = {}
        while at < len(lines) and set(parts) != set(stored):
            for part in tree(lines[at], self.known, self.threads):
                parts[part.array] = part
            at += 1
            while at < len(lines) and is_sync(lines[at]):
                at += 1
        if set(parts) != set(stored):
            raise Unread("a tree over other arrays")
        for array, name in stored.items():
            self._total(array, name, parts[array].combined)
        return at - place

    def _total(self, array: str, name: str, combined: str) -> None:
        if name not in self.partial:
            raise Unread("a tree over what is no sum of a loop")
        if not same_kind(self.partial[name].combined, combined):
            raise Unread("a tree that sums otherwise than its loop")
        del self.partial[name]
        if array not in self.firsts:
            self.firsts.add(array)
            self.items.insert(0, Uniform(f"{self.shared[array]} {array}_first_;"))
        self.items.append(Uniform(f"{array}_first_ = {name};"))
        self.stale.add(name)

    def _atomic(self, call: Node) -> None:
        """An addition by every thread, of a sum that is its own."""
        target, value = field(call, "arguments").named_children
        there = pointer(target, self.known, self.pointers)
        function = said(field(call, "function"))
        plain = said(bare(value))
        name = self._scaled_sum(function, value) or plain
        told = said(target.child_by_field_name("argument"))
        if told in self.told and function in ATOMIC and plain in self.partial:
            start, kind = self.values.get(told, "?"), self.partial[name].combined
            if not starts_neutral(ATOMIC[function], start) or function != "atomicAdd":
                raise Unread("a shared sum that begins with something")
            if not same_kind(kind, ATOMIC[function]):
                raise Unread("an atomic operation of another kind")
            del self.partial[name]
            self.values.pop(told)
            self.items.append(Uniform(f"{told} = {name};"))
            self.stale.add(name)
            self.totals.add(told)
            return
        if there is None or name not in self.partial or function not in ATOMIC:
            raise Unread("an atomic operation by every thread")
        if not same_kind(self.partial[name].combined, ATOMIC[function]):
            raise Unread("an atomic operation of another kind")
        if self.types[name] != self.kernel.parameters[there.parameter].type:
            raise Unread("an atomic operation of another type")
        del self.partial[name]
        self.stored.add(there.parameter)
        self.items.append(Once(self._text(call) + ";"))
        self.stale.add(name)

    def _scaled_sum(self, function: str, value: Node) -> str | None:
        """The sum in `sum / n` or `sum * n`, n a number that the kernel is given: the scaled whole is the
        sum of the scaled parts. Not for whole numbers, whose quotients are cut off."""
        product = bare(value)
        if function != "atomicAdd" or product is None or product.type != "binary_expression":
            return None
        name, scale = said(field(product, "left")), field(product, "right")
        given = {p.name for p in self.kernel.parameters.values() if not p.pointer}
        if field(product, "operator").type not in ("*", "/") or name not in self.partial:
            return None
        is_number = all(one.type != "call_expression" for one in walk(scale))
        is_float = self.types[name] in ("float", "double")
        return name if is_float and is_number and names(scale) <= given else None

    def _once_atomic(self, call: Node) -> None:
        """An addition by one thread of a block: of a whole sum, so that it does not matter of which."""
        function = said(field(call, "function"))
        given = field(call, "arguments").named_children
        if function not in ATOMIC or len(given) != 2:
            raise Unread("an atomic operation of another kind")
        there = pointer(given[0], self.known, self.pointers)
        if there is None:
            raise Unread("an atomic operation on nobody knows what")
        self.stored.add(there.parameter)
        value = bare(given[1]) or given[1]
        held = self.values.get(said(value), "")
        whole = (
            self._first(value)
            or said(value) in self.totals
            or held.removesuffix("[0]") in self.firsts
        )
        if self.team is Team.GRID and not whole:
            raise Unread("an atomic operation with what is no total")
        self.items.append(Once(self._text(call) + ";"))

    def _added_up(self, line: Node) -> bool:
        """Whether one thread adds up what all have stored: with their total, all do."""
        if line.type != "for_statement" or not self.pending:
            return False
        found, body = head(line, self.known), bare(field(line, "body"))
        sums = gathered(body) if body is not None else None
        places = [one for one in walk(field(line, "body")) if one.type == "subscript_expression"]
        whole = (found.low, found.step) == (number(0), number(1))
        if not whole or quantity(found.high, self.known) != number(self.threads) or sums is None:
            raise Unread("a sum of another kind by one thread")
        array = said(field(places[0], "argument")) if len(places) == 1 else ""
        index = field(places[0], "indices").named_children if places else []
        if array not in self.pending or tight(index[0]) != found.variable or body is None:
            raise Unread("a sum of another kind by one thread")
        if body.type != "assignment_expression" or tight(bare(field(body, "right"))) not in (
            tight(places[0]), f"{sums.name}+{tight(places[0])}", f"{tight(places[0])}+{sums.name}"
        ):  # fmt: skip
            raise Unread("a sum of another kind by one thread")
        name = self.pending.pop(array)
        if not same_kind(self.partial[name].combined, sums.combined):
            raise Unread("a sum of another kind by one thread")
        del self.partial[name]
        self.values.pop(sums.name, None)
        self.items.append(Uniform(f"{sums.name} = {sums.combined.format(sums.name, name)};"))
        self.stale.add(name)
        return True
