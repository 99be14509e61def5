"""What a solution's source must be like, checked before anything runs.

What may be named is listed (`allow_lists`), all else is refused: modules, functions, classes where they
are called or tested for, plain values. Nothing of a library may be handed about as a value, for what
holds a module or a class can be asked for anything in it; and no attribute is set but on what is the
solution's own.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator

from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.source import allow_lists, attributes
from accelopt.kernels.gpu.bench.source.assembly import assembly_faults
from accelopt.kernels.gpu.bench.source.name_resolution import (
    Names,
    bound_in,
    is_class,
    is_device_name,
    is_dunder,
    is_value,
    local_names,
    matches,
    may_be_named,
)
from accelopt.kernels.gpu.bench.source.native_rules import SUFFIXES, native_violations
from accelopt.kernels.gpu.bench.source.refusal_reasons import EVERYONE, OTHER, UNSEEN, reason_for
from accelopt.kernels.gpu.bench.source.source_text import (
    Violation,
    is_absent,
    of_the_files,
    of_the_text,
)
from accelopt.parsing import names_stored, parse_python

__all__ = ["Violation", "violations"]

REACHES_OUT = "reaches out of the kernel's own arguments"
NOT_A_VALUE = "hands a library's module, class or function about"
WHILE_IT_RUNS = "names what it takes only while it runs"
UNASKED = "is called when nobody sees it"
TELLS = "tells a call whether it is watched"
QUIET = ("ignore", "default", "once", "module", "always")  # of warnings, which are only printed
NOTES = (".md", ".txt", ".json", ".toml")
_CLEAN_UP = (ast.Try, ast.With, getattr(ast, "TryStar", ast.Try))  # `except*` since Python 3.11


def violations(solution: Solution) -> list[Violation]:
    """Every forbidden thing in the sources of `solution`; unparsable ones have none but of encoding.

    A source that cannot be parsed cannot be loaded either: that is the compiler's to say.
    """
    native = {s.path: s.content for s in solution.sources if s.path.endswith(SUFFIXES)}
    compiled = [one for path in native for one in native_violations(path, native)]
    sources = [source for source in solution.sources if source.path.endswith(".py")]
    own = {source.path.split("/")[0].removesuffix(".py") for source in sources}
    found = compiled + of_the_files([source.path for source in sources])
    for source in solution.sources:  # a compiler may be told to take machine code from a file
        if not source.path.endswith((".py", *SUFFIXES, *NOTES)):
            found.append(Violation(source.path, 1, source.path, "is no file that the check reads"))
    modules: dict[str, tuple[ast.Module, Names]] = {}
    for source in sources:
        found += of_the_text(source.path, source.content)
        try:
            module = parse_python(source.content)
            modules[source.path] = module, Names(module, own)
        except RecursionError:
            found.append(Violation(source.path, 1, source.path, "is nested too deeply to be read"))
        except (SyntaxError, ValueError):
            continue
    for path in modules:
        found += SourceScan(path, modules).run()
    found += _telling(modules, solution.spec.entry_point.rpartition("::")[2])
    return found


def _telling(modules: dict[str, tuple[ast.Module, Names]], entry: str) -> Iterator[Violation]:
    """Clocks and tracebacks that a call of the entry point may reach, by the names of what stands in the
    modules."""
    binding: dict[str, list[tuple[str, ast.stmt]]] = defaultdict(list)
    for path, (module, _) in modules.items():
        for statement in module.body:
            for name in bound_in([statement]):
                binding[name].append((path, statement))
    waiting = [entry]
    while waiting:
        for path, statement in binding.pop(waiting.pop(), ()):
            for node in ast.walk(statement):
                for told in modules[path][1].resolve(node) & allow_lists.TELLING:
                    line = getattr(node, "lineno", 1)
                    yield Violation(path, line, told, TELLS)
                waiting += [node.id] if isinstance(node, ast.Name) else []
                waiting += [node.attr] if isinstance(node, ast.Attribute) else []


class SourceScan(ast.NodeVisitor):
    """Walks one module, with every name resolved to what it stands for."""

    def __init__(self, file: str, modules: dict[str, tuple[ast.Module, Names]]) -> None:
        self.file = file
        self.module, self.names = modules[file]
        self.files = {path: names for path, (_, names) in modules.items()}
        self.own_attributes = frozenset().union(*(n.own_attributes for n in self.files.values()))
        self.found: list[Violation] = []
        self.parents: dict[ast.AST, ast.AST] = {
            child: node
            for module, _ in modules.values()
            for node in ast.walk(module)
            for child in ast.iter_child_nodes(node)
        }
        self.locals: list[set[str]] = []

    def run(self) -> list[Violation]:
        """All violations, in the order of the text."""
        self.visit(self.module)
        for name, nodes in self.names.bound.items():
            if is_dunder(name) and name not in allow_lists.OWN_DUNDERS:
                self._report(nodes[0], name, UNASKED)
        return sorted(self.found, key=lambda one: one.line)

    def _report(self, node: ast.AST, text: str, reason: str) -> None:
        line = next((one.lineno for one in ast.walk(node) if hasattr(one, "lineno")), 1)
        self.found.append(Violation(self.file, line, text, reason))

    # What is imported.

    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            own = item.name.split(".")[0] in self.names.own_modules
            if own and "." in item.name:
                self._report(node, f"import {item.name}", "is a file to import from by name")
            elif not own and item.name not in allow_lists.MODULES and not is_absent(item.name):
                self._report(node, f"import {item.name}", reason_for(item.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not self.names.is_foreign(node):
            self._own_import(node)
            return
        if node.module == "__future__":
            return
        for item in node.names:
            full = f"{node.module}.{item.name}"
            if item.name == "*":
                self._report(node, f"from {node.module} import *", WHILE_IT_RUNS)
            elif not may_be_named(full) and not is_absent(full):
                self._report(node, f"import {full}", reason_for(full))

    def _own_import(self, node: ast.ImportFrom) -> None:
        """From another file of the solution only what is that file's own."""
        folder = self.file.split("/")[:-1]
        above = folder[: len(folder) - node.level + 1] if node.level else []
        path = "/".join([*above, *(node.module or "").split(".")]).strip("/")
        for item in node.names:
            if not self._is_exported(path, item.name):
                text = f"from {'.' * node.level}{node.module or ''} import {item.name}"
                self._report(node, text, "is not that file's own")

    def _is_exported(self, path: str, name: str) -> bool:
        names = self.files.get(f"{path}.py") or self.files.get(f"{path}/__init__.py".lstrip("/"))
        return names is not None and names.exports(name)

    # Names of libraries, by where they stand.

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self._store(node, node.value)
            return
        full = self.names.resolve(node)
        if full:
            for name in sorted(full):
                self._library(node, name)
            return
        if isinstance(node.value, ast.Name) and node.value.id in self.names.own_imports:
            if not self._is_exported(self.names.own_imports[node.value.id], node.attr):
                self._report(node, ast.unparse(node), "is not that file's own")
            return
        if not (self._is_self(node.value) and node.attr in self.names.own_attributes):
            self._attribute(node, node.attr)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            return
        full = self.names.resolve(node)
        for name in sorted(full):
            self._library(node, name)
        if node.id in self.names.own_imports:
            self._report(node, node.id, NOT_A_VALUE)
        if not full:
            self._plain_name(node)

    def _plain_name(self, node: ast.Name) -> None:
        name = node.id
        if self._is_local(name) or name in allow_lists.BUILTINS:
            return
        if name == "type" and self._only_compared(self.parents[node]):
            return
        value = getattr(builtins, name, None)
        if isinstance(value, type) and issubclass(value, BaseException):
            return
        if hasattr(builtins, name) or is_dunder(name):
            reason = WHILE_IT_RUNS if name in allow_lists.BY_LITERAL else UNSEEN
            self._report(node, name, REACHES_OUT if name == "type" else reason)

    def _is_local(self, name: str) -> bool:
        """Whether a name is of a function around it, and of nothing else."""
        return name not in self.names.declared and any(name in scope for scope in self.locals)

    def _is_builtin(self, node: ast.AST, *names: str) -> bool:
        """Whether an expression is Python's own function or class of one of these names."""
        if not isinstance(node, ast.Name) or node.id not in names:
            return False
        return not self._is_local(node.id) and node.id not in self.names.shared

    def _library(self, node: ast.expr, full: str) -> None:
        """A maximal dotted name: is it one that may stand here?"""
        parts = full.split(".")
        for length in range(len(parts), 1, -1):
            head = ".".join(parts[:length])
            if is_value(head):  # and what is asked of the value
                for attribute in parts[length:]:
                    self._attribute(node, attribute)
                return
        if is_device_name(full) or self._stands_as_class(node, full) or is_absent(full):
            return
        if self._is_called(node):
            if not matches(full, allow_lists.CALLS):
                self._report(node, full, reason_for(full))
            return
        reason = reason_for(full)
        if full != "os.environ" or not isinstance(self.parents[node], ast.Subscript):
            self._report(node, full, NOT_A_VALUE if reason == OTHER else reason)

    def _is_called(self, node: ast.AST) -> bool:
        parent = self.parents[node]
        if isinstance(parent, ast.Call) and parent.func is node:
            return True
        return node in getattr(parent, "decorator_list", ())

    def _stands_as_class(self, node: ast.AST, full: str) -> bool:
        """In a type, a test for a type, or behind `except`, and known as a class."""
        parent = self.parents[node]
        while isinstance(parent, (ast.Tuple, ast.List, ast.Subscript, ast.BinOp)):
            if isinstance(parent, ast.Subscript) and not self._names_a_type(parent.value):
                return False
            node, parent = parent, self.parents[parent]
        if isinstance(parent, ast.ClassDef) and node in parent.bases:
            return matches(full, allow_lists.BASES)
        if not is_class(full):
            return False
        if isinstance(parent, ast.Call):
            asks = self._is_builtin(parent.func, "isinstance", "issubclass")
            return asks and node in parent.args[1:]
        if isinstance(parent, ast.Compare):
            return self._compares_types(parent)
        return self._is_type_place(node, parent)

    def _is_type_place(self, node: ast.AST, parent: ast.AST) -> bool:
        if isinstance(parent, ast.ExceptHandler):
            return node is parent.type
        if isinstance(parent, (ast.arg, ast.AnnAssign)):
            return node is parent.annotation
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return node is parent.returns
        # `Shape = Optional[torch.Tensor]`, another name of a type
        return isinstance(parent, ast.Assign) and isinstance(node, ast.Subscript)

    def _names_a_type(self, node: ast.AST) -> bool:
        if self._is_builtin(node, "tuple", "list", "dict", "set", "type"):
            return True
        return any(
            full.startswith(("typing", "collections.abc")) for full in self.names.resolve(node)
        )

    def _compares_types(self, node: ast.Compare) -> bool:
        return any(
            isinstance(side, ast.Call) and self._is_builtin(side.func, "type")
            for side in (node.left, *node.comparators)
        )

    # What is asked of values, and what is set.

    def _attribute(self, node: ast.AST, name: str) -> None:
        if name in attributes.FORBIDDEN | attributes.FORBIDDEN_UNDERSCORED:
            self._report(node, name, REACHES_OUT)
        elif name in ("format", "format_map") and not self._is_called(node):
            self._report(node, name, WHILE_IT_RUNS)
        elif is_dunder(name):
            shown = name == "__class__" and self._only_compared(node)
            if name not in allow_lists.HARMLESS_DUNDERS and not shown:
                self._report(node, name, REACHES_OUT)
        elif name.startswith("_") and name not in allow_lists.HARMLESS_UNDERSCORED:
            base = getattr(node, "value", None)
            if name not in self.own_attributes or not self._is_of_its_own(base):
                self._report(node, name, REACHES_OUT)
        elif name[0] != "_" and name not in attributes.ATTRIBUTES | self.own_attributes:
            self._report(node, name, OTHER)

    def _only_compared(self, node: ast.AST) -> bool:
        """`type(x) is ...`, or its name in a message."""
        parent = self.parents[node]
        if isinstance(parent, ast.Attribute):
            return parent.attr == "__name__"
        while isinstance(parent, (ast.Tuple, ast.Subscript)):  # `Dict[str, type]`
            if isinstance(parent, ast.Subscript):
                return self._names_a_type(parent.value)
            parent = self.parents[parent]
        if isinstance(parent, ast.Call):
            if parent.func is node and self._is_builtin(node, "type"):
                return self._only_compared(parent)
            return self._is_builtin(parent.func, "str", "repr")
        return isinstance(parent, (ast.Compare, ast.FormattedValue))

    def _store(self, node: ast.AST, base: ast.expr) -> None:
        if not self._is_own(base):
            self._report(node, f"{ast.unparse(base)}.… = ...", EVERYONE)
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if is_dunder(name):
            self._report(node, name, REACHES_OUT)
        self.visit(base)

    def _is_own(self, base: ast.expr) -> bool:
        return self._is_self(base) or (isinstance(base, ast.Name) and self.names.is_own(base.id))

    def _is_of_its_own(self, base: ast.AST | None) -> bool:
        """Whether it must be something of the solution's own, or what that holds."""
        while isinstance(base, ast.Attribute) and base.attr in self.own_attributes:
            base = base.value
        if not isinstance(base, ast.Name):
            return False
        function = self._function_around(base)
        compared = function is not None and function.name in allow_lists.COMPARISONS
        second = [item.arg for item in function.args.args[1:]] if function and compared else []
        return self._is_own(base) or base.id in second

    def _is_self(self, base: ast.expr) -> bool:
        """Whether it is the first argument of a method of the solution's own class."""
        function = self._function_around(base)
        if function is None or not isinstance(self.parents[function], ast.ClassDef):
            return False
        first = [*function.args.posonlyargs, *function.args.args][:1]
        return isinstance(base, ast.Name) and any(item.arg == base.id for item in first)

    def _function_around(self, node: ast.AST) -> ast.FunctionDef | None:
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, ast.FunctionDef):
                return node
        return None

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if "os.environ" in self.names.resolve(node.value) and not isinstance(node.ctx, ast.Load):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            self._setting(node, key)
        self.generic_visit(node)

    def _setting(self, node: ast.AST, key: object) -> None:
        if not re.fullmatch(allow_lists.ENVIRONMENT, str(key)):
            self._report(node, ast.unparse(node), "changes the environment of the harness")

    # Calls.

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        named = function.id if isinstance(function, ast.Name) else ""
        if self._is_builtin(function, *allow_lists.BY_LITERAL):
            self._by_literal(node, named)
            return
        if "os.environ.setdefault" in self.names.resolve(function):
            key = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            self._setting(node, key)
        if isinstance(function, ast.Attribute) and function.attr in ("format", "format_map"):
            self._format(node, function)
        if self.names.resolve(function) & allow_lists.ASSEMBLY_CALLS:
            self._assembly(node)
        if self._names_by_strings(node):
            self._report(node, ast.unparse(node)[:60], WHILE_IT_RUNS)
        if self._hears_warnings(node):
            self._report(node, ast.unparse(node)[:60], TELLS)
        self.generic_visit(node)

    def _names_by_strings(self, node: ast.Call) -> bool:
        """Whether a call may give or take names by strings: namespaces made of tables, `wraps` as anything
        but a plain decorator, signatures with options."""
        full = self.names.resolve(node.func)
        if "functools.wraps" in full:
            decorates = node in getattr(self.parents[node], "decorator_list", ())
            return not decorates or len(node.args) != 1 or bool(node.keywords)
        if "inspect.signature" in full:  # it may evaluate annotations that are strings
            return len(node.args) != 1 or bool(node.keywords)
        return "types.SimpleNamespace" in full and (
            bool(node.args) or any(one.arg is None for one in node.keywords)
        )

    def _hears_warnings(self, node: ast.Call) -> bool:
        """Whether a warning is kept or becomes an error: it knows the file and line of its callers."""
        full = self.names.resolve(node.func)
        if "warnings.catch_warnings" in full:
            return bool(node.args or node.keywords)
        if full.isdisjoint(("warnings.filterwarnings", "warnings.simplefilter")):
            return False
        action = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "action")]
        return not any(isinstance(one, ast.Constant) and one.value in QUIET for one in action[:1])

    def visit_keyword(self, node: ast.keyword) -> None:
        if is_dunder(node.arg or ""):
            self._report(node, f"{node.arg}=...", REACHES_OUT)
        self.generic_visit(node)

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        """What stands around a `yield` to clean up runs when the generator is thrown away; where a
        context manager is made of it, when a `with` ends."""
        around: ast.AST = node
        cleans = False
        while not isinstance(around, ast.FunctionDef) and around in self.parents:
            cleans |= isinstance(around, _CLEAN_UP)
            around = self.parents[around]
        if cleans and not (isinstance(around, ast.FunctionDef) and self._is_entered_only(around)):
            self._report(node, ast.unparse(node), UNASKED)
        self.generic_visit(node)

    visit_YieldFrom = visit_Yield

    def _is_entered_only(self, function: ast.FunctionDef) -> bool:
        """Whether it makes a context manager that nobody uses but by `with`."""
        managers = [self.names.resolve(one) for one in function.decorator_list]
        if managers != [{"contextlib.contextmanager"}]:
            return False
        return all(
            isinstance(self.parents[use], ast.Call)
            and isinstance(self.parents[self.parents[use]], ast.withitem)
            for use in self.parents
            if _asks_for(use, function.name)
        )

    def _assembly(self, node: ast.Call) -> None:
        """Its text must be there to be read, and be PTX."""
        named = [keyword.value for keyword in node.keywords if keyword.arg == "asm"]
        text = self._text_of([*node.args[:1], *named][0]) if node.args or named else None
        if text is None:
            self._report(node, ast.unparse(node.func), WHILE_IT_RUNS)
            return
        for said, reason in assembly_faults(text):
            self._report(node, said, reason)

    def _text_of(self, node: ast.AST) -> str | None:
        """A string that stands there, or the only one that a name is given."""
        bound = self.names.bound[node.id] if isinstance(node, ast.Name) else []
        if len(bound) == 1 and isinstance(bound[0], (ast.Assign, ast.AnnAssign)):
            node = bound[0].value or node
        if isinstance(node, ast.Call) and "triton.language.constexpr" in self.names.resolve(
            node.func
        ):
            node = node.args[0] if len(node.args) == 1 else node
        told = node.value if isinstance(node, ast.Constant) else None
        return told if isinstance(told, str) else None

    def _by_literal(self, node: ast.Call, name: str) -> None:
        """`getattr(x, "name")` is `x.name`, and `setattr` a store to it; `hasattr` gives nothing."""
        if name == "hasattr":
            for argument in node.args:
                if not self.names.resolve(argument):
                    self.visit(argument)
            return
        literal = node.args[1].value if len(node.args) > 1 and isinstance(
            node.args[1], ast.Constant) else None  # fmt: skip
        if not isinstance(literal, str) or node.keywords:
            self._report(node, f"{name}(...)", WHILE_IT_RUNS)
            return
        base, *rest = node.args
        if name in ("setattr", "delattr"):
            self._store(node, base)
        full = {f"{owner}.{literal}" for owner in self.names.resolve(base)}
        for owned in sorted(full):
            if not may_be_named(owned):
                self._report(node, owned, reason_for(owned))
            elif not is_value(owned) and not is_device_name(owned):
                self._report(node, owned, NOT_A_VALUE)
        if not full:
            self._attribute(node, literal)
            self.visit(base)
        for argument in rest:
            self.visit(argument)

    def _format(self, node: ast.Call, function: ast.Attribute) -> None:
        """A format may ask its arguments for attributes, so it must be there to be read."""
        text = function.value.value if isinstance(function.value, ast.Constant) else None
        if not isinstance(text, str):
            self._report(node, f".{function.attr}(...)", WHILE_IT_RUNS)
        elif "__" in text:
            self._report(node, text, REACHES_OUT)

    # Statements with rules of their own.

    def visit_If(self, node: ast.If) -> None:
        if self.parents[node] is self.module and ast.unparse(node.test) in (
            "__name__ == '__main__'", "'__main__' == __name__",
        ):  # fmt: skip
            for statement in node.orelse:  # a solution is never the main program
                self.visit(statement)
            return
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.visit(target)
        if not self.names.is_alias(node):
            self.visit(node.value)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        self._report(node, f"case {ast.unparse(node.cls)}(...)", REACHES_OUT)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for keyword in node.keywords:
            self._report(node, f"class {node.name}({keyword.arg}=...)", EVERYONE)
        bases = {full for base in node.bases for full in self.names.resolve(base)}
        if any(full.startswith("enum.") for full in bases) and not any(map(_is_member, node.body)):
            self._report(
                node, f"class {node.name}", WHILE_IT_RUNS
            )  # it takes them when it is called
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._in_scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._report(node, f"async def {node.name}", "works outside the timed call")
        self._in_scope(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._in_scope(node)

    def _in_scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        """Decorators, defaults and annotations are of the scope around."""
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for part in ast.iter_child_nodes(node):
            if part not in body:
                self.visit(part)
        self.locals.append(local_names(node))
        for part in body:
            self.visit(part)
        self.locals.pop()

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        """What the first loop runs over is of the scope around."""
        first = node.generators[0].iter
        self.visit(first)
        self.locals.append(names_stored(*(one.target for one in node.generators)))
        for part in ast.iter_child_nodes(node):
            for inner in ast.iter_child_nodes(part) if part is node.generators[0] else [part]:
                if inner is not first:
                    self.visit(inner)
        self.locals.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _asks_for(node: ast.AST, name: str) -> bool:
    """Whether a function's or a method's name is asked for, or given another one."""
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.alias):
        return node.name == name and node.asname is not None
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "getattr"
        and ast.unparse(node.args[-1]) == repr(name)
    )


def _is_member(node: ast.AST) -> bool:
    """Whether a statement of an enumeration gives it a member."""
    return isinstance(node, ast.Assign) and (
        isinstance(node.value, (ast.Constant, ast.UnaryOp, ast.Tuple))
        or (isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith("auto"))
    )
