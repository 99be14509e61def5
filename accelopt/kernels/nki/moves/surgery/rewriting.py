"""Edits of expressions and lines: substitute names, index a tensor differently, drop what is dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    IllegalMove,
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    StatementPath,
    code_of,
    mentions,
    names_in,
    parts,
)


def substitute(node: SourceNode, texts: Mapping[str, str]) -> SourceNode:
    """With names replaced by expressions, in lines, loop headers and everything inside.

    In `loop_indices=[i]` a loop that became two is replaced by both of its variables.
    """
    if not texts:
        return node
    if isinstance(node, SourceStatement):
        if not names_in(node.node) & texts.keys():
            return node
        return SourceStatement(node.node.visit(_Substitution(texts)), node.number)  # type: ignore[arg-type]
    header = node.node.with_changes(iter=node.node.iter.visit(_Substitution(texts)))
    return SourceLoop(header, tuple(substitute(child, texts) for child in node.body), node.number)


def substituted(expression: cst.BaseExpression, texts: Mapping[str, str]) -> str:
    """The text of an expression with names replaced by expressions."""
    changed = expression.visit(_Substitution(texts))
    assert isinstance(changed, cst.BaseExpression)
    return code_of(changed)


def with_expression(
    line: SourceStatement, changes: Mapping[cst.CSTNode, cst.CSTNode]
) -> SourceStatement:
    """With nodes of the line replaced, found by identity; the same line where it holds none of them."""
    if not any(part in changes for part in parts(line.node)):
        return line

    class Replace(cst.CSTTransformer):
        def on_leave(self, original_node, updated_node):  # type: ignore[no-untyped-def]
            return changes.get(original_node, updated_node)

    return SourceStatement(line.node.visit(Replace()), line.number)  # type: ignore[arg-type]


Reindex = Callable[[Sequence[str]], Sequence[str]]


def reindexed(node: SourceNode, tensor: str, buffer: str, change: Reindex, rank: int) -> SourceNode:
    """With `tensor[a, b]` written `buffer[change(a, b)]`; a bare `tensor` or `tensor[...]` counts as
    full slices. Raises IllegalMove where the tensor is used in a way that cannot be re-indexed."""
    if isinstance(node, SourceStatement):
        if tensor not in names_in(node.node):
            return node
        transformer = _Reindexing(tensor, buffer, change, rank)
        return SourceStatement(node.node.visit(transformer), node.number)  # type: ignore[arg-type]
    body = tuple(reindexed(child, tensor, buffer, change, rank) for child in node.body)
    return SourceLoop(node.node, body, node.number)


def with_shape(declaration: ReadStatement, shape: str) -> SourceStatement:
    """A declaration with another shape, given as text."""
    call = declaration.call
    assert call is not None
    return with_expression(declaration.line, {call.arguments["shape"]: cst.parse_expression(shape)})


def tidy(kernel: ParsedKernel) -> ParsedKernel:
    """Without values nobody reads, names of parts nobody uses, and loops with nothing in them."""
    while True:
        reading = read(kernel)
        used = _occurrences(kernel)
        dead = [s.path for s in reading.statements if _is_dead(reading, s, used)]
        empty = [p for p, n in kernel.walk() if isinstance(n, SourceLoop) and not n.body]
        if not dead and not empty:
            return kernel
        kernel = remove(kernel, [*dead, *empty])


def _is_dead(reading: Reading, statement: ReadStatement, used: Counter[str]) -> bool:
    """A pure value whose name occurs nowhere else, or a write to a buffer that nothing reads."""
    if statement.opaque:
        return False
    if statement.bound is None:
        target = statement.target
        if statement.kind != "compute" or target is None or len(statement.writes) != 1:
            return False
        tensor = target.tensor
        readers = [s for s in reading.readers(tensor.storage) if s is not statement]
        return tensor.declared and tensor.buffer != "hbm" and not target.view and not readers
    if statement.writes or statement.kind not in {"compute", "view", "declare", "index"}:
        return False
    if statement.kind == "index" and len(statement.path) == 1:
        return False  # sizes at the top of the kernel tell the reader what it is about
    return used[statement.bound] == 1


def _occurrences(kernel: ParsedKernel) -> Counter[str]:
    """How often each name occurs."""
    count: Counter[str] = Counter()
    for _, node in kernel.walk():
        count.update(mentions(node.node if isinstance(node, SourceStatement) else node.node.iter))
    return count


def remove(kernel: ParsedKernel, paths: Sequence[StatementPath]) -> ParsedKernel:
    """Without the nodes at `paths`."""
    for path in sorted(paths, reverse=True):
        kernel = kernel.replaced(path, [])
    return kernel


class _Substitution(cst.CSTTransformer):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        keyword = original_node.keyword
        if keyword is not None and keyword.value == "loop_indices":
            value = self._loop_indices(original_node.value)
            return updated_node.with_changes(keyword=keyword, value=value)
        return updated_node.with_changes(keyword=keyword, value=_bare(updated_node.value))

    def _loop_indices(self, node: cst.BaseExpression) -> cst.BaseExpression:
        if not isinstance(node, (cst.List, cst.Tuple)):
            raise IllegalMove("loop_indices is not a list of loop variables")
        names: list[str] = []
        for element in node.elements:
            text = self.texts.get(code_of(element.value), code_of(element.value))
            names += _identifiers(text)
        return cst.parse_expression(f"[{', '.join(names)}]")

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_AssignTarget(
        self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget
    ) -> cst.AssignTarget:
        bound = isinstance(original_node.target, (cst.Name, cst.Tuple))
        return original_node if bound else updated_node

    def leave_Index(self, original_node: cst.Index, updated_node: cst.Index) -> cst.Index:
        return updated_node.with_changes(value=_bare(updated_node.value))

    def leave_Slice(self, original_node: cst.Slice, updated_node: cst.Slice) -> cst.Slice:
        lower = updated_node.lower and _bare(updated_node.lower)
        upper = updated_node.upper and _bare(updated_node.upper)
        return updated_node.with_changes(lower=lower, upper=upper)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        text = self.texts.get(original_node.value)
        if text is None:
            return updated_node
        expression = cst.parse_expression(text)
        if isinstance(expression, (cst.Name, cst.Integer, cst.Subscript, cst.Call, cst.Attribute)):
            return expression
        if expression.lpar:  # type: ignore[attr-defined]
            return expression
        return expression.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Without the parentheses that only mattered inside a larger expression."""
    if isinstance(node, cst.BinaryOperation) and len(node.lpar) == 1:
        return node.with_changes(lpar=[], rpar=[])
    return node


def _identifiers(text: str) -> list[str]:
    expression = cst.parse_expression(text)
    return [part.value for part in parts(expression) if isinstance(part, cst.Name)]


class _Reindexing(cst.CSTTransformer):
    def __init__(self, tensor: str, buffer: str, change: Reindex, rank: int) -> None:
        self.tensor, self.buffer, self.change, self.rank = tensor, buffer, change, rank
        self.inside: set[cst.CSTNode] = set()

    def visit_Subscript(self, node: cst.Subscript) -> bool:
        if isinstance(node.value, cst.Name) and node.value.value == self.tensor:
            self.inside.add(node.value)
        return True

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        base = node.value
        if isinstance(base, cst.Name) and base.value == self.tensor:
            if node.attr.value != "dtype":
                raise IllegalMove(f"{self.tensor}.{node.attr.value} is used")
            self.inside.add(base)
        return True

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        base = original_node.value
        if isinstance(base, cst.Name) and base.value == self.tensor:
            return updated_node.with_changes(value=cst.Name(self.buffer))
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        if not (
            isinstance(original_node.value, cst.Name) and original_node.value.value == self.tensor
        ):
            return updated_node
        indices = [code_of(element.slice) for element in updated_node.slice]
        if indices == ["..."]:
            indices = [":"] * self.rank
        if len(indices) != self.rank or "..." in indices:
            raise IllegalMove(f"{self.tensor} is not indexed in all of its dimensions")
        return self._spelled(indices)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if original_node.value != self.tensor or original_node in self.inside:
            return updated_node
        return self._spelled([":"] * self.rank)

    def _spelled(self, indices: list[str]) -> cst.BaseExpression:
        changed = self.change(indices)
        return cst.parse_expression(
            f"{self.buffer}[{', '.join(changed)}]" if changed else self.buffer
        )
