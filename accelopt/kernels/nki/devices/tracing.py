"""The untrusted half of the simulated device: a kernel's Python runs here and leaves a Program.

Runs in a confined child process. It sees shapes and dtypes, never data, and what it writes is data
to be checked, never code: a JSON line that says how it went, then the Program's bytes. A kernel that
comes to no end leaves its stack instead, as `faulthandler` writes it.
"""

from __future__ import annotations

import faulthandler
import functools
import inspect
import json
import linecache
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from accelopt.errors import InternalError, internal_fault, printable, quoted
from accelopt.kernels.nki.devices.absent_modules import AbsentUse
from accelopt.kernels.nki.devices.changed_environment import change
from accelopt.kernels.nki.devices.kernel_file import call_of, load_kernel
from accelopt.kernels.nki.devices.protocol import KernelArgument, TensorArgument
from accelopt.kernels.nki.kernel_function import NoKernel

if TYPE_CHECKING:
    from accelopt.sim.errors import KernelError
    from accelopt.sim.program import Program

MAX_ERROR_CHARACTERS = 20_000

_SENTENCES = ("error", "failed", "failure", "refused")
CALLS = 2  # of a kernel in one process, the first time that it is traced again
_STACK = b"Timeout ("
_STACK_LINE = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in ', re.MULTILINE)


class UnknownShapes(ValueError):
    """A kernel whose annotations do not tell its arguments."""


def arguments_to_json(arguments: Sequence[KernelArgument]) -> list[object]:
    """Arguments as plain JSON: a tensor is an object, everything else itself."""
    return [
        {"shape": list(argument.shape), "dtype": argument.dtype}
        if isinstance(argument, TensorArgument)
        else argument
        for argument in arguments
    ]


def arguments_of_json(items: Sequence[Any]) -> list[KernelArgument]:
    """The arguments of which `arguments_to_json` made plain JSON."""
    return [
        TensorArgument(tuple(item["shape"]), item["dtype"]) if isinstance(item, dict) else item
        for item in items
    ]


def abstract(arguments: Sequence[KernelArgument]) -> list[Any]:
    """What a kernel is traced with for these arguments."""
    from accelopt.sim.trace import AbstractTensor

    return [
        AbstractTensor(argument.shape, np.dtype(argument.dtype))
        if isinstance(argument, TensorArgument)
        else argument
        for argument in arguments
    ]


def read_message(line: bytes) -> dict[str, object] | None:
    """The JSON object that a child's first line should be, or None. Its texts are made printable; of
    what it says in sentences, no line can be taken for one of ours."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    return {
        key: (quoted if key in _SENTENCES else printable)(value)
        if isinstance(value, str)
        else value
        for key, value in message.items()
    }


def unfinished_line(result: bytes, kernel: str) -> int | None:
    """The line of the file `kernel` that a child was at when its time was over: 0 where its stack
    does not say, None where it left something else than its stack."""
    if not result.startswith(_STACK):
        return None
    name = kernel.encode("ascii", "backslashreplace").decode()  # as faulthandler writes it
    stack = _STACK_LINE.finditer(result.decode("ascii", "replace"))
    return next((int(frame["line"]) for frame in stack if frame["file"] == name), 0)


def trace_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """Trace the kernel that `payload` names and write the Program, or what was wrong with it."""
    _write(channel, *_traced(payload, channel, None))


def survey_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """The same, going on where a rule is broken: the message has every violation that was found,
    and the Program lacks the instructions that broke a rule."""
    found: list[KernelError] = []
    message, data = _traced(payload, channel, found)
    violations = [(e.identifier, e.message, e.mend, e.source.file, e.source.line) for e in found]
    _write(channel, {**message, "violations": violations}, data)


def _write(channel: BinaryIO, message: dict[str, object], data: bytes) -> None:
    cut = {
        key: value[-MAX_ERROR_CHARACTERS:] if isinstance(value, str) else value
        for key, value in message.items()
    }
    channel.write(json.dumps(cut).encode() + b"\n")
    channel.write(data)
    channel.flush()


def _traced(
    payload: Mapping[str, Any], channel: BinaryIO, found: list[KernelError] | None
) -> tuple[dict[str, object], bytes]:
    """How tracing went, and the Program's bytes where there is one. Violations are added to `found`
    where there is such a list."""
    from accelopt.sim.errors import UNDERSTOOD, KernelError

    kernel = str(payload["kernel"])
    faulthandler.dump_traceback_later(payload["seconds"], exit=True, file=channel)
    try:
        program = _trace(payload, None if found is None else found.append)
        return _written(program, kernel, bool(found))
    except KernelError as error:
        if found is not None:
            found.append(error)
        return {"refused": str(error), "traceback": traceback.format_exc()}, b""
    except InternalError as error:
        return {"internal": internal_fault(error), "traceback": traceback.format_exc()}, b""
    except (NoKernel, UnknownShapes) as error:
        return {"failed": str(error), "unknown_shapes": isinstance(error, UnknownShapes)}, b""
    except AbsentUse as error:
        return {"failed": f"{error}{_place(error, kernel)}. {UNDERSTOOD}"}, b""
    except MemoryError as error:
        where = _place(error, kernel)
        traceback.clear_frames(error.__traceback__)  # the answer needs what their variables hold
        return {"failed": f"tracing the kernel needs more memory than the limit{where}"}, b""
    except RecursionError:
        return {"failed": "RecursionError: the kernel's Python recurses too deeply"}, b""
    except ModuleNotFoundError as error:
        said = f"the simulated NeuronCore has no module {error.name!r}{_place(error, kernel)}."
        return {"failed": f"{said} {UNDERSTOOD}"}, b""
    except BaseException as error:
        said = (
            f"{type(error).__name__}: {str(error) or _line(error, kernel)}{_place(error, kernel)}"
        )
        return {"failed": said, "traceback": traceback.format_exc()}, b""
    finally:
        faulthandler.cancel_dump_traceback_later()


def _written(program: Program, kernel: str, broken: bool) -> tuple[dict[str, object], bytes]:
    """The Program's bytes, read back: what cannot be written or read here is a fault of our own, so
    that bytes which another process cannot read were changed on the way. Of a kernel that has broken
    a rule (`broken`) an instruction may hold what no Program does: it leaves none."""
    from accelopt.sim import serial

    try:
        data = serial.dumps(program)
        serial.loads(data, kernel)
    except MemoryError:
        raise
    except serial.ProgramTooLarge as error:
        return {"failed": f"the kernel unrolls to a program that is too large: {error}"}, b""
    except Exception as error:
        if broken:
            return {"traced": False}, b""
        return {"internal": internal_fault(error), "traceback": traceback.format_exc()}, b""
    return {"traced": True}, data


def _lines(error: BaseException, kernel: str) -> list[int]:
    frames = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in frames if frame.f_code.co_filename == kernel]


def _place(error: BaseException, kernel: str) -> str:
    """Where in the file `kernel` an error was raised, in words; empty where it was not."""
    lines = _lines(error, kernel)
    return f" (at {kernel}:{lines[-1]})" if lines else ""


def _line(error: BaseException, kernel: str) -> str:
    """The text of the line that raised an error which says nothing, as a plain `assert` does."""
    lines = _lines(error, kernel)
    return linecache.getline(kernel, lines[-1]).strip() if lines else ""


def _trace(payload: Mapping[str, Any], report: Callable[[KernelError], None] | None) -> Program:
    import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit formats with NumPy)

    from accelopt.sim import standin
    from accelopt.sim.dialects.dialect import trace_kernel

    standin.install(always=True)
    change(int(payload.get("again", 0)))
    kernel = load_kernel(str(payload["kernel"]), payload["folder"])
    if payload["arguments"] is None:
        arguments = _annotated(kernel)
    else:
        arguments = abstract(arguments_of_json(payload["arguments"]))
    for _ in range(CALLS if payload.get("again") == 1 else 1):  # the last is what is left
        called = call_of(kernel, arguments)
        program = trace_kernel(
            called.kernel,
            called.arguments,
            called.keywords,
            target=str(payload["target"]),
            version=str(payload.get("version", "")),
            report=report,
        )
    return program


def _annotated(kernel: Any) -> list[Any]:
    """The arguments that a kernel's own annotations tell (fp32 where they name no format) and its
    default values. Raises UnknownShapes."""
    from accelopt.sim.dialects.neuronxcc.arguments import annotations_of
    from accelopt.sim.dialects.neuronxcc.typing import TensorAnnotation
    from accelopt.sim.trace import AbstractTensor

    function = kernel
    while hasattr(function, "func"):
        function = function.func
    annotations = annotations_of(function)
    found: list[Any] = []
    # Of a functools.partial those that it leaves; of a Kernel `func` is its function.
    asked = kernel if isinstance(kernel, functools.partial) else function
    for name, parameter in inspect.signature(asked).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            continue
        annotation = annotations.get(name)
        if isinstance(annotation, TensorAnnotation) and annotation.shape:
            found.append(AbstractTensor(annotation.shape, np.dtype(np.float32)))
        elif isinstance(annotation, AbstractTensor):
            found.append(annotation)
        elif parameter.default is parameter.empty:
            raise UnknownShapes(
                f"the shape of the kernel's parameter {name} is not known: give --reference, or "
                "annotate every parameter with nt.tensor[...]"
            )
        else:
            found.append(parameter.default)
    return found
