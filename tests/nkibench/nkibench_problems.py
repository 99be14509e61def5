"""The fourteen problems for tests: their facts, small sizes, and a run on the simulated core."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from accelopt.sim.dialects.dialect import dialect_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from timing_corpus import NKIBENCH_ARGUMENTS, load, specs

FOLDER = Path(__file__).parents[2] / "NKIBench"

SUMMARY: dict[str, Any] = json.loads((FOLDER / "summary.json").read_text())


# Every loop of the baselines runs at least twice, and what does not divide at full size does not here.
SMALL: dict[str, dict[str, int]] = {
    "adamw": {"M": 300, "N": 1024},
    "add_rmsnorm_matmul": {"M": 256, "N": 1024, "K": 256},
    "matmul_add_rmsnorm": {"M": 256, "N": 1024, "K": 256},
    "rmsnorm_matmul": {"M": 256, "N": 1024, "K": 256},
    "matmul": {"M": 256, "N": 1024, "K": 384},
    "transpose_matmul": {"M": 256, "N": 704, "K": 256},
    "lora": {"M": 1024, "N": 1024, "K": 256, "R": 128},
    "bmm": {"B": 2, "M": 256, "N": 1024, "K": 64},
    "bmm_softmax": {"B": 2, "M": 256, "N": 1024, "K": 64},
    "gqa_full": {"B": 1, "N": 1024, "QH": 4, "KH": 2, "D": 128},
    "swiglu": {"M": 1024, "N": 1024, "K": 1024},
    "silu": {"M": 256, "N": 2048},
    "rope_single_freq_apply": {"B": 1, "H": 2, "N": 512, "D": 128},
    "mamba": {"M": 512, "C": 256, "S": 3},
}


def tolerance(problem: str) -> float:
    """The published bound on the relative L2 error."""
    return 3e-5 if problem == "mamba" else 2e-5


def full_size(problem: str) -> list[Any]:
    """What the kernel takes at the measured size, as the tracer does."""
    return specs(NKIBENCH_ARGUMENTS[problem])


def files(problem: str) -> tuple[Path, Path]:
    """Reference and baseline kernel."""
    (case,) = SUMMARY[problem]["cases"].values()
    (implementation,) = case["impls"]
    return FOLDER / implementation["task"], FOLDER / implementation["kernel"]


def in_dialect(problem: str, dialect: str) -> Path:
    """The baseline kernel in `neuronxcc` or `nki`."""
    folder = FOLDER / "nki" if dialect == "nki" else FOLDER
    return folder / files(problem)[1].relative_to(FOLDER)


def reference(problem: str, sizes: dict[str, int] | None = None) -> ModuleType:
    """The reference module, its sizes replaced by `sizes` when given."""
    module = load(files(problem)[0])
    for name, value in (sizes or {}).items():
        assert hasattr(module, name)
        setattr(module, name, value)
    return module


def run(
    task: ModuleType, kernel_path: Path, inputs: list[Any] | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel computes on the simulated core, and what the reference does, for `inputs` or
    for those of the seed."""
    import neuronxcc.nki
    import nki

    kernel = load(kernel_path).kernel
    if inputs is None:
        np.random.seed(seed)
        inputs = task.get_inputs()
    given = task.transform_to_nki_inputs(inputs)
    if dialect_of(kernel) == "nki":
        result = nki.simulate(kernel)(*given)
    else:
        result = neuronxcc.nki.simulate_kernel(kernel, *given)
    expected = task.forward(*inputs)
    (output,) = task.transform_nki_outputs(result, expected)
    return output, expected


def assert_agrees(output: np.ndarray, expected: np.ndarray, bound: float) -> None:
    """Same shape and dtype, relative L2 error within `bound` in the whole and ten times it per row."""
    assert output.shape == expected.shape
    assert output.dtype == expected.dtype == np.float32
    error = np.subtract(output, expected, dtype=np.float64)
    assert np.linalg.norm(error) <= bound * np.linalg.norm(expected.astype(np.float64))
    rows = expected.astype(np.float64).reshape(-1, expected.shape[-1])
    row_errors = np.linalg.norm(error.reshape(rows.shape), axis=1)
    assert np.all(row_errors <= 10 * bound * np.linalg.norm(rows, axis=1))
