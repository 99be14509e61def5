"""What a call does besides returning: operators of the library, kernels launched, streams used."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from accelopt.kernels.triton.bench.channel import Message

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


class LaunchCounter:
    """Counts kernels started through Triton, compiled or interpreted. Install before loading."""

    def __init__(self) -> None:
        self.count = 0
        self.by_name: Counter[str] = Counter()
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
            self.by_name[str(name["name"])] += 1

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


def watching_kernels(
    timed: Callable[[Callable[[], object]], list[float]], counter: LaunchCounter, device: Any
) -> tuple[list[float], Message]:
    """A round under the profiler: its latencies, and what kernels its calls were made of.

    `timed(mark)` runs the round with `mark()` close around each call. `triton_share`: share of GPU
    time in kernels that Triton started; `other_streams`: kernels on a stream that is not the
    call's; `kernel_ms`: median of the calls' summed kernels. All None where the profiler cannot
    start or sees nothing, as on a machine that forbids it.
    """
    import torch

    marker = torch.zeros(1, dtype=torch.complex128, device=device)
    launched = Counter(counter.by_name)
    latencies: list[float] = []
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            latencies = timed(lambda: marker.fill_(1.0))
            torch.cuda.synchronize()
        kernels = _kernels(profile)
    except Exception:
        if latencies:  # the round went well; a profiler that fails is no fault of the candidate
            return latencies, dict(_NOTHING_SEEN)
        raise
    launched = Counter(counter.by_name) - launched
    return latencies, _facts(kernels, launched, len(latencies)) if kernels else dict(_NOTHING_SEEN)


_NOTHING_SEEN: Message = {"triton_share": None, "other_streams": 0, "kernel_ms": None}


class _Kernel(NamedTuple):
    """One kernel as the profiler saw it; nanoseconds."""

    start: float
    name: str
    duration: float
    stream: int

    @property
    def is_mark(self) -> bool:
        return "complex<double>" in self.name


def _facts(kernels: list[_Kernel], launched: Counter[str], calls: int) -> Message:
    """What the kernels between the marks say."""
    marks = [index for index, kernel in enumerate(kernels) if kernel.is_mark]
    if len(marks) != 2 * calls:
        return {**_NOTHING_SEEN, "marks_disturbed": True}
    spans = [kernels[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=True)]
    inside = [kernel for span in spans for kernel in span]
    total = sum(kernel.duration for kernel in inside)
    # A kernel may bear a Triton kernel's name without being one: then more ran than were started.
    ran = Counter(kernel.name for kernel in kernels)
    own = {name for name in launched if ran[name] <= launched[name]}
    triton = sum(kernel.duration for kernel in inside if kernel.name in own)
    stream = kernels[marks[0]].stream
    return {
        "triton_share": triton / total if total else 0.0,
        "other_streams": sum(kernel.stream != stream for kernel in kernels),
        "kernel_ms": statistics.median(sum(k.duration for k in span) for span in spans) / 1e6,
    }


def _kernels(profile: Any) -> list[_Kernel]:
    """Every kernel, copy and fill on the device, in the order they started."""
    found = []
    for event in profile.profiler.kineto_results.events():
        if "cuda" in str(event.device_type()).lower():
            nanoseconds = hasattr(event, "start_ns")
            start = event.start_ns() if nanoseconds else event.start_us() * 1e3
            duration = event.duration_ns() if nanoseconds else event.duration_us() * 1e3
            stream = int(event.device_resource_id())
            found.append(_Kernel(start, event.name(), float(duration), stream))
    return sorted(found)
