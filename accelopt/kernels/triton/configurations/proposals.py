"""Other configurations of a Triton solution's launches: tiles, warps and stages, best expected first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from accelopt.kernels.moves import METHODS
from accelopt.kernels.triton.configurations.launch_configurations import LaunchConfiguration
from accelopt.kernels.triton.configurations.launch_sites import Site, configured_values, site_of
from accelopt.kernels.triton.configurations.source import Source
from accelopt.knob_space import Parameter
from accelopt.nodes import Action, Rewrite, made

HALF_PLACE = 6.0
"""A configuration this many places down its list is expected to be half as good a try."""
TUNED_TOGETHER = 6
CONFIGURED = "change_block_sizes"


class _Option(NamedTuple):
    """A rewrite, its promise, and what it is: configurations of a launch."""

    rewrite: Rewrite
    promise: float
    site: Site
    choices: list[LaunchConfiguration]


def proposals(text: str, most: int | None = None) -> list[Action]:
    """The `most` promising configurations for a solution's source, all by default, the best first; none
    when it is not Python or has no kernel. Only what is proposed is made."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError):
        return []
    sites = (site_of(source, launch) for launch in source.launches)
    options = [option for site in sites for option in _of_launch(site)]
    found: dict[str, Action] = {}
    for option in sorted(options, key=lambda option: -option.promise):
        if len(found) == most:
            break
        new = option.site.configured(source, option.choices)
        if new != source.text and new not in found:
            touches = METHODS[CONFIGURED].touches
            found[new] = made(option.rewrite, new, promise=option.promise, method=CONFIGURED,
                              touches=touches)  # fmt: skip
    return list(found.values())


def _of_launch(site: Site) -> Iterator[_Option]:
    """Each configuration of a launch, or of an autotuned kernel one list of several."""
    kernel = site.kernel
    if kernel.autotune is not None:
        choices = list(site.choices)[:TUNED_TOGETHER]
        names = {name for values in configured_values(kernel) for name in values}
        if choices and {knob.name for knob in site.tiles} == names:
            sentence = f"Autotune {kernel.name} over {len(choices)} more fitting configurations."
            listed: dict[str, Parameter] = {"kernel": kernel.name, "choices": len(choices)}
            rewrite = Rewrite(move=CONFIGURED, parameters=listed, sentence=sentence)
            yield _Option(rewrite, 1.2, site, choices)
        return
    for place, choice in enumerate(site.choices):
        parameters: dict[str, Parameter] = {
            "kernel": kernel.name, "warps": choice.warps or 0, "stages": choice.stages or 0,
            "registers": choice.registers or 0, **dict(choice.tiles),
        }  # fmt: skip
        sentence = f"Set {kernel.name} to {choice.sentence()}."
        rewrite = Rewrite(move=CONFIGURED, parameters=parameters, sentence=sentence)
        yield _Option(rewrite, 0.5 ** (place / HALF_PLACE), site, [choice])
