"""Kernels that a model writes for a search through a graph of methods, and the names of what it did."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from accelopt.agents.analysis_tools import FUNCTIONS, MOST_TURNS
from accelopt.agents.calls import Answer, Model, Question, Tool
from accelopt.agents.planner import tried_list
from accelopt.agents.prompts import bullet_list
from accelopt.agents.proposer import LONGEST_DETAIL, KernelView, Listed, WrittenKernel
from accelopt.agents.questions import ask_and_read, kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.kernel_source import apply_patch, fenced_blocks, is_patch
from accelopt.replies import json_in, rows_in

NO_STEPS = "it holds no JSON list of objects with an `index`, `existed` and `method`"


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

    async def candidates(self, view: KernelView, most: int, methods: Mapping[str, str]) -> Listed:
        """At most `most` candidates. `methods` are names that there are already, with what is done by
        that name where somebody said it."""
        question = self.question(view, most, methods)
        tools = () if self.tools is None else await self.tools(view)
        limit = MOST_TURNS if tools else 0

        def read(answer: Answer) -> Listed | str:
            return read_candidates(answer.text, view.kernel)

        found = await ask_and_read(self.lister, question, read, tools, limit)
        if isinstance(found, str):
            return Listed(reason=found)
        return found._replace(candidates=found.candidates[:most])

    def question(self, view: KernelView, most: int, methods: Mapping[str, str]) -> Question:
        """The prompt: measurements, then structure, then what to edit; the kernel in view alone."""
        found = view.diagnosis.bottlenecks if view.diagnosis else ()
        slots = {
            **kernel_slots(view),
            "most": str(most),
            "diagnosis": bullet_list([f"{b.resource}: {b.reason}" for b in found], "(none)"),
            "tried": tried_list(view.tried),
            "methods": _names(methods),
            "tools": self._told(),
        }
        return question_about(view, "lister", self.prompts["lister"], slots)

    def _told(self) -> str:
        if self.tools is None:
            return ""
        listed = bullet_list([f"{n}: {f.description}" for n, f in FUNCTIONS.items()], "")
        return f"You may ask up to {MOST_TURNS} times before you answer:\n{listed}"

    async def relabel(
        self, view: KernelView, methods: Mapping[str, str], candidates: Sequence[WrittenKernel]
    ) -> str:
        """A JSON list of {index, existed, method}, whatever it says; empty where no model answers."""
        rows = [
            {"index": number, "method": one.method, "detail": one.detail[:LONGEST_DETAIL]}
            for number, one in enumerate(candidates)
        ]
        slots = {"catalog": _names(methods), "steps": json.dumps(rows, indent=1)}
        question = question_about(view, "relabeler", self.prompts["relabeler"], slots)

        def read(answer: Answer) -> list[dict[str, Any]] | str:
            found = rows_in(json_in(answer.text), "steps")
            return found if any(isinstance(row.get("index"), int) for row in found) else NO_STEPS

        found = await ask_and_read(self.relabeler, question, read)
        return "" if isinstance(found, str) else json.dumps(found, default=str)


def _names(methods: Mapping[str, str]) -> str:
    return bullet_list(
        [f"{name}: {does}" if does else name for name, does in methods.items()], "(none)"
    )


def read_candidates(reply: str, kernel: str = "") -> Listed | str:
    """The candidates in a reply, `{"candidates": [{think, method, detail, code}]}` or the list alone, and
    in `reason` which cannot be used; or what is wrong with it. One without code or method is none, nor
    is a diff that does not fit `kernel`."""
    rows = rows_in(json_in(reply), "candidates")
    if not rows:
        return "it holds no JSON with a list of candidates"
    read = [_candidate(row, kernel) for row in rows]
    usable = tuple(one for one in read if isinstance(one, WrittenKernel))
    lacks = enumerate((one if isinstance(one, str) else "" for one in read), 1)
    lost = "; ".join(f"candidate {number} has {lack}" for number, lack in lacks if lack)
    return Listed(usable, lost) if usable else lost


def _candidate(row: dict[str, Any], kernel: str) -> WrittenKernel | str:
    """The candidate, or what it has in place of one."""
    method, given = str(row.get("method") or "").strip(), row.get("code")
    lines = given if isinstance(given, list) else [given]
    code = "\n".join(line for line in lines if isinstance(line, str))
    inside = fenced_blocks(code)
    code = inside[-1].text if inside else code
    if not method or not code.strip():
        return "no `code`" if method else "no `method`"
    if is_patch(code) and not (code := apply_patch(kernel, code) or ""):
        return "a diff that does not fit the kernel"
    return WrittenKernel(method, str(row.get("detail") or ""), code)
