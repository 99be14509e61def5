"""The published entry point of the referee: load a module, compare outputs, apply the precision rule.

`accelopt.kernels.nki.referee` is what decides in this project; these functions give the compatible verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from accelopt.evaluation import REL_TOL
from accelopt.kernels.nki.referee import source
from accelopt.kernels.nki.referee.comparison import relative_l2
from accelopt.kernels.nki.referee.reference import load_module


class KernelProperties(BaseModel):
    """What is known of one kernel after it was profiled, under the published names."""

    compiled: bool = False
    correct: bool = False
    runnable: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)


def load_module_from_path(file_path: str | Path) -> ModuleType:
    """The module in a file. For reference modules: a kernel's file belongs in a child process."""
    return load_module(file_path)


def l2norm_allclose(v_k: Any, v_r: Any, rel_tol: float = 1e-5) -> bool:
    """The published gate: |kernel - reference| < rel_tol * |reference| in the 2-norm.

    Equal zeros agree, and so do equal infinities and NaN in the same places.
    """
    kernel, reference = np.asarray(v_k), np.asarray(v_r)
    if kernel.shape != reference.shape or not _same_non_finite(kernel, reference):
        return False
    return relative_l2(kernel, reference) < rel_tol


def _same_non_finite(kernel: np.ndarray, reference: np.ndarray) -> bool:
    if kernel.dtype.kind not in "fc" or reference.dtype.kind not in "fc":
        return True
    odd = ~(np.isfinite(kernel) & np.isfinite(reference))
    return bool(np.array_equal(kernel[odd], reference[odd], equal_nan=True))


def check_correctness_numpy(
    output_nki: Sequence[Any], output_task: Any, res: KernelProperties, rel_tol: float = REL_TOL
) -> None:
    """Set `res.correct`; what is wrong is appended to `res.metadata["correctness_error"]`."""
    references = output_task if isinstance(output_task, tuple) else (output_task,)
    errors: list[str] = []
    if len(output_nki) != len(references):
        errors.append(f"Num outputs mismatch: nki={len(output_nki)} vs ref={len(references)}")
    else:
        for index, (v_k, v_r) in enumerate(zip(output_nki, references, strict=True)):
            errors += _mismatch(index, v_k, v_r, rel_tol)
    if errors:
        res.metadata.setdefault("correctness_error", []).extend(errors)
    res.correct = not errors


def _mismatch(index: int, v_k: Any, v_r: Any, rel_tol: float) -> list[str]:
    kernel, reference = np.asarray(v_k), np.asarray(v_r)
    if kernel.shape != reference.shape:
        return [f"Output {index} shape mismatch, expected {reference.shape}, got {kernel.shape}; "]
    if reference.dtype.kind not in "fc" and kernel.dtype.kind not in "fc":
        wrong = int(np.count_nonzero(kernel != reference))
        return [f"Output {index} value mismatch in {wrong} elements; "] if wrong else []
    if l2norm_allclose(kernel, reference, rel_tol):
        return []
    with np.errstate(all="ignore"):
        error = np.abs(kernel.astype(np.float64) - reference)
        relative = relative_l2(kernel, reference)
    finite = error[np.isfinite(error)]
    largest = float(finite.max()) if finite.size else math.nan
    mean = float(finite.mean()) if finite.size else math.nan
    return [
        f"Output {index} value mismatch, max diff {largest:.6f}, avg diff {mean:.6f}, "
        f"l2norm rel diff {relative:.6f}, {error.size - finite.size} not finite"
    ]


def check_precision_and_correctness(
    program_path: str | Path,
    output_nki: Sequence[Any],
    output_task: Any,
    res: KernelProperties,
    rel_tol: float,
) -> None:
    """The published verdict: refuse a source that mentions `float16`, then compare the numbers."""
    if source.published_precision_rule(Path(program_path).read_text()):
        res.metadata["correctness_error"] = source.PUBLISHED_PRECISION_MESSAGE
        res.correct = False
        return
    check_correctness_numpy(output_nki, output_task, res, rel_tol=rel_tol)
