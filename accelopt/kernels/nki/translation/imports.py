"""A kernel's imports in the other dialect."""

from __future__ import annotations

import re

import libcst as cst

from accelopt.kernels.nki.translation.indices import text_of
from accelopt.kernels.nki.translation.names import ROOTS, ModuleNames

HOST_NAMES = frozenset({"baremetal", "benchmark", "profile", "trace"})
"""What measures kernels of `neuronxcc.nki` on the host, and `nki` does not have."""


def with_imports(source: str, names: ModuleNames, to: str) -> str:
    """The module with the modules of the dialect `to` under the names that the file has for them;
    those that it did not import and now uses are added."""
    old, new = names.root, ROOTS[to]
    tree = cst.parse_module(source)
    tree = tree.visit(_Renamed(old, new))
    text = tree.code
    wanted = {
        names.top: f"import {new} as {names.top}" if new != names.top else f"import {new}",
        names.isa: f"import {new}.isa as {names.isa}",
        names.language: f"import {new}.language as {names.language}",
        "ml_dtypes": "import ml_dtypes",
        "math": "import math",
    }
    body = re.sub(r"(?m)^\s*(import|from) .*$", "", text)
    missing = [
        line
        for alias, line in wanted.items()
        if re.search(rf"\b{alias}\.", body) and not re.search(rf"(?m)^\s*{re.escape(line)}\b", text)
        and not re.search(rf"(?m)^\s*(from|import) .*\b{alias}\b", text)
    ]  # fmt: skip
    return _added(text, missing, new)


class _Renamed(cst.CSTTransformer):
    """`neuronxcc.nki` as `nki` in imports, or the other way round."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self.old, self.new = old, new

    def _name(self, text: str) -> str | None:
        if text == self.old or text.startswith(f"{self.old}."):
            return self.new + text.removeprefix(self.old)
        return None

    def _package(self, node: cst.ImportFrom) -> cst.ImportAlias | None:
        """What `from neuronxcc import nki` imports; None for any other import."""
        parent, _, leaf = self.old.rpartition(".")
        if not parent or node.module is None or text_of(node.module) != parent:
            return None
        if isinstance(node.names, cst.ImportStar) or len(node.names) != 1:
            return None
        [alias] = node.names
        return alias if text_of(alias.name) == leaf else None

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        name = self._name(text_of(original_node.name))
        if name is None:
            return updated_node
        made = updated_node.with_changes(name=cst.parse_expression(name))
        if made.asname is None and "." not in text_of(original_node.name) and "." in name:
            alias = cst.AsName(name=cst.Name(text_of(original_node.name)))
            made = made.with_changes(asname=alias)
        if made.asname is not None and text_of(made.asname.name) == name:
            made = made.with_changes(asname=None)
        return made

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        package = self._package(original_node)
        if package is not None:
            return cst.Import([package.with_changes(name=cst.parse_expression(self.new))])
        name = None if original_node.module is None else self._name(text_of(original_node.module))
        if name is None:
            return updated_node
        names = updated_node.names
        if not isinstance(names, cst.ImportStar):
            gone = {"par_dim", *(HOST_NAMES if self.new == "nki" and name == "nki" else ())}
            kept = [alias for alias in names if text_of(alias.name) not in gone]
            if not kept:
                return cst.RemoveFromParent()
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            names = kept
        return updated_node.with_changes(module=cst.parse_expression(name), names=names)


def _added(text: str, missing: list[str], new: str) -> str:
    """The lines after the last import of the dialect, or at the top."""
    if not missing:
        return text
    lines = text.splitlines(keepends=True)
    root = new.partition(".")[0]
    places = [n for n, line in enumerate(lines) if re.match(rf"(import|from) {root}\b", line)]
    at = places[-1] + 1 if places else 0
    return "".join([*lines[:at], *(f"{line}\n" for line in missing), *lines[at:]])
