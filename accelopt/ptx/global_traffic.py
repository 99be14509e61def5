"""Global memory traffic of a block, by array: bytes asked for, and bytes asked for again."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from accelopt.ptx.control_flow import Flow, NaturalLoop
from accelopt.ptx.regions import RegionDag
from accelopt.ptx.register_dataflow import Registers, registers
from accelopt.ptx.work_counts import work


class GlobalTraffic(NamedTuple):
    """Bytes of one block with all trips of its loops: `asked` in all; `again` those of arrays that
    another loop has asked for as well; `held`, what it must find again."""

    asked: int
    again: int
    held: int


def global_traffic(dag: RegionDag) -> GlobalTraffic | None:
    """The global traffic of a block; None where the trips of a loop, or the bytes of a copy, are not
    known. A tensor copy counts by what its mbarrier is told to wait for."""
    total = dag.total
    if total is None or (total.unknown_bytes and not total.expected_bytes):
        return None
    known, flow = registers(dag.function), dag.flow
    read: dict[str, Counter[int]] = {}
    for block in flow.blocks:
        loop = flow.loop_of(block.number)
        times, outermost = flow.runs(block.number) or 0, _outermost(flow, loop)
        for at in range(block.start, block.stop):
            amount = work(dag.function.statements[at], dag.function).global_read_bytes * times
            if amount and loop is not None:
                read.setdefault(_array(known, at), Counter())[outermost] += amount
    read.pop("", None)
    asked = total.global_bytes + (total.expected_bytes if total.unknown_bytes else 0)
    most = {array: max(parts.values()) for array, parts in read.items()}
    again = {array: sum(parts.values()) - most[array] for array, parts in read.items()}
    return GlobalTraffic(
        asked, sum(again.values()), sum(most[array] for array, bytes_ in again.items() if bytes_)
    )


def _outermost(flow: Flow, loop: NaturalLoop | None) -> int:
    """The number of the outermost loop around what stands in `loop`."""
    while loop is not None and loop.parent is not None:
        loop = flow.loops[loop.parent]
    return 0 if loop is None else loop.number


def _array(known: Registers, at: int) -> str:
    """The parameter that a load's pointer comes from; empty where it is none, or one of several."""
    function = known.function
    found = {
        function.statements[origin].operands[1].strip("[]")
        for name in known.effects[at].address
        for origin in known.origins(name)
        if function.statements[origin].opcode == "ld"
        and "param" in function.statements[origin].modifiers
    }
    pointers = [name for name in found if name not in function.launch]
    return pointers[0] if len(pointers) == 1 else ""
