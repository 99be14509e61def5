"""nki.jit and its relatives: from a Python function to a traced Program.

Called on the host a kernel is traced, verified and executed. Called by another kernel it is inlined
into that kernel's trace.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from accelopt.sim import kernel_loading, rules
from accelopt.sim.affine import Affine, LoopVariable, variable
from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.host import HOST, arrays_of, in_framework_of, tell
from accelopt.sim.dialects.neuronxcc import results, rewriting
from accelopt.sim.dialects.neuronxcc.arguments import annotated, declared
from accelopt.sim.dialects.neuronxcc.builder import parse_dtype
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.dialects.neuronxcc.index_min_max import kernel_max, kernel_min
from accelopt.sim.dialects.neuronxcc.neuronxcc_tensor import NeuronxccTensor
from accelopt.sim.errors import KernelError, KernelTypeError, SourceLine
from accelopt.sim.loops import KernelRange
from accelopt.sim.program import LoopKind, Program
from accelopt.sim.rules import kernels
from accelopt.sim.trace import raise_if_awaited, trace
from accelopt.sim.tracer import Conventions, Returned, Tracer, active

HOST_MODES = frozenset({"baremetal", "benchmark", "profile", "simulation"})
CONVENTIONS = Conventions("neuronxcc", NeuronxccTensor)
MEASURED_MODES = frozenset({"benchmark", "profile"})


class Kernel:
    """A decorated kernel: callable, and subscriptable by an SPMD grid. After a run in a mode that
    measures, `benchmark_result` holds the latency."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        mode: str = "auto",
        grid: tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        self.function: Callable[..., Any] = function
        self.mode = mode
        self.grid: tuple[Any, ...] = grid
        self.options: dict[str, Any] = options
        self.writes_parameters: bool = False
        if isinstance(function, Kernel):
            self.function = function.function
            self.grid = grid or function.grid
            self.options = {**function.options, **options}
            self.writes_parameters = function.writes_parameters
        self.writes_parameters |= self._writes_parameters()
        self.benchmark_result: Any = None
        functools.update_wrapper(self, self.function)

    @property
    def func(self) -> Callable[..., Any]:
        """The Python function."""
        return self.function

    @property
    def target(self) -> str:
        """The generation it is compiled for: trn1 unless platform_target says trn2."""
        return str(self.options.get("platform_target") or "trn1")

    def __getitem__(self, grid: Any) -> Kernel:
        dimensions = grid if isinstance(grid, tuple) else (grid,)
        gridded = Kernel(self, mode=self.mode, grid=dimensions)
        gridded.benchmark_result = self.benchmark_result
        gridded.options["measured_by"] = self
        return gridded

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = active()
        if tracer is not None:
            if self.grid:
                tracer.refuse(kernels.nested_grid(self.function.__name__))
            return run_kernel(tracer, self.function, args, kwargs)
        raise_if_awaited(self, args, kwargs)
        target = str(self.options.get("platform_target") or HOST.target or self.target)
        plain, words = arrays_of((args, kwargs), target)
        return in_framework_of((args, kwargs), self._run(plain, words, target))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], target: str) -> Any:
        """On the host: the results as NumPy arrays, measured where the mode asks for it."""
        from accelopt.sim.dialects.neuronxcc import launch

        program = trace_kernel(self, args, kwargs, target=target)
        rules.check(program)
        tell(program)
        if self.mode in MEASURED_MODES:
            measured = self.options.get("measured_by") or self
            self.benchmark_result = measured.benchmark_result = launch.benchmark(program)
            return launch.undefined_results(program)
        return launch.execute(
            program,
            [*args, *kwargs.values()],
            wide_floats=self.mode == "simulation",
            writes_parameters=self.writes_parameters,
        )

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The Program for these arguments: arrays or AbstractTensors, and plain values."""
        return trace_kernel(self, args, kwargs)

    def _writes_parameters(self) -> bool:
        """True for kernels of the older kind, whose outputs are parameters."""
        if self.mode == "trace" or self.options.get("kernel_return") is False:
            return True
        return self.mode in HOST_MODES and not results.returns_something(self.function)


TARGETS = ("trn1", "trn2")
"""Generations that the package neuronxcc.nki compiles for (SDK 2.21 to 2.29)."""


def trace_kernel(
    kernel: Kernel | Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    grid: tuple[Any, ...] | None = None,
    target: str | None = None,
    report: Callable[[KernelError], None] | None = None,
) -> Program:
    """Traces a kernel for arguments: NumPy arrays or AbstractTensors become tensors (their contents
    are never read), everything else is passed on. Raises KernelError, or calls `report`."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    function = wrapped.function
    dimensions = tuple(_size(n) for n in (wrapped.grid if grid is None else grid))
    options, chosen = wrapped.options, target or wrapped.target

    def record(tracer: Tracer) -> Returned:
        if chosen not in TARGETS:
            tracer.refuse(kernels.target_without_package(chosen))
        if options.get("enable_stack_allocator") and not options.get(
            "skip_middle_end_transformations"
        ):
            tracer.refuse(kernels.stack_allocator_alone())
        tracer.force_auto_allocation = bool(wrapped.options.get("force_auto_alloc"))
        positional, named = declared(tracer, function, args, kwargs or {}, parse_dtype)
        for value, annotation in annotated(function, positional, named):
            if "mutable" in str(annotation):  # nt.mutable_tensor and nt.mutable
                tracer.mutable.add(value.storage)
                tracer.must_return.add(value.storage)
        if wrapped.writes_parameters:
            tracer.mutable |= set(tracer.arguments)
        returned = _run_grid(tracer, dimensions, function, tuple(positional), named)
        return results.collect(
            tracer, returned, legacy=wrapped.writes_parameters,
            on_chip_allowed=wrapped.mode == "simulation",
        )  # fmt: skip

    kernel_loading.restore(function)
    code = function.__code__
    return trace(
        record,
        name=function.__name__,
        conventions=CONVENTIONS,
        target=chosen,
        source=SourceLine(code.co_filename, code.co_firstlineno),
        report=report,
    )


def run_kernel(
    tracer: Tracer,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    builtins_of_dialect: Mapping[str, Any] | None = None,
) -> Any:
    """Calls the kernel's Python under the tracer, with what the dialect's tracer has in the place of
    Python's builtins. Its frame ends every loop key."""
    tracer.depth += 1
    try:
        return _with_kernel_names(function, builtins_of_dialect or KERNEL_BUILTINS)(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            code = function.__code__
            own = SourceLine(code.co_filename, code.co_firstlineno)
            where = running_line() if tracer.depth > 1 else own  # else called by the host
            raise KernelTypeError(
                "arguments", f"{function.__name__}: {error}.", "", where
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
                with tracer.iteration(keys[axis], number, value):
                    outcome = run(
                        axis + 1, (*chosen, TileIndex(Affine(value), (), frozenset({number})))
                    )
            return outcome
        index = LoopVariable(tracer.fresh_id(), 0, 1, size)
        with tracer.loop(index, LoopKind.PROGRAM, source, keys[axis]):
            outcome = run(axis + 1, (*chosen, TileIndex(variable(index))))
        return outcome

    tracer.grid_shape = dimensions
    return run(0, ())


def _with_kernel_names(
    function: Callable[..., Any], replaced: Mapping[str, Any]
) -> Callable[..., Any]:
    """The function with some of Python's builtins (`range`: a sequential loop) replaced, and its
    source rewritten, as the NKI tracer does."""
    if not isinstance(function, FunctionType):
        return function
    names = dict(function.__globals__)
    for name, replacement in replaced.items():
        names.setdefault(name, replacement)
    return rewriting.rewritten(function, names)


def kernel_range(*bounds: Any) -> Any:
    """Python's range inside of a kernel: a sequential loop."""
    values = builtins.range(*map(number_of, bounds))
    return KernelRange(LoopKind.SEQUENTIAL, values.start, values.stop, values.step)


KERNEL_BUILTINS = {"range": kernel_range, "min": kernel_min, "max": kernel_max}


def _size(dimension: Any) -> int:
    """A grid dimension as a number; nl.nc(n) and nl.spmd_dim(...) know their size."""
    return max(int(getattr(dimension, "size", dimension)), 1)
