"""The decisions of the Neuron compiler that are emulated, in their order, as a table.

A pass works on a `Compilation`: first on its tree of loops, then, expanded, on the stream of its
instances, and last on the instances of all cores of the launch. Each can be switched off by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from accelopt.hardware import Hardware
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Program, Tensor
from accelopt.sim.timing.compiler import (
    banks,
    common_subexpressions,
    copy_engines,
    double_buffering,
    fill_trimming,
    loop_fusion,
    lowering,
    overlaps,
    prefetch,
    psum_copy_merging,
    psum_placement,
    recomputation,
    renaming,
    residency,
    transfers_between_rounds,
    transposing,
    variance_lowering,
    widening,
)
from accelopt.sim.timing.compiler.spilling import Spills
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.machine.dependence import DependenceGraph, depend
from accelopt.sim.timing.machine.transfers import Transfer, price_transfers
from accelopt.sim.timing.stream.cells import stream
from accelopt.sim.timing.stream.expansion import expand, scopes
from accelopt.sim.timing.stream.operation import Decisions, Nest
from accelopt.sim.timing.stream.stream import Stream


@dataclass
class Compilation:
    """A kernel on its way through the passes, with the decisions taken so far."""

    program: Program
    spec: Hardware
    bounds: CompilerBounds
    shared: frozenset[Tensor] = frozenset()  # HBM that another core may change or wants to read
    decisions: Decisions = field(default_factory=Decisions)
    nest: Nest = field(init=False)
    flow: Stream = field(init=False)
    costs: list[Transfer | None] = field(init=False)
    spills: dict[int, Spills] = field(default_factory=dict)
    drained: frozenset[int] = frozenset()  # transfers that begin a round with nothing under way
    behind: dict[int, list[int]] = field(default_factory=dict)  # loads after who is issued first
    spilled: frozenset[int] = frozenset()  # cores whose SBUF does not hold everything
    signals: dict[int, list[int]] = field(default_factory=dict)  # for whom one waits at barriers
    most_ms: float = math.inf  # of transfers, from which on nobody wants to know the latency
    graph: DependenceGraph = field(init=False)

    def expand(self) -> None:
        """From loops to instances. Raises KernelError for directly allocated tiles that destroy
        each other."""
        instances = expand(self.nest)
        overlaps.refuse_overlaps(instances, self.spec)
        self.flow = stream(instances, scopes(self.nest))
        self.flow.shared = self.shared
        del self.nest


PassFunction = Callable[[Compilation], None]


def _nothing(at: Compilation) -> None:
    pass


@dataclass(frozen=True)
class Pass:
    """One decision: what it does, and what is done in its place when it is switched off.

    `question` says the other outcome in words, where nothing in a kernel tells which one the
    compiler took. What `rewrites` is not done by a compiler that leaves the author's text as it is.
    """

    name: str
    do: PassFunction
    otherwise: PassFunction = _nothing
    question: str = ""
    rewrites: bool = False


def _loops(change: Callable[[Nest, Compilation], Nest]) -> PassFunction:
    def step(at: Compilation) -> None:
        at.nest = change(at.nest, at)

    return step


def _lower(choose_engines: bool) -> PassFunction:
    def step(at: Compilation) -> None:
        at.nest = lowering.lower(at.program, at.decisions, choose_engines=choose_engines)

    return step


def _merge_repeated(at: Compilation) -> None:
    common_subexpressions.merge_repeated(at.flow, at.bounds, at.decisions)


def _merge_loads(at: Compilation) -> None:
    if not at.bounds.rewrites:
        common_subexpressions.merge_loads(at.flow, at.bounds, at.decisions)


def _balance_copies(at: Compilation) -> None:
    copy_engines.balance_copies(at.flow, at.spec, at.decisions)


def _price(at: Compilation) -> None:
    at.costs = price_transfers(at.flow, at.spec, at.bounds)


def _fit_sbuf(at: Compilation) -> None:
    _price(at)
    at.costs, at.spills = residency.fit_sbuf(at.flow, at.costs, at.spec, at.bounds, at.decisions)
    moved = sum(cost.bytes for cost in at.costs if cost)
    least = moved / at.spec.dma_peak_bytes_per_ns * 1e-6
    if least > at.most_ms:
        raise KernelError("too_slow", f"Its transfers alone take {least:.4g} ms.")
    at.spilled = frozenset({0} if at.spills else ())


def _transpose_loads(nest: Nest, at: Compilation) -> Nest:
    if at.bounds.transposes_after_loading:
        return transposing.transpose_after_loading(nest, at.decisions)
    return nest


def _make_results_apart(nest: Nest, at: Compilation) -> Nest:
    if at.bounds.makes_results_apart:
        return recomputation.make_results_apart(nest, at.decisions)
    return nest


def _drain_transfers(at: Compilation) -> None:
    at.drained = transfers_between_rounds.first_of_rounds(at.flow, at.bounds, at.decisions)
    at.costs = transfers_between_rounds.with_latency(at.costs, at.drained, at.spec)


def _separate_rounds(at: Compilation) -> None:
    at.behind = double_buffering.separate_rounds(at.flow, at.spec, at.decisions)


def _depend(rotate: bool) -> PassFunction:
    def step(at: Compilation) -> None:
        at.graph = depend(
            at.flow,
            at.spec,
            at.bounds if rotate and at.bounds.rewrites else None,
            spilled=at.spilled,
            behind=at.behind,
            signals=at.signals,
            decisions=at.decisions,
        )

    return step


def _load_in_time(at: Compilation) -> None:
    if not at.bounds.rewrites:
        prefetch.load_in_time(at.flow, at.graph, at.costs, at.spec, at.decisions)


LOOP_PASSES = (
    Pass("choose_engines", _lower(choose_engines=True), _lower(choose_engines=False)),
    Pass("transpose_loads", _loops(_transpose_loads)),
    Pass(
        "write_out_variances",
        _loops(lambda nest, at: variance_lowering.write_out_variances(nest, at.decisions)),
    ),
    Pass(
        "make_results_apart",
        _loops(_make_results_apart),
        question="both results of an activation made at once",
        rewrites=True,
    ),
    Pass(
        "fuse_loops",
        _loops(lambda nest, at: loop_fusion.fuse_loops(nest, at.spec, at.decisions)),
        question="loops left apart",
        rewrites=True,
    ),
    Pass(
        "widen_tiny_loops",
        _loops(lambda nest, at: widening.widen_tiny_loops(nest, at.bounds, at.decisions)),
        question="tiny loops left as written",
        rewrites=True,
    ),
    Pass(
        "broadcast_partitions",
        _loops(lambda nest, at: lowering.broadcast_partitions(nest, at.decisions)),
    ),
    Pass(
        "read_psum_directly",
        _loops(lambda nest, at: psum_placement.read_psum_directly(nest, at.decisions)),
        rewrites=True,
    ),
    Pass(
        "place_in_psum",
        _loops(lambda nest, at: psum_placement.place_in_psum(nest, at.decisions)),
        question="no result placed in PSUM",
        rewrites=True,
    ),
)

INSTANCE_PASSES = (
    Pass("merge_repeated", _merge_repeated, rewrites=True),
    Pass("trim_fills", lambda at: fill_trimming.trim_fills(at.flow, at.decisions)),
    Pass("remove_dead", lambda at: common_subexpressions.remove_dead(at.flow, at.decisions)),
    Pass(
        "rename_refilled",
        lambda at: renaming.rename_refilled(at.flow, at.bounds, at.decisions),
        question="refilled tiles keep their storage",
    ),
    Pass("merge_loads", _merge_loads),
    Pass(
        "merge_evictions",
        lambda at: psum_copy_merging.merge_evictions(at.flow, at.spec, at.decisions),
        rewrites=True,
    ),
    Pass("balance_copies", _balance_copies),
    Pass("fit_psum", lambda at: banks.fit_psum(at.flow, at.spec, at.decisions)),
    Pass("fit_sbuf", _fit_sbuf, _price),
    Pass(
        "drain_transfers",
        _drain_transfers,
        question="transfers of every loop run on from round to round",
    ),
    Pass(
        "separate_rounds",
        _separate_rounds,
        question="rounds of every loop overlap",
        rewrites=True,
    ),
)

LAUNCH_PASSES = (
    Pass(
        "rotate_buffers",
        _depend(rotate=True),
        _depend(rotate=False),
        question="as many buffers as SBUF holds",
    ),
    Pass("load_in_time", _load_in_time),
)

PASSES = (*LOOP_PASSES, *INSTANCE_PASSES, *LAUNCH_PASSES)
