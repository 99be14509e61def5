"""What the simulated core says of a kernel before it is judged: time, bottlenecks, the brief of a planner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelopt.caches import VerdictCache, package_key
from accelopt.concurrency import in_thread
from accelopt.evaluation import Case, Evaluation, Status
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.arguments import MadeArguments, ParameterFacts, by_parameter
from accelopt.kernels.nki.devices.kernel_folder import KernelFolder, files_of, kernel_folder
from accelopt.kernels.nki.devices.simulated import WARM
from accelopt.kernels.nki.devices.tracing import arguments_to_json
from accelopt.kernels.nki.inspection import (
    BOUND,
    BRIEFING,
    INSPECTION,
    INSPECTION_BYTES,
    WHAT_IF,
    Briefing,
)
from accelopt.kernels.nki.problem_bound import FoundBound, ProblemBound
from accelopt.kernels.nki.requests import made_arguments
from accelopt.kernels.nki.text_without_paths import without_places
from accelopt.nodes import Node
from accelopt.sandbox.workers import Call, Pool, as_evaluation
from accelopt.store import content_key, read_text, write_atomically
from accelopt.time_limits import BRIEFING_SECONDS, INSPECTION_SECONDS

# Verdicts that no load of the machine changes; a time limit or a killed process is none.
REPEATABLE = frozenset(
    {
        Status.CORRECT,
        Status.REFUSED,
        Status.COMPILE_ERROR,
        Status.WRONG_SHAPE,
        Status.WRONG_DTYPE,
        Status.WRONG_NUMBERS,
    }
)


class Inspector:
    """Asks workers of `pool`; what they said is kept on the shelf, for every run of this user."""

    def __init__(self, pool: Pool, options: LanguageOptions, shelf: VerdictCache) -> None:
        self.pool = pool
        self.options = options
        self.shelf = shelf
        self._made: dict[str, tuple[ParameterFacts, ...]] = {}
        self._making = threading.Lock()
        self._running: dict[str, asyncio.Task[Evaluation]] = {}
        self._folders: dict[str, KernelFolder] = {}
        self._bounds: dict[str, asyncio.Future[ProblemBound | None]] = {}

    async def inspect(self, case: Case, source: str, *, ranked: bool = False) -> Evaluation:
        """What the simulated core says of a kernel; MISSING where its arguments are not known."""
        known = await in_thread(self.arguments, case, source)
        return await self.inspect_given(case, known, source, ranked=ranked)

    async def inspect_given(
        self, case: Case, known: Mapping[str, ParameterFacts], source: str, *, ranked: bool = False
    ) -> Evaluation:
        """The same, of a kernel with these arguments; bottlenecks are `ranked` by gain, which takes
        longer, for whoever reads them. What several ask for at a time is worked out once."""
        if not known:
            return Evaluation(status=Status.MISSING, message="argument shapes are not known")
        key = self._key(case, source, known, str(ranked))
        kept = self.shelf.find_row("inspection", key, Evaluation)
        if kept is not None:
            return kept
        if key not in self._running:
            call = self.call(case, source, known, ranked=ranked)
            self._running[key] = asyncio.create_task(self._inspected(key, call))
        return await asyncio.shield(self._running[key])

    async def _inspected(self, key: str, call: Call) -> Evaluation:
        try:
            found = as_evaluation(await self.pool.ask(call, Evaluation))
            inspected = without_places(found, Path(str(call.payload["kernel"])))
            if inspected.status in REPEATABLE:
                self.shelf.put("inspection", key, inspected.model_dump(mode="json"))
            return inspected
        finally:
            del self._running[key]

    def call(
        self,
        case: Case,
        source: str,
        known: Mapping[str, ParameterFacts],
        function: str = INSPECTION,
        seconds: float = INSPECTION_SECONDS,
        **more: Any,
    ) -> Call:
        """What a worker does for a job on a kernel with these arguments, of which shape and dtype are
        given; `more` stands in the payload, too."""
        path, options = self.write(case, source).resolve(), self.options
        payload = {
            "kernel": str(path),
            "arguments": arguments_to_json([one.argument for one in known.values()]),
            "target": options.target,
            "constants": options.constants,
            "compiler": options.compiler,
            **more,
        }
        return Call(function, payload, seconds, INSPECTION_BYTES, warm=WARM, files=files_of(path))

    async def bound(self, case: Case) -> ProblemBound | None:
        """What the problem of a case takes at least, by the kernel that it begins with; None where that
        cannot be traced. What several ask for at a time is worked out once."""
        name = f"{case.kernel}\n{case.task}"
        if name not in self._bounds:
            self._bounds[name] = asyncio.create_task(self._bound(case))
        try:
            return await asyncio.shield(self._bounds[name])
        except BaseException:
            self._bounds.pop(name, None)  # who asks again has another try
            raise

    async def _bound(self, case: Case) -> ProblemBound | None:
        if not Path(case.kernel).is_file():
            return None
        source = read_text(case.kernel)
        known = await in_thread(self.arguments, case, source)
        if not known:
            return None
        key = self._key(case, source, known, read_text(case.task))
        if (kept := self.shelf.find_row("bound", key, FoundBound)) is not None:
            return kept.bound
        call = self.call(case, source, known, BOUND, reference=str(Path(case.task).resolve()))
        found = await self.pool.ask(call, FoundBound)
        if not isinstance(found, FoundBound):
            return None
        self.shelf.put("bound", key, found.model_dump(mode="json"))
        return found.bound

    def arguments(self, case: Case, source: str) -> dict[str, ParameterFacts]:
        """What a kernel is given for each parameter, without data: as the inputs are that the reference
        makes, once for all runs of this user. Empty when it makes none."""
        reference, task = read_text(case.task), Path(case.task)
        with self._making:
            if reference not in self._made:
                key = content_key(reference, package_key(), kernel_folder(task).key)
                made = self.shelf.find_row("arguments", key, MadeArguments) or made_arguments(task)
                if made.arguments:
                    self.shelf.put("arguments", key, made.model_dump(mode="json"))
                self._made[reference] = made.arguments
        return by_parameter(source, self._made[reference])

    def write(self, case: Case, source: str, name: str = "") -> Path:
        """The source as a file of the run's folder, called by its content unless it has a name. What
        the case's kernel imports of its folder lies there as it lay beside that."""
        folder, place = self.folder(case), self.options.folder
        if folder.key:
            place /= folder.key
            for file, text in folder.files.items():
                if not (place / file).exists():
                    write_atomically(place / file, text)
        path = place / folder.place / f"{name or content_key(source)}.py"
        write_atomically(path, source)
        return path

    def folder(self, case: Case) -> KernelFolder:
        """What the case's kernel imports of its folder, as it is when this run first asks."""
        if case.kernel not in self._folders:
            self._folders[case.kernel] = kernel_folder(Path(case.kernel))
        return self._folders[case.kernel]

    def key(self, case: Case, *parts: str) -> str:
        """A name for these texts with all that answers depend on besides: this package, and what the
        case's kernel imports of its folder."""
        return content_key(*parts, package_key(), self.folder(case).key)

    def _key(
        self, case: Case, source: str, known: Mapping[str, ParameterFacts], *parts: str
    ) -> str:
        arguments, options = [one.argument for one in known.values()], self.options
        core = options.target, options.constants, options.compiler
        return self.key(case, source, repr(arguments), repr(core), *parts)

    async def brief(self, node: Node) -> Mapping[str, str]:
        """The parts of `briefing`; none where the arguments are not known."""
        known = await in_thread(self.arguments, node.case, node.source)
        key = self._key(node.case, node.source, known)
        parts = self.shelf.find("brief", key)
        if not isinstance(parts, dict):
            bound = await self.bound(node.case)
            told = bound.model_dump(mode="json") if bound else None
            call = self.call(node.case, node.source, known, BRIEFING, BRIEFING_SECONDS, bound=told)
            found = await self.pool.ask(call, Briefing) if known else Briefing()
            parts = found.parts if isinstance(found, Briefing) else {}
            if parts:
                self.shelf.put("brief", key, parts)
        return parts

    async def what_if(self, node: Node, question: str) -> str:
        """`lines 12 14 x 0.5`: the kernel's time if these lines took half of theirs."""
        known = await in_thread(self.arguments, node.case, node.source)
        return await self.answer(
            self.call(node.case, node.source, known, WHAT_IF, BRIEFING_SECONDS, question=question)
        )

    async def answer(self, call: Call) -> str:
        """What a job answers in words, or why there is no answer."""
        found = await self.pool.ask(call, Briefing)
        return found.parts["answer"] if isinstance(found, Briefing) else found.message
