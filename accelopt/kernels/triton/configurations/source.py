"""A Triton solution's source: its kernels, their launches, and edits of the text by place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accelopt.parsing import parse_python


class Edit(NamedTuple):
    """Replace the bytes from `start` to `end` of the source by `text`."""

    start: int
    end: int
    text: str


class JitFunction(NamedTuple):
    """A `@triton.jit` function. `autotune` is its decorator's call, if it has one."""

    name: str
    node: ast.FunctionDef
    autotune: ast.Call | None

    @property
    def arguments(self) -> list[ast.arg]:
        """In order, positional and keyword-only."""
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @property
    def parameters(self) -> list[str]:
        """Their names."""
        return [a.arg for a in self.arguments]

    @property
    def constants(self) -> set[str]:
        """Parameters annotated as `tl.constexpr`."""
        return {
            a.arg
            for a in self.arguments
            if a.annotation is not None and ast.unparse(a.annotation).endswith("constexpr")
        }

    def default(self, parameter: str) -> ast.expr | None:
        """What a parameter is where no launch says it."""
        own = self.node.args
        by_place = [*own.posonlyargs, *own.args][-len(own.defaults) or None :]
        pairs = [*zip(by_place, own.defaults, strict=False),
                 *zip(own.kwonlyargs, own.kw_defaults, strict=True)]  # fmt: skip
        return next((value for a, value in pairs if a.arg == parameter), None)


class Launch(NamedTuple):
    """`kernel[grid](...)` inside a host function."""

    kernel: JitFunction
    call: ast.Call
    grid: ast.expr
    function: ast.FunctionDef | None

    def bound(self, parameter: str) -> ast.expr | None:
        """The argument expression for `parameter`, or None when it is not passed."""
        for keyword in self.call.keywords:
            if keyword.arg == parameter:
                return keyword.value
        position = self.kernel.parameters.index(parameter)
        if position < len(self.call.args) and not any(
            isinstance(a, ast.Starred) for a in self.call.args
        ):
            return self.call.args[position]
        return None

    def option(self, name: str) -> ast.expr | None:
        """A launch option such as num_warps."""
        return next((k.value for k in self.call.keywords if k.arg == name), None)


class Source:
    """Parsed text. Raises SyntaxError when it is not Python."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self.tree = parse_python(text)
        self._lines = [0]
        for line in self.data.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.functions = [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)]
        self.kernels = {k.name: k for k in map(_kernel, self.functions) if k is not None}
        self.launches = list(self._launches())

    def start(self, node: ast.stmt | ast.expr) -> int:
        """Byte offset where a node begins."""
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.stmt | ast.expr) -> int:
        """Byte offset behind a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def replacing(self, node: ast.stmt | ast.expr, text: str) -> Edit:
        """The edit that puts `text` in a node's place."""
        return Edit(self.start(node), self.end(node), text)

    def adding(self, call: ast.Call, arguments: str) -> Edit:
        """The edit that gives a call further arguments, behind its last and before any remark."""
        close = self.end(call) - 1
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        place = max(map(self.end, given)) if given else close
        last, in_remark = b"" if given else b",", False
        for at in range(place, close):
            one = self.data[at : at + 1]
            in_remark = one == b"#" or (in_remark and one != b"\n")
            if not in_remark and not one.isspace():
                place, last = at + 1, one
        between = "" if not given else " " if last == b"," else ", "
        return Edit(place, place, f"{between}{arguments}")

    def edited(self, edits: Sequence[Edit]) -> str:
        """The text after all edits; they must not overlap."""
        data = self.data
        for edit in sorted(set(edits), reverse=True):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        return data.decode()

    def _launches(self) -> Iterator[Launch]:
        owners = {
            id(inner): function for function in self.functions for inner in ast.walk(function)
        }
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Subscript)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in self.kernels
            ):
                kernel = self.kernels[node.func.value.id]
                yield Launch(kernel, node, node.func.slice, owners.get(id(node)))


def _kernel(function: ast.FunctionDef) -> JitFunction | None:
    is_kernel, autotune = False, None
    for decorator in function.decorator_list:
        name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in ("triton.jit", "jit"):
            is_kernel = True
        if name in ("triton.autotune", "autotune") and isinstance(decorator, ast.Call):
            autotune = decorator
    return JitFunction(function.name, function, autotune) if is_kernel else None


def called(node: ast.AST) -> str:
    """The dotted name a call calls, or an empty string."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def names_in(node: ast.AST) -> set[str]:
    """All names that occur in a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def is_range(node: ast.expr) -> bool:
    """Whether a loop's iterator is `range` or `tl.range`."""
    return called(node) in ("range", "tl.range")
