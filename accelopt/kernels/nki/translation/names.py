"""What a kernel's file calls the modules of NKI, and names that are still free."""

from __future__ import annotations

import re

import libcst as cst

from accelopt.kernels.nki.translation.indices import text_of

ROOTS = {"neuronxcc": "neuronxcc.nki", "nki": "nki"}


class ModuleNames:
    """Aliases of a dialect's modules in one file: `top`, `language`, `isa`."""

    def __init__(self, tree: cst.Module, dialect: str) -> None:
        self.root = ROOTS[dialect]
        self.top, self.language, self.isa = "nki", "nl", "nisa"
        self.direct: dict[str, tuple[str, str]] = {}
        self.tiles: dict[str, str] = {}
        self.functions = set(re.findall(r"\bdef (\w+)", tree.code))
        self.taken = set(re.findall(r"\b[A-Za-z_]\w*\b", tree.code))
        tree.visit(_Imports(self))

    def called(self, node: cst.BaseExpression) -> tuple[str, str] | None:
        """("nl" or "nisa", function) for a function of NKI."""
        text = text_of(node)
        if text in self.direct:
            return self.direct[text]
        space, _, function = text.rpartition(".")
        if space in (self.language, f"{self.top}.language"):
            return "nl", function
        if space in (self.isa, f"{self.top}.isa"):
            return "nisa", function
        return None

    def fresh(self, kind: str) -> str:
        """A name that the file does not use yet."""
        name, number = kind, 2
        while name in self.taken:
            name, number = f"{kind}_{number}", number + 1
        self.taken.add(name)
        return name


class _Imports(cst.CSTVisitor):
    """Finds out what the modules are called."""

    def __init__(self, names: ModuleNames) -> None:
        super().__init__()
        self.names = names

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = text_of(alias.name)
            known = text_of(alias.asname.name) if alias.asname else name
            self._bind(name, known)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if node.module is None or isinstance(node.names, cst.ImportStar):
            return
        module = text_of(node.module)
        for alias in node.names:
            leaf = text_of(alias.name)
            known = text_of(alias.asname.name) if alias.asname else leaf
            self._bind(f"{module}.{leaf}", known)
            space = {"language": "nl", "isa": "nisa"}.get(
                module.removeprefix(f"{self.names.root}.")
            )
            if module.startswith(self.names.root) and space is not None:
                self.names.direct[known] = (space, leaf)

    def _bind(self, module: str, known: str) -> None:
        names = self.names
        if module == names.root:
            names.top = known
        elif module == f"{names.root}.language":
            names.language = known
        elif module == f"{names.root}.isa":
            names.isa = known
