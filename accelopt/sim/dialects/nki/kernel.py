"""nki.jit of the `nki` package: from a Python function to a traced Program.

Loops are traced once where that is the same (`counting`); when anything does not work out so, the
kernel is traced again with every loop run by Python, and only that verdict counts.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim import compute, kernel_loading, rules, serial
from accelopt.sim.access import Access
from accelopt.sim.dialects.host import HOST, arrays_of, in_framework_of, tell
from accelopt.sim.dialects.neuronxcc import results
from accelopt.sim.dialects.neuronxcc.arguments import annotated, declared, each, leaves, tensors_of
from accelopt.sim.dialects.neuronxcc.kernel import run_kernel
from accelopt.sim.dialects.neuronxcc.launch import shape_results, write_back
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import cores, registers, versions
from accelopt.sim.dialects.nki.call_conventions import element_of
from accelopt.sim.dialects.nki.language.memories import DEFAULT_TARGET
from accelopt.sim.dialects.nki.overlapping_tiles import place_of, with_shared_bytes
from accelopt.sim.dialects.nki.python_loops import BUILTINS, AllLoops
from accelopt.sim.dialects.nki.tensor import NkiTensor
from accelopt.sim.errors import (
    KernelError,
    KernelTypeError,
    KernelValueError,
    SourceLine,
    Unsupported,
)
from accelopt.sim.program import Buffer, Engine, Instruction, Program
from accelopt.sim.rules import operands
from accelopt.sim.trace import raise_if_awaited, trace
from accelopt.sim.tracer import Conventions, NeedsConcrete, Returned, Tracer, active

QUADRANT = 32

NO_BRANCHES = (
    "Python runs while the kernel is compiled: select with nl.where, or loop on the device with "
    "nl.while_loop and a register (nisa.register_load)."
)
MENDS = MappingProxyType({
    "err_tensor_access_out_of_bound": (
        "End the slice where the tensor ends, as in x[p0 : min(p0 + 128, rows)]."
    ),
    "err_ambiguous_tensor_truth_value": NO_BRANCHES,
    "err_dynamic_control_flow_not_supported": NO_BRANCHES,
    "err_while_loop_requires_unconditional_entry": (
        "Loop on the device: nl.while_loop, or `while` on a register (nisa.register_load)."
    ),
    "err_indirect_indices_free_dim": (
        "Gather along the first dimension by .ap(..., vector_offset=...), along others with "
        "nisa.nc_n_gather."
    ),
    "err_failed_to_infer_tile_from_local_tensor": (
        "The first dimension is that of the partitions, and stays first."
    ),
    "GCA046": "Tile its free dimensions.",
    "index_type": "Use numbers, loop indices, slices or nl.ds.",
    "kernel_touches_data": (
        "Pass the number as an argument of the kernel, or load it into a register "
        "(nisa.register_load) for nl.fori_loop and .ap(scalar_offset=...)."
    ),
    "trace_too_long": "Take larger tiles, or loop on the device with nl.fori_loop.",
})  # fmt: skip
"""The package's own words for errors that it shares with `neuronxcc.nki`, which has masks, block dimensions and
loops that are traced once."""


def check(instruction: Instruction) -> KernelError | None:
    """What every instruction must keep; None where it does."""
    if instruction.engine is Engine.DMA or instruction.opcode.starts_anywhere:
        return None
    for accesses in (instruction.outputs, instruction.inputs):
        for name, access in accesses.items():
            if access.tensor.buffer.on_chip and "_scale" not in name:
                error = _check_start(access)
                if error is not None:
                    return error
    return None


def _check_start(access: Access) -> KernelError | None:
    """Up to 32 partitions start at 0, 32, 64 or 96, up to 64 at 0 or 64, more at 0
    (trainium_inferentia2_arch.rst, "Data movement"). A tile without an address begins where the
    compiler wants, which is one of these."""
    count = access.shape[0] if access.strides[0] else 1
    row = access.row
    place = place_of(access.tensor)
    base = place.first if place is not None else 0
    if not access.offset.terms and access.offset.constant < row and not base:
        return None
    low, high = (base + at // row for at in access.offset.bounds)
    parts = {low}
    if low != high:
        parts |= {factor // row for _, factor in access.offset.terms if abs(factor) >= row}
    step = QUADRANT if count <= QUADRANT else 2 * QUADRANT
    if all(part % step == 0 for part in parts) and (count <= 2 * QUADRANT or high == 0):
        return None
    starts = "0, 32, 64 or 96" if step == QUADRANT else "0 or 64" if count <= 64 else "0"
    where = f"partition {low}" if low == high else f"partitions {low} to {high}"
    return KernelValueError(
        "start_partition",
        f"an engine reaches {count} partitions of '{access.tensor.name}' from {where} on.",
        f"{count} partitions start at {starts}; nisa.dma_copy moves others there.",
    )


CONVENTIONS = Conventions("nki", NkiTensor, check, MENDS)


RESTARTS = 8
"""How often a trace with symbolic loops starts again before every loop is unrolled."""
MAX_CORES = 2
MAX_RANKS = 128
"""More are no argument's first axis by intent: a chip has eight cores."""


class Kernel:
    """A decorated kernel: callable on NumPy arrays, and subscriptable by the number of cores."""

    def __init__(
        self,
        function: Callable[..., Any],
        grid: tuple[int, ...] = (),
        schedule: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.function: Callable[..., Any] = getattr(function, "func", function)
        self.grid = grid
        self.schedule = schedule  # names of instructions, each with that of one it comes after
        self.target = DEFAULT_TARGET
        functools.update_wrapper(self, self.function)

    @property
    def func(self) -> Callable[..., Any]:
        """The Python function."""
        return self.function

    def __getitem__(self, grid: Any) -> Kernel:
        dimensions = grid if isinstance(grid, tuple) else (grid,)
        return Kernel(self.function, tuple(int(size) for size in dimensions), self.schedule)

    def with_schedule(self, schedule: Iterable[tuple[str, str | Iterable[str]]]) -> Kernel:
        """The kernel with an order of instructions, by their names: each after one or several others
        (how-to-scheduling-apis.rst). The simulated core keeps the order of the program; one that
        contradicts it is refused."""
        pairs = [
            (later, earlier)
            for later, others in schedule
            for earlier in ([others] if isinstance(others, str) else others)
        ]
        return Kernel(self.function, self.grid, (*self.schedule, *pairs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel's results for arrays of NumPy, or tensors of torch or jax; inside of another kernel, its
        Python inlined."""
        if active() is not None:
            return self.function(*args, **kwargs)
        raise_if_awaited(self, args, kwargs)
        given = arrays_of((args, kwargs), HOST.target or self.target)
        return in_framework_of((args, kwargs), self._run(*given))

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = HOST.target or self.target
        program = serial.transferred(
            trace_kernel(self, args, kwargs, target=target, version=HOST.version)
        )
        rules.check(program)
        tell(program)
        given = tensors_of([*args, *kwargs.values()])
        arrays = [np.ascontiguousarray(array) for array in given]
        outputs = compute.execute(program, arrays)
        write_back(program, given, outputs)
        return shape_results(program, outputs)

    def trace(self, *args: Any, **kwargs: Any) -> Program:
        """The Program for these arguments: arrays or AbstractTensors, and plain values."""
        return trace_kernel(self, args, kwargs)


def jit(fn: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Decorates a kernel. `mode` is ignored, `platform_target` refused, as since NKI 0.3."""
    if "platform_target" in kwargs:
        mend = "Choose the generation where the kernel is run (accelopt --target)."
        said = "nki.jit takes no platform_target since NKI 0.3."
        raise KernelTypeError("platform_target", said, mend)
    if "mode" in kwargs:
        warnings.warn("nki.jit ignores mode= since NKI 0.3.", stacklevel=2)
    if fn is None:
        return functools.partial(jit, **kwargs)
    return Kernel(fn)


def simulate(kernel: Callable[..., Any]) -> Kernel:
    """The kernel on the simulated core."""
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def trace_kernel(
    kernel: Kernel | Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    target: str | None = None,
    version: str = "",
    report: Callable[[KernelError], None] | None = None,
) -> Program:
    """Traces a kernel for arguments: NumPy arrays or AbstractTensors become tensors in HBM (their
    contents are never read), everything else is passed on. `version` is that of NKI which the kernel is
    said to be for; empty: what it uses tells. Raises KernelError, or calls `report`."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    function = wrapped.function
    kernel_loading.restore(function)
    code = function.__code__
    shared: dict[str, Any] = {
        "name": function.__name__,
        "target": target or wrapped.target,
        "source": SourceLine(code.co_filename, code.co_firstlineno),
        "conventions": CONVENTIONS,
    }

    ranks, told, attempts = 0, list[KernelError](), list[Tracer]()

    def record(tracer: Tracer) -> Returned:
        tracer.versions = versions.Versions(version)
        attempts.append(tracer)
        return _record(tracer, wrapped, args, kwargs or {}, ranks)

    # Names count iterations; where cores are no pair, their programs are one long one.
    apart = TARGETS[shared["target"]].generation < 3 and wrapped.grid not in ((), (1,))

    def traced() -> Program:
        told.clear()  # of an attempt that is believed no more
        try:
            if not (wrapped.schedule or apart):
                program = trace(record, **shared, restarts=RESTARTS)
                if with_shared_bytes(program) is program:
                    return program
        except (NeedsConcrete, Exception):  # believed only of loops that run as they are written
            pass
        # Also where tiles share bytes: a tile of a loop's body is fresh memory no more, so which product
        # begins a sum must be known of every iteration.
        collect = report and told.append
        return with_shared_bytes(trace(record, **shared, report=collect, unrolled=AllLoops()))

    try:
        return traced()
    except (cores.NeedsRanks, Exception) as error:
        named = error.count if isinstance(error, cores.NeedsRanks) else None
        if named is None and not _speaks(function):
            raise
        try:  # one that speaks to ranks may fail before it does: it was given what all have
            ranks = _ranks(wrapped, args, kwargs or {}, named or 0, shared)
        except KernelError:
            if named is None:
                raise error from None
            raise
        try:
            return traced()
        except Exception:
            if named is None and not any(attempt.spoke for attempt in attempts):
                raise error from None  # nobody spoke: what all have was what it was meant for
            raise
    finally:
        for one in told:
            report(one)  # type: ignore[misc]


def _speaks(function: Callable[..., Any]) -> bool:
    """Whether a kernel's file imports nki.collectives."""
    home = f"{__name__.rpartition('.')[0]}.collectives"
    given = getattr(function, "__globals__", {}).values()
    return any(home in (getattr(v, "__name__", ""), getattr(v, "__module__", "")) for v in given)


def _ranks(
    kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], named: int, shared: dict[str, Any]
) -> int:
    """How many ranks a kernel with collectives is launched on: as many as its replica group names, or as its
    arguments have parts. Raises KernelError where these differ."""
    parts = {array.shape[0] for array in tensors_of([*args, *kwargs.values()])}
    count = named or min(parts, default=1)
    if parts - {count} or count > MAX_RANKS:
        said = f"{count} ranks, and arguments of {', '.join(map(str, sorted(parts)))} parts"
        mend = "The first axis of every array argument are the ranks: argument[r] is what rank r is given."
        raise Unsupported(f"{kernel.function.__name__} on {said}", mend, shared["source"])
    return count


def _record(
    tracer: Tracer, kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], ranks: int
) -> Returned:
    function = kernel.function
    _check_signature(function)
    positional, named = declared(tracer, function, args, kwargs, element_of)
    tracer.mutable |= set(tracer.arguments)
    if ranks:
        tracer.parts = {tensor: math.prod(tensor.shape[1:]) for tensor in tracer.arguments}

    def of_rank(rank: int) -> Any:
        given = positional, named
        return each(_of_rank(rank), "", given) if ranks else given

    annotated(function, *of_rank(0))
    if len(kernel.grid) > 1 or any(not 1 <= size <= MAX_CORES for size in kernel.grid):
        said = f"kernel{list(kernel.grid)}: a logical core has one or two cores."
        tracer.refuse(KernelTypeError("launch_grid", said, "Write kernel[2](...)."))
    cores_of = kernel.grid[0] if kernel.grid else 1
    tracer.grid_shape = kernel.grid

    def run(core: int) -> Any:
        tracer.grid = (core % cores_of,) if kernel.grid else ()
        tracer.shared_cursor = 0
        given, words = of_rank(core // cores_of)
        returned = run_kernel(tracer, function, tuple(given), words, BUILTINS)
        registers.check_all_closed()
        return returned

    returned = cores.run(tracer, run, cores_of, ranks)
    if tracer.demanded:
        return Returned()
    _check_schedule(tracer, kernel.schedule)
    _check_results(tracer, returned)
    return results.collect(tracer, returned, legacy=True, on_chip_allowed=False)


def _check_signature(function: Callable[..., Any]) -> None:
    """The compilers of NKI 0.3 to 0.6 know no `*` in a kernel's signature."""
    if any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(function).parameters.values()):
        versions.use("parameters after '*'")


def _check_schedule(tracer: Tracer, schedule: tuple[tuple[str, str], ...]) -> None:
    named = tracer.named
    for later, earlier in schedule:
        for name in (later, earlier):
            if name not in named:
                said = f"with_schedule: no instruction is named '{name}'."
                tracer.refuse(KernelValueError("schedule", said, "Pass name= to the instruction."))
        if named.get(later, 0) < named.get(earlier, 0):
            what = f"a schedule against the program's order ('{later}' after '{earlier}')"
            tracer.refuse(Unsupported(what, "Write the instructions in the order that you want."))


def _check_results(tracer: Tracer, returned: Any) -> None:
    """Outputs live in nl.shared_hbm (NKI 0.3)."""
    for leaf in leaves(returned):
        private = isinstance(leaf, TensorView) and leaf.storage.buffer is Buffer.HBM
        if private and leaf.storage not in tracer.arguments:
            mend = "Make it with buffer=nl.shared_hbm."
            tracer.refuse(operands.wrong_memory("return value", repr(leaf), "shared HBM", mend))


def _of_rank(rank: int) -> Callable[[str, Any], Any]:
    """What a rank is given of each tensor."""
    return lambda _, value: subscript(value, rank) if isinstance(value, TensorView) else value
