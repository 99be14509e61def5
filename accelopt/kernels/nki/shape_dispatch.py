"""One kernel for several shapes: a file that holds the fastest of each, and chooses by its arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.kernel_function import NoKernel, is_main, kernel_function


class NotJoined(Exception):
    """Why kernels cannot stand in one file, in words."""


class ShapeKernel(NamedTuple):
    """A kernel, and the arguments that it is for; `label` ends the names that are its own."""

    label: str
    source: str
    arguments: tuple[ParameterFacts, ...]


def dispatcher(kernels: Sequence[ShapeKernel]) -> str:
    """The text of a kernel, named and decorated as the first is, that calls the one for the shapes (or
    plain numbers) of its arguments: in Python, while it is traced. Other shapes meet what the last asserts.
    Raises NotJoined."""
    try:
        found = [kernel_function(kernel.source) for kernel in kernels]
    except NoKernel as refusal:
        raise NotJoined(str(refusal)) from None
    first = found[0]
    if any(one.grid or one.host or one.bound or len(one.path) > 1 for one in found):
        raise NotJoined("a grid, or the function around a kernel, is not written anew")
    if (
        first.definition.args.vararg
        or first.definition.args.kwarg
        or first.definition.args.kwonlyargs
    ):
        raise NotJoined("it takes any number of arguments, or some by name alone")
    tests = _tests(first.parameters, kernels)
    modules = [_Module(one.source, own.name) for one, own in zip(kernels, found, strict=True)]
    _rename(modules, [kernel.label for kernel in kernels])
    imports = dict.fromkeys(text for module in modules for text in module.imports)
    texts = dict.fromkeys(text for module in modules for text in module.texts())
    chosen = {module.renamed[first.name]: test for module, test in zip(modules, tests, strict=True)}
    call = f"({', '.join(a.arg for a in (*first.definition.args.posonlyargs, *first.definition.args.args))})"
    lines = [f"@{ast.unparse(decorator)}" for decorator in first.definition.decorator_list]
    lines.append(f"def {first.name}({ast.unparse(first.definition.args)}):")
    lines.append(f'    """By shape: {"; ".join(tests)}."""')
    *some, last = chosen
    for name in some:
        lines += [f"    if {chosen[name]}:", f"        return {name}{call}"]
    return (
        "\n\n\n".join(["\n".join(imports), *texts, "\n".join([*lines, f"    return {last}{call}"])])
        + "\n"
    )


def _tests(names: Sequence[str], kernels: Sequence[ShapeKernel]) -> list[str]:
    """For each kernel what is true of its arguments and of no other's, as Python."""
    rows = [
        [argument.shape or argument.value for argument in kernel.arguments] for kernel in kernels
    ]
    if {len(row) for row in rows} != {len(names)}:
        raise NotJoined("the references make other numbers of arguments than the kernel takes")
    columns = [*zip(*rows, strict=True)]
    telling = [n for n, column in enumerate(columns) if len(set(column)) > 1]
    alone = [n for n in telling if len(set(columns[n])) == len(rows)]
    wanted = alone[:1] or telling
    if len({tuple(row[n] for n in wanted) for row in rows}) < len(rows):
        raise NotJoined("two of the references make arguments of the same shapes")

    def said(name: str, value: object) -> str:
        return (
            f"tuple({name}.shape) == {value}"
            if isinstance(value, tuple)
            else f"{name} == {value!r}"
        )

    return [" and ".join(said(names[n], row[n]) for n in wanted) for row in rows]


class _Module:
    """The top level of a kernel's file by the names that it binds; what only a script runs is left out."""

    def __init__(self, source: str, kernel: str) -> None:
        self.lines = source.encode().splitlines()
        self.kernel = kernel
        self.renamed: dict[str, str] = {}
        self.imports: list[str] = []
        self.bound: dict[str, ast.stmt] = {}
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.append(ast.unparse(node))
            elif not is_main(node) and not _is_text(node):
                self.bound[_name(node)] = node

    def text(self, name: str, renamed: Mapping[str, str]) -> str:
        """The statement that binds `name`, with other names for some."""
        node = self.bound[name]
        lines = list(self.lines)
        for at in sorted(_places(node, renamed), reverse=True):
            line = lines[at.line - 1]
            lines[at.line - 1] = (
                line[: at.column]
                + renamed[at.name].encode()
                + line[at.column + len(at.name.encode()) :]
            )
        above = [d.lineno for d in getattr(node, "decorator_list", [])]
        first = node.lineno if name == self.kernel else min([node.lineno, *above])
        return b"\n".join(lines[first - 1 : node.end_lineno]).decode()

    def uses(self, name: str) -> set[str]:
        """The names that the statement which binds `name` mentions."""
        return {node.id for node in ast.walk(self.bound[name]) if isinstance(node, ast.Name)}

    def texts(self) -> Iterator[str]:
        """All statements, under the names that they have now."""
        return (self.text(name, self.renamed) for name in self.bound)


class _Place(NamedTuple):
    line: int
    column: int
    name: str


def _places(node: ast.stmt, names: Mapping[str, str]) -> Iterator[_Place]:
    """Where these names stand in a statement, columns in bytes."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id in names:
            yield _Place(one.lineno, one.col_offset, one.id)
        elif isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one.name in names:
            yield _Place(
                one.lineno,
                one.col_offset + len("def " if isinstance(one, ast.FunctionDef) else "class "),
                one.name,
            )
        elif isinstance(one, ast.arg) and one.arg in names:
            raise NotJoined(f"{one.arg} is a name of the module's and a parameter's")


def _name(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign([ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    raise NotJoined(f"line {node.lineno} is neither a definition nor an import")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _rename(modules: Sequence[_Module], labels: Sequence[str]) -> None:
    """Gives every kernel, and what differs between the files, and what uses that, names of its own."""
    own = {modules[0].kernel}
    texts = [{name: module.text(name, {}) for name in module.bound} for module in modules]
    own |= {
        name
        for known in texts
        for name in known
        if len({t.get(name, known[name]) for t in texts}) > 1
    }
    while more := {n for m in modules for n in m.bound if n not in own and m.uses(n) & own}:
        own |= more
    for module, label in zip(modules, labels, strict=True):
        if module.kernel != modules[0].kernel:
            raise NotJoined("the kernels have different names")
        module.renamed = {name: f"{name}_{label}" for name in own if name in module.bound}
