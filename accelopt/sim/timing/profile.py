"""The chain from a Program to its profile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from accelopt.hardware import TARGETS, Hardware
from accelopt.hardware.front_ends import simulated_on, wrong_front_end
from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import KernelError, SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.program import Program
from accelopt.sim.timing.account import counters, explanation
from accelopt.sim.timing.account.counters import TrueCounts
from accelopt.sim.timing.account.explanation import InputRead, LineCost, LowerBound
from accelopt.sim.timing.compiler.cores import by_core, joined
from accelopt.sim.timing.compiler.passes import (
    INSTANCE_PASSES,
    LAUNCH_PASSES,
    LOOP_PASSES,
    PASSES,
    Compilation,
    Pass,
)
from accelopt.sim.timing.compiler.spilling import Spills
from accelopt.sim.timing.compiler.transfers_between_rounds import with_latency
from accelopt.sim.timing.compiler_constants import (
    COMPILER_BOUNDS,
    COMPILERS,
    CompilerBounds,
    default_compiler,
)
from accelopt.sim.timing.machine.dependence import DependenceGraph
from accelopt.sim.timing.machine.schedule import Timeline, depends_on, schedule
from accelopt.sim.timing.machine.transfers import Transfer, price_transfers
from accelopt.sim.timing.stream.operation import Decision, combined
from accelopt.sim.timing.stream.stream import Stream

UNRESOLVED = 0.05
"""Predictions closer than this do not tell which kernel is faster. Of versions predicted further apart,
nine of ten pairs measure in that order (`benchmarks/timing_accuracy.py`)."""

TELLING = 0.01
"""Part of the latency from which on a throttled Tensor engine is worth a word."""
MOST_ASKED = 10_000
"""Instructions of a kernel from which on nobody waits for all its `Scenario`s unasked."""


@dataclass(frozen=True)
class Compiler:
    """Which decisions of the Neuron compiler are emulated (all but `without`, by the names in
    `PASSES`), and with what bounds. Raises ValueError for the name of no pass."""

    without: frozenset[str] = frozenset()
    bounds: CompilerBounds = COMPILER_BOUNDS

    def __post_init__(self) -> None:
        if unknown := self.without - {one.name for one in PASSES}:
            raise ValueError(f"no pass of the compiler is called {', '.join(sorted(unknown))}.")

    @classmethod
    def of(cls, version: str) -> Compiler:
        """The compiler of a version in `COMPILERS`. Raises ValueError for another one."""
        if wrong := wrong_front_end(version):
            raise ValueError(wrong)
        return cls(bounds=COMPILERS[version])

    @classmethod
    def for_program(cls, program: Program, spec: Hardware, version: str = "") -> Compiler:
        """The compiler of that version, by default the one that takes the program's dialect for the
        core. Raises KernelError for one that does not take its dialect."""
        if wrong := wrong_front_end(version, program.dialect):
            raise KernelError("front_end", wrong)
        return cls(bounds=COMPILERS[version or default_compiler(spec.name, program.dialect)])

    def does(self, one: Pass) -> bool:
        """Whether a pass does what it is for, rather than what is done in its place."""
        return one.name not in self.without and (self.bounds.rewrites or not one.rewrites)

    def less(self, name: str) -> Compiler:
        """The same compiler without one pass."""
        return replace(self, without=self.without | {name})


@dataclass(frozen=True)
class SimulatedRun:
    """One simulated execution, with everything that explains it."""

    program: Program
    spec: Hardware
    stream: Stream
    costs: list[Transfer | None]
    timeline: Timeline
    graph: DependenceGraph
    compiler: Compiler


@dataclass(frozen=True)
class KernelProfile:
    """What the simulated NeuronCore says about one kernel.

    `summary` has the profiler's field names (bytes, FLOPs, seconds; percent fields are fractions;
    `latency` in ms); `true_counts` what physically happens, beside the profiler's way of counting. Of
    two cores counts are sums, and times and fractions of engines means (`occupancy_by_core` has each).
    """

    latency_ms: float
    summary: dict[str, float]
    decisions: tuple[Decision, ...]
    spills: tuple[Spills, ...]
    true_counts: TrueCounts
    target: str
    calibration: str
    run: SimulatedRun

    @property
    def simulated_on(self) -> str:
        """The target and the front end in words, as they stand beside the latency."""
        return simulated_on(self.target, self.compiler)

    @property
    def compiler(self) -> str:
        """The version of the front end that was emulated, one of `COMPILERS`; empty for another."""
        bounds = self.run.compiler.bounds
        return next((name for name, one in COMPILERS.items() if one == bounds), "")

    @cached_property
    def bounds(self) -> list[LowerBound]:
        """Times below which one aspect of the kernel cannot go."""
        busy = counters.busy_ns(self.run.timeline, self.run.stream.cores)
        return explanation.bounds(self.summary, self.true_counts, busy, self.run.spec)

    @cached_property
    def lines(self) -> list[LineCost]:
        """Source lines, those that take most of the critical path first."""
        return explanation.line_costs(self.run.stream, self.run.costs, self.run.timeline)

    @cached_property
    def reads(self) -> list[InputRead]:
        """What is read of each input, those first of which most is read again."""
        return explanation.input_reads(self.run.program, self.run.stream, self.run.costs)

    @property
    def occupancy(self) -> dict[str, float]:
        """The fraction of the time that each engine is busy; the mean of two cores."""
        each = self.occupancy_by_core
        return {name: sum(core[name] for core in each) / len(each) for name in each[0]}

    @cached_property
    def occupancy_by_core(self) -> tuple[dict[str, float], ...]:
        """The fraction of the time that each engine of each core is busy."""
        timeline = self.run.timeline
        busy = counters.busy_ns(timeline, self.run.stream.cores)
        return tuple({name: ns / timeline.latency_ns for name, ns in one.items()} for one in busy)


def profile(
    program: Program,
    spec: Hardware | None = None,
    compiler: Compiler | None = None,
    most_ms: float = math.inf,
) -> KernelProfile:
    """Predicted latency and counters of a kernel on a NeuronCore generation (default: the one that
    the Program was traced for). Raises KernelError for a kernel whose directly allocated tiles
    destroy each other, for loops of the device whose iterations depend on the inputs
    (`compute.trips.counted` takes them), and where the transfers alone take longer than `most_ms`, as
    soon as that is known."""
    spec = spec or TARGETS[program.target]
    program = counted(program)
    with collector_paused():
        return _profile(program, spec, compiler or Compiler.for_program(program, spec), most_ms)


def latencies(
    program: Program, specs: Sequence[Hardware], compiler: Compiler | None = None
) -> tuple[float, ...]:
    """Predicted latencies, in ms, on cores that differ in constants of time and in nothing else: a
    kernel that does not spill is compiled once, for the first of them."""
    compiler = compiler or Compiler.for_program(program, specs[0])
    program = counted(program)
    with collector_paused():
        at = compiled_program(program, specs[0], compiler)
        if at.spills:
            return tuple(_profile(program, spec, compiler).latency_ms for spec in specs)
        known: list[tuple[object, float]] = []
        return tuple(_latency_ms(at, spec, known) for spec in specs)


def profiles(
    program: Program, specs: Sequence[Hardware], compiler: Compiler
) -> Iterator[KernelProfile]:
    """The profiles of a counted Program on cores as `latencies` takes them."""
    at = compiled_program(program, specs[0], compiler)
    for spec in specs:
        yield _profile(program, spec, compiler, compiled=None if at.spills else at)


def _latency_ms(at: Compilation, spec: Hardware, known: list[tuple[object, float]]) -> float:
    """The latency on one more core; `known` are those of cores before, in ns after the launch."""
    costs = _priced(at, spec)
    same = depends_on(at.stream, costs, spec)
    found = next((ns for other, ns in known if other == same), None)
    if found is None:
        timeline = schedule(at.stream, at.graph, costs, spec, at.bounds.lookahead)
        found = timeline.latency_ns - spec.launch_ns
        known.append((same, found))
    return (found + spec.launch_ns) * 1e-6


def _priced(at: Compilation, spec: Hardware) -> list[Transfer | None]:
    return with_latency(price_transfers(at.stream, spec, at.bounds), at.drained, spec)


def compiled_program(
    program: Program, spec: Hardware, compiler: Compiler, most_ms: float = math.inf
) -> Compilation:
    """A counted Program as the compiler leaves it, not scheduled yet."""

    def run(passes: Iterable[Pass], at: Compilation) -> None:
        for one in passes:
            at.decisions.by = one.name
            (one.do if compiler.does(one) else one.otherwise)(at)

    parts = [
        Compilation(part, spec, compiler.bounds, shared, most_ms=most_ms)
        for part, shared in by_core(program, spec)
    ]
    for part in parts:
        run(LOOP_PASSES, part)
        part.expand()
        run(INSTANCE_PASSES, part)
    at = joined(program, parts)
    run(LAUNCH_PASSES, at)
    return at


def _profile(
    program: Program, spec: Hardware, compiler: Compiler, most_ms: float = math.inf,
    compiled: Compilation | None = None,
) -> KernelProfile:  # fmt: skip
    at = compiled or compiled_program(program, spec, compiler, most_ms)
    costs = _priced(at, spec) if compiled else at.costs
    timeline = schedule(at.stream, at.graph, costs, spec, compiler.bounds.lookahead)
    interface = frozenset(program.arguments) | {t for t in program.results if t is not None}
    fields, true = counters.summary(at.stream, costs, timeline, interface, spec)
    return KernelProfile(
        timeline.latency_ns * 1e-6,
        fields,
        (*combined(at.decisions), *_throttled(at, timeline)),
        tuple(at.spills.values()),
        true,
        spec.name,
        spec.calibration,
        SimulatedRun(program, spec, at.stream, costs, timeline, at.graph, compiler),
    )


def _throttled(at: Compilation, timeline: Timeline) -> Iterator[Decision]:
    """Where the hardware held the Tensor engine back for so long that it matters."""
    lost: Counter[SourceLine] = Counter()
    for kind, held in timeline.held_ns.items():
        lost[at.stream.instances[kind].operation.source] += held  # type: ignore[assignment]
    for source, held in lost.most_common():
        if held >= TELLING * timeline.latency_ns:
            words = (
                f"the Tensor engine at half its rate, {held / timeline.latency_ns:.0%} of the time"
            )
            yield Decision("throttle_tensor", words, source)


@dataclass(frozen=True)
class Scenario:
    """The latency had the compiler decided otherwise."""

    question: str
    latency_ms: float


@dataclass(frozen=True)
class LatencyRange:
    """What a latency may turn out to be: between the outcomes of decisions of the compiler that are
    not inferable, widened by how far off predictions are on kernels that nothing was learned from
    (`least_measured` and `most_measured` of the hardware): eight of ten lie within."""

    low_ms: float
    high_ms: float
    scenarios: tuple[Scenario, ...]


def interval(found: KernelProfile, compiler: Compiler | None = None) -> LatencyRange:
    """Simulates both outcomes of every decision that is not inferable for this kernel."""
    base = compiler or found.run.compiler
    scenarios = tuple(
        Scenario(question, _profile(found.run.program, spec, variant).latency_ms)
        for question, variant, spec in _ambiguities(found, base)
    )
    every = [found.latency_ms, *(scenario.latency_ms for scenario in scenarios)]
    spec = found.run.spec
    return LatencyRange(
        min(every) * spec.least_measured, max(every) * spec.most_measured, scenarios
    )


def _with_merge_window(base: Compiler, factor: float, over_sequential: bool) -> Compiler:
    bounds = replace(
        base.bounds,
        merge_window_bytes=base.bounds.merge_window_bytes * factor,
        merge_over_sequential=over_sequential,
    )
    return replace(base, bounds=bounds)


def _ambiguities(found: KernelProfile, base: Compiler) -> list[tuple[str, Compiler, Hardware]]:
    spec = found.run.spec
    taken = {decision.pass_name for decision in found.decisions}
    variants: list[tuple[str, Compiler, Hardware]] = []
    if "merge_repeated" not in base.without:
        wider = _with_merge_window(base, 4.0, base.bounds.merge_over_sequential)
        variants.append(("repeated work merged over four times the distance", wider, spec))
    if "merge_repeated" in taken:
        nearer = _with_merge_window(base, 0.25, over_sequential=False)
        variants.append(("repeated work merged over a quarter of the distance", nearer, spec))
    variants += [
        (one.question, base.less(one.name), spec)
        for one in PASSES
        if one.question and one.name in taken
    ]
    if "fit_sbuf" in taken:
        variants.append(("all of SBUF usable", base, replace(spec, sbuf_reserved_bytes=0)))
    if any(cost and cost.conflict_ns for cost in found.run.costs):
        smooth = replace(spec, hbm_conflict_stride=1 << 62)
        variants.append(("rows far apart in HBM do not collide", base, smooth))
    return variants
