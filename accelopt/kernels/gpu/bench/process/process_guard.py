"""Guards of a candidate's process: library functions it may not replace, memory it may not keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def guarded_functions(torch: Any) -> dict[str, tuple[Any, str, Any]]:
    """Name to owner, attribute and present value of what a cheat would replace."""
    names: list[tuple[Any, str]] = [
        (torch, "empty"), (torch, "equal"), (torch, "no_grad"),
        (torch.Tensor, "normal_"), (torch.Tensor, "copy_"), (torch.Tensor, "zero_"),
        (torch.Tensor, "fill_"), (torch.Tensor, "random_"), (torch.Tensor, "cpu"),
        (torch.Tensor, "contiguous"), (torch.Tensor, "numpy"), (torch.Tensor, "clone"), (torch, "Generator"),
    ]  # fmt: skip
    if torch.cuda.is_available():
        names += [
            (torch.cuda, "synchronize"), (torch.cuda, "Event"), (torch.cuda, "_sleep"),
            (torch.cuda, "current_stream"), (torch.cuda.Event, "record"),
            (torch.cuda.Event, "elapsed_time"), (torch.cuda.Event, "synchronize"),
        ]  # fmt: skip
    return {
        f"{getattr(owner, '__name__', owner)}.{key}": (owner, key, getattr(owner, key))
        for owner, key in names
        if hasattr(owner, key)
    }


def attributes_of_tensors(kind: type, values: Sequence[object]) -> set[str]:
    """Names that were set on plain tensors: one of them would be called in the place of a method when
    inputs get new contents, or outputs are looked at. Honest code sets none."""
    return {name for value in values if type(value) is kind for name in vars(value)}


def share_memory(results: list[list[Any]]) -> bool:
    """Whether two calls of a round returned the same memory while both results were held."""
    seen: set[int] = set()
    for result in results:
        for output in result:
            if hasattr(output, "data_ptr") and output.numel():
                if output.data_ptr() in seen:
                    return True
                seen.add(output.data_ptr())
    return False


def difference(torch: Any, first: list[Any], second: list[Any]) -> float:
    """Relative L2 between two calls on the same inputs; infinite when one is not finite alone."""
    worst = 0.0
    for a, b in zip(first, second, strict=True):
        if type(a) is not torch.Tensor or type(b) is not torch.Tensor or a.shape != b.shape:
            return float("inf")
        x, y = a.to(torch.float32), b.to(torch.float32)
        finite = torch.isfinite(y)
        if bool((torch.isfinite(x) != finite).any()):
            return float("inf")
        zero = torch.zeros_like(x)
        gap = torch.where(finite, x - y, zero)
        size = float(torch.linalg.vector_norm(torch.where(finite, y, zero)))
        worst = max(worst, float(torch.linalg.vector_norm(gap)) / max(size, 1e-30))
    return worst
