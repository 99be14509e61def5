"""Functions of a source that work with other threads, put into the kernel that calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.syntax import (
    Kernel,
    Unread,
    bare,
    body_of,
    closing_of,
    declared,
    expanded,
    field,
    names,
    replaced,
    said,
    statements,
    tight,
    uncommented,
    walk,
)

_FUNCTION = re.compile(
    r"(?:\b(?:static|inline|__inline__|__forceinline__)\s+)*__device__\s+"
    r"(?:(?:static|inline|__inline__|__forceinline__)\s+)*(?P<type>float|double|int|unsigned)\s+"
    r"(?P<name>\w+)\s*\(\s*(?:const\s+)?(?P=type)\s+(?P<value>\w+)\s*\)\s*\{"
)


def with_functions(kernel: Kernel) -> Kernel:
    """The kernel with functions that shuffle in it, where a statement is nothing but their call. Raises
    Unread where they are called in other ways, or are of another form: of one value, which they give back.
    """
    return kernel._replace(body=body_of(_Inliner(kernel).text()))


class _Function(NamedTuple):
    """A function of the source that gives back its only value, reduced."""

    type: str
    value: str
    body: str


class _Inliner:
    """Puts functions that shuffle into the kernel, where a statement is nothing but their call."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.functions = dict(_functions(kernel.before))
        self.numbers = count()
        declarations = [one for one in walk(kernel.body) if one.type == "declaration"]
        self.types = {one.name: one.type for line in declarations for one in declared(line)}

    def text(self) -> str:
        """The kernel's body without calls of them."""
        text = said(self.kernel.body)
        for _ in range(2 * len(self.functions) + 2):
            body = body_of(text)
            if not names(body) & set(self.functions):
                return text
            text = replaced(body, self._inlined)
        raise Unread("functions that call each other")

    def _inlined(self, line: Node) -> str | None:
        """What stands for `v = f(e);`, `T v = f(e);`; None for other nodes."""
        if line.type == "declaration":
            made = declared(line) if names(line) & set(self.functions) else []
            if len(made) != 1 or made[0].value is None:
                return None
            name, value, kind = made[0].name, made[0].value, f"{made[0].type} "
        elif line.type == "expression_statement":
            one = bare(line)
            if (
                one is None
                or one.type != "assignment_expression"
                or field(one, "operator").type != "="
            ):
                return None
            name, value, kind = said(field(one, "left")), field(one, "right"), ""
        else:
            return None
        if value.type != "call_expression" or not name.isidentifier():
            return None
        function = self.functions.get(said(field(value, "function")))
        given = field(value, "arguments").named_children
        if function is None or len(given) != 1:
            return None
        if self.types.get(name) != function.type:
            raise Unread("a function of values of another type")
        begin = "" if not kind and said(given[0]) == name else f"{kind}{name} = {said(given[0])};\n"
        return begin + self._body(function, name)

    def _body(self, function: _Function, name: str) -> str:
        """The function's statements on a variable of the kernel, its own variables by new names."""
        body = body_of(function.body)
        *lines, last = statements(body)
        if last.type != "return_statement" or tight(last) not in (
            f"return {function.value};", f"return({function.value});"
        ):  # fmt: skip
            raise Unread("a function that gives back something else")
        if any(one.type == "return_statement" for line in lines for one in walk(line)):
            raise Unread("a function that may return early")
        own = {made.name for line in lines if line.type == "declaration" for made in declared(line)}
        call = next(self.numbers)
        new = {one: f"{one}Of{call}" for one in own} | {function.value: name}

        def change(node: Node) -> str | None:
            return new.get(said(node)) if node.type == "identifier" else None

        return "\n".join(replaced(line, change) for line in lines)


def _functions(text: str) -> Iterator[tuple[str, _Function]]:
    """Functions of a source that shuffle or call one that does, by their names."""
    plain = uncommented(text)
    known: set[str] = set()
    for found in _FUNCTION.finditer(plain):
        opening = found.end() - 1
        inside = plain[opening : closing_of(plain, opening)]
        body = re.sub(r"\bstatic\s+(?=__shared__)", "", inside)
        if "__shfl" in body or known & set(re.findall(r"\w+", body)):
            known.add(found["name"])
            body = expanded(body, plain[: found.start()], [found["value"]])
            yield found["name"], _Function(found["type"], found["value"], body)
