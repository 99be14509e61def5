"""From Triton kernels with the host function that launches them to their Algorithm."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.algorithm.axis_joining import joined
from accelopt.algorithm.canonical_rewriting import whole
from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Algorithm, Array
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.traced_array import NotTraced
from accelopt.algorithm.value_nodes import Undefined
from accelopt.kernels.triton.lift.execution import Unknown
from accelopt.kernels.triton.lift.host import (
    Host,
    NumberIsRead,
    RealNumber,
    Tensor,
    WholeNumber,
    load,
)
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace
from accelopt.sim.errors import SourceLine


class LiftedLaunches(NamedTuple):
    """What launches compute, and the lines that the definitions come from, where one is known: of a
    reduction or a recurrence that of the statement that makes it, of another output that of its store."""

    algorithm: Algorithm
    lines: Mapping[str, SourceLine]


class Like(NamedTuple):
    """A tensor of a launch: its shape, and its format by NumPy's name."""

    shape: tuple[int, ...]
    dtype: str = "float32"


ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def lift_launches(
    path: str | Path, function: str | Callable[..., Any], given: Sequence[Any],
    folders: Sequence[str] = (),
) -> LiftedLaunches:  # fmt: skip
    """What the kernels compute that a host function of a file launches.

    `given` are its arguments: arrays, or `Like`, for tensors, anything else as it is. `function` is its
    name, or what calls functions of the module, which it is given first. The inputs have the names of the
    function's parameters, the outputs are what it returns and the inputs that it changes. A host function
    that reads numbers from tensors is executed by its statements, with numbers of the tracer; errors that it
    raises where such a number says so are taken not to be raised. `folders` are
    searched for what the file imports. The file's Python runs in this process: `confined` has a child
    for it. Raises NotTraced, with file and line, for what has no Algorithm.
    """
    path = str(Path(path).resolve())
    found = _attempt(path, function, given, folders, False)
    if isinstance(found, NumberIsRead):
        found = _attempt(path, function, given, folders, True)
    assert not isinstance(found, NumberIsRead)
    return found


def _attempt(
    path: str, function: str | Callable[..., Any], given: Sequence[Any],
    folders: Sequence[str], statements: bool,
) -> LiftedLaunches | NumberIsRead:  # fmt: skip
    """What is lifted where Python executes the host function, or where that is done by its statements."""
    trace = KernelTrace(path)
    host = Host(trace, statements)
    with deep_recursion(), host.installed():
        try:
            module = load(path, host, folders)
            for kind in (WholeNumber, RealNumber):
                vars(module).setdefault(kind.__mro__[1].__name__, kind)
            host.importing = False
            found = _traced(host, module, function, given)
            return host.number_is_read or found
        except NumberIsRead as reason:
            return reason
        except NotTraced:
            raise
        except UndefinedOutput as refusal:
            raise NotTraced(str(refusal), path) from None
        except SyntaxError as error:
            said = f"{type(error).__name__}: {error.msg}"
            raise NotTraced(said, error.filename or path, error.lineno or 0) from None
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            frames = traceback.walk_tb(error.__traceback__)
            places = [(frame.f_code.co_filename, line) for frame, line in frames]
            lines = [place for place in places if place[0] in trace.files]
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            if isinstance(error, RecursionError):
                said = "too many operations build on each other, or a function calls itself"
            raise NotTraced(said, *(lines[-1] if lines else (path, 0))) from error


def _traced(
    host: Host, module: Any, function: str | Callable[..., Any], given: Sequence[Any]
) -> LiftedLaunches:  # fmt: skip
    called = getattr(module, function, None) if isinstance(function, str) else function
    if not callable(called):
        raise NotTraced(f"there is no function {function}", host.trace.path)
    first = [] if isinstance(function, str) else [module]
    named_ones = inspect.signature(called).parameters.values()
    parameters = [one.name for one in named_ones if one.kind not in ANY_NUMBER][len(first) :]
    arguments: list[tuple[str, Any]] = [
        (parameters[n] if n < len(parameters) else f"x{n}", value) for n, value in enumerate(given)
    ]
    inputs: list[tuple[Array, Tensor]] = []
    made: dict[str, Any] = {}
    for name, value in arguments:
        made[name] = value
        if isinstance(value, Like) or hasattr(value, "__array__"):
            shape, dtype = tuple(value.shape), format_named(value.dtype)
            tensor = host.argument(name, len(inputs), shape, dtype)
            inputs.append((Array(name, shape, dtype.name, shape), tensor))
            made[name] = tensor
    called = host.by_statements(module, called) if host.statements else called
    returned = called(*first, *made.values())
    for part in returned if isinstance(returned, (tuple, list)) else (returned,):
        if isinstance(part, Unknown):
            host.trace.refuse_at(part.line, part.reason)
    outputs = list(_tensors(returned))
    outputs += [t for _, t in inputs if (t.buffer.writes or t.buffer.changed)
                and all(t.buffer is not o.buffer for o in outputs)]  # fmt: skip
    if not outputs:
        host.trace.refuse("the function returns no tensor and changes none")
    taken = {array.name for array, _ in inputs}
    defined = [_defined(host, tensor, taken, len(outputs)) for tensor in outputs]
    places: dict[str, Hashable] = {}
    for one, tensor in zip(defined, outputs, strict=True):
        if tensor.buffer.writes:
            places[one.name] = SourceLine(*tensor.buffer.writes[-1].line)
    algorithm = algorithm_of(
        host.trace.values, module.__name__.rpartition(".")[2], [a for a, _ in inputs], defined,
        host.execution.stages, host.trace.origins, places,
    )  # fmt: skip
    lines = {name: line for name, line in places.items() if isinstance(line, SourceLine)}
    results = zip(algorithm.outputs, outputs, strict=True)
    marked = tuple(replace(array, partial=_is_partial(tensor)) for array, tensor in results)
    return LiftedLaunches(replace(algorithm, outputs=marked), lines)


def _is_partial(tensor: Tensor) -> bool:
    """Whether nothing but one store at places that are read writes to memory that holds no numbers."""
    writes, before = tensor.buffer.writes, tensor.buffer.initial(Index(0))
    return len(writes) == 1 and bool(writes[0].numbers) and isinstance(before, Undefined)


def format_named(dtype: Any) -> np.dtype:
    """A format by the name that NumPy or torch has for it."""
    named: np.dtype = np.dtype(getattr(ml_dtypes, str(dtype), dtype))
    return named


def _tensors(returned: Any) -> Iterator[Tensor]:
    if isinstance(returned, Tensor):
        yield returned
    elif isinstance(returned, Mapping):
        yield from _tensors(tuple(returned.values()))
    elif isinstance(returned, (tuple, list)):
        for part in returned:
            yield from _tensors(part)


def _defined(host: Host, tensor: Tensor, taken: set[str], count: int) -> DefinedOutput:
    """What a tensor holds in the end."""
    trace, values = host.trace, host.trace.values
    buffer, shape = tensor.buffer, tuple(tensor.shape) or (1,)
    wanted = f"{buffer.name}_out" if buffer.name else "out" if count == 1 else "out0"
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted.removesuffix('0')}{number}"
    taken.add(name)
    all_of_it = (math.prod(shape), tensor.dtype) == (buffer.size, buffer.dtype)
    axes = tuple(Axis(f"o{n}", extent) for n, extent in enumerate(shape))
    indices = [index_of(a) if a.extent > 1 else index_of(a) * 0 for a in axes]
    value = tensor.value(indices[: tensor.ndim])
    value = whole(values, settled(host.execution, whole(values, value)))
    for part in values.carried(value):
        raise host.execution.refusal(
            part.loop,
            "the iterations of this loop use what earlier ones left in a way that is neither a "
            "running sum nor a scan",
        )
    if isinstance(value, Undefined):
        raise NotTraced("an output is made of memory that nothing has written", trace.path)
    joint, value = joined(values, axes, value)
    value = values.under(whole(values, value), ())
    joint = tuple(axis for axis in joint if axis.extent > 1) or joint[:1]
    return DefinedOutput(
        name, joint, value, tensor.dtype.name, shape, buffer.name if all_of_it else ""
    )
