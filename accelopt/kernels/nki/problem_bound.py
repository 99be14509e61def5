"""How near a kernel is to what the hardware can do: the least time of its problem, from the Algorithm that
the kernel lifts to, or its reference's. No kernel of the problem takes less; those of one form have one number."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from accelopt.evaluation import Row
from accelopt.hardware import Hardware
from accelopt.hardware.least_time import ASPECTS, LeastTime, Work, least_time
from accelopt.sim.program import Program
from accelopt.time_limits import SOON_SECONDS

if TYPE_CHECKING:
    from accelopt.algorithm.ir import Algorithm


class ProblemBound(Row):
    """The least time of a problem on a `target`, on all cores that a launch may use. `unlifted` says why it is of the bytes of
    the outputs alone; empty where it is of the whole Algorithm, which is what `computes` it."""

    target: str
    least: LeastTime
    unlifted: str = ""
    cores: int = 1
    computes: str = "kernel"

    @property
    def latency_ms(self) -> float:
        """The least time in milliseconds."""
        return self.least.latency_ms

    def sentence(self, latency_ms: float, used: int = 0) -> str:
        """What the bound is made of, and the share that a kernel of `latency_ms` on `used` cores reaches."""
        ms = dict(zip(ASPECTS.values(), self.least, strict=True))
        if self.unlifted:
            why = self.unlifted.rstrip(".").partition("\n")[0]
            parts = f"outputs once; inputs, products and elements are not known: {why}"
        else:
            listed = ", ".join(f"{name} {time:.4g}" for name, time in ms.items() if time)
            parts = f"from what the {self.computes} computes: {listed} ms"
        where = (
            self.target if self.cores == 1 else f"the {self.cores} cores of a {self.target} launch"
        )
        fewer = f", on {used} of them," if 0 < used < self.cores else ""
        return (
            f"No kernel of this problem takes less than {self.latency_ms:.4g} ms on {where} "
            f"({parts}): this one{fewer} is at {self.least.fraction(latency_ms):.1%} of bound."
        )


def problem_bound(program: Program, spec: Hardware, reference: Path | None = None) -> ProblemBound:
    """The bound of the problem that a Program solves; by its `reference`, which is run then, where the Program does
    not lift, or not soon."""
    # Lifting is not loaded by everybody who can be told a bound.
    from accelopt.algorithm.least_work import least_work
    from accelopt.kernels.nki.lift.failure import NotLifted

    results = [tensor for tensor in program.results if tensor is not None]
    kept = frozenset(n for n, tensor in enumerate(results) if tensor in program.arguments)
    computes, unlifted = "kernel", ""
    try:
        algorithm, computes = _algorithm(program, reference)
        found = least_work(algorithm, kept)
    except (NotLifted, RecursionError) as error:
        unlifted = getattr(error, "reason", "its expressions are too deep")
        # Every element of these is written; what is read, and written to an argument, is not known.
        own = (tensor for n, tensor in enumerate(results) if n not in kept)
        found = Work(0, sum(one.bytes for one in own))
    cores = max(launch_cores(program.dialect, spec), program.ranks)
    found = found._replace(cores=cores)
    return ProblemBound(
        target=spec.name, least=least_time(found, spec), unlifted=unlifted, cores=cores,
        computes=computes,
    )  # fmt: skip


def _algorithm(program: Program, reference: Path | None) -> tuple[Algorithm, str]:
    """What a problem computes, and whether its kernel or its reference says so. Raises NotLifted."""
    from accelopt.kernels.nki.lift.failure import NotLifted
    from accelopt.kernels.nki.lift.lifting import lift
    from accelopt.kernels.nki.rescheduling.lifted_reference import problem_algorithm

    if reference is not None:
        with suppress(NotLifted):
            return lift(program, SOON_SECONDS), "kernel"
        with suppress(NotLifted):
            return problem_algorithm(reference, program), "reference"
    return lift(program), "kernel"


def launch_cores(dialect: str, spec: Hardware) -> int:
    """How many cores a launch may use: in `nki`, from trn2 on, the two of a logical core (LNC 2)."""
    return 2 if dialect == "nki" and spec.generation >= 3 else 1


class FoundBound(Row):
    """A worker's answer: a bound, where there is one."""

    bound: ProblemBound | None = None
