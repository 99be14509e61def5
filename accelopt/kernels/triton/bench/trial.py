"""The order of trials of one evaluation, and what has been found so far.

The candidate's process computes and times; the referee's process judges. The parent hands out the
seeds, holds the lock on the GPU, keeps its own clock, and believes nothing that it cannot check.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from accelopt.evaluation import Check, Evaluation, Profile, Status
from accelopt.kernels.triton.bench import rules
from accelopt.kernels.triton.bench.calling import passes_destination
from accelopt.kernels.triton.bench.channel import Message
from accelopt.kernels.triton.bench.child import Child, ChildDied, ChildTimeout
from accelopt.kernels.triton.bench.comparison import Figures
from accelopt.kernels.triton.bench.inputs import Draw
from accelopt.kernels.triton.bench.lock import gpu_lock
from accelopt.kernels.triton.bench.rules import Ended
from accelopt.kernels.triton.bench.task import Task
from accelopt.kernels.triton.bench.timing import Statistics, summarise
from accelopt.kernels.triton.bench.tracefiles import Solution
from accelopt.kernels.triton.bench.verdict import Verdict, status_of_error

CANDIDATE = "accelopt.kernels.triton.bench.candidate"
REFEREE = "accelopt.kernels.triton.bench.referee"
STARTUP_SECONDS = 180.0
QUICK_REFERENCE_SECONDS = 0.5  # a reference this quick judges twice as many timed calls


class Trial:
    """One solution's way through all checks; ends at the first that fails."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.folder = folder
        self.left = task.timeout_seconds
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.figures: list[Figures] = []
        self.heavy: dict[str, int] = {}
        self.environment: Message = {}
        self.samples: list[float] = []
        self.package_ms: float | None = None
        self.outside_ms: float | None = None
        self.kernel_ms: float | None = None
        self.expected: list[Message] = []
        self.revealed_a_round = 1
        self.sets = 0
        self.lag_ms = 0.0
        self.request: Message = {
            "definition": task.definition.model_dump(mode="json", exclude_unset=True),
            "workload": task.workload.model_dump(mode="json", exclude_unset=True),
            "root": str(task.root.resolve()),
            "folder": str(folder),
            "device": task.device,
            "tolerance": task.tolerance._asdict(),
        }
        self.variables = {"FIB_CACHE_PATH": str(folder / "package"), **dict(task.environment)}
        self.referee = Child(REFEREE, self.request, folder, self.variables)
        style = passes_destination(task.solution, task.definition, task.destination_passing_style)
        request = self._request_for(task.solution, style)
        self.candidate = Child(CANDIDATE, request, folder, self.variables)

    def _request_for(self, solution: Solution, style: bool) -> Message:
        return {
            **self.request,
            "solution": solution.model_dump(mode="json", exclude_unset=True),
            "destination_passing_style": style,
        }

    @property
    def _on_gpu(self) -> bool:
        return self.task.device != "cpu"

    def close(self) -> None:
        """End both children."""
        self.candidate.close()
        self.referee.close()

    def run(self) -> Verdict:
        """Every trial in order; raises Ended at the first one that fails."""
        self._start()
        with gpu_lock(self.task.device, alone=False):
            first = Draw(secrets.randbits(40))
            self.expected = self._referee("expectation", draw=first._asdict())["outputs"]
            self._trial("first", first, observe=True)
            self._stress()
        with gpu_lock(self.task.device, alone=True):
            kept = self._time()
            if self.task.plan.kernel_clock:
                self.kernel_ms = self._watch_kernels()
        with gpu_lock(self.task.device, alone=False):
            if not self.task.plan.kernel_clock:
                self._watch_kernels()
            self._candidate("rest")
            self._accept_clocks()
            for name, draw in kept:
                self._judge_timed(name, draw)
            self._trial("after", Draw(secrets.randbits(40)), observe=True)
        statistics = summarise(self.samples)
        return self.verdict(self._correct(statistics), statistics)

    def _start(self) -> None:
        deadline = time.monotonic() + STARTUP_SECONDS
        try:
            self.referee.receive(deadline)
        except (ChildDied, ChildTimeout) as error:
            text = "the reference's process did not start"
            raise Ended(Status.BASELINE_FAILED, text, str(error)) from None
        try:
            self.environment = self.candidate.receive(deadline)
        except (ChildDied, ChildTimeout) as error:
            text = "the candidate's process did not start"
            raise Ended(Status.RUN_ERROR, text, str(error)) from None
        self._candidate("load")

    def _candidate(self, request: str, **fields: object) -> Message:
        """Ask the candidate's process; a failure of any kind is the verdict."""
        begin = time.monotonic()
        try:
            reply = self.candidate.ask({"request": request, **fields}, begin + self.left)
        except ChildDied as error:
            text = f"the process died during `{request}`: {_first_line(str(error))}"
            raise Ended(Status.CRASH, text, str(error)) from None
        except ChildTimeout as error:
            text = f"no answer to `{request}` within the time limit"
            raise Ended(Status.TIMEOUT, text, str(error)) from None
        self.left = max(1.0, self.left - (time.monotonic() - begin))
        if reply["status"] == "raised":
            status = status_of_error(str(reply["error"]), str(reply["message"]))
            if request == "load" and status is Status.RUN_ERROR:
                status = Status.COMPILE_ERROR
            text = f"{reply['error'].rsplit('.', 1)[-1]}: {reply['message']}"
            raise Ended(status, text, str(reply["traceback"]))
        replaced = reply.get("replaced")
        if replaced:
            raise rules.refuse(f"replaces library functions: {', '.join(replaced)}")
        return reply

    def _referee(self, request: str, **fields: object) -> Message:
        """Ask the referee's process; if it cannot answer, the baseline has failed."""
        deadline = time.monotonic() + self.task.timeout_seconds
        try:
            reply = self.referee.ask({"request": request, **fields}, deadline)
        except (ChildDied, ChildTimeout) as error:
            text = "the reference did not finish"
            raise Ended(Status.BASELINE_FAILED, text, str(error)) from None
        if reply["status"] == "raised":
            text = f"the reference failed: {reply['error']}: {reply['message']}"
            raise Ended(Status.BASELINE_FAILED, text, str(reply["traceback"]))
        return reply

    def _trial(self, name: str, draw: Draw, *, observe: bool = False) -> None:
        """One call on inputs of `draw`, and the judgement on its outputs."""
        reply = self._candidate("check", draw=draw._asdict(), name=name, observe=observe)
        rules.accept_outputs(self.task, reply["outputs"], self.expected)
        if reply["mutated"]:
            raise rules.refuse(f"changes its inputs: {', '.join(reply['mutated'])}")
        if observe:
            self._accept_operators(reply)
        self._judge(name, draw, f"{name} inputs")

    def _accept_operators(self, reply: Message) -> None:
        for name, elements in reply["heavy"].items():
            self.heavy[name] = max(elements, self.heavy.get(name, 0))
        rules.accept_operators(self.task, reply["launches"], reply["heavy"], self.expected)

    def _judge(self, name: str, draw: Draw, label: str) -> None:
        begin = time.monotonic()
        reply = self._referee("judge", draw=draw._asdict(), name=name)
        self.revealed_a_round = 2 if time.monotonic() - begin < QUICK_REFERENCE_SECONDS else 1
        if reply["status"] == "skipped":
            self.notes.append(f"{label}: {reply['why']}")
            return
        figures = [Figures(**{**item, "worst_at": tuple(item["worst_at"])})
                   for item in reply["figures"]]  # fmt: skip
        if draw.scale == 1.0:
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
            if draw.scale != 1.0:
                if self._excused(draw):
                    self.notes.append(f"unstable on {label}: {sentences}")
                    return
                self.figures += figures
            raise Ended(Status.WRONG_NUMBERS, f"on {label}: {sentences}")

    def _stress(self) -> None:
        """Inputs on other scales, and other index tensors where ours stand in for any."""
        if self.task.is_composite or self.task.definition.op_type.startswith("sampling"):
            return
        for name, scale in (("small", 1e-3), ("large", 30.0)):
            self._trial(name, Draw(secrets.randbits(40), scale, fresh_indices=False))
        if self._has_indices:
            self._trial("reindexed", Draw(secrets.randbits(40), 1.0, fresh_indices=True))

    @property
    def _has_indices(self) -> bool:
        sources = self.task.workload.workload.inputs.values()
        return any(source.type == "safetensors" for source in sources)

    def _excused(self, draw: Draw) -> bool:
        """Whether to let a failure on inputs of another scale pass: the start shares it, or nobody asked.

        Kernels that others published may, say, leave out the maximum of a softmax. What comes of
        them need not be better; but nothing may become worse than the start.
        """
        if not self.task.refuse_unstable:
            return True
        start = self.task.start
        if start is None or start.main_source == self.task.solution.main_source:
            return start is not None
        folder = self.folder / "start"
        folder.mkdir(exist_ok=True)
        request = self._request_for(start, passes_destination(start, self.task.definition))
        deadline = time.monotonic() + STARTUP_SECONDS
        with Child(CANDIDATE, request, folder, self.variables) as child:
            try:
                child.receive(deadline)
                child.ask({"request": "load"}, deadline)
                fields = {"draw": draw._asdict(), "name": "start"}
                if child.ask({"request": "check", **fields}, deadline)["status"] != "ran":
                    return True
            except (ChildDied, ChildTimeout):
                return True
        reply = self._referee("judge", draw=draw._asdict(), name="start")
        return any(item["failure"] for item in reply.get("figures", ()))

    def _time(self) -> list[tuple[str, Draw]]:
        """All rounds; returns the timed calls whose outputs are kept to be judged."""
        plan = self.task.plan
        prepared = self._candidate("prepare", seed=secrets.randbits(40), sets=plan.sets)
        self.sets, self.lag_ms = int(prepared["sets"]), float(prepared["lag_ms"])
        if self._on_gpu:
            self.outside_ms = self._outside_ms(float(prepared["call_ms"]))
        if plan.package:
            self._package()
        observed = secrets.randbelow(plan.least_rounds)
        judged = {secrets.randbelow(plan.least_rounds), plan.least_rounds}
        kept: list[tuple[str, Draw]] = []
        begin = time.monotonic()
        for index in range(plan.most_rounds):
            picks = secrets.SystemRandom().sample(range(self.sets), self.revealed_a_round)
            draws = self._draws(picks[0])
            keep = {f"round{index}_{pick}": pick for pick in picks} if index in judged else {}
            reply = self._round(draws, "operators" if index == observed else "", keep)
            if index == observed:
                self._accept_operators(reply)
            else:
                self.samples += [float(value) for value in reply["latencies"]]
            kept += [(name, draws[pick]) for name, pick in keep.items()]
            done = index + 1 >= plan.least_rounds
            if done and (
                time.monotonic() - begin > plan.seconds
                or summarise(self.samples).spread <= plan.steady
            ):
                break
        self._doubt_the_outside()
        return kept

    def _doubt_the_outside(self) -> None:
        """Measure again what would convict: another process may have disturbed the parent's clock."""
        if self.outside_ms is None:
            return
        median = summarise(self.samples).median
        for _ in range(2):
            if median < rules.LEAST_OF_OUTSIDE * self.outside_ms:
                self.outside_ms = min(self.outside_ms, self._outside_ms(median))

    def _draws(self, reindexed: int) -> list[Draw]:
        """New inputs for each set; of one of them also the index tensors are new."""
        return [
            Draw(secrets.randbits(40), 1.0, self._has_indices and position == reindexed)
            for position in range(self.sets)
        ]

    def _round(self, draws: list[Draw], observe: str, keep: dict[str, int]) -> Message:
        reply = self._candidate(
            "round", draws=[draw._asdict() for draw in draws], observe=observe, keep=keep
        )
        rules.accept_round(self.task, reply)
        return reply

    def _judge_timed(self, name: str, draw: Draw) -> None:
        """The outputs of a timed call, as they were when it ended."""
        described = self._candidate("reveal", name=name)
        rules.accept_outputs(self.task, described["outputs"], self.expected)
        self._judge(name, draw, f"timed call ({name})")

    def _watch_kernels(self) -> float | None:
        """One more round, which the candidate cannot tell from the others, under the profiler.

        The last one, for launches are slower in a process that the profiler has been in (seen on
        an H200: 45 microseconds a call). Returns the milliseconds its kernels take.
        """
        if not self._on_gpu:
            return None
        reply = self._round(self._draws(0), "kernels", {})
        self.notes += rules.accept_kernels(self.task, reply)
        milliseconds: float | None = reply["kernel_ms"]
        return milliseconds

    def _accept_clocks(self) -> None:
        if self.outside_ms is None:
            return
        median = summarise(self.samples).median
        self.notes += rules.accept_clocks(
            median, self.lag_ms, self.outside_ms, self.kernel_ms, self.package_ms
        )

    def _outside_ms(self, call_ms: float) -> float:
        """Milliseconds a call by the parent's clock: what so many more calls take longer."""
        calls = int(max(8, min(400, 30.0 / max(call_ms, 1e-3))))
        walls = []
        for count in (calls, 2 * calls):
            begin = time.perf_counter()
            self._candidate("batch", calls=count)
            walls.append((time.perf_counter() - begin) * 1e3)
        return (walls[1] - walls[0]) / calls

    def _package(self) -> None:
        """The package's own timer, for traces and comparison with others' figures."""
        plan = self.task.plan
        try:
            reply = self._candidate(
                "package", trials=plan.package_trials, warmup_runs=plan.warmup_runs,
                iterations=plan.iterations,
            )  # fmt: skip
        except Ended as ended:
            if ended.status in (Status.CRASH, Status.TIMEOUT):
                raise
            self.notes.append(f"the package's timer failed: {_first_line(str(ended))}")
            return
        self.package_ms = float(reply["latency_ms"])

    def _correct(self, statistics: Statistics) -> Evaluation:
        disagree = any("disagree" in note for note in self.notes)
        others = {
            "package_latency_ms": self.package_ms,
            "outside_latency_ms": self.outside_ms,
            "kernel_latency_ms": self.kernel_ms,
        }
        profile = Profile(
            latency=statistics.median,
            min_ms=statistics.fastest,
            max_ms=statistics.slowest,
            rel_diffs=(statistics.slowest - statistics.fastest) / statistics.fastest,
            metrics={
                "launch_free_latency_ms": statistics.median,
                **{name: value for name, value in others.items() if value is not None},
            },
            target=str(self.environment.get("hardware", "")),
            simulated=False,
            stable=statistics.spread <= 0.02 and not disagree,
            interval_ms=(statistics.low, statistics.high),
        )
        return Evaluation(
            status=Status.CORRECT,
            profile=profile,
            checks=tuple(self.checks),
            notes=tuple(self.notes),
            isolation="separate process for the candidate and for the referee",
        )

    def verdict(self, evaluation: Evaluation, statistics: Statistics | None = None) -> Verdict:
        """What is known so far, with the given evaluation."""
        return Verdict(
            evaluation=evaluation,
            hardware=str(self.environment.get("hardware", "")),
            libs=self.environment.get("libs", {}),
            latency=statistics,
            package_latency_ms=self.package_ms,
            outside_latency_ms=self.outside_ms,
            figures=tuple(self.figures),
            library_operators=tuple(sorted(self.heavy)),
            log=self.candidate.printed()[-20000:],
        )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
