"""What a call does besides returning: operators of the library, kernels launched, streams used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

# Operators that do a whole problem's work in a library's kernel. Bare names, without overloads.
HEAVY = {
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "dot", "mv", "addmv", "_scaled_mm",
    "_grouped_mm", "_scaled_grouped_mm", "_int_mm", "convolution", "cudnn_convolution",
    "scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu",
    "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward",
    "softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax", "native_layer_norm",
    "layer_norm", "rms_norm", "_fused_rms_norm", "silu", "gelu", "glu", "einsum", "cumsum", "cumprod",
    "_segment_reduce", "_thnn_fused_lstm_cell", "native_group_norm", "native_batch_norm",
}  # fmt: skip


class Observation(NamedTuple):
    """One observed call.

    `heavy_elements`: output elements by heavy operator. `launches`: kernels started through
    Triton. `triton_share`: share of GPU time in those kernels, and `other_streams`: kernels on
    streams that are not the call's; both None when the profiler saw nothing.
    """

    heavy_elements: dict[str, int]
    launches: int
    triton_share: float | None
    other_streams: int | None


class LaunchCounter:
    """Counts kernels started through Triton, compiled or interpreted. Install before loading."""

    def __init__(self) -> None:
        self.count = 0
        self.names: set[str] = set()
        try:
            import triton
        except ImportError:
            return
        knobs = getattr(triton, "knobs", None)
        hook: Any = getattr(getattr(knobs, "runtime", None), "launch_enter_hook", None)
        if hasattr(hook, "add"):
            hook.add(self._launched)
        elif hasattr(getattr(triton, "compiler", None), "CompiledKernel"):
            triton.compiler.CompiledKernel.launch_enter_hook = self._launched
        self._watch_interpreter()

    def _launched(self, metadata: Any) -> None:
        self.count += 1
        name = getattr(metadata, "data", metadata)
        name = name.get() if hasattr(name, "get") and not isinstance(name, dict) else name
        if isinstance(name, dict) and "name" in name:
            self.names.add(str(name["name"]))

    def _watch_interpreter(self) -> None:
        from triton.runtime import interpreter

        original = interpreter.GridExecutor.__call__
        counter = self

        def counted(executor: Any, *args: Any, **kwargs: Any) -> Any:
            counter.count += 1
            return original(executor, *args, **kwargs)

        interpreter.GridExecutor.__call__ = counted


@contextmanager
def recording_operators(found: dict[str, int]) -> Iterator[None]:
    """Add the output elements of every heavy operator that is called inside to `found`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            name = function.overloadpacket.__name__
            if name in HEAVY:
                first = result[0] if isinstance(result, (tuple, list)) else result
                elements = first.numel() if isinstance(first, torch.Tensor) else 0
                found[name] = found.get(name, 0) + elements
            return result

    with Recorder():
        yield


def profiled(work: Callable[[], Any], triton_names: set[str]) -> tuple[float | None, int | None]:
    """Share of GPU time in Triton's kernels, and the number of kernels on another stream.

    Both None when the profiler is not to be had or saw nothing. The stream of the call is the one
    the first kernel of `work` runs on; `work` starts with a kernel of the harness.
    """
    import torch

    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
        kernels = _kernels(profile)
    except Exception:  # a profiler that cannot start is no fault of the candidate
        return None, None
    if not kernels:
        return None, None
    own_stream = kernels[0][2]
    candidate = kernels[1:]
    total = sum(duration for _, duration, _ in candidate)
    if not candidate or total == 0:
        return 0.0, 0
    triton = sum(duration for name, duration, _ in candidate if _is_triton(name, triton_names))
    return triton / total, sum(stream != own_stream for _, _, stream in candidate)


def _kernels(profile: Any) -> list[tuple[str, float, int]]:
    """Name, duration in microseconds and stream of each kernel, in the order they started."""
    found = []
    for event in profile.profiler.kineto_results.events():
        if "cuda" in str(event.device_type()).lower():
            start = event.start_ns() if hasattr(event, "start_ns") else event.start_us()
            duration = event.duration_ns() if hasattr(event, "duration_ns") else event.duration_us()
            found.append((start, event.name(), float(duration), int(event.device_resource_id())))
    found.sort()
    return [(name, duration, stream) for _, name, duration, stream in found]


def _is_triton(name: str, names: set[str]) -> bool:
    return name in names
