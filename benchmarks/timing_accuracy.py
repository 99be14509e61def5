"""Predicted against measured: the kernels that somebody timed on trn1.

    python benchmarks/timing_accuracy.py FOLDER... [--metrics] [--data shared/data]

FOLDERs are checkouts of `zhang677/AccelOpt` (NKIBench/kernels) and of `aws-neuron/aws-neuron-sdk`
at v2.26.1 (nki/examples, or general/nki/examples). None of those kernels is part of this repository.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.sim import standin
from accelopt.sim.nki.kernel import trace_kernel
from accelopt.sim.program import Program
from accelopt.sim.timing import Compiler, KernelProfile, profile
from accelopt.sim.trace import TensorSpec

F32 = np.dtype(np.float32)
EPSILON = 1e-5

NKIBENCH_ARGUMENTS: dict[str, list[Any]] = {
    "adamw": [(10944, 2048)] * 4,
    "add_rmsnorm_matmul": [(4096, 1024), (1024, 2048), EPSILON, (4096, 1024), (1024,)],
    "matmul_add_rmsnorm": [(4096, 2048), (2048, 2048), EPSILON, (4096, 2048), (2048,)],
    "rmsnorm_matmul": [(32, 128, 1024), (8, 128, 2048)],
    "matmul": [(32, 128, 40, 128), (40, 128, 12288)],
    "transpose_matmul": [(128, 16, 4096), (128, 16, 10944)],
    "lora": [(8, 4, 128, 40, 128), (40, 128, 12288), (40, 128, 128), (128, 12288)],
    "bmm": [(16, 4096, 64), (16, 64, 4096)],
    "bmm_softmax": [(16, 4096, 64), (16, 64, 4096)],
    "gqa_full": [(32, 128, 16, 128), (1, 8, 4, 128, 8, 128), (1, 32, 128, 1024)],
    "swiglu": [(8, 4, 128, 8, 128), (8, 128, 3072), (24, 128, 1024), (8, 128, 3072)],
    "silu": [(128, 32, 7168)],
    "rope_single_freq_apply": [(128, 262144), (64, 262144), (64, 262144)],
    "mamba": [(256, 7168), (256, 7168), (256, 16), (16, 7168), (16, 7168)],
}
"""What each problem's kernel takes, at the measured size."""


OLDER_COMPILER = Compiler(merge_repeated=False)
"""What the data calls an older compiler repeats the invariant product of mamba v1: its time is that
of nine N a step, not seven."""


class Measured(NamedTuple):
    """One timed kernel: how to trace it, and what the hardware said."""

    name: str
    program: Callable[[], Program]
    figures: dict[str, float]
    compiler: Compiler = Compiler()


def specs(shapes: list[Any], dtype: np.dtype = F32) -> list[Any]:
    """Shapes as arguments without data; numbers as they are."""
    return [TensorSpec(s, dtype) if isinstance(s, tuple) else s for s in shapes]


def load(path: Path) -> ModuleType:
    """A kernel file as a module."""
    found = importlib.util.spec_from_file_location(f"measured_{path.stem}", path)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def nkibench_problem(case_name: str) -> str:
    """The problem of a case name such as `matmul_K5120_M4096_N12288`."""
    return max((p for p in NKIBENCH_ARGUMENTS if case_name.startswith(p + "_")), key=len)


def nkibench(data: Path, folders: list[Path]) -> Iterator[Measured]:
    """The fourteen kernels with their counters."""
    with (data / "trn1_nkibench_measured.csv").open() as file:
        for row in csv.DictReader(file):
            name, relative = row.pop("case_name"), row.pop("kernel_file_in_public_repository")
            path = first_existing(folders, [relative])
            if path is None:
                continue
            arguments = specs(NKIBENCH_ARGUMENTS[nkibench_problem(name)])
            figures = {key: float(value) for key, value in row.items() if value}

            def program(path: Path = path, arguments: list[Any] = arguments) -> Program:
                return trace_kernel(load(path).kernel, arguments)

            yield Measured(name, program, figures)


def first_existing(folders: list[Path], candidates: list[str]) -> Path | None:
    """The first of the candidate files that some folder has."""
    for folder in folders:
        for candidate in candidates:
            if (folder / candidate).is_file():
                return folder / candidate
    return None


def tutorials(data: Path, folders: list[Path]) -> Iterator[Measured]:
    """The timings that the SDK's tutorials state."""
    with (data / "trn1_tutorials_measured.csv").open() as file:
        for row in csv.DictReader(file):
            relative = {
                "matrix_multiplication": "matrix_multiplication/matrix_multiplication_nki_kernels.py",
                "fused_mamba": "fused_mamba/mamba_nki_kernels.py",
            }[row["kernel"]]
            roots = ("nki/examples/", "general/nki/examples/", "src/tutorials/", "")
            path = first_existing(folders, [root + relative for root in roots])
            if path is None:
                continue
            if row["kernel"] == "matrix_multiplication":
                symbol = f"nki_matmul_{row['variant']}_"
                arguments = specs([(8192, 4096), (8192, 8192)], np.dtype(ml_dtypes.bfloat16))
                label = row["variant"]
            else:
                symbol = f"mamba_{row['variant']}"
                words = row["shape"].split()
                c, n, s = int(words[1]), int(words[3]), int(words[5])
                arguments = specs([(1, c, n), (1, c, n), (c, s), (1, s, n), (1, s, n)])
                label = f"{row['variant']} {c}x{n}"

            def program(
                path: Path = path, symbol: str = symbol, arguments: list[Any] = arguments
            ) -> Program:
                return trace_kernel(getattr(load(path), symbol), arguments)

            name = f"{row['kernel']} {label}"
            older = "older compiler" in row["source"]
            if older:
                name += " (older compiler)"
            yield Measured(
                name,
                program,
                {"latency": float(row["measured_ms"])},
                OLDER_COMPILER if older else Compiler(),
            )


def spearman(first: list[float], second: list[float]) -> float:
    """Rank correlation."""
    a, b = (np.argsort(np.argsort(values)).astype(float) for values in (first, second))
    return float(np.corrcoef(a, b)[0, 1]) if len(first) > 1 else 1.0


def compare(title: str, cases: Iterator[Measured], metrics: bool) -> None:
    """Prints one table."""
    rows: list[tuple[str, float, float, dict[str, float], dict[str, float], float]] = []
    for case in cases:
        began = time.perf_counter()
        result: KernelProfile = profile(case.program(), compiler=case.compiler)
        spent = time.perf_counter() - began
        rows.append((case.name, result.latency_ms, case.figures["latency"], result.summary,
                     case.figures, spent))  # fmt: skip
    if not rows:
        return
    print(f"{title}\n{'kernel':44s} {'predicted':>10s} {'measured':>10s} {'ratio':>6s} {'s':>6s}")
    for name, predicted, measured, _, _, spent in rows:
        print(
            f"{name:44s} {predicted:10.3f} {measured:10.3f} {predicted / measured:6.3f} {spent:6.2f}"
        )
    errors = [abs(p / m - 1) for _, p, m, *_ in rows]
    rank = spearman([p for _, p, *_ in rows], [m for _, _, m, *_ in rows])
    print(
        f"MAPE {statistics.mean(errors):.1%}  median {statistics.median(errors):.1%}  "
        f"worst {max(errors):.1%}  Spearman {rank:.3f}\n"
    )
    if metrics:
        print_metrics(rows)


def print_metrics(rows: list[Any]) -> None:
    """Predicted, measured and ratio of every counter that was measured."""
    gaps: list[float] = []
    for name, _, _, predicted, measured, _ in rows:
        print(name)
        for key, value in measured.items():
            if key in ("latency", "min_ms", "max_ms"):
                continue
            ours = predicted.get(key, float("nan"))
            ratio = ours / value if value else float("nan" if ours else 1.0)
            print(f"  {key:42s} {ours:18.6g} {value:18.6g} {ratio:8.3f}")
            if key.endswith("active_time_percent") and not key.startswith("gpsimd"):
                gaps.append(abs(ours - value))
    if gaps:
        print(f"engine-active fractions: {statistics.mean(gaps):.1%} mean absolute difference\n")


def main() -> None:
    """Runs both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--metrics", action="store_true", help="print every counter as well")
    parser.add_argument("--only", default="", help="kernels whose name holds this text")
    options = parser.parse_args()
    standin.install()

    def chosen(cases: Iterator[Measured]) -> Iterator[Measured]:
        return (case for case in cases if options.only in case.name)

    compare("NKIBench on trn1 (ms)", chosen(nkibench(options.data, options.folders)),
            options.metrics)  # fmt: skip
    compare("SDK tutorials on trn1 (ms)", chosen(tutorials(options.data, options.folders)),
            options.metrics)  # fmt: skip


if __name__ == "__main__":
    main()
