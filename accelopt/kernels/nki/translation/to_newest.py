"""From `nki` 0.3 to 0.6 to the newest: loops of the device are functions there (migration page of SDK 2.33).

    for i in nl.dynamic_range(0, stop): ...    def body(i): ...
                                               nl.fori_loop(0, stop, body)
    while left: ...                            def body_2(left): ...; return left
                                               nl.while_loop(left, body_2)

With bounds that Python knows the first is `range`. A body keeps the names that it shares with what is around
it by `nonlocal`; one that leaves the loop, or makes what is used after it, is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper

from accelopt.kernels.nki.translation.facts import CallFacts
from accelopt.kernels.nki.translation.indices import Untranslated, text_of
from accelopt.kernels.nki.translation.names import ModuleNames
from accelopt.kernels.nki.translation.rewriter import Rewriter
from accelopt.parsing import parse_python

Loop = ast.For | ast.While
Function = ast.FunctionDef | ast.Lambda
BOUNDS = ("start", "stop", "step")


class ToNewest(Rewriter):
    """Rewrites the loops; `facts.device_loops` are the lines of those that the device counts."""

    def __init__(self, source: str, facts: CallFacts, names: ModuleNames) -> None:
        super().__init__(facts, names)
        self.around = {loop.lineno: (loop, home) for loop, home in _loops(parse_python(source))}

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Any:
        called = isinstance(original_node.iter, cst.Call) and self.names.called(
            original_node.iter.func
        )
        if called != ("nl", "dynamic_range"):
            return updated_node
        bounds = _bounds(updated_node.iter)  # type: ignore[arg-type]
        if self._line(original_node) not in self.facts.device_loops:
            given = f"range({', '.join(text for text in bounds if text)})"
            return updated_node.with_changes(iter=cst.parse_expression(given))
        start, stop, step = bounds if bounds[1] else ("0", bounds[0], "")
        counts = f"{start}, {stop}, {{}}" + (f", step={step}" if step not in ("", "1") else "")
        return self._made(original_node, updated_node, f"fori_loop({counts})", "")

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> Any:
        if self._line(original_node) not in self.facts.device_loops:
            return updated_node
        register = text_of(original_node.test)
        return self._made(original_node, updated_node, f"while_loop({register}, {{}})", register)

    def _made(self, node: Any, updated: Any, call: str, register: str) -> Any:
        """The body as a function, and the loop as a call; `register` is what it counts down itself."""
        loop, home = self.around[self._line(node)]
        try:
            shared = _shared(loop, home, register)
        except Untranslated as problem:
            self._give_up(node, str(problem))
            return updated
        name = self.names.fresh("body")
        counter = register or text_of(node.target)
        lines = [cst.parse_statement(f"nonlocal {', '.join(shared)}")] if shared else []
        ends = [cst.parse_statement(f"return {register}")] if register else []
        block = updated.body.with_changes(body=[*lines, *updated.body.body, *ends])
        blank = [cst.EmptyLine(indent=False)]
        apart = any(line.comment is None for line in updated.leading_lines)
        made = cst.FunctionDef(
            cst.Name(name), cst.Parameters([cst.Param(cst.Name(counter))]), block,
            leading_lines=[*blank[apart:], *updated.leading_lines],
        )  # fmt: skip
        said: Any = cst.parse_statement(f"{self.nl}.{call.format(name)}")
        return cst.FlattenSentinel([made, said.with_changes(leading_lines=blank)])


def _loops(tree: ast.AST, home: ast.AST | None = None) -> Iterator[tuple[Loop, ast.AST]]:
    """Every loop of a module with the function that it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Loop):
            yield node, home or tree
        yield from _loops(node, node if isinstance(node, Function) else home)


def _bounds(call: cst.Call) -> list[str]:
    """start, stop and step as they are written; empty where they are not."""
    found = dict.fromkeys(BOUNDS, "")
    for place, argument in zip(BOUNDS, call.args, strict=False):
        found[argument.keyword.value if argument.keyword else place] = text_of(argument.value)
    return list(found.values())


def _own(nodes: list[Any], inner: type | tuple[type, ...]) -> Iterator[ast.AST]:
    """Everything below some nodes but what stands inside of `inner` ones."""
    for node in nodes:
        yield node
        if not isinstance(node, inner):
            yield from _own(list(ast.iter_child_nodes(node)), inner)


def _shared(loop: Loop, home: ast.AST, register: str) -> list[str]:
    """Names that the body of a loop changes for what is around it. Raises Untranslated where a function
    cannot be in the loop's place."""
    if loop.orelse or (isinstance(loop, ast.While) and not isinstance(loop.test, ast.Name)):
        raise Untranslated("a loop of the device with an else, or a condition that is no register")
    if isinstance(loop, ast.For) and not isinstance(loop.target, ast.Name):
        raise Untranslated("a loop of the device whose counter is no name")
    scopes = (
        ast.FunctionDef,
        ast.Lambda,
        ast.ListComp,
        ast.SetComp,
        ast.DictComp,
        ast.GeneratorExp,
    )
    inside = list(_own(loop.body, scopes))
    leaves = any(isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) for node in inside)
    if leaves or any(
        isinstance(n, ast.Break | ast.Continue)
        for n in _own(loop.body, (*scopes, ast.For, ast.While))
    ):
        raise Untranslated("a loop of the device that is left early")
    names = [node for node in inside if isinstance(node, ast.Name)]
    bound = {node.id: node.lineno for node in reversed(names) if not isinstance(node.ctx, ast.Load)}
    read = {n.id for n in names if isinstance(n.ctx, ast.Load) and n.lineno <= bound.get(n.id, 0)}
    read |= {
        n.target.id
        for n in inside
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    within = {id(node) for node in ast.walk(loop)}
    outside = [n for n in ast.walk(home) if isinstance(n, ast.Name) and id(n) not in within]
    known = {n.id for n in outside if not isinstance(n.ctx, ast.Load)}
    known |= {node.arg for node in ast.walk(home) if isinstance(node, ast.arg)}
    after = {
        n.id for n in outside if isinstance(n.ctx, ast.Load) and n.lineno > (loop.end_lineno or 0)
    }
    counters = {register} if register else {loop.target.id}  # type: ignore[union-attr]
    if lost := sorted((after & ({*bound} - known)) | (after & counters)):
        raise Untranslated(
            f"'{lost[0]}', which a loop of the device sets and what follows it reads,"
        )
    return sorted((after | read) & {*bound} & known - counters)


def has_device_loops(source: str) -> bool:
    """Whether a module may have loops of the device as NKI 0.6 wrote them."""
    return re.search(r"\bdynamic_range\b|\bwhile\b", source) is not None


def to_newest(
    source: str, facts: CallFacts, names: ModuleNames
) -> tuple[str, list[tuple[int, str]]]:
    """The module for the newest `nki`, and what could not be translated."""
    rewriter = ToNewest(source, facts, names)
    code = MetadataWrapper(cst.parse_module(source)).visit(rewriter).code
    return code, [(line, f"{said} has no counterpart") for line, said in rewriter.problems]
