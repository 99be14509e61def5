"""What happens during a call: library operators, kernels launched, streams used."""

from __future__ import annotations

import bisect
import secrets
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from accelopt.kernels.gpu.bench.process.messages import Seen

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
    "cudnn_convolution_relu", "cudnn_convolution_transpose", "convolution_overrideable", "_convolution",
    "conv_transpose2d", "mkldnn_convolution", "conv1d", "conv2d", "conv3d", "_segment_reduce", "_thnn_fused_lstm_cell", "native_group_norm", "native_batch_norm",
}  # fmt: skip


class LaunchCounter:
    """Counts kernels started through Triton, compiled or interpreted. Install before loading.

    Under the profiler each launch stands in a range whose name nobody can foresee: whatever is started
    within it is the kernel that Triton has at hand there, whatever it is called.
    """

    def __init__(self) -> None:
        import torch

        self.count = 0
        self.token = f"launch-{secrets.token_hex(16)}"
        self._watching = False
        self._enter = torch.ops.profiler._record_function_enter_new.default
        self._leave = torch.ops.profiler._record_function_exit._RecordFunction
        self._open: list[Any] = []
        try:
            import triton
        except ImportError:
            return
        runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
        for name, action in (
            ("launch_enter_hook", self._launched),
            ("launch_exit_hook", self._left),
        ):
            hook: Any = getattr(runtime, name, None)
            if hasattr(hook, "add"):
                hook.add(action)
            elif hasattr(getattr(triton, "compiler", None), "CompiledKernel"):
                setattr(triton.compiler.CompiledKernel, name, action)
        self._watch_interpreter()

    # Not even the name of the kernel is asked for: that could be code of the candidate's.
    def _launched(self, _: Any) -> None:
        self.count += 1
        if self._watching:
            self._open.append(self._enter(self.token, None))

    def _left(self, _: Any) -> None:
        if self._open:
            self._leave(self._open.pop())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Ranges for the profiler around every launch inside."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

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
) -> tuple[list[float], Seen]:
    """A round under the profiler: its latencies, and what kernels its calls were made of.

    `timed(mark)` runs the round with `mark()` close around each call.
    """
    import torch

    marker = torch.zeros(1, dtype=torch.complex128, device=device)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    latencies: list[float] = []
    try:
        with counter.watching(), torch.profiler.profile(activities=activities) as profile:
            latencies = timed(lambda: marker.fill_(1.0))
            torch.cuda.synchronize()
        events = list(profile.profiler.kineto_results.events())
        kernels = kernels_of(events, counter.token)
    except Exception:
        if latencies:  # the round went well; a profiler that fails is no fault of the candidate
            return latencies, Seen()
        raise
    return latencies, facts(kernels, len(latencies)) if kernels else Seen()


class ProfiledKernel(NamedTuple):
    """One kernel, copy or fill as the profiler saw it on the device; nanoseconds."""

    start: float
    name: str
    duration: float
    stream: int
    by_triton: bool = False

    @property
    def is_mark(self) -> bool:
        """Whether it is one of those that part the calls."""
        return "complex<double>" in self.name and not self.by_triton

    @property
    def computes(self) -> bool:
        """Whether a library computes in it: more than torch's own kernels for simple operators."""
        plain = (
            "at::native::",
            "at_cuda_detail::",
            "elementwise_kernel_with_index",
            "Memcpy",
            "Memset",
        )
        return not self.by_triton and not any(part in self.name for part in plain)


def facts(kernels: list[ProfiledKernel], calls: int) -> Seen:
    """What the kernels between the marks say."""
    marks = [index for index, kernel in enumerate(kernels) if kernel.is_mark]
    if len(marks) != 2 * calls:
        return Seen(marks_disturbed=True)
    spans = [kernels[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=True)]
    inside = [kernel for span in spans for kernel in span]
    total = sum(kernel.duration for kernel in inside)
    triton = sum(kernel.duration for kernel in inside if kernel.by_triton)
    foreign: dict[str, float] = {}
    plain = 0.0
    for kernel in inside:
        if not kernel.computes and not kernel.by_triton:
            plain += kernel.duration / total
        elif kernel.computes:
            foreign[kernel.name] = foreign.get(kernel.name, 0.0) + kernel.duration / total
    stream = kernels[marks[0]].stream
    return Seen(
        triton_share=triton / total if total else 0.0,
        kernel_ms=statistics.median(sum(k.duration for k in span) for span in spans) / 1e6,
        other_streams=sum(kernel.stream != stream for kernel in kernels),
        foreign=foreign,
        plain=plain,
    )


def kernels_of(events: Sequence[Any], token: str) -> list[ProfiledKernel]:
    """Every kernel, copy and fill on the device, in the order they started.

    A kernel is Triton's when the call of the driver that started it, which bears the same
    correlation number, lies within a range of that name.
    """
    ranges, started, found = [], {}, []
    for event in events:
        on_device = "cuda" in str(event.device_type()).lower()
        if event.name() == token:
            if not on_device:
                ranges.append((event.start_ns(), event.end_ns()))
        elif on_device:
            found.append(event)
        elif event.name().startswith("cu"):
            started[event.correlation_id()] = event.start_ns()
    ranges.sort()
    begins = [begin for begin, _ in ranges]

    def by_triton(event: Any) -> bool:
        at = started.get(event.correlation_id())
        place = bisect.bisect_right(begins, at) - 1 if at is not None else -1
        return place >= 0 and at <= ranges[place][1]

    return sorted(
        ProfiledKernel(
            event.start_ns(),
            event.name(),
            float(event.duration_ns()),
            int(event.device_resource_id()),
            by_triton(event),
        )
        for event in found
    )
