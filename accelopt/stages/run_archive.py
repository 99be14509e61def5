"""What a run keeps for other runs, and begins from: its journal says it, a database takes it.

The journal is written first and alone decides what happens next. A database that does not answer costs
nothing but that what was found comes there later: with the next round, the next start of the run, or by
`accelopt db import`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from accelopt import __version__
from accelopt.caches import package_key
from accelopt.concurrency import in_thread
from accelopt.database.journal_kernels import EXPERIENCE, START, Start
from accelopt.evaluation import Case
from accelopt.experience import Finding, Transition
from accelopt.nodes import EarlierKernel, Node
from accelopt.script_file_columns import Experience
from accelopt.search.method_catalog import Learned, ReGraph
from accelopt.stages.evaluations import Evaluations
from accelopt.store import Journal, content_key

if TYPE_CHECKING:
    from accelopt.kernels.language import Language

if TYPE_CHECKING:
    from accelopt.database.connection import Database

KIND, REGRAPH = "warm_start", "regraph"
MOST_EXPERIENCES, MOST_FINDINGS, MOST_TRANSITIONS = 8, 64, 100_000


class WarmStart(NamedTuple):
    """The kernel that a search begins with, and experiences from elsewhere."""

    node: Node
    experiences: tuple[Experience, ...] = ()
    findings: tuple[Finding, ...] = ()


class Archive:
    """The entries of a run's journal that tell other runs of it, and the database that takes them.

    Without `url` the journal alone. Raises ConfigError where there is no such database, MissingExtra
    where its packages are not installed.
    """

    def __init__(self, journal: Journal, url: str | None = None, *, warm: bool = False) -> None:
        self.journal = journal
        self.warm = warm
        self.behind = ""
        self._database = _open(url) if url is not None else None
        self._turn = asyncio.Lock()

    def begin(self, node: Node, language: Language) -> None:
        """A search begins with the kernel `node`."""
        start = Start(
            case=node.case,
            language=language.name,
            target=node.profile.target if node.profile else "",
            toolchain=f"accelopt {__version__}, {package_key()[:12]}",
            reference=language.reference(node.case),
            source=node.source,
            evaluation=node.evaluation,
        )
        self._append(START, node.case.case_name, start.model_dump(mode="json"))

    def experienced(self, experience: Experience) -> None:
        """Something was learned."""
        key = content_key(experience.service_name, experience.id, experience.raw_response)
        value = {"case": experience.case_name, "experience": experience.to_record()}
        self._append(EXPERIENCE, key, value)

    def _append(self, kind: str, key: str, value: dict[str, Any]) -> None:
        if self.journal.find(kind, key) is None:
            self.journal.append(kind, key, value)

    async def keep(self) -> None:
        """Bring the database up to date with the journal; says once, and goes on, when it cannot."""
        if self._database is None:
            return
        from accelopt.database.connection import Lost
        from accelopt.database.run_rows import keep_run

        async with self._turn:
            try:
                await in_thread(keep_run, self.journal.path, self._database)
                self.behind = ""
            except Lost as error:
                if not self.behind:
                    _say(
                        f"The database {self._database.name} does not answer ({error}); the run goes on. "
                        f"`accelopt db import {self.journal.path.parent}` adds what it lacks."
                    )
                self.behind = str(error)

    async def warm_start(self, start: Node, evaluations: Evaluations) -> WarmStart:
        """What the search begins with: the fastest kernel that is known, judged again here, where that
        is faster than the start. The same again for a run that is continued."""
        found = await self._found(start) if self.warm else {}
        experiences = tuple(map(Experience.model_validate, found.get("experiences", ())))
        findings = tuple(map(Finding.model_validate, found.get("findings", ())))
        kernel = found.get("kernel")
        if kernel is None:
            return WarmStart(start, experiences, findings)
        verdict = await evaluations.evaluate(start.case, kernel["source"])
        change = EarlierKernel(key=kernel["key"], sentence=kernel["sentence"])
        node = Node(start.case, kernel["source"], verdict, start, change, "warm_start")
        faster = node.latency is not None and node.latency < (start.latency or 0.0)
        return WarmStart(node if faster else start, experiences, findings)

    async def learned(self, start: Node, given: Learned) -> ReGraph:
        """What methods brought elsewhere in the kernel language of `start`: in what was `given`, and in
        the database. The same again for a run that is continued."""
        key = start.case.case_name
        kept = self.journal.find(REGRAPH, key)
        if kept is None:
            begun = self.journal.find(START, key)
            assert begun is not None
            problem = Start.model_validate(begun)
            if self._database is not None:
                rows = await in_thread(_transitions, self._database, problem.language)
                given = given._replace(dataset=given.dataset.append(*rows))
            kept = given.graph_for(problem.language, problem.target).model_dump(mode="json")
            self.journal.append(REGRAPH, key, kept)
        return ReGraph.model_validate(kept)

    def known_graph(self, case: Case) -> ReGraph:
        """What `learned` found when the search began; nothing where it was not asked."""
        kept = self.journal.find(REGRAPH, case.case_name)
        return ReGraph.model_validate(kept) if kept is not None else ReGraph()

    async def _found(self, start: Node) -> dict[str, Any]:
        """What the database knew when the run began, from the journal when it began before."""
        key = start.case.case_name
        kept = self.journal.find(KIND, key)
        if kept is None:
            begun = self.journal.find(START, key)
            assert begun is not None and self._database is not None
            problem = Start.model_validate(begun)
            kept = await in_thread(_known, self._database, problem)
            self.journal.append(KIND, key, kept)
        return kept

    def close(self) -> None:
        """Leave the database."""
        if self._database is not None:
            self._database.close()


def _open(url: str) -> Database:
    from accelopt.database.connection import Database

    return Database(url)


def _known(database: Database, start: Start) -> dict[str, object]:
    """The fastest kernel of exactly this problem, and experiences of this and of similar ones."""
    from accelopt.database.connection import Lost
    from accelopt.database.queries import best_for, experiences_for, findings_for

    try:
        kernels = best_for(database, start.problem, start.target)
        near = start.problem, start.case.problem
        learned = experiences_for(database, *near, MOST_EXPERIENCES)
        tried = findings_for(database, *near, MOST_FINDINGS)
    except Lost as error:
        _say(f"The database {database.name} does not answer ({error}); the run begins without it.")
        return {}
    found: dict[str, object] = {
        "experiences": [one.to_record() for one in learned],
        "findings": [one.model_dump(mode="json") for one in tried],
    }
    if kernels:
        known = kernels[0]
        kind = "simulated" if known.simulated else "measured"
        sentence = (
            f"Begin from kernel {known.key[:12]} of the database ({known.latency_ms:.4g} ms {kind})"
        )
        found["kernel"] = {"key": known.key, "source": known.source, "sentence": sentence}
    return found


def _transitions(database: Database, language: str) -> list[Transition]:
    from accelopt.database.connection import Lost
    from accelopt.database.queries import transitions

    try:
        return transitions(database, language, MOST_TRANSITIONS)
    except Lost as error:
        _say(f"The database {database.name} does not answer ({error}); no transitions are learned.")
        return []


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
