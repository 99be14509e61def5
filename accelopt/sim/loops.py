"""The ranges that kernels loop over: traced once, or unrolled when the kernel's Python needs it.

A symbolic body is right only if every iteration does the same thing. So a loop is unrolled when
its Python state changes from one iteration to the next (a counter, a list that grows), and when it
is not the plain `for` statement that tracing understands (a comprehension, `zip`, `break`).
"""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from accelopt.sim.access import LoopVariable, variable
from accelopt.sim.errors import KernelSyntaxError, SourceLine
from accelopt.sim.nki.index import Index, LoopIndex
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.program import LoopKind
from accelopt.sim.trace import OUR_FOLDER, LoopKey, NeedsConcrete, Tracer, current

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
        key = loop_key(frame)
        if not self.values:
            return
        statement = for_statement(frame)
        if key in tracer.unrolled:
            yield from self._unrolled(tracer)
            return
        if statement is None:
            tracer.demanded.add(key)
            raise NeedsConcrete(frozenset({key}))
        yield from self._symbolic(tracer, frame, key, statement)

    def _unrolled(self, tracer: Tracer) -> Iterator[LoopIndex]:
        number = tracer.fresh_id()
        for position, value in enumerate(self.values):
            with tracer.iteration():
                yield LoopIndex(value, number, position)

    def _symbolic(
        self, tracer: Tracer, frame: FrameType, key: LoopKey, statement: ast.For
    ) -> Iterator[Index]:
        index = LoopVariable(
            tracer.fresh_id(), self.values.start, self.values.step, len(self.values)
        )
        source = SourceLine(frame.f_code.co_filename, frame.f_lineno)
        before = dict(frame.f_locals)
        lengths = _container_lengths(before)
        finished = False
        with tracer.loop(index, self.kind, source, key):
            try:
                yield Index(variable(index))
                finished = True
            finally:
                if not finished:  # break, return, or an exception on its way out
                    tracer.demanded.add(key)
            after = dict(frame.f_locals)
            carried = exposed_names(statement)
            for name, value in after.items():
                changed = name in before and before[name] is not value
                if changed and name in carried:
                    _refuse_rebound_tensor(tracer, name, before[name], value)
                    tracer.demanded.add(key)
            if lengths != _container_lengths({name: before[name] for name in before}):
                tracer.demanded.add(key)


def _refuse_rebound_tensor(tracer: Tracer, name: str, old: object, new: object) -> None:
    """`acc = acc + x` in a loop makes a new tensor each time; the old one is never updated."""
    if isinstance(old, TensorView) and isinstance(new, TensorView):
        tracer.refuse(
            KernelSyntaxError(
                "err_local_variable_used_out_of_scope",
                f"'{name}' is rebound in the loop and read again in its next iteration; a tensor "
                "made inside a loop does not outlive the iteration.",
                f"Declare '{name}' before the loop and update it in place: {name}[...] = value.",
            )
        )


def _container_lengths(local: dict[str, object]) -> dict[str, tuple[int, ...]]:
    """Identity of what lists, dicts and sets hold, to see whether the body changed them."""
    return {
        name: tuple(id(item) for item in (value.items() if isinstance(value, dict) else value))
        if not isinstance(value, dict)
        else tuple(id(item) for pair in value.items() for item in pair)
        for name, value in local.items()
        if isinstance(value, (list, dict, set))
    }


def loop_key(frame: FrameType | None) -> LoopKey:
    """The chain of kernel source lines that leads to this loop."""
    chain: list[tuple[str, int]] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OUR_FOLDER):
            if frame.f_code.co_name == "run_kernel":
                break
        else:
            chain.append((file, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(chain))


def for_statement(frame: FrameType) -> ast.For | None:
    """The `for` statement this frame is about to run a range for; None when the range feeds a
    comprehension or another iterator."""
    if frame.f_code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
        return None
    if not _is_for_iteration(frame.f_code, frame.f_lasti):
        return None
    for statement in _for_statements(frame.f_code.co_filename):
        if statement.iter.lineno <= frame.f_lineno <= (statement.iter.end_lineno or 0) or (
            statement.lineno == frame.f_lineno
        ):
            consumer = statement.iter
            if isinstance(consumer, ast.Call) and isinstance(consumer.func, ast.Name):
                return None if consumer.func.id in CONSUMERS else statement
            return statement
    return None


@functools.lru_cache(maxsize=256)
def _iteration_offsets(code: CodeType) -> frozenset[int]:
    return frozenset(
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("FOR_ITER", "GET_ITER")
    )


def _is_for_iteration(code: CodeType, offset: int) -> bool:
    return offset in _iteration_offsets(code)


def _for_statements(file: str) -> tuple[ast.For, ...]:
    return _parsed_for_statements("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=64)
def _parsed_for_statements(text: str) -> tuple[ast.For, ...]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.For))


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
