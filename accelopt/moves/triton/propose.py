"""What can be done to a Triton solution: every move and configuration, best expected first."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from accelopt.moves.triton import hints, loops, tiles
from accelopt.moves.triton.autotuning import (
    configured_names,
    first_configuration,
    with_configurations,
)
from accelopt.moves.triton.configurations import Configuration, Kind, configurations, kind_of
from accelopt.moves.triton.knobs import Knob, Role, find_knobs, set_options, tile_roles
from accelopt.moves.triton.source import Kernel, Launch, Source, called

# A configuration this many places down its list is expected to be half as good a try.
HALF_PLACE = 6.0
TUNED_TOGETHER = 6
ROW_WARPS = (8, 16, 4, 2, 32)


Roles = Mapping[str, Mapping[str, Role]]


class Proposal(NamedTuple):
    """Whole new source, what was done in a sentence, and its promise (larger: try earlier)."""

    sentence: str
    source: str
    promise: float


class _Variant(NamedTuple):
    sentence: str
    source: str
    weight: float


def proposals(text: str) -> list[Proposal]:
    """All proposals for a solution's source; none when it is not Python or has no kernel."""
    try:
        source = Source(text)
    except (SyntaxError, ValueError):
        return []
    found: dict[str, Proposal] = {}
    roles = {name: tile_roles(kernel) for name, kernel in source.kernels.items()}
    for variant in _variants(source):
        for proposal in _with_configurations(variant, text, roles):
            if proposal.source != text and _parses(proposal.source):
                known = found.get(proposal.source)
                if known is None or known.promise < proposal.promise:
                    found[proposal.source] = proposal
    return sorted(found.values(), key=lambda item: -item.promise)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _variants(source: Source) -> Iterator[_Variant]:
    """The source itself, each structural move on it, and the pairs that belong together."""
    yield _Variant("", source.text, 1.0)
    plain = hints.without_synchronisation(source)
    if plain is not None:
        yield _Variant("Do not synchronise the device in the host code.", plain, 1.6)
    for launch in source.launches:
        knobs = find_knobs(source, launch)
        kind = kind_of(launch.kernel, knobs)
        yield from _tile_variants(source, launch, kind)
        yield from _loop_variants(source, launch.kernel, kind)
        yield from _hint_variants(source, launch)


def _rewritten(
    source: Source, kernel: Kernel, move: Callable[[Kernel], ast.FunctionDef | None]
) -> str | None:
    node = move(kernel)
    return None if node is None else source.with_kernel(kernel, node)


def _tile_variants(source: Source, launch: Launch, kind: Kind) -> Iterator[_Variant]:
    kernel = launch.kernel
    descriptors = tiles.descriptor_tiles(source, launch)
    if descriptors is not None:
        text = f"Move the tiles of {kernel.name} with tensor descriptors."
        yield _Variant(text, descriptors, 1.3)
    if kind is Kind.PRODUCT:
        grouped = _rewritten(source, kernel, tiles.grouped_order)
        if grouped is not None:
            text = f"Walk the grid of {kernel.name} in groups of {tiles.GROUP} rows of tiles."
            yield _Variant(text, grouped, 1.15)
            both = _again(grouped, kernel.name, tiles.descriptor_tiles)
            if both is not None:
                also = f"{text} Move its tiles with tensor descriptors."
                yield _Variant(also, both, 1.6)
    own = _rewritten(source, kernel, tiles.own_precision_dots)
    if own is not None:
        text = f"Multiply the tiles of {kernel.name} in the 16-bit format they are stored in."
        yield _Variant(text, own, 1.8)
    if kind in (Kind.ATTENTION, Kind.DECODE):
        turned = _rewritten(source, kernel, tiles.reversed_order)
        if turned is not None:
            text = f"Start the blocks of {kernel.name} with the most work first."
            yield _Variant(text, turned, 0.8)


def _again(text: str, name: str, move: Callable[[Source, Launch], str | None]) -> str | None:
    """A second move on changed text, at the launch of the kernel called `name`."""
    source = Source(text)
    launch = next((item for item in source.launches if item.kernel.name == name), None)
    return None if launch is None else move(source, launch)


def _loop_variants(source: Source, kernel: Kernel, kind: Kind) -> Iterator[_Variant]:
    stopped = _rewritten(source, kernel, loops.stop_at_bound)
    peeled = _rewritten(source, kernel, loops.peel_masks)
    stop = f"End the loop of {kernel.name} at the last position that any of its rows can see."
    peel = f"Take the masks out of the main loop of {kernel.name}; only its last steps need them."
    if stopped is not None:
        yield _Variant(stop, stopped, 1.2)
        inner = Source(stopped)
        both = _rewritten(inner, inner.kernels[kernel.name], loops.peel_masks)
        if both is not None:
            yield _Variant(f"{stop} Take the masks out of its main loop.", both, 1.5)
    if peeled is not None:
        weight = 1.4 if kind in (Kind.ATTENTION, Kind.DECODE) else 0.9
        yield _Variant(peel, peeled, weight)
        inner = Source(peeled)
        if kind is Kind.ATTENTION:
            turned = _rewritten(inner, inner.kernels[kernel.name], tiles.reversed_order)
            if turned is not None:
                also = f"{peel} Start the blocks with the most work first."
                yield _Variant(also, turned, 1.45)
    if kind is Kind.ROWS:
        yield from _row_variants(source, kernel)


def _row_variants(source: Source, kernel: Kernel) -> Iterator[_Variant]:
    """Loops along a row: the whole row at once, and prefetched loads."""
    constant = hints.constant_sizes(kernel, hints.row_end_names(kernel))
    inner = source if constant is None else Source(source.with_kernel(kernel, constant))
    whole = _rewritten(inner, inner.kernels[kernel.name], loops.one_pass)
    if whole is not None:
        text = f"Read each row of {kernel.name} once and keep it, in place of a pass for each step."
        yield _Variant(text, whole, 1.5)
    for stages in (3, 2):
        pipelined = hints.pipelined_loops(source, kernel, stages)
        if pipelined is not None:
            text = f"Prefetch the loads in the loops of {kernel.name}, {stages} stages deep."
            yield _Variant(text, pipelined, 0.7)


def _hint_variants(source: Source, launch: Launch) -> Iterator[_Variant]:
    kernel = launch.kernel
    constant = _rewritten(source, kernel, hints.constant_sizes)
    if constant is not None:
        yield _Variant(f"Compile {kernel.name} for its sizes, as constants.", constant, 1.05)
    for stores in (False, True):
        hinted = hints.streaming_hints(source, kernel, stores=stores)
        if hinted is not None:
            what = "loads and stores" if stores else "loads"
            text = f"Mark the {what} of {kernel.name} that touch data once as streaming."
            yield _Variant(text, hinted, 0.6)
    fused = hints.fused_cast(source, launch)
    if fused is not None:
        text = f"Let the store of {kernel.name} cast its output, not a second pass over it."
        yield _Variant(text, fused, 1.4)


def _with_configurations(variant: _Variant, original: str, roles: Roles) -> Iterator[Proposal]:
    """The variant as it is, and with each configuration of each of its launches."""
    source = Source(variant.source)
    whole_row = "static_assert" in variant.source and "static_assert" not in original
    if variant.source != original and not whole_row:
        yield Proposal(variant.sentence, variant.source, 0.9 * variant.weight)
    for launch in source.launches:
        if launch.kernel.autotune is not None:
            yield from _retuned(source, launch, variant)
            continue
        knobs = find_knobs(source, launch, roles.get(launch.kernel.name))
        if whole_row:
            yield from _whole_rows(source, launch, knobs, variant)
            continue
        for place, choice in enumerate(configurations(launch.kernel, knobs)):
            values = {name: str(value) for name, value in choice.tiles}
            text = _configured(source, launch, knobs, values, choice)
            sentence = f"{variant.sentence} Set {launch.kernel.name} to {choice.sentence()}."
            yield Proposal(sentence.strip(), text, variant.weight * 0.5 ** (place / HALF_PLACE))


def _whole_rows(
    source: Source, launch: Launch, knobs: list[Knob], variant: _Variant
) -> Iterator[Proposal]:
    """A kernel that holds a whole row: its tile is the row's width, up to a power of two."""
    kernel = launch.kernel
    stepped = [knob for knob in knobs if knob.role is Role.LOOP]
    widths = [launch.bound(name) for name in asserted_widths(kernel.node)]
    if len(stepped) != 1 or len(widths) != 1 or widths[0] is None:
        return
    inside = range(source.start(launch.call), source.end(launch.call))
    if not all(place.start in inside for place in stepped[0].places):
        return
    tile = {stepped[0].name: f"triton.next_power_of_2({ast.unparse(widths[0])})"}
    for place, warps in enumerate(ROW_WARPS):
        text = _configured(source, launch, knobs, tile, Configuration((), warps, None))
        sentence = f"{variant.sentence} Give it {warps} warps."
        yield Proposal(sentence, text, variant.weight * 0.5 ** (place / HALF_PLACE))


def asserted_widths(node: ast.FunctionDef) -> list[str]:
    """The names on the right of `tl.static_assert(BLOCK >= width)`, as `one_pass` writes it."""
    return [
        ast.unparse(call.args[0].comparators[0])
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and called(call) == "tl.static_assert"
        and isinstance(call.args[0], ast.Compare)
    ]


def _configured(
    source: Source,
    launch: Launch,
    knobs: list[Knob],
    values: Mapping[str, str],
    choice: Configuration,
) -> str:
    edits = [
        edit for knob in knobs if knob.name in values for edit in knob.set_to(values[knob.name])
    ]
    options = {"num_warps": choice.warps}
    if choice.stages is not None:
        options["num_stages"] = choice.stages
    return source.edited([*edits, *set_options(source, launch, options)])


def _retuned(source: Source, launch: Launch, variant: _Variant) -> Iterator[Proposal]:
    """One proposal: the autotuner over our configurations for this kind of kernel."""
    kernel = launch.kernel
    names = set(configured_names(kernel))
    first = first_configuration(kernel)
    knobs = [
        Knob(kernel.name, name, role, first.get(name, 0), ())
        for name, role in tile_roles(kernel).items()
        if name in names
    ]
    if {knob.name for knob in knobs} != names:
        return
    choices = list(configurations(kernel, knobs))[:TUNED_TOGETHER]
    if choices:
        text = with_configurations(source, kernel, choices)
        if text is not None:
            sentence = f"{variant.sentence} Autotune {kernel.name} over {len(choices)} more fitting configurations."
            yield Proposal(sentence.strip(), text, 1.2 * variant.weight)
