"""What a device must do, and what passes between it and the referee."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:  # else a child that traces would have to import all that an evaluation is made of
    from accelopt.evaluation import Status
    from accelopt.kernels.measurement import TimedRuns

BACKWARDS = 0
"""The order in which every two iterations change places."""


class TensorArgument(NamedTuple):
    """A kernel parameter without its data. `dtype` is a NumPy or ml_dtypes name."""

    shape: tuple[int, ...]
    dtype: str


KernelArgument = TensorArgument | float | int | bool | str | None
"""A tensor, or a plain value that is passed as it is (`eps`)."""


class LowPrecision(NamedTuple):
    """A 16- or 8-bit floating-point format in a kernel's data path, and where it appears."""

    dtype: str
    where: str


class Inexactness(NamedTuple):
    """Something that a real core computes less exactly than the device at hand: the relative L2 error
    that it adds, and what it is."""

    relative: float
    where: str


class Timings(NamedTuple):
    """How often to run: not counted, then counted."""

    warmup: int = 2
    counted: int = 10


class KernelFailure(Exception):
    """A kernel that does not compile, run or finish; the device is well.

    `isolation` is what confined it, where it never became an Executable that could say so.
    """

    isolation: tuple[str, ...] = ()

    def __init__(self, status: Status, message: str, traceback: str = "") -> None:
        self.status = status
        self.message = message
        self.traceback = traceback
        super().__init__(message)


class CompiledKernel(Protocol):
    """One compiled kernel. Methods raise KernelFailure for what is the kernel's fault; those that have a body say
    here what a device says that cannot tell, or that has nothing to tell."""

    isolation: tuple[str, ...]

    def low_precision(self) -> tuple[LowPrecision, ...]:
        """Narrow floating-point formats that data passes through, as far as the device sees them."""
        return ()

    def run(self, arrays: Sequence[object], shuffle: int | None = None) -> tuple[np.ndarray, ...]:
        """The kernel's outputs for these arguments (arrays and plain values, in order).

        `shuffle` draws an order for the iterations that the kernel declares independent; BACKWARDS
        turns them all round. A device that has an order of its own keeps it.
        """

    def in_double(self) -> CompiledKernel | None:
        """The same kernel with float64 in place of float32; None of a device that has what it has."""
        return None

    def in_single(self, places: Collection[LowPrecision]) -> CompiledKernel | None:
        """The same kernel with float32 in these places of `low_precision`; None as above."""
        return None

    def unrounded(self) -> CompiledKernel | None:
        """The same kernel with float32 in place of all narrow formats but those of arguments; None as above."""
        return None

    def inexact(self) -> tuple[Inexactness, ...]:
        """What a real core would compute less exactly; nothing on a real core."""
        return ()

    def dependences(self) -> tuple[str, ...]:
        """Sentences on iterations that the kernel declares independent and that are not, as far as
        the device can tell; each is certain."""
        return ()

    def left_changed(self) -> tuple[str, ...]:
        """The arguments that the kernel writes and does not return, each with a line that does, as far as the
        device can tell."""
        return ()

    def unused(self) -> tuple[np.ndarray | None, ...]:
        """Of each array among the arguments the elements that reach no result (bools of its shape),
        None where all do or the device cannot tell."""
        return ()

    def is_made_again(
        self, kernel_path: str, arguments: Sequence[KernelArgument], again: int
    ) -> bool:
        """Whether compiling the kernel once more, under conditions that `again` numbers, gives the
        same program; True where the device cannot tell."""
        return True

    def time_on(self, arguments: Callable[[], Sequence[object]]) -> None:
        """Says how to make the arguments whose values count where the time depends on them."""
        return None

    def measure(self, timings: Timings) -> TimedRuns:
        """Time the kernel."""

    def choices(self) -> Mapping[str, float]:
        """The latency in ms had the compiler decided otherwise, by the decision in words: those that
        nothing in the kernel tells. Empty on a device that a compiler has decided for."""
        return {}

    def close(self) -> None:
        """Give back whatever is held: files, a core."""


class Device(Protocol):
    """A NeuronCore. `rounding` scales what the referee takes for honest rounding (1: IEEE fp32)."""

    name: str
    target: str
    simulated: bool
    rounding: float

    def compile(
        self, kernel_path: str, arguments: Sequence[KernelArgument], *, seconds: float
    ) -> CompiledKernel:
        """The kernel in `kernel_path` for arguments of these shapes, or KernelFailure."""
