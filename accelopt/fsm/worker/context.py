"""What a worker is given, and everything that its states find out and change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.agents.proposer import Brief, Develops, GeneratedKernel, KernelView
from accelopt.evaluation import Bottleneck, Diagnosis
from accelopt.experience import Attempt, Finding, Reflexion
from accelopt.nodes import Job, Node
from accelopt.script_file_columns import plan_id
from accelopt.stages.experience import finding_of
from accelopt.stages.run import Run

MOST_REFINEMENTS = 3
MOST_SHARED = 10  # attempts and reflexions that the manager hands to its workers
LONGEST_ERROR = 2000  # characters of an attempt's error
LEAST_CHARACTERS = 100  # of a generated kernel
DIVERGENCE_PERCENT = 50.0  # slower than the best: the best is the current kernel again
MOST_BOTTLENECKS = 4  # that a judge is asked for
TOP_KERNELS = 5


AT_ROOFLINE = 95.0  # percent of a peak rate
CONFIRMED = 0.9  # of the algorithmic bound, where it is known, that must be reached besides

Turn = Callable[[], AbstractAsyncContextManager[Any]]


class WorkerSetup(NamedTuple):
    """What a manager gives a worker beyond its job; the common driver gives none of it.

    `folder` takes its files. `test_code` may refuse what the referee accepts. `eager` is PyTorch's
    time in milliseconds. `override` replaces the category of the bottleneck. A kernel that is slower
    than the best by more than `divergence` percent is left. `benchmark` and `profiling` give a turn.
    """

    worker_id: int | None = None
    folder: Path | None = None
    test_code: str = ""
    eager: float = inf
    override: str = ""
    divergence: float = DIVERGENCE_PERCENT
    benchmark: Turn = nullcontext
    profiling: Turn = nullcontext
    logger: logging.Logger = logging.getLogger("accelopt.fsm.worker")


class Efficiency(NamedTuple):
    """Fractions of the peak rates that a kernel reaches, in percent; `bound` is the least possible
    time over its own (0 to 1), None where that is not known."""

    compute: float = 0.0
    memory: float = 0.0
    bound: float | None = None

    @classmethod
    def of(cls, diagnosis: Diagnosis | None) -> Efficiency:
        """What a diagnosis says of it; 0 where there is none."""
        if diagnosis is None:
            return cls()
        compute, memory = diagnosis.compute_sol or 0.0, diagnosis.memory_sol or 0.0
        return cls(100 * compute, 100 * memory, diagnosis.fraction_of_peak)

    @property
    def combined(self) -> float:
        """The larger of both."""
        return max(self.compute, self.memory)

    @property
    def at_roofline(self) -> bool:
        """Whether nothing is left to gain: a peak rate is reached, and not by work in vain."""
        return self.combined >= AT_ROOFLINE and (self.bound is None or self.bound >= CONFIRMED)


UNKNOWN = Efficiency()


@dataclass
class WorkerContext:
    """One step of one worker. What stands above the line is given, the rest the states fill in."""

    job: Job
    view: KernelView
    run: Run
    developer: Develops
    setup: WorkerSetup = field(default_factory=WorkerSetup)
    # ---
    parent: Node = field(init=False)
    diagnosis: Diagnosis | None = None  # of the parent
    bottlenecks: tuple[Bottleneck, ...] = ()
    bottleneck: Bottleneck | None = None
    written: GeneratedKernel | None = None
    source: str | None = None  # what is to be tested next
    node: Node | None = None  # what was tested last
    failed: list[Node] = field(default_factory=list)  # what was tested before it
    refinements: int = 0
    error: str = ""
    efficiency: Efficiency = UNKNOWN  # of the node
    attempt: Attempt | None = None
    reflexion: Reflexion | None = None
    best_runtime: Node | None = None
    best_sol: Node | None = None
    sols: dict[str, Efficiency] = field(default_factory=dict)  # by the kernel's key
    current: Node | None = None  # what a next step would start from
    stop: str = ""
    metrics: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parent = self.job.node

    @property
    def worker_id(self) -> int:
        """The worker's number within the round, or the job's where nobody numbers workers."""
        return self.job.number if self.setup.worker_id is None else self.setup.worker_id

    @property
    def rank(self) -> int:
        """The 1-based number of the bottleneck that it is to take on."""
        return int(self.job.focus) if self.job.focus.isdigit() and int(self.job.focus) else 1

    @property
    def label(self) -> str:
        """Its kernel's label among a round's."""
        return plan_id(self.job.number, 0)

    @property
    def brief(self) -> Brief:
        """What the developer is asked. Only when a bottleneck was chosen."""
        assert self.bottleneck is not None
        best = self.best_runtime.latency if self.best_runtime else None
        return Brief(
            view=self.view,
            worker=self.job.number,
            bottleneck=self.bottleneck,
            bottlenecks=self.bottlenecks,
            rank=self.rank,
            best=best,
            eager=self.setup.eager,
            methods=self._methods(self.bottleneck),
        )

    def _methods(self, bottleneck: Bottleneck) -> tuple[str, ...]:
        """The canonical names of what relieves its resource: a judge's fixes are sentences."""
        known = self.diagnosis.bottlenecks if self.diagnosis else ()
        return next((b.methods for b in known if b.resource == bottleneck.resource), ())

    @property
    def finding(self) -> Finding | None:
        """The attempt with its reflexion, to be found again."""
        if self.attempt is None or self.bottleneck is None or self.written is None:
            return None
        return finding_of(
            self.parent,
            self.written.change,
            self.attempt,
            self.reflexion,
            method=self.written.method,
            resource=self.bottleneck.resource,
        )
