"""Autotuned kernels: their list of configurations is a knob."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelopt.kernels.triton.configurations.knobs import Knob, find_knobs, integer, tile_roles
from accelopt.kernels.triton.configurations.launch_configurations import LaunchConfiguration
from accelopt.kernels.triton.configurations.source import Edit, JitFunction, Launch, Source, called


def configured_names(kernel: JitFunction) -> set[str]:
    """Names that the kernel's own configurations set."""
    return {name for values in _listed(kernel) for name in values}


def tiles_of(source: Source, launch: Launch) -> list[Knob]:
    """The tiles of a launched kernel; of an autotuned one those that its autotuner chooses, with its
    first choice, 0 where that is no integer of the text."""
    kernel = launch.kernel
    if kernel.autotune is None:
        return find_knobs(source, launch)
    names, first = configured_names(kernel), (_listed(kernel) or [{}])[0]
    return [
        Knob(name, role, first.get(name) or 0, ())
        for name, role in tile_roles(kernel).items()
        if name in names
    ]


def _listed(kernel: JitFunction) -> list[dict[str, int | None]]:
    """Each `triton.Config` of the decorator as values by name; None where it is no integer."""
    if kernel.autotune is None:
        return []
    return [
        {
            str(key.value): integer(value)
            for key, value in zip(node.args[0].keys, node.args[0].values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for node in ast.walk(kernel.autotune)
        if isinstance(node, ast.Call) and called(node).endswith("Config")
        if node.args and isinstance(node.args[0], ast.Dict)
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
