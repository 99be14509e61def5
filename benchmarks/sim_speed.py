"""How fast the simulated core runs NKIBench kernels, against NumPy on the same problem.

    python benchmarks/sim_speed.py [FOLDER] [--only NAME] [--repeats N] [--check]
    python benchmarks/sim_speed.py --unrolled N

FOLDER holds a `summary.json` of NKIBench's form (ours by default). Per problem, the kernel's Program
and the reference's `forward` run in one process, alternating; printed are the ratio of their median
times, the seconds to trace and verify and to compile, and peak resident memory. `--check` compares results.
The target is a geometric mean of at most 1.5 and no problem above 4.

With `--unrolled` it measures what each step before the first number costs a kernel of N instructions
that Python unrolls: no loop stands for its iterations there, so every instruction is paid for.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import math
import multiprocessing
import resource
import statistics
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from accelopt.evaluation import Case
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.sim import standin

ROOT = Path(__file__).resolve().parent.parent
GOAL_MEAN, GOAL_WORST, GOAL_BYTES, GOAL_TRACE = 1.5, 4.0, 8 << 30, 2.0


class Measurement(NamedTuple):
    """One problem: median seconds of core and NumPy, seconds to trace and to compile, peak resident
    bytes before NumPy's first run, and the relative L2 difference of the results (NaN when not
    asked for)."""

    name: str
    core: float
    numpy: float
    trace: float
    compile: float
    peak: int
    difference: float

    @property
    def ratio(self) -> float:
        """Time on the simulated core over time in NumPy."""
        return self.core / self.numpy


def load_module(path: str) -> ModuleType:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def timed(function: Any, *args: Any) -> tuple[float, Any]:
    """Seconds, and what the function returned."""
    gc.collect()
    start = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - start, result


def relative_difference(found: Any, wanted: Any) -> float:
    """The largest relative L2 difference over outputs, in float64."""
    pairs = zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True)
    worst = 0.0
    for ours, theirs in pairs:
        difference = np.asarray(ours, np.float64) - theirs
        worst = max(worst, float(np.linalg.norm(difference) / np.linalg.norm(theirs)))
    return worst


def peak_bytes() -> int:
    """The most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def trace_and_check(kernel: Any, arguments: list[Any]) -> Any:
    """The kernel's Program, as another process has it, verified."""
    from accelopt.sim import rules, serial
    from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel

    program = serial.transferred(trace_kernel(kernel, arguments))
    rules.check(program)
    return program


def measure(case: Case, repeats: int, check: bool) -> Measurement:
    """Runs one problem, alternating between the core and NumPy."""
    standin.install()
    from accelopt.sim.compute import compile_program
    from accelopt.sim.dialects.neuronxcc.arguments import tensors_of
    from accelopt.sim.dialects.neuronxcc.launch import shape_results

    np.random.seed(0)
    task, module = load_module(case.task), load_module(case.kernel)
    kernel = getattr(module, "kernel", None) or module.optimized_kernel
    inputs = task.get_inputs()
    arguments = task.transform_to_nki_inputs(inputs)
    trace_seconds, program = timed(trace_and_check, kernel, arguments)
    compile_seconds, executable = timed(compile_program, program)
    arrays = tensors_of(arguments)
    core: list[float] = []
    reference: list[float] = []
    difference, peak = math.nan, 0
    for number in range(repeats):
        seconds, results = timed(executable.run, arrays)
        core.append(seconds)
        peak = peak or peak_bytes()
        seconds, wanted = timed(task.forward, *inputs)
        reference.append(seconds)
        if check and number == 0:
            shaped = shape_results(program, results)
            outputs = task.transform_nki_outputs(shaped, wanted)
            difference = relative_difference(outputs, wanted)
        del results, wanted
    return Measurement(
        case.case_name, statistics.median(core), statistics.median(reference), trace_seconds,
        compile_seconds, peak, difference,
    )  # fmt: skip


def measure_alone(case: Case, repeats: int, check: bool) -> Measurement:
    """In a process of its own, so that peak memory is the problem's."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(measure, (case, repeats, check))


def unrolled_kernel(x: Any, rounds: int) -> Any:
    """Ten instructions a round."""
    from accelopt.sim.dialects.neuronxcc import isa as nisa
    from accelopt.sim.dialects.neuronxcc import language as nl

    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights = nl.load(x[0:128, 0:128])
    for i in nl.static_range(rounds):
        tile = nl.load(x[0:128, i * 512 : (i + 1) * 512])
        product = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        product[0:128, 0:512] += nisa.nc_matmul(weights, tile)
        raised = nisa.activation(nl.exp, product, scale=0.5)
        added = nisa.tensor_tensor(raised, tile, nl.add)
        scaled = nisa.tensor_scalar(added, nl.multiply, 2.0, op1=nl.add, operand1=1.0)
        shifted = nl.exp(scaled - nl.max(scaled, axis=1))
        normal = shifted / nl.sum(shifted, axis=1)
        nl.store(out[0:128, i * 512 : (i + 1) * 512], normal)
    return out


def measure_unrolled(instructions: int) -> None:
    """Prints microseconds of processor time an instruction, step by step."""
    from accelopt.sim import rules, serial
    from accelopt.sim.compute import compile_program
    from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
    from accelopt.sim.trace import AbstractTensor

    rounds = max(instructions // 10, 1)
    argument = AbstractTensor((128, 512 * rounds), np.dtype(np.float32))

    def step(name: str, function: Any, *args: Any) -> Any:
        gc.collect()
        start = time.process_time()
        result = function(*args)
        each = (time.process_time() - start) / (rounds * 10) * 1e6
        print(f"{name:<12}{each:8.1f} us an instruction{peak_bytes() / 2**30:9.2f} GiB", flush=True)
        return result

    program = step("trace", trace_kernel, unrolled_kernel, [argument, rounds])
    step("verify", rules.check, program)
    data = step("write", serial.dumps, program)
    step("compile", compile_program, step("read", serial.loads, data))


def show(row: Measurement) -> str:
    """One line of the table."""
    return (
        f"{row.name:<44}{row.core:9.3f}{row.numpy:9.3f}{row.ratio:8.2f}"
        f"{row.trace:8.2f}{row.compile:8.2f}{row.peak / 2**30:9.2f}{row.difference:11.1e}"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT), help="holds summary.json")
    parser.add_argument("--only", default="", help="part of the names of the problems to run")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side")
    parser.add_argument("--check", action="store_true", help="compare results with the reference")
    parser.add_argument("--unrolled", type=int, default=0, metavar="N", help="instructions")
    options = parser.parse_args()
    if options.unrolled:
        measure_unrolled(options.unrolled)
        return
    cases = [c for c in read_benchmark(options.folder).cases if options.only in c.case_name]
    print(f"{'problem':<44}{'core s':>9}{'numpy s':>9}{'ratio':>8}{'trace':>8}{'compile':>8}"
          f"{'peak GiB':>9}{'difference':>11}")  # fmt: skip
    rows: list[Measurement] = []
    for case in cases:
        rows.append(measure_alone(case, options.repeats, options.check))
        print(show(rows[-1]), flush=True)
    if rows:
        mean = math.exp(statistics.fmean(math.log(row.ratio) for row in rows))
        worst = max(row.ratio for row in rows)
        print(f"geometric mean {mean:.2f} (goal {GOAL_MEAN}), worst {worst:.2f} (goal {GOAL_WORST}), "
              f"peak {max(row.peak for row in rows) / 2**30:.2f} GiB (goal {GOAL_BYTES >> 30}), "
              f"slowest trace {max(row.trace for row in rows):.2f} s (goal {GOAL_TRACE})")  # fmt: skip


if __name__ == "__main__":
    main()
