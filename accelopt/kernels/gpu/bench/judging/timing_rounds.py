"""The timing rounds of one evaluation, and the checks of one clock by another.

Which calls are judged is picked when a round is over and all its outputs are sealed: until then every
call may be the one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple

from accelopt.evaluation import Status
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.input_draws import EVEN, LENGTHS, Draw, fresh
from accelopt.kernels.gpu.bench.judging import reply_rules
from accelopt.kernels.gpu.bench.judging.child_processes import CandidateProcess
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import Ended
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.timing import (
    BACKLOG_FACTOR,
    MOST_BACKLOG_MS,
    Statistics,
    summarise,
)

_KEY_BITS = 62
REINDEXED, SCALARS = "reindexed", "other scalars"  # trials
_KEPT_BYTES = 6 << 30  # of outputs that wait to be judged
_BATCH_MS = 12.0  # of the device's time that the parent's clock needs to see a difference
_REPEATS = 3


class KeptCall(NamedTuple):
    """A call whose outputs lie in files, to be judged. `surely`: however long judging takes."""

    name: str
    draw: Draw
    key: int = 0
    seals: tuple[int, ...] | None = None
    surely: bool = False


class Measurement:
    """All rounds of one candidate, and what the other clocks say."""

    def __init__(
        self,
        task: Task,
        candidate: CandidateProcess,
        expected: tuple[say.Output, ...],
        unusual: Sequence[str],
    ) -> None:
        self.task = task
        self.candidate = candidate
        self.expected = expected
        self.unusual = unusual
        self.kept: list[KeptCall] = []
        self.notes: list[str] = []
        self.samples: list[float] = []
        self.package_ms: float | None = None
        self.outside_ms: float | None = None
        self.dry = False
        self.seen: say.Seen | None = None
        self.prepared = say.Prepared(sets=2, most_calls=6, queue_ms=1.0, lag_ms=0.0)
        self._left_bytes = _KEPT_BYTES
        self._output_bytes = sum(math.prod(item.shape) * _size(item.dtype) for item in expected)

    @property
    def statistics(self) -> Statistics:
        """Of all samples that count."""
        return summarise(self.samples)

    @property
    def _on_gpu(self) -> bool:
        return self.task.device != "cpu"

    def clocks(self) -> dict[str, float | None]:
        """Latencies by other clocks, milliseconds, under the names of a profile's metrics."""
        return {
            "package_latency_ms": self.package_ms,
            "outside_latency_ms": self.outside_ms,
            "kernel_latency_ms": self.seen.kernel_ms if self.seen is not None else None,
        }

    def run(self) -> None:
        """Time the candidate, by itself, by the parent's clock, and by the package's."""
        plan = self.task.plan
        self.prepared = self.candidate.ask(say.Prepare(sets=plan.sets), say.Prepared)
        begin = time.monotonic()
        for index in range(plan.most_rounds):
            reply, draws, keys = self._round(left=max(1, plan.least_rounds - index))
            usual = (draw.lengths == EVEN for draw in draws)
            self.samples += itertools.compress(reply.latencies, usual)
            done = index + 1 >= plan.least_rounds and (
                time.monotonic() - begin > plan.seconds or self.statistics.spread <= plan.steady
            )
            last = done or index + 1 == plan.most_rounds
            self._keep(f"round{index}", reply, draws, keys, surely=last)
            if last and not (self._unseen() and index + 1 < plan.most_rounds):
                break
        if self._on_gpu:
            self._outside()
        if plan.package:
            self._package()

    def _round(
        self, *, left: int = 0, profiled: bool = False
    ) -> tuple[say.Timed, tuple[Draw, ...], tuple[int, ...]]:
        """One round on new inputs; of one set also index tensors, lengths and numbers are new. With this
        one so many rounds are `left` for sure."""
        count = self.prepared.sets
        draws = [fresh() for _ in range(count)]
        draws[secrets.randbelow(count)] = self._varied(left)
        keys = tuple(secrets.randbits(_KEY_BITS) for _ in range(count))
        asked = say.Round(draws=tuple(draws), keys=keys, profiled=profiled)
        reply = self.candidate.ask(asked, say.Timed)
        reply_rules.accept_round(reply, count, self._output_bytes)
        reply_rules.accept_operators(self.task, reply, self.expected)
        return reply, tuple(draws), keys

    def _varied(self, left: int) -> Draw:
        """A draw of what passed when it was tried, of lengths of any such kind; where only so many rounds are
        left, of a kind of which no call has been kept. Other lengths take other times."""
        unseen, kinds = self._unseen(), [kind for kind in LENGTHS if kind in self.unusual]
        pool = unseen if left <= len(unseen) else kinds
        chosen = secrets.choice(pool) if left and pool else EVEN
        indices, scalars = REINDEXED in self.unusual, SCALARS in self.unusual
        return fresh(lengths=chosen, indices=indices, scalars=scalars)

    def _unseen(self) -> list[str]:
        """Kinds of lengths that passed when they were tried, and of which no timed call is kept yet."""
        seen = {kept.draw.lengths for kept in self.kept}
        return [kind for kind in LENGTHS if kind in self.unusual and kind not in seen]

    def _keep(
        self, name: str, reply: say.Timed, draws: tuple[Draw, ...], keys: tuple[int, ...],
        *, surely: bool = False,
    ) -> None:  # fmt: skip
        """Have the outputs of one call of the round that is over written, if there is room: of the call
        on unusual inputs as often as of any other, and always where none on such lengths is kept."""
        unusual = [at for at, draw in enumerate(draws) if draw.unusual or draw.fresh_indices]
        first = [at for at, draw in enumerate(draws) if draw.lengths in self._unseen()]
        pick = first[0] if first else secrets.choice([secrets.randbelow(len(draws)), *unusual])
        if surely or first or self._left_bytes > 0:
            name, always = f"{name}_{pick}", surely or bool(first)
            self._reveal(pick, KeptCall(name, draws[pick], keys[pick], reply.seals[pick], always))

    def _reveal(self, index: int, kept: KeptCall) -> None:
        asked = say.Reveal(index=index, name=kept.name)
        outputs = self.candidate.ask(asked, say.Revealed).outputs
        reply_rules.accept_outputs(self.task, outputs, self.expected)
        self._left_bytes -= sum(
            path.stat().st_size for path in self.candidate.folder.glob(f"{kept.name}_*.bin")
        )
        self.kept.append(kept)

    def watch_kernels(self) -> None:
        """One more round, which the candidate cannot tell from the others, under the profiler.

        After all others, for launches are slower in a process that the profiler has been in (seen on
        an H200: 45 microseconds a call).
        """
        if not self._on_gpu:
            return
        notes: list[str] = []
        for attempt in range(_REPEATS):  # another process may have disturbed it
            reply, draws, keys = self._round(profiled=True)
            self._keep(f"profiled{attempt}", reply, draws, keys, surely=True)
            self.seen = reply.seen or say.Seen()
            notes = reply_rules.accept_kernels(self.task, self.seen)
            if reply_rules.fits_kernels(self.statistics.median, self.seen.kernel_ms):
                break
        self.notes += notes

    def _outside(self) -> None:
        """Milliseconds a call by the parent's clock, measured again while it would convict: another
        process may have disturbed it."""
        for attempt in range(_REPEATS):
            found = self._outside_once(judge=attempt == 0)
            self.outside_ms = found if self.outside_ms is None else min(found, self.outside_ms)
            if self.statistics.median >= reply_rules.LEAST_OF_OUTSIDE * self.outside_ms:
                return

    def _outside_once(self, *, judge: bool) -> float:
        """What so many more calls take longer, behind a wait long enough to queue all of them."""
        median = self.statistics.median
        calls = int(min(self.prepared.most_calls // 3, max(2, _BATCH_MS / max(median, 1e-3))))
        wait = min(MOST_BACKLOG_MS, 0.5 + 2 * calls * BACKLOG_FACTOR * self.prepared.queue_ms)
        walls: dict[int, list[float]] = {calls: [], 2 * calls: []}
        for repeat in range(_REPEATS):
            draws = tuple(fresh() for _ in range(3 * calls))
            self.candidate.ask(say.Fill(draws=draws), say.Done)
            for first, count in ((0, calls), (calls, 2 * calls)):
                begin = time.perf_counter()
                asked = say.Batch(first=first, calls=count, wait_ms=wait)
                self.dry |= self.candidate.ask(asked, say.Batched).dry
                walls[count].append((time.perf_counter() - begin) * 1e3)
                if judge and repeat == 0:
                    pick = secrets.randbelow(count)
                    name = f"batch{count}_{pick}"
                    self._reveal(pick, KeptCall(name, draws[first + pick], surely=count > calls))
        return max(0.0, min(walls[2 * calls]) - min(walls[calls])) / calls

    def _package(self) -> None:
        """The package's own timer, for traces and comparison with others' figures."""
        plan = self.task.plan
        asked = say.Package(
            trials=plan.package_trials, warmup_runs=plan.warmup_runs, iterations=plan.iterations
        )
        try:
            self.package_ms = self.candidate.ask(asked, say.Latency).milliseconds
        except Ended as ended:
            if ended.status in (Status.CRASH, Status.TIMEOUT):
                raise
            with contextlib.suppress(IndexError):
                self.notes.append(f"the package's timer failed: {str(ended).splitlines()[0]}")

    def accept(self, hardware: str) -> list[str]:
        """The clocks beside each other, and beside physics. Returns notes; raises Ended where they disagree."""
        reply_rules.accept_floor(self.task, self.statistics.median, hardware)
        if self.outside_ms is not None:
            alone = self.clocks()["kernel_latency_ms"]
            self.notes += reply_rules.accept_clocks(
                self.statistics.median,
                reply_rules.Clocks(
                    self.prepared.lag_ms, self.outside_ms, alone, self.package_ms,
                    self.prepared.queue_ms, self.dry,
                ),
            )  # fmt: skip
        return self.notes


def _size(dtype: str) -> int:
    """Bytes of an element; four where the format is not one of NumPy's or ours."""
    known = index_tensors.DTYPES.get(dtype)
    return known[1].itemsize if known is not None else 4
