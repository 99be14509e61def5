"""Autotuned kernels: their list of configurations is a knob, and so is having one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelopt.kernels.triton.moves.configurations import LaunchConfiguration
from accelopt.kernels.triton.moves.source import Edit, JitFunction, Source


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
            str(key.value): value.value
            if isinstance(value, ast.Constant) and type(value.value) is int
            else None
            for key, value in zip(node.args[0].keys, node.args[0].values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for node in ast.walk(kernel.autotune)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("Config")
        and node.args
        and isinstance(node.args[0], ast.Dict)
    ]


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
