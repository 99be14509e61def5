"""A kernel's imports of `neuronxcc.nki` as those of `nki`."""

from __future__ import annotations

import re

import libcst as cst

from accelopt.kernels.nki.translation.indices import text_of
from accelopt.kernels.nki.translation.names import ROOTS, ModuleNames

OLD = ROOTS["neuronxcc"]
HOST_NAMES = frozenset({"baremetal", "benchmark", "profile", "trace"})
"""What measures kernels of `neuronxcc.nki` on the host, and `nki` does not have."""


def with_imports(source: str, names: ModuleNames) -> str:
    """The module with the modules of `nki` under the names that the file has for those of
    `neuronxcc.nki`; those that it did not import and now uses are added."""
    text = cst.parse_module(source).visit(_Renamed()).code
    wanted = {
        names.top: f"import nki as {names.top}" if names.top != "nki" else "import nki",
        names.isa: f"import nki.isa as {names.isa}",
        names.language: f"import nki.language as {names.language}",
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
    return _added(text, missing)


class _Renamed(cst.CSTTransformer):
    """`neuronxcc.nki` as `nki` in imports."""

    def leave_ImportAlias(
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        name = _name(text_of(original_node.name))
        if name is None:
            return updated_node
        made = updated_node.with_changes(name=cst.parse_expression(name))
        if made.asname is not None and text_of(made.asname.name) == name:
            made = made.with_changes(asname=None)
        return made

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.BaseSmallStatement | cst.RemovalSentinel:
        module, names = original_node.module, updated_node.names
        if module is None:
            return updated_node
        if text_of(module) == "neuronxcc" and not isinstance(names, cst.ImportStar):
            if len(names) == 1 and text_of(names[0].name) == "nki":
                return cst.Import([names[0]])
            return updated_node
        name = _name(text_of(module))
        if name is None:
            return updated_node
        if not isinstance(names, cst.ImportStar):
            gone = {"par_dim", *(HOST_NAMES if name == "nki" else ())}
            kept = [alias for alias in names if text_of(alias.name) not in gone]
            if not kept:
                return cst.RemoveFromParent()
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            names = kept
        return updated_node.with_changes(module=cst.parse_expression(name), names=names)


def _name(module: str) -> str | None:
    """A module of `neuronxcc.nki` in `nki`; None for any other module."""
    same = module == OLD or module.startswith(f"{OLD}.")
    return "nki" + module.removeprefix(OLD) if same else None


def _added(text: str, missing: list[str]) -> str:
    """The lines after the last import of the dialect, or at the top."""
    if not missing:
        return text
    lines = text.splitlines(keepends=True)
    places = [n for n, line in enumerate(lines) if re.match(r"(import|from) nki\b", line)]
    at = places[-1] + 1 if places else 0
    return "".join([*lines[:at], *(f"{line}\n" for line in missing), *lines[at:]])
