"""The untrusted half of the simulated device: a kernel's Python runs here and leaves a Program.

Runs in a confined child process. It sees shapes and dtypes, never data, and what it writes is data
to be checked, never code: a JSON line that says how it went, then the Program's bytes.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from accelopt.devices.kernel_file import load_kernel
from accelopt.devices.protocol import Argument, TensorArgument
from accelopt.sandbox import printable

if TYPE_CHECKING:
    from accelopt.sim.program import Program

MAX_ERROR_CHARACTERS = 20_000


def arguments_to_json(arguments: Sequence[Argument]) -> list[object]:
    """Arguments as plain JSON: a tensor is an object, everything else itself."""
    return [
        {"shape": list(argument.shape), "dtype": argument.dtype}
        if isinstance(argument, TensorArgument)
        else argument
        for argument in arguments
    ]


def read_message(line: bytes) -> dict[str, object] | None:
    """The JSON object that a child's first line should be, or None. Its texts are made printable."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    return {
        key: printable(value) if isinstance(value, str) else value for key, value in message.items()
    }


def trace_job(payload: Mapping[str, object], channel: BinaryIO) -> None:
    """Trace the kernel that `payload` names and write the Program, or what was wrong with it."""
    from accelopt.sim import serial
    from accelopt.sim.errors import KernelError

    try:
        data = serial.dumps(_trace(payload))
    except KernelError as error:
        _write(channel, {"refused": str(error), "traceback": traceback.format_exc()})
    except MemoryError:
        _write(channel, {"failed": "tracing the kernel needs more memory than the limit"})
    except RecursionError:
        _write(channel, {"failed": "RecursionError: the kernel's Python recurses too deeply"})
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
        _write(channel, {"failed": said, "traceback": traceback.format_exc()})
    else:
        _write(channel, {"traced": True})
        channel.write(data)


def _trace(payload: Mapping[str, object]) -> Program:
    import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit formats with NumPy)

    from accelopt.sim import standin
    from accelopt.sim.nki.kernel import trace_kernel
    from accelopt.sim.trace import TensorSpec

    standin.install(always=True)
    specs = [
        TensorSpec(tuple(item["shape"]), np.dtype(item["dtype"]))
        if isinstance(item, dict)
        else item
        for item in payload["arguments"]  # type: ignore[attr-defined]
    ]
    kernel = load_kernel(str(payload["kernel"]))
    return trace_kernel(kernel, specs, {}, target=str(payload["target"]))


def _write(channel: BinaryIO, message: dict[str, object]) -> None:
    cut = {
        key: value[-MAX_ERROR_CHARACTERS:] if isinstance(value, str) else value
        for key, value in message.items()
    }
    channel.write(json.dumps(cut).encode() + b"\n")
    channel.flush()
