"""What schedules offer for a kernel: the kernel is lifted, schedules are searched, the fastest are
written as kernels with the same signature, each with a sentence that says what it does differently."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.caches import Shelf, package_key
from accelopt.kernel_source import KERNEL_NAMES, functions
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.devices.tracing import arguments_to_json
from accelopt.kernels.nki.lift.algorithm import Algorithm
from accelopt.kernels.nki.lift.authorship.authored import Author
from accelopt.kernels.nki.lift.describing import describe, saving
from accelopt.kernels.nki.lift.emission.graph import NotLowered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.lift.lowering import MARK, Interface, Lowered, lower
from accelopt.kernels.nki.lift.schedule import Schedule
from accelopt.kernels.nki.lift.search import Argument, Found, Times, search
from accelopt.kernels.nki.moves.reading.source import ParameterFacts as Given
from accelopt.kernels.nki.translation.translate import in_dialect
from accelopt.nodes import Action, made
from accelopt.nodes import Schedule as Change
from accelopt.parsing import parse_python
from accelopt.sim.dialects import Dialect, dialect_of_source
from accelopt.store import content_key

MOST_OFFERED = 3
STEP = 2.0**-20
"""Stands-in for plain arguments are odd multiples of this: exact in fp32, and nobody's number."""
FIRST, AGAIN = 12583, 17389
"""The multiples that the first plain argument is, in a kernel and in its twin."""


class Offer(NamedTuple):
    """A kernel by schedule, not verified yet; `predicted_ms` is simulated, `moved_bytes` what it
    moves from and to HBM by the closed form."""

    schedule: Schedule
    sentence: str
    source: str
    predicted_ms: float
    moved_bytes: int

    def as_json(self) -> list[object]:
        """As plain data, which `from_json` reads."""
        return [self.schedule.model_dump(mode="json"), *self[1:]]

    @classmethod
    def from_json(cls, data: Any) -> Offer:
        """What `as_json` gave. Raises ValueError for anything else."""
        schedule, sentence, source, predicted, moved = data
        return cls(Schedule.model_validate(schedule), sentence, source, predicted, moved)


class Offers(NamedTuple):
    """The fastest first; where there are none, `refusal` says why. `counts` is what the search
    priced in closed form, timed, and refused."""

    offers: tuple[Offer, ...] = ()
    refusal: str = ""
    counts: Mapping[str, int] = {}

    def as_json(self) -> dict[str, object]:
        """As plain data, which `from_json` reads."""
        offers = [offer.as_json() for offer in self.offers]
        return {"offers": offers, "refusal": self.refusal, "counts": dict(self.counts)}

    @classmethod
    def from_json(cls, data: Any) -> Offers:
        """What `as_json` gave. Raises KeyError or ValueError for anything else."""
        offers = tuple(map(Offer.from_json, data["offers"]))
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
        return {"none_because": self.refusal, **found} if self.refusal else found


class Lifted(NamedTuple):
    """What a kernel computes, and how it is called. `twins` are the same with other numbers for its
    plain arguments, where it has some: a kernel by schedule must not depend on which were drawn."""

    algorithm: Algorithm
    interface: Interface
    twins: tuple[Lifted, ...] = ()
    dialect: Dialect = "neuronxcc"
    arguments: tuple[Any, ...] = ()  # without data, as plain JSON
    author: Author | None = None

    def lowered(self, schedule: Schedule, target: str = "trn1") -> Lowered:
        """The kernel by a schedule, in the dialect of the kernel that was lifted. Raises NotLowered,
        ResourceShort."""
        kernel = lower(self.algorithm, schedule, self.interface, target)
        for twin in self.twins:
            if lower(twin.algorithm, schedule, twin.interface, target).source != kernel.source:
                raise NotLowered("a plain argument enters the computation in more than one way")
        if self.dialect == "neuronxcc":
            return kernel
        [source] = in_dialect([kernel.source], self.dialect, self.arguments, target)
        if source is None:
            raise NotLowered(f"the kernel by this schedule has no counterpart in {self.dialect}")
        return kernel._replace(source=source)

    def authored(self, source: str) -> str:
        """A lowered kernel of this in its author's module, with the author's names and comments."""
        return self.author.with_kernel(source) if self.author else source


def actions_of(offers: Iterable[Offer], metrics: Mapping[str, float]) -> list[Action]:
    """Offers as actions, in order. `metrics` are the counters of the kernel as it is, with its
    `latency`: they say what is promised, and what is saved."""
    now = metrics.get("latency", 0.0)
    moved = sum(metrics.get(name, 0.0) for name in ("hbm_read_bytes", "hbm_write_bytes"))
    return [
        made(
            Change(
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
    shelf: Shelf | None = None,
    times: Times | None = None,
    author: str = "",
) -> Offers:
    """The fastest schedules of the kernel `source`, which lies at `path`. `given` has shape and
    format of what is passed for each parameter; a plain number has no dimensions. What a search
    came to is kept on the `shelf`. `times` predicts; without it the search does so by itself.
    `author` is the module that the kernels are written into, where that is not `source`."""
    if not given:
        return Offers(refusal="the shapes of the kernel's arguments are not known")
    if MARK in source:
        return Offers(
            refusal="the kernel is written by a schedule already: its neighbours were seen"
        )
    try:
        lifted = lifted_kernel(source, path, given, target, author)
        # Kernels that compute the same, in whatever way, are searched once.
        called = repr((lifted.interface, lifted.dialect))
        same = (lifted.algorithm.to_json(), called, target, package_key())
        key = content_key(*same)
        kept = shelf.find("searches", key) if shelf else None
        if isinstance(kept, dict):
            return _authored(lifted, Offers.from_json(kept))
        values = [
            Argument(what.shape, what.dtype) if what.shape else Argument(value=value)
            for what, value in zip(given.values(), _values(given, FIRST), strict=True)
        ]
        found = search(lifted.algorithm, values, lifted.interface, target, times=times)
    except (NotLifted, NotLowered, KernelFailure) as refusal:
        return Offers(refusal=str(refusal))
    result = _offered(lifted, found, target)
    if shelf:
        shelf.put("searches", key, result.as_json())
    return _authored(lifted, result)


def _authored(lifted: Lifted, found: Offers) -> Offers:
    """Offers for one of the kernels that compute the same."""
    offers = tuple(o._replace(source=lifted.authored(o.source)) for o in found.offers)
    return found._replace(offers=offers)


def _offered(lifted: Lifted, found: Found, target: str) -> Offers:
    offers: list[Offer] = []
    graph = graph_of(lifted.algorithm)
    for timed in found.timed[:MOST_OFFERED]:
        try:
            kernel = lifted.lowered(timed.schedule, target)
        except NotLowered as refusal:
            if lifted.dialect != "neuronxcc":
                continue
            return Offers(refusal=str(refusal))
        if timed.latency_ms != float("inf"):
            sentence = describe(graph, timed.schedule)
            moved = kernel.price.moved
            offers.append(Offer(timed.schedule, sentence, kernel.source, timed.latency_ms, moved))
    counts = {"priced": found.priced, "timed": len(found.timed), **found.refused}
    return Offers(tuple(offers), "" if offers else "no schedule passes the simulated core", counts)


def lifted_kernel(
    source: str, path: Path, given: Mapping[str, Given], target: str = "trn1", author: str = ""
) -> Lifted:
    """What the kernel `source`, which lies at `path`, computes. `given` has shape and format of what
    is passed for each parameter; a plain number has no dimensions. `author` is the module that
    lowered kernels are written into, where that is not `source`. Raises NotLifted, and
    KernelFailure for a kernel that breaks a rule."""
    twins: tuple[Lifted, ...] = ()
    if any(not what.shape for what in given.values()):
        twins = (_lift(source, path, given, target, AGAIN),)
    lifted = _lift(source, path, given, target, FIRST)
    name = lifted.interface.name
    written_into = author if name in functions(author) else source
    shapes = {parameter: what.shape for parameter, what in given.items()}
    return lifted._replace(twins=twins, author=Author(written_into, name, shapes))


def _values(given: Mapping[str, Given], first: int) -> list[float | None]:
    """What stands in for plain arguments; None for tensors."""
    return [
        None if what.shape else (first + 2 * number) * STEP
        for number, what in enumerate(given.values())
    ]


def _lift(source: str, path: Path, given: Mapping[str, Given], target: str, first: int) -> Lifted:
    values = _values(given, first)
    arguments = [
        TensorArgument(what.shape, what.dtype) if value is None else value
        for what, value in zip(given.values(), values, strict=True)
    ]
    program = SimulatedDevice(target).compile(str(path), arguments).program
    numbers = {value: name for name, value in zip(given, values, strict=True) if value is not None}
    function = _kernel_function(source)
    name = function.name if function else Interface().name
    interface = Interface(signature(source), numbers, program.returns_sequence, name)
    plain = tuple(arguments_to_json(arguments))
    return Lifted(lift(program), interface, (), dialect_of_source(source), plain)


def signature(source: str) -> str:
    """The parameters of the kernel in a source, with their defaults and without annotations; empty
    where it is not clear which function is the kernel."""
    function = _kernel_function(source)
    if function is None:
        return ""
    parameters = function.args
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        parameter.annotation = None
    return ast.unparse(parameters)


def _kernel_function(source: str) -> ast.FunctionDef | None:
    """The kernel in a source; None where it is not clear which function that is."""
    functions = [node for node in parse_python(source).body if isinstance(node, ast.FunctionDef)]
    named = [f for name in KERNEL_NAMES for f in functions if f.name == name][:1]
    found: Sequence[ast.FunctionDef] = named or [f for f in functions if f.decorator_list]
    return found[0] if len(found) == 1 else None
