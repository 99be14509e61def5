"""How fast timing is: the NKIBench kernels of this repository, and kernels of many instructions.

    python benchmarks/timing_speed.py [--instructions 1000000] [--unrolled [NAME]]

Prints seconds of wall clock and of processor for tracing, checking and timing, and the peak memory of
the process. Timing needs no data, so none is made. With `--unrolled` the kernels are those of
`unrolled_kernels.py`, all or one: nothing but Python's own loops makes their instructions, and no two
rounds are alike. Each runs in a process of its own, at a tenth of the size and at all of it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from timing_corpus import NKIBENCH_ARGUMENTS, load, problem_of, specs
from unrolled_kernels import KERNELS as UNROLLED

from accelopt.sim import rules, standin
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.timing import profile

KERNELS = Path(__file__).parents[1] / "NKIBench" / "kernels"


def long_kernel(x: Any, rounds: int) -> Any:
    """Ten instructions a round: a load, eight on three engines, a store."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rounds):
        span = nl.ds(i * 128, 128)
        tile = nl.load(x[0:128, span])
        raised = nisa.activation(nl.exp, tile, scale=1.5)
        turned = nl.copy(nisa.nc_transpose(raised))
        added = nisa.tensor_tensor(turned, tile, nl.add)
        halved = nisa.tensor_scalar(added, nl.multiply, 0.5)
        inverse = nisa.reciprocal(halved)
        mixed = nisa.tensor_tensor(inverse, raised, nl.multiply)
        nl.store(out[0:128, span], nl.exp(mixed))
    return out


def measure(name: str, trace: Callable[[], Any]) -> tuple[float, float]:
    """Times one kernel and prints a line; returns wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    program = trace()
    traced = time.process_time() - cpu
    rules.check(program)
    checked = time.process_time() - cpu - traced
    found = profile(program)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    n = len(found.run.stream)
    print(
        f"{name:44s} {n:9,d} instructions  {wall:6.2f} s wall  {cpu:6.2f} s cpu "
        f"({traced:5.2f} tracing, {checked:5.2f} rules)  {cpu / n * 1e6:6.1f} us each"
    )
    return wall, cpu


def measure_unrolled(name: str, instructions: int) -> None:
    """Times one of the unrolled kernels; for a process of its own."""
    standin.install()
    kernel, shapes, each, further = UNROLLED[name]
    arguments = [*specs(shapes), instructions // each, *further]
    measure(f"unrolled: {name}", lambda: trace_kernel(kernel, arguments))
    print_peak()


def print_peak() -> None:
    """The most memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:,.0f} MiB", flush=True)


def unrolled(names: list[str], instructions: int) -> None:
    """Prints the table of unrolled kernels."""
    for name in names:
        for size in (instructions // 10, instructions):
            child = multiprocessing.get_context("spawn").Process(
                target=measure_unrolled, args=(name, size)
            )
            child.start()
            child.join()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", type=int, default=1_000_000)
    parser.add_argument("--unrolled", nargs="?", const="all", choices=["all", *UNROLLED])
    options = parser.parse_args()
    if options.unrolled:
        names = list(UNROLLED) if options.unrolled == "all" else [options.unrolled]
        unrolled(names, options.instructions)
        return
    standin.install()
    total_wall = total_cpu = 0.0
    for path in sorted(KERNELS.glob("*.py")):
        arguments = specs(NKIBENCH_ARGUMENTS[problem_of(path.stem)])
        wall, cpu = measure(
            path.stem.removesuffix("_0"),
            lambda p=path, a=arguments: trace_kernel(load(p).kernel, a),
        )
        total_wall += wall
        total_cpu += cpu
    print(
        f"{'together':44s} {'':9s}               {total_wall:6.2f} s wall  {total_cpu:6.2f} s cpu"
    )
    for size in (options.instructions // 10, options.instructions):
        shapes = [*specs([(128, size // 10 * 128)]), size // 10]
        measure(f"{size:,} instructions", lambda s=shapes: trace_kernel(long_kernel, s))
    print_peak()


if __name__ == "__main__":
    main()
