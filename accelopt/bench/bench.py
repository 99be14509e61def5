"""The bench: a kernel in a folder, and what can be asked of it. It knows nothing of who works at it.

Every tool is a method that answers in words; `tools` makes functions with a JSON schema of them.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Annotated

from pydantic import Field

from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.planner import suggestion_list
from accelopt.agents.prompts import quote_words
from accelopt.bench.explanation import EXPLANATION
from accelopt.bench.folder import FIXED, KERNEL, LINEAGE, NOTES, REFERENCE, BenchFolder
from accelopt.caches import locked
from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.kernels.nki.language import NKI
from accelopt.nodes import Node, Plan
from accelopt.stages.checking_tools import KernelTools
from accelopt.stages.deadline import TimeIsOver
from accelopt.stages.failure_text import error_text
from accelopt.stages.workshop import Workshop
from accelopt.time_limits import BRIEFING_SECONDS

PARTS = ("advice", "limits", "lines", "engines", "prices", "memory", "compiler")
"""Of a profile, in the order of use."""
USUAL = ("advice", "limits", "lines", "engines")
MOST_FOUND = 20
LONGEST_NOTE = 1000  # characters
COUNTERS = ("hbm_read_bytes", "hbm_write_bytes", "hardware_flops")
NONE_LEFT = "No evaluation is left, or no time for one: submit counts what was accepted so far."

File = Annotated[str, Field(description="a file of the folder: kernel.py, lineage/2.py")]


class Bench:
    """One kernel at the bench. `start` is where it begins, judged; `budget` bounds what is judged. `known`
    is what other runs learned, in words. `record` is a file beyond the folder, where what was accepted
    is kept for other processes and later ones."""

    def __init__(
        self,
        folder: BenchFolder,
        start: Node,
        workshop: Workshop,
        budget: EvaluationBudget | None = None,
        known: Sequence[str] = (),
        record: Path | None = None,
    ) -> None:
        self.folder = folder
        self.start = start
        self.language = workshop.language
        self.verifications = workshop.verifications
        self.kernels = KernelTools(start, workshop.evaluations, workshop.offline, budget, keep=0)
        self.known = tuple(known)
        self.record = record
        self.accepted: list[Node] = []
        self.submitted: list[Node] = []
        self._submitting = asyncio.Lock()

    @property
    def best(self) -> Node:
        """The fastest version that was accepted, else the start."""
        return min([self.start, *self._recorded()], key=lambda node: node.latency or inf)

    @property
    def begins(self) -> str:
        """The time of the start, and what hidden inputs find wrong with it."""
        message = self.start.evaluation.message
        return f"{_time(self.start)}{f'; it is {message}' if message else ''}"

    def fill(self) -> None:
        """Writes the files of the folder that are not there yet, and those that only the bench writes."""
        case, source = self.start.case, self.start.source
        background = self.language.background(source)
        gate = self.language.gate(case)
        texts = {
            KERNEL: source,
            NOTES: f"# What was tried and learned\n\n- start: {self.begins}\n",
            f"{LINEAGE}/0.py": source,
            REFERENCE: self.language.reference(case),
            "machine.md": f"# The machine\n\n{background.get('machine', '')}\n\n# The judge\n\n{gate}\n",
            "calls.md": f"{background.get('language', '')}\n\n# Calls\n\n{self.language.sheet([source])}\n",
        }
        there = self.folder.names
        for name, text in texts.items():
            if name in FIXED or name not in there:
                self.folder.keep(name, text)

    # Tools; each first paragraph is what an agent is told of it.

    async def check(self, kernel: File = KERNEL) -> str:
        """Judges a kernel on some inputs: right with its time, or every violated rule, or where and how its
        results are wrong."""
        return await self.kernels.check(self._kernel(kernel))

    async def profile(
        self,
        kernel: File = KERNEL,
        parts: Annotated[str, Field(description=f"some of: {', '.join(PARTS)}; or all")] = "",
    ) -> str:
        """Time, bound and what limits a kernel; when each engine begins, ends and waits for what; costs by
        source line. Needs no right results."""
        named = re.findall(r"\w+", parts.lower())
        if unknown := [name for name in named if name not in (*PARTS, "all")]:
            return f"There is no part {', '.join(unknown)}; there are {', '.join(PARTS)}, and all."
        source = self._kernel(kernel)
        found = dict(await self.language.account(self.kernels.as_node(source)))
        if not found.get("limits"):
            node = await self.kernels.judged(source)
            if node is None:
                return NONE_LEFT
            if node.profile is None:
                return f"not timed. {await error_text(node, self.language)}"
            facts = (await self.language.explain(node)).facts
            found = dict(await self.language.account(node)) or {"limits": "\n".join(facts)}
        asked = [name for name in PARTS if name in named or "all" in named] or [*USUAL]
        left = [name for name in PARTS if found.get(name) and name not in asked]
        shown = [_titled(name, found[name]) for name in asked if found.get(name)]
        more = f"Not shown: {', '.join(left)} (parts=...)." if left else ""
        return "\n\n".join(filter(None, [*shown, more]))

    async def what_if(
        self,
        changes: Annotated[
            str,
            Field(description="`lines 12 14-16 x 0.5; vector x 0.8; loads x 0`: one or several"),
        ],
        kernel: File = KERNEL,
    ) -> str:
        """The time that a kernel would take if some lines, engines, loads or stores took a part of theirs:
        each change alone, and all at once."""
        return await self.language.what_if(self.kernels.as_node(self._kernel(kernel)), changes)

    async def schedules(
        self,
        kernel: File = KERNEL,
        primitives: Annotated[
            str, Field(description='a JSON list: [{"kind": "tile", "definition": ..., ...}]')
        ] = "",
        write: Annotated[str, Field(description="a file to write the changed kernel to")] = "",
    ) -> str:
        """The loop nest that computes what a kernel does, after some primitives, and single primitives that
        apply next with their predicted times. With `write`, the kernel by that nest as a file."""
        source = self._kernel(kernel)
        answer = await self.language.nests(self.kernels.as_node(source), primitives)
        if primitives.strip() and answer.source is None:
            return (
                f"{answer.text}\nWithout primitives, `schedules` lists those that apply, as JSON."
            )
        if not write:
            return f"{await self._now(kernel, source)}\n{answer.text}"
        if answer.source is None:
            return f"{answer.text}\nNothing was written: no primitives were given that all apply."
        self.folder.write(write, answer.source)
        return f"Written to {write}.\n{answer.text}"

    async def rules(
        self,
        kernel: File = KERNEL,
        apply: Annotated[str, Field(description="R1: which one to carry out")] = "",
        write: Annotated[str, Field(description="the file for the changed kernel")] = "",
    ) -> str:
        """What rewrites by rule and whole schedules can do to a kernel, with predicted times. With `apply`
        and `write`, carries one out. The first time for a kernel it searches, for some seconds; that is kept."""
        source = self._kernel(kernel)
        offered = await self.kernels.offered(source)
        if not apply:
            told = suggestion_list(offered) or await self._none_offered(source)
            return f"{await self._now(kernel, source)}\n{told}"
        chosen = next((one.action for one in offered if one.name == apply.strip().upper()), None)
        if chosen is None or chosen.source is None:
            return f"There is no {apply}; there are {', '.join(one.name for one in offered) or 'none'}."
        self.folder.write(write or KERNEL, chosen.source)
        return f"Written to {write or KERNEL}: {chosen.sentence}"

    async def explain(self, kernel: File = KERNEL) -> str:
        """What a kernel computes, in which loops and tiles, what stays on the chip and what is read again."""
        if not isinstance(self.language, NKI):
            return "What kernels of this language compute is not read from them: see reference.py."
        inspector, case = self.language.inspector, self.start.case
        source, task = self.kernels.complete(self._kernel(kernel)), str(Path(case.task).resolve())
        call = inspector.call(case, source, {}, EXPLANATION, BRIEFING_SECONDS, reference=task)
        return await inspector.answer(call)

    async def look_up(self, name: Annotated[str, Field(description="nisa.activation")]) -> str:
        """One call of the kernel language: signature, shapes, engine, limits."""
        return self.language.look_up(name, self.start.source)

    async def compare(self, one: File, other: File = KERNEL) -> str:
        """Two versions of the kernel: what changes in time, traffic, engines and results, and the lines."""
        sources = [self._kernel(one), self._kernel(other)]
        nodes = [await self.kernels.judged(source) for source in sources]
        first, second = nodes
        if first is None or second is None:
            return NONE_LEFT
        rows = [f"{name}: {_verdict(node)}" for name, node in zip((one, other), (first, second))]  # noqa: B905
        if first.profile and second.profile:
            rows += _changed(await self._counters(first), await self._counters(second))
        before, after = (source.splitlines() for source in sources)
        lines = difflib.unified_diff(before, after, one, other, lineterm="", n=1)
        return "\n".join([*rows, *lines])

    async def remember(
        self,
        note: Annotated[str, Field(description="what was tried, with figures, and what it taught")],
    ) -> str:
        """Writes a line into notes.md, for yourself and for whoever works on it after you."""
        if not note.strip():
            return "Nothing was written: the note is empty."
        self._note(note)
        cut = len(" ".join(note.split())) > LONGEST_NOTE
        return f"Written to notes.md{f', its first {LONGEST_NOTE:,} characters' if cut else ''}."

    async def recall(
        self, about: Annotated[str, Field(description="words; empty for the latest")] = ""
    ) -> str:
        """What was tried on this kernel (notes.md), and what other kernels taught, by words."""
        words = set(re.findall(r"\w{3,}", about.lower()))
        notes = [line for line in self.folder.read(NOTES).splitlines() if line.startswith("- ")]
        texts = [*reversed(notes), *self.known]
        found = [
            text for text in texts if not words or words & {*re.findall(r"\w{3,}", text.lower())}
        ]
        return "\n".join(found[:MOST_FOUND]) or "Nothing is known of that."

    async def submit(
        self,
        kernel: File = KERNEL,
        change: Annotated[str, Field(description="what was changed, in a sentence")] = "",
    ) -> str:
        """Asks everything of the referee. What is right and faster than all before is kept in lineage/ with
        its profile."""
        return await self.submit_text(self._kernel(kernel), change)

    async def read(self, file: File = KERNEL) -> str:
        """The text of a file of the folder, with line numbers."""
        text = self.folder.read(file)
        if not file.endswith(".py"):
            return text
        return "\n".join(f"{n:4d}  {line}" for n, line in enumerate(text.splitlines(), 1))

    async def write(self, text: str, file: File = KERNEL) -> str:
        """Replaces a file of the folder, or makes one."""
        self.folder.write(file, text)
        return f"{file} has {len(text.splitlines())} lines now."

    async def edit(
        self,
        old: Annotated[str, Field(description="a text that stands in the file once")],
        new: Annotated[str, Field(description="what stands there afterwards")],
        file: File = KERNEL,
    ) -> str:
        """Replaces one text in a file of the folder by another."""
        with self._alone():
            text = self.folder.read(file)
            times = text.count(old) if old else 0
            if times != 1:
                return (
                    f"Nothing was changed: the old text stands in {file} {times} times, not once."
                )
            self.folder.write(file, text.replace(old, new))
        return f"Changed at line {text[: text.index(old)].count(chr(10)) + 1} of {file}."

    # ---

    async def submit_text(self, source: str, change: str) -> str:
        """`submit` for a text that is in no file."""
        async with self._submitting:
            words = " ".join(change.split())[:400] or "no words"
            return await self._submit(self.kernels.complete(source), words)

    def _kernel(self, name: str) -> str:
        if not name.endswith(".py") or name == REFERENCE:
            raise ConfigError(f"{name[:80]!r} is no kernel's file")
        return self.folder.read(name)

    async def _counters(self, node: Node) -> dict[str, float]:
        """The counters of a verdict, and those that the simulated core knows beyond them."""
        found = dict(node.profile.metrics) if node.profile else {}
        if isinstance(self.language, NKI):
            inspected = await self.language.inspector.inspect(node.case, node.source)
            found = {**(inspected.profile.metrics if inspected.profile else {}), **found}
        return found

    async def _none_offered(self, source: str) -> str:
        """That no rule promises a faster kernel, and why no schedule does; of a kernel without a time, why."""
        none, judged = "No rule promises a faster kernel.", await self.kernels.judged(source)
        if judged is None or judged.profile is None:
            return f"{none} {await error_text(judged, self.language)}" if judged else none
        node = replace(self.kernels.as_node(source), evaluation=judged.evaluation)
        why = (await self.language.explain(node)).unscheduled
        return f"{none} No schedule: {why}." if why else none

    async def _now(self, kernel: str, source: str) -> str:
        """What a kernel takes as it is, in words."""
        predicted = await self.language.predict(self.kernels.as_node(source), source)
        known = predicted is not None and isfinite(predicted)
        return f"{kernel} as it is: {f'{predicted:.4g} ms predicted' if known else 'not timed'}."

    def _note(self, text: str) -> None:
        self.folder.append(NOTES, f"- {' '.join(text.split())[:LONGEST_NOTE]}\n")

    async def _submit(self, source: str, change: str) -> str:
        node = await self.kernels.judged(source)
        if node is None:
            return NONE_LEFT
        node = replace(node, change=Plan(sentence=change))
        if node.evaluation.status is Status.CORRECT:
            try:
                verdict = await self.verifications.evaluate(node.case, source)
            except TimeIsOver:
                return NONE_LEFT
            node = replace(node, evaluation=verdict)
        self.submitted += [node] if source not in {one.source for one in self.submitted} else []
        words = quote_words(change)
        if node.latency is None:
            said = await error_text(node, self.language)
            self._note(f"{words}: {' '.join(said.splitlines()[:2])}")
            return f"Refused. {said}"
        account: Mapping[str, str] = {}
        if node.latency < (self.best.latency or 0.0):
            account = await self.language.account(node)
        with self._alone():
            before = (
                self.best
            )  # while this one was judged another process may have handed in a faster one
            if node.latency >= (before.latency or 0.0):
                self._note(f"{words}: right, {_time(node)}, no gain over {_time(before)}")
                return f"Right, {_time(node)}, and not faster than the best so far ({_time(before)}): not kept."
            number = self._keep(node, change, before, account)
        self._note(f"{words}: accepted as lineage/{number}.py, {_time(before)} to {_time(node)}")
        factor = (self.start.latency or 0.0) / node.latency
        return (
            f"Accepted as lineage/{number}.py: {_time(node)}, {factor:.3f} times as fast as the start "
            f"and {(before.latency or 0.0) / node.latency:.3f} times as the best before."
        )

    def _alone(self) -> AbstractContextManager[object]:
        """Keeps other servers of this folder from changing it meanwhile."""
        return locked(self.record.with_suffix(".lock")) if self.record else nullcontext()

    def _keep(self, node: Node, change: str, before: Node, account: Mapping[str, str]) -> int:
        """The accepted kernel in the lineage, with its profile; for who is alone."""
        told = "\n\n".join(account[name] for name in USUAL if account.get(name))
        known = self._recorded()
        number = len(known) + 1
        self.folder.keep(f"{LINEAGE}/{number}.py", node.source)
        self.folder.keep(
            f"{LINEAGE}/{number}.md",
            f"# {change}\n\n{_time(node)}; before {_time(before)}\n\n```\n{told}\n```\n",
        )
        self.accepted = [*known, node]
        if self.record:
            with self.record.open("a") as lines:
                lines.write(json.dumps(node.record()) + "\n")
        return number

    def _recorded(self) -> list[Node]:
        """What was accepted, by whatever process."""
        if self.record is None or not self.record.is_file():
            return self.accepted
        lines = self.record.read_text().splitlines()
        return [self.start.child(json.loads(line)) for line in lines]


def _time(node: Node) -> str:
    return f"{node.latency or 0:.4g} ms"


def _verdict(node: Node) -> str:
    if node.profile is None:
        return f"{node.evaluation.status.value}: {node.evaluation.message.partition(chr(10))[0]}"
    return f"right, {_time(node)}{f'; {message}' if (message := node.evaluation.message) else ''}"


def _titled(name: str, text: str) -> str:
    title = {"lines": "Where the time is, by source line:", "prices": "What its instructions cost:",
             "memory": "Memory, and what is read again:", "compiler": "What the compiler does with it:"}  # fmt: skip
    return f"{title[name]}\n{text}" if name in title else text


def _changed(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Counters of traffic and work, and how busy engines are, where they differ."""
    rows = []
    for name in sorted(before.keys() & after.keys()):
        one, two = before[name], after[name]
        if one == two:
            continue
        if name.endswith("_active_time_percent"):
            rows.append(
                f"  {name.removesuffix('_active_time_percent')}: {one:.1%} to {two:.1%} of the time"
            )
        elif name in COUNTERS:
            rows.append(f"  {name}: {one:,.0f} to {two:,.0f}")
    return rows
