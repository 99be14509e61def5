"""The request for one evaluation: solution, problem, device, and how much is checked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Trace
from accelopt.kernels.gpu.bench.process.comparison import Tolerance
from accelopt.sandbox import Start, spawn
from accelopt.time_limits import CALL_SECONDS

# Problems of many steps, where a library product is one step among others.
COMPOSITE = ("moe", "mamba", "gdn", "dsa")


class TimingPlan(NamedTuple):
    """How thoroughly a solution is timed.

    The last round, which the profiler watches, does not count. Beside values of other scales, `stress` of
    the other kinds are drawn (see `input_draws`), and with `shapes` another workload. Timed calls are
    judged for `judging_seconds`; those of the last rounds in any case.
    """

    sets: int = 8
    least_rounds: int = 5
    most_rounds: int = 15
    seconds: float = 1.5
    package: bool = True
    package_trials: int = 3
    warmup_runs: int = 10
    iterations: int = 50
    steady: float = 0.005
    stress: int = 4
    shapes: bool = True
    judging_seconds: float = 60.0


COMPILED = ("cuda", "cpp")


class Task(NamedTuple):
    """A solution, the problem it claims to solve, and where and how to try it.

    `starting` says how its processes come to be: `fork` is for a process that has imported what they
    need, and holds nothing else.
    """

    root: Path
    definition: Definition
    workload: Trace
    solution: Solution
    device: str = "cuda:0"
    destination_passing_style: bool | None = None
    timeout_seconds: float = CALL_SECONDS
    tolerance: Tolerance = Tolerance()
    plan: TimingPlan = TimingPlan()
    allowed_operators: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    start: Solution | None = None
    refuse_unstable: bool = True
    rival: bool = False  # a library's own kernel, to compare with: source and work rules are off
    starting: Start = spawn

    @property
    def must_be_triton(self) -> bool:
        """Whether Triton kernels have to do the work."""
        return self.solution.spec.language == "triton" and not self.rival

    @property
    def must_work(self) -> bool:
        """Whether the solution's own kernels have to do the work, in whatever language."""
        return self.must_be_triton or (self.is_compiled and not self.rival)

    @property
    def is_compiled(self) -> bool:
        """Whether its sources are C++ or CUDA."""
        return self.solution.spec.language in COMPILED

    @property
    def must_be_exact(self) -> bool:
        """Whether rounding more than others is a fault: where the definition does not allow it by tolerances
        wider than the package's own, or by what it is."""
        wide = any(
            own > usual for own, usual in zip(self.tolerance[:2], Tolerance()[:2], strict=True)
        )
        free = self.is_composite or self.definition.op_type.startswith("sampling")
        return not (self.rival or wide or free or self.tolerance.matched_ratio < 1.0)

    @property
    def is_composite(self) -> bool:
        """Whether a library may do a step of the problem."""
        return self.definition.op_type.startswith(COMPOSITE)
