"""Primitives of nests in the hands of somebody who writes kernels: which there are, which apply to a
kernel's nest, and the kernel after some of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from accelopt.kernels.nki.lift.any_rows import authored
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.lifted import Lifted
from accelopt.kernels.nki.lift.lowering import Lowered
from accelopt.kernels.nki.lift.schedule import ResourceShort
from accelopt.kernels.nki.lift.schedule_prompts import computed
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest
from accelopt.kernels.nki.nests.primitives import Primitive, changed, neighbours
from accelopt.kernels.nki.nests.starts import starting_nests

TIMED = 8
"""Single primitives whose time is predicted, the cheapest in closed form first."""
MOST_REASONS = 4
_LIST: TypeAdapter[list[Primitive]] = TypeAdapter(list[Primitive])
REFUSALS = (NotNested, NotLowered, ResourceShort)
FAULTS = (LookupError, ArithmeticError, AssertionError, ValueError, RecursionError)
"""By which lowering may fail on a nest that nobody checked; it says nothing of the kernel."""


class OwnNest(NamedTuple):
    """The nest that primitives start from; `written` where the kernel says that it wrote it."""

    nest: Nest
    written: bool


class NestKernel(NamedTuple):
    """A nest, the primitive that led to it, and its kernel with the closed form's milliseconds."""

    nest: Nest
    source: str
    priced_ms: float
    primitive: Primitive | None = None


class NearNests(NamedTuple):
    """Kernels that single primitives make, the cheapest first; how many there are in all, and why
    others are refused."""

    made: tuple[NestKernel, ...]
    number: int
    refused: Counter[str]


def read_primitives(text: str) -> list[Primitive]:
    """The primitives in a JSON list; none for an empty text. Raises NotNested with what is wrong."""
    try:
        return _LIST.validate_json(text or "[]")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise NotNested(f"primitive {where}: {first['msg']}" if where else first["msg"]) from None


def nest_of(known: object, lifted: Lifted, target: str) -> OwnNest:
    """The nest that a kernel is `known` to be written by, as JSON gives it; where that is no nest, the
    cheapest one to begin with."""
    try:
        return OwnNest(Nest.model_validate(known), True)
    except ValidationError:
        starts = [*starting_nests(lifted.algorithm, target), default_nest(lifted.algorithm, target)]
    priced: list[tuple[float, int, Nest]] = []
    for nest in starts:
        try:
            priced.append((lifted.lowered(nest, target).price.ms, len(priced), nest))
        except (*REFUSALS, *FAULTS):
            continue
    if not priced:
        raise NotNested("no nest of what this kernel computes has a kernel")
    return OwnNest(min(priced)[2], False)


def after(lifted: Lifted, nest: Nest, asked: Sequence[Primitive], target: str) -> NestKernel:
    """The nest after some primitives, and its kernel. Raises NotNested with the number of the one that
    is refused, and why."""
    for number, primitive in enumerate(asked, 1):
        try:
            nest = changed(primitive, lifted.algorithm, nest, target)
            lowered = lifted.lowered(nest, target)
        except REFUSALS as refusal:
            raise NotNested(f"primitive {number}, {primitive.kind}: {refusal}") from None
    lowered = lifted.lowered(nest, target)
    return _kernel(lifted, nest, lowered, target)


def near(lifted: Lifted, nest: Nest, target: str) -> NearNests:
    """What single primitives make of a nest."""
    refused = Counter[str]()
    seen, made = {lifted.lowered(nest, target).body}, list[tuple[Lowered, Nest, Primitive]]()
    for primitive in neighbours(lifted.algorithm, nest, target):
        try:
            next_ = changed(primitive, lifted.algorithm, nest, target)
            lowered = lifted.lowered(next_, target)
        except REFUSALS as refusal:
            refused[str(refusal)] += 1
            continue
        except FAULTS as error:
            refused[f"lowering itself failed with {type(error).__name__}"] += 1
            continue
        if lowered.body not in seen:
            seen.add(lowered.body)
            made.append((lowered, next_, primitive))
    made.sort(key=lambda one: one[0].price.ms)
    kernels = (
        _kernel(lifted, nest, low, target, primitive) for low, nest, primitive in made[:TIMED]
    )
    return NearNests(tuple(kernels), len(made), refused)


def _kernel(
    lifted: Lifted, nest: Nest, lowered: Lowered, target: str, primitive: Primitive | None = None
) -> NestKernel:
    source = authored(lifted, nest, lowered.source, target)
    return NestKernel(nest, source, lowered.price.ms, primitive)


def listing(
    lifted: Lifted,
    own: OwnNest,
    asked: Sequence[Primitive],
    after: NestKernel,
    near: NearNests,
    times: Sequence[float | str],
) -> str:
    """All of it in words; `times` are those of the kernel `after` and of those near it."""
    first = (
        "The nest that wrote this kernel"
        if own.written
        else ("This kernel was written by no nest. The nest that primitives start from")
    )
    rows = [computed(lifted), f"{first}:", *_stages(own.nest)]
    if asked:
        rows += [f"After {len(asked)} primitives:", *_stages(after.nest)]
    rows.append(f"The kernel by it: {_timed(times[0])}.")
    near_by = sorted(
        zip(near.made, times[1:], strict=True),
        key=lambda pair: pair[1] if isinstance(pair[1], float) else math.inf,
    )
    rows.append(
        f"{near.number} single primitives apply next; the {len(near.made)} that are cheapest in closed "
        "form, timed:"
    )
    rows += [f"  {_timed(time)}: {_json(one.primitive)}" for one, time in near_by]
    if near.refused:
        rows.append(f"{near.refused.total()} others are refused, among them for:")
        rows += [f"  {reason} ({n})" for reason, n in near.refused.most_common(MOST_REASONS)]
    return "\n".join([*rows, "All primitives:", *table()])


def table() -> list[str]:
    """Each primitive with its fields, as its type says."""
    kinds = get_args(get_args(Primitive)[0])
    return [f"  {' '.join((kind.__doc__ or '').split())}" for kind in kinds]


def _stages(nest: Nest) -> list[str]:
    return [f"  {json.dumps(stage)}" for stage in nest.model_dump(mode="json")["stages"]] + [
        f"  {name}: {json.dumps(value)}"
        for name, value in nest.model_dump(mode="json", exclude_defaults=True).items()
        if name != "stages"
    ]


def _json(primitive: Primitive | None) -> str:
    return "" if primitive is None else primitive.model_dump_json()


def _timed(time: float | str) -> str:
    return f"{time:.4g} ms predicted" if isinstance(time, float) else f"refused: {time}"
