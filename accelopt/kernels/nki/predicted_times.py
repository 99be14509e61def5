"""Predicted times of many kernels that a search writes: traced and timed on the simulated core, without
data, in child processes."""

from __future__ import annotations

import math
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from accelopt.kernels.nki.devices.protocol import KernelArgument
from accelopt.time_limits import INSPECTION_SECONDS


class Refused(float):
    """An infinite time, and the rule that the kernel breaks."""

    reason: str

    def __new__(cls, reason: str) -> Refused:
        """An infinite number that knows its reason."""
        made = super().__new__(cls, math.inf)
        made.reason = reason
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return Refused, (self.reason,)


class Times(Protocol):
    """The predicted milliseconds of kernels, in order; infinitely many for one that breaks a rule, as
    `Refused` where it is known which, or that surely takes longer than `most_ms`."""

    def __call__(self, sources: Sequence[str], most_ms: float = math.inf) -> Sequence[float]:
        """Those of sources."""


NOT_KNOWN = "the reason is not known"


@contextmanager
def own_processes(arguments: Sequence[KernelArgument], target: str) -> Iterator[Times]:
    """Times sources on all cores, in processes that import the caller's main module anew. Sources that
    take longer than INSPECTION_SECONDS each raise TimeoutError. However this ends, the processes end
    with it; one that is killed from outside raises BrokenProcessPool."""
    timing = partial(simulated_ms, arguments=tuple(arguments), target=target)
    others = set(multiprocessing.active_children())

    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as executor:

        def times(sources: Sequence[str], most_ms: float = math.inf) -> list[float]:
            futures = [executor.submit(timing, source, most_ms=most_ms) for source in sources]
            limit = INSPECTION_SECONDS * max(1, len(sources))
            if wait(futures, limit).not_done:
                raise TimeoutError(f"timing {len(sources)} kernels took longer than {limit:.0f} s")
            return [future.result() for future in futures]

        try:
            yield times
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise


def simulated_ms(
    source: str, arguments: tuple[KernelArgument, ...], target: str, most_ms: float = math.inf
) -> float:
    """The predicted latency of a kernel that we wrote ourselves; `Refused` where it breaks a rule, or
    its transfers alone take longer than `most_ms`. Runs in a process of its own: it makes `neuronxcc` the simulated one."""
    from accelopt.hardware import TARGETS
    from accelopt.kernels.nki.devices.kernel_file import load_kernel
    from accelopt.kernels.nki.devices.tracing import abstract
    from accelopt.sim import rules, standin, timing
    from accelopt.sim.dialects.dialect import trace_kernel
    from accelopt.sim.errors import KernelError

    standin.install(always=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "kernel.py")
            path.write_text(source, encoding="utf-8")
            program = trace_kernel(load_kernel(str(path)), abstract(arguments), {}, target=target)
        if broken := rules.verify(program):
            return Refused(str(broken[0]))
        return timing.profile(program, TARGETS[target], most_ms=most_ms).latency_ms
    except KernelError as error:
        return Refused(str(error))
    except (
        LookupError,
        ArithmeticError,
        AssertionError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        return Refused(f"timing it failed with {type(error).__name__}: {error}")  # a bug of ours
