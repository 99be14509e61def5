"""What happens during a call: library operators, kernels launched, streams used."""

from __future__ import annotations

import bisect
import contextlib
import enum
import re
import secrets
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
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


DESCRIPTORS = "triton.tools.tensor_descriptor", "triton.experimental.gluon.nvidia.hopper"
OUTSIDE, UNKNOWN = -1, -2  # where a kernel was started: in no range, or nobody knows


# What a launch asks its arguments for, by name or by Python's protocols.
ASKED = frozenset("data_ptr base __getattr__ __getattribute__ __index__ __int__ __float__".split())
PLAIN = (type(None), bool, int, float, complex, str, bytes)
LIBRARIES = ("builtins", "enum", "numpy", "triton")
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of what a `class` statement makes


class LaunchCounter:
    """Counts kernels started through Triton, compiled or interpreted. Install before loading.

    Around the one call by which Triton's launcher hands a kernel to the driver, by a handle that Triton got
    from a module that it has loaded, stands a range whose name nobody can foresee, in every call of a
    solution: no code of the solution runs within it, for what it passes are tensors and plain values.
    """

    def __init__(self) -> None:
        import torch

        self.count = 0
        self.token = f"launch-{secrets.token_hex(16)}"
        self.strange: set[str] = set()  # types that were passed and are neither
        self._handles: set[int] = set()  # of functions in modules that Triton has loaded
        self._range = torch._C._profiler._RecordFunctionFast(self.token)
        self._tensors = (torch.Tensor, torch.nn.Parameter)
        self._wrapper: type | None = None
        try:
            from triton.backends.nvidia.driver import CudaLauncher, CudaUtils
            from triton.runtime import interpreter, jit
        except ImportError:
            return
        self._wrapper = jit.TensorWrapper
        made, run, counter = CudaLauncher.__init__, interpreter.GridExecutor.__call__, self
        begun = CudaUtils.__init__

        def watched(launcher: Any, *args: Any, **kwargs: Any) -> None:
            made(launcher, *args, **kwargs)
            launcher.launch = counter._watched(launcher.launch)

        def loading(utils: Any, *args: Any, **kwargs: Any) -> None:
            begun(utils, *args, **kwargs)
            utils.load_binary = counter._loaded(utils.load_binary)

        def counted(executor: Any, *args: Any, **kwargs: Any) -> Any:
            counter._count((*args, *kwargs.values()))
            return run(executor, *args, **kwargs)

        CudaLauncher.__init__, interpreter.GridExecutor.__call__ = watched, counted
        CudaUtils.__init__ = loading
        known = getattr(CudaUtils, "instance", None)
        if known is not None:  # somebody asked for the driver before
            known.load_binary = self._loaded(known.load_binary)

    def _loaded(self, load: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        """Triton's call that loads a module: the handle of its function is kept."""

        def loaded(*args: Any) -> tuple[Any, ...]:
            found = load(*args)  # the module, its function, and what that takes
            self._handles.add(found[1])
            return found

        return loaded

    def _watched(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Triton's call of the driver, counted, with nothing but itself in the range."""

        def launched(*args: Any) -> None:
            self._count(args)
            if all(type(one) is not int or one not in self._handles for one in args[:6]):
                launch(*args)  # a kernel of no module that Triton loaded
                return
            with self._range:
                launch(*args)

        return launched

    def _count(self, arguments: tuple[Any, ...]) -> None:
        self.count += 1
        for argument in arguments:
            self._look_at(argument)

    def _look_at(self, argument: Any) -> None:
        """Tensors, Triton's own descriptors of them, plain values, and records and tuples of these."""
        kind = type(argument)
        if kind in PLAIN:
            return
        if kind in self._tensors:
            if vars(argument):
                self.strange.add("tensor with attributes")
        elif kind is self._wrapper or is_descriptor(kind):
            self._look_at(argument.base)
        elif answers(argument):
            self.strange.add(kind.__name__)
        elif isinstance(argument, tuple):
            for part in tuple.__iter__(argument):
                self._look_at(part)


def answers(argument: object) -> bool:
    """Whether an object has what a launch asks for, by a class that is no library's own or by itself. It is
    not asked: what is a property may say no, and yes when it is asked again."""
    own = [vars(one) for one in type(argument).__mro__ if not _is_of_a_library(one)]
    if own and isinstance(argument, PLAIN) and not isinstance(argument, enum.Enum):
        return True  # a number of a class of its own
    with contextlib.suppress(AttributeError):
        own.append(object.__getattribute__(argument, "__dict__"))
    return not ASKED.isdisjoint(name for table in own for name in table)


def _is_of_a_library(kind: type) -> bool:
    """Whether a class is made in C, or stands in a module of one of `LIBRARIES`, as it says."""
    if not kind.__flags__ & HEAP_TYPE:
        return True
    module = sys.modules.get(kind.__module__)
    root = kind.__module__.partition(".")[0]
    return root in LIBRARIES and getattr(module, kind.__name__, None) is kind


def is_descriptor(kind: type) -> bool:
    """True for Triton's own descriptors of tensors; another class of that name is the solution's."""
    modules = map(sys.modules.get, DESCRIPTORS)
    return any(getattr(module, "TensorDescriptor", None) is kind for module in modules)


def operator_recorder(found: dict[str, int]) -> Any:
    """A mode that adds the output elements of every heavy operator to `found`. Entered in every call:
    what is watched now and then can be told by how long an operator takes."""
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

    return Recorder()


def watching_kernels(
    timed: Callable[[Callable[[], object]], list[float]],
    token: str,
    device: Any,
    modules: Sequence[bytes] = (),
) -> tuple[list[float], Seen]:
    """A round under the profiler: its latencies, and what kernels its calls were made of.

    `timed(mark)` runs the round with `mark()` close around each call. For the others see `kernels_of`.
    """
    import torch

    marker = torch.zeros(1, dtype=torch.complex128, device=device)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    latencies: list[float] = []
    try:
        with torch.profiler.profile(activities=activities) as profile:
            latencies = timed(lambda: marker.fill_(1.0))
            torch.cuda.synchronize()
        events = list(profile.profiler.kineto_results.events())
        kernels = kernels_of(events, token, modules)
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
    own: bool = False

    @property
    def is_mark(self) -> bool:
        """Whether it is one of those that part the calls."""
        return "complex<double>" in self.name and not self.own

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
        return not self.own and not any(part in self.name for part in plain)


def facts(kernels: list[ProfiledKernel], calls: int) -> Seen:
    """What the kernels between the marks say."""
    marks = [index for index, kernel in enumerate(kernels) if kernel.is_mark]
    if len(marks) != 2 * calls:
        return Seen(marks_disturbed=True)
    spans = [kernels[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=True)]
    inside = [kernel for span in spans for kernel in span]
    total = sum(kernel.duration for kernel in inside)
    own = sum(kernel.duration for kernel in inside if kernel.own)
    foreign: dict[str, float] = {}
    plain = 0.0
    for kernel in inside:
        if not kernel.computes and not kernel.own:
            plain += kernel.duration / total
        elif kernel.computes:
            foreign[kernel.name] = foreign.get(kernel.name, 0.0) + kernel.duration / total
    stream = kernels[marks[0]].stream
    return Seen(
        own_share=own / total if total else 0.0,
        kernel_ms=statistics.median(sum(k.duration for k in span) for span in spans) / 1e6,
        other_streams=sum(kernel.stream != stream for kernel in kernels),
        foreign=foreign,
        plain=plain,
    )


def kernels_of(
    events: Sequence[Any], token: str, modules: Sequence[bytes] = ()
) -> list[ProfiledKernel]:
    """Every kernel, copy and fill on the device, in the order they started.

    Whose a kernel is says the place of the driver's call that started it, which bears the same
    correlation number, and never a name alone. With `token` a kernel is the solution's where it is the only
    one that was started in a range of that name; with "", for a compiled solution, where it was
    started outside of every operator of a library and is a function of one of the solution's `modules`,
    the bytes of its shared libraries; of none where there are none.
    """
    spans, started, found = [], {}, []
    for event in events:
        name = event.name()
        if "cuda" in str(event.device_type()).lower():
            if name != token:
                found.append(event)
        elif name == token or (not token and "::" in name):
            spans.append((event.start_ns(), event.end_ns()))
        elif name.startswith("cu"):
            started[event.correlation_id()] = event.start_ns()
    ranges = _joined(spans)
    begins = [begin for begin, _ in ranges]

    def place(event: Any) -> int:
        at = started.get(event.correlation_id())
        if at is None:
            return UNKNOWN
        last = bisect.bisect_right(begins, at) - 1
        return last if last >= 0 and at <= ranges[last][1] else OUTSIDE

    places = [place(event) for event in found]
    alone = {inside for inside, count in Counter(places).items() if count == 1 and inside >= 0}
    return sorted(
        ProfiledKernel(
            event.start_ns(),
            event.name(),
            float(event.duration_ns()),
            int(event.device_resource_id()),
            inside in alone if token else inside == OUTSIDE and _is_in(event.name(), modules),
        )
        for event, inside in zip(found, places, strict=True)
    )


def _is_in(name: str, modules: Sequence[bytes]) -> bool:
    """Whether a kernel, by its name in C++, is a function of a module; true where no module is known."""
    bare = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    word = re.split(r"::| ", bare.strip())[-1].encode()
    return not modules or any(word in module for module in modules)


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of time in their order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            begin, end = joined[-1][0], max(end, joined.pop()[1])
        joined.append((begin, end))
    return joined
