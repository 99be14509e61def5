"""Solutions of FlashInfer-Trace problems on a GPU, whatever language they are written in."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from accelopt.concurrency import in_thread
from accelopt.evaluation import Case, Confirmation, Diagnosis, Evaluation
from accelopt.hardware.gpus import DEFAULT_GPU, GPU, GPUS, gpu_called
from accelopt.kernels.gpu.alternatives import measure_alternatives
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.judging.child_processes import COMPILER_SETTINGS
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool, CompileVerdict
from accelopt.kernels.gpu.bench.judging.evaluation import text_refused
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.process import installed_flashinfer_bench
from accelopt.kernels.gpu.bench.roofline import Bound, bound
from accelopt.kernels.gpu.briefing import briefing
from accelopt.kernels.gpu.cases import ProblemFiles, describe_definition, source_of
from accelopt.kernels.gpu.compiler_output import CompilerOutput
from accelopt.kernels.gpu.diagnosis import of_counters, of_roofline, of_structure
from accelopt.kernels.gpu.profiling.metrics import Metrics, Unavailable
from accelopt.kernels.gpu.profiling.ncu import NOT_ASKED, Profiled, collect
from accelopt.kernels.gpu.ptx_structure import Structure, evidence, missed, structures
from accelopt.kernels.language import Configured, Explanation, Language, LanguageOptions
from accelopt.kernels.measurement import faster_beyond_noise
from accelopt.kernels.notes import note_on, sheet_of
from accelopt.knob_space import Parameter
from accelopt.nodes import Node
from accelopt.sandbox.drivers import NVIDIA
from accelopt.sandbox.workers import Call, Fault, Pool, as_evaluation
from accelopt.store import JsonObject, content_key
from accelopt.time_limits import GPU_EVALUATION_SECONDS, GPU_START_SECONDS

EVALUATION = "accelopt.flb_wrapper:evaluate_job"
SETTINGS = "accelopt.flb_wrapper:settings_job"
# What the processes of an evaluation import, which takes longer than most kernels take to be judged:
# torch._dynamo comes with the first operator that is watched.
WARM = (
    "torch",
    "torch._dynamo",
    "triton",
    "accelopt.flb_wrapper",
    "accelopt.kernels.gpu.bench.process.candidate",
    "accelopt.kernels.gpu.bench.process.referee",
)
WORKER_BYTES = 96 << 30
FAILS = 1e12  # milliseconds: tried last
SPILL_PENALTY = 1.5


class Solutions(Language):
    """A `Language` whose evaluations run on `pool`, one GPU shared by all of them.

    What depends on the language of the solutions is its subclasses' to say: `actions`, `space`,
    `with_values`, the `notes` on its names and the `work` of the gate.
    """

    name = ""
    notes: Mapping[str, str] = {}
    work = "by kernels"
    may_name = (
        "The source may name operators of torch, triton and a few modules of the standard library "
        "where they are called, and nothing else of a library: no modules or classes as values, no "
        "other streams, files, threads, or inspection of the interpreter, and no attribute is set on "
        "what is not its own."
    )
    compiled_with: tuple[str, ...] = ("torch", "triton")
    """Packages that the compile check needs."""

    def __init__(self, pool: Pool, options: LanguageOptions) -> None:
        self.pool = pool
        self.options = options
        self.target = options.target if options.target in GPUS else DEFAULT_GPU
        self._environment = _environment(os.environ)
        self._compilers: CompilerPool | None = None
        self._known_compiled: dict[tuple[str, str], CompileVerdict] = {}  # by case and source
        self._problems: dict[str, ProblemFiles] = {}
        self._known_settings: dict[str, installed_flashinfer_bench.PackageSettings] = {}
        self._counters: dict[tuple[str, str], Profiled] = {}
        self._profiling = threading.Lock()
        interpreted = self._environment.get("TRITON_INTERPRET") == "1"
        gpus = tuple(f"cuda:{number}" for number in options.gpus)
        self._devices = ("cpu",) if interpreted else gpus
        self._free: asyncio.Queue[str] | None = None

    def _problem(self, case: Case) -> ProblemFiles:
        key = f"{case.values.get('definition')}\n{case.values.get('workload')}"
        if key not in self._problems:
            self._problems[key] = ProblemFiles(case.values)
        return self._problems[key]

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """The verdict on `source`, from a worker; its solution and trace go to the run's folder."""
        task = self.task(case, self._problem(case).solution(source))
        definition = task.definition.model_dump(mode="json", exclude_unset=True)
        settings = await self._settings(definition)
        if isinstance(settings, Fault):
            return as_evaluation(settings)
        payload = {
            "root": str(task.root),
            "definition": definition,
            "settings": settings.model_dump(mode="json"),
            "workload": task.workload.model_dump(mode="json", exclude_unset=True),
            "solution": task.solution.model_dump(mode="json", exclude_unset=True),
            "start": self._problem(case).template.model_dump(mode="json", exclude_unset=True),
            "keep_in": str(self.options.folder.resolve()),
            "scrutiny": self.options.scrutiny.value,
        }
        async with self._device() as device:
            call = Call(
                EVALUATION,
                {**payload, "device": device},
                GPU_EVALUATION_SECONDS,
                WORKER_BYTES,
                {**self._environment, **COMPILER_SETTINGS},
                WARM,
                gpu=device != "cpu",
            )
            return as_evaluation(await self.pool.ask(call, Evaluation))

    async def _settings(
        self, definition: JsonObject
    ) -> installed_flashinfer_bench.PackageSettings | Fault:
        """The package's own for a definition, asked for once."""
        key = json.dumps(definition)
        if key not in self._known_settings:
            call = Call(SETTINGS, {"definition": definition}, GPU_START_SECONDS, WORKER_BYTES)
            found = await self.pool.ask(call, installed_flashinfer_bench.PackageSettings)
            if isinstance(found, Fault):
                return found
            self._known_settings[key] = found
        return self._known_settings[key]

    @contextlib.asynccontextmanager
    async def _device(self) -> AsyncIterator[str]:
        """A device that nobody of this run evaluates on; where there is one GPU, its own lock orders
        who comes to it."""
        if len(self._devices) == 1:
            yield self._devices[0]
            return
        if self._free is None:
            self._free = asyncio.Queue()
            for device in self._devices:
                self._free.put_nowait(device)
        device = await self._free.get()
        try:
            yield device
        finally:
            self._free.put_nowait(device)

    async def alternatives(self, case: Case) -> Mapping[str, float]:
        """Launch-free times of PyTorch's reference, eager and compiled, and of libraries; empty without a GPU."""
        if self._devices == ("cpu",):
            return {}
        task = self.task(case, self._problem(case).template)
        found = await in_thread(measure_alternatives, task, self.options.traceset_root)
        return {name: one.latency.median for name, one in found.items() if one.latency is not None}

    def task(self, case: Case, solution: Solution) -> Task:
        """A solution on the case's problem, on this machine's GPU."""
        problem = self._problem(case)
        return Task(
            root=problem.root(self.options.traceset_root).resolve(),
            definition=problem.definition,
            workload=problem.workload,
            solution=solution,
            device=self._devices[0],
            environment=tuple(self._environment.items()),
        )

    def bound(self, case: Case, target: GPU) -> Bound:
        """The least time of a case's problem."""
        problem = self._problem(case)
        return bound(problem.definition, problem.workload.workload, target)

    async def explain(self, node: Node) -> Explanation:
        """The roofline of the workload, and how far the measured latency is from it."""
        profile = node.profile
        if profile is None:
            return Explanation()
        facts = [f"One call takes {profile.latency:.4g} ms on {profile.target} (launch-free)."]
        target = gpu_called(profile.target)
        if target is None:
            return Explanation(tuple(facts))
        least = await in_thread(self.bound, node.case, target)
        share = least.milliseconds / profile.latency
        facts.append(
            f"At least {least.bytes / 1e6:.1f} MB must move and {least.operations / 1e9:.1f} GFLOP "
            f"be done: {least.memory_ms:.4f} ms by memory, {least.compute_ms:.4f} ms by arithmetic "
            f"at the data sheet's peaks ({least.source}). The kernel reaches {share:.0%} of that bound, which "
            f"{least.limit} sets."
        )
        package = profile.metrics.get("package_latency_ms")
        if package is not None:
            facts.append(f"FlashInfer-Bench's own timer, launch included, says {package:.4g} ms.")
        return Explanation(tuple(facts), share)

    async def configure(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The solution with these tiles and options, where it compiles within the target's limits."""
        source = await in_thread(self.with_values, node.source, values)
        predicted, compiled = await self._foreseen(node, source)
        if predicted == FAILS:
            return Configured(None, "it does not compile within the target's limits")
        most = GPUS[self.target].thread_registers
        for kernel in compiled.resources:
            if kernel.registers > most:
                needed = (
                    f"one product of {kernel.kernel} takes {kernel.registers} registers a thread"
                )
                return Configured(None, f"{needed}; there are {most}")
        return Configured(source)

    async def diagnose(self, node: Node) -> Diagnosis | None:
        """By Nsight Compute where it is asked for and may count, else by the PTX of what compiles here
        and the measured time, else by the roofline: bytes and operations of the problem over that time.
        """
        profile = node.profile
        if profile is None:
            return None
        target = gpu_called(profile.target)
        least = await in_thread(self.bound, node.case, target) if target else None
        counted = await in_thread(self._counted, node)
        metrics = counted if isinstance(counted, Metrics) else None
        counters = None if counted == NOT_ASKED else counted.summary()
        if least is None or target is None:
            if metrics is None:
                return None
            found = of_counters(metrics, None, profile, self.name)
            return found.model_copy(update={"counters": counters})
        compiled = await self.compiled(node)
        kernels = structures(compiled.code, compiled.resources, target)
        known = evidence(kernels, least, target)
        missing = await self._missed(node, kernels, least, target)
        why = None if missing is None else bool(missing)
        notes = [*filter(None, (missing,))]
        if isinstance(counted, Unavailable) and self.options.profile_every:
            notes.insert(0, f"no counters: {counted.reason}")
        if metrics:
            found = of_counters(metrics, least, profile, self.name)
        elif known is None:
            found = of_roofline(least, profile, self.name)
        else:
            found = of_structure(known, least, target, profile, self.name)
            taken = max(compiled.resources, key=lambda one: one.spilled_bytes)
            found = found.model_copy(
                update={
                    "registers": taken.registers,
                    "shared_bytes": taken.shared_bytes,
                    "shared_share": taken.shared_bytes / target.block_shared_bytes,
                    "spilled_bytes": taken.spilled_bytes,
                }
            )
        return found.model_copy(
            update={"missed": why, "notes": (*notes, *found.notes), "counters": counters}
        )

    async def _missed(
        self, node: Node, kernels: Sequence[Structure], least: Bound, target: GPU
    ) -> str | None:
        """Why the change that made a node cannot have relieved what limited its parent; empty where it
        may have, None where there is no parent that ran, or nobody can say."""
        parent = node.parent
        if parent is None or parent.profile is None or not kernels:
            return None
        compiled = await self.compiled(parent)
        before = structures(compiled.code, compiled.resources, target)
        known = evidence(before, least, target)
        if known is None:
            return None
        limit = of_structure(known, least, target, parent.profile, self.name).bottleneck
        return missed(before, kernels, limit.resource) if limit else None

    async def compiler_output(self, node: Node) -> CompilerOutput:
        """The PTX of the kernel that is longest, and the counters of a call, or why there are none."""
        counted = await in_thread(self._counted, node)
        compiled = await self.compiled(node)
        texts = [code.ptx for code in compiled.code if code.ptx]
        return CompilerOutput(
            ptx=max(texts, key=len, default=""),
            metrics=counted if isinstance(counted, Metrics) else None,
            no_ptx=f"no PTX: {compiled.failure or 'nothing was compiled'}",
            no_metrics="" if isinstance(counted, Metrics) else f"no counters: {counted.reason}",
        )

    async def compiled(self, node: Node) -> CompileVerdict:
        """What the compiler makes of a kernel."""
        return await self._compiled(node.case, node.source)

    async def _compiled(self, case: Case, source: str) -> CompileVerdict:
        """The same, each kernel's once where the compiler could say something of it."""
        if any(importlib.util.find_spec(name) is None for name in self.compiled_with):
            absent = " and ".join(self.compiled_with)
            return CompileVerdict(failure=f"compiling takes {absent}", unknown=True)
        if self._environment.get("TRITON_INTERPRET") == "1":
            return CompileVerdict(failure="kernels are interpreted, not compiled", unknown=True)
        key = case.case_name, source
        if key in self._known_compiled:
            return self._known_compiled[key]
        if self._compilers is None:
            count = max(1, (os.cpu_count() or 2) - 4)
            self._compilers = CompilerPool(count, self.target, self._environment)
        problem = self._problem(case)
        found = await in_thread(
            self._compilers.check, problem.definition, problem.workload, problem.solution(source)
        )
        if not found.unknown:
            self._known_compiled[key] = found
        return found

    def _counted(self, node: Node) -> Profiled:
        """The counters of a kernel, each kernel's once. One thread at a time."""
        key = node.case.case_name, node.source
        with self._profiling:
            if key not in self._counters:
                task = self.task(node.case, self._problem(node.case).solution(node.source))
                number = len(self._counters)
                self._counters[key] = collect(task, self.options.profile_every, number)
            return self._counters[key]

    async def predict(self, node: Node, source: str) -> float | None:
        """The node's own latency, more when the compiler spills, very much when it fails."""
        return (await self._foreseen(node, source))[0]

    async def _foreseen(self, node: Node, source: str) -> tuple[float, CompileVerdict]:
        """What a source is expected to take, and what the compiler said of it."""
        if self.text_refused(node.case, source):
            return FAILS, CompileVerdict(failure="the rules of the source refuse it")
        compiled = await self._compiled(node.case, source)
        if compiled.failure and not compiled.unknown:
            return FAILS, compiled
        latency = node.latency or 1.0
        return latency * (SPILL_PENALTY if compiled.spilled_bytes > 64 else 1.0), compiled

    async def confirm(self, case: Case, winner: str, parent: str) -> Confirmation:
        """By the intervals of two fresh evaluations, one after the other."""
        profiles = [(await self.evaluate(case, source)).profile for source in (winner, parent)]
        fast, slow = profiles
        if fast is None or slow is None:
            return Confirmation(confirmed=False, message="a kernel failed when it was run again")
        return Confirmation(
            confirmed=faster_beyond_noise(fast, slow), speedup=slow.latency / fast.latency
        )

    def evaluation_key(self, case: Case, source: str) -> str:
        """A name for the source, its problem, what it started from, how much is asked, and by whom."""
        problem = self._problem(case)
        return content_key(
            source,
            problem.definition.model_dump_json(),
            problem.workload.workload.model_dump_json(),
            problem.template.model_dump_json(exclude={"name"}),
            self.options.scrutiny.value,
            self.target,
            referee_version(),
        )

    def reference(self, case: Case) -> str:
        """Shapes, dtypes and the PyTorch reference."""
        problem = self._problem(case)
        return describe_definition(problem.definition, problem.workload)

    def source(self, case: Case) -> str:
        """The text of the entry point's file."""
        return source_of(case)

    def gate(self, case: Case) -> str:
        """The referee's rules in words."""
        return (
            "The solution runs on fresh random inputs, on values of other scales (up to 1e4), far from "
            "zero, one-sided, or with a few far larger than the others, with other numbers and sizes of "
            "variable axes, and with other index tensors: sequences of equal lengths, one much longer "
            "than the rest, and empty ones. Every output is compared with the PyTorch reference in a "
            "process of its own: shape, dtype, contiguous, no NaN, no "
            "element beyond both 1e-2 absolute and 1e-2 relative error, and a relative L2 error of "
            "the whole and of each row that only 16-bit rounding explains. Inputs must not change, "
            f"outputs must be new tensors, and the work must be done {self.work} on the current "
            f"stream. {self.may_name} It is then timed with a cold L2 cache on inputs it has not "
            "seen, and timed calls are judged as well."
        )

    def text_refused(self, case: Case, source: str) -> str:
        """By the referee's rules on sources."""
        return text_refused(self._problem(case).solution(source))

    def look_up(self, name: str, kernel: str) -> str:
        """Our notes on one name."""
        return note_on(name, self.notes)

    def sheet(self, texts: Sequence[str]) -> str:
        """Our notes on the names that stand in `texts`."""
        return sheet_of(texts, self.notes)

    def with_values(self, source: str, values: Mapping[str, Parameter]) -> str:
        """`source` with its knobs set."""
        return source

    async def brief(self, node: Node) -> Mapping[str, str]:
        """What limits a solution that was timed, what may relieve that, and its knobs."""
        if node.profile is None:
            return {}
        found, space = await self.diagnose(node), await self.space(node)
        return {"limits": briefing(node.profile.latency, found, space, self.name)}


@cache
def referee_version() -> str:
    """A name for the code that judges and the libraries it judges with."""
    own = Path(__file__).parent
    folders = (own / "bench", own.parents[1] / "sandbox")
    texts = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    versions = [
        f"{name}={version}"
        for name, version in sorted(installed_flashinfer_bench.versions().items())
    ]
    return content_key(*versions, *texts)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What evaluations need of the caller's environment: the driver's and the compiler's settings."""
    prefixes = tuple(name for name in NVIDIA.variables if name.endswith("_"))
    return {
        name: value
        for name, value in variables.items()
        if name in NVIDIA.variables or name.startswith(prefixes)
    }
