"""The decisions of the Neuron compiler that are emulated, in their order, as a table.

A pass works on a `Compilation`: first on its tree of loops, then, expanded, on the stream of its
instances, and last on the instances of all cores of the launch. Each can be switched off by its name.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

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
    widening,
)
from accelopt.sim.timing.compiler.spilling import Spills
from accelopt.sim.timing.compiler_constants import CompilerBounds
from accelopt.sim.timing.machine.dependence import DependenceGraph, depend
from accelopt.sim.timing.machine.transfers import Transfer, price_transfers
from accelopt.sim.timing.stream import cells
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
    stream: Stream = field(init=False)
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
        self.stream = cells.stream(instances, scopes(self.nest))
        self.stream.shared = self.shared
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


def _calls(
    function: Callable[..., Any],
    gives: str = "",
    where: Callable[[CompilerBounds], bool] = lambda bounds: True,
) -> PassFunction:
    """The pass of a function of a Compilation's fields, by the names of its parameters: `gives` is the field that
    its answer becomes, `where` says which compilers decide so."""
    names = tuple(inspect.signature(function).parameters)

    def step(at: Compilation) -> None:
        if where(at.bounds):
            answer = function(*(getattr(at, name) for name in names))
            if gives:
                setattr(at, gives, answer)

    return step


_changes_loops = functools.partial(_calls, gives="nest")


def _lower(choose_engines: bool) -> PassFunction:
    def lower(program: Program, decisions: Decisions) -> Nest:
        return lowering.lower(program, decisions, choose_engines=choose_engines)

    return _changes_loops(lower)


_price = _calls(price_transfers, "costs")


def _fit_sbuf(at: Compilation) -> None:
    _price(at)
    at.costs, at.spills = residency.fit_sbuf(at.stream, at.costs, at.spec, at.bounds, at.decisions)
    moved = sum(cost.bytes for cost in at.costs if cost)
    least = moved / at.spec.dma_peak_bytes_per_ns * 1e-6
    if least > at.most_ms:
        raise KernelError("too_slow", f"Its transfers alone take {least:.4g} ms.")
    at.spilled = frozenset({0} if at.spills else ())


def _drain_transfers(at: Compilation) -> None:
    at.drained = transfers_between_rounds.first_of_rounds(at.stream, at.bounds, at.decisions)
    at.costs = transfers_between_rounds.with_latency(at.costs, at.drained, at.spec)


def _depend(rotate: bool) -> PassFunction:
    def step(at: Compilation) -> None:
        at.graph = depend(
            at.stream,
            at.spec,
            at.bounds if rotate and at.bounds.rewrites else None,
            spilled=at.spilled,
            behind=at.behind,
            signals=at.signals,
            decisions=at.decisions,
        )

    return step


LOOP_PASSES = (
    Pass("choose_engines", _lower(choose_engines=True), _lower(choose_engines=False)),
    Pass(
        "transpose_loads",
        _changes_loops(
            transposing.transpose_after_loading, where=lambda b: b.transposes_after_loading
        ),
    ),
    Pass("write_out_variances", _changes_loops(lowering.write_out_variances)),
    Pass(
        "make_results_apart",
        _changes_loops(recomputation.make_results_apart, where=lambda b: b.makes_results_apart),
        question="both results of an activation made at once",
        rewrites=True,
    ),
    Pass(
        "fuse_loops",
        _changes_loops(loop_fusion.fuse_loops),
        question="loops left apart",
        rewrites=True,
    ),
    Pass(
        "widen_tiny_loops",
        _changes_loops(widening.widen_tiny_loops),
        question="tiny loops left as written",
        rewrites=True,
    ),
    Pass("broadcast_partitions", _changes_loops(lowering.broadcast_partitions)),
    Pass("read_psum_directly", _changes_loops(psum_placement.read_psum_directly), rewrites=True),
    Pass(
        "place_in_psum",
        _changes_loops(psum_placement.place_in_psum),
        question="no result placed in PSUM",
        rewrites=True,
    ),
)

INSTANCE_PASSES = (
    Pass("merge_repeated", _calls(common_subexpressions.merge_repeated), rewrites=True),
    Pass("trim_fills", _calls(fill_trimming.trim_fills)),
    Pass("remove_dead", _calls(common_subexpressions.remove_dead)),
    Pass(
        "rename_refilled",
        _calls(renaming.rename_refilled),
        question="refilled tiles keep their storage",
    ),
    Pass("merge_loads", _calls(common_subexpressions.merge_loads, where=lambda b: not b.rewrites)),
    Pass("merge_evictions", _calls(psum_copy_merging.merge_evictions), rewrites=True),
    Pass("balance_copies", _calls(copy_engines.balance_copies)),
    Pass("fit_psum", _calls(banks.fit_psum)),
    Pass("fit_sbuf", _fit_sbuf, _price),
    Pass(
        "drain_transfers",
        _drain_transfers,
        question="transfers of every loop run on from round to round",
    ),
    Pass(
        "separate_rounds",
        _calls(double_buffering.separate_rounds, "behind"),
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
    Pass("load_in_time", _calls(prefetch.load_in_time, where=lambda b: not b.rewrites)),
)

PASSES = (*LOOP_PASSES, *INSTANCE_PASSES, *LAUNCH_PASSES)
