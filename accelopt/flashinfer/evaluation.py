"""One solution on one workload: two child processes, a fixed order of trials, one verdict.

The candidate's process computes and times; the referee's process judges. The parent hands out the
seeds, holds the lock on the GPU, keeps its own clock, and believes nothing that it cannot check.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from accelopt.flashinfer import blobs
from accelopt.flashinfer.calling import passes_destination
from accelopt.flashinfer.channel import Message
from accelopt.flashinfer.child import Child, ChildDied, ChildTimeout
from accelopt.flashinfer.comparison import Figures, Tolerance
from accelopt.flashinfer.inputs import Draw
from accelopt.flashinfer.source_rules import violations
from accelopt.flashinfer.timing import Statistics, summarise
from accelopt.flashinfer.tracefiles import Definition, Solution, Trace
from accelopt.flashinfer.verdict import Verdict, status_of_error
from accelopt.records import Check, Evaluation, Profile, Status

CANDIDATE = "accelopt.flashinfer.candidate"
REFEREE = "accelopt.flashinfer.referee"
STARTUP_SECONDS = 180.0
# Two runs of one honest kernel on equal inputs may differ by the order of atomic additions.
REPEAT_LIMIT = 1e-2
# Share of the output's elements that library operators may produce in a Triton solution.
LIBRARY_SHARE = 0.5
# Problems of many steps, where a library product is one step among others.
COMPOSITE = ("moe", "mamba", "gdn", "dsa")
LEAST_TRITON_SHARE = 0.2


class Plan(NamedTuple):
    """How thoroughly a solution is timed."""

    sets: int = 8
    least_rounds: int = 5
    most_rounds: int = 15
    seconds: float = 1.5
    package: bool = True
    package_trials: int = 3
    warmup_runs: int = 10
    iterations: int = 50
    steady: float = 0.005


class Task(NamedTuple):
    """A solution, the problem it claims to solve, and where and how to try it."""

    root: Path
    definition: Definition
    workload: Trace
    solution: Solution
    device: str = "cuda:0"
    destination_passing_style: bool | None = None
    timeout_seconds: float = 300.0
    tolerance: Tolerance = Tolerance()
    plan: Plan = Plan()
    allowed_operators: frozenset[str] = frozenset()
    environment: tuple[tuple[str, str], ...] = ()
    start: Solution | None = None
    refuse_unstable: bool = True
    rival: bool = False  # a library's own kernel, to compare with: source and work rules are off


class _Ended(Exception):
    """The verdict is known before the end."""

    def __init__(self, status: Status, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.traceback = traceback


def evaluate(task: Task) -> Verdict:
    """Check and time one solution; whatever it does, the result is a Verdict."""
    begin = time.monotonic()
    found = [] if task.rival else violations(task.solution)
    if found:
        message = "forbidden in the source: " + "; ".join(str(item) for item in found[:5])
        evaluation = Evaluation(status=Status.REFUSED, message=message)
        return Verdict(evaluation=evaluation)
    blobs.materialise(task.root, task.definition, task.workload.workload)
    with tempfile.TemporaryDirectory(prefix="accelopt-flb-", dir=_scratch()) as folder:
        trial = _Trial(task, Path(folder))
        try:
            verdict = trial.run()
        except _Ended as ended:
            evaluation = Evaluation(
                status=ended.status,
                message=str(ended),
                traceback=ended.traceback,
                checks=tuple(trial.checks),
                notes=tuple(trial.notes),
            )
            verdict = trial.verdict(evaluation)
        finally:
            trial.close()
    seconds = time.monotonic() - begin
    evaluation = verdict.evaluation.model_copy(update={"seconds": seconds})
    return verdict.model_copy(update={"evaluation": evaluation})


def _scratch() -> str | None:
    """Outputs pass through memory where the host has a memory file system."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def gpu_lock(device: str, *, alone: bool) -> Iterator[None]:
    """Share the device with other evaluations, or have it alone while timing.

    Everybody passes one gate in turn, so whoever waits to be alone is not overtaken for ever.
    """
    # A place that every process of the host sees, whatever its TMPDIR is.
    folder = Path(_scratch() or "/tmp")
    stem = f"accelopt-{device.replace(':', '')}"
    with (folder / f"{stem}.gate").open("a") as gate, (folder / f"{stem}.lock").open("a") as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


class _Trial:
    """The order of trials of one evaluation, and what has been found so far."""

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
        self.expected: list[Message] = []
        request: Message = {
            "definition": task.definition.model_dump(mode="json", exclude_unset=True),
            "workload": task.workload.model_dump(mode="json", exclude_unset=True),
            "root": str(task.root.resolve()),
            "folder": str(folder),
            "device": task.device,
            "tolerance": task.tolerance._asdict(),
        }
        environment = {"FIB_CACHE_PATH": str(folder / "package"), **dict(task.environment)}
        self.request, self.variables = request, environment
        self.referee = Child(REFEREE, request, folder, environment)
        request["solution"] = task.solution.model_dump(mode="json", exclude_unset=True)
        request["destination_passing_style"] = passes_destination(
            task.solution, task.definition, task.destination_passing_style
        )
        self.candidate = Child(CANDIDATE, request, folder, environment)

    @property
    def _must_be_triton(self) -> bool:
        return self.task.solution.spec.language == "triton" and not self.task.rival

    def close(self) -> None:
        """End both children."""
        self.candidate.close()
        self.referee.close()

    def run(self) -> Verdict:
        """Every trial in order; raises _Ended at the first one that fails."""
        self._start()
        with gpu_lock(self.task.device, alone=False):
            first = Draw(secrets.randbits(40))
            self.expected = self._referee("expectation", draw=first._asdict())["outputs"]
            self._trial("first", first, observe=True)
            self._stress()
        with gpu_lock(self.task.device, alone=True):
            revealed = self._time()
        with gpu_lock(self.task.device, alone=False):
            self._watch_kernels()
            for name, draw in revealed:
                self._judge(name, draw, f"timed call ({name})")
            self._trial("after", Draw(secrets.randbits(40)), observe=True)
        statistics = summarise(self.samples)
        return self.verdict(self._correct(statistics), statistics)

    def _start(self) -> None:
        deadline = time.monotonic() + STARTUP_SECONDS
        try:
            self.referee.receive(deadline)
        except (ChildDied, ChildTimeout) as error:
            raise _Ended(
                Status.BASELINE_FAILED, "the reference's process did not start", str(error)
            ) from None
        try:
            self.environment = self.candidate.receive(deadline)
        except (ChildDied, ChildTimeout) as error:
            raise _Ended(
                Status.RUN_ERROR, "the candidate's process did not start", str(error)
            ) from None
        self._candidate("load")

    def _candidate(self, request: str, **fields: object) -> Message:
        """Ask the candidate's process; a failure of any kind is the verdict."""
        begin = time.monotonic()
        try:
            reply = self.candidate.ask({"request": request, **fields}, begin + self.left)
        except ChildDied as error:
            raise _Ended(
                Status.CRASH, f"the process died during `{request}`: {_first_line(str(error))}",
                str(error),
            ) from None  # fmt: skip
        except ChildTimeout as error:
            raise _Ended(
                Status.TIMEOUT, f"no answer to `{request}` within the time limit", str(error)
            ) from None
        self.left = max(1.0, self.left - (time.monotonic() - begin))
        if reply["status"] == "raised":
            status = status_of_error(str(reply["error"]), str(reply["message"]))
            if request == "load" and status is Status.RUN_ERROR:
                status = Status.COMPILE_ERROR
            text = f"{reply['error'].rsplit('.', 1)[-1]}: {reply['message']}"
            raise _Ended(status, text, str(reply["traceback"]))
        replaced = reply.get("replaced")
        if replaced:
            raise _Ended(Status.REFUSED, f"replaces library functions: {', '.join(replaced)}")
        return reply

    def _referee(self, request: str, **fields: object) -> Message:
        """Ask the referee's process; if it cannot answer, the baseline has failed."""
        deadline = time.monotonic() + self.task.timeout_seconds
        try:
            reply = self.referee.ask({"request": request, **fields}, deadline)
        except (ChildDied, ChildTimeout) as error:
            raise _Ended(
                Status.BASELINE_FAILED, "the reference did not finish", str(error)
            ) from None
        if reply["status"] == "raised":
            raise _Ended(
                Status.BASELINE_FAILED,
                f"the reference failed: {reply['error']}: {reply['message']}",
                str(reply["traceback"]),
            )
        return reply

    def _trial(self, name: str, draw: Draw, *, observe: bool = False) -> None:
        """One call on inputs of `draw`, and the judgement on its outputs."""
        reply = self._candidate("check", draw=draw._asdict(), name=name, observe=observe)
        self._accept_outputs(reply["outputs"])
        if reply["mutated"]:
            raise _Ended(Status.REFUSED, f"changes its inputs: {', '.join(reply['mutated'])}")
        if observe:
            self._accept_work(reply["launches"], reply["heavy"])
        self._judge(name, draw, f"{name} inputs")

    def _accept_outputs(self, outputs: list[Message]) -> None:
        names = list(self.task.definition.outputs)
        if len(outputs) != len(names):
            raise _Ended(
                Status.WRONG_SHAPE, f"{len(outputs)} outputs where {len(names)} are defined"
            )
        for name, output, expected in zip(names, outputs, self.expected, strict=True):
            if not output["plain"]:
                kind = output["type"]
                if kind in ("int", "float", "bool", "NoneType", "dict", "str"):
                    raise _Ended(Status.WRONG_SHAPE, f"output `{name}` is a {kind}, not a tensor")
                raise _Ended(Status.REFUSED, f"output `{name}` is a {kind}, not a plain tensor")
            if output["shape"] != expected["shape"]:
                raise _Ended(
                    Status.WRONG_SHAPE,
                    f"output `{name}` has shape {output['shape']}, not {expected['shape']}",
                )
            if output["dtype"] != expected["dtype"]:
                raise _Ended(
                    Status.WRONG_DTYPE,
                    f"output `{name}` is {output['dtype']}, not {expected['dtype']}",
                )

    def _accept_work(self, launches: int, heavy: dict[str, int]) -> None:
        """Refuse a Triton solution whose work is done by a library."""
        for name, elements in heavy.items():
            self.heavy[name] = max(elements, self.heavy.get(name, 0))
        if not self._must_be_triton:
            return
        if launches == 0:
            raise _Ended(Status.REFUSED, "starts no Triton kernel")
        outputs = sum(_elements(output["shape"]) for output in self.expected)
        counted = {
            name: elements for name, elements in heavy.items()
            if name not in self.task.allowed_operators
        }  # fmt: skip
        if self.task.definition.op_type.startswith(COMPOSITE):
            return
        if sum(counted.values()) >= LIBRARY_SHARE * outputs and counted:
            names = ", ".join(sorted(counted))
            raise _Ended(Status.REFUSED, f"a library does the work in place of a kernel: {names}")

    def _judge(self, name: str, draw: Draw, label: str) -> None:
        reply = self._referee("judge", draw=draw._asdict(), name=name)
        if reply["status"] == "skipped":
            self.notes.append(f"{label}: {reply['why']}")
            return
        figures = [Figures(**{**item, "worst_at": tuple(item["worst_at"])})
                   for item in reply["figures"]]  # fmt: skip
        if draw.scale == 1.0:
            self.figures += figures
        for item in figures:
            self.checks.append(
                Check(
                    name=f"{label}: {item.output}",
                    passed=not item.failure,
                    amount=item.relative_l2,
                    limit=item.limit,
                    where=item.failure,
                )
            )
        wrong = [item for item in figures if item.failure]
        if wrong:
            sentences = "; ".join(item.sentence() for item in wrong)
            if draw.scale != 1.0:
                if self._excused(draw):
                    self.notes.append(f"unstable on {label}: {sentences}")
                    return
                self.figures += figures
            raise _Ended(Status.WRONG_NUMBERS, f"on {label}: {sentences}")

    def _stress(self) -> None:
        """Inputs on other scales, and other index tensors where ours stand in for any."""
        if self.task.definition.op_type.startswith((*COMPOSITE, "sampling")):
            return
        for name, scale in (("small", 1e-3), ("large", 30.0)):
            self._trial(name, Draw(secrets.randbits(40), scale, fresh_indices=False))
        if any(
            source.type == "safetensors" for source in self.task.workload.workload.inputs.values()
        ):
            self._trial("reindexed", Draw(secrets.randbits(40), 1.0, fresh_indices=True))

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
        request = {**self.request, "solution": start.model_dump(mode="json", exclude_unset=True)}
        request["destination_passing_style"] = passes_destination(start, self.task.definition)
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
        """All rounds; returns the timed calls whose outputs are to be judged."""
        plan = self.task.plan
        prepared = self._candidate("prepare", seed=secrets.randbits(40), sets=plan.sets)
        count = int(prepared["sets"])
        observed_round = secrets.randbelow(plan.least_rounds)
        chosen_round = secrets.randbelow(plan.least_rounds)
        revealed: list[tuple[str, Draw]] = []
        begin = time.monotonic()
        for index in range(plan.most_rounds):
            draws = [Draw(secrets.randbits(40)) for _ in range(count)]
            observe = index == observed_round
            reply = self._candidate("round", seeds=[d.seed for d in draws], observe=observe)
            self._accept_round(reply, observe)
            if not observe:
                self.samples += [float(value) for value in reply["latencies"]]
            if index in (chosen_round, plan.least_rounds):
                pick = secrets.randbelow(count)
                name = f"round{index}"
                described = self._candidate("reveal", index=pick, name=name)
                self._accept_outputs(described["outputs"])
                revealed.append((name, draws[pick]))
            done = index + 1 >= plan.least_rounds
            if done and (
                time.monotonic() - begin > plan.seconds
                or summarise(self.samples).spread <= plan.steady
            ):
                break
        self._watch_clocks(float(prepared["lag_ms"]))
        if plan.package:
            self._package()
        return revealed

    def _accept_round(self, reply: Message, observe: bool) -> None:
        if any(not value > 0 for value in reply["latencies"]):
            raise _Ended(Status.REFUSED, "reports a latency that is not positive")
        if reply["shared"]:
            raise _Ended(
                Status.REFUSED,
                "returns the same memory from two calls: the second overwrites the first",
            )
        if not reply["difference"] <= REPEAT_LIMIT:
            raise _Ended(
                Status.REFUSED,
                f"two calls on the same inputs differ by {reply['difference']:.3g} (relative L2)",
            )
        if observe:
            self._accept_work(reply["launches"], reply["heavy"])
        elif reply["launches"] == 0 and self._must_be_triton:
            raise _Ended(Status.REFUSED, "starts no Triton kernel while it is timed")

    def _watch_clocks(self, lag_ms: float) -> None:
        """Other streams, other kernels, and the parent's clock against the events."""
        if self.task.device == "cpu":
            return
        median = summarise(self.samples).median
        if lag_ms > 0.05 + 0.1 * median:
            raise _Ended(
                Status.REFUSED,
                f"works on for {lag_ms:.3f} ms on another stream after its own stream is done",
            )
        self._outside_clock(median)

    def _watch_kernels(self) -> None:
        """What the profiler saw: kernels on other streams, and whose kernels did the work."""
        if self.task.device == "cpu":
            return
        seen = self._candidate("watch")
        if seen["other_streams"]:
            raise _Ended(
                Status.REFUSED, f"starts {seen['other_streams']} kernels on another stream"
            )
        share = seen["triton_share"]
        composite = self.task.definition.op_type.startswith(COMPOSITE)
        if share is not None and self._must_be_triton:
            self.notes.append(f"Triton's share of the GPU time: {share:.3f}")
            if share < LEAST_TRITON_SHARE and not composite and not self.task.allowed_operators:
                raise _Ended(
                    Status.REFUSED,
                    f"a library does the work: Triton has {100 * share:.0f}% of the GPU time",
                )

    def _outside_clock(self, median: float) -> None:
        calls = int(max(8, min(400, 30.0 / max(median, 1e-3))))
        walls = []
        for count in (calls, 2 * calls):
            begin = time.perf_counter()
            self._candidate("batch", calls=count)
            walls.append((time.perf_counter() - begin) * 1e3)
        self.outside_ms = (walls[1] - walls[0]) / calls
        # Back to back, launches may be what limits: only longer calls can convict.
        if self.outside_ms > 0.1 and median < 0.5 * self.outside_ms:
            message = (
                f"the clocks disagree: {median:.4f} ms by events, {self.outside_ms:.4f} outside"
            )
            if self.outside_ms > 0.3:
                raise _Ended(Status.REFUSED, message)
            self.notes.append(message)

    def _package(self) -> None:
        """The package's own timer, for traces and comparison with others' figures."""
        plan = self.task.plan
        try:
            reply = self._candidate(
                "package", trials=plan.package_trials, warmup_runs=plan.warmup_runs,
                iterations=plan.iterations,
            )  # fmt: skip
        except _Ended as ended:
            if ended.status in (Status.CRASH, Status.TIMEOUT):
                raise
            self.notes.append(f"the package's timer failed: {_first_line(str(ended))}")
            return
        self.package_ms = float(reply["latency_ms"])
        median = summarise(self.samples).median
        # The package's timer adds launch time, 13 to 23 microseconds on an H200.
        if not 0.85 * median <= self.package_ms <= 1.25 * median + 0.06:
            self.notes.append(
                f"the timers disagree: {self.package_ms:.4f} ms by the package, {median:.4f} ms "
                "launch-free"
            )

    def _correct(self, statistics: Statistics) -> Evaluation:
        disagree = any("disagree" in note for note in self.notes)
        metrics = {"launch_free_latency_ms": statistics.median}
        if self.package_ms is not None:
            metrics["package_latency_ms"] = self.package_ms
        if self.outside_ms is not None:
            metrics["outside_latency_ms"] = self.outside_ms
        profile = Profile(
            latency=statistics.median,
            min_ms=statistics.fastest,
            max_ms=statistics.slowest,
            rel_diffs=(statistics.slowest - statistics.fastest) / statistics.fastest,
            metrics=metrics,
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


def _elements(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
