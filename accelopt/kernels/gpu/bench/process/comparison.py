"""Is an output right? The package's rule, and what makes it sound.

FlashInfer-Bench fails an element only if its absolute and its relative error both exceed 1e-2, so
an output whose values are all small (a softmax over 8192 columns) passes as zeros. Beside that
rule stand two errors relative to what the output should be: over the whole tensor, and over its
worst row (the last axis), which a dropped tile or row cannot hide from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from accelopt.kernels import mean_error

if TYPE_CHECKING:
    import torch

# Relative L2 that honest kernels stay under, by output dtype: the dtype's own rounding, plus
# operands rounded once more on the way (bf16 attention weights 4e-3; a float32 dot in TF32 3e-4).
# 8-bit floats computed for a 16-bit problem land at 3e-2 and more.
TENSOR_LIMIT = {"float32": 5e-3, "float16": 1e-2, "bfloat16": 1.5e-2}
DEFAULT_TENSOR_LIMIT = 0.1
# An element of a bfloat16 output that is off by four of its units (2**-7 of a power of two) is no fault, though
# one or two among thousands then pass 1e-2: seen on an H200 with a published attention kernel, and where a
# kernel does not round a sum that its reference rounds (31 of 33 million elements of a norm with bias and GELU).
ROUNDING_SLACK = {"bfloat16": 2.0**-5}
# What one rounding makes, of numbers of a power of two: half a unit of a narrow format. tl.dot cuts the operands
# of a float32 product off to TF32, so each product is up to 1.4 * 2**-11 too small, and there may be several.
ROUNDING = {"float32": 2.0**-9, "float16": 2.0**-11, "bfloat16": 2.0**-8}
NEIGHBOURS = 256  # in value; those that are small for their row count as typical ones do
MOST_MEANT = 1 << 18  # elements
# A float32 result of float32 inputs may be off by so many times what it changes when the inputs are cut off to
# TF32: one product cuts off both operands (once), a long chain of them also what lies between (twice). Operands in
# bfloat16 are off by three times. What no product is in may be off by a rounding to TF32.
CUT_OFF, LEAST_CUT = 2.5, 2.0**-12
# Inputs are disturbed by this share to learn how much the problem itself amplifies rounding.
DISTURBANCE = 2.0**-9
# A row that changes by more when inputs are disturbed by 2**-9 is not judged on unusual values.
MOST_ROW_CHANGE = 0.1
# Of the others so many may be worse than rows may be: logits of 1e7 may tie in bfloat16, and stay tied when
# inputs are disturbed (on an H100 up to one of 2,000 rows of an honest attention).
SPARED_ROWS = 1 / 256
# A single row may be this many times worse than the whole tensor's limit.
ROW_FACTOR = 6.0


class Tolerance(NamedTuple):
    """The package's limits for a definition: absolute, relative, share that must match."""

    atol: float = 1e-2
    rtol: float = 1e-2
    matched_ratio: float = 1.0


class Figures(NamedTuple):
    """What a fixer needs to know about one output. `failure` is empty when the output is right."""

    output: str
    failure: str
    max_absolute_error: float
    max_relative_error: float
    matched_ratio: float
    relative_l2: float
    worst_row_l2: float
    worst_at: tuple[int, ...]
    got: float
    wanted: float
    non_finite: int
    limit: float = 0.0

    def sentence(self) -> str:
        """The figures in one line for a person or a model."""
        return (
            f"output `{self.output}`: {self.failure or 'right'}; relative L2 error "
            f"{self.relative_l2:.3g}, worst row {self.worst_row_l2:.3g}, largest absolute error "
            f"{self.max_absolute_error:.3g} at {list(self.worst_at)} (got {self.got:.6g}, wanted "
            f"{self.wanted:.6g}), {100 * (1 - self.matched_ratio):.3g}% of the elements outside "
            f"the tolerance, {self.non_finite} not finite"
        )


def limit_of(dtype: str, *, coarse: bool) -> float:
    """The relative L2 limit of an output. `coarse`: the inputs themselves are 8-bit or smaller."""
    limit = TENSOR_LIMIT.get(dtype, DEFAULT_TENSOR_LIMIT)
    return max(limit, DEFAULT_TENSOR_LIMIT) if coarse else limit


def single_limit(limit: float, change: float) -> float:
    """The limit of a float32 output that changes by `change` when float32 inputs are cut off to TF32."""
    return min(limit, max(LEAST_CUT, CUT_OFF * change)) if math.isfinite(change) else limit


class Steady(NamedTuple):
    """The rows of an output that are judged, a mask of one column; what their limits are larger by; and
    the share of them that may be worse than rows may be."""

    rows: torch.Tensor
    allowance: float
    spared: float


def whole_change(wanted: torch.Tensor, disturbed: torch.Tensor) -> float:
    """How much an output changes, relative to its size."""
    import torch

    was, now = wanted.to(torch.float32), disturbed.to(torch.float32)
    size = float(torch.linalg.vector_norm(was))
    return float(torch.linalg.vector_norm(was - now)) / max(size, 1e-30)


def all_rows(wanted: torch.Tensor, change: float) -> Steady:
    """All of an output is judged, which changes by so much when inputs are disturbed."""
    import torch

    shape = (*wanted.shape[:-1], 1) if wanted.dim() else (1,)
    return Steady(torch.ones(shape, dtype=torch.bool, device=wanted.device), change, 0.0)


def steady_rows(wanted: torch.Tensor, disturbed: Sequence[torch.Tensor]) -> Steady:
    """The rows (last axis) of the reference's output that change by no more than `MOST_ROW_CHANGE` in
    any of its outputs on disturbed inputs. An attention's row whose largest two logits nearly tie is
    none: a sum in another order exchanges them."""
    import torch

    y = wanted.to(torch.float32)
    y = y if y.dim() else y[None]
    size = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
    gaps = [
        torch.linalg.vector_norm(now.to(torch.float32).reshape(y.shape) - y, dim=-1, keepdim=True)
        for now in disturbed
    ]
    gap = torch.stack(gaps).amax(dim=0)
    rows = gap <= MOST_ROW_CHANGE * size
    whole = torch.linalg.vector_norm(size[rows])
    found = float(torch.linalg.vector_norm(gap[rows])) / max(float(whole), 1e-30)
    return Steady(rows, max(0.0, found - DISTURBANCE), SPARED_ROWS)


def compare(
    name: str,
    got: torch.Tensor,
    wanted: torch.Tensor,
    tolerance: Tolerance,
    limit: float,
    *,
    elementwise: bool = True,
    spared: float = 0.0,
) -> Figures:
    """Judge one output against the reference's, of equal shape and dtype.

    `elementwise` False leaves the package's absolute rule out, for inputs on another scale than
    the one its 1e-2 is meant for; a share `spared` of the rows may be worse than rows may be. Where the reference is not finite the output must equal it.
    """
    import torch

    if wanted.numel() == 0:
        return Figures(name, "", 0.0, 0.0, 1.0, 0.0, 0.0, (), 0.0, 0.0, 0)
    x = got.to(torch.float32).reshape(-1, wanted.shape[-1] if wanted.dim() else 1)
    y = wanted.to(torch.float32).reshape(x.shape)
    finite = torch.isfinite(y)
    same_special = (x == y) | (torch.isnan(x) & torch.isnan(y))
    stray = int((~torch.isfinite(x) & finite).sum()) + int((~finite & ~same_special).sum())
    error = torch.where(finite & torch.isfinite(x), (x - y).abs(), torch.zeros_like(x))
    size = torch.where(finite, y.abs(), torch.zeros_like(y))
    relative = error / (size + 1e-8)
    outside = (error > tolerance.atol) & (relative > tolerance.rtol)
    slack = ROUNDING_SLACK.get(str(wanted.dtype).removeprefix("torch."))
    if slack is not None:
        outside &= error > slack * torch.maximum(size, _typical(size))
    matched = 1.0 - float(outside.sum()) / x.numel()
    tensor_l2, row_l2 = _relative_l2(error, size, spared)
    flat = int(error.argmax())
    failure = _failure(stray, matched, tensor_l2, row_l2, tolerance, limit, elementwise)
    if not failure and elementwise and limit < DEFAULT_TENSOR_LIMIT:
        unit = ROUNDING.get(str(wanted.dtype).removeprefix("torch."), 1.0)
        if (times := _mean_error(x, y, size, unit)) > mean_error.MEAN:
            failure = (
                f"alike elements are off to the same side, by {times:.3g} roundings in the mean"
            )
    return Figures(
        output=name,
        failure=failure,
        max_absolute_error=float(error.max()),
        max_relative_error=float(relative.max()),
        matched_ratio=matched,
        relative_l2=tensor_l2,
        worst_row_l2=row_l2,
        worst_at=tuple(map(int, np.unravel_index(flat, tuple(wanted.shape)))),
        got=float(x.reshape(-1)[flat]),
        wanted=float(y.reshape(-1)[flat]),
        non_finite=stray,
        limit=limit,
    )


def _mean_error(x: torch.Tensor, y: torch.Tensor, size: torch.Tensor, unit: float) -> float:
    """The largest mean error of neighbours in value, in roundings."""
    import torch

    scale = torch.maximum(size, _typical(size)) * unit
    judged = torch.isfinite(x) & torch.isfinite(y) & (scale > 0)
    errors, values = ((x - y) / scale)[judged], y[judged]
    step = errors.numel() // MOST_MEANT | 1  # all columns
    errors, key = (np.asarray(one[::step].double().cpu()) for one in (errors, values))
    return mean_error.largest_mean(errors, key, NEIGHBOURS)


def _typical(size: torch.Tensor) -> torch.Tensor:
    """The size that elements have in their row or, where columns differ (a norm's weights), in their row and
    column: what is rounded on the way (a sum with a residual) is scaled like them."""
    import torch

    square = size * size
    rows, columns = square.mean(dim=1, keepdim=True), square.mean(dim=0, keepdim=True)
    both = rows * (columns / square.mean().clamp(min=1e-30))
    return torch.sqrt(torch.maximum(rows, both))


def _relative_l2(error: torch.Tensor, size: torch.Tensor, spared: float) -> tuple[float, float]:
    """Of the whole, and of the worst row but for a share of `spared`; a row far below the typical one counts
    as typical / 10."""
    import torch

    row_error = torch.linalg.vector_norm(error, dim=-1, dtype=torch.float64)
    row_size = torch.linalg.vector_norm(size, dim=-1, dtype=torch.float64)
    whole = float(torch.linalg.vector_norm(row_size))
    if whole == 0.0:
        bad = math.inf if float(row_error.max()) > 0 else 0.0
        return bad, bad
    typical = whole / math.sqrt(row_size.numel())
    rows = row_error / torch.clamp(row_size, min=typical / 10)
    place = rows.numel() - int(spared * rows.numel())
    return float(torch.linalg.vector_norm(row_error)) / whole, float(rows.kthvalue(place).values)


def _failure(
    stray: int,
    matched: float,
    tensor_l2: float,
    row_l2: float,
    tolerance: Tolerance,
    limit: float,
    elementwise: bool,
) -> str:
    if stray:
        return "not finite where the reference is, or the other way round"
    if elementwise and matched < tolerance.matched_ratio:
        return f"beyond {tolerance.atol:g} absolute and {tolerance.rtol:g} relative error"
    if not tensor_l2 <= limit:
        return f"relative L2 error above {limit:g}"
    # A share of elements may be wrong by the package's rule; then rows may be, too.
    if tolerance.matched_ratio >= 1.0 and not row_l2 <= ROW_FACTOR * limit:
        return f"a row's relative L2 error above {ROW_FACTOR * limit:g}"
    return ""
