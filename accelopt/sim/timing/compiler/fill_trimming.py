"""Fills write only what is not written again before anybody reads it.

A tile of zeros into whose middle an image is loaded needs its margins filled and no more; one that is
computed whole needs nothing. conv1d s06 (trn1_variants.csv) takes its Vector
instructions' time to 1%, with no room for 64 fills of 2,048 elements, nor for loads that wait for them;
the compiler's log names a pass InferInitValue (aws-neuron-sdk, issue 803).
"""

from __future__ import annotations

from accelopt.sim.timing.compiler.common_subexpressions import drop
from accelopt.sim.timing.compiler.renaming import whole_writes
from accelopt.sim.timing.stream.forms import by_form
from accelopt.sim.timing.stream.operation import Decisions
from accelopt.sim.timing.stream.stream import Stream


def trim_fills(stream: Stream, decisions: Decisions) -> None:
    """Takes out of each fill, in place, the pieces that are written again unread."""
    is_fill = by_form(stream.instances, lambda form: form.opcode.fills)
    if not any(is_fill):
        return
    replaces = whole_writes(stream)
    wanted = bytearray(b"\1") * len(stream.cell_unit)
    removed: set[int] = set()
    trimmed: list[int] = []
    narrow: dict[tuple[int, int], int] = {}
    for at in range(len(stream) - 1, -1, -1):
        kind, writes = stream.kind[at], stream.writes[at]
        if is_fill[kind] and replaces[at]:
            kept = [cell for cell in writes if wanted[cell]]
            if len(kept) < len(writes):
                trimmed.append(kind)
                _trim(stream, at, kept, narrow)
            if not kept:
                removed.add(at)
        if replaces[at]:
            for cell in writes:
                wanted[cell] = 0
        for cell in stream.reads[at]:
            wanted[cell] = 1
    stream.tell(decisions, "what is written again is not filled", trimmed)
    drop(stream, removed, {})


def _trim(stream: Stream, at: int, kept: list[int], narrow: dict[tuple[int, int], int]) -> None:
    """Makes a fill write some of its cells only."""
    kind, weight = stream.kind[at], stream.cell_weight
    whole = sum(weight[cell] for cell in stream.writes[at])
    operation = stream.instances[kind].operation
    elements = operation.writes[0].free_elements * sum(weight[cell] for cell in kept) // whole
    number = narrow.get((kind, elements))
    if number is None:
        shorter = operation.resized(max(elements, 1))
        number = narrow[kind, elements] = len(stream.instances)
        stream.instances.append(stream.instances[kind]._replace(operation=shorter, form=shorter))
    stream.kind[at], stream.writes[at] = number, kept
