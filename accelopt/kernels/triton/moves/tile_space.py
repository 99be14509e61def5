"""The search space of a Triton solution's knobs: tile sizes by the kind of work, warps, stages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from accelopt.kernels.triton.moves.autotuning import (
    configured_names,
    first_configuration,
    with_configurations,
)
from accelopt.kernels.triton.moves.knobs import Knob, Role, find_knobs, set_options, tile_roles
from accelopt.kernels.triton.moves.launch_configurations import (
    LARGEST_SMALL,
    KernelKind,
    LaunchConfiguration,
    kind_of,
)
from accelopt.kernels.triton.moves.source import Launch, Source, is_range
from accelopt.knob_space import KnobSpec, Parameter, Space

WARPS, STAGES = "num_warps", "num_stages"
MANY_WARPS, MANY_STAGES = (1, 2, 4, 8, 16), (1, 2, 3, 4)
DEFAULT_WARPS, DEFAULT_STAGES = 4, 3  # where a launch says nothing (Triton's own)
TILES: Mapping[tuple[KernelKind, Role], tuple[int, ...]] = {
    (KernelKind.PRODUCT, Role.PROGRAM): (32, 64, 128, 256),
    (KernelKind.PRODUCT, Role.LOOP): (16, 32, 64, 128),
    (KernelKind.ATTENTION, Role.PROGRAM): (16, 32, 64, 128),
    (KernelKind.ATTENTION, Role.LOOP): (32, 64, 128),
    (KernelKind.DECODE, Role.LOOP): (16, 32, 64, 128, 256),
    (KernelKind.ROWS, Role.LOOP): (512, 1024, 2048, 4096, 8192, 16384),
}
SMALL, LARGE = (1, 2, 4, 8, 16, 32), (256, 512, 1024, 2048, 4096, 8192)


class _Site(NamedTuple):
    """A launch with its tiles; `prefix` tells its knobs from those of other launches."""

    launch: Launch
    tiles: list[Knob]
    prefix: str


def tile_space(text: str, name: str = "") -> Space | None:
    """Tiles and launch options of every launch in a solution; None where nothing is launched, or the
    text is not Python."""
    try:
        source = Source(text)
    except SyntaxError:
        return None
    knobs = [knob for site in _sites(source) for knob in _knobs(site)]
    return Space(kernel=name, knobs=tuple(knobs)) if knobs else None


def with_values(text: str, values: Mapping[str, Parameter]) -> str:
    """The solution with its knobs set. An autotuned kernel is left this one configuration."""
    for number in range(len(_sites(Source(text)))):
        source = Source(text)
        text = _set(source, _sites(source)[number], values)
    return text


def _set(source: Source, site: _Site, values: Mapping[str, Parameter]) -> str:
    launch, prefix = site.launch, site.prefix
    given = {name.removeprefix(prefix): int(value) for name, value in values.items()
             if name.startswith(prefix)}  # fmt: skip
    if launch.kernel.autotune is not None:
        tiles = tuple((knob.name, given.get(knob.name, knob.value)) for knob in site.tiles)
        choice = LaunchConfiguration(tiles, given.get(WARPS, DEFAULT_WARPS), given.get(STAGES))
        return with_configurations(source, launch.kernel, [choice]) or source.text
    edits = [
        edit
        for knob in site.tiles
        if knob.name in given
        for edit in knob.set_to(str(given[knob.name]))
    ]
    options = {name: given[name] for name in (WARPS, STAGES) if name in given}
    return source.edited([*edits, *set_options(source, launch, options)])


def _sites(source: Source) -> list[_Site]:
    """The launches whose knobs can be set, each kernel once."""
    first: dict[str, Launch] = {}
    for launch in source.launches:
        first.setdefault(launch.kernel.name, launch)
    return [
        _Site(launch, _tiles(source, launch), f"{name}." if len(first) > 1 else "")
        for name, launch in first.items()
    ]


def _tiles(source: Source, launch: Launch) -> list[Knob]:
    kernel = launch.kernel
    if kernel.autotune is None:
        return find_knobs(source, launch)
    names, first = configured_names(kernel), first_configuration(kernel)
    return [
        Knob(kernel.name, name, role, first[name], ())
        for name, role in tile_roles(kernel).items()
        if name in names and name in first
    ]


def _knobs(site: _Site) -> list[KnobSpec]:
    launch = site.launch
    kind = kind_of(launch.kernel, site.tiles)
    found = [_spec(site.prefix + t.name, _values(kind, t), t.value) for t in site.tiles]
    found.append(_spec(site.prefix + WARPS, MANY_WARPS, _option(launch, WARPS, DEFAULT_WARPS)))
    if any(isinstance(n, ast.For) and is_range(n.iter) for n in ast.walk(launch.kernel.node)):
        stages = _option(launch, STAGES, DEFAULT_STAGES)
        found.append(_spec(site.prefix + STAGES, MANY_STAGES, stages))
    return found


def _values(kind: KernelKind, tile: Knob) -> tuple[int, ...]:
    return TILES.get((kind, tile.role)) or (SMALL if tile.value <= LARGEST_SMALL else LARGE)


def _spec(name: str, values: tuple[int, ...], present: int) -> KnobSpec:
    allowed = tuple(sorted({*values, present}))
    return KnobSpec(name=name, type="int", allowed=allowed, default=present)


def _option(launch: Launch, name: str, default: int) -> int:
    node = launch.option(name)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    return default
