"""What can be done to a Triton solution: every move and configuration, best expected first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from accelopt.kernels.moves import METHODS
from accelopt.kernels.triton.moves.autotuning import (
    configured_names,
    tiles_of,
    with_configurations,
)
from accelopt.kernels.triton.moves.knobs import Knob, set_options, with_own_grid
from accelopt.kernels.triton.moves.launch_configurations import (
    KernelKind,
    LaunchConfiguration,
    configurations,
    kind_of,
)
from accelopt.kernels.triton.moves.source import Launch, Source, asks_elsewhere
from accelopt.kernels.triton.moves.split_k_reduction import JOINED
from accelopt.kernels.triton.moves.structural_moves import (
    BATCHED,
    COUNTED,
    HEADS_OF_FEW,
    HOST_STEPS,
    MoveStep,
    routes_of,
)
from accelopt.knob_space import Parameter
from accelopt.nodes import Action, Rewrite, made
from accelopt.parsing import parse_python

# A configuration this many places down its list is expected to be half as good a try.
HALF_PLACE = 6.0
# More than the best of what it is made of, since each step saves something else.
TOGETHER = 1.2
TUNED_TOGETHER = 6
CONFIGURED = "change_block_sizes"


class Variant(NamedTuple):
    """Structural moves that were made: their canonical names, a sentence, what came of them."""

    methods: tuple[str, ...]
    sentence: str
    source: str
    weight: float


class _Option(NamedTuple):
    """A rewrite, its promise, and what makes it: the source, or None where it cannot be."""

    methods: tuple[str, ...]
    rewrite: Rewrite
    promise: float
    make: Callable[[], str | None]


def proposals(text: str, most: int | None = None) -> list[Action]:
    """The `most` promising proposals for a solution's source, all by default, the best first; none
    when it is not Python or has no kernel. Only what is proposed is made."""
    try:
        source = with_own_grid(Source(text))
    except (SyntaxError, ValueError):
        return []
    text = source.text
    options = [
        option for variant in variants(source) for option in _with_configurations(variant, text)
    ]
    found: dict[str, Action] = {}
    for option in sorted(options, key=lambda option: -option.promise):
        if len(found) == most:
            break
        new = option.make()
        if new and new != text and new not in found and parses(new):
            found[new] = _action(option, new)
    return list(found.values())


def _action(option: _Option, source: str) -> Action:
    touched = dict.fromkeys(r for name in option.methods for r in METHODS[name].touches)
    first, promise = option.methods[0], option.promise
    return made(option.rewrite, source, promise=promise, method=first, touches=tuple(touched))


def _option(
    variant: Variant,
    promise: float,
    make: Callable[[], str | None],
    words: str = "",
    **parameters: Parameter,
) -> _Option:
    """A variant, with a configuration on top where there are `parameters`."""
    methods = (*variant.methods, *((CONFIGURED,) if parameters else ()))
    sentence = f"{variant.sentence} {words}".strip()
    rewrite = Rewrite(move="+".join(methods), parameters=parameters, sentence=sentence)
    return _Option(methods, rewrite, promise, make)


def parses(text: str) -> bool:
    """Whether a text is Python."""
    with suppress(SyntaxError):
        return bool(parse_python(text))
    return False


def variants(source: Source) -> Iterator[Variant]:
    """The source itself, all moves that fit it together, and each of them alone."""
    yield Variant((), "", source.text, 1.0)
    for step in HOST_STEPS:
        text = step.move(source, "")
        if text is not None:
            yield Variant((step.method,), step.sentence, text, step.weight)
    for launch in _launches(source):
        if asks_elsewhere(source, launch.kernel):
            continue
        name = launch.kernel.name
        first, *others = routes_of(_kind_when_counted(source, name))
        yield from _together(source, name, [*HOST_STEPS, BATCHED, *first])
        for route in others:
            if route[0].move(source, name) is not None:
                before = HOST_STEPS if route[0] is HEADS_OF_FEW else ()
                yield from _together(source, name, [*before, *route])
        for step in dict.fromkeys(
            [BATCHED, *(step for route in (first, *others) for step in route)]
        ):
            text = step.move(source, name)
            if text is not None:
                yield Variant((step.method,), step.sentence.format(name), text, step.weight)


def _launches(source: Source) -> list[Launch]:
    """The launches but those of kernels that a move wrote to join pieces."""
    return [item for item in source.launches if not item.kernel.name.endswith(JOINED)]


def _kind_when_counted(source: Source, name: str) -> KernelKind:
    """The kind of a kernel's work; an open loop that can be counted counts as a loop."""
    counted = COUNTED.move(source, name)
    seen = source if counted is None else Source(counted)
    launch = next(item for item in seen.launches if item.kernel.name == name)
    return kind_of(launch.kernel, tiles_of(seen, launch))


def _together(source: Source, name: str, steps: Sequence[MoveStep]) -> Iterator[Variant]:
    """Every step that can be taken, one upon the other; nothing when there is but one."""
    taken = []
    for step in steps:
        text = step.move(source, name)
        if text is not None and parses(text):
            taken.append(step)
            source = Source(text)
    if len(taken) > 1:
        weight = TOGETHER * max(step.weight for step in taken)
        sentences = " ".join(step.sentence.format(name) for step in taken)
        yield Variant(tuple(step.method for step in taken), sentences, source.text, weight)


def _with_configurations(variant: Variant, original: str) -> Iterator[_Option]:
    """The variant as it is, and with each configuration of each of its launches."""
    source = Source(variant.source)
    if variant.source != original:
        yield _option(variant, 0.9 * variant.weight, lambda: variant.source)
    for launch in _launches(source):
        if launch.kernel.autotune is not None:
            yield from _retuned(source, launch, variant)
            continue
        knobs = tiles_of(source, launch)
        for place, choice in enumerate(configurations(launch.kernel, knobs)):
            yield _option(
                variant,
                variant.weight * 0.5 ** (place / HALF_PLACE),
                partial(_configured, source, launch, knobs, choice),
                f"Set {launch.kernel.name} to {choice.sentence()}.",
                kernel=launch.kernel.name,
                warps=choice.warps,
                stages=choice.stages or 0,
                registers=choice.registers or 0,
                **dict(choice.tiles),
            )


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


def _retuned(source: Source, launch: Launch, variant: Variant) -> Iterator[_Option]:
    """One proposal: the autotuner over our configurations for this kind of kernel."""
    kernel = launch.kernel
    knobs = tiles_of(source, launch)
    if {knob.name for knob in knobs} != configured_names(kernel):
        return
    choices = list(configurations(kernel, knobs))[:TUNED_TOGETHER]
    if choices:
        yield _option(
            variant,
            1.2 * variant.weight,
            partial(with_configurations, source, kernel, choices),
            f"Autotune {kernel.name} over {len(choices)} more fitting configurations.",
            kernel=kernel.name,
            choices=len(choices),
        )
