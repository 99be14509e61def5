"""A schedule in words: what it does with which array, and what that saves."""

from __future__ import annotations

from accelopt.kernels.nki.lift.emission.flattening import flat_elements
from accelopt.kernels.nki.lift.emission.graph import Graph, GraphValue
from accelopt.kernels.nki.lift.emission.phases import Phases, roles_of
from accelopt.kernels.nki.lift.emission.storage import Tiling, tilings
from accelopt.kernels.nki.lift.schedule import Schedule

KIBIBYTE = 1024
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def describe(graph: Graph, schedule: Schedule) -> str:
    """One sentence for a plan, a diff or a report, without its full stop."""
    if schedule.flat and flat_elements(graph):
        words = [
            f"all arrays as contiguous rows of {schedule.flat}, 128 of them a tile",
            f"{min(schedule.columns, schedule.flat)} columns at a time",
        ]
    else:
        words = _words(graph, schedule)
    return f"Rewrite: {', '.join(words)}"


def saving(before: float, after: float) -> str:
    """How many bytes fewer are moved, as the end of a sentence; empty where it is no more than 1%."""
    saved = before - after
    return f": {_amount(saved)} fewer bytes" if saved > after / 100 else ""


def _words(graph: Graph, schedule: Schedule) -> list[str]:
    roles = roles_of(graph, schedule.rows)
    plan = Phases(roles, schedule)
    tiling = tilings(roles.rows.extent, schedule.row_tiles)[0]
    words = []
    for number, product in enumerate(plan.products):
        mode = schedule.weights[number] if number < len(schedule.weights) else "resident"
        for term in roles.terms(product):
            words.append(_weights(term.weights, mode, tiling))
        if plan.turned(product):
            words.append("sums with rows along the free axis, turned afterwards")
    for operand in plan.operands:
        if operand.kind != "input" and plan.mode(operand) == "direct":
            words.append("the operand of the next product computed the way round it is needed")
        if plan.mode(operand) == "squares":
            words.append("operands transposed by the Vector engine, in squares of 32")
    if any(plan.over_partitions(value) for value in plan.reductions):
        words.append(
            "maxima taken across partitions, of sums that are kept for what reads them next"
        )
    if schedule.ahead:
        words.append("operands made ready one block ahead")
    if schedule.beside > 1:
        words.append(f"{schedule.beside} consecutive rows of {roles.rows.name} on each partition")
    else:
        words.append(f"blocks of {tiling.block} rows of {roles.rows.name}")
    words.append(f"{schedule.columns} columns at a time")
    return list(dict.fromkeys(words))


def _weights(weights: GraphValue, mode: str, tiling: Tiling) -> str:
    name = weights.array
    if mode == "resident":
        features = sorted(weights.axes, key=lambda axis: axis.extent)[-2:]
        size = 4.0
        for axis in features:
            size *= axis.extent
        return f"{name} stays in SBUF for all rows, {size / 128 / KIBIBYTE:.3g} KiB a partition"
    if mode == "columns":
        return f"{name} is read once for each block, some columns at a time"
    return f"{name} is read once for each block, for {tiling.tiles} sums in PSUM at a time"


def _amount(number: float) -> str:
    for size, unit in UNITS:
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"
