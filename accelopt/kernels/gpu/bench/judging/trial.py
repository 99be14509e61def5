"""The order of trials of one evaluation, and what has been found so far.

The candidate's process computes and times; the referee's process judges. The parent hands out the
seeds, holds the lock on the GPU, keeps its own clock, and believes nothing that it cannot check.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from accelopt.evaluation import (
    LESS_EXACT,
    MOST_TIMES_LESS_EXACT,
    Check,
    Evaluation,
    Exactness,
    Profile,
    Status,
    exactness_words,
)
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.input_draws import (
    LARGEST,
    LENGTHS,
    SCALES,
    VALUES,
    Draw,
    fresh,
)
from accelopt.kernels.gpu.bench.files.tracefiles import InputSource, Solution
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock
from accelopt.kernels.gpu.bench.judging import reply_rules
from accelopt.kernels.gpu.bench.judging.child_processes import CandidateProcess, RefereeProcess
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.judging.reply_rules import Ended, OutOfMemory
from accelopt.kernels.gpu.bench.judging.timing_rounds import (
    REINDEXED,
    SCALARS,
    KeptCall,
    Measurement,
)
from accelopt.kernels.gpu.bench.judging.verdict import Verdict
from accelopt.kernels.gpu.bench.process import messages as say
from accelopt.kernels.gpu.bench.process.comparison import Figures
from accelopt.kernels.gpu.bench.process.timing import Statistics

_KEY_BITS = 62
NUMBERS = 3  # draws of other scalars: some near what the workload says, some far


class SolutionTrial:
    """One solution's way through all checks; ends at the first that fails."""

    def __init__(self, task: Task, folder: Path, *, alone: bool = False) -> None:
        self.task = task
        self.folder = folder
        self.alone = alone  # somebody holds the device for all of it
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.figures: list[Figures] = []
        self.exactness: tuple[Exactness, ...] = ()
        self.baseline: tuple[Exactness, ...] = ()  # the start's, where it was asked for
        self.workload = task.workload
        self.place = say.DeviceEnvironment(hardware="", libs={})
        self.expected: tuple[say.Output, ...] = ()
        self.measured: Measurement | None = None
        outputs = folder / "candidate"
        self.candidate = CandidateProcess(task, task.solution, outputs)
        try:
            self.referee = RefereeProcess(task, folder / "referee", outputs)
        except BaseException:
            self.candidate.child.close()
            raise

    def close(self) -> None:
        """End both children."""
        self.candidate.child.close()
        self.referee.child.close()

    def run(self) -> Verdict:
        """Every trial in order; raises Ended at the first one that fails."""
        self.referee.start()
        self.place = self.candidate.start()
        first = fresh()
        with self._shared():
            self.expected = self.referee.ask(say.Expect(draw=first), say.Expected).outputs
        self._trial("first", first)
        unusual = self._stress()
        measured = Measurement(self.task, self.candidate, self.expected, unusual)
        self.measured = measured
        with self._locked(alone=True):
            measured.run()
            measured.watch_kernels()
            self.candidate.ask(say.Rest(), say.Done)
        self.notes += measured.accept(self.place.hardware)
        self._judge_timed(measured.kept)
        self._trial("after", fresh())
        if self.task.plan.shapes:
            self._other_shape()
        return self.verdict(self._correct(measured.statistics), measured.statistics)

    def _shared(self) -> AbstractContextManager[None]:
        """The device beside others, for one trial at a time: a slow reference keeps nobody who wants
        to have it alone waiting for longer than that."""
        return self._locked(alone=False)

    def _locked(self, *, alone: bool) -> AbstractContextManager[None]:
        return nullcontext() if self.alone else gpu_lock(self.task.device, alone=alone)

    def _trial(self, name: str, draw: Draw) -> bool | None:
        """One call on inputs of `draw`, and the judgement on its outputs: whether they are right, None
        where the reference does not say. Raises Ended where they may not be wrong."""
        with self._shared():
            key = secrets.randbits(_KEY_BITS)
            asked = say.CheckCall(draw=draw, name=name, key=key)
            reply = self.candidate.ask(asked, say.Checked)
            reply_rules.accept_outputs(self.task, reply.outputs, self.expected)
            reply_rules.accept_operators(self.task, reply, self.expected)
            return self._judge(
                KeptCall(name, draw, key, reply.seals), f"{name} inputs", exactly=not self.checks
            )

    def _judge(self, kept: KeptCall, label: str, *, exactly: bool) -> bool | None:
        exactly = exactly and self.task.must_be_exact and not kept.draw.unusual
        asked = say.Judge(
            draw=kept.draw, name=kept.name, key=kept.key, seals=kept.seals, exactly=exactly
        )
        reply = self.referee.ask(asked, say.Judged)
        self.candidate.forget(kept.name)
        if reply.broken:
            raise reply_rules.refuse(
                f"on {label}: outputs are not what they were when the call ended"
            )
        if reply.skipped:
            self.notes.append(f"{label}: {reply.skipped}")
            return None
        figures = list(reply.figures)
        if not kept.draw.stressed:
            self.figures += figures
        self.checks += [
            Check(
                name=f"{label}: {item.output}",
                passed=not item.failure,
                amount=item.relative_l2,
                limit=item.limit,
                where=item.failure,
            )
            for item in figures
        ]
        wrong = [item for item in figures if item.failure]
        if wrong:
            sentences = "; ".join(item.sentence() for item in wrong)
            if kept.draw.unusual or self.workload is not self.task.workload:
                if self._excused(kept.draw):
                    self.notes.append(f"unstable on {label}: {sentences}")
                    return False
                self.figures += figures
            raise Ended(Status.WRONG_NUMBERS, f"on {label}: {sentences}")
        self._accept_exactness(reply, kept.draw, label)
        return True

    def _accept_exactness(self, reply: say.Judged, draw: Draw, label: str) -> None:
        """As exact as the start, or as arithmetic in the reference's formats; without a start, products in
        TF32 are, too. Raises Ended for what is much less."""
        own, start, limit = reply.exactness, self.task.start, MOST_TIMES_LESS_EXACT
        self.exactness = self.exactness or own
        if not own or (start is not None and start.main_source == self.task.solution.main_source):
            return
        errors = [one.error for one in self.baseline] if start is not None else reply.in_tf32
        times = _times_less(own, errors)
        if times > limit and start is not None and not self.baseline:
            judged = self._judged_start(start, draw, exactly=True)
            self.baseline = judged.exactness if judged is not None else ()
            times = _times_less(own, [one.error for one in self.baseline])
        where = exactness_words(own, self.baseline)
        name = f"{label}: {LESS_EXACT}"
        self.checks.append(
            Check(name=name, passed=times <= limit, amount=times, limit=limit, where=where)
        )
        if times > limit:
            beside = (
                "its baseline" if start is not None else "arithmetic in the reference's formats"
            )
            raise Ended(
                Status.WRONG_NUMBERS,
                f"on {label}: {times:.3g} times less exact than {beside}, where {limit:g} are allowed: {where}",
            )

    def _stress(self) -> list[str]:
        """Values spread otherwise, other scalars, and other index tensors where ours stand in for any.
        Returns which of the latter are right: they come up in timed calls, too."""
        task = self.task
        if not task.is_composite and not task.definition.op_type.startswith("sampling"):
            others = [values for values in VALUES if values not in SCALES]
            random.SystemRandom().shuffle(others)
            for values in (*SCALES, *others[: task.plan.stress]):
                self._try_values(values)
            self._trial("touched", fresh(touched=True))
        draws = {}
        if self._has_indices:
            draws = {one: fresh(lengths=one) for one in LENGTHS}
            draws[REINDEXED] = fresh(indices=True)
        passed = [name for name, draw in draws.items() if self._trial(name, draw)]
        numbers = any(source.type == "scalar" for source in self._sources)
        if numbers and all(self._if_taken(SCALARS, fresh(scalars=True)) for _ in range(NUMBERS)):
            passed.append(SCALARS)
        return passed

    def _try_values(self, values: str) -> None:
        """As large as the reference is defined on."""
        for largest in LARGEST if values in ("huge", "spiked") else LARGEST[-1:]:
            if self._trial(values, fresh(values, largest=largest)) is not None:
                return
            if largest != LARGEST[-1]:
                self.notes.pop()

    def _if_taken(self, name: str, draw: Draw) -> bool | None:
        """A trial on what the reference takes and a solution may say that it does not."""
        try:
            with self._shared():
                expected = self.referee.ask(say.Expect(draw=draw), say.Expected).outputs
        except OutOfMemory:
            raise
        except Ended:
            return None
        if self.workload is self.task.workload and expected != self.expected:
            return None  # a number that is a size
        self.expected = expected
        try:
            return self._trial(name, draw)
        except Ended as ended:
            if ended.status is not Status.RUN_ERROR or "CUDA error" in str(ended):
                raise
            self.notes.append(f"takes no {name}: {ended}")
            return False

    def _other_shape(self) -> None:
        """The last trial: on another workload of the definition, where one can be made."""
        other = index_tensors.resized(self.task.root, self.task.definition, self.task.workload)
        if other is None:
            return
        self.workload = other
        asked = say.Resize(workload=other.model_dump(mode="json", exclude_unset=True))
        with self._shared():
            self.referee.ask(asked, say.Done)
            self.candidate.ask(asked, say.Done)
        changed = {k: v for k, v in other.workload.axes.items()
                   if v != self.task.workload.workload.axes[k]}  # fmt: skip
        sizes = ", ".join(f"{axis} {size}" for axis, size in changed.items())
        self._if_taken(f"other shape ({sizes})", fresh(indices=self._has_indices))

    @property
    def _has_indices(self) -> bool:
        return any(source.type == "safetensors" for source in self._sources)

    @property
    def _sources(self) -> list[InputSource]:
        return list(self.task.workload.workload.inputs.values())

    def _excused(self, draw: Draw) -> bool:
        """Whether to let a failure on unusual inputs pass: the start shares it, or nobody asked.

        Kernels that others published may, say, leave out the maximum of a softmax. What comes of
        them need not be better; but nothing may become worse than the start.
        """
        if not self.task.refuse_unstable:
            return True
        start = self.task.start
        if start is None or start.main_source == self.task.solution.main_source:
            return start is not None
        judged = self._judged_start(start, draw)
        return judged is None or any(item.failure for item in judged.figures)

    def _judged_start(
        self, start: Solution, draw: Draw, *, exactly: bool = False
    ) -> say.Judged | None:
        """What becomes of the start on such inputs; None where it gives nothing."""
        task = self.task._replace(workload=self.workload)
        with CandidateProcess(task, start, self.folder / "start") as child:
            try:
                child.start()
                asked = say.CheckCall(draw=draw, name="start", key=0)
                child.ask(asked, say.Checked)
            except OutOfMemory:
                raise
            except Ended:
                return None
            for path in child.folder.glob("start_*.bin"):
                path.rename(self.candidate.folder / path.name)
        judge = say.Judge(draw=draw, name="start", exactly=exactly)
        reply = self.referee.ask(judge, say.Judged)
        self.candidate.forget("start")
        return reply

    def _judge_timed(self, kept: list[KeptCall]) -> None:
        """Outputs of timed calls, as they were when they ended: as many as there is time for.

        Those of the last rounds, of which nobody could know that they would be the last, and of the
        batches come first; of the others nobody knows which.
        """
        first = [item for item in kept if item.surely]
        others = [item for item in kept if not item.surely]
        random.SystemRandom().shuffle(others)
        taken = 0.0
        for number, item in enumerate((*first, *others)):
            if taken > self.task.plan.judging_seconds and number > len(first):
                self.candidate.forget(item.name)
                continue
            with self._shared():
                begin = time.monotonic()
                self._judge(item, f"timed call ({item.name})", exactly=True)
                taken += time.monotonic() - begin

    def _correct(self, statistics: Statistics) -> Evaluation:
        measured = self.measured
        assert measured is not None
        disagree = any("disagree" in note for note in self.notes)
        profile = Profile(
            latency=statistics.median,
            min_ms=statistics.fastest,
            max_ms=statistics.slowest,
            rel_diffs=(statistics.slowest - statistics.fastest) / statistics.fastest,
            metrics={
                "launch_free_latency_ms": statistics.median,
                "mean_ms": statistics.mean,
                "std_ms": statistics.deviation,
                **{k: v for k, v in measured.clocks().items() if v is not None},
            },
            target=self.place.hardware,
            simulated=False,
            stable=statistics.spread <= 0.02 and not disagree,
            interval_ms=(statistics.low, statistics.high),
        )
        held = ", ".join(self.candidate.child.isolation)
        return Evaluation(
            status=Status.CORRECT,
            profile=profile,
            checks=tuple(self.checks),
            notes=tuple(self.notes),
            exactness=self.exactness,
            isolation=f"candidate and referee in processes of their own: {held}",
        )

    def verdict(self, evaluation: Evaluation, statistics: Statistics | None = None) -> Verdict:
        """What is known so far, with the given evaluation."""
        clocks = self.measured.clocks() if self.measured is not None else {}
        return Verdict(
            evaluation=evaluation,
            hardware=self.place.hardware,
            libs=self.place.libs,
            latency=statistics,
            package_latency_ms=clocks.get("package_latency_ms"),
            outside_latency_ms=clocks.get("outside_latency_ms"),
            figures=tuple(self.figures),
            log=self.candidate.child.printed()[-20000:],
        )


def _times_less(own: Sequence[Exactness], errors: Sequence[float]) -> float:
    """How many times less exact outputs are than others with such errors, at most; with none where nobody
    knows."""
    beside = errors if len(errors) == len(own) else [0.0] * len(own)
    return max(
        one.times_less(one.model_copy(update={"error": error}))
        for one, error in zip(own, beside, strict=True)
    )
