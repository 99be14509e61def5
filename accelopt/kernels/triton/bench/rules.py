"""What a candidate's replies must be like; the first that is not ends the evaluation."""

from __future__ import annotations

from accelopt.evaluation import Status
from accelopt.kernels.triton.bench.channel import Message
from accelopt.kernels.triton.bench.task import Task

# Two runs of one honest kernel on equal inputs may differ by the order of atomic additions.
REPEAT_LIMIT = 1e-2
# Share of the output's elements that library operators may produce in a Triton solution.
LIBRARY_SHARE = 0.5
LEAST_TRITON_SHARE = 0.2
# The events may say this much less than the kernels between them take by the profiler.
LEAST_OF_KERNELS = 0.8
# Calls back to back overlap their launches and find a warm cache, but not this much.
LEAST_OF_OUTSIDE = 0.7
NO_TENSORS = ("int", "float", "bool", "NoneType", "dict", "str")


class Ended(Exception):
    """The verdict is known before the end."""

    def __init__(self, status: Status, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.traceback = traceback


def refuse(message: str) -> Ended:
    """The end of a dishonest solution."""
    return Ended(Status.REFUSED, message)


def accept_outputs(task: Task, outputs: list[Message], expected: list[Message]) -> None:
    """Plain tensors of the expected number, shapes and dtypes."""
    names = list(task.definition.outputs)
    if len(outputs) != len(names):
        raise Ended(Status.WRONG_SHAPE, f"{len(outputs)} outputs where {len(names)} are defined")
    for name, output, wanted in zip(names, outputs, expected, strict=True):
        if not output["plain"]:
            kind = output["type"]
            if kind in NO_TENSORS:
                raise Ended(Status.WRONG_SHAPE, f"output `{name}` is a {kind}, not a tensor")
            raise refuse(f"output `{name}` is a {kind}, not a plain tensor")
        if output["shape"] != wanted["shape"]:
            text = f"output `{name}` has shape {output['shape']}, not {wanted['shape']}"
            raise Ended(Status.WRONG_SHAPE, text)
        if output["dtype"] != wanted["dtype"]:
            text = f"output `{name}` is {output['dtype']}, not {wanted['dtype']}"
            raise Ended(Status.WRONG_DTYPE, text)


def accept_operators(
    task: Task, launches: int, heavy: dict[str, int], expected: list[Message]
) -> None:
    """A Triton solution starts kernels, and no operator of the library does their work."""
    if not task.must_be_triton:
        return
    if launches == 0:
        raise refuse("starts no Triton kernel")
    counted = {
        name: elements for name, elements in heavy.items() if name not in task.allowed_operators
    }
    outputs = sum(_elements(output["shape"]) for output in expected)
    if counted and not task.is_composite and sum(counted.values()) >= LIBRARY_SHARE * outputs:
        names = ", ".join(sorted(counted))
        raise refuse(f"a library does the work in place of a kernel: {names}")


def accept_round(task: Task, reply: Message) -> None:
    """New memory from every call, equal results from equal inputs, and kernels that were started."""
    if any(not value > 0 for value in reply["latencies"]):
        raise refuse("reports a latency that is not positive")
    if reply["shared"]:
        raise refuse("returns the same memory from two calls: the second overwrites the first")
    if not reply["difference"] <= REPEAT_LIMIT:
        raise refuse(
            f"two calls on the same inputs differ by {reply['difference']:.3g} (relative L2)"
        )
    if reply["launches"] == 0 and task.must_be_triton:
        raise refuse("starts no Triton kernel while it is timed")


def accept_kernels(task: Task, seen: Message) -> list[str]:
    """What the profiler saw in a round: whose kernels, on which streams. Returns notes."""
    if seen.get("marks_disturbed"):
        raise refuse("starts kernels that pass for the marks of the harness")
    if seen["other_streams"]:
        raise refuse(f"starts {seen['other_streams']} kernels on another stream")
    share = seen["triton_share"]
    if share is None or not task.must_be_triton:
        return []
    if share < LEAST_TRITON_SHARE and not task.is_composite and not task.allowed_operators:
        raise refuse(f"a library does the work: Triton has {100 * share:.0f}% of the GPU time")
    return [f"Triton's share of the GPU time: {share:.3f}"]


def accept_clocks(
    median_ms: float,
    lag_ms: float,
    outside_ms: float,
    kernel_ms: float | None,
    package_ms: float | None,
) -> list[str]:
    """The events' latency beside other streams and three more clocks. Returns notes."""
    if lag_ms > 0.05 + 0.1 * median_ms:
        raise refuse(f"works on for {lag_ms:.3f} ms on another stream after its own stream is done")
    disagree = f"the clocks disagree: {median_ms:.4f} ms by events"
    notes = []
    if kernel_ms is not None and median_ms < LEAST_OF_KERNELS * kernel_ms - 0.01:
        raise refuse(f"{disagree}, {kernel_ms:.4f} in its kernels")
    if kernel_ms is not None and median_ms > 1.25 * kernel_ms + 0.01:
        notes.append(
            f"waits for the host between its kernels: they take {kernel_ms:.4f} of "
            f"{median_ms:.4f} ms"
        )
    # Back to back, launches may be what limits: only longer calls can convict.
    if outside_ms > 0.1 and median_ms < LEAST_OF_OUTSIDE * outside_ms:
        if outside_ms > 0.3:
            raise refuse(f"{disagree}, {outside_ms:.4f} outside")
        notes.append(f"{disagree}, {outside_ms:.4f} outside")
    # The package's timer adds launch time, 13 to 23 microseconds on an H200.
    if package_ms is not None and not 0.85 * median_ms <= package_ms <= 1.25 * median_ms + 0.06:
        notes.append(
            f"the timers disagree: {package_ms:.4f} ms by the package, {median_ms:.4f} ms "
            "launch-free"
        )
    return notes


def _elements(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
