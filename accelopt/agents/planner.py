"""The planner: one view of a kernel to N one-step changes that differ on purpose."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from accelopt.agents.calls import NO_ANSWER, Answer, Model, Question
from accelopt.agents.model_tools import Toolbox, ToolSession
from accelopt.agents.prompts import bullet_list, quote_words
from accelopt.agents.proposer import (
    KernelView,
    PlanDraft,
    Relative,
    Scheduled,
    Suggestion,
    TriedChange,
    no_schedule,
)
from accelopt.agents.questions import NOTHING_MEASURED, kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.nodes import Plan
from accelopt.replies import kernel_like, object_in, words_in

FIRST_TRY = "Nothing yet."
RULE = re.compile(r"^\W*Rule\b\W*(?:R|:\W*)(\d+)\b|\A\W*R(\d+)\W*\Z", re.MULTILINE | re.IGNORECASE)
TITLE = re.compile(r"^[\s*#>|<-]*(?:\d+[.)]\s*)?Title\b", re.MULTILINE | re.IGNORECASE)
NOTHING = re.compile(r"^\W*Nothing (?:is )?left\b\W*(.*)", re.MULTILINE | re.IGNORECASE)
ASKED = 2  # times for one plan: what was refused may be corrected once
WORDS = re.compile(r"(?:[^\W\d_]{2,}.*?){3}", re.DOTALL)
SPECIFIC = re.compile(r"\b\d+(?:\.\d+)?\b|`|\w_\w")
NAMED = re.compile(r"\b([A-Za-z]{3,})\s*[=(.\[]")
"""What a kernel calls, sets or indexes."""
OWN_KERNEL = "the planner's own kernel"
NO_PLAN = "It has no line `Title:`, and names no line, number or name of the kernel."
REFUSED = "Your answer was refused: {} Correct it, or answer with a plan."


class Planner:
    """Draws changes from a model: a plan in words, a rule by its name, or a schedule.

    `scheduled` reads a schedule out of an answer, for a kernel that has some. With a toolbox the model
    may ask before it answers.
    """

    def __init__(
        self,
        model: Model,
        prompts: Prompts,
        seed: int = 0,
        *,
        scheduled: Scheduled = no_schedule,
        toolbox: Toolbox | None = None,
    ) -> None:
        self.model = model
        self.prompts = prompts
        self.seed = seed
        self.scheduled = scheduled
        self.toolbox = toolbox
        self.tries = ASKED * toolbox.limit if toolbox else 0

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The change of draw number `draw`; none when the model gives no answer."""
        question = self.question(view, draw, draws)
        session = self.toolbox.open(view) if self.toolbox else ToolSession()
        limit = self.toolbox.limit if self.toolbox else 0
        try:
            draft = await self._read(await self.model.ask(question, session.tools, limit), view)
            if isinstance(draft, str):
                said = f"{question.user}\n\n{REFUSED.format(draft)}"
                again = question._replace(label=f"{question.label}/again", user=said)
                draft = await self._read(await self.model.ask(again, session.tools, limit), view)
        except NO_ANSWER as error:
            draft = PlanDraft(None, reason=str(error), failed=True)
        if isinstance(draft, str):
            draft = PlanDraft(None, reason=draft, failed=draft == NO_PLAN)
        return draft._replace(best=session.best.source if session.best else None)

    async def _read(self, answer: Answer, view: KernelView) -> PlanDraft | str:
        """What the answer wants done; a sentence for a rule or a schedule that the kernel does not have,
        and for words that say nothing to do, as a refusal does."""
        reasoning = answer.reasoning or answer.text
        if not answer.text.strip():
            return PlanDraft(None, reasoning, "the answer was empty")
        answer = answer._replace(text=in_lines(answer.text))
        if chosen := RULE.search(answer.text):
            rule = f"R{chosen[1] or chosen[2]}"
            for one in view.suggestions:
                if one.name == rule:
                    return PlanDraft(one.action.change, reasoning)
            if not TITLE.search(answer.text):
                names = ", ".join(one.name for one in view.suggestions) or "none"
                return f"There is no rule {rule}; there are: {names}."
        if (done := NOTHING.search(answer.text)) and not TITLE.search(answer.text):
            said = done[1].strip() or "it says no more"
            return PlanDraft(None, reasoning, f"nothing is left: {said}")
        found = await self.scheduled(view.node, answer.text)
        if isinstance(found, str):
            return found
        if found is not None:
            return PlanDraft(found.change, reasoning)
        plan = Plan.read(answer.text)  # one without a title is its words alone
        if not plan.text and kernel_like(answer.text, view.kernel):
            before, fence, _ = answer.text.partition("```")
            said = " ".join(before.split()) if fence else ""
            return PlanDraft(Plan(sentence=said or OWN_KERNEL, text=answer.text), reasoning)
        named = {*NAMED.findall(view.kernel)} & {*re.findall(r"[A-Za-z]{3,}", plan.sentence)}
        specific = named or SPECIFIC.search(plan.sentence)
        says = plan.text or (specific and WORDS.search(plan.sentence))
        return PlanDraft(plan, reasoning) if says else NO_PLAN

    def question(self, view: KernelView, draw: int, draws: int = 1) -> Question:
        """The prompt of draw number `draw`: the same for the same view, seed and draw. Aspects go on
        where the last view of the run stopped, so all are seen in turn."""
        order = random.Random(f"{self.seed}/{view.service_name}/{draw}")
        aspects = self.prompts.aspects
        aspect = aspects[(view.turn * draws + draw) % len(aspects)] if aspects else ""
        slots = {
            **kernel_slots(view, self.prompts.displayed, order),
            "facts": bullet_list(view.facts, NOTHING_MEASURED),
            "tried": tried_list(view.tried),
            "suggestions": suggestion_list(view.suggestions),
            "lineage": lineage_list(view.lineage),
            "others": others_list(view.others),
            "aspect": aspect or "whatever limits it most.",
            "tools": tools_text(self.toolbox),
        }
        return question_about(view, "planner", self.prompts["planner"], slots, draw, draw=draw)


def in_lines(reply: str) -> str:
    """A plan in the lines that are asked for, also of one that came as JSON."""
    found = None if TITLE.search(reply) else object_in(reply, "title", "rule", "nothing_left")
    if found is None:
        return reply
    heads = {"title": "Title", "change": "Change", "with": "With", "rule": "Rule"}
    heads["nothing_left"] = "Nothing left"
    said = {name: words_in(part) for name, part in found.items()}
    if "change" in said and not re.search(r"\d", said["change"]):
        said["change"] += f" {said.pop('lines', '')}"
    lines = [f"{head}: {said.pop(name)}" for name, head in heads.items() if said.get(name)]
    return "\n".join([*lines, "", *said.values()])


def tools_text(toolbox: Toolbox | None) -> str:
    """What a model is told of its tools, in the prompt; empty without any."""
    if toolbox is None:
        return ""
    listed = "\n".join(
        f"- {tool.name}({tool.argument}): {tool.description}" for tool in toolbox.told
    )
    return f"You may call up to {toolbox.limit} tools before you answer:\n{listed}"


def tried_list(tried: Sequence[TriedChange]) -> str:
    """Earlier changes by their keys, with titles and outcomes."""
    return bullet_list([f"{_named(t)}: {t.outcome}" for t in tried], FIRST_TRY)


def _named(tried: TriedChange) -> str:
    change = tried.change
    words = quote_words(change.sentence, 160)
    return (
        f"[{change.key[:120]}] {words}" if not isinstance(change, Plan) or change.method else words
    )


def suggestion_list(suggestions: Sequence[Suggestion]) -> str:
    """What the rules can do, with predicted times; empty where they can do nothing."""
    return "\n".join(
        f"- {one.name}: {_predicted(one.predicted)} [{one.action.method}] "
        f"{quote_words(one.action.sentence, 200)}"
        for one in suggestions
    )


def _predicted(milliseconds: float | None) -> str:
    return "time not predicted" if milliseconds is None else f"{milliseconds:.4g} ms predicted"


def lineage_list(lineage: Sequence[Relative]) -> str:
    """The steps from the baseline to a kernel, with times and what each changed; empty for the
    baseline itself."""
    if len(lineage) < 2:
        return ""
    rows = []
    for one in lineage:
        change = one.node.change
        step = f" ({one.node.speedup:.2f} times)" if one.node.speedup else ""
        said = quote_words(change.sentence, 160) if change else "the starting kernel"
        key = f" [{change.key[:100]}]" if isinstance(change, Plan) and change.method else ""
        rows.append(f"- {one.name}: {one.node.latency or 0:.4g} ms{step}{key} {said}")
    rows[-1] += ", the kernel above"
    return "\n".join(rows)


def others_list(others: Sequence[Relative]) -> str:
    """Good kernels beside the line, with what made them; empty without any."""
    return "\n".join(
        f"- {one.name}: {one.node.latency or 0:.4g} ms, from {one.parent or 'another kernel'} by "
        f"{quote_words(one.node.change.sentence if one.node.change else '', 200)}"
        for one in others
    )
