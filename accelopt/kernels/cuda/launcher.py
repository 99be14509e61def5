"""A CUDA kernel as a function of tensors: compiled, loaded, launched on PyTorch's current stream.

The driver starts it by its own calls (cuda.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelopt.contract.spec import Argument
from accelopt.errors import ConfigError
from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.kernels.cuda.compiling import Built, build
from accelopt.kernels.cuda.launch_pragma import (
    ExecutionConfiguration,
    Number,
    Signature,
    launch_of,
    scalar_type,
    signature_of,
)
from accelopt.kernels.gpu.bench.files.tracefiles import Solution

LARGE_SHARED = GPUS[DEFAULT_GPU].plain_shared_bytes
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def load(solution: Solution, folder: Path) -> Callable[..., Any]:
    """The kernel of a solution as a function of the definition's inputs that returns its outputs.

    Raises CompilationError, or ConfigError where source and arguments do not fit together.
    """
    import torch

    source = solution.main_source
    signature = signature_of(source, solution.spec.entry_point.partition("::")[2])
    arguments = [Argument.model_validate(one) for one in solution.spec.arguments]
    _refuse_misfits(signature, arguments)
    major, minor = torch.cuda.get_device_capability()
    built = build(source, 10 * major + minor, folder, signature.instance)
    start = ByDriver(built, signature.name, launch_of(source)).start
    return LoadedKernel(signature, arguments, start).call


class LoadedKernel:
    """A kernel with its arguments: `call` makes the outputs and starts it."""

    def __init__(
        self,
        signature: Signature,
        arguments: Sequence[Argument],
        start: Callable[[Sequence[Number], int], None],
    ) -> None:
        import torch

        self._arguments = list(arguments)
        self._types = [
            None if parameter.pointer else scalar_type(parameter)
            for parameter in signature.parameters
        ]
        self._start = start
        self._dtypes = {a.name: getattr(torch, a.tensor.dtype) for a in arguments if a.is_tensor}
        self._stream = torch.cuda.current_stream
        self._torch = torch

    def call(self, *inputs: Any) -> Any:
        """The outputs for the given tensors: one tensor, or a tuple."""
        given, outputs = iter(inputs), []
        values: list[Number] = []
        for argument, kind in zip(self._arguments, self._types, strict=True):
            if kind is not None:
                values.append(kind(argument.value))
                continue
            tensor = self._tensor(argument, given)
            if argument.is_output:
                outputs.append(tensor)
            values.append(ctypes.c_void_p(tensor.data_ptr()))
        self._start(values, self._stream().cuda_stream)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _tensor(self, argument: Argument, given: Any) -> Any:
        if argument.is_input:
            tensor = next(given)
            return tensor.clone() if argument.is_output else tensor
        dtype, shape = self._dtypes[argument.name], argument.tensor.shape
        if argument.filled is None:
            return self._torch.empty(shape, dtype=dtype, device="cuda")
        return self._torch.full(shape, argument.filled, dtype=dtype, device="cuda")


class ByDriver:
    """Calls of libcuda."""

    def __init__(self, built: Built, name: str, launch: ExecutionConfiguration) -> None:
        import torch

        torch.empty(1, device="cuda")  # PyTorch's context is the current one from here on
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._launch = launch
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), built.cubin)
        self._call(
            "cuModuleGetFunction", ctypes.byref(self._function), module, built.entry(name).encode()
        )
        if launch.shared > LARGE_SHARED:
            self._call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, launch.shared)

    def start(self, values: Sequence[Number], stream: int) -> None:
        """With pointers and numbers in the order of its parameters, on a stream of CUDA."""
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        self._call(
            "cuLaunchKernel", self._function, *self._launch.grid, *self._launch.block,
            self._launch.shared, ctypes.c_void_p(stream), pointers, None,
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(said))
            raise RuntimeError(f"{name}: {(said.value or b'').decode()} ({code})")


def _refuse_misfits(signature: Signature, arguments: Sequence[Argument]) -> None:
    if len(signature.parameters) != len(arguments):
        raise ConfigError(
            f"{signature.name} has {len(signature.parameters)} parameters; its contract gives "
            f"{len(arguments)} arguments"
        )
    for parameter, argument in zip(signature.parameters, arguments, strict=True):
        if parameter.pointer is not argument.is_tensor:
            raise ConfigError(
                f"parameter {parameter.name} of {signature.name} is "
                f"{'a pointer' if parameter.pointer else 'no pointer'}, argument {argument.name} "
                f"is {'a tensor' if argument.is_tensor else 'a number'}"
            )
