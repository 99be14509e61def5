"""From Triton kernels with the host function that launches them to their Algorithm."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from accelopt.algorithm.algorithm import Algorithm, Array
from accelopt.algorithm.axis_joining import joined
from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of
from accelopt.algorithm.index import Axis, index_of
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.traced_array import NotTraced
from accelopt.algorithm.value_nodes import Undefined
from accelopt.algorithm.whole_forms import whole
from accelopt.kernels.triton.lift.host import Host, Tensor, load
from accelopt.kernels.triton.lift.kernel_trace import KernelTrace


class Like(NamedTuple):
    """A tensor of a launch: its shape, and its format by NumPy's name."""

    shape: tuple[int, ...]
    dtype: str = "float32"


def lift_launches(
    path: str | Path, function: str | Callable[..., Any], given: Sequence[Any],
    named: Mapping[str, Any] | None = None, folders: Sequence[str] = (),
) -> Algorithm:  # fmt: skip
    """What the kernels compute that a host function of a file launches.

    `given` are its arguments: arrays, or `Like`, for tensors, anything else as it is. `function` is its
    name, or what calls functions of the module, which it is given first. The inputs have the names of the
    function's parameters, the outputs are what it returns and the inputs that it changes. `folders` are
    searched for what the file imports. Raises NotTraced, with file and line, for what has no Algorithm.
    """
    path = str(Path(path).resolve())
    trace = KernelTrace(path)
    host = Host(trace)
    with deep_recursion(), host.installed():
        try:
            module = load(path, host, folders)
            host.importing = False
            return _traced(host, module, function, given, dict(named or {}))
        except NotTraced:
            raise
        except RecursionError:
            raise NotTraced("too many operations build on each other", path) from None
        except UndefinedOutput as refusal:
            raise NotTraced(str(refusal), path) from None
        except Exception as error:
            lines = [(f.filename, f.lineno) for f in inspect.trace() if f.filename in trace.files]
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise NotTraced(said, *(lines[-1] if lines else (path, 0))) from error


def _traced(
    host: Host, module: Any, function: str | Callable[..., Any], given: Sequence[Any],
    named: Mapping[str, Any],
) -> Algorithm:  # fmt: skip
    called = getattr(module, function) if isinstance(function, str) else function
    first = [] if isinstance(function, str) else [module]
    parameters = list(inspect.signature(called).parameters)[len(first) :]
    arguments: list[tuple[str, Any]] = [
        (parameters[n] if n < len(parameters) else f"x{n}", value) for n, value in enumerate(given)
    ]
    arguments += named.items()
    inputs: list[tuple[Array, Tensor]] = []
    made: dict[str, Any] = {}
    for name, value in arguments:
        made[name] = value
        if isinstance(value, Like) or hasattr(value, "__array__"):
            shape, dtype = tuple(value.shape), _format(value.dtype)
            tensor = host.argument(name, len(inputs), shape, dtype)
            inputs.append((Array(name, shape, dtype.name, shape), tensor))
            made[name] = tensor
    keywords = {name: made.pop(name) for name in named}
    returned = called(*first, *made.values(), **keywords)
    outputs = list(_tensors(returned))
    outputs += [t for _, t in inputs if (t.buffer.writes or t.buffer.changed)
                and all(t.buffer is not o.buffer for o in outputs)]  # fmt: skip
    if not outputs:
        host.trace.refuse("the function returns no tensor and changes none")
    taken = {array.name for array, _ in inputs}
    defined = [_defined(host, tensor, taken, len(outputs)) for tensor in outputs]
    return algorithm_of(
        host.trace.values, module.__name__.rpartition(".")[2], [a for a, _ in inputs], defined,
        host.execution.stages,
    )  # fmt: skip


def _format(dtype: Any) -> np.dtype:
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
    wanted = f"{tensor.buffer.name}_out" if tensor.buffer.name else "out" if count == 1 else "out0"
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted.removesuffix('0')}{number}"
    taken.add(name)
    shape = tuple(tensor.shape) or (1,)
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
    return DefinedOutput(name, joint, value, tensor.dtype.name, shape)
