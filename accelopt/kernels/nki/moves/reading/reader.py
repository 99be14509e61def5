"""Reads a kernel the way NKI traces it: each loop body once, with its variable a symbol.

The result says of every statement which parts of which tensors it reads and writes and which loops
it depends on. Whatever is not understood is marked opaque, and moves keep their hands off it.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from accelopt.kernels.nki.moves.reading import expressions
from accelopt.kernels.nki.moves.reading.arithmetic import step_of, trips_of
from accelopt.kernels.nki.moves.reading.binding import (
    assigned,
    carried_names,
    counted_names,
    targets,
)
from accelopt.kernels.nki.moves.reading.polynomial import Polynomial, Symbol
from accelopt.kernels.nki.moves.reading.results import declared
from accelopt.kernels.nki.moves.reading.signatures import DECLARATIONS, LOOPS, WRITES
from accelopt.kernels.nki.moves.reading.source import (
    IllegalMove,
    ParsedKernel,
    SourceLoop,
    SourceStatement,
    StatementPath,
    names_in,
)
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    Number,
    ReadValue,
    Sequence,
    TensorValue,
    TileUse,
    UnboundResult,
    Unknown,
    whole,
)


@dataclass(eq=False)
class LoopFacts:
    """A loop as read. `trips` is None when the range is not start, stop, step of integers.

    `plain`: the range is just a number of iterations. `step`: what one iteration adds to the
    variable, None when not known. `carried`: names that bring a value from one iteration to the next.
    """

    path: StatementPath
    node: SourceLoop
    symbol: Symbol
    kind: str
    trips: Polynomial | None
    plain: bool
    step: int | None = 1
    carried: frozenset[str] = frozenset()


@dataclass(eq=False)
class ReadStatement:
    """A line as read. `target` is what an assignment or store writes, `bound` the name it binds.

    `kind`: "declare", "compute", "store", "view", "index" (integers and index arrays), "other".
    """

    path: StatementPath
    line: SourceStatement
    loops: tuple[LoopFacts, ...]
    kind: str = "other"
    call: KnownCall | None = None
    value: cst.BaseExpression | None = None
    bound: str | None = None
    result: KernelTensor | None = None
    target: TileUse | None = None
    accumulates: bool = False
    reads: list[TileUse] = field(default_factory=list)
    writes: list[TileUse] = field(default_factory=list)
    mentions: set[Symbol] = field(default_factory=set)
    names: list[cst.Name] = field(default_factory=list)
    opaque: bool = False

    @property
    def touched(self) -> set[KernelTensor]:
        """Storage it reads or writes."""
        return {access.tensor.storage for access in (*self.reads, *self.writes)}


@dataclass(eq=False)
class Reading:
    """Everything known about a kernel."""

    kernel: ParsedKernel
    statements: list[ReadStatement] = field(default_factory=list)
    loops: list[LoopFacts] = field(default_factory=list)
    tensors: list[KernelTensor] = field(default_factory=list)
    values: dict[cst.CSTNode, ReadValue] = field(default_factory=dict)
    calls: dict[cst.CSTNode, KnownCall] = field(default_factory=dict)
    bindings: list[tuple[cst.Name, int]] = field(default_factory=list)  # name node, binding
    shared: set[str] = field(default_factory=set)  # names whose bindings must stay one

    def statement(self, path: StatementPath) -> ReadStatement:
        """The statement at a path."""
        return next(s for s in self.statements if s.path == path)

    def loop(self, variable: str) -> LoopFacts:
        """The loop over a variable. Raises IllegalMove when there is none."""
        for facts in self.loops:
            if facts.node.variable == variable:
                return facts
        raise IllegalMove(f"there is no loop over {variable}")

    def tensor(self, name: str) -> KernelTensor:
        """The tensor a name stands for (the last one of that name). Raises IllegalMove."""
        for tensor in reversed(self.tensors):
            if tensor.name == name:
                return tensor
        raise IllegalMove(f"there is no tensor {name}")

    def readers(self, tensor: KernelTensor) -> list[ReadStatement]:
        """Statements that read a tensor, in program order."""
        return [s for s in self.statements if any(a.tensor is tensor for a in s.reads)]

    def writers(self, tensor: KernelTensor) -> list[ReadStatement]:
        """Statements that write a tensor, its own binding instruction included."""
        return [
            s
            for s in self.statements
            if s.result is tensor or any(a.tensor is tensor for a in s.writes)
        ]

    def inside(self, loop: LoopFacts) -> list[ReadStatement]:
        """Statements in a loop's body, nested ones included."""
        return [s for s in self.statements if s.path[: len(loop.path)] == loop.path]

    def definition(self, name: str) -> ReadStatement | None:
        """The statement that binds a name, when there is exactly one."""
        found = [s for s in self.statements if s.bound == name or name in targets(s.line)]
        return found[0] if len(found) == 1 else None


@lru_cache(maxsize=32)
def read(kernel: ParsedKernel) -> Reading:
    """Read a kernel. Never fails on code it does not understand; it says so in the statements."""
    return _Reader(kernel).run()


class _Reader:
    def __init__(self, kernel: ParsedKernel) -> None:
        self.kernel = kernel
        self.reading = Reading(kernel)
        self.scope = expressions.Scope(kernel, self.reading.values, self.reading.calls)
        self.binding_of: dict[str, int] = {}
        self.count = 0

    def run(self) -> Reading:
        for given in self.kernel.definition.params.params:
            parameter = given.name.value
            argument = self.kernel.arguments.get(parameter)
            if argument is None and self.kernel.arguments:
                self.bind(parameter, _default(given))
                continue
            if argument is not None and not argument.shape:
                self.bind(parameter, Unknown())
                continue
            shape = tuple(Polynomial.number(n) for n in argument.shape) if argument else None
            tensor = KernelTensor(
                parameter, shape, argument.dtype if argument else None, "hbm", (), parameter=True
            )
            self.reading.tensors.append(tensor)
            self.bind(parameter, TensorValue(whole(tensor, cst.Name(parameter))))
            self.reading.shared.add(parameter)
        self.body(self.kernel.body, (), ())
        return self.reading

    def bind(self, name: str, value: ReadValue, node: cst.Name | None = None) -> None:
        self.count += 1
        self.binding_of[name] = self.count
        self.scope.names[name] = value
        if node is not None:
            self.reading.bindings.append((node, self.count))

    def body(
        self,
        nodes: Several[SourceStatement | SourceLoop],
        prefix: StatementPath,
        loops: tuple[LoopFacts, ...],
    ) -> None:
        for position, node in enumerate(nodes):
            path = (*prefix, position)
            if isinstance(node, SourceLoop):
                self.loop(node, path, loops)
            else:
                self.line(node, path, loops)

    def loop(self, node: SourceLoop, path: StatementPath, loops: tuple[LoopFacts, ...]) -> None:
        header = ReadStatement(path, SourceStatement(cst.SimpleStatementLine([])), loops)
        self.scope.begin(header)
        assert isinstance(node.node.iter, cst.Call)
        arguments = [self.scope.evaluate(a.value) for a in node.node.iter.args if a.keyword is None]
        self.note_names(header)
        counted = {
            n for n in counted_names(node) if not isinstance(self.scope.names.get(n), TensorValue)
        }
        carried = frozenset((carried_names(node) | counted) & set(self.scope.names))
        symbol = Symbol(f"{node.variable}@{'.'.join(map(str, path))}", "loop")
        kind = LOOPS[self.kernel.canonical(node.node.iter.func) or ""]
        trips = trips_of(arguments)
        plain, step = len(arguments) == 1, step_of(arguments)
        facts = LoopFacts(path, node, symbol, kind, trips, plain, step, carried)
        self.reading.loops.append(facts)
        self.scope.loop_names[symbol] = node.variable
        assert isinstance(node.node.target, cst.Name)
        self.bind(node.variable, Number(Polynomial.symbol(symbol)), node.node.target)
        for name in carried:
            self.scope.names[name] = Unknown()
            self.reading.shared.add(name)
        self.body(node.body, path, (*loops, facts))
        for name in carried:
            self.scope.names[name] = Unknown()

    def line(
        self, line: SourceStatement, path: StatementPath, loops: tuple[LoopFacts, ...]
    ) -> None:
        statement = ReadStatement(path, line, loops)
        self.reading.statements.append(statement)
        self.scope.begin(statement)
        if isinstance(line.node, cst.SimpleStatementLine):
            self.small(statement, line.node.body[0])
        else:
            self.compound(statement, line.node)
        self.note_names(statement)

    def note_names(self, statement: ReadStatement) -> None:
        for node in statement.names:
            if node.value in self.binding_of:
                self.reading.bindings.append((node, self.binding_of_read(node)))

    def binding_of_read(self, node: cst.Name) -> int:
        return self.scope.read_binding.get(node, self.binding_of[node.value])

    def compound(self, statement: ReadStatement, node: cst.BaseCompoundStatement) -> None:
        """An if, while, with or inner function: everything it names may be read and written."""
        statement.opaque = True
        for name in names_in(node):
            value = self.scope.names.get(name)
            self.reading.shared.add(name)
            if isinstance(value, TensorValue):
                everything = TileUse(value.access.tensor, None, None, cst.Name(name))
                statement.reads.append(everything)
                statement.writes.append(everything)
        for name in assigned(node):
            self.bind(name, Unknown())

    def small(self, statement: ReadStatement, node: cst.BaseSmallStatement) -> None:
        if isinstance(node, cst.Assign) and len(node.targets) == 1:
            self.assign(statement, node.targets[0].target, node.value)
        elif isinstance(node, cst.AnnAssign) and node.value is not None:
            self.assign(statement, node.target, node.value)
        elif isinstance(node, cst.AugAssign):
            self.accumulate(statement, node)
        elif isinstance(node, cst.Expr):
            self.expression(statement, node.value)
        elif isinstance(node, cst.Return) and node.value is not None:
            self.scope.use(self.scope.evaluate(node.value))
        elif isinstance(node, cst.Assert):
            self.scope.quietly(node.test)
        elif not isinstance(node, (cst.Import, cst.ImportFrom, cst.Return)):
            statement.opaque = True
            self.reading.shared |= names_in(node)

    def assign(
        self, statement: ReadStatement, target: cst.BaseExpression, value: cst.BaseExpression
    ) -> None:
        statement.value = value
        result = self.scope.evaluate(value)
        statement.call = self.reading.calls.get(value)
        self.note_before_bind(statement)
        if isinstance(target, cst.Name):
            self.assign_name(statement, target, result)
        elif isinstance(target, cst.Tuple):
            self.unpack(statement, target, result)
        elif isinstance(target, cst.Subscript):
            self.scope.use(result)
            self.write(statement, target)
        else:
            statement.opaque = True

    def note_before_bind(self, statement: ReadStatement) -> None:
        for node in statement.names:
            if node.value in self.binding_of:
                self.scope.read_binding.setdefault(node, self.binding_of[node.value])

    def assign_name(self, statement: ReadStatement, target: cst.Name, result: ReadValue) -> None:
        statement.bound = target.value
        call = statement.call
        if call and call.name in DECLARATIONS:
            statement.kind = "declare"
            tensor = declared(call, target.value, statement)
        elif isinstance(result, UnboundResult):
            statement.kind = "compute"
            loops = tuple(facts.symbol for facts in statement.loops)
            tensor = KernelTensor(
                target.value, result.shape, result.dtype, result.buffer, statement.path, loops
            )
        elif isinstance(result, TensorValue):
            statement.kind = "view"
            view = result.access
            access = TileUse(view.tensor, view.dims, view.shape, target, view.style, view=True)
            self.bind(target.value, TensorValue(access), target)
            return
        else:
            statement.kind = "index" if expressions.is_index(result) else "other"
            self.scope.use(result)
            self.bind(target.value, result, target)
            return
        statement.result = tensor
        self.reading.tensors.append(tensor)
        self.bind(target.value, TensorValue(whole(tensor, target)), target)

    def unpack(self, statement: ReadStatement, target: cst.Tuple, result: ReadValue) -> None:
        names = [element.value for element in target.elements]
        if isinstance(result, expressions.ShapeOf):
            result = result.of_rank(len(names))
        items = result.items if isinstance(result, Sequence) else ()
        statement.kind = "index" if expressions.is_index(result) else "other"
        for position, name in enumerate(names):
            if isinstance(name, cst.Name):
                known = len(items) == len(names)
                self.bind(name.value, items[position] if known else Unknown(), name)
            else:
                statement.opaque = True

    def write(self, statement: ReadStatement, target: cst.BaseExpression) -> None:
        value = self.scope.evaluate(target)
        if isinstance(value, TensorValue):
            statement.kind = "compute"
            statement.target = value.access
            statement.writes.append(value.access)
        else:
            statement.opaque = True

    def accumulate(self, statement: ReadStatement, node: cst.AugAssign) -> None:
        statement.value = node.value
        result = self.scope.evaluate(node.value)
        statement.call = self.reading.calls.get(node.value)
        target = self.scope.evaluate(node.target)
        if isinstance(target, TensorValue):
            self.scope.use(result)
            statement.kind, statement.target = "compute", target.access
            statement.accumulates = isinstance(node.operator, cst.AddAssign)
            statement.opaque |= not statement.accumulates
            statement.reads.append(target.access)
            statement.writes.append(target.access)
        elif isinstance(node.target, cst.Name):
            statement.opaque = True
            self.reading.shared.add(node.target.value)
            self.bind(node.target.value, Unknown((target, result)))
        else:
            statement.opaque = True

    def expression(self, statement: ReadStatement, value: cst.BaseExpression) -> None:
        if isinstance(value, (cst.SimpleString, cst.ConcatenatedString)):
            return
        statement.value = value
        self.scope.use(self.scope.evaluate(value))
        call = self.reading.calls.get(value)
        statement.call = call
        if call is None or call.name not in WRITES:
            statement.opaque = True
            return
        statement.kind = "store" if call.name == "nl.store" else "compute"
        statement.target = call.access(WRITES[call.name][0])
        statement.opaque |= statement.target is None


def _default(parameter: cst.Param) -> ReadValue:
    """What a parameter is that nobody passes."""
    if isinstance(parameter.default, cst.Integer):
        return Number(Polynomial.number(parameter.default.evaluated_value))
    if isinstance(parameter.default, cst.Float):
        return KnownConstant(parameter.default.evaluated_value)
    return Unknown()
