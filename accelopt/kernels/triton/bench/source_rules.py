"""What a solution's source must not contain: a first door before anything runs.

The rules forbid the tools of cheating rather than list the tools of honest work, so that kernels
others published pass. Each is a reach out of the function's own arguments: the interpreter's
frames and objects, other processes, files, clocks, other streams, patched libraries.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelopt.kernels.triton.bench.forbidden import (
    DYNAMIC_ACCESS,
    ENVIRONMENT_PREFIXES,
    FORBIDDEN_ATTRIBUTES,
    FORBIDDEN_CALLS,
    FORBIDDEN_MODULES,
    FORBIDDEN_NAMES,
    FORBIDDEN_PREFIXES,
    HARMLESS_NAMES,
    NEVER_PASSED_ON,
)
from accelopt.kernels.triton.bench.tracefiles import Solution

REACHES_OUT = "reaches out of the kernel's own arguments"


class Violation(NamedTuple):
    """One forbidden thing in a source."""

    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.text}` {self.reason}"


def violations(solution: Solution) -> list[Violation]:
    """Every forbidden thing in the Python sources of `solution`; unparsable ones have none."""
    found: list[Violation] = []
    for source in solution.sources:
        if source.path.endswith(".py"):
            try:
                module = ast.parse(source.content)
            except (SyntaxError, ValueError):
                continue
            found.extend(_Scan(source.path, module).run())
    return found


class _Scan(ast.NodeVisitor):
    """Walks one module with its import names, and other names given to them, resolved."""

    def __init__(self, file: str, module: ast.Module) -> None:
        self.file = file
        self.module = module
        self.imported: dict[str, str] = {}
        self.found: list[Violation] = []

    def run(self) -> list[Violation]:
        for node in ast.walk(self.module):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self._imports(node, name.name)
                    target = name.name if name.asname else name.name.split(".")[0]
                    self.imported[name.asname or target] = target
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    full = f"{node.module or ''}.{name.name}"
                    self._imports(node, full)
                    self.imported[name.asname or name.name] = full
        self._follow_other_names()
        self.visit(self.module)
        return self.found

    def _follow_other_names(self) -> None:
        """`t = torch.Tensor` makes `t` another name of it."""
        for node in ast.walk(self.module):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, full = node.targets[0], self._resolve(node.value)
                if isinstance(target, ast.Name) and full is not None:
                    self.imported.setdefault(target.id, full)

    def _report(self, node: ast.AST, text: str, reason: str) -> None:
        self.found.append(Violation(self.file, getattr(node, "lineno", 0), text, reason))

    def _imports(self, node: ast.AST, full: str) -> None:
        module = full.split(".")[0]
        if module in FORBIDDEN_MODULES:
            self._report(node, f"import {full}", FORBIDDEN_MODULES[module])
        self._full_name(node, full)

    def _full_name(self, node: ast.AST, full: str) -> None:
        for prefix, reason in FORBIDDEN_PREFIXES.items():
            if full == prefix or full.startswith(prefix + "."):
                self._report(node, full, reason)
        module, _, rest = full.partition(".")
        for part in FORBIDDEN_ATTRIBUTES.intersection(rest.split(".")):
            self._report(node, part, REACHES_OUT)
        name = rest.split(".")[0]
        if module in FORBIDDEN_NAMES and name:
            refused = FORBIDDEN_NAMES[module]
            allowed = name in HARMLESS_NAMES[module] if refused is None else name not in refused
            if not allowed:
                self._report(node, full, REACHES_OUT)

    def _resolve(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self.imported.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._resolve(node.value)
            return None if base is None else f"{base}.{node.attr}"
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in FORBIDDEN_ATTRIBUTES:
            self._report(node, node.attr, REACHES_OUT)
        stores = isinstance(node.ctx, (ast.Store, ast.Del))
        full = self._resolve(node)
        if full is not None:
            self._full_name(node, full)
            if stores:
                self._report(node, f"{full} = ...", "changes a library for everyone")
            return
        if stores and _is_class(node.value):
            self._report(node, f"{ast.unparse(node)} = ...", "changes a library for everyone")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in FORBIDDEN_ATTRIBUTES and node.id not in self.imported:
            self._report(node, node.id, REACHES_OUT)
        elif node.id in NEVER_PASSED_ON and isinstance(node.ctx, ast.Load):
            self._report(node, node.id, "names what it takes only while it runs")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Store) and self._resolve(node.value) == "os.environ":
            key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            if not str(key).startswith(ENVIRONMENT_PREFIXES):
                self._report(node, ast.unparse(node), "changes the environment of the harness")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        full = self._resolve(node.func) or ""
        if full.startswith("os.environ.") and full not in ("os.environ.get", "os.environ.copy"):
            self._report(node, full, "changes the environment of the harness")
        if isinstance(node.func, ast.Name) and node.func.id not in self.imported:
            name = node.func.id
            if name in FORBIDDEN_CALLS:
                self._report(node, f"{name}(...)", FORBIDDEN_CALLS[name])
            elif name in DYNAMIC_ACCESS:
                self._dynamic(node, name)
            for child in (*node.args, *node.keywords):
                self.visit(child)
        else:
            self.generic_visit(node)

    def _dynamic(self, node: ast.Call, name: str) -> None:
        base = self._resolve(node.args[0]) if node.args else None
        attribute = node.args[1] if len(node.args) > 1 else None
        literal = attribute.value if isinstance(attribute, ast.Constant) else None
        if name != "getattr" and (base is not None or _is_class(node.args[0])):
            text = f"{name}({ast.unparse(node.args[0])}, ...)"
            self._report(node, text, "changes a library for everyone")
        elif base is not None and isinstance(literal, str):
            self._full_name(node, f"{base}.{literal}")
        elif base is not None or not isinstance(literal, str):
            self._report(node, f"{name}(...)", "names what it takes only while it runs")
        if isinstance(literal, str) and literal in FORBIDDEN_ATTRIBUTES:
            self._report(node, literal, REACHES_OUT)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            full = self._resolve(base) or ""
            if full.startswith("torch.") and full.endswith(("Tensor", "Parameter")):
                self._report(node, f"class {node.name}({full})", "makes tensors that are not")
        self.generic_visit(node)


def _is_class(node: ast.AST) -> bool:
    """`type(x)` or `x.__class__`: what is set there is set for every object of the class."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "type"
    return isinstance(node, ast.Attribute) and node.attr == "__class__"
