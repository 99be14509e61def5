"""The settings that stand in a kernel's text, and how they differ between two kernels."""

from __future__ import annotations

import ast

from accelopt.parsing import tree_of


def setting_changes(before: str, after: str) -> dict[str, str]:
    """The settings that both kernels have with another value, as `name: "old->new"`: arguments of the
    first `triton.Config` or launch, and names that are set to a number."""
    old, new = settings_of(before), settings_of(after)
    return {
        name: f"{old[name]}->{new[name]}" for name in old if new.get(name, old[name]) != old[name]
    }


def settings_of(source: str) -> dict[str, int | float]:
    """Every setting by name, the first of a name; none where the text cannot be parsed."""
    tree = tree_of(source)
    found: dict[str, int | float] = {}
    for node in ast.walk(tree):
        for name, value in _pairs(node):
            if not isinstance(value, ast.Constant) or isinstance(value.value, bool):
                continue
            if isinstance(value.value, (int, float)):
                found.setdefault(name, value.value)
    return found


def _pairs(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
    if not isinstance(node, ast.Call):
        return []
    named = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "Config" and node.args:
        options = node.args[0]
        if isinstance(options, ast.Dict):
            keys = zip(options.keys, options.values, strict=True)
            named += [(str(k.value), v) for k, v in keys if isinstance(k, ast.Constant)]
        return named
    return named if isinstance(node.func, ast.Subscript) else []
