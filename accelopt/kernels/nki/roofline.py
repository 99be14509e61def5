"""How fast a problem could be at best: the roofline bound of one NeuronCore, and percent of it.

A bound counts what any implementation must do: each input read and each output written once, each
element-wise operation on a tensor once (constants fold into their neighbour), two operations for
each multiply-add of a matrix product. It knows nothing of a kernel, so no kernel can beat it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from accelopt.hardware import TARGETS

FP32_BYTES = 4


class Peaks(NamedTuple):
    """One NeuronCore generation: bytes a second, fp32 operations a second.

    `vector_flops` is VectorE plus ScalarE, 128 lanes each.
    """

    memory_bytes: float
    vector_flops: float
    matmul_flops: float


PEAKS: Mapping[str, Peaks] = {
    name: Peaks(core.peak_memory_bytes, core.peak_vector_flops, core.peak_fp32_flops)
    for name, core in TARGETS.items()
}


class ProblemWork(NamedTuple):
    """What a problem takes, in fp32 elements moved and in operations."""

    elements: int
    vector: int = 0
    matmul: int = 0


class LeastTime(NamedTuple):
    """The least time a problem takes, and what sets it: `memory`, `vec` or `mm`."""

    latency_ms: float
    key: str

    def fraction(self, latency_ms: float) -> float:
        """Fraction of peak that a latency reaches; above 1 is faster than physics."""
        return self.latency_ms / latency_ms


def _adamw(M: int, N: int) -> ProblemWork:
    # decay; two moments of one operation each on m and v; g squared; root; divide; subtract
    return ProblemWork(5 * M * N, vector=7 * M * N)


def _add_rmsnorm_matmul(M: int, N: int, K: int) -> ProblemWork:
    # add, square, sum, scale by the norm, scale by the gain, and the root's share of a row
    return ProblemWork(2 * M * K + K * N + K + M * N, vector=6 * M * K, matmul=2 * M * N * K)


def _matmul_add_rmsnorm(M: int, N: int, K: int) -> ProblemWork:
    return ProblemWork(M * K + K * N + 2 * M * N + N, vector=6 * M * N, matmul=2 * M * N * K)


def _rmsnorm_matmul(M: int, N: int, K: int) -> ProblemWork:
    return ProblemWork(M * K + K * N + M * N, vector=4 * M * K, matmul=2 * M * N * K)


def _matmul(M: int, N: int, K: int) -> ProblemWork:
    return ProblemWork(M * K + K * N + M * N, matmul=2 * M * N * K)


def _lora(M: int, N: int, K: int, R: int) -> ProblemWork:
    products = M * N * K + M * K * R + M * R * N
    return ProblemWork(M * K + K * N + K * R + R * N + M * N, vector=M * N, matmul=2 * products)


def _bmm(B: int, M: int, N: int, K: int) -> ProblemWork:
    return ProblemWork(B * (M * K + K * N + M * N), matmul=2 * B * M * N * K)


def _bmm_softmax(B: int, M: int, N: int, K: int) -> ProblemWork:
    # maximum, subtract, exp, sum, divide
    return _bmm(B, M, N, K)._replace(vector=5 * B * M * N)


def _gqa_full(B: int, N: int, QH: int, KH: int, D: int) -> ProblemWork:
    scores = B * QH * N * N
    return ProblemWork(2 * B * N * D * (QH + KH), vector=5 * scores, matmul=4 * scores * D)


def _swiglu(M: int, N: int, K: int) -> ProblemWork:
    # exp, add, divide, multiply, and the negation's share
    return ProblemWork(2 * M * K + 3 * K * N, vector=5 * M * N, matmul=6 * M * N * K)


def _silu(M: int, N: int) -> ProblemWork:
    return ProblemWork(2 * M * N, vector=3 * M * N)


def _rope(B: int, H: int, N: int, D: int) -> ProblemWork:
    # two multiplications and one addition for each output
    return ProblemWork(3 * B * H * N * D, vector=3 * B * H * N * D)


def _mamba(C: int, M: int, S: int) -> ProblemWork:
    # exp(delta a): 2; delta b u: 2; scan: 2; times c and sum: 2
    return ProblemWork(3 * C * M + C * S + 2 * S * M, vector=8 * C * M * S)


_WORK: Mapping[str, Callable[..., ProblemWork]] = {
    "adamw": _adamw,
    "add_rmsnorm_matmul": _add_rmsnorm_matmul,
    "matmul_add_rmsnorm": _matmul_add_rmsnorm,
    "rmsnorm_matmul": _rmsnorm_matmul,
    "matmul": _matmul,
    "transpose_matmul": _matmul,
    "lora": _lora,
    "bmm": _bmm,
    "bmm_softmax": _bmm_softmax,
    "gqa_full": _gqa_full,
    "swiglu": _swiglu,
    "silu": _silu,
    "rope_single_freq_apply": _rope,
    "mamba": _mamba,
}


def work(problem: str, values: Mapping[str, int]) -> ProblemWork | None:
    """What `problem` takes at these sizes; None for a problem or sizes that are not known here."""
    counted = _WORK.get(problem)
    if counted is None:
        return None
    try:
        return counted(**values)
    except TypeError:
        return None


def bound(problem: str, values: Mapping[str, int], target: str = "trn1") -> LeastTime | None:
    """The roofline bound of a case on `target`; None where the work or the target is not known."""
    taken, peaks = work(problem, values), PEAKS.get(target)
    if taken is None or peaks is None:
        return None
    seconds = {
        "memory": taken.elements * FP32_BYTES / peaks.memory_bytes,
        "vec": taken.vector / peaks.vector_flops,
        "mm": taken.matmul / peaks.matmul_flops,
    }
    key = max(seconds, key=lambda name: seconds[name])
    return LeastTime(seconds[key] * 1e3, key)


class Standing(NamedTuple):
    """Where a case stands against its bound; fields as in the published headroom tables."""

    problem: str
    case_name: str
    headroom: float
    baseline_percentage: float
    achieved_percentage: float
    best_speedup: float
    baseline_latency: float
    theoretical_peak_latency: float
    bound_key: str

    @property
    def possible(self) -> bool:
        """False for a result faster than physics: something measured it wrong."""
        return max(self.baseline_percentage, self.achieved_percentage) <= 1


def standing(
    problem: str,
    case_name: str,
    values: Mapping[str, int],
    baseline_ms: float,
    best_ms: float,
    target: str = "trn1",
) -> Standing | None:
    """The standing of one case; None where its bound is not known. Percentages are fractions."""
    limit = bound(problem, values, target)
    if limit is None:
        return None
    return Standing(
        problem=problem,
        case_name=case_name,
        headroom=baseline_ms / limit.latency_ms,
        baseline_percentage=limit.fraction(baseline_ms),
        achieved_percentage=limit.fraction(best_ms),
        best_speedup=baseline_ms / best_ms,
        baseline_latency=baseline_ms,
        theoretical_peak_latency=limit.latency_ms,
        bound_key=limit.key,
    )


def memory_bound_ms(moved_bytes: int, target: str) -> float:
    """The least time in which `moved_bytes` pass the device memory; 0 for an unknown target."""
    peaks = PEAKS.get(target)
    return moved_bytes / peaks.memory_bytes * 1e3 if peaks else 0.0


def geometric_mean(values: list[float]) -> float:
    """The geometric mean of positive numbers; NaN of none."""
    if not values:
        return math.nan
    return math.exp(sum(map(math.log, values)) / len(values))
