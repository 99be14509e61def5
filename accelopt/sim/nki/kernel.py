"""nki.jit and its relatives: from a Python function to a traced Program, and to results.

Called on the host with NumPy arrays a kernel is traced, verified and executed. Called by another
kernel it is inlined into that kernel's trace.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from accelopt.sim.access import LoopVariable, variable
from accelopt.sim.errors import KernelError, KernelTypeError, SourceLine
from accelopt.sim.loops import KernelRange
from accelopt.sim.nki.index import Index, LoopIndex
from accelopt.sim.nki.tensor import TensorView, whole
from accelopt.sim.program import Buffer, LoopKind, Program, Tensor
from accelopt.sim.trace import TensorSpec, Tracer, active, current, trace

LEGACY_MODES = frozenset({"trace"})


class Kernel:
    """A decorated kernel: callable, and subscriptable by an SPMD grid."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        mode: str = "auto",
        grid: tuple[Any, ...] = (),
        runner: Callable[[Kernel, tuple[Any, ...], dict[str, Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        self.function = function.function if isinstance(function, Kernel) else function
        self.mode = mode
        self.grid = grid
        self.runner = runner
        self.options = options
        functools.update_wrapper(self, self.function)

    @property
    def target(self) -> str:
        """The generation it is compiled for: trn1 unless platform_target says trn2."""
        return str(self.options.get("platform_target") or "trn1")

    def __getitem__(self, grid: Any) -> Kernel:
        dimensions = grid if isinstance(grid, tuple) else (grid,)
        return Kernel(
            self.function, mode=self.mode, grid=dimensions, runner=self.runner, **self.options
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active() is not None:
            if self.grid:
                raise KernelError(
                    "err_nested_kernel_with_spmd_grid",
                    f"kernel '{self.function.__name__}' is called with a grid inside of a kernel.",
                    "Call it without a grid; the grid belongs to the outermost kernel.",
                    current().here(),
                )
            return run_kernel(current(), self.function, args, kwargs)
        from accelopt.sim.nki import launch

        return (self.runner or launch.run)(self, args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The Program for these arguments: arrays or TensorSpecs, and plain values."""
        return trace_kernel(self, args, kwargs)


def trace_kernel(
    kernel: Kernel | Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    grid: tuple[Any, ...] | None = None,
    target: str | None = None,
    report: Callable[[KernelError], None] | None = None,
) -> Program:
    """Traces a kernel for arguments: NumPy arrays or TensorSpecs become tensors (their contents
    are never read), everything else is passed on. Raises KernelError, or calls `report`."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    function = wrapped.function
    dimensions = tuple(_size(n) for n in (wrapped.grid if grid is None else grid))

    def record(tracer: Tracer) -> tuple[tuple[Tensor | None, ...], bool]:
        names = _parameter_names(function, args, kwargs or {})
        values = [
            _argument(tracer, name, value)
            for name, value in zip(names, [*args, *(kwargs or {}).values()], strict=True)
        ]
        positional, keyword = values[: len(args)], values[len(args) :]
        named = dict(zip(kwargs or {}, keyword, strict=True))
        _mark_mutable(tracer, function, positional, named)
        returned = _run_grid(tracer, dimensions, function, tuple(positional), named)
        return _results(tracer, returned)

    code = function.__code__
    return trace(
        record,
        name=function.__name__,
        target=target or wrapped.target,
        source=SourceLine(code.co_filename, code.co_firstlineno),
        report=report,
    )


def run_kernel(
    tracer: Tracer, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Calls the kernel's Python under the tracer. Its frame ends every loop key."""
    tracer.depth += 1
    try:
        return _with_kernel_range(function)(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise KernelTypeError(
                "arguments", f"{function.__name__}: {error}.", "", tracer.here()
            ) from None
        raise
    finally:
        tracer.depth -= 1


def _run_grid(
    tracer: Tracer,
    dimensions: tuple[int, ...],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """One trace for all programs of the launch, unless Python needs the program's number."""
    code = function.__code__
    source = SourceLine(code.co_filename, code.co_firstlineno)
    keys = [((f"<grid {axis}>", axis),) for axis in range(len(dimensions))]
    unrolled = [axis for axis, key in enumerate(keys) if key in tracer.unrolled]
    returned: Any = None

    def run(axis: int, chosen: tuple[Any, ...]) -> Any:
        if axis == len(dimensions):
            tracer.grid = chosen
            tracer.shared_cursor = 0
            return run_kernel(tracer, function, args, kwargs)
        size = dimensions[axis]
        if axis in unrolled:
            outcome = None
            number = tracer.fresh_id()
            for value in range(size):
                with tracer.iteration():
                    outcome = run(axis + 1, (*chosen, LoopIndex(value, number, value)))
            return outcome
        index = LoopVariable(tracer.fresh_id(), 0, 1, size)
        with tracer.loop(index, LoopKind.PROGRAM, source, keys[axis]):
            outcome = run(axis + 1, (*chosen, Index(variable(index))))
        return outcome

    tracer.grid_shape = dimensions
    returned = run(0, ())
    return returned


def _with_kernel_range(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with Python's `range` meaning a sequential loop, as the NKI tracer rewrites."""
    if not isinstance(function, FunctionType):
        return function
    names = dict(function.__globals__)
    if "range" not in names:
        names["range"] = kernel_range
    twin = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


def kernel_range(*bounds: Any) -> Any:
    """Python's range inside of a kernel: a sequential loop."""
    if any(isinstance(n, Index) and not n.affine.is_constant for n in bounds):
        bounds = tuple(int(n) for n in bounds)
    values = builtins.range(*(int(n) for n in bounds))
    return KernelRange(LoopKind.SEQUENTIAL, values.start, values.stop, values.step)


def _size(dimension: Any) -> int:
    """A grid dimension as a number; nl.nc(n) and nl.spmd_dim(...) know their size."""
    return int(getattr(dimension, "size", dimension))


def _parameter_names(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []
    padded = parameters + [f"argument{n}" for n in range(len(parameters), len(args))]
    return [*padded[: len(args)], *kwargs]


def _argument(tracer: Tracer, name: str, value: Any) -> Any:
    """Arrays become tensors in HBM, also inside of lists and tuples; the rest stays as it is."""
    if isinstance(value, (np.ndarray, TensorSpec)):
        if isinstance(value, np.ndarray) and value.ndim == 0:
            return value.item()
        tensor = tracer.declare(value.shape, np.dtype(value.dtype), Buffer.HBM, name=name)
        tracer.arguments.append(tensor)
        return whole(tensor)
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return type(value)(_argument(tracer, f"{name}{n}", item) for n, item in enumerate(value))
    return value


def _mark_mutable(
    tracer: Tracer, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Parameters annotated nt.mutable_tensor (or nt.mutable) may be written."""
    names = list(inspect.signature(function).parameters)
    annotations = function.__annotations__
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if isinstance(value, TensorView) and "mutable" in str(annotations.get(name, "")):
            tracer.mutable.add(value.storage)


def flatten(value: Any) -> list[Any]:
    """The leaves of nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return list(itertools.chain.from_iterable(flatten(item) for item in value))
    return [value]


def _results(tracer: Tracer, returned: Any) -> tuple[tuple[Tensor | None, ...], bool]:
    leaves = flatten(returned)
    results: list[Tensor | None] = []
    for leaf in leaves:
        if leaf is None:
            results.append(None)
        elif isinstance(leaf, TensorView) and not leaf.on_chip:
            results.append(leaf.storage)
        elif isinstance(leaf, TensorView):
            raise KernelError(
                "err_unsupported_memory",
                f"the kernel returns {leaf!r}, which is on-chip.",
                "nl.store it into a tensor made with buffer=nl.shared_hbm and return that.",
                tracer.here(),
            )
        else:
            raise KernelTypeError(
                "return_type", f"the kernel returns a {type(leaf).__name__}, not a tensor.",
                "Return tensors made with buffer=nl.shared_hbm.", tracer.here(),
            )  # fmt: skip
    sequence = isinstance(returned, (tuple, list))
    if not any(result is not None for result in results):
        results = []
    for tensor in tracer.mutable:
        if tensor not in results and tensor in tracer.written:
            tracer.refuse(
                KernelError(
                    "err_mutable_parameter_not_returned",
                    f"mutable parameter '{tensor.name}' is written but not returned.",
                    "Return it from the kernel.",
                )
            )
    return tuple(results), sequence
