"""What schedules offer for a kernel: the kernel is lifted, schedules are searched, the fastest are
written as kernels with the same signature, each with a sentence that says what it does differently."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from accelopt.algorithm.element_work import computes_less
from accelopt.caches import VerdictCache, package_key
from accelopt.kernels.nki.arguments import ParameterFacts as Given
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.nest import Nest, NotNested, default_nest
from accelopt.kernels.nki.nests.search import HOPELESS, FoundNests, NestSearch, described
from accelopt.kernels.nki.predicted_times import NOT_KNOWN, Times, own_processes
from accelopt.kernels.nki.rescheduling.any_rows import for_any_rows
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted, lifted_kernel, of_a_size
from accelopt.kernels.nki.rescheduling.lifted_reference import reference_of_kernel
from accelopt.kernels.nki.rescheduling.rewriting_in_pieces import rewritten_in_pieces
from accelopt.nodes import Action, Change, Reschedule, made
from accelopt.store import content_key
from accelopt.time_limits import LIFT_SECONDS, SOON_SECONDS

MOST_OFFERED = 3
MOST_REASONS = 3
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class ScheduledKernel(NamedTuple):
    """A kernel by schedule, not verified yet; `predicted_ms` is simulated, `moved_bytes` what it
    moves from and to HBM by the closed form. One `from_reference` schedules the reference's Algorithm."""

    nest: Nest
    sentence: str
    source: str
    predicted_ms: float
    moved_bytes: int
    from_reference: bool = False


class ScheduledKernels(NamedTuple):
    """The fastest first; where there are none, or not of all of the kernel, `refusal` says why. `counts` is what the search
    priced in closed form, timed, and refused."""

    refusal: str
    offers: tuple[ScheduledKernel, ...] = ()
    counts: Mapping[str, int] = {}

    def account(self) -> dict[str, object]:
        """For people: how many schedules were priced and timed, why others were refused, and the
        fastest with what is predicted for them."""
        priced, timed = self.counts.get("priced", 0), self.counts.get("timed", 0)
        refused = {why: n for why, n in self.counts.items() if why not in ("priced", "timed")}
        fastest = [
            {
                "schedule": offer.nest.model_dump(mode="json", exclude_defaults=True),
                "predicted_ms": offer.predicted_ms,
                "moved_bytes": offer.moved_bytes,
                "what": offer.sentence,
            }
            for offer in self.offers
        ]
        found = {"priced": priced, "timed": timed, "refused": refused, "fastest": fastest}
        whole = "none_because" if not self.offers else "not_all_because"
        return {whole: self.refusal, **found} if self.refusal else found


def nest_in(change: Change | None) -> Nest | None:
    """The nest that a change of a kernel is; None for any other."""
    if not isinstance(change, Reschedule):
        return None
    try:
        return Nest.model_validate(change.schedule)
    except ValueError:  # of another version
        return None


def actions_of(offers: Iterable[ScheduledKernel], metrics: Mapping[str, float]) -> list[Action]:
    """ScheduledKernels as actions, in order. `metrics` are the counters of the kernel as it is, with its
    `latency`: they say what is promised, and what is saved."""
    now = metrics.get("latency", 0.0)
    moved = sum(metrics.get(name, 0.0) for name in ("hbm_read_bytes", "hbm_write_bytes"))
    alike: dict[str, Nest] = {}
    found = []
    for offer in offers:
        first = alike.setdefault(offer.sentence, offer.nest)
        words = f"{offer.sentence}{_apart(offer.nest, first)}{_saving(moved, offer.moved_bytes)}."
        change = Reschedule(schedule=offer.nest.model_dump(mode="json"), sentence=words)
        promise = 1 - offer.predicted_ms / now if now else 1.0
        found.append(made(change, offer.source, promise=promise, predicted=offer.predicted_ms))
    return found


def _apart(nest: Nest, first: Nest) -> str:
    """What a nest has otherwise than the first that is said in the same words, in brackets."""
    pairs = [*zip(nest.stages, first.stages, strict=False), (nest, first)]
    differing = [
        f"{name} {json.dumps(one.model_dump(mode='json')[name])}"
        for one, other in pairs
        for name in type(one).model_fields
        if name != "stages" and getattr(one, name) != getattr(other, name)
    ]
    return f" ({', '.join(differing)})" if differing else ""


def offered(
    source: str,
    path: Path,
    given: Mapping[str, Given],
    target: str = "trn1",
    shelf: VerdictCache | None = None,
    times: Times | None = None,
    author: str = "",
    lnc: int = 1,
    reference: Path | None = None,
) -> ScheduledKernels:
    """The fastest schedules of the kernel `source`, which lies at `path`. `given` has shape and
    format of what is passed for each parameter; a plain number has no dimensions. What a search
    came to is kept on the `shelf`. `times` predicts; without it the search does so by itself.
    `author` is the module that the kernels are written into, where that is not `source`; they may use `lnc`
    cores of a logical one. Where its `reference` computes less than a kernel, or the kernel does not lift as a whole, the
    reference's Algorithm is scheduled too."""
    if not given:
        return ScheduledKernels(refusal="the shapes of the kernel's arguments are not known")
    starts, refusal = list[Lifted](), ""
    try:
        starts.append(of_a_size(lifted_kernel(source, path, given, target, author)))
    except NotLifted as error:
        refusal = str(error)
    except KernelFailure as failure:
        return ScheduledKernels(refusal=str(failure))
    if reference is not None:
        with suppress(NotLifted, KernelFailure):
            seconds = LIFT_SECONDS if refusal else SOON_SECONDS
            traced = reference_of_kernel(
                source, path, given, reference, target, author, shelf, seconds
            )
            other = of_a_size(traced)
            if refusal or computes_less(other.algorithm, starts[0].algorithm):
                starts.append(other)
    found = ScheduledKernels(refusal)
    if refusal:
        found = _in_pieces(source, path, given, target, shelf, times, refusal)
    if not starts:
        return found
    starts = [start.on_cores(lnc) for start in starts]
    # Kernels that compute the same, in whatever way, are searched once.
    called = (repr((one.interface, one.dialect, one.from_reference)) for one in starts)
    key = content_key(*(s.algorithm.to_json() for s in starts), *called, target, package_key())
    whole = shelf.find_row("searches", key, ScheduledKernels) if shelf else None
    if whole is None:
        if times is None:
            with own_processes(starts[0].arguments, target) as times:
                whole = searched(starts, target, times)
        else:
            whole = searched(starts, target, times)
        if shelf:
            shelf.put_row("searches", key, ScheduledKernels, whole)
    made = [o._replace(source=starts[0].authored(o.source)) for o in whole.offers]
    offers = fastest_of([found.offers, made])
    if not refusal or (offers and offers[0].from_reference):
        refusal = whole.refusal
    return ScheduledKernels(refusal, offers, Counter(found.counts) + Counter(whole.counts))


def fastest_of(groups: Sequence[Sequence[ScheduledKernel]]) -> tuple[ScheduledKernel, ...]:
    """The fastest kernels of some groups, with the first of each: the referee may accept those of one alone."""
    firsts, rest = (
        [o for group in groups for o in group[own]] for own in (slice(1), slice(1, None))
    )
    rest.sort(key=lambda offer: offer.predicted_ms)
    kept = [*firsts, *rest][: max(MOST_OFFERED, len(firsts))]
    return tuple(sorted(kept, key=lambda offer: offer.predicted_ms))


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
    return ScheduledKernels(refusal, offers, counts)


def searched(starts: Sequence[Lifted], target: str, times: Times) -> ScheduledKernels:
    """The fastest nests of a kernel, and why there are none where that is so: of the first of some Algorithms, and of
    those after it up to the one of which the nests to begin with are fastest. Of others that begin much slower only the
    nests to begin with are timed."""
    searches = [
        NestSearch(one.algorithm, one.interface, target, one.dialect, times=times) for one in starts
    ]
    firsts = [search.first() for search in searches] if len(searches) > 1 else [0.0]
    chosen = [*zip(searches, firsts, strict=True)][: firsts.index(min(firsts)) + 1]
    near = HOPELESS * min(firsts)
    found = [search.run() if first <= near else search.found for search, first in chosen]
    offers = fastest_of(
        [_written(*pair, target, times) for pair in zip(starts, found, strict=False)]
    )
    priced = sum(one.found.priced for one in searches)
    timed = sum(len(one.found.timed) for one in searches)
    counts = {"priced": priced, "timed": timed, **found[-1].refused}
    refusal = "" if offers else _refusal(starts[0], found[0], target)
    return ScheduledKernels(refusal, offers, counts)


def _written(
    lifted: Lifted, found: FoundNests, target: str, times: Times
) -> Sequence[ScheduledKernel]:
    """The kernels by the fastest nests of an Algorithm."""
    offers: list[ScheduledKernel] = []
    for timed in found.timed[:MOST_OFFERED]:
        if timed.latency_ms == math.inf:
            continue
        try:
            kernel = lifted.lowered(timed.nest, target)
            shorter = lifted.rerolled().lowered(timed.nest, target)
        except NotNested:  # for other numbers of plain arguments
            continue
        written, ms = lifted, timed.latency_ms
        if kernel.source.count("\n") > shorter.source.count("\n"):
            (own,) = times([shorter.source])
            if own <= ms:
                written, kernel, ms = lifted.rerolled(), shorter, own
        source = for_any_rows(written, timed.nest, kernel.source, target)
        said = described(timed.nest)
        if lifted.from_reference:
            said = f"Written from the reference{said.removeprefix('Rewrite')}"
        offers.append(
            ScheduledKernel(timed.nest, said, source, ms, kernel.price.moved, lifted.from_reference)
        )
    offers.sort(key=lambda offer: offer.predicted_ms)
    return offers


def _refusal(lifted: Lifted, found: FoundNests, target: str) -> str:
    """Why no nest is offered: what is in the way of the plainest one; if nothing is, what the core said of
    those that were timed, or why others are no nests of this kernel."""
    try:
        lifted.lowered(default_nest(lifted.algorithm, target), target)
    except NotNested as error:
        return lifted.located(str(error))
    if found.timed:
        said = [timed.refusal for timed in found.timed[:MOST_REASONS]]
        reason = next(filter(None, said), NOT_KNOWN)
        return (
            f"the simulated core takes none of the {len(found.timed)} kernels by schedule: {reason}"
        )
    most = sorted(found.refused, key=found.refused.__getitem__, reverse=True)[:MOST_REASONS]
    return "; ".join(most) or NOT_KNOWN


def _saving(before: float, after: float) -> str:
    """How many bytes fewer are moved, as the end of a sentence; empty where it is no more than 1%."""
    saved = before - after
    if saved <= after / 100:
        return ""
    size, unit = next((one for one in UNITS if saved >= one[0]), (1.0, "B"))
    return f": {saved / size:.3g} {unit} fewer bytes"
