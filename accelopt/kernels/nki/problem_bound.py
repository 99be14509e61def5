"""How near a kernel is to what the hardware can do: the least time of its problem, from the Algorithm of the
reference, or that which the kernel lifts to. No kernel of the problem takes less; those of one form have one number."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.evaluation import Row
from accelopt.hardware import Hardware
from accelopt.hardware.least_time import ASPECTS, LeastTime, Work, least_time
from accelopt.sim.program import Program


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
    """The bound of the problem that a Program solves, by its `reference`, which is run, where that has an Algorithm."""
    # Lifting is not loaded by everybody who can be told a bound.
    from accelopt.algorithm.ir import Algorithm
    from accelopt.algorithm.least_work import least_work
    from accelopt.algorithm.traced_array import NotTraced
    from accelopt.kernels.nki.lift.failure import NotLifted
    from accelopt.kernels.nki.lift.lifting import lift
    from accelopt.kernels.nki.rescheduling.lifted_reference import problem_algorithm

    results = [tensor for tensor in program.results if tensor is not None]
    kept = frozenset(n for n, tensor in enumerate(results) if tensor in program.arguments)
    algorithm: Algorithm | None = None
    with suppress(ConfigError, NotTraced):
        algorithm = problem_algorithm(reference, program) if reference else None
    computes = "reference" if algorithm else "kernel"
    try:
        found, unlifted = least_work(algorithm or lift(program), kept), ""
    except (NotLifted, RecursionError) as error:
        unlifted = getattr(error, "reason", "its expressions are too deep")
        # Every element of these is written; what is read, and written to an argument, is not known.
        own = (tensor for n, tensor in enumerate(results) if n not in kept)
        found = Work(0, sum(math.prod(one.shape) * one.dtype.itemsize for one in own))
    cores = max(launch_cores(program.dialect, spec), program.ranks)
    found = found._replace(cores=cores)
    return ProblemBound(
        target=spec.name, least=least_time(found, spec), unlifted=unlifted, cores=cores,
        computes=computes,
    )  # fmt: skip


def launch_cores(dialect: str, spec: Hardware) -> int:
    """How many cores a launch may use: in `nki`, from trn2 on, the two of a logical core (LNC 2)."""
    return 2 if dialect == "nki" and spec.generation >= 3 else 1


class FoundBound(Row):
    """A worker's answer: a bound, where there is one."""

    bound: ProblemBound | None = None
