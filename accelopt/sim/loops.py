"""The ranges that kernels loop over: traced once, or unrolled when the kernel's Python needs it.

The real tracer runs the body of a `for` statement once. So a body that changes Python's state (a
counter, a list that grows) or leaves the loop early is refused: on a core it would not do what it
says. A loop whose branches depend on its index is traced iteration by iteration, which is what the
branches' predicates come to. What is no plain `for` statement (a comprehension, `zip`) is Python's.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, FunctionType, ModuleType
from typing import NamedTuple

import numpy as np

from accelopt.parsing import tree_of
from accelopt.sim.affine import Affine, LoopVariable, variable
from accelopt.sim.call_sites import LoopKey, call_chain
from accelopt.sim.conditions import read_first
from accelopt.sim.dialects.neuronxcc.index import LoopIndex, MaskExpression, TileIndex
from accelopt.sim.dialects.neuronxcc.poison import Poison
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import LoopKind
from accelopt.sim.rules import kernels
from accelopt.sim.tracer import NeedsConcrete, Tracer, current

PLAIN = (int, float, str, bytes, bool, complex, type(None))
DEPTH = 4
MOST = 20_000
"""Containers beyond this many items, and objects nested deeper than DEPTH, are not looked into."""


def same(old: object, new: object) -> bool:
    """True for the same object, or equal plain values of one type."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(same, old, new))
    return isinstance(old, PLAIN) and bool(old == new)


class Contents(NamedTuple):
    """A fingerprint, and what it is of: identities only tell objects apart while they live."""

    prints: list[object]
    kept: list[object]


def contents(frame: FrameType, values: Mapping[str, object]) -> Contents:
    """A loop is traced once, which is right only when its body leaves Python's own data as it found them: a
    fingerprint of everything mutable that these values, and the globals that the frame names,
    lead to; its prints are equal before and after when nothing was changed."""
    prints: list[object] = []
    seen: dict[int, object] = {}
    code = frame.f_code
    local = frame.f_locals
    for value in values.values():
        _look(value, prints, seen, DEPTH)
    for name in code.co_names:
        if name in frame.f_globals and name not in local:
            value = frame.f_globals[name]
            prints.append((name, value if isinstance(value, PLAIN) else id(value)))
            _look(value, prints, seen, DEPTH)
    return Contents(prints, list(seen.values()))


def _look(value: object, prints: list[object], seen: dict[int, object], depth: int) -> None:
    if isinstance(value, (*PLAIN, ModuleType, type)) or depth == 0 or id(value) in seen:
        return
    if type(value).__module__.startswith("accelopt.sim"):
        return  # tensors, indices and ranges are ours
    seen[id(value)] = value
    inner: list[object] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)
    elif isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
    elif isinstance(value, np.ndarray):
        prints.append(hash(value.tobytes()) if value.size <= MOST else None)
    elif hasattr(value, "__dict__"):
        inner = list(vars(value).values())
    if not inner or len(inner) > MOST:
        prints.append(len(inner))
        return
    prints.append(tuple(item if isinstance(item, PLAIN) else id(item) for item in inner))
    seen[id(inner)] = inner
    for item in inner:
        _look(item, prints, seen, depth - 1)


def _filled(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return False
    return True


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

    def __iter__(self) -> Iterator[TileIndex | LoopIndex]:
        tracer = current()
        frame = sys._getframe(1)
        key = call_chain(frame)
        if not self.values:
            return
        statement = for_statement(frame)
        if statement is None and key in tracer.unrolled:
            yield from _numbers(tracer, key, self.values)
        elif statement is None:
            tracer.demanded.add(key)
            raise NeedsConcrete(frozenset({key}))
        elif key in tracer.unrolled:
            yield from self._unrolled(tracer, frame, key, statement)
        else:
            yield from self._symbolic(tracer, frame, key, statement)

    def _symbolic(
        self, tracer: Tracer, frame: FrameType, key: LoopKey, statement: ast.For
    ) -> Iterator[TileIndex]:
        index = LoopVariable(
            tracer.fresh_id(), self.values.start, self.values.step, len(self.values)
        )
        source = SourceLine(frame.f_code.co_filename, frame.f_lineno)
        before = Before(frame, statement)
        with tracer.loop(index, self.kind, source, key):
            with _whole(tracer, frame, statement) as whole:
                yield TileIndex(variable(index))
            if whole:
                before.check(tracer, shadowing=True)

    def _unrolled(
        self, tracer: Tracer, frame: FrameType, key: LoopKey, statement: ast.For
    ) -> Iterator[TileIndex]:
        """Each iteration by itself, though not to the kernel's Python."""
        number = tracer.fresh_id()
        before = Before(frame, statement)
        for value in self.values:
            with tracer.iteration(key, number, value):
                with _whole(tracer, frame, statement) as whole:
                    yield TileIndex(Affine(value), (), frozenset({number}))
                if not whole:
                    return
                if value == self.values[0]:
                    before.check(tracer, shadowing=False)


@contextmanager
def _whole(tracer: Tracer, frame: FrameType, statement: ast.For) -> Iterator[list[bool]]:
    """Notes when the body of a loop is left before its end; what it yields is then empty."""
    whole = [True]
    try:
        yield whole
    except GeneratorExit:  # break, return, or an exception on its way out
        whole.clear()
        if tracer.failure is None and ends_in_return(statement):
            return  # the kernel's last line, indented too far: the body is complete
        tracer.left_loops.append(SourceLine(frame.f_code.co_filename, statement.lineno))
        raise


class Before:
    """What a kernel's Python holds before a loop, to see what the first iteration made of it."""

    def __init__(self, frame: FrameType, statement: ast.For) -> None:
        self.frame = frame
        self.statement = statement
        self.values = dict(frame.f_locals)
        self.contents = contents(frame, self.values)

    def check(self, tracer: Tracer, *, shadowing: bool) -> None:
        """Refuses what the next iteration would see changed. A tensor or an index that the body
        rebinds is not seen: each iteration starts from the one outside, which the body's own only
        shadows (SDK 2.26.1, `nki.errors.rst`, err_local_variable_used_out_of_scope: a warning)."""

        def unseen(old: object, new: object) -> bool:
            return _can_be_shadowed(old) and _shadows(tracer, new, shadowing)

        for what in self.changes(unseen):
            tracer.refuse(kernels.changed_by_iteration(what))

    def changes(self, unseen: Callable[[object, object], bool]) -> Iterator[str]:
        """What the next iteration would see changed, in words; not a rebinding that it does not
        see."""
        after = self.frame.f_locals
        for name in sorted(exposed_names(self.statement)):
            if name not in self.values or name not in after:
                continue
            old, new = self.values[name], after[name]
            if same(old, new) or only_places(self.statement, name):
                continue
            if not unseen(old, new):
                yield f"'{name}' changes"
        if self.contents.prints != contents(self.frame, self.values).prints:
            yield "a list, dict or object of the kernel's Python changes"


def _can_be_shadowed(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_can_be_shadowed, value))
    return isinstance(value, (TensorView, Poison, TileIndex, MaskExpression))


def _shadows(tracer: Tracer, value: object, indices: bool) -> bool:
    """True for a tensor made in the loop and, where they can be shadowed, for an index or mask."""
    if isinstance(value, (tuple, list)):
        return all(_shadows(tracer, item, indices) for item in value)
    if isinstance(value, TensorView):
        return tracer.belongs_to_loop(value.storage)
    return isinstance(value, Poison) or (indices and isinstance(value, (TileIndex, MaskExpression)))


class StaticRange:
    """What nl.static_range returns: every iteration traced by itself, with a Python number. Its
    body is no scope of tensors: they live on, as in plain Python."""

    def __init__(self, start: int, stop: int, step: int) -> None:
        self.values = range(start, stop, step)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[LoopIndex]:
        yield from _numbers(current(), call_chain(sys._getframe(1)), self.values)


def _numbers(tracer: Tracer, key: LoopKey, values: range) -> Iterator[LoopIndex]:
    """A loop that the kernel's own Python unrolls."""
    number = tracer.fresh_id()
    for value in values:
        with tracer.iteration(key, number, value, scoped=False):
            yield LoopIndex(value, number)


def for_statement(frame: FrameType) -> ast.For | None:
    """The `for` statement this frame is about to run a range for; None when the range feeds a
    comprehension or another iterator."""
    if frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>"):
        return None
    if frame.f_code.co_flags & inspect.CO_GENERATOR:
        return None
    span = _running_span(frame)
    for statement in _parsed_for_statements("".join(linecache.getlines(frame.f_code.co_filename))):
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


@functools.lru_cache(maxsize=64)
def _parsed_for_statements(text: str) -> tuple[ast.For, ...]:
    return tuple(node for node in ast.walk(tree_of(text)) if isinstance(node, ast.For))


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
    read_first(statement.body, assigned, exposed)
    return frozenset(exposed)
