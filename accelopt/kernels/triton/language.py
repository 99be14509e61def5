"""Triton solutions of FlashInfer-Trace problems on a GPU.

A case's `values` carry the paths of its problem: `definition`, `workload`, and `solution`,
the one that the run started from. Its kernel is a solution file, or plain source.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Confirmation, Diagnosis, Evaluation, Profile
from accelopt.kernels.language import Configured, Explanation, LanguageOptions
from accelopt.kernels.measurement import faster_beyond_noise
from accelopt.kernels.triton.bench.files.tracefiles import (
    BuildSpec,
    Definition,
    Solution,
    SourceFile,
    Trace,
    read_json,
    read_workload,
    workload_stem,
)
from accelopt.kernels.triton.bench.judging.baselines import measure_reference
from accelopt.kernels.triton.bench.judging.compile_check import CompilerPool
from accelopt.kernels.triton.bench.judging.task import Task
from accelopt.kernels.triton.bench.process import package
from accelopt.kernels.triton.bench.roofline import bound
from accelopt.kernels.triton.bench.source.source_rules import violations
from accelopt.kernels.triton.bench.targets import DEFAULT_TARGET, TARGETS, target_of
from accelopt.kernels.triton.diagnosis import of_roofline
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.space import tile_space, with_values
from accelopt.kernels.triton.names import describe, sheet
from accelopt.nodes import Action, Node
from accelopt.sandbox.drivers import NVIDIA
from accelopt.sandbox.workers import Call, Pool
from accelopt.space import Parameter, Space
from accelopt.store import content_key

EVALUATION = "accelopt.flb_wrapper:evaluate_job"
WORKER_SECONDS = 3600.0  # waits for the GPU's lock included; the kernel's own limit is far below
WORKER_BYTES = 96 << 30
MOST_PROPOSALS = 48
FAILS = 1e12  # milliseconds: tried last
SPILL_PENALTY = 1.5


class ProblemFiles:
    """The files behind one case, read once."""

    def __init__(self, values: Mapping[str, object]) -> None:
        try:
            self.definition_path = Path(str(values["definition"]))
            self.workload_path = Path(str(values["workload"]))
        except KeyError as missing:
            raise ConfigError(
                f"a case without {missing}: tables for --backend flashinfer have the columns "
                "definition_path, solution_path, workload_path"
            ) from None
        solution = values.get("solution")
        self.solution_path = Path(str(solution)) if solution else None
        self.definition = read_json(Definition, self.definition_path)
        self.workload = read_workload(self.workload_path)

    @cached_property
    def template(self) -> Solution:
        """The solution that the run starts from; every kernel shares its build settings."""
        if self.solution_path is not None and self.solution_path.suffix == ".json":
            return read_json(Solution, self.solution_path)
        path = self.solution_path
        text = path.read_text() if path is not None and path.is_file() else "pass"
        return Solution(
            name="start",
            definition=self.definition.name,
            author="AccelOpt",
            spec=BuildSpec(language="triton", entry_point="main.py::run", target_hardware=["cuda"]),
            sources=[SourceFile(path="main.py", content=text)],
        )

    def solution(self, source: str) -> Solution:
        """`source` as a solution, named by its content."""
        made = self.template.with_source(source, f"accelopt_{content_key(source)[:16]}")
        return made.model_copy(update={"author": "AccelOpt"})

    def root(self, option: Path | None) -> Path:
        """The trace folder: the option, or the nearest folder above the workload that is one."""
        if option is not None:
            return option
        for folder in self.workload_path.resolve().parents:
            if (folder / "blob").is_dir() or (folder / "definitions").is_dir():
                return folder
        return self.workload_path.resolve().parent


def case_of(definition: Path, solution: Path, workload: Path) -> Case:
    """The case that the paths of a definition, a solution and a workload stand for."""
    trace = read_workload(workload)
    name = read_json(Solution, solution).name if solution.suffix == ".json" else solution.stem
    return Case(
        service_name=f"{workload_stem(trace)}_{name}",
        case_name=workload_stem(trace),
        problem=trace.definition,
        values={
            "definition": str(definition),
            "workload": str(workload),
            "solution": str(solution),
        },
        task=str(definition),
        kernel=str(solution),
    )


def case_of_row(row: Mapping[str, str]) -> tuple[Case, Profile | None]:
    """A row of the published columns: definition_path, solution_path, workload_path, and more.

    The profile is in the `profile` column, or else in the trace at `trace_path`.
    """
    profile = None
    if row.get("profile"):
        profile = Profile.from_metadata(json.loads(row["profile"]))
    elif row.get("trace_path"):
        profile = profile_of(read_workload(Path(row["trace_path"])))
    paths = (Path(row[f"{kind}_path"]) for kind in ("definition", "solution", "workload"))
    return case_of(*paths), profile


def profile_of(trace: Trace) -> Profile | None:
    """The latency that a measured trace carries, by the package's timer; None unless it passed."""
    if not trace.passed or trace.evaluation is None or trace.evaluation.performance is None:
        return None
    latency = trace.evaluation.performance.latency_ms
    if not latency:
        return None
    return Profile(
        latency=latency,
        min_ms=latency,
        max_ms=latency,
        rel_diffs=0.0,
        metrics={"package_latency_ms": latency},
        target=trace.evaluation.environment.hardware,
        simulated=False,
    )


class Triton:
    """A `Language` whose evaluations run on `pool`, one GPU shared by all of them."""

    name = "flashinfer"

    def __init__(self, pool: Pool, options: LanguageOptions) -> None:
        self.pool = pool
        self.options = options
        self.target = options.target if options.target in TARGETS else DEFAULT_TARGET
        self._environment = _environment(os.environ)
        self._compilers: CompilerPool | None = None
        self._problems: dict[str, ProblemFiles] = {}

    def _problem(self, case: Case) -> ProblemFiles:
        key = f"{case.values.get('definition')}\n{case.values.get('workload')}"
        if key not in self._problems:
            self._problems[key] = ProblemFiles(case.values)
        return self._problems[key]

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """The verdict on `source`, from a worker; its solution and trace go to the run's folder."""
        problem, gpu = self._problem(case), self._environment.get("TRITON_INTERPRET") != "1"
        payload = {
            "root": str(problem.root(self.options.traceset_root).resolve()),
            "definition": problem.definition.model_dump(mode="json", exclude_unset=True),
            "workload": problem.workload.model_dump(mode="json", exclude_unset=True),
            "solution": problem.solution(source).model_dump(mode="json", exclude_unset=True),
            "start": problem.template.model_dump(mode="json", exclude_unset=True),
            "keep_in": str(self.options.folder.resolve()),
            "scrutiny": self.options.scrutiny.value,
            "device": "cuda:0" if gpu else "cpu",
        }
        return await self.pool.submit(
            Call(EVALUATION, payload, WORKER_SECONDS, WORKER_BYTES, self._environment, gpu=gpu)
        )

    def time_reference(self, case: Case, addition: str = "") -> float | None:
        """Milliseconds of the PyTorch reference, with `addition` below its text, on the GPU; None where
        there is none, or it does not run."""
        if self._environment.get("TRITON_INTERPRET") == "1":
            return None
        problem = self._problem(case)
        text = problem.definition.reference + addition
        task = Task(
            root=problem.root(self.options.traceset_root).resolve(),
            definition=problem.definition.model_copy(update={"reference": text}),
            workload=problem.workload,
            solution=problem.template,
            environment=tuple(self._environment.items()),
        )
        found = measure_reference(task).latency
        return None if found is None else found.median

    async def explain(self, node: Node) -> Explanation:
        """The roofline of the workload, and how far the measured latency is from it."""
        profile = node.profile
        if profile is None:
            return Explanation()
        problem = self._problem(node.case)
        facts = [f"One call takes {profile.latency:.4g} ms on {profile.target} (launch-free)."]
        target = target_of(profile.target)
        if target is None:
            return Explanation(tuple(facts))
        least = bound(problem.definition, problem.workload.workload, target)
        share = least.milliseconds / profile.latency
        facts.append(
            f"At least {least.bytes / 1e6:.1f} MB must move and {least.operations / 1e9:.1f} GFLOP "
            f"be done: {least.memory_ms:.4f} ms by memory, {least.compute_ms:.4f} ms by arithmetic "
            f"at the data sheet's peaks. The kernel reaches {share:.0%} of that bound, which "
            f"{least.limit} sets."
        )
        package = profile.metrics.get("package_latency_ms")
        if package is not None:
            facts.append(f"FlashInfer-Bench's own timer, launch included, says {package:.4g} ms.")
        return Explanation(tuple(facts), share)

    async def space(self, node: Node) -> Space | None:
        """Tiles and launch options of the one kernel that the solution launches, or that most."""
        return await asyncio.to_thread(tile_space, node.source, node.case.problem)

    async def configure(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The solution with these tiles and options, where it compiles within the target's limits."""
        source = await asyncio.to_thread(with_values, node.source, values)
        predicted = await self.predict(node, source)
        if predicted == FAILS:
            return Configured(None, "it does not compile within the target's limits")
        return Configured(source)

    async def diagnose(self, node: Node) -> Diagnosis | None:
        """By the roofline alone: bytes and operations of the problem over the measured time."""
        profile = node.profile
        target = target_of(profile.target) if profile else None
        if profile is None or target is None:
            return None
        problem = self._problem(node.case)
        return of_roofline(bound(problem.definition, problem.workload.workload, target), profile)

    async def predict(self, node: Node, source: str) -> float | None:
        """The node's own latency, more when the compiler spills, very much when it fails."""
        problem = self._problem(node.case)
        solution = problem.solution(source)
        latency = node.latency or 1.0
        if violations(solution):
            return FAILS
        if self._environment.get("TRITON_INTERPRET") == "1":
            return latency
        if self._compilers is None:
            count = max(1, (os.cpu_count() or 2) - 4)
            self._compilers = CompilerPool(count, self.target, self._environment)
        compiled = await asyncio.to_thread(
            self._compilers.check, problem.definition, problem.workload, solution
        )
        if compiled.failure and not compiled.unknown:
            return FAILS
        return latency * (SPILL_PENALTY if compiled.spilled_bytes > 64 else 1.0)

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

    def complete(self, source: str) -> str:
        """Triton sources are whole files already."""
        return source

    def reference(self, case: Case) -> str:
        """Shapes, dtypes and the PyTorch reference."""
        problem = self._problem(case)
        return describe_definition(problem.definition, problem.workload)

    def source(self, case: Case) -> str:
        """The text of the entry point's file."""
        path = Path(case.kernel)
        if path.suffix == ".json":
            return read_json(Solution, path).main_source
        return path.read_text()

    def gate(self, case: Case) -> str:
        """The referee's rules in words."""
        return (
            "The solution runs on fresh random inputs, on values of other scales, far from zero, "
            "one-sided, or with a few far larger than the others, and with other index tensors: "
            "sequences of equal lengths, one much longer than the rest, and empty ones. Every output "
            "is compared with the PyTorch reference in a process of its own: shape, dtype, no NaN, no "
            "element beyond both 1e-2 absolute and 1e-2 relative error, and a relative L2 error of "
            "the whole and of each row that only 16-bit rounding explains. Inputs must not change, "
            "outputs must be new tensors, and the work must be done by Triton kernels on the current "
            "stream. The source may name operators of torch, triton and a few modules of the "
            "standard library where they are called, and nothing else of a library: no modules or "
            "classes as values, no other streams, files, threads, or inspection of the interpreter, "
            "and no attribute is set on what is not its own. It is then timed with a cold L2 cache on "
            "inputs it has not seen, and timed calls are judged as well."
        )

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """What `accelopt.kernels.triton.moves` can do, the most promising ones."""
        return await asyncio.to_thread(proposals, node.source, MOST_PROPOSALS)

    def look_up(self, name: str) -> str:
        """Our notes on one Triton name."""
        return describe(name)

    def sheet(self, texts: Sequence[str]) -> str:
        """Our notes on the Triton names that stand in `texts`."""
        return sheet(texts)

    def machine(self) -> str:
        """Nothing: the system prompt describes the GPU."""
        return ""

    async def brief(self, node: Node) -> Mapping[str, str]:
        """Nothing beyond `explain`."""
        return {}

    async def what_if(self, node: Node, question: str) -> str:
        """Nothing: solutions are measured, not simulated."""
        return "What-ifs are not known for this language."

    async def faults(self, node: Node) -> str:
        """Nothing beyond the evaluation's message."""
        return ""

    async def scheduled(self, node: Node, reply: str) -> Action | str | None:
        """None: Triton solutions are not written by schedules."""
        return None


def describe_definition(definition: Definition, workload: Trace) -> str:
    """A definition as a proposer should see it: tensors with concrete shapes, then the reference."""
    lines = [f"# {definition.name} ({definition.op_type}), at the measured workload:"]
    for title, specs in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        lines.append(f"# {title}:")
        for name, spec in specs.items():
            shape = definition.shape(spec, workload.workload)
            axes = "scalar" if shape is None else f"[{', '.join(spec.shape or [])}] = {list(shape)}"
            lines.append(f"#   {name}: {axes} {spec.dtype}")
    for constraint in definition.constraints or []:
        lines.append(f"# holds: {constraint}")
    return "\n".join([*lines, "", definition.reference])


@cache
def referee_version() -> str:
    """A name for the code that judges and the libraries it judges with."""
    own = Path(__file__).parent
    folders = (own / "bench", own.parents[1] / "sandbox")
    texts = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.py"))]
    versions = [f"{name}={version}" for name, version in sorted(package.versions().items())]
    return content_key(*versions, *texts)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """What evaluations need of the caller's environment: the driver's and the compiler's settings."""
    prefixes = tuple(name for name in NVIDIA.variables if name.endswith("_"))
    return {
        name: value
        for name, value in variables.items()
        if name in NVIDIA.variables or name.startswith(prefixes)
    }
