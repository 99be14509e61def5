"""What a kernel's text asks of the machine that traces it: time, chance, files, environment.

A kernel is a function of its arguments' shapes. One whose program depends on the date, a draw or the
user's home is another kernel each time, and a lucky verdict on it says nothing. Only what the kernel
can reach counts: a file may well measure itself under `if __name__ == "__main__"`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from accelopt.kernels.nki.kernel_function import is_kernel_decorator, is_main, kernel_entry
from accelopt.kernels.nki.referee.source import imported_by_call
from accelopt.kernels.prompt_injection_check import Remark
from accelopt.parsing import parse_python

OUTSIDE = frozenset(
    "asyncio datetime getpass glob locale multiprocessing os pathlib platform posix pwd random resource "
    "secrets shutil signal socket subprocess tempfile threading time uuid zoneinfo".split()
)
# Of NumPy: draws, files, and the clock.
_OF_NUMPY = frozenset({"random", "datetime64", "fromfile", "load", "loadtxt", "memmap"})
# Files, and numbers that are others in each process.
_BUILTIN = frozenset({"open", "input", "id", "hash"})

PythonDefinition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def asks_the_machine(source: str, used: Collection[str] | None = None) -> list[Remark]:
    """Uses of such modules and functions in code that importing the file or tracing its kernel runs.
    Of a file that a kernel imports, the names that are `used` elsewhere stand for the kernel. Raises
    SyntaxError when the text is not Python."""
    tree = parse_python(source)
    outside = dict(_bound(tree, OUTSIDE))
    numpy = {name for name, module in _bound(tree, frozenset({"numpy"})) if module == "numpy"}
    written = {id(node) for node in _written(tree, outside)}
    found = [
        Remark(getattr(node, "lineno", 0), f"uses {name}")
        for root in _reached(tree, {kernel_entry(source)} if used is None else used)
        for node in ast.walk(root)
        if id(node) not in written
        for name in _asked(node, outside, numpy)
    ]
    return sorted(set(found))


def _written(tree: ast.Module, outside: dict[str, str]) -> Iterator[ast.Name]:
    """Where statements only set variables of the environment (`os.environ["X"] = "1"`): the child
    that traces has an environment of its own, and to read it back is to ask."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Subscript(value=place)]):
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=place, attr="setdefault"))):
                pass
            case _:
                continue
        match place:
            case ast.Attribute(value=ast.Name() as name, attr="environ") if (
                outside.get(name.id) == "os"
            ):
                yield name
            case ast.Name() as name if outside.get(name.id) == "os.environ":
                yield name


def names_in(source: str) -> set[str]:
    """Every name, attribute and imported name that a text uses. Raises SyntaxError when it is not
    Python."""
    found: set[str] = set()
    for node in ast.walk(parse_python(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
    return found


def _bound(tree: ast.Module, modules: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Names that imports of some modules bind, anywhere in the file, and what each stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                whole = alias.name if alias.asname else top
                if top in modules or (whole == "numpy.random" and modules == OUTSIDE):
                    yield alias.asname or top, whole
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                inside = node.module.partition(".")[0] in modules
                draws = whole.startswith("numpy.random") and modules == OUTSIDE
                if inside or draws:
                    yield alias.asname or alias.name, whole


def _asked(node: ast.AST, outside: dict[str, str], numpy: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in outside:
            yield outside[node.id]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id in numpy and node.attr in _OF_NUMPY:
            yield f"numpy.{node.attr}"
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _BUILTIN:
            yield node.func.id
        yield from (n for n in imported_by_call(node) if n.partition(".")[0] in OUTSIDE)


def _reached(tree: ast.Module, used: Collection[str]) -> list[ast.stmt]:
    """The statements that run when the file is imported and what is `used` of it is traced, as far as
    names tell: those, and all that they and the file's own lines name. What is decorated by others
    than the makers of kernels may run at once, and where nothing says what is used, all may be."""
    waiting = {node.name: node for node in tree.body if isinstance(node, PythonDefinition)}
    reached: list[ast.stmt] = [
        node for node in tree.body if not isinstance(node, PythonDefinition) and not is_main(node)
    ]
    reached += [
        waiting.pop(name)
        for name, node in list(waiting.items())
        if name in used
        or any(used == {""} or not is_kernel_decorator(d) for d in node.decorator_list)
    ]
    for statement in reached:  # grows while it is read
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        reached += [waiting.pop(name) for name in sorted(names & waiting.keys())]
    return reached
