"""Primitives of nests in the hands of a model or a person: which there are, which apply to a kernel's nest,
and the kernel after some of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from accelopt.algorithm.ir import Algorithm, own_axes
from accelopt.algorithm.notation import algorithm_text
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.lowering import Lowered
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest, ready
from accelopt.kernels.nki.nests.primitives import Cores, Primitive, changed, neighbours
from accelopt.kernels.nki.nests.search import with_columns
from accelopt.kernels.nki.nests.starts import starting_nests
from accelopt.kernels.nki.rescheduling.any_rows import authored
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from accelopt.replies import json_in, object_in, rows_in

TIMED = 8
"""Single primitives whose time is predicted, the cheapest in closed form first."""
MOST_REASONS = 4
_LIST: TypeAdapter[list[Primitive]] = TypeAdapter(list[Primitive])

LONGEST_REFUSAL = 400  # characters

ANSWER = (
    "Instead of a plan in words you may answer with a JSON list of primitives and nothing else, such as "
    '[{"kind": "columns", "definition": "NAME", "size": 1024}]. They change the nest that they start from, in this order, '
    "and the kernel is written by what comes out, exactly."
)


class AnswerRefused(Exception):
    """An answer that makes no kernel; the text says in one sentence why."""


class OwnNest(NamedTuple):
    """The nest that primitives start from; `written` where the kernel says that it wrote it."""

    nest: Nest
    written: bool


class NestKernel(NamedTuple):
    """A nest, its kernel, in its author's words where somebody asked for it, and the primitive that led to it."""

    nest: Nest
    source: str
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
        number, *where = first["loc"] or ("",)
        said = ": ".join([", ".join(map(str, where)), first["msg"]]) if where else first["msg"]
        raise NotNested(f"primitive {int(number) + 1}, {said}" if first["loc"] else said) from None


def nest_of(known: object, lifted: Lifted, target: str, found: Nest | None = None) -> OwnNest:
    """The nest that a kernel is `known` to be written by, as JSON gives it; where that is no nest, the one
    that a search `found`, or the cheapest one to begin with. Raises NotNested where there is
    none."""
    try:
        return OwnNest(Nest.model_validate(known), True)
    except ValidationError:
        if found is not None:
            return OwnNest(found, False)
    lowered = partial(lowered_or_none, lifted, target)
    cheapest = cheapest_nests(lifted.algorithm, target, lowered)
    if not cheapest:
        raise NotNested("no nest of what this kernel computes has a kernel")
    return OwnNest(cheapest[0][0], False)


def lowered_or_none(lifted: Lifted, target: str, nest: Nest) -> Lowered | None:
    """The kernel of a nest; None where it has none."""
    try:
        return lifted.lowered(nest, target)
    except NotNested:
        return None


def cheapest_nests(
    algorithm: Algorithm,
    target: str,
    lowered: Callable[[Nest], Lowered | None],
    most: int | None = None,
) -> list[tuple[Nest, Lowered]]:
    """Nests to begin with, each kernel once, the cheapest in closed form first. With `most`, the default
    one and the first so many others alone."""
    try:
        starts = [*islice(starting_nests(algorithm, target), most), default_nest(algorithm, target)]
    except NotNested:
        return []
    wide = [with_columns(nest, columns) for nest in starts for columns in (2048, 8192)]
    found: dict[str, tuple[Nest, Lowered]] = {}
    for nest in (*starts, *wide):
        if (kernel := lowered(nest)) is not None:
            found.setdefault(kernel.source, (nest, kernel))
    return sorted(found.values(), key=lambda pair: pair[1].price.ms)


def after_all(
    lifted: Lifted, nest: Nest, asked: Sequence[Primitive], target: str
) -> tuple[Nest, Lowered]:
    """The nest after some primitives, and its kernel. Raises NotNested with the number of the one that
    is refused, and why."""
    lowered = lifted.lowered(nest, target)
    for number, primitive in enumerate(asked, 1):
        try:
            nest = changed(primitive, lifted.algorithm, nest, target)
            lowered = lifted.lowered(nest, target)
        except NotNested as refusal:
            said = " ".join(str(refusal).split())[:LONGEST_REFUSAL]
            raise NotNested(f"primitive {number}, {primitive.kind}: {said}") from None
    return nest, lowered


def after(lifted: Lifted, nest: Nest, asked: Sequence[Primitive], target: str) -> NestKernel:
    """The kernel by a nest after some primitives. Raises NotNested."""
    nest, lowered = after_all(lifted, nest, asked, target)
    return NestKernel(nest, authored(lifted, nest, lowered.source, target))


def near(lifted: Lifted, nest: Nest, target: str) -> NearNests:
    """What single primitives make of a nest; a launch on two cores is one, where there is such a launch."""
    refused = Counter[str]()
    lowered = partial(lifted.lowered, target=target)
    asked = [*neighbours(lifted.algorithm, nest, target), *_halvings(lifted, nest, target)]
    found = [*single_primitives(lifted.algorithm, nest, target, lowered, refused, asked)]
    found.sort(key=lambda one: one[2].price.ms)
    # They are timed, and not written: what is asked for then is put into its author's words.
    kernels = [NestKernel(made, low.source, primitive) for primitive, made, low in found[:TIMED]]
    return NearNests(tuple(kernels), len(found), refused)


def single_primitives(
    algorithm: Algorithm,
    nest: Nest,
    target: str,
    lowered: Callable[[Nest], Lowered | None],
    refused: Counter[str],
    asked: Sequence[Primitive] | None = None,
) -> Iterator[tuple[Primitive, Nest, Lowered]]:
    """The primitives, of those `asked` or of all neighbours, that make another kernel of a nest, each kernel
    once, with the nests and kernels; why others are `refused` is counted there."""
    own = lowered(nest)
    seen = {own.source} if own else set()
    for primitive in neighbours(algorithm, nest, target) if asked is None else asked:
        try:
            made = changed(primitive, algorithm, nest, target)
            kernel = lowered(made)
        except NotNested as refusal:
            refused[str(refusal)] += 1
            continue
        if kernel is not None and kernel.source not in seen:
            seen.add(kernel.source)
            yield primitive, made, kernel


def _halvings(lifted: Lifted, nest: Nest, target: str) -> list[Primitive]:
    """Halves of each axis of the result on two cores."""
    if nest.cores or lifted.dialect != "nki" or TARGETS[target].generation < 3:
        return []
    name = nest.stages[-1].members[-1]
    axes = ready(lifted.algorithm, nest).definition(name).axes
    return [Cores(definition=name, axis=axis.name) for axis in axes if axis.extent % 2 == 0]


def listing(
    lifted: Lifted,
    own: OwnNest,
    asked: Sequence[Primitive],
    after: NestKernel,
    near: NearNests,
    times: Sequence[float | str],
) -> str:
    """All of it in words; `times` are those of the kernel `after` and of those near it."""
    rows = [computed(lifted), *_own(lifted, own)]
    if asked:
        rows += [f"After {len(asked)} primitives:", *_stages(lifted, after.nest)]
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
    meanings = ["Without primitives, `schedules` says what each does."]
    return "\n".join([*rows, *(meanings if asked else ["All primitives:", *table()])])


def brief(lifted: Lifted, own: OwnNest, faster: Sequence[tuple[Nest, float]]) -> Mapping[str, str]:
    """`schedules`: what the kernel computes, the nest that primitives start from, and nests that a search
    found `faster` than the kernel, with their predicted milliseconds; `primitives`: what a planner should
    know to answer with them."""
    rows = [computed(lifted), *_own(lifted, own)]
    if faster:
        rows.append("Nests that a search found faster, with predicted times:")
    for nest, ms in faster:
        same = "the nest above" if nest == own.nest else nest.model_dump_json(exclude_defaults=True)
        rows.append(f"- {ms:.4g} ms: {same}")
    known = "\n".join(["Primitives change a nest:", *table(), ANSWER])
    return {"schedules": "\n".join(rows), "primitives": known}


def computed(lifted: Lifted) -> str:
    """What a kernel computes, as formulas."""
    lines = algorithm_text(lifted.algorithm).splitlines()
    return "\n".join(["What the kernel computes:", *(f"    {line}" for line in lines)])


def means_nest(reply: str) -> bool:
    """Whether a reply means to be a nest or primitives of one, right or wrong: it holds JSON with `stages`
    or with a `kind`."""
    rows = rows_in(json_in(reply), "primitives")
    return any("kind" in row for row in rows) or object_in(reply, "stages") is not None


def answered(reply: str, lifted: Lifted, own: OwnNest, target: str) -> tuple[Nest, Lowered]:
    """The nest that a model's `reply` says, as primitives of the kernel's `own` or whole, and its kernel.
    Raises AnswerRefused, with one sentence that can be sent back."""
    try:
        if whole := object_in(reply, "stages"):
            nest = Nest.model_validate(whole)
            return nest, lifted.lowered(nest, target)
        asked = read_primitives(json.dumps(rows_in(json_in(reply), "primitives")))
        return after_all(lifted, own.nest, asked, target)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise AnswerRefused(f"The field {where} of the nest is wrong: {first['msg']}.") from None
    except NotNested as refusal:
        raise AnswerRefused(f"There is no such kernel: {refusal}.") from None


def table() -> list[str]:
    """Each primitive with its fields, as its type says."""
    kinds = get_args(get_args(Primitive)[0])
    return [f"  {' '.join((kind.__doc__ or '').split())}" for kind in kinds]


def _own(lifted: Lifted, own: OwnNest) -> list[str]:
    """The nest that primitives start from, and how it comes about."""
    plain = "This kernel was written by no nest. Primitives start from:"
    said = "The nest that wrote this kernel:" if own.written else plain
    return [said, *_stages(lifted, own.nest)]


def _stages(lifted: Lifted, nest: Nest) -> list[str]:
    """A nest, and the axes that it may name: arrays are cut and flattened before anything else."""
    shown = nest.model_dump(mode="json", exclude_defaults=True)
    own = {a.name: a.extent for d in ready(lifted.algorithm, nest).definitions for a in own_axes(d)}
    return [
        f"  its axes: {', '.join(f'{name} {extent}' for name, extent in own.items())}",
        *(f"  {json.dumps(stage)}" for stage in nest.model_dump(mode="json")["stages"]),
        *(f"  {name}: {json.dumps(value)}" for name, value in shown.items() if name != "stages"),
    ]


def _json(primitive: Primitive | None) -> str:
    return "" if primitive is None else primitive.model_dump_json()


def _timed(time: float | str) -> str:
    return f"{time:.4g} ms predicted" if isinstance(time, float) else f"refused: {time}"
