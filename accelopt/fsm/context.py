"""What the manager is given, and everything that its states find out and change."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from accelopt.evaluation import Case
from accelopt.fsm.worker.context import WorkerSetup
from accelopt.nodes import Job, Node, Result
from accelopt.search.bottleneck_search import BeamSearch
from accelopt.stages.jobs import Knowledge, Work
from accelopt.stages.run import Run


@dataclass
class OptimizationContext:
    """One optimisation. What stands above the line is given, the rest the states fill in.

    `step` makes the work of one worker of its setup, of which `setup` has what all workers share.
    `deadline` is the seconds that a round's workers have together.
    """

    run: Run
    case: Case
    strategy: BeamSearch
    max_rounds: int
    folder: Path
    database: Path
    step: Callable[[WorkerSetup], Work]
    setup: WorkerSetup
    deadline: float
    logger: logging.Logger
    # ---
    start: Node | None = None
    eager_ms: float = inf
    compiled_ms: float = inf
    jobs: list[Job] = field(default_factory=list)  # of this round
    told: list[Result] = field(default_factory=list)  # of this round
    results: list[Result] = field(default_factory=list)  # of all rounds
    knowledge: Knowledge = field(default_factory=Knowledge)
    judged: set[str] = field(default_factory=set)
    result: dict[str, object] | None = None
