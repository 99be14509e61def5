"""Schedules in a model's hands: what it is told of a kernel's algorithm and of the schedules that
are there, and its answer read back as a schedule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from accelopt.algorithm.index import Axis
from accelopt.algorithm.notation import algorithm_text
from accelopt.kernel_source import fenced_blocks
from accelopt.kernels.nki.counters import busy_shares
from accelopt.kernels.nki.lift.any_rows import authored
from accelopt.kernels.nki.lift.emission.flattening import ROWS, flat_elements, flat_offsets
from accelopt.kernels.nki.lift.emission.graph import Graph, GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.nest import Price
from accelopt.kernels.nki.lift.emission.phases import Phases, roles_of, row_axes
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.emission.row_packing import beside_counts
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.schedule import (
    Operand,
    ReductionForm,
    ResourceShort,
    ResultForm,
    Schedule,
    Streaming,
)
from accelopt.kernels.nki.lift.schedule_of_kernel import own_schedule
from accelopt.kernels.nki.lift.schedule_text import describe
from accelopt.kernels.nki.lift.scheduled_kernels import ScheduledKernel
from accelopt.kernels.nki.nests.nest import Nest, NotNested
from accelopt.kernels.nki.nests.search import described

NO_SCHEDULES = "this kernel has no form by schedule: {}"
ASK = (
    "Instead of a plan in words you may answer with a schedule: one JSON object with the fields "
    "above and nothing else. The kernel is then written by it, exactly."
)


class AnswerRefused(Exception):
    """An answer that is no schedule of the kernel; the text says in one sentence why."""


def brief(
    lifted: Lifted,
    written: Schedule | None,
    offers: Sequence[ScheduledKernel] = (),
    metrics: Mapping[str, float] | None = None,
    target: str = "trn1",
) -> str:
    """What a planner should know to answer with a schedule: the algorithm, what bounds the kernel
    now (`metrics` are its counters with its `latency`), the schedule that it was `written` by, the fields of a schedule with
    their legal values, and the fastest schedules that a search found. Empty for an algorithm that
    has no kernel by schedule."""
    try:
        graph = graph_of(lifted.algorithm)
        fields = [*_fields(graph)]
    except NotLowered:
        return ""
    parts = [computed(lifted)]
    parts += _present(written, metrics or {})
    if written is None:
        parts += _own(metrics or {}, graph, lifted, target)
    parts += ["A schedule says how. Its fields:", *fields]
    if offers:
        parts.append("The fastest schedules that a search found, with predicted times:")
    for offer in offers:
        price = lifted.lowered(offer.schedule, target).price
        parts.append(f"- {offer.predicted_ms:.4g} ms ({_bounds(price)}): {_json(offer.schedule)}")
    return "\n".join([*parts, ASK])


def computed(lifted: Lifted) -> str:
    """What a kernel computes, as formulas."""
    lines = algorithm_text(lifted.algorithm).splitlines()
    return "\n".join(["What the kernel computes:", *(f"    {line}" for line in lines)])


def _json(schedule: Schedule | Nest) -> str:
    return schedule.model_dump_json(exclude_defaults=True)


def _present(written: Schedule | None, metrics: Mapping[str, float]) -> Iterator[str]:
    """How the kernel is now: its time, what is busy, and the schedule that it was written by."""
    if now := metrics.get("latency"):
        shares = sorted(busy_shares(metrics).items(), key=lambda item: -item[1])
        busy = ", ".join(f"{name} {share * now:.4g} ms" for name, share in shares)
        moved = sum(metrics.get(name, 0.0) for name in ("hbm_read_bytes", "hbm_write_bytes"))
        bytes_moved = f"; {moved / 1e6:.4g} MB from and to HBM" if moved else ""
        yield f"The kernel takes {now:.4g} ms now. At work for: {busy}{bytes_moved}."
    if written is not None:
        yield f"It was written by the schedule {_json(written)}"


def _own(metrics: Mapping[str, float], graph: Graph, lifted: Lifted, target: str) -> Iterator[str]:
    """The schedule that a kernel has which was not written by one, as far as its counters tell."""
    told = {"latency", "hbm_read_bytes", "hbm_write_bytes"} <= {*metrics}
    if told:
        own = own_schedule(metrics, graph, lifted.interface, target)
        yield f"Of all schedules this is most like it: {_json(own)}"


def _bounds(price: Price) -> str:
    """What a kernel by schedule keeps busy, by its closed form."""
    engines = sorted(price.engines.items(), key=lambda item: -item[1])
    busy = ", ".join(f"{name} {ms:.4g} ms" for name, ms in engines if ms)
    return f"{busy}; {price.moved / 1e6:.4g} MB from and to HBM"


def _fields(graph: Graph) -> Iterator[str]:
    if flat_elements(graph):
        lengths = flat_offsets(graph)
        yield f'- "rows": always "{ROWS}": arrays are cut into rows, 128 of them a tile'
        yield f'- "flat": elements of such a row, a divisor of {lengths}'
        yield '- "columns": elements of a row that one instruction takes'
        return
    plans = []
    for axis in row_axes(graph):
        try:
            plans.append((axis, Phases(roles_of(graph, axis.name), Schedule(rows=axis.name))))
        except NotLowered:
            continue
    if not plans:
        raise NotLowered("no axis can be rows")
    named = " or ".join(f'"{axis.name}" ({axis.extent})' for axis, _ in plans)
    yield f'- "rows": the axis whose elements lie on partitions: {named}'
    yield '- "row_tiles": tiles of up to 128 rows that a block of rows has (1, 2, 4, 8)'
    yield from _beside(graph, plans)
    yield '- "columns": elements of the other axis that one instruction takes (512 to 8192)'
    texts = {axis.name: _products(plan) for axis, plan in plans if plan.products}
    if len({*texts.values()}) == 1:
        yield from next(iter(texts.values()))
        return
    for rows, lines in texts.items():
        yield from (f'{line} (with rows "{rows}")' for line in lines)


def _beside(graph: Graph, plans: Sequence[tuple[Axis, Phases]]) -> Iterator[str]:
    """How many rows may lie beside each other, if any may."""
    counts = {n for axis, _ in plans for n in beside_counts(graph, axis)}
    if counts:
        yield (
            '- "beside": consecutive rows that lie beside each other on a partition '
            f"(1, {', '.join(map(str, sorted(counts)))})"
        )


def _products(plan: Phases) -> tuple[str, ...]:
    products = [
        " + ".join(
            f"({arrays_in(t.rows)}) by ({arrays_in(t.weights)})" for t in plan.roles.terms(p)
        )
        for p in plan.products
    ]
    operands = [arrays_in(value) for value in plan.operands]
    return (
        f'- "weights": one of {_values(Streaming)} for each matrix product, {_order(products)}: '
        "its operand without rows lies in SBUF for all rows, or is read for each block of rows, "
        "some columns at a time, or tile by tile into one sum in PSUM for each tile of rows",
        f'- "operands": one of {_values(Operand)} for each operand with rows, {_order(operands)}: '
        "computed with rows on partitions and transposed by the Tensor engine, or in squares of 32 by "
        "the Vector engine, or computed the other way round at once",
        f'- "results": one of {_values(ResultForm)} for each matrix product: summed with rows on '
        "partitions, or along the free axis and turned afterwards",
        *_reductions(plan),
        '- "ahead": true to make operands of the next block of rows ready while the present one is '
        "worked on",
    )


def _reductions(plan: Phases) -> Iterator[str]:
    """How maxima may be taken, if there are any."""
    if plan.reductions:
        reduced = [f"{v.function} of {arrays_in(v.arguments[0])}" for v in plan.reductions]
        yield (
            f'- "reductions": one of {_values(ReductionForm)} for each maximum, {_order(reduced)}: taken '
            "along the free axis, for which products that are read the other way round are computed "
            "once more, or of those across partitions"
        )


def _values(literal: Any) -> str:
    return "/".join(f'"{value}"' for value in get_args(literal))


def _order(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"here of {names[0]} alone"
    return "in this order: " + "; ".join(f"{n}. {name}" for n, name in enumerate(names, 1))


def arrays_in(value: GraphValue) -> str:
    """The inputs that a value is made of, in words."""
    found: dict[str, None] = {}

    def visit(part: GraphValue) -> None:
        if part.kind == "input":
            found[part.array] = None
        for argument in part.arguments:
            visit(argument)

    visit(value)
    made = "" if value.kind == "input" else "what is made of "
    return made + ", ".join(found)


def answered(reply: str, lifted: Lifted, target: str = "trn1") -> ScheduledKernel:
    """The schedule that a model's `reply` holds, with its kernel; nothing is predicted for it yet
    (`predicted_ms` is the closed form's lower bound).

    Raises AnswerRefused, with one sentence that can be sent back, for a reply without a schedule,
    for one that the kernel's algorithm does not have, and for one that the hardware cannot hold.
    """
    schedule = _read(reply)
    if isinstance(schedule, Nest):
        return _nested(schedule, lifted, target)
    try:
        graph = graph_of(lifted.algorithm)
    except NotLowered as refusal:
        raise AnswerRefused(NO_SCHEDULES.format(refusal)) from None
    _fitting(schedule, graph)
    try:
        kernel = lifted.lowered(schedule, target)
    except NotLowered as refusal:
        raise AnswerRefused(f"This schedule has no kernel: {refusal}.") from None
    except ResourceShort as refusal:
        raise AnswerRefused(f"This schedule does not fit: {refusal}.") from None
    price = kernel.price
    source = authored(lifted, schedule, kernel.source, target)
    return ScheduledKernel(schedule, describe(graph, schedule), source, price.ms, price.moved)


def _nested(nest: Nest, lifted: Lifted, target: str) -> ScheduledKernel:
    """The kernel by a nest. Raises AnswerRefused where it has none."""
    try:
        kernel = lifted.lowered(nest, target)
    except (NotLowered, NotNested) as refusal:
        raise AnswerRefused(f"This nest has no kernel: {refusal}.") from None
    source, price = authored(lifted, nest, kernel.source, target), kernel.price
    return ScheduledKernel(nest, described(nest), source, price.ms, price.moved)


def has_schedule(reply: str) -> bool:
    """True for a reply that means to be a schedule, right or wrong: it has a JSON object with
    `rows` or `stages`, and no code."""
    found = _object(reply)
    return isinstance(found, dict) and ("rows" in found or "stages" in found)


def _object(reply: str) -> object:
    """The last JSON object in a reply, in a block of its own or bare; None where there is none."""
    blocks = [block.text for block in fenced_blocks(reply) if block.tag in ("", "json")]
    for text in (*reversed(blocks), reply[reply.find("{") : reply.rfind("}") + 1]):
        try:
            return json.loads(text)
        except ValueError:
            continue
    return None


def _read(reply: str) -> Schedule | Nest:
    found = _object(reply)
    if not isinstance(found, dict):
        raise AnswerRefused("The answer holds no JSON object with the fields of a schedule.")
    kind = Nest if "stages" in found else Schedule
    try:
        return kind.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            fields = ", ".join(kind.model_fields)
            raise AnswerRefused(f"A schedule has no field {where}; it has {fields}.") from None
        raise AnswerRefused(
            f"The field {where} of the schedule is wrong: {first['msg']}."
        ) from None


def _fitting(schedule: Schedule, graph: Graph) -> None:
    """Raises AnswerRefused where a schedule speaks of axes, products or operands that the algorithm
    does not have, or has numbers that mean nothing."""
    for name in ("row_tiles", "columns", "beside"):
        if getattr(schedule, name) < 1:
            raise AnswerRefused(f"The field {name} must be at least 1.")
    if flat_elements(graph):
        length = flat_offsets(graph)
        if schedule.rows != ROWS or schedule.flat < 1 or length % schedule.flat:
            raise AnswerRefused(
                f'This kernel has the rows "{ROWS}" and a field flat that divides {length}.'
            )
        return
    if schedule.flat:
        raise AnswerRefused("The field flat is for kernels of elementwise work alone.")
    axes = row_axes(graph)
    if schedule.rows not in {axis.name for axis in axes}:
        possible = ", ".join(axis.name for axis in axes) or "none"
        raise AnswerRefused(f"{schedule.rows} cannot be the rows; these can: {possible}.")
    try:
        plan = Phases(roles_of(graph, schedule.rows), Schedule(rows=schedule.rows))
    except NotLowered as refusal:
        raise AnswerRefused(f"{schedule.rows} cannot be the rows: {refusal}.") from None
    for name, number, of in (
        ("weights", len(plan.products), "matrix products"),
        ("operands", len(plan.operands), "operands with rows"),
        ("results", len(plan.products), "matrix products"),
        ("reductions", len(plan.reductions), "maxima"),
    ):
        given = len(getattr(schedule, name))
        if given > number:
            raise AnswerRefused(f"The field {name} has {given} values for {number} {of}.")
