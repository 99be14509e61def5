"""Which names of a source refer to a library, and which to the solution's own definitions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from accelopt.kernels.gpu.bench.source.allow_lists import (
    CALLS,
    CLASSES,
    DEVICE_CLOCKS,
    DEVICE_EXPERIMENTAL,
    DEVICE_LANGUAGES,
    DTYPES,
    MODULES,
    OF_THE_HOST,
    VALUES,
)
from accelopt.parsing import names_stored

_FORMAT = re.compile(
    rf"(torch|numpy|triton\.language|triton\.experimental\.gluon\.language)\.{DTYPES}"
)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_dunder(name: str) -> bool:
    """A name that Python itself asks for."""
    return name.startswith("__") and name.endswith("__")


def matches(full: str, table: set[str]) -> bool:
    """Whether a dotted name stands in a table, where `*` is one public name."""
    if full in table:
        return True
    parent, _, last = full.rpartition(".")
    if not last.startswith("_") and f"{parent}.*" in table:
        return True
    middle, _, name = parent.rpartition(".")
    return not name.startswith("_") and f"{middle}.*.{last}" in table


def is_value(full: str) -> bool:
    """A number, a version, or the name of a number format."""
    return full in VALUES or _FORMAT.fullmatch(full) is not None


def is_device_name(full: str) -> bool:
    """A name of the language that kernels are written in."""
    parent, _, last = full.rpartition(".")
    if full in DEVICE_EXPERIMENTAL:
        return True
    inside = parent in DEVICE_LANGUAGES and not last.startswith("_")
    return inside and full not in MODULES and last not in OF_THE_HOST | DEVICE_CLOCKS


def may_be_named(full: str) -> bool:
    """Whether a name may be imported or given another name; how it is used is another question."""
    known = full in MODULES or full in DEVICE_LANGUAGES or is_value(full) or is_device_name(full)
    return known or matches(full, CALLS) or is_class(full)


def is_class(full: str) -> bool:
    """A class of a library; what is written small beside one is a module."""
    return full in CLASSES or (full.rpartition(".")[2][:1].isupper() and matches(full, CLASSES))


class Names:
    """The names of one module."""

    def __init__(self, module: ast.Module, own_modules: set[str]) -> None:
        self.own_modules = own_modules
        self._in_classes = set(_class_level(module))
        self.declared = {n for g in ast.walk(module) if isinstance(g, ast.Global) for n in g.names}
        classes = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
        # What may stand for something else than Python's own: of the module or of a class.
        self.shared = self.declared.union(
            bound_in(module.body), *(bound_in(node.body) for node in classes)
        )
        self.library: dict[str, set[str]] = defaultdict(set)
        self.own_imports: dict[str, str] = {}  # names of the solution's other files
        self.bound: dict[str, list[ast.AST]] = defaultdict(list)
        for node in ast.walk(module):
            for name in _bindings(node):
                self.bound[name].append(node)
            self._import(node)
        self._follow_other_names(module)
        self.own_classes = {n.name for n in ast.walk(module) if isinstance(n, ast.ClassDef)}
        self.own_attributes = {*_attributes(module), *_coined(module)}

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name in self.own_modules:
                    self.own_imports[item.asname or item.name] = item.name
                elif item.name.split(".")[0] not in self.own_modules:
                    target = item.name if item.asname else item.name.split(".")[0]
                    self.library[item.asname or target].add(target)
        elif isinstance(node, ast.ImportFrom) and self.is_foreign(node):
            for item in node.names:
                self.library[item.asname or item.name].add(f"{node.module}.{item.name}")

    def is_foreign(self, node: ast.ImportFrom) -> bool:
        """Whether what is imported from lies outside of the solution."""
        return node.level == 0 and (node.module or "").split(".")[0] not in self.own_modules

    def _follow_other_names(self, module: ast.Module) -> None:
        """`rsqrt = tl.math.rsqrt` makes `rsqrt` another name of it, where it is nothing else."""
        found = True
        while found:
            found = False
            for node in ast.walk(module):
                name = self._alias_of(node)
                if name is None or not self._only_aliases(name):
                    continue
                assert isinstance(node, ast.Assign)
                known = self.library.get(name, set())
                added = {f for f in self.resolve(node.value) if may_be_named(f)} - known
                if added:
                    self.library[name] |= added
                    found = True

    def _only_aliases(self, name: str) -> bool:
        for node in self.bound[name]:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            aliased = isinstance(node, ast.Assign) and self._alias_of(node) == name
            value = node.value if aliased else None  # type: ignore[attr-defined]
            if isinstance(value, ast.Constant) or (value is not None and self.resolve(value)):
                continue
            return False
        return True

    def resolve(self, node: ast.AST) -> set[str]:
        """The dotted names that an expression may stand for; none when it is no library's."""
        if isinstance(node, ast.Name):
            return self.library.get(node.id, set())
        if isinstance(node, ast.Attribute):
            return {f"{base}.{node.attr}" for base in self.resolve(node.value)}
        return set()

    def is_alias(self, node: ast.AST) -> bool:
        """Whether an assignment only gives something of a library another name."""
        name = self._alias_of(node)
        if name is None or not isinstance(node, ast.Assign):
            return False
        full = self.resolve(node.value)
        return bool(full) and full <= self.library.get(name, set())

    def _alias_of(self, node: ast.AST) -> str | None:
        """The plain name that an assignment gives a value; what a class holds is an attribute."""
        if node in self._in_classes or not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return None
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) else None

    def exports(self, name: str) -> bool:
        """Whether another file of the solution may take a name from this one: it is its own."""
        return name in self.bound and not self.library.get(name) and name not in self.own_imports

    def is_own(self, name: str) -> bool:
        """Whether a name always stands for a function, a class or an object of the solution's own."""
        return bool(self.bound[name]) and all(self._is_own(node) for node in self.bound[name])

    def _is_own(self, node: ast.AST) -> bool:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return not node.decorator_list
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        return (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Name)
            and value.func.id in self.own_classes
        )


def _class_level(module: ast.Module) -> Iterator[ast.AST]:
    """Statements that bind what a class holds."""
    for node in ast.walk(module):
        waiting: list[ast.AST] = list(node.body) if isinstance(node, ast.ClassDef) else []
        while waiting:
            inner = waiting.pop()
            yield inner
            if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                waiting.extend(ast.iter_child_nodes(inner))


def _bindings(node: ast.AST) -> Iterator[str]:
    """Names that a statement or an argument binds. An assignment binds its plain name itself."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (item.asname or item.name.split(".")[0] for item in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from names_stored(target)
    elif isinstance(
        node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr, ast.comprehension)
    ):
        yield from names_stored(node.target)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from names_stored(node.optional_vars)


def local_names(function: Function) -> set[str]:
    """Names that are a function's own: arguments and what it binds. Not those of comprehensions in it,
    which are scopes of their own."""
    given = function.args
    direct = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    return {item.arg for item in direct if item is not None} | bound_in(body)


def bound_in(body: Sequence[ast.AST]) -> set[str]:
    """Names that statements bind where they stand: in no function, class or comprehension inside."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.comprehension):
            found.update(_bindings(node))
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _attributes(module: ast.Module) -> Iterator[str]:
    """Attributes that the solution's own classes and functions give themselves."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                yield from _bindings(item)


def _coined(module: ast.Module) -> Iterator[str]:
    """Public names that calls give to what they make: keywords, and words in strings (`namedtuple`)."""
    for call in ast.walk(module):
        if not isinstance(call, ast.Call):
            continue
        for part in (*call.args, *call.keywords):
            if isinstance(part, ast.keyword) and part.arg:
                yield from [part.arg] * (not part.arg.startswith("_"))
            for node in ast.walk(part):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from re.findall(r"\b[A-Za-z]\w*", node.value)
