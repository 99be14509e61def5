"""A module in which one kernel takes the place of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.nki.kernel_function import kernel_in
from accelopt.kernels.nki.rescheduling.authorship.text import identifiers, replaced
from accelopt.parsing import names_stored, parse_python

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef)


class Part(NamedTuple):
    """A statement of a module, with what stands between it and the one before."""

    node: ast.stmt
    above: str
    text: str


def parts(source: str) -> Iterator[Part]:
    """The statements of a module with all text around them."""
    lines = source.splitlines(keepends=True)
    start = 0
    for node in parse_python(source).body:
        first = min(n.lineno for n in (node, *getattr(node, "decorator_list", ()))) - 1
        last = node.end_lineno or node.lineno
        above, start = "".join(lines[start:first]), last
        yield Part(node, above, "".join(lines[first:last]))


def with_kernel(source: str, kernel: str, made: str) -> str:
    """The author's module `source` with another kernel in the place of the function `kernel`: that
    of the module `made`, whose imports come with it. What only the old kernel used
    is left out."""
    source = _at_module_level(source, kernel)
    ours = list(parts(made))
    new = next(part for part in ours if getattr(part.node, "name", "") == kernel)
    if not _grid(made):
        source = without_grid(source, kernel)
    theirs = [part for part in parts(source) if not _idle(part.node)]
    dropped = _left_over(theirs, kernel, parse_python(new.text))
    imports = [part for part in ours if isinstance(part.node, (ast.Import, ast.ImportFrom))]
    kept: list[str] = []
    blank = 0  # lines above what was left out
    missing = [
        part.text
        for part in imports
        if bound(part.node) & identifiers(parse_python(new.text))
        and not any(bound(part.node) <= bound(p.node) for p in theirs if is_import(p.node))
    ]
    for number, part in enumerate(theirs):
        if part in dropped and not is_import(part.node):
            blank = max(blank, _blank_lines(part.above))
            if number == 0 and not part.above.isspace():
                kept.append(part.above)  # what stands at the head of a file is of the file
            continue
        part = part._replace(above="\n" * (blank - _blank_lines(part.above)) + part.above)
        blank = 0
        if is_import(part.node) and missing:
            before = [m for m in missing if _module(parse_python(m).body[0]) < _module(part.node)]
            last = not any(is_import(later.node) for later in theirs[number + 1 :])
            text = [] if part in dropped else [part.text]
            behind = [m for m in missing if last and m not in before]
            missing = [m for m in missing if m not in before + behind]
            kept.append(part.above + "".join([*before, *text, *behind]))
        elif getattr(part.node, "name", "") == kernel:
            kept.append("".join(missing) + part.above + new.text)
            missing = []
        else:
            kept.append(part.above + part.text)
    module = "".join(kept).lstrip("\n").rstrip("\n") + "\n"
    return module if _grid(source) else _with_grid(module, kernel, _grid(made))


def _blank_lines(text: str) -> int:
    """Blank lines at the beginning of what stands above a statement."""
    return len(text) - len(text.lstrip("\n"))


def is_import(node: ast.stmt) -> bool:
    """Whether a statement imports something."""
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _module(node: ast.stmt) -> str:
    """What an import is sorted by."""
    if isinstance(node, ast.Import):
        return node.names[0].name
    return f"~{node.module}" if isinstance(node, ast.ImportFrom) else ""


def bound(node: ast.stmt) -> set[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return names_stored(node)


def _grid(source: str) -> str:
    """The launch grid of a module's kernel, as its text says it; empty where there is none."""
    found = kernel_in(source)
    return found.grid if found else ""


def _with_grid(source: str, kernel: str, grid: str) -> str:
    """A module in which a kernel that was launched without a grid is launched with this one."""
    if not grid:
        return source
    launch = f"{kernel}[{grid}]"
    places = [
        (node, launch)
        for node in ast.walk(parse_python(source))
        if isinstance(node, ast.Name) and node.id == kernel and isinstance(node.ctx, ast.Load)
    ]
    return replaced(source, places) if places else f"{source}\n\nkernel = {launch}\n"


def _at_module_level(source: str, kernel: str) -> str:
    """A module in which a function makes the kernel, with the kernel at its top: before the statement
    that binds it, which names it from then on."""
    found = kernel_in(source)
    if found is None or len(found.path) == 1 or found.name != kernel:
        return source
    text = list[str]()
    for part in parts(source):
        match part.node:
            case ast.Assign(targets=[ast.Name(id=found.entry)], value=value):
                binding = "" if found.entry == kernel else f"\n\n{found.entry} = {kernel}\n"
                # What the old kernel uses stands in it until the new one is there.
                text.append(f"{part.above}def {kernel}():\n    {ast.unparse(value)}\n{binding}")
            case _:
                text.append(part.above + part.text)
    return "".join(text)


def without_grid(source: str, kernel: str) -> str:
    """A module without the launch grids of one of its kernels, for one that runs on one core."""
    names, places = {kernel}, list[tuple[ast.Subscript, str]]()
    tree = parse_python(source)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name)) if name in names:
                places.append((node, name))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=value)):
                names |= {name} if value in names else set()
    return replaced(source, places)


def _idle(node: ast.stmt) -> bool:
    """Whether a statement binds a name to itself."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=value)):
            return name == value
    return False


def _left_over(theirs: list[Part], kernel: str, new: ast.Module) -> list[Part]:
    """The definitions that the old kernel used, and nothing that stays does."""
    defining = [part for part in theirs if isinstance(part.node, DEFINITIONS)]
    old = next(part for part in defining if getattr(part.node, "name", "") == kernel)
    reached = _reached(identifiers(old.node), defining)
    reached = [part for part in reached if part is not old]
    staying = [part for part in theirs if part not in reached and part is not old]
    used = identifiers(new).union(*(identifiers(part.node) for part in staying))
    needed = _reached(used, reached)
    return [part for part in reached if part not in needed]


def _reached(names: set[str], definitions: list[Part]) -> list[Part]:
    """The definitions that some names need, and what those need."""
    found: list[Part] = []
    waiting = [part for part in definitions if bound(part.node) & names]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.append(part)
            below = identifiers(part.node)
            waiting += [other for other in definitions if bound(other.node) & below]
    return found
