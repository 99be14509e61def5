"""The chain from a Program to its profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Program
from accelopt.sim.spec import SPECS, Spec
from accelopt.sim.timing import counters, lowering, merging, pricing, residency
from accelopt.sim.timing.cells import Stream, stream
from accelopt.sim.timing.counters import TrueCounts
from accelopt.sim.timing.dependence import Rotation, depend
from accelopt.sim.timing.expansion import expand, scopes
from accelopt.sim.timing.operation import Decision
from accelopt.sim.timing.residency import Spills
from accelopt.sim.timing.schedule import WINDOWS, Timeline, schedule
from accelopt.sim.timing.transfers import Transfer


@dataclass(frozen=True)
class Compiler:
    """Which decisions of the Neuron compiler are emulated, and with what bounds."""

    broadcast_partitions: bool = True
    place_in_psum: bool = True
    merge_repeated: bool = True
    merge_window_bytes: float = 600 * 1024
    remove_dead: bool = True
    fit_sbuf: bool = True
    rotation: Rotation = field(default_factory=Rotation)
    windows: tuple[int, ...] = WINDOWS


@dataclass(frozen=True)
class KernelProfile:
    """What the simulated NeuronCore says about one kernel."""

    latency_ms: float
    summary: dict[str, float]
    decisions: tuple[Decision, ...]
    spills: dict[str, Spills]  # by tensor name and source line
    true_counts: TrueCounts
    target: str
    calibration: str
    stream: Stream
    costs: list[Transfer | None]
    timeline: Timeline


def profile(
    program: Program, spec: Spec | None = None, compiler: Compiler | None = None
) -> KernelProfile:
    """Predicted latency and counters of a kernel on a NeuronCore generation (default: the one that
    the Program was traced for)."""
    spec = spec or SPECS[program.target]
    compiler = compiler or Compiler()
    decisions: list[Decision] = []
    nest = lowering.lower(program)
    if compiler.broadcast_partitions:
        nest = lowering.broadcast_partitions(nest, decisions)
    if compiler.place_in_psum:
        nest = lowering.place_in_psum(nest, decisions)
    nest = lowering.rewrite(nest, lambda operation: (pricing.priced(operation, spec),))
    flow = stream(expand(nest), scopes(nest))
    if compiler.merge_repeated:
        merging.merge_repeated(flow, compiler.merge_window_bytes, decisions)
    if compiler.remove_dead:
        merging.remove_dead(flow, decisions)
    costs = residency.price_transfers(flow, spec)
    spills: dict[int, Spills] = {}
    if compiler.fit_sbuf:
        costs, spills = residency.fit_sbuf(flow, costs, spec, decisions)
    interface = frozenset(program.arguments) | {t for t in program.results if t is not None}
    graph = depend(flow, spec, compiler.rotation)
    timeline = schedule(flow, graph, costs, spec, compiler.windows)
    fields, true = counters.summary(flow, costs, timeline, interface, spec)
    return KernelProfile(
        timeline.latency_ns * 1e-6,
        fields,
        tuple(decisions),
        _named(flow, spills),
        true,
        spec.name,
        spec.calibration,
        flow,
        costs,
        timeline,
    )


def _named(flow: Stream, spills: dict[int, Spills]) -> dict[str, Spills]:
    names: dict[int, str] = {}
    for unit in flow.units:
        names.setdefault(unit.site, unit.tensor.name)
    return {f"{names[site]} ({flow.sites[site]})": moved for site, moved in spills.items()}


__all__ = ["Compiler", "KernelProfile", "SourceLine", "profile", "replace"]
