"""What can be done to a Triton solution: every move and configuration, best expected first."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from accelopt.kernels.moves import METHODS
from accelopt.kernels.triton.moves import compiler_hints, loops
from accelopt.kernels.triton.moves.autotuning import (
    configured_names,
    first_configuration,
    with_configurations,
)
from accelopt.kernels.triton.moves.knobs import (
    Knob,
    Role,
    find_knobs,
    set_options,
    tile_roles,
    with_own_grid,
)
from accelopt.kernels.triton.moves.launch_configurations import (
    KernelKind,
    LaunchConfiguration,
    configurations,
    kind_of,
)
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    Launch,
    Source,
    asks_elsewhere,
    called,
)
from accelopt.kernels.triton.moves.split_k_reduction import JOINED
from accelopt.kernels.triton.moves.structural_moves import (
    BATCHED,
    COUNTED,
    FIXED,
    HEADS_OF_FEW,
    HOST_STEPS,
    MoveStep,
    on_kernel,
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
ROW_WARPS = (8, 16, 4, 2, 32)

KnobRoles = Mapping[str, Mapping[str, Role]]


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
    roles = {name: tile_roles(kernel) for name, kernel in source.kernels.items()}
    options = [
        option
        for variant in (*variants(source), *without_autotuners(source))
        for option in _with_configurations(variant, text, roles)
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
        kind = _kind_when_counted(source, name)
        first, *others = routes_of(kind)
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
        yield from _row_variants(source, launch, kind)
        yield from _hint_variants(source, launch)


def without_autotuners(source: Source) -> Iterator[Variant]:
    """The variants of the source with the first choice of each autotuner in its place."""
    sentences = []
    for launch in source.launches:
        text = FIXED.move(source, launch.kernel.name)
        if text is not None:
            source = Source(text)
            sentences.append(FIXED.sentence.format(launch.kernel.name))
    for variant in variants(source) if sentences else ():
        words = " ".join([*sentences, variant.sentence]).strip()
        yield variant._replace(methods=(FIXED.method, *variant.methods), sentence=words)


def _launches(source: Source) -> list[Launch]:
    """The launches but those of kernels that a move wrote to join pieces."""
    return [item for item in source.launches if not item.kernel.name.endswith(JOINED)]


def _kind_when_counted(source: Source, name: str) -> KernelKind:
    """The kind of a kernel's work; an open loop that can be counted counts as a loop."""
    counted = COUNTED.move(source, name)
    seen = source if counted is None else Source(counted)
    launch = next(item for item in seen.launches if item.kernel.name == name)
    tuned = launch.kernel.autotune is not None
    return kind_of(launch.kernel, _tuned(launch.kernel) if tuned else find_knobs(seen, launch))


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


def _row_variants(source: Source, launch: Launch, kind: KernelKind) -> Iterator[Variant]:
    """Rows: a whole one at once."""
    if kind is KernelKind.ROWS:
        yield from _whole_row(source, launch.kernel)


def _whole_row(source: Source, kernel: JitFunction) -> Iterator[Variant]:
    constant = compiler_hints.constant_sizes(kernel, compiler_hints.row_end_names(kernel))
    inner = source if constant is None else Source(source.with_kernel(kernel, constant))
    stepped = on_kernel(loops.stepped_by_tiles)(inner, kernel.name)
    inner = inner if stepped is None else Source(stepped)
    whole = on_kernel(loops.one_pass)(inner, kernel.name)
    if whole is not None:
        text = f"Read each row of {kernel.name} once and keep it, in place of a pass for each step."
        yield Variant(("read_row_once",), text, whole, 1.5)


def _hint_variants(source: Source, launch: Launch) -> Iterator[Variant]:
    kernel = launch.kernel
    constant = on_kernel(compiler_hints.constant_sizes)(source, kernel.name)
    if constant is not None:
        text = f"Compile {kernel.name} for its sizes, as constants."
        yield Variant(("vectorize_global_loads",), text, constant, 1.05)


def _with_configurations(variant: Variant, original: str, roles: KnobRoles) -> Iterator[_Option]:
    """The variant as it is, and with each configuration of each of its launches."""
    source = Source(variant.source)
    whole_row = variant.source.count("static_assert") > original.count("static_assert")
    if variant.source != original and not whole_row:
        yield _option(variant, 0.9 * variant.weight, lambda: variant.source)
    for launch in _launches(source):
        if launch.kernel.autotune is not None:
            yield from _retuned(source, launch, variant)
            continue
        # A move may take the loop away that tells a tile, or make one.
        known = {**tile_roles(launch.kernel), **roles.get(launch.kernel.name, {})}
        knobs = find_knobs(source, launch, known)
        if whole_row:
            yield from _whole_rows(source, launch, knobs, variant)
            continue
        for place, choice in enumerate(configurations(launch.kernel, knobs)):
            values = {name: str(value) for name, value in choice.tiles}
            yield _option(
                variant,
                variant.weight * 0.5 ** (place / HALF_PLACE),
                partial(_configured, source, launch, knobs, values, choice),
                f"Set {launch.kernel.name} to {choice.sentence()}.",
                kernel=launch.kernel.name,
                warps=choice.warps,
                stages=choice.stages or 0,
                registers=choice.registers or 0,
                **dict(choice.tiles),
            )


def _whole_rows(
    source: Source, launch: Launch, knobs: list[Knob], variant: Variant
) -> Iterator[_Option]:
    """A kernel that holds a whole row: its tile is the row's width, up to a power of two."""
    kernel = launch.kernel
    stepped = [knob for knob in knobs if knob.role is Role.LOOP]
    widths = [_width(launch, name) for name in asserted_widths(kernel.node)]
    own = launch.bound(stepped[0].name) if len(stepped) == 1 else None
    if len(widths) != 1 or widths[0] is None or own is None:
        return
    knobs = [stepped[0]._replace(places=(source.replacing(own, ""),))]
    tile = {stepped[0].name: f"triton.next_power_of_2({widths[0]})"}
    for place, warps in enumerate(ROW_WARPS):
        yield _option(
            variant,
            variant.weight * 0.5 ** (place / HALF_PLACE),
            partial(_configured, source, launch, knobs, tile, LaunchConfiguration((), warps, None)),
            f"Give it {warps} warps.",
            kernel=kernel.name,
            warps=warps,
        )


def _width(launch: Launch, name: str) -> str | None:
    """How wide a row is, in the words of the host code."""
    if name not in launch.kernel.parameters:
        return name if name.isdigit() else None
    bound = launch.bound(name)
    return None if bound is None else ast.unparse(bound)


def asserted_widths(node: ast.FunctionDef) -> list[str]:
    """The names on the right of `tl.static_assert(BLOCK >= width)`, as `one_pass` writes it."""
    return [
        ast.unparse(call.args[0].comparators[0])
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and called(call) == "tl.static_assert"
        and isinstance(call.args[0], ast.Compare)
        and isinstance(call.args[0].ops[0], ast.GtE)
    ]


def _configured(
    source: Source,
    launch: Launch,
    knobs: list[Knob],
    values: Mapping[str, str],
    choice: LaunchConfiguration,
) -> str:
    edits = [
        edit for knob in knobs if knob.name in values for edit in knob.set_to(values[knob.name])
    ]
    options: dict[str, int | None] = {"num_warps": choice.warps}
    if choice.stages is not None:
        options["num_stages"] = choice.stages
    if choice.registers is not None or launch.option("maxnreg") is not None:
        options["maxnreg"] = choice.registers
    return source.edited([*edits, *set_options(source, launch, options)])


def _retuned(source: Source, launch: Launch, variant: Variant) -> Iterator[_Option]:
    """One proposal: the autotuner over our configurations for this kind of kernel."""
    kernel = launch.kernel
    knobs = _tuned(kernel)
    if {knob.name for knob in knobs} != set(configured_names(kernel)):
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


def _tuned(kernel: JitFunction) -> list[Knob]:
    """The tiles that a kernel's own autotuner chooses, with its first choice."""
    names, first = set(configured_names(kernel)), first_configuration(kernel)
    return [
        Knob(kernel.name, name, role, first.get(name, 0), ())
        for name, role in tile_roles(kernel).items()
        if name in names
    ]
