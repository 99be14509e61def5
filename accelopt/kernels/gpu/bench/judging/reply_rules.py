"""The rules for a candidate's replies; the first that is broken ends the evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from accelopt.evaluation import Status
from accelopt.hardware.gpus import gpu_called
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process.messages import Output, Seen, Timed, Watched
from accelopt.kernels.gpu.bench.roofline import floor_ms

# Two runs of one honest kernel on equal inputs may differ by the order of atomic additions.
REPEAT_LIMIT = 1e-2
# Share of the output's elements that library operators may produce in a Triton solution.
LIBRARY_SHARE = 0.5
# Share of the GPU's time that a solution's own kernels must have, and where the rest is long enough to matter.
LEAST_OWN_SHARE = 0.2
LEAST_OWN_SHARE_OF_LONG, LONG_MS = 0.5, 0.02
# Share of it that a library's computing kernels may have: a problem's work is not done in less.
MOST_FOREIGN_SHARE = 0.2
# The events may say this much less than the kernels between them take by the profiler.
LEAST_OF_KERNELS = 0.8
# Calls back to back may find a warm cache; they take no longer than calls by themselves, but for the
# host's time where the device had to wait for it.
LEAST_OF_OUTSIDE = 0.7
OUTSIDE_SLACK_MS = 0.004
LONG_OUTSIDE_MS = 0.3
# Of the outputs of a round's calls, what may be left behind in the device's memory.
MOST_KEPT_SHARE = 0.5
# The package's timer finds a cold cache as well, but adds launches and what the host does in a call.
MOST_BY_THE_PACKAGE, PACKAGE_SLACK_MS = 2.0, 0.5
NOT_JUDGED = "not judged: out of memory"
# A verdict below the least time that physics allows is impossible: at the data sheet's peaks, which
# a device that boosts its clocks passes by some percent.
LEAST_OF_FLOOR = 0.85
NO_TENSORS = ("int", "float", "bool", "NoneType", "dict", "str")


class Ended(Exception):
    """The verdict is known before the end."""

    def __init__(self, status: Status, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.traceback = traceback


class OutOfMemory(Ended):
    """No verdict: the device had no memory left, which others may have had."""


def refuse(message: str) -> Ended:
    """The end of a dishonest solution."""
    return Ended(Status.REFUSED, message)


class Clocks(NamedTuple):
    """What other clocks say of a call, in milliseconds; None where they were not asked.

    `lag_ms` is work behind the call on other streams, `outside_ms` the parent's clock, `kernel_ms` the
    profiler's sum of its kernels, `host_ms` what the host takes to queue it. `dry`: for the parent's
    clock, the device waited for the host.
    """

    lag_ms: float
    outside_ms: float
    kernel_ms: float | None = None
    package_ms: float | None = None
    host_ms: float = 0.0
    dry: bool = False


def accept_outputs(task: Task, outputs: tuple[Output, ...], expected: tuple[Output, ...]) -> None:
    """Plain tensors of the expected number, shapes and dtypes."""
    names = list(task.definition.outputs)
    if len(outputs) != len(names):
        raise Ended(Status.WRONG_SHAPE, f"{len(outputs)} outputs where {len(names)} are defined")
    for name, output, wanted in zip(names, outputs, expected, strict=True):
        if not output.plain:
            if output.type in NO_TENSORS:
                text = f"output `{name}` is a {output.type}, not a tensor"
                raise Ended(Status.WRONG_SHAPE, text)
            raise refuse(f"output `{name}` is a {output.type}, not a plain tensor")
        if output.shape != wanted.shape:
            text = f"output `{name}` has shape {list(output.shape)}, not {list(wanted.shape)}"
            raise Ended(Status.WRONG_SHAPE, text)
        if output.dtype != wanted.dtype:
            text = f"output `{name}` is {output.dtype}, not {wanted.dtype}"
            raise Ended(Status.WRONG_DTYPE, text)
        dense = _dense(wanted.shape)
        if output.strides not in (dense, wanted.strides) and 0 not in wanted.shape:
            text = f"output `{name}` has strides {list(output.strides)}, not {list(dense)}"
            raise Ended(Status.WRONG_SHAPE, text)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor; 0 for extents of one."""
    sizes = range(len(shape))
    return tuple(math.prod(shape[at + 1 :]) if shape[at] > 1 else 0 for at in sizes)


def accept_operators(task: Task, seen: Watched, expected: tuple[Output, ...]) -> None:
    """A Triton solution starts kernels, and in no call do operators of the library its work."""
    if not task.must_work:
        return
    if seen.launches == 0 and task.must_be_triton:
        raise refuse("starts no Triton kernel")
    counted = {
        name: elements
        for name, elements in seen.heavy.items()
        if name not in task.allowed_operators
    }
    outputs = sum(math.prod(output.shape) for output in expected)
    if counted and not task.is_composite and sum(counted.values()) >= LIBRARY_SHARE * outputs:
        names = ", ".join(sorted(counted))
        raise refuse(f"a library does the work in place of a kernel: {names}")


def accept_round(reply: Timed, calls: int, output_bytes: int) -> None:
    """New memory from every call, equal results from equal inputs, and kernels that were started."""
    if len(reply.latencies) != calls or len(reply.seals) != calls:
        raise refuse("reports another number of calls than there were")
    if any(not value > 0 for value in reply.latencies):
        raise refuse("reports a latency that is not positive")
    if reply.shared:
        raise refuse("returns the same memory from two calls: the second overwrites the first")
    if reply.changed:
        raise refuse(f"changes the outputs of {reply.changed} timed calls after they ended")
    if not reply.difference <= REPEAT_LIMIT:
        raise refuse(f"two calls on the same inputs differ by {reply.difference:.3g} (relative L2)")
    if reply.grown_bytes > MOST_KEPT_SHARE * calls * output_bytes:
        each = reply.grown_bytes / calls / 1e6
        raise refuse(f"keeps {each:.0f} MB of the device's memory with every call")


def accept_kernels(task: Task, seen: Seen) -> list[str]:
    """What the profiler saw in a round: whose kernels, on which streams. Returns notes."""
    if seen.marks_disturbed:
        raise refuse("starts kernels that pass for the marks of the harness")
    if seen.other_streams:
        raise refuse(f"starts {seen.other_streams} kernels on another stream")
    if not task.must_work:
        return []
    if seen.own_share is None:
        return ["the profiler saw nothing: whose kernels did the work is not known"]
    share, who = seen.own_share, "its own kernels have" if task.is_compiled else "Triton has"
    if not task.is_composite and not task.allowed_operators:
        other_ms = (seen.kernel_ms or 0.0) * (1.0 - share)
        long = share < LEAST_OWN_SHARE_OF_LONG and other_ms > LONG_MS
        if share < LEAST_OWN_SHARE or long:
            raise refuse(f"a library does the work: {who} {100 * share:.0f}% of the GPU time")
        refuse_foreign(seen.foreign)
    return [f"{who} a share of the GPU time of {share:.3f}"]


def refuse_foreign(foreign: Mapping[str, float]) -> None:
    """Raises Ended where a library's kernels, here with their shares of the time, do the work."""
    share = sum(foreign.values())
    if share > MOST_FOREIGN_SHARE:
        most = max(foreign, key=lambda name: foreign[name])
        raise refuse(
            f"a library does the work: its kernels have {100 * share:.0f}% of the GPU time, "
            f"most of it {most[:80]}"
        )


def fits_kernels(median_ms: float, kernel_ms: float | None) -> bool:
    """Whether the events may say so where the profiler's sum of kernels is `kernel_ms`."""
    return kernel_ms is None or median_ms >= LEAST_OF_KERNELS * kernel_ms - 0.01


def accept_clocks(median_ms: float, clocks: Clocks) -> list[str]:
    """The events' latency beside other streams and three more clocks. Returns notes."""
    if clocks.lag_ms > 0.05 + 0.1 * median_ms:
        raise refuse(
            f"works on for {clocks.lag_ms:.3f} ms on another stream after its own stream is done"
        )
    disagree = f"the clocks disagree: {median_ms:.4f} ms by events"
    notes = []
    kernel_ms, outside_ms = clocks.kernel_ms, clocks.outside_ms
    if not fits_kernels(median_ms, kernel_ms):
        raise refuse(f"{disagree}, {kernel_ms:.4f} in its kernels")
    if kernel_ms is not None and median_ms > 1.25 * kernel_ms + 0.01:
        notes.append(
            f"waits for the host between its kernels: they take {kernel_ms:.4f} of "
            f"{median_ms:.4f} ms"
        )
    if median_ms < LEAST_OF_OUTSIDE * outside_ms - OUTSIDE_SLACK_MS:
        # Where the device waits for the host, launches may be what limits.
        if not clocks.dry or outside_ms > LONG_OUTSIDE_MS:
            raise refuse(f"{disagree}, {outside_ms:.4f} outside")
        notes.append(f"the device waits for the host: {outside_ms:.4f} ms a call outside")
    notes += _beside_the_package(median_ms, clocks.package_ms, clocks.host_ms)
    return notes


def accept_floor(task: Task, median_ms: float, hardware: str) -> None:
    """No verdict is faster than physics; for a device that is not listed nothing is known."""
    target = gpu_called(hardware)
    least = floor_ms(task.definition, task.workload.workload, target) if target else 0.0
    if median_ms < LEAST_OF_FLOOR * least:
        raise refuse(f"is impossible: {median_ms:.4f} ms, where {hardware} needs {least:.4f}")


def _beside_the_package(median_ms: float, package_ms: float | None, host_ms: float) -> list[str]:
    """The package's timer adds launch time, 13 to 23 microseconds on an H200."""
    if package_ms is None or 0.85 * median_ms <= package_ms <= 1.25 * median_ms + 0.06:
        return []
    said = f"{package_ms:.4f} ms by the package, {median_ms:.4f} ms launch-free"
    too_long = package_ms > MOST_BY_THE_PACKAGE * (median_ms + host_ms) + PACKAGE_SLACK_MS
    # What a call waits for the host differs: the package's calls are not watched.
    if too_long or package_ms < LEAST_OF_OUTSIDE * median_ms - host_ms - OUTSIDE_SLACK_MS:
        raise refuse(f"the clocks disagree: {said}")
    return [f"the timers disagree: {said}"]
