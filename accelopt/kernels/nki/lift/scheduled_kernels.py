"""What schedules offer for a kernel: the kernel is lifted, schedules are searched, the fastest are
written as kernels with the same signature, each with a sentence that says what it does differently."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.caches import VerdictCache, package_key
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.lift.any_rows import for_any_rows
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifted import Lifted, lifted_kernel
from accelopt.kernels.nki.lift.piecewise import rewritten_in_pieces
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule
from accelopt.kernels.nki.lift.schedule_text import describe, saving
from accelopt.kernels.nki.lift.search import (
    AbstractArgument,
    Found,
    Times,
    commonest,
    own_processes,
    search,
)
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest
from accelopt.kernels.nki.nests.search import described, search_nests
from accelopt.kernels.nki.parameters import ParameterFacts as Given
from accelopt.nodes import Action, Change, Reschedule, made
from accelopt.store import content_key

MOST_OFFERED = 3


class ScheduledKernel(NamedTuple):
    """A kernel by schedule, not verified yet; `predicted_ms` is simulated, `moved_bytes` what it
    moves from and to HBM by the closed form."""

    schedule: Schedule | Nest
    sentence: str
    source: str
    predicted_ms: float
    moved_bytes: int

    def as_json(self) -> list[object]:
        """As plain data, which `from_json` reads."""
        return [self.schedule.model_dump(mode="json"), *self[1:]]

    @classmethod
    def from_json(cls, data: Any) -> ScheduledKernel:
        """What `as_json` gave. Raises ValueError for anything else."""
        schedule, sentence, source, predicted, moved = data
        kind = Nest if "stages" in schedule else Schedule
        return cls(kind.model_validate(schedule), sentence, source, predicted, moved)


class ScheduledKernels(NamedTuple):
    """The fastest first; where there are none, or not of all of the kernel, `refusal` says why. `counts` is what the search
    priced in closed form, timed, and refused."""

    offers: tuple[ScheduledKernel, ...] = ()
    refusal: str = ""
    counts: Mapping[str, int] = {}

    def as_json(self) -> dict[str, object]:
        """As plain data, which `from_json` reads."""
        offers = [offer.as_json() for offer in self.offers]
        return {"offers": offers, "refusal": self.refusal, "counts": dict(self.counts)}

    @classmethod
    def from_json(cls, data: Any) -> ScheduledKernels:
        """What `as_json` gave. Raises KeyError or ValueError for anything else."""
        offers = tuple(map(ScheduledKernel.from_json, data["offers"]))
        return cls(offers, data["refusal"], data["counts"])

    def account(self) -> dict[str, object]:
        """For people: how many schedules were priced and timed, why others were refused, and the
        fastest with what is predicted for them."""
        priced, timed = self.counts.get("priced", 0), self.counts.get("timed", 0)
        refused = {why: n for why, n in self.counts.items() if why not in ("priced", "timed")}
        fastest = [
            {
                "schedule": offer.schedule.model_dump(mode="json", exclude_defaults=True),
                "predicted_ms": offer.predicted_ms,
                "moved_bytes": offer.moved_bytes,
                "what": offer.sentence,
            }
            for offer in self.offers
        ]
        found = {"priced": priced, "timed": timed, "refused": refused, "fastest": fastest}
        whole = "none_because" if not self.offers else "not_all_because"
        return {whole: self.refusal, **found} if self.refusal else found


def schedule_in(change: Change | None) -> Schedule | None:
    """The schedule that a change of a kernel is; None for any other, a nest included."""
    if not isinstance(change, Reschedule):
        return None
    try:
        return Schedule.model_validate(change.schedule)
    except ValueError:
        return None


def actions_of(offers: Iterable[ScheduledKernel], metrics: Mapping[str, float]) -> list[Action]:
    """ScheduledKernels as actions, in order. `metrics` are the counters of the kernel as it is, with its
    `latency`: they say what is promised, and what is saved."""
    now = metrics.get("latency", 0.0)
    moved = sum(metrics.get(name, 0.0) for name in ("hbm_read_bytes", "hbm_write_bytes"))
    return [
        made(
            Reschedule(
                schedule=offer.schedule.model_dump(mode="json"),
                sentence=f"{offer.sentence}{saving(moved, offer.moved_bytes)}.",
            ),
            offer.source,
            promise=1 - offer.predicted_ms / now if now else 1.0,
            predicted=offer.predicted_ms,
        )
        for offer in offers
    ]


def offered(
    source: str,
    path: Path,
    given: Mapping[str, Given],
    target: str = "trn1",
    shelf: VerdictCache | None = None,
    times: Times | None = None,
    author: str = "",
) -> ScheduledKernels:
    """The fastest schedules of the kernel `source`, which lies at `path`. `given` has shape and
    format of what is passed for each parameter; a plain number has no dimensions. What a search
    came to is kept on the `shelf`. `times` predicts; without it the search does so by itself.
    `author` is the module that the kernels are written into, where that is not `source`."""
    if not given:
        return ScheduledKernels(refusal="the shapes of the kernel's arguments are not known")
    try:
        lifted = lifted_kernel(source, path, given, target, author)
        # Kernels that compute the same, in whatever way, are searched once.
        called = repr((lifted.interface, lifted.dialect))
        same = (lifted.algorithm.to_json(), called, target, package_key())
        key = content_key(*same)
        kept = shelf.find("searches", key) if shelf else None
        if isinstance(kept, dict):
            return _authored(lifted, ScheduledKernels.from_json(kept))
        values = [
            AbstractArgument(a.shape, a.dtype)
            if isinstance(a, TensorArgument)
            else AbstractArgument(value=a)
            for a in lifted.arguments
        ]
    except NotLifted as refusal:
        return _in_pieces(source, path, given, target, shelf, times, str(refusal))
    except KernelFailure as refusal:
        return ScheduledKernels(refusal=str(refusal))
    if times is None:
        with own_processes(values, target) as times:
            result = searched(lifted, values, target, times)
    else:
        result = searched(lifted, values, target, times)
    if shelf:
        shelf.put("searches", key, result.as_json())
    return _authored(lifted, result)


def _in_pieces(
    source: str, path: Path, given: Mapping[str, Given], target: str, shelf: VerdictCache | None,
    times: Times | None, refusal: str,
) -> ScheduledKernels:  # fmt: skip
    """The fastest schedules of the pieces of a kernel that does not lift, for the reason `refusal`."""
    try:
        found = rewritten_in_pieces(source, path, given, target, times, shelf)
    except (NotLifted, NotNested, KernelFailure):
        return ScheduledKernels(refusal=refusal)
    offers = tuple(ScheduledKernel(*kernel) for kernel in found.kernels[:MOST_OFFERED])
    counts = {"timed": len(found.kernels)}
    return ScheduledKernels(offers, refusal, counts)


def searched(
    lifted: Lifted, values: Sequence[AbstractArgument], target: str, times: Times
) -> ScheduledKernels:
    """The fastest schedules and nests together, and why there are none where that is so."""
    try:
        found = search(lifted.algorithm, values, lifted.interface, target, times=times)
        blocks = _offered(lifted, found, target)
    except NotLowered as error:
        blocks = ScheduledKernels(refusal=str(error))
    known = min((offer.predicted_ms for offer in blocks.offers), default=math.inf)
    nests = _nested(lifted, target, times, known)
    both = sorted((*blocks.offers, *nests.offers), key=lambda offer: offer.predicted_ms)
    counts = dict(blocks.counts)
    for name, count in nests.counts.items():
        counts[name] = counts.get(name, 0) + count
    refusal = "" if both else nests.refusal or blocks.refusal
    return ScheduledKernels(tuple(both[:MOST_OFFERED]), refusal, counts)


def _nested(lifted: Lifted, target: str, times: Times, known: float) -> ScheduledKernels:
    """The fastest nests; none that must be slower than the milliseconds `known`."""
    interface, dialect = lifted.interface, lifted.dialect
    found = search_nests(lifted.algorithm, interface, target, dialect, times=times, known=known)
    offers: list[ScheduledKernel] = []
    refusal = ""
    for timed in found.timed[:MOST_OFFERED]:
        try:
            kernel = lifted.lowered(timed.nest, target)
        except (NotLowered, NotNested) as error:
            refusal = lifted.located(str(error))
            continue
        if timed.latency_ms != float("inf"):
            offers.append(
                ScheduledKernel(
                    timed.nest, described(timed.nest),
                    for_any_rows(lifted, timed.nest, kernel.source, target), timed.latency_ms,
                    kernel.price.moved,
                )
            )  # fmt: skip
    counts = {"priced": found.priced, "timed": len(found.timed), **found.refused}
    if not offers:
        # The plainest nest says what is in the way; of others, why they are no nests of this kernel.
        try:
            lifted.lowered(default_nest(lifted.algorithm, target), target)
        except (NotLowered, NotNested, ResourceShort) as error:
            refusal = lifted.located(str(error))
        else:
            refusals = [timed.refusal for timed in found.timed]
            refusal = _refusal(refusals, refusal) if refusals else commonest(found.refused)
    return ScheduledKernels(tuple(offers), "" if offers else refusal, counts)


def _authored(lifted: Lifted, found: ScheduledKernels) -> ScheduledKernels:
    """ScheduledKernels for one of the kernels that compute the same."""
    offers = tuple(o._replace(source=lifted.authored(o.source)) for o in found.offers)
    return found._replace(offers=offers)


def _offered(lifted: Lifted, found: Found, target: str) -> ScheduledKernels:
    offers: list[ScheduledKernel] = []
    unwritten = ""
    graph = graph_of(lifted.algorithm)
    for timed in found.timed[:MOST_OFFERED]:
        try:
            kernel = lifted.lowered(timed.schedule, target)
        except NotLowered as refusal:
            if lifted.dialect != "neuronxcc":
                unwritten = str(refusal)
                continue
            return ScheduledKernels(refusal=str(refusal))
        if timed.latency_ms != float("inf"):
            sentence = describe(graph, timed.schedule)
            moved = kernel.price.moved
            source = for_any_rows(lifted, timed.schedule, kernel.source, target)
            offers.append(
                ScheduledKernel(timed.schedule, sentence, source, timed.latency_ms, moved)
            )
    counts = {"priced": found.priced, "timed": len(found.timed), **found.refused}
    return ScheduledKernels(
        tuple(offers),
        "" if offers else _refusal([t.refusal for t in found.timed], unwritten),
        counts,
    )


def _refusal(refusals: Sequence[str], unwritten: str) -> str:
    """Why none of the kernels that were timed is offered."""
    reasons = refusals[:MOST_OFFERED]
    reason = next(filter(None, reasons), unwritten or "the reason is not known")
    return f"the simulated core takes none of the {len(refusals)} kernels by schedule: {reason}"
