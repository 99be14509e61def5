"""The search space of a Triton solution's knobs: tile sizes by the kind of work, warps, stages."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from accelopt.kernels.triton.configurations.launch_configurations import LaunchConfiguration
from accelopt.kernels.triton.configurations.launch_sites import Site, site_of
from accelopt.kernels.triton.configurations.source import Launch, Source, is_range
from accelopt.knob_space import KnobSpec, Parameter, Space

WARPS, STAGES = "num_warps", "num_stages"
MANY_WARPS, MANY_STAGES = (1, 2, 4, 8, 16, 32), (1, 2, 3, 4)
DEFAULT_WARPS, DEFAULT_STAGES = 4, 3  # where a launch says nothing (Triton's own)


def tile_space(text: str, name: str = "") -> Space | None:
    """Tiles and launch options of every launch in a solution; None where nothing is launched, or the
    text is not Python."""
    try:
        sites = _sites(Source(text))
    except SyntaxError:
        return None
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


def _standard(site: Site) -> list[dict[str, Parameter]]:
    """The configurations that are standard for the kind of a launch's kernel, by the names of its knobs."""
    found = list[dict[str, Parameter]]()
    for choice in site.choices:
        options = {WARPS: choice.warps, STAGES: choice.stages}
        values = {**dict(choice.tiles), **{k: v for k, v in options.items() if v is not None}}
        found.append({f"{site.prefix}{name}": value for name, value in values.items()})
    return found


def with_values(text: str, values: Mapping[str, Parameter]) -> str:
    """The solution with its knobs set. An autotuned kernel is left this one configuration."""
    for number in range(len(_sites(Source(text)))):
        source = Source(text)
        site = _sites(source)[number]
        given = {name.removeprefix(site.prefix): int(value) for name, value in values.items()
                 if name.startswith(site.prefix)}  # fmt: skip
        tiles = {tile.name: tile.value for tile in site.tiles}
        if site.kernel.autotune is not None:
            given = {**tiles, WARPS: DEFAULT_WARPS, **given}
        chosen = tuple((name, given[name]) for name in tiles if name in given)
        choice = LaunchConfiguration(chosen, given.get(WARPS), given.get(STAGES))
        text = site.configured(source, [choice])
    return text


def _sites(source: Source) -> list[Site]:
    """The launches whose knobs can be set, each kernel once."""
    first: dict[str, Launch] = {}
    for launch in source.launches:
        first.setdefault(launch.kernel.name, launch)
    sites = (site_of(source, launch, f"{name}." if len(first) > 1 else "")
             for name, launch in first.items())  # fmt: skip
    return [site._replace(tiles=[tile for tile in site.tiles if tile.value]) for site in sites]


def _knobs(site: Site, standard: Sequence[Mapping[str, Parameter]]) -> list[KnobSpec]:
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
