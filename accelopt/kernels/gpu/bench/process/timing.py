"""Launch-free timing of one call on a GPU, and its statistics.

A round queues, behind a kernel that only waits, for each set of inputs: untimed calls on other
inputs, what gives the set its new contents, a write over memory larger than the L2 cache, a start
event, the call, an end event. The GPU never waits for the host, so the time between two events is
the call's own; contents that come so late cannot be worked on before, what is not there when the
call ends can be seen to be missing; and clocks and power are where the kernel's own load takes them.
(FlashInfer-Bench 0.1.2 synchronises before each call and so adds 13 to 23 microseconds of launch to
every kernel; measured on an H200.)

A candidate lives in the process that times it. So what the clock calls are functions of the C
library, bound before the candidate is loaded: of immutable types, and of no module that it could
change and put back.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

# Wait this much longer than the host needs to queue a round, so that the queue never runs dry.
BACKLOG_FACTOR = 1.5
# A call that waits for the device drains the queue itself; a longer backlog would only cool the GPU.
MOST_BACKLOG_MS = 40.0
FLUSH_BYTES = 256 << 20
BUSY_SECONDS = 0.04  # of its own load before a round

CandidateCall = Callable[[list[Any]], Any]


def _nothing(*_: object) -> None:
    """Stands where nothing is to be done."""


class Statistics(NamedTuple):
    """Of repeated latencies in milliseconds: median, its 95% interval, extremes, and count; mean and
    standard deviation for whoever asks for those."""

    median: float
    low: float
    high: float
    fastest: float
    slowest: float
    samples: int
    mean: float = 0.0
    deviation: float = 0.0

    @property
    def spread(self) -> float:
        """Half of the interval's width over the median."""
        return (self.high - self.low) / (2 * self.median) if self.median else math.inf


def summarise(samples: Sequence[float]) -> Statistics:
    """The median and the order statistics that enclose it with 95% confidence (binomial)."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    count = len(ordered)
    half = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half))
    high = min(count - 1, math.ceil(count / 2 + half))
    return Statistics(
        statistics.median(ordered), ordered[low], ordered[high], ordered[0], ordered[-1], count,
        statistics.fmean(ordered), statistics.pstdev(ordered),
    )  # fmt: skip


class Clock:
    """Times rounds on `device`. Everything it calls is bound before a candidate can replace it."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self.device = device
        self.on_gpu = device.type == "cuda"
        self.queued_ms = 0.0  # what the host took to queue the last round
        self._stop_collector, self._start_collector = gc.disable, gc.enable
        if self.on_gpu:
            library = torch._C
            self._stream = torch.cuda.current_stream(device)
            self._new_event = library._CudaEventBase
            self._record, self._wait = self._new_event.record, self._new_event.synchronize
            self._elapsed, self._is_over = self._new_event.elapsed_time, self._new_event.query
            self._synchronize = library._cuda_synchronize
            self._sleep = library._cuda_sleep
            self._empty_cache = library._cuda_emptyCache
            self._memory = library._cuda_memoryStats
            self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
            self._zero = library.TensorBase.zero_
            self._cycles_per_ms = self._measure_sleep()

    def mark(self) -> Any:
        """An event in the stream, from now on."""
        event = self._new_event(enable_timing=True, blocking=False, interprocess=False)
        self._record(event, self._stream)
        return event

    def _measure_sleep(self) -> float:
        """Cycles that the waiting kernel takes a millisecond, at the clock the GPU has now."""
        cycles = 4_000_000
        for _ in range(2):
            start = self.mark()
            self._sleep(cycles)
            end = self.mark()
            self._synchronize()
        return cycles / float(self._elapsed(start, end))

    def wait(self, milliseconds: float) -> None:
        """Queue a kernel that only waits."""
        if self.on_gpu:
            self._sleep(int(milliseconds * self._cycles_per_ms))

    def over(self, event: Any) -> bool:
        """Whether the device has come as far as to an event."""
        return bool(self._is_over(event))

    def synchronize(self) -> None:
        """Wait for all streams of the device."""
        if self.on_gpu:
            self._synchronize()

    def release(self) -> None:
        """Give back the device's memory that nothing holds; other processes may need it."""
        if self.on_gpu:
            self._empty_cache()

    def allocated_bytes(self) -> int:
        """What of the device's memory is in use by this process; 0 without one."""
        if not self.on_gpu:
            return 0
        return int(self._memory(self.device.index or 0)["allocated_bytes"]["all"]["current"])

    def round(
        self,
        call: CandidateCall,
        sets: list[list[Any]],
        backlog_ms: float,
        before: Callable[[int], object] = _nothing,
        after: Callable[[int, Any], object] = _nothing,
        mark: Callable[[], object] = _nothing,
    ) -> tuple[list[float], list[Any]]:
        """One call for each set; milliseconds and results, in the order of `sets`.

        Queued untimed: `before(i)` in front of call i, `after(i, result)` right behind it, and
        `mark()` close around it.
        """
        # What waits for the collector in a cycle would else work between a call and what comes behind it.
        self._stop_collector()
        try:
            if not self.on_gpu:
                return self._round_on_cpu(call, sets, before, after)
            return self._round_on_gpu(call, sets, backlog_ms, before, after, mark)
        finally:
            self._start_collector()

    def _round_on_gpu(
        self,
        call: CandidateCall,
        sets: list[list[Any]],
        backlog_ms: float,
        before: Callable[[int], object],
        after: Callable[[int, Any], object],
        mark: Callable[[], object],
    ) -> tuple[list[float], list[Any]]:
        spans, results = [], []
        self._synchronize()
        self.wait(backlog_ms)
        begin = time.perf_counter()
        for index, inputs in enumerate(sets):
            before(index)
            self._zero(self._flush)
            mark()
            start = self.mark()
            results.append(call(inputs))
            spans.append((start, self.mark()))
            mark()
            after(index, results[-1])
        self.queued_ms = (time.perf_counter() - begin) * 1e3
        self._synchronize()
        return [float(self._elapsed(start, end)) for start, end in spans], results

    def _round_on_cpu(
        self,
        call: CandidateCall,
        sets: list[list[Any]],
        before: Callable[[int], object],
        after: Callable[[int, Any], object],
    ) -> tuple[list[float], list[Any]]:
        latencies, results = [], []
        for index, inputs in enumerate(sets):
            before(index)
            begin = time.perf_counter()
            results.append(call(inputs))
            latencies.append((time.perf_counter() - begin) * 1e3)
            after(index, results[-1])
        return latencies, results

    def backlog_ms(
        self, call: CandidateCall, sets: list[list[Any]], before: Callable[[int], object] = _nothing
    ) -> float:
        """How long the GPU must wait so that the host has queued a round, with room to spare."""
        self.round(call, sets, 0.0, before)
        return min(MOST_BACKLOG_MS, BACKLOG_FACTOR * self.queued_ms + 0.2)

    def queueing_ms(self, call: CandidateCall, inputs: list[Any]) -> float:
        """Milliseconds of the host for one call: the median of five, while the device waits."""
        taken = []
        for _ in range(5):
            self.synchronize()
            self.wait(1.0)
            begin = time.perf_counter()
            call(inputs)
            taken.append((time.perf_counter() - begin) * 1e3)
        self.synchronize()
        return statistics.median(taken)

    def warm_up(self, work: Callable[[], object], seconds: float) -> None:
        """Repeat `work` until clocks and power are where its own load takes them."""
        if not self.on_gpu:
            return
        begin = time.perf_counter()
        work()
        self._synchronize()
        once = max(1e-6, time.perf_counter() - begin)
        burst = max(1, min(8, int(0.1 * seconds / once)))
        while time.perf_counter() - begin < seconds:
            for _ in range(burst):
                work()
            self._synchronize()

    def lag_ms(self, call: CandidateCall, inputs: list[Any]) -> float:
        """Work left on other streams when the call's own stream is done, in milliseconds.

        The smallest of five, less what a synchronisation of an idle device takes.
        """
        if not self.on_gpu:
            return 0.0
        idle = min(self._tail(lambda: None) for _ in range(5))
        return max(0.0, min(self._tail(lambda: call(inputs)) for _ in range(5)) - idle)

    def _tail(self, work: Callable[[], Any]) -> float:
        self._synchronize()
        work()
        self._wait(self.mark())
        begin = time.perf_counter()
        self._synchronize()
        return (time.perf_counter() - begin) * 1e3
