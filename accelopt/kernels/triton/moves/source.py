"""A Triton solution's source: its kernels, their launches, and edits of the text by place."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accelopt.parsing import parse_expression, parse_python

# A parameter that a move adds and ties to the grid: no tile, for set alone it would be wrong.
HEADS = "HEADS_TOGETHER"
WORK = "WORK"  # the table that says which piece of the work a program does


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
    def parameters(self) -> list[str]:
        """Names in order, positional and keyword-only."""
        arguments = self.node.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    @property
    def constants(self) -> set[str]:
        """Parameters annotated as `tl.constexpr`."""
        arguments = self.node.args
        return {
            a.arg
            for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if a.annotation is not None and ast.unparse(a.annotation).endswith("constexpr")
        }


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

    def line_start(self, line: int) -> int:
        """Byte offset where a line begins, lines counted from 1."""
        return self._lines[line - 1]

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

    def with_kernel(self, kernel: JitFunction, node: ast.FunctionDef) -> str:
        """The text with one kernel's function (decorators too) written anew from `node`."""
        begin = self._lines[first_line(kernel.node) - 1]
        text = ast.unparse(ast.fix_missing_locations(node)) + "\n"
        end = self.end(kernel.node)
        return (self.data[:begin] + text.rstrip("\n").encode() + self.data[end:]).decode()

    def indentation(self, node: ast.stmt) -> str:
        """White space in front of a statement."""
        return " " * node.col_offset

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


def grid_sizes(launch: Launch) -> list[ast.expr] | None:
    """The numbers of a grid that is a tuple, a function of the launch's own arguments that returns
    one, or a name that the host code gives such a grid; None for any other."""
    grid = launch.grid
    if isinstance(grid, ast.Name) and launch.function is not None:
        made = [
            n.value
            for n in ast.walk(launch.function)
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == grid.id
        ]
        made += _returned(grid.id, launch.function)
        grid = made[0] if len(made) == 1 else grid
    if isinstance(grid, ast.Lambda) and len(grid.args.args) == 1:
        given = grid.args.args[0].arg
        grid = _Given(given, launch).visit(copy.deepcopy(grid.body))
        if given in names_in(grid):
            return None
    return list(grid.elts) if isinstance(grid, ast.Tuple) else None


def _returned(name: str, function: ast.FunctionDef) -> list[ast.expr]:
    """A function within another that only returns something, as a lambda."""
    return [
        ast.Lambda(inner.args, inner.body[0].value)
        for inner in ast.walk(function)
        if isinstance(inner, ast.FunctionDef)
        and inner.name == name
        and len(inner.body) == 1
        and isinstance(inner.body[0], ast.Return)
        and inner.body[0].value is not None
    ]


class _Given(ast.NodeTransformer):
    """Puts a launch's arguments in the place of `META["BLOCK"]`."""

    def __init__(self, given: str, launch: Launch) -> None:
        self.given = given
        self.launch = launch

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.slice, ast.Constant) and ast.unparse(node.value) == self.given:
            name = node.slice.value
            bound = self.launch.bound(name) if name in self.launch.kernel.parameters else None
            return node if bound is None else bound
        self.generic_visit(node)
        return node


def add_parameter(arguments: ast.arguments, name: str, *, constant: bool) -> None:
    """A last parameter of a kernel, which launches give by name."""
    annotation = parse_expression("tl.constexpr") if constant else None
    arguments.args.append(ast.arg(name, annotation))
    if arguments.defaults:  # none may follow one that has a default
        arguments.defaults.append(ast.Constant(1))


def relaunched(
    source: Source, launch: Launch, node: ast.FunctionDef, grid: str, arguments: str
) -> str:
    """The text with a launched kernel written anew, on another grid, with further arguments."""
    kernel = launch.kernel.node
    text = ast.unparse(ast.fix_missing_locations(node))
    return source.edited(
        [
            Edit(source.line_start(first_line(kernel)), source.end(kernel), text),
            source.replacing(launch.grid, grid),
            source.adding(launch.call, arguments),
        ]
    )


def grid_questions(node: ast.FunctionDef) -> list[str]:
    """What a kernel asks of the grid: its calls of `tl.program_id` and `tl.num_programs`."""
    return [
        ast.unparse(inner)
        for inner in ast.walk(node)
        if called(inner) in ("tl.program_id", "tl.num_programs")
    ]


def asks_elsewhere(source: Source, kernel: JitFunction) -> bool:
    """Whether a function that a kernel calls, by way of others too, asks of the grid: a move that
    renumbers the grid of the kernel would not renumber it there."""
    seen, left = {kernel.name}, [kernel]
    while left:
        for name in (names_in(left.pop().node) & source.kernels.keys()) - seen:
            if grid_questions(source.kernels[name].node):
                return True
            seen.add(name)
            left.append(source.kernels[name])
    return False


def addressed_parameters(node: ast.FunctionDef, access: str) -> set[str] | None:
    """The parameters that addresses of loads or stores begin with; None when one is not plain."""
    made: dict[str, list[ast.expr]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
            made.setdefault(inner.targets[0].id, []).append(inner.value)
    found: set[str] = set()
    parameters = {a.arg for a in node.args.args}
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and called(call) == access):
            continue
        waiting, seen = [call.args[0]], set[str]()
        while waiting:
            address = waiting.pop()
            while isinstance(address, (ast.BinOp, ast.Subscript)):
                address = address.left if isinstance(address, ast.BinOp) else address.value
            if not isinstance(address, ast.Name):
                return None
            if address.id in seen:
                continue
            seen.add(address.id)
            if address.id in parameters:
                found.add(address.id)
            elif address.id in made:
                waiting += made[address.id]
            else:
                return None
    return found


def stored_parameters(node: ast.FunctionDef) -> set[str]:
    """The parameters that a kernel stores to by plain addresses; none when one is not plain."""
    return addressed_parameters(node, "tl.store") or set()


def address_of(launch: Launch, node: ast.expr) -> list[str]:
    """The parameter that an address begins with."""
    for _ in launch.kernel.node.body:
        while isinstance(node, (ast.BinOp, ast.Subscript)):
            node = node.left if isinstance(node, ast.BinOp) else node.value
        if not isinstance(node, ast.Name):
            return []
        made = [
            s.value
            for s in ast.walk(launch.kernel.node)
            if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == node.id  # type: ignore[attr-defined]
        ]
        if not made:
            return [node.id]
        node = made[-1]
    return []


def read_first(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that are read before they are stored, on some way through statements."""
    found: set[str] = set()
    stored: set[str] = set()
    for statement in statements:
        reads = {
            n.id
            for n in ast.walk(statement)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        if isinstance(statement, ast.AugAssign):
            reads |= assigned_in([statement])
        if isinstance(statement, ast.For):
            reads = read_first(statement.body) - names_in(statement.target)
            reads |= names_in(statement.iter)
        if isinstance(statement, ast.If):
            reads = read_first(statement.body) | read_first(statement.orelse)
            reads |= names_in(statement.test)
        found |= reads - stored
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            stored |= assigned_in([statement])
    return found


def first_line(function: ast.FunctionDef) -> int:
    """The line a function begins on, its decorators included."""
    return min([function.lineno, *(item.lineno for item in function.decorator_list)])


def called(node: ast.AST) -> str:
    """The dotted name a call calls, or an empty string."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def names_in(node: ast.AST) -> set[str]:
    """All names that occur in a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def assigned_in(nodes: Sequence[ast.stmt]) -> set[str]:
    """Names that statements store to."""
    return {
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def target_of(statement: ast.stmt) -> str | None:
    """The one name that a statement assigns; None for any other statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def is_range(node: ast.expr) -> bool:
    """Whether a loop's iterator is `range` or `tl.range`."""
    return called(node) in ("range", "tl.range")


def program_names(kernel: JitFunction) -> set[str]:
    """Names whose value comes from `tl.program_id`, directly or through others."""
    found: set[str] = set()
    for _ in range(4):
        for node in ast.walk(kernel.node):
            if isinstance(node, ast.Assign):
                depends = "program_id" in ast.unparse(node.value) or names_in(node.value) & found
                text = ast.unparse(node.value)
                loaded = "tl.load" in text and WORK not in names_in(node.value)
                if depends and not loaded and "tl.arange" not in text:
                    found |= assigned_in([node])
    return found
