"""The kernels that somebody has timed, traced: figures from `accelopt.measured`, sources from the
public repositories that published them. None of those kernels is part of this repository.

FOLDERs are checkouts of `zhang677/AccelOpt` (NKIBench/kernels), of `aws-neuron/aws-neuron-sdk` at
v2.26.1 (nki/examples), of `Jerry2423/kda-for-trainium` (workspaces), of `allenkchau/trainium-kernel-fusion`
(kernels), of the files in the history of `awslabs/nki-autotune` that the table names (kernel_library),
and a folder with one module a version of the layernorm and the conv1d of `ucb-bar/autocomp`
(layernorm/s00.py, ...). The products and the single-tile attention of trn2 are written anew in
`trn2_kernels/`. Of what is not there only the figures are known.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt import measured
from accelopt.sim.dialects.neuronxcc.kernel import Kernel, trace_kernel
from accelopt.sim.dialects.nki import kernel as nki_kernel
from accelopt.sim.program import Program
from accelopt.sim.timing import Compiler
from accelopt.sim.trace import AbstractTensor

SOURCES = (
    "https://github.com/zhang677/AccelOpt (NKIBench/kernels)",
    "https://github.com/aws-neuron/aws-neuron-sdk, tag v2.26.1 (nki/examples)",
    "https://github.com/Jerry2423/kda-for-trainium (workspaces)",
    "https://github.com/ucb-bar/autocomp (its layernorm and conv1d, one module a version)",
    "https://github.com/allenkchau/trainium-kernel-fusion, d709ddf (kernels)",
    "https://github.com/awslabs/nki-autotune (kernel_library/*mfu.py of its history)",
)
"""Who published the kernels."""
F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
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

KIND = {
    "adamw": "elementwise", "silu": "elementwise", "rope_single_freq_apply": "elementwise",
    "matmul": "products", "transpose_matmul": "products", "bmm": "products",
    "lora": "products", "swiglu": "products",
    "add_rmsnorm_matmul": "norms", "matmul_add_rmsnorm": "norms", "rmsnorm_matmul": "norms",
    "bmm_softmax": "attention", "gqa_full": "attention", "mamba": "scan",
}  # fmt: skip
"""The family of each NKIBench problem, by kind of operation."""

VARIANT_ARGUMENTS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "layernorm": ([(4096, 8192), EPSILON, (8192,), (8192,)], {}),
    "conv1d": ([(8, 512, 1, 2048), (512, 1, 1, 3)], {"padding": [[0, 0], [1, 1]]}),
}

OLDER_COMPILER = Compiler(frozenset({"merge_repeated"}))
"""What the data calls an older compiler repeats the invariant product of mamba v1: its time is that
of nine N a step, not seven."""


NEWER_COMPILER = Compiler.of("2.26")
"""The versions of a layernorm and a conv1d were timed in April 2026. Two of them tell the compilers
apart, and with this one's buffers for loads they are predicted right: conv1d s06 (0.461 ms: 0.459,
with the older 0.523) and layernorm i1_c00 (2.774 ms: 2.608, with the older 2.951)."""


Programs = Callable[[], list[Program]]


class Measured(NamedTuple):
    """One timed kernel: who timed it (one clock), its family, how to trace its launches (None where
    its source is not at hand), and what the hardware said. Kernels of one `versions_of` do the same on the
    same shapes; `first_ms` is what was predicted before anything was known of the family."""

    source: str
    family: str
    name: str
    programs: Callable[[], list[Program]] | None
    figures: dict[str, float]
    compiler: Compiler | None = None
    versions_of: str = ""
    first_ms: float | None = None


def specs(shapes: list[Any], dtype: np.dtype = F32) -> list[Any]:
    """Shapes as arguments without data; numbers as they are."""
    return [AbstractTensor(s, dtype) if isinstance(s, tuple) else s for s in shapes]


def load(path: Path) -> ModuleType:
    """A kernel file as a module."""
    name = f"measured_{path.parent.name}_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def first_existing(folders: list[Path], candidates: list[str]) -> Path | None:
    """The first of the candidate files that some folder has."""
    paths = [folder / candidate for folder in folders for candidate in candidates]
    return next((path for path in paths if path.is_file()), None)


def problem_of(case_name: str) -> str:
    """The problem of a case name such as `matmul_K5120_M4096_N12288`."""
    return max((p for p in NKIBENCH_ARGUMENTS if case_name.startswith(p + "_")), key=len)


def nkibench(folders: list[Path]) -> Iterator[Measured]:
    """The fourteen kernels with their counters."""
    for row in measured.rows("trn1_nkibench"):
        name, relative = row.pop("case_name"), row.pop("kernel_file_in_public_repository")
        path = first_existing(folders, [relative])
        problem = problem_of(name)
        figures = {
            key: float(value)
            for key, value in row.items()
            if value and not key.startswith("least_")
        }
        program = _kernel(path, problem, "trn1")
        yield Measured("NKIBench", KIND[problem], name, program, figures)


def _kernel(path: Path | None, problem: str, target: str) -> Programs | None:
    if path is None:
        return None
    arguments = specs(NKIBENCH_ARGUMENTS[problem])
    return lambda: [trace_kernel(load(path).kernel, arguments, target=target)]


def tutorials(folders: list[Path]) -> Iterator[Measured]:
    """The timings that the SDK's tutorials state."""
    files = {
        "matrix_multiplication": "matrix_multiplication/matrix_multiplication_nki_kernels.py",
        "fused_mamba": "fused_mamba/mamba_nki_kernels.py",
    }
    for row in measured.rows("trn1_tutorials"):
        roots = ("nki/examples/", "general/nki/examples/", "")
        path = first_existing(folders, [root + files[row["kernel"]] for root in roots])
        if row["kernel"] == "matrix_multiplication":
            symbol, label = f"nki_matmul_{row['variant']}_", row["variant"]
            arguments = specs([(8192, 4096), (8192, 8192)], BF16)
        else:
            symbol = f"mamba_{row['variant']}"
            words = row["shape"].split()
            c, n, s = int(words[1]), int(words[3]), int(words[5])
            arguments = specs([(1, c, n), (1, c, n), (c, s), (1, s, n), (1, s, n)])
            label = f"{row['variant']} {c}x{n}"
        older = "older compiler" in row["source"]
        yield Measured(
            "SDK tutorials",
            "tutorials",
            f"{row['kernel']} {label}" + (" (older compiler)" if older else ""),
            _symbol(path, symbol, arguments),
            {"latency": float(row["measured_ms"])},
            OLDER_COMPILER if older else None,
            f"{row['kernel']} {row['shape']}",
        )


def _symbol(path: Path | None, symbol: str, arguments: list[Any]) -> Programs | None:
    if path is None:
        return None
    return lambda: [trace_kernel(getattr(load(path), symbol), arguments)]


def variants(folders: list[Path]) -> Iterator[Measured]:
    """Versions of a layernorm and a conv1d."""
    for row in measured.rows("trn1_variants"):
        problem, step = row["problem"], row["step"]
        path = first_existing(folders, [f"{problem}/{step}.py"])
        if not row["measured_ms"]:
            continue
        figures = {"latency": float(row["measured_ms"])}
        first_ms = float(row["predicted_ms_before"])
        name = f"{problem} {step}"
        program = _variant(path, problem)
        yield Measured(
            "autocomp", problem, name, program, figures, NEWER_COMPILER, problem, first_ms
        )


def _variant(path: Path | None, problem: str) -> Programs | None:
    if path is None:
        return None
    arguments, options = VARIANT_ARGUMENTS[problem]

    def programs() -> list[Program]:
        module = load(path)
        kernels = [one for one in vars(module).values() if isinstance(one, Kernel)]
        named = [one for one in kernels if one.function.__name__ in ("solution", "test")]
        return [trace_kernel((named or kernels)[-1], specs(arguments), options)]

    return programs


def trn2(folders: list[Path]) -> Iterator[Measured]:
    """Versions of eight problems on trn2; of repeated measurements the median. The p50 of this source
    is half of the time that a profile of the same kernel shows (2.005 to 2.303, its own notes)."""
    latencies: dict[tuple[str, str], list[float]] = {}
    shares: dict[tuple[str, str], dict[str, float]] = {}
    columns = {"PE_pct": "tensor", "Vec_pct": "vector", "Scl_pct": "scalar"}
    for row in measured.rows("trn2_kernels"):
        key = row["problem"], row["kernel"].partition(" (")[0]
        latencies.setdefault(key, []).append(float(row["latency_ms"]))
        shares.setdefault(key, {}).update(
            (f"{engine}_engine_active_time_percent", float(row[column]) / 100)
            for column, engine in columns.items()
            if row[column]
        )
        for column, field in (("HBMrd_MB", "hbm_read_bytes"), ("HBMwr_MB", "hbm_write_bytes")):
            if row[column]:
                shares[key][field] = float(row[column]) * 1e6
    for (problem, kernel), found in latencies.items():
        baseline = kernel.partition("baseline:")[2]
        own = f"workspaces/{problem}"
        places = (
            [f"NKIBench/kernels/{baseline}"]
            if baseline
            else [f"{own}/{kernel}", f"{own}/runs/{kernel}"]
        )
        path = first_existing(folders, places)
        name = f"{problem} baseline" if baseline else Path(kernel).stem
        figures = {"latency": 2 * median(found), **shares[problem, kernel]}
        program = _kernel(path, problem, "trn2")
        yield Measured("kda", problem, name, program, figures, versions_of=problem)


OWN = Path(__file__).parent / "trn2_kernels"
DTYPES = {"fp32": F32, "bf16": BF16}
WRITTEN_ANEW = {
    "sk": "blocked_products",
    "cb": "blocked_products",
    "attention": "single_tile_attention",
}
PROFILE_US = 5.5
"""By how much a profile's total_time is above the benchmark of the same executable (4.5 to 7)."""
PUBLIC = {"sk": "skywalker", "cb": "chipboost", "attention": "attention-kernels", "fusion": "kernel-fusion",
          "autotune": "nki-autotune"}  # fmt: skip
"""The project that a set of trn2_public.csv comes from, by the beginning of the set's name."""


def public(folders: list[Path]) -> Iterator[Measured]:
    """The timed rows of trn2_public.csv but an autotuner's best, which are goals, and what is no
    kernel."""
    for row in measured.rows("trn2_public"):
        if not row["measured_us"] or row["set"] in ("autotune_scoreboard", "sk_compiler_default"):
            continue
        us = float(row["measured_us"]) - PROFILE_US * row["measured_how"].startswith(
            "profile total"
        )
        figures = {"latency": us / 1e3}
        if row["te_busy"]:
            figures["tensor_engine_active_time_percent"] = float(row["te_busy"])
        knobs = json.loads(row["knobs"] or "{}")
        words = [row["kernel"].split("+")[0], *map(str, knobs.values()), *_shapes(row)[0]]
        programs = _public_programs(row, knobs, folders)
        problem = f"{row['set']} {row['arguments']}"
        source = PUBLIC[row["set"].partition("_")[0]]
        yield Measured(source, row["set"], " ".join(words), programs, figures, versions_of=problem)


def _shapes(row: dict[str, str]) -> list[list[str]]:
    found: list[list[str]] = json.loads(row["arguments"])
    return found


def _public_programs(
    row: dict[str, str], knobs: dict[str, Any], folders: list[Path]
) -> Programs | None:
    begin = row["set"].partition("_")[0]
    if begin in WRITTEN_ANEW:
        path: Path | None = OWN / f"{WRITTEN_ANEW[begin]}.py"
    else:
        place = row["kernel_path"].rpartition(", ")[2]
        path = first_existing(folders, [place, place.replace("_kernel_", "/kernel_", 1)])
    if path is None:
        return None
    if row["set"] == "sk_tutorial_2048" and row["kernel"].endswith("optimized_"):
        knobs = dict.fromkeys(("TILES_IN_BLOCK_M",), 16) | {
            "TILES_IN_BLOCK_N": 2,
            "TILES_IN_BLOCK_K": 8,
        }

    def programs() -> list[Program]:
        module = load(path)
        if begin == "autotune":
            names = [
                name for name, one in vars(module).items() if isinstance(one, nki_kernel.Kernel)
            ][-1:]
        else:
            names = (
                row["kernel"].replace("nki_matmul_fully_optimized_", "fully_optimized").split("+")
            )
        trace = trace_kernel if row["dialect"] == "neuronxcc" else nki_kernel.trace_kernel
        return [
            trace(getattr(module, name), list(map(_tensor, shapes)), knobs, target="trn2")
            for name, shapes in zip(names, _shapes(row), strict=True)
        ]

    return programs


def _tensor(text: str) -> AbstractTensor:
    dtype, _, shape = text.rstrip("]").partition("[")
    return AbstractTensor(tuple(map(int, shape.split(","))), DTYPES[dtype])


CORPORA: dict[str, list[Callable[[list[Path]], Iterator[Measured]]]] = {
    "trn1": [nkibench, tutorials, variants],
    "trn2": [trn2, public],
}


def corpus(target: str, folders: list[Path]) -> Iterator[Measured]:
    """Every timed kernel of a generation, traceable where its source is in one of the folders."""
    for part in CORPORA[target]:
        yield from part(folders)
