"""Kernels that a model writes for a search through a graph of methods, and the names of what it did."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from accelopt.agents.analysis import FUNCTIONS, MOST_TURNS
from accelopt.agents.calls import NO_ANSWER, Model, Question, Tool
from accelopt.agents.executor import UNANSWERED
from accelopt.agents.planner import tried_list
from accelopt.agents.prompts import bullet_list
from accelopt.agents.proposer import LONGEST_DETAIL, KernelView, Listed, WrittenKernel
from accelopt.agents.questions import NOTHING_MEASURED, ask_and_read, kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.kernel_source import apply_patch, fenced_blocks, is_patch
from accelopt.replies import json_in, rows_in


class Lister:
    """Asks one model for kernels that are faster than the one in view, with `tools` that are functions
    about it, and another which of the names in a catalog its steps go by."""

    def __init__(
        self,
        lister: Model,
        relabeler: Model,
        prompts: Prompts,
        tools: Callable[[KernelView], Awaitable[tuple[Tool, ...]]] | None = None,
    ) -> None:
        self.lister = lister
        self.relabeler = relabeler
        self.prompts = prompts
        self.tools = tools

    async def candidates(self, view: KernelView, most: int, methods: Sequence[str]) -> Listed:
        """At most `most` candidates. `methods` are names that there are already."""
        question = self.question(view, most, methods)
        tools = () if self.tools is None else await self.tools(view)
        limit = MOST_TURNS if tools else 0
        try:
            found = await ask_and_read(
                self.lister,
                question,
                lambda text: read_candidates(text, view.kernel),
                tools,
                limit,
            )
        except NO_ANSWER as error:
            return Listed(reason=f"{UNANSWERED}: {error}", failed=True)
        return Listed(reason=found) if isinstance(found, str) else Listed(tuple(found[:most]))

    def question(self, view: KernelView, most: int, methods: Sequence[str]) -> Question:
        """The prompt: measurements, then structure, then what to edit; the kernel in view alone."""
        found = view.diagnosis.bottlenecks if view.diagnosis else ()
        slots = {
            **kernel_slots(view),
            "most": str(most),
            "facts": bullet_list(view.facts, NOTHING_MEASURED),
            "diagnosis": bullet_list([f"{b.resource}: {b.reason}" for b in found], "(none)"),
            "tried": tried_list(view.tried),
            "methods": ", ".join(methods) or "(none)",
            "tools": self._told(),
        }
        return question_about(view, "lister", self.prompts["lister"], slots)

    def _told(self) -> str:
        if self.tools is None:
            return ""
        listed = bullet_list([f"{n}: {f.description}" for n, f in FUNCTIONS.items()], "")
        return f"You may ask up to {MOST_TURNS} times before you answer:\n{listed}"

    async def relabel(
        self, view: KernelView, methods: Sequence[str], candidates: Sequence[WrittenKernel]
    ) -> str:
        """A JSON list of {index, existed, method}, whatever it says; empty where no model answers."""
        rows = [
            {"index": number, "method": one.method, "detail": one.detail[:LONGEST_DETAIL]}
            for number, one in enumerate(candidates)
        ]
        slots = {"catalog": json.dumps(list(methods)), "steps": json.dumps(rows, indent=1)}
        question = question_about(view, "relabeler", self.prompts["relabeler"], slots)
        try:
            return (await self.relabeler.ask(question)).text
        except NO_ANSWER:
            return ""


def read_candidates(reply: str, kernel: str = "") -> list[WrittenKernel] | str:
    """The candidates in a reply, `{"candidates": [{think, method, detail, code}]}` or the list alone; or
    what is wrong with it. One without code or method is none, nor is a diff that does not fit `kernel`."""
    found = json_in(reply)
    if found is None or (isinstance(found, dict) and not rows_in(found, "candidates")):
        return "it holds no JSON with a list of candidates"
    read = [_candidate(row, kernel) for row in rows_in(found, "candidates")]
    usable = [one for one in read if one is not None]
    return usable or "no candidate has a method, and code or a diff that fits the kernel"


def _candidate(row: dict[str, Any], kernel: str) -> WrittenKernel | None:
    method, code = str(row.get("method") or "").strip(), str(row.get("code") or "")
    inside = fenced_blocks(code)
    code = inside[-1].text if inside else code
    if is_patch(code):
        code = apply_patch(kernel, code) or ""
    if not method or not code.strip():
        return None
    return WrittenKernel(method, str(row.get("detail") or ""), code)
