"""The text of `accelopt ptx`: what a compiled kernel moves and computes, where, and what is odd."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from accelopt.ptx.module import Function, Module, NotPtx
from accelopt.ptx.regions import Region, RegionDag
from accelopt.ptx.statements import by_source
from accelopt.ptx.work_counts import Work

WIDTH = 80
REGIONS_SHOWN = 8
LINES_SHOWN = 12
_COLUMNS = ("read", "written", "read", "written", "FLOP", "special")


def ptx_text(dag: RegionDag) -> str:
    """One kernel in words and tables of 80 columns."""
    parts = [_headline(dag), _works(dag), _loops(dag), _hot(dag), "\n".join(_findings(dag))]
    return "\n\n".join(part for part in parts if part) + "\n"


def line_text(module: Module, line: int) -> str:
    """The PTX that came of a line of the source, each with its own line. Raises NotPtx without any."""
    found = {place: ones for place, ones in by_source(module).items() if place.line == line}
    if not found:
        lines = sorted({place.line for place in by_source(module) if place.line})
        there = f"those with any are {lines[0]} to {lines[-1]}" if lines else "the text has no .loc"
        raise NotPtx(f"no PTX is of line {line} of the source: {there}")
    rows = []
    for place, statements in found.items():
        rows.append(f"{place.file}, line {line}: {_count(len(statements), 'instruction')}")
        rows += [_cut(f"{one.line:6d}  {one.text}", WIDTH) for one in statements]
    return "\n".join(rows)


def _headline(dag: RegionDag) -> str:
    one, counts = dag.function, len(dag.function.statements)
    rest = f" for {dag.module.target or 'no target'}, {_threads(one)}"
    room = WIDTH - len(rest)
    lines = [_cut(one.name, room) + rest]
    lines.append(
        f"{_count(counts, 'instruction')}: {_count(len(dag.stages), 'stage')}, "
        f"{_count(len(dag.regions), 'region')}, {_count(len(dag.flow.blocks), 'block')} "
        f"of code, {_count(len(dag.loops), 'loop')}"
    )
    shared = f"{dag.shared_bytes:,} bytes of shared memory"
    lines.append(shared + (", and what the launch adds" if dag.dynamic_shared else ""))
    return "\n".join(lines)


def _threads(one: Function) -> str:
    if not one.threads:
        return "of unknown threads"
    most = "" if one.numbers.get(".reqntid") else "at most "
    return f"{most}{one.threads} threads"


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _works(dag: RegionDag) -> str:
    who = "of a block" if dag.threads else "of one thread: --warps says how many there are"
    rows = [f"work {who}", f"{'':18s}{'global bytes':>20s}{'shared bytes':>20s}"]
    rows.append(_cells("", _COLUMNS))
    rows.append(_row("outside loops", dag.outside))
    working = [one for one in dag.loops if not one.loop.waits]
    rows += [_row(f"loop {one.loop.number}, a trip", one.work) for one in working]
    total = dag.total
    if dag.loops and total is not None:
        rows.append(_row("all trips", total))
    return "\n".join(rows)


def _row(name: str, work: Work) -> str:
    moved, computed = bool(work.unknown_bytes), bool(work.unknown_flops)
    return _cells(
        name,
        (
            _amount(work.global_read_bytes, moved),
            _amount(work.global_write_bytes, False),
            _amount(work.shared_read_bytes, False),
            _amount(work.shared_write_bytes, False),
            _amount(work.flops, computed),
            _amount(work.sfu_ops, False),
        ),
    )


def _cells(name: str, cells: Sequence[str]) -> str:
    return f"{name:18s}" + "".join(f"{cell:>10s}" for cell in cells).rstrip()


def _amount(number: int, more: bool) -> str:
    """A number in nine letters; `+` where more than it is not known."""
    if more and not number:
        return "unknown"
    text = f"{number:,}"
    for divisor, unit in ((1e6, "M"), (1e9, "G"), (1e12, "T")):
        if len(text) > 9 - more:
            text = f"{number / divisor:,.1f} {unit}"
    return text + ("+" if more else "")


def _loops(dag: RegionDag) -> str:
    rows = []
    for one in dag.loops:
        inside = "" if one.loop.parent is None else f", in loop {one.loop.parent}"
        trips = (
            "trips not in the text" if one.loop.trips is None else _count(one.loop.trips, "trip")
        )
        what = "only waits" if one.loop.waits else trips
        rows.append(
            f"loop {one.loop.number}: lines {one.start_line} to {one.end_line}{inside}, {what}"
        )
    return "\n".join(rows)


def _hot(dag: RegionDag) -> str:
    hot = dag.hot[:REGIONS_SHOWN]
    if not hot:
        return ""
    rows = ["regions that move or compute most, those in loops first"]
    rows.append(
        f"{'region':>6s} {'stage':>5s} {'phase':13s}{'lines':>12s}{'global B':>10s}{'shared B':>10s}"
        f"{'FLOP':>10s}  source"
    )
    rows += [_region(one) for one in hot]
    return "\n".join(rows)


def _region(one: Region) -> str:
    work = one.work
    lines = f"{one.start_line}-{one.end_line}"
    source = ""
    for place in one.sources:
        more = f"{source},{place.line}" if source else str(place.line)
        source = more if place.line and len(more) <= 10 else source
    return (
        f"{one.region_id:6d} {one.stage_id:5d} {one.phase:13s}{lines:>12s}"
        f"{_amount(work.global_bytes, bool(work.unknown_bytes)):>10s}"
        f"{_amount(work.shared_bytes, False):>10s}"
        f"{_amount(work.flops, bool(work.unknown_flops)):>10s}  {source}"
    ).rstrip()


def _findings(dag: RegionDag) -> Iterable[str]:
    """What is odd, a sentence each; a kernel without spills says so."""
    lines = [one.line for one in dag.function.statements]
    spilled = sorted({lines[at] for at in dag.spills})
    whole = dag.work
    if spilled:
        yield _wrapped(
            f"The threads' own memory: {whole.local_bytes:,} bytes read and written, "
            f"{_places(spilled)}."
        )
    else:
        yield "No spills in the PTX; those that the assembler makes do not stand here."
    for name, places in (
        ("Copies that nothing waits for", dag.copies.unawaited),
        ("Waits with nothing to wait for", dag.copies.idle),
    ):
        if places:
            yield _wrapped(f"{name}: {_places([lines[at] for at in places])}.")
    if dag.round_trips:
        moved = sum(one.bytes for one in dag.round_trips)
        yield _wrapped(
            f"Results go through shared memory on their way out: {moved:,} bytes, regions "
            + ", ".join(f"{one.store} to {one.load}" for one in dag.round_trips[:6])
            + ("." if len(dag.round_trips) <= 6 else ", ...")
        )
    parted = sum(one.divergent for one in dag.stages)
    if parted:
        yield _wrapped(f"Threads may part in {_count(parted, 'stage')}; {_masked(whole)}.")
    if whole.atomic_ops:
        yield f"Atomic operations: {whole.atomic_ops:,}."
    if whole.expected_bytes:
        yield f"Barriers in memory are told to wait for {whole.expected_bytes:,} bytes."
    if whole.generic:
        yield f"Loads and stores of no named memory, counted as global: {whole.generic}."
    if whole.unknown_bytes or whole.unknown_flops:
        yield _wrapped(
            f"Not told by the text: the bytes of {whole.unknown_bytes} and the FLOP of "
            f"{whole.unknown_flops} instructions (descriptors, tensor maps, functions outside)."
        )
    if dag.unknown:
        yield _wrapped(
            f"Opcodes that are not known: {', '.join(sorted(set(dag.unknown)))} "
            f"({_count(len(dag.unknown), 'instruction')})."
        )
    if dag.flow.irreducible:
        yield f"Jumps into the middle of a loop: {dag.flow.irreducible}; those loops are not shown."


def _masked(work: Work) -> str:
    verb = "instruction" if work.masked == 1 else "instructions"
    return f"{work.masked} {verb} that some may skip count in full"


def _places(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:LINES_SHOWN]))
    more = "" if len(lines) <= LINES_SHOWN else f" and {len(lines) - LINES_SHOWN} more"
    return f"line {shown}" if len(lines) == 1 else f"lines {shown}{more}"


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3] + "..."


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
