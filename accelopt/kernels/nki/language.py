"""NKI kernels on a NeuronCore, simulated or real."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelopt.caches import VerdictCache
from accelopt.concurrency import in_thread
from accelopt.errors import ConfigError
from accelopt.evaluation import (
    Case,
    Confirmation,
    Diagnosis,
    Evaluation,
    EvaluationRequest,
    Scrutiny,
    Status,
)
from accelopt.hardware import TARGETS, calibrated
from accelopt.kernel_source import (
    NKI_IMPORTS,
    STANDALONE_IMPORTS,
    complete_imports,
    with_definitions,
)
from accelopt.kernels.language import Configured, Explanation, Language, LanguageOptions, NestAnswer
from accelopt.kernels.nki import api_notes as names
from accelopt.kernels.nki import benchmark
from accelopt.kernels.nki.actions.priced_nests import Tuning
from accelopt.kernels.nki.actions.schedules import Scheduling
from accelopt.kernels.nki.briefing import describe_machine
from accelopt.kernels.nki.counters import explain_counters
from accelopt.kernels.nki.devices import KernelFailure, trainium
from accelopt.kernels.nki.diagnosis import measured
from accelopt.kernels.nki.faults import Faults, faults_call
from accelopt.kernels.nki.inspector import REPEATABLE, Inspector
from accelopt.kernels.nki.problem_bound import ProblemBound
from accelopt.kernels.nki.referee.precision import Precision, contract_for, declared
from accelopt.kernels.nki.referee.text_rules import check_text
from accelopt.kernels.nki.requests import confirm, submit, submit_in_halves
from accelopt.kernels.nki.text_without_paths import placeless, without_places
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Node
from accelopt.sandbox.workers import Pool
from accelopt.sim.dialects.dialect import dialect_of_source, imported_dialect, wrong_dialect
from accelopt.store import content_key, read_text


class NKI(Language):
    """A `Language` whose evaluations run on `pool`. ConfigError for an unknown target."""

    name = "nki"

    def __init__(self, pool: Pool, options: LanguageOptions) -> None:
        if options.target not in TARGETS:
            raise ConfigError(f"no target {options.target!r}; there are {', '.join(TARGETS)}")
        self.pool = pool
        self.options = options
        constants = repr(sorted(options.constants.items())) if options.constants else ""
        self.machine = constants + options.compiler
        self.shelf = VerdictCache(pool.cache, context=self.machine)
        self.inspector = Inspector(pool, options, self.shelf)
        self._scheduling = Scheduling(self.inspector)
        self._starting: dict[str, Evaluation] = {}
        self._tuning = Tuning(options.target, self._scheduling.lifted)

    async def evaluate(self, case: Case, source: str) -> Evaluation:
        """The verdict on `source`, from a worker. On the simulated core it is the same each time:
        one that was reached before, by whatever run of this user, is not worked out again."""
        if foreign := _foreign(case, source):
            return Evaluation(status=Status.COMPILE_ERROR, message=foreign)
        if self._starts(case, source):
            return await self._start(case, source)
        return await self._judged(case, source, self.options.scrutiny)

    async def _judged(self, case: Case, source: str, scrutiny: Scrutiny) -> Evaluation:
        """The verdict with that scrutiny, beside how exact the case's own kernel is."""
        start = self._starts(case, source)
        key = self.evaluation_key(case, source)
        key = content_key(key, scrutiny.value) if scrutiny is not self.options.scrutiny else key
        path = self.inspector.write(case, source, key)
        if not trainium.available():
            kept = self.shelf.find_row("verdict", key, Evaluation)
            if kept is not None:
                return kept
        request = await self._request(case, path)
        request = request.model_copy(update={"scrutiny": scrutiny})
        if scrutiny is Scrutiny.FULL and not start:
            baseline = await self._start(case, self.complete(self.source(case)))
            request = request.model_copy(update={"baseline": baseline.exactness})
        full = scrutiny is Scrutiny.FULL and self.pool.count > 1
        shared = full and not trainium.available()  # there a half would compile the whole again
        judge = submit_in_halves if shared else submit
        evaluation = without_places(await judge(self.pool, request), path)
        if evaluation.status in REPEATABLE and not trainium.available():
            self.shelf.put("verdict", key, evaluation.model_dump(mode="json"))
        return evaluation

    def _starts(self, case: Case, source: str) -> bool:
        """True for the kernel that the case starts with."""
        return Path(case.kernel).is_file() and source == self.complete(self.source(case))

    async def _start(self, case: Case, source: str) -> Evaluation:
        """The verdict on the kernel that a search starts with, of full scrutiny before anything is paid
        for. One that only hidden inputs find fault with may be started from, and its message says so: what
        is found is judged by the reference."""
        key = self.evaluation_key(case, source)
        if key not in self._starting:
            published = self.options.scrutiny is Scrutiny.PUBLISHED
            scrutiny = self.options.scrutiny if published else Scrutiny.FULL
            found = await self._judged(case, source, scrutiny)
            if found.status is Status.WRONG_NUMBERS and "hidden" in found.message:
                public = await self._judged(case, source, Scrutiny.PUBLISHED)
                if public.status is Status.CORRECT:
                    said = f"wrong on inputs that nobody drew; what is found must not be: {found.message}"
                    found = public.model_copy(update={"message": said})
            self._starting[key] = found
        return self._starting[key]

    async def explain(self, node: Node) -> Explanation:
        """What the counters and the problem's bound say of a kernel."""
        profile = node.profile
        if profile is None:
            return Explanation()
        bound = await self._bound(node)
        share = bound.least.fraction(profile.latency) if bound else None
        facts = list(explain_counters(profile, TARGETS[self.options.target].hbm_limit))
        if bound:
            facts.append(bound.sentence(profile.latency))
        refusal = await in_thread(self._scheduling.refusal, node)
        return Explanation(tuple(facts), share, refusal)

    async def diagnose(self, node: Node) -> Diagnosis | None:
        """What limits a kernel: resources as profiled, lines as the simulated core knows them."""
        if node.profile is None:
            return None
        inspected = (await self.inspector.inspect(node.case, node.source, ranked=True)).diagnosis
        found = measured(node.profile, inspected)
        bound = await self._bound(node)
        if found is None or bound is None:
            return found
        share = bound.least.fraction(node.profile.latency)
        return found.model_copy(update={"fraction_of_peak": share})

    async def predict(self, node: Node, source: str) -> float | None:
        """Milliseconds that the simulated core predicts; infinitely many for a kernel that it
        refuses, None where it cannot tell."""
        if not self.options.lookahead:
            return None
        inspected = await self.inspector.inspect(node.case, source)
        if inspected.status is Status.COMPILE_ERROR:
            return math.inf
        return inspected.profile.latency if inspected.profile else None

    async def confirm(self, case: Case, winner: str, parent: str) -> Confirmation:
        """Both measured again, in turns, in a worker of their own."""
        sources = [self.inspector.write(case, source) for source in (winner, parent)]
        requests = [await self._request(case, path) for path in sources]
        return await confirm(self.pool, *requests)

    def evaluation_key(self, case: Case, source: str) -> str:
        """A name for the exact source, its reference and the settings together.

        A source that only looks the same to us may be another program: a kernel can read its own
        docstring, file and variable names.
        """
        return self.inspector.key(
            case,
            source,
            self.reference(case),
            self.options.target,
            self.machine,
            self.options.scrutiny.value,
            repr(self._rel_tol(case)),
            repr(self.options.precision),
            *self.options.save_fields,
            read_text(case.kernel) if Path(case.kernel).is_file() else "",
        )

    def complete(self, source: str, parent: str = "") -> str:
        """`source` with what it lacks of its parent and the NKI imports that it uses, of the dialect that it
        imports, or its parent does."""
        known = dialect_of_source(parent)
        dialect = imported_dialect(source) or known
        source = with_definitions(source, parent) if dialect == known else source
        return complete_imports(source, STANDALONE_IMPORTS if dialect == "nki" else NKI_IMPORTS)

    def gate(self, case: Case) -> str:
        """The referee's rules in words."""
        precision = self._precision(case)
        formats = "Data paths in fewer bits than the inputs and the word float16 in the source"
        if precision.formats:
            formats = f"Data paths in fewer bits than the inputs or {precision}"
        return (
            "The kernel is compiled, run on several input sets of the given shapes, some of them "
            "random, some extreme (large values, constant and zero rows), and compared with the "
            "reference. The relative L2 error of the whole output must stay below "
            f"{precision.rel_tol(self._rel_tol(case)):g}, no row or tile may be wrong by more "
            f"than honest {precision if precision.formats else 'fp32'} rounding, and shape and dtype "
            f"must match. {formats} are refused. A correct kernel is then timed."
            f"{self._warning(case)}"
        )

    def _warning(self, case: Case) -> str:
        """What is wrong with the kernel that a search starts with, where it may be started from still."""
        start = self._starting.get(self.evaluation_key(case, self.complete(self.source(case))))
        return f" The kernel to begin with is {start.message}" if start and start.message else ""

    def _precision(self, case: Case) -> Precision:
        """What the inputs' formats, the options and the reference allow."""
        known = self.inspector.arguments(case, self.source(case)).values()
        formats = [one.dtype for one in known if one.shape]
        return contract_for(formats, self.options.precision, declared(self.reference(case)))

    def text_refused(self, case: Case, source: str) -> str:
        """By the referee's rules on text."""
        published = self.options.scrutiny is Scrutiny.PUBLISHED
        try:
            check_text(self.inspector.write(case, source), None, published=published)
        except KernelFailure as failure:
            return failure.message if failure.status is Status.REFUSED else ""
        return ""

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """Kernels by schedule where the kernel lifts: the fastest that a search finds, or for one that
        a schedule wrote what single primitives make of that."""
        near = await in_thread(self._tuning.neighbours, node)
        if near is not None:
            return near
        if not self.options.lookahead:
            return await in_thread(self._tuning.schedules, node)
        loop = asyncio.get_running_loop()
        return await in_thread(self._scheduling.actions, node, loop)

    async def useless_methods(self, node: Node) -> frozenset[str]:
        """Those that are for products, masks or two cores, of a kernel that lifts and has none."""
        return await in_thread(self._tuning.useless, node)

    async def space(self, node: Node) -> Space | None:
        """The primitives of a nest that have values, where the kernel lifts."""
        return await in_thread(self._tuning.space, node)

    async def configure(self, node: Node, values: Mapping[str, Parameter]) -> Configured:
        """The kernel with its knobs set, where the simulated core accepts it."""
        made = await in_thread(self._tuning.configured, node, values)
        if made.source is None:
            return made
        inspected = await self.inspector.inspect(node.case, made.source, ranked=True)
        if inspected.status is Status.COMPILE_ERROR:
            return Configured(None, inspected.message)
        return made

    async def nests(self, node: Node, primitives: str = "") -> NestAnswer:
        """A kernel's nest after some primitives, and what single primitives would do to it next."""
        return await self._scheduling.nests(node, primitives)

    async def scheduled(self, node: Node, reply: str) -> Action | str | None:
        """The kernel by the schedule that a model's `reply` holds; one sentence where it holds one
        that the kernel does not have; None for a reply that is no schedule at all."""
        found = await self._scheduling.answered(node, reply)
        if not isinstance(found, Action) or found.source is None:
            return found
        predicted = await self.predict(node, found.source)
        return found.model_copy(update={"predicted": predicted})

    def look_up(self, name: str, kernel: str) -> str:
        """Our notes on one name of the dialect of `kernel`."""
        return names.describe(name, dialect_of_source(kernel))

    def sheet(self, texts: Sequence[str]) -> str:
        """Our notes on the NKI names that stand in `texts`, in the first one's dialect."""
        return names.sheet(texts, dialect_of_source(texts[0]))

    def background(self, kernel: str) -> Mapping[str, str]:
        """The target's engines, memories and prices, and the dialect of `kernel`."""
        target, dialect = self.options.target, dialect_of_source(kernel)
        known = names.language(dialect, target)
        which = known.partition("\n")[0]
        return {
            "machine": describe_machine(
                calibrated(target, self.options.constants), dialect, self.options.compiler
            ),
            "language": known,
            "dialect": which,
        }

    async def brief(self, node: Node) -> Mapping[str, str]:
        """The parts of `briefing`, and what there is to know of the kernel's schedules."""
        await self.actions(node)  # what it finds is told
        return {**await self.account(node), **await self._scheduling.brief(node)}

    async def account(self, node: Node) -> Mapping[str, str]:
        """The parts of `briefing`; of a kernel that is not right too."""
        return await self.inspector.brief(node)

    async def what_if(self, node: Node, question: str) -> str:
        """`lines 12 14 x 0.5; vector x 0.8`: the kernel's time if these took less of theirs."""
        return await self.inspector.what_if(node, question)

    async def faults(self, node: Node) -> str:
        """Every rule that the kernel breaks, or where and how its outputs differ on ordinary inputs."""
        if _foreign(node.case, node.source):
            return ""  # what its own dialect says of it is beside the point
        path = self.inspector.write(node.case, node.source)
        task = str(Path(node.case.task).resolve())
        call = faults_call(str(path.resolve()), task, self.options.target, node.evaluation)
        if call is None or trainium.available():
            return ""
        key = content_key("faults", self.evaluation_key(node.case, node.source))
        kept = self.shelf.find("faults", key)
        if not isinstance(kept, str):
            found = await self.pool.ask(call, Faults)
            kept = placeless(found.text, path) if isinstance(found, Faults) else ""
            self.shelf.put("faults", key, kept)
        return kept

    async def _bound(self, node: Node) -> ProblemBound | None:
        """What the problem of a kernel takes at least, where it was timed on this target."""
        bound = await self.inspector.bound(node.case)
        same = bound and node.profile and bound.target == node.profile.target
        return bound if same else None

    def _rel_tol(self, case: Case) -> float:
        if self.options.rel_tol is not None:
            return self.options.rel_tol
        return benchmark.relative_tolerance(case.problem)

    async def _request(self, case: Case, path: Path) -> EvaluationRequest:
        bound = await self.inspector.bound(case)
        return EvaluationRequest(
            kernel=str(path.resolve()),
            task=str(Path(case.task).resolve()),
            save_fields=self.options.save_fields,
            target=self.options.target,
            constants=dict(self.options.constants or {}),
            compiler=self.options.compiler,
            rel_tol=self._rel_tol(case),
            precision=self.options.precision,
            least_ms=bound.latency_ms if bound else 0.0,
            scrutiny=self.options.scrutiny,
        )


def _foreign(case: Case, source: str) -> str:
    """What is wrong with a source in another dialect than the case's kernel; empty where nothing is."""
    kernel = Path(case.kernel)
    return wrong_dialect(source, read_text(kernel)) if kernel.is_file() else ""
