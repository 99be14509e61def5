"""The fourteen problems for tests: their facts, small sizes, and a run on the simulated core."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parents[2] / "NKIBench"

SUMMARY: dict[str, Any] = json.loads((FOLDER / "summary.json").read_text())


class Shapes(NamedTuple):
    """Array shapes at full size; a number is a Python scalar argument."""

    case_id: str
    inputs: list[tuple[int, ...] | float]
    kernel_inputs: list[tuple[int, ...] | float]
    output: tuple[int, ...]


_X, _W = (4096, 1024), (1024, 2048)
_BMM = [(16, 4096, 64), (16, 64, 4096)]
SHAPES: dict[str, Shapes] = {
    "adamw": Shapes("2", [(10944, 2048)] * 4, [(10944, 2048)] * 4, (10944, 2048)),
    "add_rmsnorm_matmul": Shapes(
        "2", [_X, _W, 1e-5, _X, (1024,)], [_X, _W, 1e-5, _X, (1024,)], (4096, 2048)
    ),
    "matmul_add_rmsnorm": Shapes(
        "1",
        [(4096, 2048), (2048, 2048), 1e-5, (4096, 2048), (2048,)],
        [(4096, 2048), (2048, 2048), 1e-5, (4096, 2048), (2048,)],
        (4096, 2048),
    ),
    "rmsnorm_matmul": Shapes("2", [_X, _W], [(32, 128, 1024), (8, 128, 2048)], (4096, 2048)),
    "matmul": Shapes(
        "3",
        [(4096, 5120), (5120, 12288)],
        [(32, 128, 40, 128), (40, 128, 12288)],
        (4096, 12288),
    ),
    "transpose_matmul": Shapes(
        "2",
        [(2048, 4096), (2048, 10944)],
        [(128, 16, 4096), (128, 16, 10944)],
        (4096, 10944),
    ),
    "lora": Shapes(
        "2",
        [(4096, 5120), (5120, 12288), (5120, 128), (128, 12288)],
        [(8, 4, 128, 40, 128), (40, 128, 12288), (40, 128, 128), (128, 12288)],
        (4096, 12288),
    ),
    "bmm": Shapes("2", list(_BMM), list(_BMM), (16, 4096, 4096)),
    "bmm_softmax": Shapes("2", list(_BMM), list(_BMM), (16, 4096, 4096)),
    "gqa_full": Shapes(
        "0",
        [(1, 4096, 16, 128), (1, 4096, 8, 128), (1, 4096, 8, 128)],
        [(32, 128, 16, 128), (1, 8, 4, 128, 8, 128), (1, 32, 128, 1024)],
        (1, 16, 4096, 128),
    ),
    "swiglu": Shapes(
        "2",
        [_X, (1024, 3072), (3072, 1024), (1024, 3072)],
        [(8, 4, 128, 8, 128), (8, 128, 3072), (24, 128, 1024), (8, 128, 3072)],
        (4096, 1024),
    ),
    "silu": Shapes("2", [(4096, 7168)], [(128, 32, 7168)], (4096, 7168)),
    "rope_single_freq_apply": Shapes(
        "1",
        [(128, 262144), (64, 262144), (64, 262144)],
        [(128, 262144), (64, 262144), (64, 262144)],
        (128, 262144),
    ),
    "mamba": Shapes(
        "2",
        [(256, 7168), (256, 7168), (256, 16), (16, 7168), (16, 7168)],
        [(256, 7168), (256, 7168), (256, 16), (16, 7168), (16, 7168)],
        (256, 7168),
    ),
}

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


def load(path: Path) -> ModuleType:
    """The module in a file, under a name of its own."""
    specification = importlib.util.spec_from_file_location(f"nkibench_{path.stem}", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def files(problem: str) -> tuple[Path, Path]:
    """Reference and baseline kernel."""
    (case,) = SUMMARY[problem]["cases"].values()
    (implementation,) = case["impls"]
    return FOLDER / implementation["task"], FOLDER / implementation["kernel"]


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
    import neuronxcc.nki as nki

    kernel = load(kernel_path).kernel
    if inputs is None:
        np.random.seed(seed)
        inputs = task.get_inputs()
    result = nki.simulate_kernel(kernel, *task.transform_to_nki_inputs(inputs))
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
