"""The same kernel in fewer ways to write it: what a body says, said as the readers of programs expect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

from tree_sitter import Node

from accelopt.kernels.cuda.programs.syntax import (
    assigned,
    bare,
    declared,
    field,
    names,
    parsed,
    replaced,
    said,
    tight,
    walk,
)

_WRAPPED = "void body() "
_STATEMENTS = 400  # rewritten in one kernel at most


def plainly(body: str, types: Mapping[str, str]) -> str:
    """A body with one variable a declaration, places asked for apart from what stands there, loops that
    declare their own variables, and sums in variables in the place of sums in memory. `types` are those
    of the elements behind parameters."""
    body = _rewritten(_rewritten(body, _one_by_one), _apart)
    for _ in range(_STATEMENTS):
        before = body
        root = _root(body)
        for block in [one for one in walk(root) if one.type == "compound_statement"]:
            changed = _loop_of_its_own(root, block) or _sum_in_memory(root, block, types)
            if changed is not None:
                body = changed
                break
        if body == before:
            return body
    return body


def _root(body: str) -> Node:
    return parsed(_WRAPPED + body)


def _with(node: Node, texts: Mapping[int, str | None]) -> str:
    """A node's text with other texts in the place of some nodes."""
    return replaced(node, lambda one: texts.get(one.id)).removeprefix(_WRAPPED)


def _rewritten(body: str, change: Callable[[Node], str | None]) -> str:
    return replaced(_root(body), change).removeprefix(_WRAPPED)


def _one_by_one(node: Node) -> str | None:
    """`int i = a; int j = b;` for `int i = a, j = b;`."""
    variables, above = node.children_by_field_name("declarator"), node.parent
    if node.type != "declaration" or len(variables) < 2:
        return None
    if above is None or above.type != "compound_statement":
        return None
    head = said(node).encode()[: variables[0].start_byte - node.start_byte].decode()
    return " ".join(f"{head}{said(one)};" for one in variables)


def _apart(node: Node) -> str | None:
    """`if (i < n) { if (x[i] > 0) ... }` for `if (i < n && x[i] > 0) ...`."""
    if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
        return None
    whole, inside = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
    condition = bare(whole)
    if condition is None or inside is None or condition.type != "binary_expression":
        return None
    if field(condition, "operator").type != "&&":
        return None
    first, second = field(condition, "left"), field(condition, "right")
    if _loads(first) or not _loads(second):
        return None
    return f"if ({said(first)}) {{ if ({said(second)}) {replaced(inside, _apart)} }}"


def _loads(node: Node) -> bool:
    return any(one.type in ("subscript_expression", "pointer_expression") for one in walk(node))


def _loop_of_its_own(root: Node, block: Node) -> str | None:
    """`for (int i = a; i < n; i += s) ...` for `int i = a; while (i < n) { ...; i += s; }`, for
    `int i = a; for (; i < n; i += s) ...`, and for `int i; for (i = a; i < n; i += s) ...`, where nobody
    else asks for the variable; None where there is no such loop."""
    lines = block.named_children
    for line in lines:
        if line.type != "declaration" or len(line.children_by_field_name("declarator")) != 1:
            continue
        if any(one.type in ("reference_declarator", "function_declarator") for one in walk(line)):
            continue
        one = declared(line)[0]
        if one.pointer or one.lengths or one.shared:
            continue
        if one.value is not None and names(one.value) & assigned(root):
            continue
        uses = [use for use in walk(root) if use.type == "identifier" and said(use) == one.name]
        uses = [use for use in uses if not _within(use, line)]
        loops = [
            loop for loop in walk(block) if loop.type in ("for_statement", "while_statement")
            and any(_within(use, loop) for use in uses)
        ]  # fmt: skip
        outer = [
            loop
            for loop in loops
            if not any(_within(loop, other) for other in loops if other.id != loop.id)
        ]
        if not outer or any(not any(_within(use, loop) for loop in outer) for use in uses):
            continue
        made = [_headed(loop, one.type, one.name, one.value, len(outer) == 1) for loop in outer]
        if any(text is None for text in made):
            continue
        texts: dict[int, str | None] = {
            loop.id: text for loop, text in zip(outer, made, strict=True)
        } | {line.id: ""}
        return _with(root, texts)
    return None


def _headed(loop: Node, kind: str, name: str, value: Node | None, only: bool) -> str | None:
    """A loop that declares its variable; None where it cannot."""
    body = loop.child_by_field_name("body")
    condition = loop.child_by_field_name("condition")
    if body is None or condition is None:
        return None
    if loop.type == "while_statement":
        lines = body.named_children if body.type == "compound_statement" else []
        last = lines[-1] if lines else None
        if value is None or not only or last is None or last.type != "expression_statement":
            return None
        if assigned(last) != {name} or any(name in assigned(one) for one in lines[:-1]):
            return None
        if any(one.type == "continue_statement" for one in walk(body)):
            return None
        rest = replaced(body, lambda node: "" if node.id == last.id else None)
        return f"for ({kind} {name} = {said(value)}; {said(condition)[1:-1]}; {said(last)[:-1]}) {rest}"
    start, update = loop.child_by_field_name("initializer"), loop.child_by_field_name("update")
    if update is None or name not in assigned(update) or name in assigned(body):
        return None
    if start is None:
        if value is None or not only:
            return None
        first = f"{kind} {name} = {said(value)}"
    else:
        if start.type != "assignment_expression" or not re.match(rf"{name}=(?!=)", tight(start)):
            return None
        first = f"{kind} {said(start)}"
    return f"for ({first}; {said(condition)}; {said(update)}) {said(body)}"


def _sum_in_memory(root: Node, block: Node, types: Mapping[str, str]) -> str | None:
    """`float total0 = 0; for (...) total0 += e; s[i] = total0;` for `s[i] = 0; for (...) s[i] += e;`,
    where `e` and the loop name `s` nowhere else; None where there is no such pair."""
    lines = [one for one in block.named_children if one.type != "preproc_call"]
    for first, loop in pairwise(lines):
        inner = next(iter(first.named_children), None)
        if first.type != "expression_statement" or loop.type != "for_statement":
            continue
        if inner is None or inner.type != "assignment_expression":
            continue
        target, start = inner.child_by_field_name("left"), loop.child_by_field_name("initializer")
        value = inner.child_by_field_name("right")
        if target is None or target.type != "subscript_expression" or "=" not in said(inner):
            continue
        array = said(target.child_by_field_name("argument"))
        if array not in types or value is None or start is None or _sign(inner) != "=":
            continue
        places = [one for one in walk(loop) if one.type == "identifier" and said(one) == array]
        sums = [
            one
            for one in walk(loop)
            if one.type == "subscript_expression" and tight(one) == tight(target)
        ]
        parts = {said(one) for one in walk(target) if one.type == "identifier"} - {array}
        if not sums or len(places) != len(sums) or parts & assigned(loop) or array in said(value):
            continue
        if any(
            made.name in parts
            for one in walk(loop)
            if one.type == "declaration"
            for made in declared(one)
        ):
            continue
        name = f"total{sum(said(root).count(f'total{n}') > 0 for n in range(9))}"
        ids = {one.id for one in sums}
        text = _with(loop, dict.fromkeys(ids, name))
        texts: dict[int, str | None] = {
            first.id: f"{types[array]} {name} = {said(value)};",
            loop.id: f"{text} {said(target)} = {name};",
        }
        return _with(root, texts)
    return None


def _sign(assignment: Node) -> str:
    operator = assignment.child_by_field_name("operator")
    return "" if operator is None else operator.type


def _within(node: Node, other: Node) -> bool:
    return other.start_byte <= node.start_byte and node.end_byte <= other.end_byte
