"""Other configurations of a Triton solution's launches: tiles, warps and stages, best expected first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from accelopt.kernels.moves import METHODS
from accelopt.kernels.triton.configurations.autotuning import (
    configured_names,
    tiles_of,
    with_configurations,
)
from accelopt.kernels.triton.configurations.knobs import Knob, set_options, with_own_grid
from accelopt.kernels.triton.configurations.launch_configurations import (
    LaunchConfiguration,
    configurations,
)
from accelopt.kernels.triton.configurations.source import Launch, Source
from accelopt.knob_space import Parameter
from accelopt.nodes import Action, Rewrite, made
from accelopt.parsing import parse_python

HALF_PLACE = 6.0
"""A configuration this many places down its list is expected to be half as good a try."""
TUNED_TOGETHER = 6
CONFIGURED = "change_block_sizes"


class _Option(NamedTuple):
    """A rewrite, its promise, and what makes it: the source, or None where it cannot be."""

    rewrite: Rewrite
    promise: float
    make: Callable[[], str | None]


def proposals(text: str, most: int | None = None) -> list[Action]:
    """The `most` promising configurations for a solution's source, all by default, the best first; none
    when it is not Python or has no kernel. Only what is proposed is made."""
    try:
        source = with_own_grid(Source(text))
    except (SyntaxError, ValueError):
        return []
    options = (option for launch in source.launches for option in _of_launch(source, launch))
    found: dict[str, Action] = {}
    for option in sorted(options, key=lambda option: -option.promise):
        if len(found) == most:
            break
        new = option.make()
        if new and new != source.text and new not in found and parses(new):
            touches = METHODS[CONFIGURED].touches
            found[new] = made(option.rewrite, new, promise=option.promise, method=CONFIGURED,
                              touches=touches)  # fmt: skip
    return list(found.values())


def parses(text: str) -> bool:
    """Whether a text is Python."""
    with suppress(SyntaxError):
        return bool(parse_python(text))
    return False


def _of_launch(source: Source, launch: Launch) -> Iterator[_Option]:
    """Each configuration of a launch, or of an autotuned kernel one list of several."""
    kernel, knobs = launch.kernel, tiles_of(source, launch)
    if kernel.autotune is not None:
        choices = list(configurations(kernel, knobs))[:TUNED_TOGETHER]
        if choices and {knob.name for knob in knobs} == configured_names(kernel):
            sentence = f"Autotune {kernel.name} over {len(choices)} more fitting configurations."
            listed: dict[str, Parameter] = {"kernel": kernel.name, "choices": len(choices)}
            rewrite = Rewrite(move=CONFIGURED, parameters=listed, sentence=sentence)
            yield _Option(rewrite, 1.2, partial(with_configurations, source, kernel, choices))
        return
    for place, choice in enumerate(configurations(kernel, knobs)):
        parameters: dict[str, Parameter] = {
            "kernel": kernel.name, "warps": choice.warps, "stages": choice.stages or 0,
            "registers": choice.registers or 0, **dict(choice.tiles),
        }  # fmt: skip
        sentence = f"Set {kernel.name} to {choice.sentence()}."
        rewrite = Rewrite(move=CONFIGURED, parameters=parameters, sentence=sentence)
        made_by = partial(_configured, source, launch, knobs, choice)
        yield _Option(rewrite, 0.5 ** (place / HALF_PLACE), made_by)


def _configured(
    source: Source, launch: Launch, knobs: list[Knob], choice: LaunchConfiguration
) -> str:
    tiles = dict(choice.tiles)
    edits = [edit for knob in knobs if knob.name in tiles for edit in knob.set_to(tiles[knob.name])]
    options: dict[str, int | None] = {"num_warps": choice.warps}
    if choice.stages is not None:
        options["num_stages"] = choice.stages
    if choice.registers is not None or launch.option("maxnreg") is not None:
        options["maxnreg"] = choice.registers
    return source.edited([*edits, *set_options(source, launch, options)])
