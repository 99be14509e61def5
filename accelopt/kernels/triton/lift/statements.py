"""Executes the statements of a kernel once, for all programs of a launch.

An expression is evaluated by Python on tiles. A loop is executed once: what it carries becomes a value
(`Carried`) whose closed form is found afterwards, or an index where each iteration adds the same to it. A
branch that depends on a program's number or on data is executed both ways.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

import numpy as np

from accelopt.algorithm.elementwise_functions import scalar, select
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.rerolling import arguments_of
from accelopt.algorithm.traced_array import NotTraced, index_value, is_float
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.triton.lift.execution import Execution, Range, Unknown
from accelopt.kernels.triton.lift.kernel_trace import Tile
from accelopt.kernels.triton.lift.loops import FARTHEST, MOST_UNROLLED, TracedLoop, assigned_in
from accelopt.kernels.triton.lift.tiles import attribute
from accelopt.parsing import source_lines

LEAST_STAGED = 3
"""Iterations from which on what such a loop carries is an array of its own after each."""


@dataclass
class Ended:
    """The end of a function, or of an iteration: by `return`, `continue` or `break`."""

    by: str
    value: Any = None


def is_read(number: Any) -> bool:
    """Whether a number is one that only an input says."""
    return isinstance(number, Tile) and not isinstance(number.value, Constant)


def launch(
    execution: Execution,
    function: Callable[..., Any],
    grid: Sequence[Any],
    given: Mapping[str, Any],
) -> None:
    """All programs of a launch. How many there are may be numbers of inputs: as many are taken as may reach
    memory, and what those do that are not launched is masked."""
    trace = execution.trace
    if execution.grid is not None:
        trace.refuse("a kernel launches another one")
    execution.launches += 1
    counts = tuple(n if is_read(n) else int(n) for n in grid)
    names = [f"p{execution.launches}_{n}" for n in range(len(counts))]
    if any(not isinstance(count, Tile) and count < 1 for count in counts):
        return
    axes = tuple(
        Axis(name, FARTHEST if isinstance(count, Tile) else count)
        for name, count in zip(names, counts, strict=True)
    )
    unknown = {a: count for a, count in zip(axes, counts, strict=True) if isinstance(count, Tile)}
    if unknown:
        marks, reads = execution.marks(), len(execution.reads)
        _programs(execution, function, axes, counts, given)
        reach = {axis: execution.reach(axis, reads) for axis in unknown}
        execution.restore(marks, reads)
        if any(most >= FARTHEST for most in reach.values()):
            trace.refuse("how many programs a launch has is only known at run time")
        axes = tuple(Axis(a.name, max(reach.get(a, a.extent), 1)) for a in axes)
    guard: Value = execution.values.number(1)
    for axis, count in zip(axes, counts, strict=True):
        if isinstance(count, Tile):
            place = execution.scalar(index_of(axis) if axis.extent > 1 else 0)
            guard = select(trace, (place < count).value, guard, execution.values.number(0))
    with execution.under(guard if unknown else None):
        _programs(execution, function, axes, counts, given)


def _programs(
    execution: Execution, function: Callable[..., Any], axes: tuple[Axis, ...],
    counts: tuple[Any, ...], given: Mapping[str, Any],
) -> None:  # fmt: skip
    execution.axes, execution.programs = axes, counts
    execution.grid = tuple(axis for axis in axes if axis.extent > 1)
    execution.begun = {b: len(b.writes) for b in execution.buffers}
    try:
        call(execution, function, given)
    finally:
        execution.grid, execution.begun = None, {}


def call(
    execution: Execution, function: Callable[..., Any], given: Mapping[str, Any],
    block: type[Block] | None = None,
) -> Any:  # fmt: skip
    """Executes the body of a function with these parameters, by the rules of kernels or of `block`."""
    names = dict(function.__globals__)
    closure = inspect.getclosurevars(function)
    names |= {**closure.nonlocals, **_builtins(execution), **given}
    execution.trace.files.add(function.__code__.co_filename)
    ended = (block or Block)(execution, names).run(body_of(function))
    return ended.value if ended is not None else None


def _builtins(execution: Execution) -> dict[str, Any]:
    def extreme(name: str) -> Callable[..., Any]:
        def made(*given: Any) -> Any:
            given = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], Tile) else given
            if any(isinstance(g, Tile) for g in given):
                return functools.reduce(getattr(np, f"{name}imum"), given)
            return getattr(builtins, name)(*given)

        return made

    return {
        "range": execution.range_of, "min": extreme("min"), "max": extreme("max"),
        "__both": _both(np.logical_and, False), "__either": _both(np.logical_or, True),
        "__not": lambda x: np.logical_not(x) if isinstance(x, Tile) else not x,
        "__updated": _updated, "__chosen": functools.partial(_chosen, execution), "__attribute": functools.partial(attribute, execution.trace),
    }  # fmt: skip


def _chosen(
    execution: Execution, test: Any, on_true: Callable[[], Any], on_false: Callable[[], Any]
) -> Any:
    known = execution.known(test)
    if known is not None:
        return on_true() if known else on_false()
    return execution.merged(execution.truth(test), on_true(), on_false())


def _both(function: Any, ends: bool) -> Callable[..., Any]:
    def made(first: Any, *later: Callable[[], Any]) -> Any:
        found = first
        for other in later:
            if not isinstance(found, Tile):
                if bool(found) == ends:
                    return found
                found = other()
                continue
            if isinstance(found.value, Constant) and bool(found.value.value) == ends:
                return found
            found = function(found, other())
        return found

    return made


def _updated(operation: str, held: Any, given: Any) -> Any:
    """`x += y`: a new tile, else what Python makes of it."""
    in_place = "" if isinstance(held, Tile) else "i"
    return getattr(operator, f"__{in_place}{operation}__")(held, given)


OPERATIONS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and",
    ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
"""Operators by the names that Python has for them."""


class _Expressions(ast.NodeTransformer):
    """`and`, `or`, `not`, conditional expressions, attributes and `x += y` as calls."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "__both" if isinstance(node.op, ast.And) else "__either"
        later = [_delayed(value) for value in node.values[1:]]
        return ast.copy_location(_call(name, [node.values[0], *later]), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        held = copy.deepcopy(node.target)
        held.ctx = ast.Load()
        name = ast.Constant(OPERATIONS[type(node.op)])
        found = _call("__updated", [name, self.visit(held), self.visit(node.value)])
        return ast.copy_location(ast.Assign([self.visit(node.target)], found), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(_call("__attribute", [node.value, ast.Constant(node.attr)]), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(_call("__not", [node.operand]), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        parts = [node.test, _delayed(node.body), _delayed(node.orelse)]
        return ast.copy_location(_call("__chosen", parts), node)


def _call(name: str, arguments: list[Any]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _delayed(value: ast.expr) -> ast.Lambda:
    none = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(none, value)


@functools.lru_cache(maxsize=512)
def body_of(function: Callable[..., Any]) -> tuple[ast.stmt, ...]:
    """The statements of a function, with calls in the place of what Python does to tiles otherwise."""
    lines, first = source_lines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    made = ast.fix_missing_locations(_Expressions().visit(tree)).body[0]
    for node in ast.walk(made):
        node.file = function.__code__.co_filename  # type: ignore[attr-defined]
    return tuple(made.body)


@functools.lru_cache(maxsize=8192)
def _compiled(node: ast.AST) -> CodeType:
    file = getattr(node, "file", "")
    if isinstance(node, ast.expr):
        return compile(ast.fix_missing_locations(ast.Expression(node)), file, "eval")
    if isinstance(node, ast.AnnAssign):
        value = node.value or ast.Constant(None)
        node = ast.copy_location(ast.Assign([node.target], value), node)
    module = ast.Module([cast(ast.stmt, node)], [])
    return compile(ast.fix_missing_locations(module), file, "exec")


def _has(nodes: Sequence[ast.stmt], *kinds: type) -> bool:
    return any(isinstance(part, kinds) for node in nodes for part in ast.walk(node))


def _sum_of(value: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two parts of `a + b`, or of what `a += b` assigns."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return value.left, value.right
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "__updated"
    ):
        name, held, given = value.args
        return (held, given) if isinstance(name, ast.Constant) and name.value == "add" else None
    return None


def _counted(node: ast.While) -> ast.For | None:
    """`for p in range(p, end, step)` for `while p < end: ...; p += step`, where nothing else changes the three."""
    *body, last = node.body
    test = node.test
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name)):
        return None
    if not isinstance(last, ast.Assign) or (added := _sum_of(last.value)) is None:
        return None
    place, (target, *others), (left, right) = test.left.id, last.targets, added
    names = [part.id for part in (target, left) if isinstance(part, ast.Name)]
    if names != [place, place] or others:
        return None
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Lt) or node.orelse:
        return None
    ends = [*test.comparators, right]
    fixed = {n.id for end in ends for n in ast.walk(end) if isinstance(n, ast.Name)}
    if {*assigned_in(body)} & {place, *fixed} or place in fixed:
        return None
    over = _call("range", [test.left, *ends])
    made = ast.copy_location(ast.For(ast.Name(place, ast.Store()), over, body, []), node)
    for part in ast.walk(ast.fix_missing_locations(made)):
        part.file = getattr(node, "file", "")  # type: ignore[attr-defined]
    return made


class Block:
    """The variables of one function, and how its statements change them."""

    def __init__(self, execution: Execution, names: dict[str, Any]) -> None:
        self.execution = execution
        self.trace = execution.trace
        self.values = execution.values
        self.names = names
        self.line = ("", 0)
        self.depth = 0

    def run(self, body: Sequence[ast.stmt]) -> Ended | None:
        """Executes statements; what ends the function or the iteration, where they do."""
        for number, node in enumerate(body):
            self.line = self.trace.statement = (getattr(node, "file", ""), node.lineno)
            if isinstance(node, ast.Return):
                return Ended("return", self.value(node.value) if node.value is not None else None)
            if isinstance(node, (ast.Continue, ast.Break)):
                return Ended("continue" if isinstance(node, ast.Continue) else "break")
            ended: Ended | None = None
            if isinstance(node, ast.If):
                ended = self._branch(node, body[number + 1 :])
            elif isinstance(node, ast.For):
                ended = self._for(node)
            elif isinstance(node, ast.While):
                ended = self._while(node)
            elif isinstance(node, ast.With):
                ended = self.run(node.body)
            elif isinstance(node, ast.Assert):
                if self.known(node.test) is False:
                    self.trace.refuse_at(self.line, "an assertion of the kernel does not hold")
            else:
                self._check(node)
                exec(_compiled(node), self.names)
                for name in assigned_in([node]):
                    self.trace.note(self.names.get(name), self.line)
            if ended is not None:
                return ended
        return None

    def known(self, test: ast.expr) -> bool | None:
        """Whether a test holds, None where only a program or data say so."""
        return self.execution.known(self.value(test))

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        self._check(node)
        found = eval(_compiled(node), self.names)
        self.trace.note(found, self.line)
        return found

    def _check(self, node: ast.AST) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                held = self.names.get(part.id)
                if isinstance(held, Unknown):
                    self.trace.refuse_at(held.line, held.reason)

    # Branches.

    def _branch(self, node: ast.If, rest: Sequence[ast.stmt]) -> Ended | None:
        test, line = self.value(node.test), self.line
        known = self.execution.known(test)
        raises = [
            part[-1:] and isinstance(part[-1], ast.Raise) for part in (node.body, node.orelse)
        ]
        if known is None and any(raises):
            known = not raises[0]  # an error is taken not to be raised
        if known is not None:
            return self.run(node.body if known else node.orelse)
        ends = _has([*node.body, *node.orelse], ast.Return, ast.Continue, ast.Break)
        after = list(rest) if ends else []
        truth = self.execution.truth(test)
        otherwise = select(self.trace, truth, self.values.number(0), self.values.number(1))
        before, outcomes = dict(self.names), []
        for body, guard in ((node.body, truth), (node.orelse, otherwise)):
            self.names.clear()
            self.names.update(before)
            marks = self.execution.marks()
            with self.execution.under(guard):
                outcomes.append((self.run([*body, *after]), dict(self.names)))
            if guard is truth:  # what one branch writes, the other does not see
                aside = [(b, n, b.writes[n:]) for b, n in marks.items()]
                for buffer, n, _ in aside:
                    del buffer.writes[n:]
        for buffer, n, writes in aside:
            buffer.writes[n:n] = writes
        (yes, names), (no, others) = outcomes
        self.line = self.trace.statement = line
        self.names.clear()
        for name in {**names, **others}:
            if name in names and name in others:
                self.names[name] = self.execution.merged(truth, names[name], others[name])
            else:
                self.names[name] = names.get(name, others.get(name))
        if not ends:
            return None
        ways = {"continue" if one is None else one.by for one in (yes, no)}
        if self.depth and ways != {"continue"}:
            way = "break" if "break" in ways else "return"
            self.trace.refuse_at(self.line, f"a loop ends by `{way}`")
        one_value, other = (r.value if r is not None else None for r in (yes, no))
        return Ended(
            "continue" if self.depth else "return", self.execution.merged(truth, one_value, other)
        )

    # Loops.

    def _while(self, node: ast.While) -> Ended | None:
        line = self.line
        for _ in range(MOST_UNROLLED * 64):
            self.line = line
            known = self.known(node.test)
            counted = _counted(node) if known is None else None
            if counted is not None:
                self._for(counted)
                reason = "where a loop ends that a number of an input ends is not known"
                self.names[counted.target.id] = Unknown(reason, line)  # type: ignore[attr-defined]
                return None
            if known is None:
                self.trace.refuse_at(
                    line, "how often a `while` loop runs is only known at run time"
                )
            if not known:
                return None
            ended = self.repeated(node.body)
            if ended is not None and ended.by != "continue":
                return ended if ended.by == "return" else None
        self.trace.refuse_at(line, "a `while` loop does not end")

    def _for(self, node: ast.For) -> Ended | None:
        over = self.value(node.iter)
        if not isinstance(over, Range):
            return self._each(node, over)
        starts, stops = self._ends(over.start, "maximum"), self._ends(over.stop, "minimum")
        first = [index for index in map(index_value, starts) if index is not None]
        last = [index for index in map(index_value, stops) if index is not None]
        if len(first) < len(starts) or (over.step < 0 and len(last) < len(stops)):
            self.trace.refuse_at(self.line, "where this loop begins is only known at run time")
        if len(last) == len(stops) and not any(index.terms for index in (*first, *last)):
            trips = range(max(i.constant for i in first), min(i.constant for i in last), over.step)
            if over.static or len(trips) <= 1:
                return self._each(node, trips if over.static else map(self.execution.scalar, trips))
        start = self._start(first, over.step)
        lower = [s * -1 for s in first if s is not start and (s - start).bounds[1] > 0]
        upper = [s - 1 for s in last]
        if over.step < 0:
            lower, upper = [s * -1 - 1 for s in last], []
        ends = [-(-(stop - start).bounds[over.step > 0] // over.step) for stop in last]
        tests = [stop for stop in stops if index_value(stop) is None]

        def held(index: Index) -> Value:
            values = self.values
            one, zero = values.number(1), values.number(0)
            place = values.position(index)
            for test in tests:
                less = scalar(self.trace, "less", [place, test], True)
                one = select(self.trace, less, one, zero)
            return values.where(
                [*(index + a for a in lower), *(a - index for a in upper)], one, zero
            )

        extent = min(ends) if ends else self._reach(node, start, over.step)
        if extent > 0:
            self._symbolic_or_unrolled(node, start, over.step, extent, held)
        return None

    def _each(self, node: ast.For, over: Iterable[Any]) -> Ended | None:
        for item in over:
            ended = self.iterate(node, item)
            if ended is not None and ended.by != "continue":
                return ended if ended.by == "return" else None
        return self.run(node.orelse)

    def _reach(self, node: ast.For, start: Index, step: int) -> int:
        """How often a loop runs at most whose end is a number of an input: no longer than what it loads
        is in memory."""
        axis, execution, names = Axis("?reach", FARTHEST), self.execution, dict(self.names)
        marks, reads, line = execution.marks(), len(execution.reads), self.line
        self.iterate(node, execution.scalar(start + index_of(axis) * step))
        most = execution.reach(axis, reads)
        self.names.clear()
        self.names.update(names)
        execution.restore(marks, reads)
        if most >= FARTHEST:
            self.trace.refuse_at(line, "how often this loop runs is only known at run time")
        return most

    def _start(self, starts: list[Index], step: int) -> Index:
        """The least of several starts, from which on all others are multiples of the step away."""
        for start in starts:
            apart = [other - start for other in starts]
            whole = all(not (a.constant % step or any(c % step for _, c in a.terms)) for a in apart)
            if whole and (not start.terms or len(starts) == 1):
                return start
        return self.trace.refuse_at(self.line, "where this loop begins is no multiple of its step away "
                                    "from a number")  # fmt: skip

    def _ends(self, given: Any, function: str) -> list[Value]:
        value = self.trace.traced(given).reshape(()).value
        return arguments_of(value, function)

    def iterate(self, node: ast.For, item: Any) -> Ended | None:
        """Executes the body once."""
        if isinstance(node.target, ast.Name):
            self.names[node.target.id] = item
        else:
            self.names["__item"] = item
            taken = ast.Assign([node.target], ast.Name("__item", ast.Load()))
            exec(_compiled(ast.copy_location(taken, node)), self.names)
        return self.repeated(node.body)

    def repeated(self, body: Sequence[ast.stmt]) -> Ended | None:
        """Executes the body of a loop once."""
        self.depth += 1
        try:
            return self.run(body)
        finally:
            self.depth -= 1

    def _symbolic_or_unrolled(
        self, node: ast.For, start: Index, step: int, extent: int, held_at: Callable[[Index], Value]
    ) -> None:
        """`held_at` says whether there is an iteration with an index."""
        execution, line = self.execution, self.line
        names = dict(self.names)
        marks, reads = execution.marks(), len(execution.reads)
        try:
            self.traced(TracedLoop(self, node, start, step, extent, held_at))
        except NotTraced:
            if extent > MOST_UNROLLED:
                raise
            self.names.clear()
            self.names.update(names)
            execution.restore(marks, reads)
            for number in range(extent):
                self.line = line
                index = start + number * step
                held = held_at(index)
                if held == Constant(0.0):
                    continue
                before = dict(self.names)
                with execution.under(held if held != Constant(1.0) else None):
                    ended = self.iterate(node, self.item(index))
                if ended is not None and ended.by != "continue":
                    self.trace.refuse_at(line, f"a loop ends by `{ended.by}`")
                if held != Constant(1.0):
                    for name in assigned_in(node.body):
                        if name in before:
                            self.names[name] = execution.merged(
                                held, self.names[name], before[name]
                            )
                for name in assigned_in(node.body) if extent >= LEAST_STAGED else ():
                    tile = self.names.get(name)
                    if name in names and isinstance(tile, Tile) and is_float(tile.dtype):
                        self.names[name] = execution.staged(tile)

    def traced(self, loop: TracedLoop) -> None:
        """Executes a loop once for all its iterations."""
        loop.execute()

    def item(self, index: Index) -> Any:
        """The variable of one iteration."""
        return self.execution.scalar(index)
