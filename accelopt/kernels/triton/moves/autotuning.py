"""Autotuned kernels: their list of configurations is a knob, and so is having one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

from accelopt.kernels.triton.moves.launch_configurations import LaunchConfiguration
from accelopt.kernels.triton.moves.source import Edit, JitFunction, Launch, Source, called

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def configured_names(kernel: JitFunction) -> list[str]:
    """Names that the kernel's own configurations set."""
    names = {name: None for values in _listed(kernel) for name in values}
    return list(names)


def first_configuration(kernel: JitFunction) -> dict[str, int]:
    """The integer values of the first listed configuration, by name."""
    listed = _listed(kernel)
    return {name: value for name, value in listed[0].items() if value is not None} if listed else {}


def _listed(kernel: JitFunction) -> list[dict[str, int | None]]:
    """Each `triton.Config` of the decorator as values by name; None where it is no integer."""
    if kernel.autotune is None:
        return []
    return [
        {
            str(key.value): _whole(value)
            for key, value in zip(node.args[0].keys, node.args[0].values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for node in ast.walk(kernel.autotune)
        if _is_configuration(node) and isinstance(node.args[0], ast.Dict)
    ]


def _is_configuration(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and called(node).endswith("Config") and bool(node.args)


def _whole(node: ast.expr) -> int | None:
    is_whole = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if is_whole else None  # type: ignore[attr-defined, no-any-return]


def without_autotuner(source: Source, launch: Launch) -> str | None:
    """Launch a kernel with the first choice of its autotuner, as numbers that can be set.

    Before: `@triton.autotune([triton.Config({'B': 64}, num_warps=4), ...], key=[...])`. After: no
    autotuner, and `kernel[grid](..., B=64, num_warps=4)`. Then moves that the host code needs the
    numbers for can be made. Legal where choices are whole numbers that stand in the text.
    """
    kernel = launch.kernel
    if kernel.autotune is None:
        return None
    more = {k.arg for k in kernel.autotune.keywords} - {"configs", "key", "warmup", "rep"}
    first = next((n for n in ast.walk(kernel.autotune) if _is_configuration(n)), None)
    if more or first is None or not isinstance(first.args[0], ast.Dict) or len(first.args) > 1:
        return None
    pairs = zip(first.args[0].keys, first.args[0].values, strict=True)
    values = {str(k.value): _whole(v) for k, v in pairs if isinstance(k, ast.Constant)}
    values |= {str(k.arg): _whole(k.value) for k in first.keywords}
    known = {*OPTIONS, *kernel.constants}
    if None in values.values() or len(values) < len(first.args[0].keys) or set(values) - known:
        return None
    launches = [other for other in source.launches if other.kernel.name == kernel.name]
    if any(other.option(name) is not None for other in launches for name in values):
        return None
    decorator = source.line_start(kernel.autotune.lineno)
    edits = [Edit(decorator, source.end(kernel.autotune) + 1, "")]
    given = ", ".join(f"{name}={value}" for name, value in values.items())
    if given:
        edits += [source.adding(other.call, given) for other in launches]
    return source.edited(edits)


def with_configurations(
    source: Source, kernel: JitFunction, configurations: Sequence[LaunchConfiguration]
) -> str | None:
    """The kernel tuned over other configurations. None when the list cannot be found."""
    if kernel.autotune is None:
        return None
    listed = next(
        (k.value for k in kernel.autotune.keywords if k.arg == "configs"),
        kernel.autotune.args[0] if kernel.autotune.args else None,
    )
    if listed is None:
        return None
    lines = ["["]
    for configuration in configurations:
        tiles = ", ".join(f"'{name}': {value}" for name, value in configuration.tiles)
        stages = "" if configuration.stages is None else f", num_stages={configuration.stages}"
        lines.append(
            f"        triton.Config({{{tiles}}}, num_warps={configuration.warps}{stages}),"
        )
    lines.append("    ]")
    edit: Edit = source.replacing(listed, "\n".join(lines))
    return source.edited([edit])
