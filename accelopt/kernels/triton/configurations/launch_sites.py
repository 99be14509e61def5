"""Launches whose tiles, warps and stages can be set: as numbers of the text, or as an autotuned kernel's list of
configurations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accelopt.kernels.triton.configurations.knobs import (
    Knob,
    find_knobs,
    integer,
    set_numbers,
    set_options,
    tiles_in,
)
from accelopt.kernels.triton.configurations.launch_configurations import (
    LaunchConfiguration,
    configurations,
)
from accelopt.kernels.triton.configurations.source import JitFunction, Launch, Source, called


class Site(NamedTuple):
    """A launch with its tiles; `prefix` tells its knobs from those of other kernels. The tiles of an autotuned
    kernel are those that its autotuner chooses, with its first choice, 0 where that is no integer of the text."""

    launch: Launch
    tiles: list[Knob]
    prefix: str = ""

    @property
    def kernel(self) -> JitFunction:
        """The kernel that is launched."""
        return self.launch.kernel

    @property
    def choices(self) -> Iterator[LaunchConfiguration]:
        """The configurations that are standard for its kind of work, the best expected first."""
        return configurations(self.kernel, self.tiles)

    def configured(self, source: Source, choices: Sequence[LaunchConfiguration]) -> str:
        """The solution with its first choice, or with all of them as an autotuned kernel's list."""
        if self.kernel.autotune is not None:
            listed = _list_of(self.kernel.autotune)
            return source.edited([source.replacing(listed, _text(choices))] if listed else [])
        (choice,) = choices
        options: dict[str, int | None] = {}
        if choice.warps is not None:
            options["num_warps"] = choice.warps
        if choice.stages is not None:
            options["num_stages"] = choice.stages
        if choice.registers is not None or self.launch.option("maxnreg") is not None:
            options["maxnreg"] = choice.registers
        tiles = set_numbers(source, self.tiles, dict(choice.tiles))
        return source.edited([*tiles, *set_options(source, self.launch, options)])


def site_of(source: Source, launch: Launch, prefix: str = "") -> Site:
    """A launch with its tiles."""
    kernel = launch.kernel
    if kernel.autotune is None:
        return Site(launch, find_knobs(source, launch), prefix)
    listed = configured_values(kernel)
    names, first = {name for values in listed for name in values}, (listed or [{}])[0]
    roles = tiles_in(kernel).items()
    tiles = [Knob(name, role, first.get(name) or 0) for name, role in roles if name in names]
    return Site(launch, tiles, prefix)


def configured_values(kernel: JitFunction) -> list[dict[str, int | None]]:
    """Each `triton.Config` of the decorator as values by name; None where it is no integer."""
    return [
        {
            str(key.value): integer(value)
            for key, value in zip(node.args[0].keys, node.args[0].values, strict=True)
            if isinstance(key, ast.Constant)
        }
        for node in (ast.walk(kernel.autotune) if kernel.autotune is not None else ())
        if isinstance(node, ast.Call) and called(node).endswith("Config")
        if node.args and isinstance(node.args[0], ast.Dict)
    ]


def _list_of(autotune: ast.Call) -> ast.expr | None:
    named = (k.value for k in autotune.keywords if k.arg == "configs")
    return next(iter((*named, *autotune.args[:1])), None)


def _text(choices: Sequence[LaunchConfiguration]) -> str:
    lines = ["["]
    for choice in choices:
        tiles = ", ".join(f"'{name}': {value}" for name, value in choice.tiles)
        stages = "" if choice.stages is None else f", num_stages={choice.stages}"
        lines.append(f"        triton.Config({{{tiles}}}, num_warps={choice.warps}{stages}),")
    return "\n".join([*lines, "    ]"])
