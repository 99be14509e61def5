"""Compile a solution's kernels for a GPU that is not there.

The solution's host code runs on tensors of the workload's shapes that live nowhere near a GPU and
say that they do; every launch is compiled for the target instead of being started. What comes
back are the resources of each kernel: shared memory from the compiler, registers and spills from
the assembler's own notes in the binary. A kernel that does not compile is known before it costs
device time, and what does compile is in Triton's cache when the device's turn comes.
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
import subprocess
import tempfile
import types
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.hardware.gpus import GPU, GPUS
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Trace
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.inputs import torch_dtype
from accelopt.kernels.gpu.bench.process.messages import Resources
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry
from accelopt.sandbox.serving import Handlers


class _TargetDriver:
    """Stands where Triton expects a CUDA driver; answers what compiling needs."""

    def __init__(self, target: GPU) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", target.capability, target.warp_threads)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")


PRODUCT = re.compile(r"(?:tt\.dot|warp_group_dot) .*-> tensor<([\dx]+)xf(\d+),")


class _TooWide(Exception):
    """The result of one product does not fit the registers of the threads that compute it."""

    def __init__(self, registers: int, most: int, shared_bytes: int) -> None:
        super().__init__(f"one product takes {registers} registers a thread")
        self.registers = registers
        self.spilled_bytes = 4 * (registers - most)
        self.shared_bytes = shared_bytes


def widest_product(ir: str, threads: int) -> int:
    """Registers a thread that the largest result of a product takes, from Triton's GPU dialect."""
    sizes = (
        math.prod(map(int, shape.split("x"))) * int(bits) // 32
        for shape, bits in PRODUCT.findall(ir)
    )
    return max(sizes, default=0) // threads


def _refuse_wide_products(target: GPU) -> None:
    """From now on, compiling ends before LLVM gets a product that cannot be kept in registers: a
    thousand values a thread take it minutes, and the kernel would spill most of them in every step."""
    from triton.backends.nvidia import compiler

    guarded = compiler.llvm = _GuardedLLVM(compiler.llvm, target.thread_registers)
    made = compiler.CUDABackend.make_ttgir

    def recorded(module: Any, metadata: Any, options: Any, *others: Any) -> Any:
        module = made(module, metadata, options, *others)
        threads = target.warp_threads * options.num_warps
        guarded.registers = widest_product(str(module), threads)
        return module

    compiler.CUDABackend.make_ttgir = staticmethod(recorded)


class _GuardedLLVM:
    """Triton's LLVM; `registers` are a thread's for the widest product of the module that comes next,
    `most` those that it can have."""

    def __init__(self, llvm: Any, most: int) -> None:
        self._llvm = llvm
        self._most = most
        self.registers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llvm, name)

    def to_module(self, module: Any, *others: Any) -> Any:
        """LLVM's module, unless a product is too wide. Shared memory is laid out by now."""
        if self.registers > self._most:
            shared = module.get_int_attr("ttg.shared") or 0
            raise _TooWide(self.registers, self._most, shared)
        return self._llvm.to_module(module, *others)


class SolutionCompiler:
    """Compiles one solution after another for one target, in this process."""

    def __init__(self, target: GPU) -> None:
        import triton
        from triton.compiler import CompiledKernel
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self.target = target
        self.compiled: list[tuple[Any, RecordedLaunch]] = []
        self.too_wide: list[Resources] = []
        _refuse_wide_products(target)
        triton.runtime.driver.set_active(_TargetDriver(target))
        original = JITFunction.run
        compiled, too_wide = self.compiled, self.too_wide

        def compile_only(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            try:
                kernel = original(function, *args, grid=grid, warmup=True, **kwargs)
            except _TooWide as found:
                too_wide.append(_left_out(function.__name__, kwargs, found))
                return None
            done = kernel.result() if hasattr(kernel, "result") else kernel
            compiled.append((done, _launch(function, grid, args, kwargs)))
            return kernel

        def every_configuration(tuner: Any, *args: Any, **kwargs: Any) -> None:
            failures = []
            for configuration in tuner.configs:
                try:
                    tuner.fn.run(*args, **{**kwargs, **configuration.all_kwargs()})
                except Exception as error:  # one of several configurations may not fit
                    failures.append(error)
            if len(failures) == len(tuner.configs):
                raise failures[0]

        def loaded(kernel: Any) -> None:
            """What the driver says of a kernel that is loaded, from its machine code."""
            kernel.n_regs, kernel.n_spills = _from_binary(kernel.asm["cubin"])

        JITFunction.run = compile_only
        CompiledKernel._init_handles = loaded
        CompiledKernel.__getitem__ = lambda kernel, grid: lambda *args, **kwargs: None
        Autotuner.run = every_configuration

    def compile(self, asked: say.Compile) -> say.Compiled:
        """Every kernel that one call of the solution would launch, compiled for the target."""
        import torch

        self.compiled.clear()
        self.too_wide.clear()
        definition = Definition.model_validate(asked.definition)
        workload = Trace.model_validate(asked.workload)
        solution = Solution.model_validate(asked.solution)
        with (
            tempfile.TemporaryDirectory(prefix="accelopt-source-") as folder,
            _pretending(self.target),
            torch.no_grad(),
        ):
            function = load_entry(solution, Path(folder), definition)
            arguments = _arguments(definition, workload)
            if asked.destination_passing_style:
                arguments += _outputs(definition, workload)
            function(*arguments)
        made = (_resources(kernel) for kernel, _ in self.compiled)
        resources = dict.fromkeys((*made, *self.too_wide))
        code: dict[tuple[str, str, int], say.Code] = {}
        for kernel, launch in self.compiled:
            one = _code(kernel, launch, folder)
            code.setdefault((one.kernel, one.ptx, one.blocks), one)
        return say.Compiled(resources=tuple(resources), code=tuple(code.values()))


def _arguments(definition: Definition, workload: Trace) -> list[Any]:
    """Unfilled tensors of the right shapes; index tensors with their values."""
    import torch

    generated = index_tensors.generate(definition, workload.workload, 1)
    made: list[Any] = []
    for name, spec in definition.inputs.items():
        shape = definition.shape(spec, workload.workload)
        source = workload.workload.inputs.get(name)
        if shape is None:
            made.append(1.0 if source is None or source.value is None else source.value)
        elif name in generated and generated[name].dtype.kind in "iub":
            made.append(torch.from_numpy(generated[name]))
        else:
            made.append(torch.empty(shape, dtype=torch_dtype(spec.dtype)))
    return made


def _outputs(definition: Definition, workload: Trace) -> list[Any]:
    import torch

    return [
        torch.empty(definition.shape(spec, workload.workload) or (), dtype=torch_dtype(spec.dtype))
        for spec in definition.outputs.values()
    ]


@contextlib.contextmanager
def _pretending(target: GPU) -> Iterator[None]:
    """Host code finds a GPU: `cuda` devices are the CPU, and `is_cuda` is true."""
    import torch
    from torch.overrides import TorchFunctionMode

    properties = types.SimpleNamespace(
        name=target.name,
        multi_processor_count=target.multiprocessors,
        major=target.capability // 10,
        minor=target.capability % 10,
        shared_memory_per_block_optin=target.block_shared_bytes,
        total_memory=141 << 30,
        warp_size=target.warp_threads,
        regs_per_multiprocessor=target.registers,
        shared_memory_per_multiprocessor=target.shared_bytes,
    )
    replacements = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "synchronize": lambda *_: None,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (target.capability // 10, target.capability % 10),
        "get_device_name": lambda *_: target.name,
        "set_device": lambda *_: None,
        "device": lambda *_: contextlib.nullcontext(),
        "current_stream": lambda *_: types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None),
    }

    class Pretence(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(
            self, function: Any, types_: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            name = getattr(function, "__name__", "")
            owner = getattr(function, "__self__", None)
            if owner is torch.Tensor.is_cuda:
                return True
            if name == "cuda":
                return args[0]
            if "device" in kwargs and kwargs["device"] is not None:
                kwargs["device"] = torch.device("cpu")
            if name == "to":
                args = tuple(
                    torch.device("cpu") if _is_cuda_device(item) else item for item in args
                )
            kwargs.pop("pin_memory", None)
            return function(*args, **kwargs)

    for name, value in replacements.items():
        setattr(torch.cuda, name, value)
    with Pretence():
        yield


def _is_cuda_device(item: Any) -> bool:
    import torch

    if isinstance(item, str):
        return item.startswith("cuda")
    return isinstance(item, torch.device) and item.type == "cuda"


def _code(kernel: Any, launch: RecordedLaunch, folder: str) -> say.Code:
    cubin = base64.b64encode(kernel.asm["cubin"]).decode()
    ptx = kernel.asm["ptx"].replace(f"{folder}/", "")
    return say.Code(
        kernel=str(kernel.metadata.name), ptx=ptx, cubin=cubin,
        blocks=math.prod(launch.grid), launch=launch.values(kernel),
    )  # fmt: skip


def _launch(
    function: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> RecordedLaunch:
    """What a launch says; nothing where it cannot be worked out."""
    try:
        known = function.signature.parameters
        bound = function.signature.bind_partial(
            *args, **{name: value for name, value in kwargs.items() if name in known}
        )
        bound.apply_defaults()
        if callable(grid):
            grid = grid(bound.arguments)
        sizes = (grid,) if isinstance(grid, int) else tuple(grid)
        return RecordedLaunch(tuple(int(size) for size in sizes), dict(bound.arguments))
    except Exception:  # a stranger's function, with or without the values that it wants
        return RecordedLaunch((0,), {})


class RecordedLaunch(NamedTuple):
    """The blocks along each axis (0: unknown), and the arguments by name."""

    grid: tuple[int, ...]
    arguments: Mapping[str, Any]

    def values(self, kernel: Any) -> dict[str, int]:
        """Integers by the places of the kernel's parameters, and where the block in the middle of the
        grid lies: it stands for all. A parameter that the compiler took as a constant has no place."""
        found: dict[str, int] = {}
        for axis, size in zip("xyz", self.grid, strict=False):
            if size:
                found |= {f"%nctaid.{axis}": size, f"%ctaid.{axis}": size // 2}
        signature = getattr(kernel.src, "signature", {})
        places = [name for name, kind in signature.items() if kind != "constexpr"]
        if any("tensordesc" in str(kind) or isinstance(kind, tuple) for kind in signature.values()):
            return found  # they take several places each
        for place, name in enumerate(places):
            value = self.arguments.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                found[str(place)] = value
        return found


def _resources(kernel: Any) -> Resources:
    """Read one compiled kernel."""
    metadata = kernel.metadata
    registers, spilled = _from_binary(kernel.asm["cubin"])
    return Resources(
        kernel=str(metadata.name),
        warps=int(metadata.num_warps),
        stages=int(getattr(metadata, "num_stages", 0)),
        shared_bytes=int(metadata.shared),
        registers=registers,
        spilled_bytes=spilled,
    )


def _left_out(name: str, options: Mapping[str, Any], found: _TooWide) -> Resources:
    """What is known of a kernel that was not compiled to its end: its registers are the least."""
    return Resources(
        kernel=name,
        warps=int(options.get("num_warps", 4)),
        stages=int(options.get("num_stages", 3)),
        shared_bytes=found.shared_bytes,
        registers=found.registers,
        spilled_bytes=found.spilled_bytes,
    )


def _from_binary(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and stack bytes, as `cuobjdump` that comes with Triton prints them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return 0, 0
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        printed = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
    registers = re.search(r"REG:(\d+)", printed)
    stack = re.search(r"STACK:(\d+)", printed)
    return int(registers[1]) if registers else 0, int(stack[1]) if stack else 0


COMPILERS = {"cuda": "accelopt.kernels.cuda.compiling:CudaCompiler"}
"""Languages with a compiler of their own, by the language of a solution: `module:Class` of a target."""


@cache
def _compiler(place: str, target: str) -> Any:
    """The compiler at `place` for a target, made once; without a place the one that runs host code."""
    module, _, name = place.partition(":")
    kind = getattr(import_module(module), name) if place else SolutionCompiler
    return kind(GPUS[target])


def handlers(payload: Mapping[str, Any]) -> Handlers:
    """What this process answers."""

    def compiled(asked: say.Compile) -> say.Compiled:
        place = COMPILERS.get(str(asked.solution["spec"]["language"]), "")
        found: say.Compiled = _compiler(place, payload["target"]).compile(asked)
        return found

    return {say.Compile: compiled}
