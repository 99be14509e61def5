"""The ranges that kernels loop over: traced once, or unrolled when the kernel's Python needs it.

A symbolic body is right only if every iteration does the same thing. So a loop is unrolled when
its Python state changes from one iteration to the next (a counter, a list that grows), and when it
is not the plain `for` statement that tracing understands (a comprehension, `zip`, `break`).
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import sys
from collections.abc import Iterator
from types import FrameType

from accelopt.sim import state
from accelopt.sim.affine import LoopVariable, variable
from accelopt.sim.call_sites import LoopKey, call_chain
from accelopt.sim.errors import SourceLine
from accelopt.sim.nki.index import Index, LoopIndex
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.program import LoopKind
from accelopt.sim.tracer import NeedsConcrete, Tracer, current

CONSUMERS = frozenset(
    "zip enumerate reversed list tuple sorted map filter set sum min max any all iter next".split()
)


class KernelRange:
    """What nl.affine_range and nl.sequential_range return inside of a kernel."""

    def __init__(self, kind: LoopKind, start: int, stop: int, step: int) -> None:
        self.kind = kind
        self.values = range(start, stop, step)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Index | LoopIndex]:
        tracer = current()
        frame = sys._getframe(1)
        key = call_chain(frame)
        if not self.values:
            return
        statement = for_statement(frame)
        if key in tracer.unrolled:
            yield from _unrolled(tracer, key, self.values, scoped=statement is not None)
            return
        if statement is None:
            tracer.demanded.add(key)
            raise NeedsConcrete(frozenset({key}))
        yield from self._symbolic(tracer, frame, key, statement)

    def _symbolic(
        self, tracer: Tracer, frame: FrameType, key: LoopKey, statement: ast.For
    ) -> Iterator[Index]:
        index = LoopVariable(
            tracer.fresh_id(), self.values.start, self.values.step, len(self.values)
        )
        source = SourceLine(frame.f_code.co_filename, frame.f_lineno)
        before = dict(frame.f_locals)
        contents = state.contents(frame, before)
        with tracer.loop(index, self.kind, source, key):
            try:
                yield Index(variable(index))
            except GeneratorExit:  # break, return, or an exception on its way out
                if tracer.failure is None and ends_in_return(statement):
                    return  # the kernel's last line, indented too far: the body is complete
                tracer.demanded.add(key)
                raise
            if _carries(tracer, before, frame, statement) or (
                contents.prints != state.contents(frame, before).prints
            ):
                tracer.demanded.add(key)


def _carries(
    tracer: Tracer, before: dict[str, object], frame: FrameType, statement: ast.For
) -> bool:
    """True when the body rebinds a name that its next iteration reads first. Not so a tensor by
    one made in the loop (S18): that is gone when the iteration ends, so each iteration starts from
    the tensor outside. The SDK's tracer warns of it (`nki.errors.rst`,
    err_local_variable_used_out_of_scope) and refuses the name after the loop, as `check_scope`."""
    after = frame.f_locals
    for name in exposed_names(statement):
        if name not in before or name not in after or state.same(before[name], after[name]):
            continue
        if only_places(statement, name):
            continue
        old, new = before[name], after[name]
        shadows = isinstance(old, TensorView) and isinstance(new, TensorView)
        if not (shadows and tracer.belongs_to_loop(new.storage)):  # type: ignore[attr-defined]
            return True
    return False


class StaticRange:
    """What nl.static_range returns: every iteration traced by itself, with a Python number. Its
    body is no scope of tensors: they live on, as in plain Python."""

    def __init__(self, start: int, stop: int, step: int) -> None:
        self.values = range(start, stop, step)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[LoopIndex]:
        key = call_chain(sys._getframe(1))
        yield from _unrolled(current(), key, self.values, scoped=False)


def _unrolled(tracer: Tracer, key: LoopKey, values: range, scoped: bool) -> Iterator[LoopIndex]:
    number = tracer.fresh_id()
    for value in values:
        with tracer.iteration(key, number, value, scoped):
            yield LoopIndex(value, number)


def for_statement(frame: FrameType) -> ast.For | None:
    """The `for` statement this frame is about to run a range for; None when the range feeds a
    comprehension or another iterator."""
    if frame.f_code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
        return None
    span = _running_span(frame)
    for statement in _for_statements(frame.f_code.co_filename):
        iterable = statement.iter
        if span is None:
            running = statement.lineno <= frame.f_lineno <= (iterable.end_lineno or 0)
        else:
            running = span in (_span(statement), _span(iterable))
        if running:
            return None if _consumes(iterable) else statement
    return None


Span = tuple[int, int, int, int]


def _running_span(frame: FrameType) -> Span | None:
    """Lines and columns of the running instruction; None before Python 3.11, which has no such
    table. CPython gives a loop's instruction the place of its statement, or of its iterable."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return None
    found = next(itertools.islice(positions(), frame.f_lasti // 2, None), None)
    if found is None or None in found:
        return None
    line, end_line, column, end_column = found
    return (line, column, end_line, end_column)


def _span(node: ast.stmt | ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _consumes(iterable: ast.expr) -> bool:
    """True when the `for` statement iterates over something made of the range."""
    if isinstance(iterable, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
        return True
    return (
        isinstance(iterable, ast.Call)
        and isinstance(iterable.func, ast.Name)
        and iterable.func.id in CONSUMERS
    )


def _for_statements(file: str) -> tuple[ast.For, ...]:
    return _parsed_for_statements("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parsed_for_statements(text: str) -> tuple[ast.For, ...]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.For))


def ends_in_return(statement: ast.For) -> bool:
    """True when every iteration's last step is `return`, as in an example of the SDK. The real
    tracer runs the body once and takes it for all iterations."""
    last = statement.body[-1]
    inner = isinstance(last, ast.For) and ends_in_return(last)
    return isinstance(last, ast.Return) or inner


@functools.lru_cache(maxsize=1024)
def only_places(statement: ast.For, name: str) -> bool:
    """True when the body uses the name only to say where tensors lie: a running address, as
    directly allocated kernels keep. The real tracer runs the body once, so its first value counts.
    """
    placing: set[ast.AST] = set()
    used = False
    for node in ast.walk(statement):
        if isinstance(node, ast.keyword) and node.arg == "buffer":
            inside = set(ast.walk(node.value))
            used = used or any(_is_name(inner, name) for inner in inside)
            placing |= inside
        elif (isinstance(node, ast.AugAssign) and _is_name(node.target, name)) or (
            isinstance(node, ast.Assign) and all(_is_name(t, name) for t in node.targets)
        ):
            placing.update(ast.walk(node))
    return used and all(n in placing for n in ast.walk(statement) if _is_name(n, name))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@functools.lru_cache(maxsize=1024)
def exposed_names(statement: ast.For) -> frozenset[str]:
    """Names that one iteration may read before it has assigned them: what it takes over from the
    iteration before."""
    exposed: set[str] = set()
    assigned = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    _scan(statement.body, assigned, exposed)
    return frozenset(exposed)


def _scan(statements: list[ast.stmt], assigned: set[str], exposed: set[str]) -> None:
    for statement in statements:
        if isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.Try)):
            _scan_block(statement, assigned, exposed)
            continue
        stores: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load) and node.id not in assigned:
                    exposed.add(node.id)
                elif isinstance(node.ctx, ast.Store):
                    stores.add(node.id)
        target = statement.target if isinstance(statement, ast.AugAssign) else None
        if isinstance(target, ast.Name) and target.id not in assigned:
            exposed.add(target.id)
        assigned |= stores


def _scan_block(
    statement: ast.For | ast.While | ast.If | ast.With | ast.Try,
    assigned: set[str],
    exposed: set[str],
) -> None:
    """Names assigned in only some branches stay unassigned afterwards."""
    heads: list[ast.AST] = []
    if isinstance(statement, ast.For):
        heads = [statement.iter]
    elif isinstance(statement, (ast.While, ast.If)):
        heads = [statement.test]
    elif isinstance(statement, ast.With):
        heads = [item.context_expr for item in statement.items]
    for head in heads:
        for node in ast.walk(head):
            if isinstance(node, ast.Name) and node.id not in assigned:
                exposed.add(node.id)
    inner = set(assigned)
    if isinstance(statement, ast.For):
        inner |= {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
    _scan(statement.body, inner, exposed)
    if isinstance(statement, ast.With):
        assigned |= inner
        return
    branches = [inner]
    others: list[list[ast.stmt]] = []
    if isinstance(statement, (ast.For, ast.While, ast.If)):
        others = [statement.orelse]
    else:
        others = [statement.orelse, statement.finalbody, *(h.body for h in statement.handlers)]
    for other in others:
        branch = set(assigned)
        _scan(other, branch, exposed)
        branches.append(branch)
    if isinstance(statement, ast.If):
        assigned |= set.intersection(*branches)
    elif isinstance(statement, ast.For):
        # A kernel's inner loop runs at least once; what it assigns is assigned afterwards.
        assigned |= inner
