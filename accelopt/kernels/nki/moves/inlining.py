"""Writing helper functions out where they are called, so that other moves see what they do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, Site
from accelopt.kernels.nki.moves.reading.signatures import SIGNATURES, WRITES
from accelopt.kernels.nki.moves.reading.source import (
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    names_in,
    parts,
)
from accelopt.kernels.nki.moves.surgery.names import fresh, taken

LATER = (cst.Lambda, cst.BaseComp, cst.GeneratorExp, cst.IfExp, cst.BooleanOperation)
"""Expressions that may evaluate a part of themselves never, later or several times."""
METHODS = frozenset("astype broadcast_to expand_dims reshape".split())
SIDE_EFFECTS = frozenset({"nl.store", "nisa.dma_copy"})
NUMBERS = frozenset("nl.arange nl.ds nl.program_id nl.par_dim min max int float len slice".split())


class Inline:
    """before: y = f(x, 2.0)            after: t = nl.multiply(x, 2.0)
    with def f(a, s):                          y = nl.exp(t)
        t = nl.multiply(a, s)
        return nl.exp(t)

    Legal where the helper is a plain function of the same file that only gives names to values and
    returns one, where nothing in it writes what it was given, where the names it takes from the
    file mean the same in the kernel, and where the call is evaluated exactly once.
    """

    name = "inline"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """All helpers that some line calls and that may be written out, together."""
        names = []
        for name in _helpers(kernel):
            if _called(kernel, name):
                with suppress(IllegalMove):
                    _without_calls(kernel, name)
                    names.append(name)
        if names:
            text = f"Write the body of {' and of '.join(names)} in the place of every call."
            site = Site(self.name, {"at": " ".join(names)}, text)
            yield Option(site, partial(reduce, _without_calls, names, kernel))


def _called(kernel: ParsedKernel, name: str) -> bool:
    return any(_calls(node, name) for _, node in kernel.walk())


def _without_calls(kernel: ParsedKernel, name: str) -> ParsedKernel:
    helper = _helpers(kernel).get(name)
    if helper is None:
        raise IllegalMove(f"{name} is not a function of this file")
    return _Inlining(kernel, _Helper(kernel, helper)).kernel_without_calls()


def _helpers(kernel: ParsedKernel) -> dict[str, cst.FunctionDef]:
    """The plain functions at the top of the file, but for the kernel."""
    return {
        node.name.value: node
        for node in kernel.module.body
        if isinstance(node, cst.FunctionDef)
        and node.name.value != kernel.function[-1]
        and not node.decorators
        and node.asynchronous is None
    }


def _calls(node: SourceNode, name: str) -> list[cst.Call]:
    """Calls of `name` in a line that are evaluated exactly once, inner ones first."""
    if isinstance(node, SourceLoop) or not isinstance(node.node, cst.SimpleStatementLine):
        return []
    uncertain = {
        inner for part in parts(node.node) if isinstance(part, LATER) for inner in parts(part)
    }
    found = [part for part in parts(node.node) if _is_call(part, name) and part not in uncertain]
    return [part for part in reversed(found) if isinstance(part, cst.Call)]


def _is_call(part: cst.CSTNode, name: str) -> bool:
    return (
        isinstance(part, cst.Call)
        and isinstance(part.func, cst.Name)
        and part.func.value == name
        and not any(argument.star for argument in part.args)
    )


class _Helper:
    """A helper that may be written out. Raises IllegalMove where it may not."""

    def __init__(self, kernel: ParsedKernel, function: cst.FunctionDef) -> None:
        self.name = function.name.value
        self.parameters = self._parameters(function)
        self.steps: list[tuple[str, cst.BaseExpression]] = []
        statements = _statements(function)
        for statement in statements[:-1]:
            if not (
                isinstance(statement, cst.Assign)
                and len(statement.targets) == 1
                and isinstance(statement.targets[0].target, cst.Name)
            ):
                raise IllegalMove(f"{self.name} does more than name values and return one")
            self.steps.append((statement.targets[0].target.value, statement.value))
        last = statements[-1] if statements else None
        if not isinstance(last, cst.Return) or last.value is None:
            raise IllegalMove(f"{self.name} does not end by returning a value")
        self.returned = last.value
        for expression in (*(value for _, value in self.steps), self.returned):
            self._check_pure(kernel, expression)
        own = {*self.parameters, *(name for name, _ in self.steps)}
        self._check_globals(kernel, own, (*(value for _, value in self.steps), self.returned))

    def _parameters(self, function: cst.FunctionDef) -> list[str]:
        given = function.params
        plain = not (given.kwonly_params or given.posonly_params or given.star_kwarg)
        if not plain or isinstance(given.star_arg, (cst.Param, cst.ParamStar)):
            raise IllegalMove(f"{self.name} takes its arguments in a special way")
        if any(parameter.default is not None for parameter in given.params):
            raise IllegalMove(f"{self.name} has arguments with defaults")
        return [parameter.name.value for parameter in given.params]

    def _check_pure(self, kernel: ParsedKernel, expression: cst.BaseExpression) -> None:
        for part in parts(expression):
            if isinstance(part, (*LATER, cst.NamedExpr, cst.Await, cst.Yield)):
                raise IllegalMove(f"{self.name} holds an expression that cannot be moved")
            if not isinstance(part, cst.Call):
                continue
            called = kernel.canonical(part.func) or ""
            method = isinstance(part.func, cst.Attribute) and part.func.attr.value in METHODS
            known = called in SIGNATURES or called.partition(".")[0] in {"np", "math"}
            given = {argument.keyword.value for argument in part.args if argument.keyword}
            writes = called in SIDE_EFFECTS or given & {"dst", *WRITES.get(called, ())}
            if writes or not (known or method or called in NUMBERS):
                raise IllegalMove(f"{self.name} calls {called or 'something'}, which may write")

    def _check_globals(
        self, kernel: ParsedKernel, own: Collection[str], expressions: Sequence[cst.BaseExpression]
    ) -> None:
        """Names from the file must not be hidden by names of the kernel."""
        outer = {name for expression in expressions for name in names_in(expression)} - {*own}
        bound = {*kernel.parameters}
        for _, node in kernel.walk():
            if isinstance(node, SourceLoop):
                bound.add(node.variable)
            else:
                bound |= {
                    name
                    for part in parts(node.node)
                    if isinstance(part, cst.AssignTarget)
                    for name in names_in(part.target)
                }
        if hidden := outer & bound:
            raise IllegalMove(f"{sorted(hidden)[0]} means something else in the kernel")


def _statements(function: cst.FunctionDef) -> list[cst.BaseSmallStatement]:
    """The body without its docstring; one small statement a line."""
    found: list[cst.BaseSmallStatement] = []
    for number, line in enumerate(function.body.body):
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            raise IllegalMove(f"{function.name.value} holds a loop or a condition")
        statement = line.body[0]
        docstring = isinstance(statement, cst.Expr) and isinstance(
            statement.value, cst.SimpleString
        )
        if not (docstring and number == 0):
            found.append(statement)
    return found


class _Inlining:
    """One helper, written out everywhere in one kernel."""

    def __init__(self, kernel: ParsedKernel, helper: _Helper) -> None:
        self.kernel = kernel
        self.helper = helper
        self.used = taken(kernel)

    def kernel_without_calls(self) -> ParsedKernel:
        return self.kernel.with_body(self._nodes(self.kernel.body))

    def _nodes(self, nodes: Sequence[SourceNode]) -> list[SourceNode]:
        result: list[SourceNode] = []
        for node in nodes:
            if isinstance(node, SourceLoop):
                result.append(SourceLoop(node.node, tuple(self._nodes(node.body)), node.number))
            else:
                result += self._line(node)
        return result

    def _line(self, line: SourceStatement) -> list[SourceNode]:
        """The line after the lines that work out what its calls return."""
        before: list[SourceNode] = []
        while calls := _calls(line, self.helper.name):
            steps, value = self._written_out(calls[0])
            if not (isinstance(value, cst.Name) or _is_whole_value(line, calls[0])):
                value = self._named(self.helper.name, value, steps)
            before += [
                SourceStatement(_assignment(name, step), line.number) for name, step in steps
            ]
            line = SourceStatement(_replaced(line.node, calls[0], value), line.number)
        return [*before, line]

    def _written_out(
        self, call: cst.Call
    ) -> tuple[list[tuple[str, cst.BaseExpression]], cst.BaseExpression]:
        meanings: dict[str, cst.BaseExpression] = {}
        steps: list[tuple[str, cst.BaseExpression]] = []
        reassigned = {name for name, _ in self.helper.steps}
        for name, value in _arguments(self.helper, call).items():
            if isinstance(value, (cst.Name, cst.Integer, cst.Float)) and name not in reassigned:
                meanings[name] = value
            else:
                meanings[name] = self._named(name, value, steps)
        for name, value in self.helper.steps:
            meant = _with_meanings(value, meanings)
            meanings[name] = self._named(name, meant, steps)
        return steps, _with_meanings(self.helper.returned, meanings)

    def _named(
        self, wanted: str, value: cst.BaseExpression, steps: list[tuple[str, cst.BaseExpression]]
    ) -> cst.Name:
        name = fresh(wanted, self.used)
        self.used.add(name)
        steps.append((name, value))
        return cst.Name(name)


def _is_whole_value(line: SourceStatement, call: cst.Call) -> bool:
    """True in `name = call`."""
    assert isinstance(line.node, cst.SimpleStatementLine)
    statement = line.node.body[0]
    return isinstance(statement, cst.Assign) and statement.value is call


def _arguments(helper: _Helper, call: cst.Call) -> dict[str, cst.BaseExpression]:
    given: dict[str, cst.BaseExpression] = {}
    for position, argument in enumerate(call.args):
        if argument.keyword is None and position >= len(helper.parameters):
            raise IllegalMove(f"{helper.name} is called with too many arguments")
        name = argument.keyword.value if argument.keyword else helper.parameters[position]
        given[name] = argument.value
    if set(given) != set(helper.parameters):
        raise IllegalMove(f"{helper.name} is called with other arguments than it takes")
    return given


def _with_meanings(
    expression: cst.BaseExpression, meanings: Mapping[str, cst.BaseExpression]
) -> cst.BaseExpression:
    changed = expression.deep_clone().visit(_Meanings(meanings))
    assert isinstance(changed, cst.BaseExpression)
    return changed


class _Meanings(cst.CSTTransformer):
    """Puts expressions in the place of names, not of attributes and keywords."""

    def __init__(self, meanings: Mapping[str, cst.BaseExpression]) -> None:
        self.meanings = meanings

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        meaning = self.meanings.get(original_node.value)
        return updated_node if meaning is None else meaning.deep_clone()

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)


def _assignment(name: str, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    target = cst.AssignTarget(cst.Name(name))
    return cst.SimpleStatementLine([cst.Assign([target], value)])


def _replaced(
    node: cst.SimpleStatementLine | cst.BaseCompoundStatement,
    old: cst.CSTNode,
    new: cst.BaseExpression,
) -> cst.SimpleStatementLine:
    changed = node.deep_replace(old, new)
    assert isinstance(changed, cst.SimpleStatementLine)
    return changed
