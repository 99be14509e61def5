"""Names of a kernel: one name for one thing, and new ones that are free."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import libcst as cst

from accelopt.kernels.nki.moves.reading.reader import read
from accelopt.kernels.nki.moves.reading.source import (
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    names_in,
)

NUMBER = re.compile(r"(?<=[^\d_])(_\d+)+$")  # behind a name, as `fresh` puts it there


def taken(kernel: ParsedKernel) -> set[str]:
    """Every name the module's text uses anywhere."""
    found = set(names_in(kernel.module))
    for _, node in kernel.walk():
        found |= names_in(node.node.target if isinstance(node, SourceLoop) else node.node)
    return found


def fresh(wanted: str, used: Collection[str]) -> str:
    """`wanted`, or with the smallest number behind it that makes it free; one number, not two."""
    if wanted not in used:
        return wanted
    base, number = NUMBER.sub("", wanted), 1
    while f"{base}_{number}" in used:
        number += 1
    return f"{base}_{number}"


def apart(kernel: ParsedKernel) -> ParsedKernel:
    """The same kernel with a name of its own for every loop and every value.

    before: for n in ...: x = nl.load(a[n])      after: for n in ...: x = nl.load(a[n])
            for n in ...: x = nl.load(b[n])             for n_1 in ...: x_1 = nl.load(b[n_1])

    Names that carry a value from one iteration to the next, or through an `if`, are left alone.
    """
    reading = read(kernel)
    by_name: dict[str, list[int]] = {}
    for node, binding in reading.bindings:
        if binding not in by_name.setdefault(node.value, []):
            by_name[node.value].append(binding)
    used = taken(kernel)
    renamed: dict[tuple[str, int], str] = {}
    for name, bindings in by_name.items():
        if name in reading.shared or len(bindings) < 2:
            continue
        for binding in sorted(bindings)[1:]:
            renamed[name, binding] = fresh(name, used)
            used.add(renamed[name, binding])
    changes = {
        node: renamed[node.value, binding]
        for node, binding in reading.bindings
        if (node.value, binding) in renamed
    }
    return (
        kernel.with_body([_renamed(node, changes) for node in kernel.body]) if changes else kernel
    )


def _renamed(node: SourceNode, changes: Mapping[cst.Name, str]) -> SourceNode:
    class Rename(cst.CSTTransformer):
        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
            if original_node in changes:
                return updated_node.with_changes(value=changes[original_node])
            return updated_node

    if isinstance(node, SourceStatement):
        return SourceStatement(node.node.visit(Rename()), node.number)  # type: ignore[arg-type]
    header = node.node.with_changes(
        target=node.node.target.visit(Rename()), iter=node.node.iter.visit(Rename())
    )
    return SourceLoop(header, tuple(_renamed(child, changes) for child in node.body), node.number)
