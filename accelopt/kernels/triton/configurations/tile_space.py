"""The search space of a Triton solution's knobs: tile sizes by the kind of work, warps, stages."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from accelopt.kernels.triton.configurations.autotuning import tiles_of, with_configurations
from accelopt.kernels.triton.configurations.knobs import Knob, set_options, with_own_grid
from accelopt.kernels.triton.configurations.launch_configurations import (
    LaunchConfiguration,
    configurations,
)
from accelopt.kernels.triton.configurations.source import Launch, Source, is_range
from accelopt.knob_space import KnobSpec, Parameter, Space

WARPS, STAGES = "num_warps", "num_stages"
MANY_WARPS, MANY_STAGES = (1, 2, 4, 8, 16, 32), (1, 2, 3, 4)
DEFAULT_WARPS, DEFAULT_STAGES = 4, 3  # where a launch says nothing (Triton's own)


class _Site(NamedTuple):
    """A launch with its tiles; `prefix` tells its knobs from those of other launches."""

    launch: Launch
    tiles: list[Knob]
    prefix: str


def tile_space(text: str, name: str = "") -> Space | None:
    """Tiles and launch options of every launch in a solution; None where nothing is launched, or the
    text is not Python."""
    try:
        source = with_own_grid(Source(text))
    except SyntaxError:
        return None
    sites = _sites(source)
    lists = [_standard(site) for site in sites]
    knobs = [
        knob for site, listed in zip(sites, lists, strict=True) for knob in _knobs(site, listed)
    ]
    if not knobs:
        return None
    start = {knob.name: knob.start for knob in knobs}
    together = (filter(None, one) for one in zip_longest(*lists))
    standard = tuple({**start, **dict(chain(*(part.items() for part in one)))} for one in together)
    return Space(kernel=name, knobs=tuple(knobs), standard=standard)


def _standard(site: _Site) -> list[dict[str, Parameter]]:
    """The configurations that are standard for the kind of a launch's kernel, by the names of its knobs."""
    found = list[dict[str, Parameter]]()
    for choice in configurations(site.launch.kernel, site.tiles):
        values: dict[str, Parameter] = {**dict(choice.tiles), WARPS: choice.warps}
        if choice.stages is not None:
            values[STAGES] = choice.stages
        found.append({f"{site.prefix}{name}": value for name, value in values.items()})
    return found


def with_values(text: str, values: Mapping[str, Parameter]) -> str:
    """The solution with its knobs set. An autotuned kernel is left this one configuration."""
    text = with_own_grid(Source(text)).text
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
        edit for knob in site.tiles if knob.name in given for edit in knob.set_to(given[knob.name])
    ]
    options = {name: given[name] for name in (WARPS, STAGES) if name in given}
    return source.edited([*edits, *set_options(source, launch, options)])


def _sites(source: Source) -> list[_Site]:
    """The launches whose knobs can be set, each kernel once."""
    first: dict[str, Launch] = {}
    for launch in source.launches:
        first.setdefault(launch.kernel.name, launch)
    return [
        _Site(
            launch,
            [tile for tile in tiles_of(source, launch) if tile.value],
            f"{name}." if len(first) > 1 else "",
        )
        for name, launch in first.items()
    ]


def _knobs(site: _Site, standard: Sequence[Mapping[str, Parameter]]) -> list[KnobSpec]:
    launch = site.launch
    found = []
    for tile in site.tiles:
        name = site.prefix + tile.name
        listed = tuple(int(one[name]) for one in standard if name in one)
        found.append(_spec(name, listed or (tile.value,), tile.value))
    found.append(_spec(site.prefix + WARPS, MANY_WARPS, _option(launch, WARPS, DEFAULT_WARPS)))
    if any(isinstance(n, ast.For) and is_range(n.iter) for n in ast.walk(launch.kernel.node)):
        stages = _option(launch, STAGES, DEFAULT_STAGES)
        found.append(_spec(site.prefix + STAGES, MANY_STAGES, stages))
    return found


def _spec(name: str, values: tuple[int, ...], present: int) -> KnobSpec:
    allowed = tuple(sorted({*values, present}))
    return KnobSpec(name=name, type="int", allowed=allowed, default=present)


def _option(launch: Launch, name: str, default: int) -> int:
    node = launch.option(name)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    return default
