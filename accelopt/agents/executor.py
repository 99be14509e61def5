"""The executor writes the kernel that a plan describes; the fixer mends the one that failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accelopt.agents.calls import NO_ANSWER, UNANSWERED, Model, Question
from accelopt.agents.experience_text import experiences_text
from accelopt.agents.model_tools import Toolbox, ToolSession
from accelopt.agents.planner import tools_text
from accelopt.agents.prompts import numbered, quote
from accelopt.agents.proposer import Draft, Failure, Implements, KernelView
from accelopt.agents.questions import kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.kernel_source import (
    KERNEL_NAMES,
    apply_patch,
    edits_as_diff,
    entries,
    fenced_blocks,
    is_patch,
)
from accelopt.nodes import Change, Plan
from accelopt.replies import kernel_in, kernel_like

NO_BLOCK = "the reply held no code block with the kernel"
LONGEST_ERROR = 6000  # characters of a tool's message; its end says most
MOST_EXPERIENCES = 3
MOST_JOINED = 2  # other kernels that a plan may take something from

Sheet = Callable[[Sequence[str]], str]


def no_sheet(texts: Sequence[str]) -> str:
    """Documentation of nothing."""
    return ""


class Executor:
    """Writes and repairs kernels with a model; with a toolbox it may try them out itself, and the
    fastest kernel that it had checked counts when its answer is worse.

    `by_rule` carries out what is not a plan in words. `sheet` gives the documentation of the calls
    that texts name.
    """

    def __init__(
        self,
        model: Model,
        fixer: Model,
        prompts: Prompts,
        toolbox: Toolbox | None = None,
        *,
        by_rule: Implements | None = None,
        sheet: Sheet = no_sheet,
    ) -> None:
        self.model = model
        self.fixer = fixer
        self.prompts = prompts
        self.toolbox = toolbox
        self.by_rule = by_rule
        self.sheet = sheet
        self.tries = toolbox.limit if toolbox else 0

    async def implement(self, view: KernelView, change: Change, draw: int, sample: int) -> Draft:
        """Implementation number `sample` of `change`."""
        if self.by_rule is not None and not isinstance(change, Plan):
            return await self.by_rule.implement(view, change, draw, sample)
        told = change.full_text if sample == 0 and isinstance(change, Plan) else ""
        if written := kernel_like(told, view.kernel):  # the planner wrote it too
            return Draft(written)
        question = self.question(view, change, draw, sample)
        return await self._draft(self.model, question, view, view.kernel)

    def question(self, view: KernelView, change: Change, draw: int, sample: int) -> Question:
        """The prompt of sample number `sample`: the same for the same view and change."""
        slots = self._slots(view, change)
        prompt = self.prompts["executor"]
        return question_about(view, "executor", prompt, slots, draw, sample, draw=sample)

    async def repair(
        self, view: KernelView, change: Change, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """A mended version of `failure.source`."""
        if self.by_rule is not None and not isinstance(change, Plan):
            return await self.by_rule.repair(view, change, draw, sample, failure)
        failed = failure.source or "(the reply held no code)"
        slots = self._slots(view, change, failed, failure.error)
        slots["failed_code"] = quote(failed, "python")
        slots["numbered_failed"] = quote(numbered(failed))
        slots["error"] = quote(shorten(failure.error))
        question = question_about(
            view, "fixer", self.prompts["fixer"], slots, draw, sample, failure.round
        )
        return await self._draft(self.fixer, question, view, failed)

    async def _draft(self, model: Model, question: Question, view: KernelView, base: str) -> Draft:
        """What a model writes: a whole kernel, or a diff that applies to `base`."""
        session = self.toolbox.open(view) if self.toolbox else ToolSession()
        limit = self.toolbox.limit if self.toolbox else 0
        try:
            answer = await model.ask(question, session.tools, limit)
        except NO_ANSWER as error:
            if session.best is not None:
                return Draft(session.best.source, checked=session.sources)
            return Draft(None, f"{UNANSWERED}: {error}", failed=True, checked=session.sources)
        source, reason = kernel_or_patched(answer.text, base)
        if source is None and session.best is not None:
            return Draft(session.best.source, checked=session.sources)
        best = session.best.source if session.best else None
        return Draft(source, reason, checked=session.sources, best=best)

    def _slots(self, view: KernelView, change: Change, *more: str) -> dict[str, str]:
        plan = change.full_text if isinstance(change, Plan) else change.sentence
        return {
            **kernel_slots(view, self.prompts.displayed),
            "optimization_plan": quote(plan),
            "joined": joined_text(view, change),
            "sheet": self.sheet([view.kernel, plan, *more]),
            "experiences": experiences_text(view.experiences, MOST_EXPERIENCES).partition("\n\n")[
                2
            ],
            "tools": tools_text(self.toolbox),
        }


def kernel_or_patched(reply: str, base: str) -> tuple[str | None, str]:
    """The kernel in a reply, or the one that its diff makes of `base`; or None and why there is none."""
    plain = edits_as_diff(reply.replace("\r\n", "\n"))
    texts = [block.text for block in fenced_blocks(plain)] or [plain]
    diffs = [text for text in texts if is_patch(text)]
    for diff in diffs:
        if made := apply_patch(base, diff):
            return made, ""
    if source := None if diffs else kernel_in(reply, {*KERNEL_NAMES, *entries(base)}):
        return source, ""
    said = "the diff in the reply does not apply to the kernel" if diffs else NO_BLOCK
    return None, said


def joined_text(view: KernelView, change: Change) -> str:
    """The other kernels that a plan names, whole; empty for one that names none."""
    wanted = change.joins[:MOST_JOINED] if isinstance(change, Plan) else ()
    known = {one.name: one for one in (*view.others, *view.lineage[:-1])}
    return "\n\n".join(
        f"{name} ({known[name].node.latency or 0:.4g} ms):\n{quote(known[name].node.source, 'python')}"
        for name in wanted
        if name in known
    )


def shorten(error: str) -> str:
    """`error`, with its middle left out when it is too long."""
    left_out = len(error) - LONGEST_ERROR
    if left_out <= 0:
        return error
    head = LONGEST_ERROR // 3
    return f"{error[:head]}\n[... {left_out} characters left out ...]\n{error[head + left_out :]}"
