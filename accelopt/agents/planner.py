"""The planner: one view of a kernel to N one-step changes that differ on purpose."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from accelopt.agents.calls import NO_ANSWER, Answer, Model, Question
from accelopt.agents.experience_text import lessons_text, with_experiences
from accelopt.agents.model_tools import Bench, Toolbox
from accelopt.agents.prompts import (
    PromptPair,
    bullet_list,
    numbered,
    profile_lines,
    quote,
    quote_words,
    render,
    render_sections,
)
from accelopt.agents.proposer import (
    KernelView,
    PlanDraft,
    Relative,
    Scheduled,
    Suggestion,
    TriedChange,
    no_schedule,
)
from accelopt.agents.roles import ROLES, Prompts
from accelopt.nodes import Plan

NOTHING_MEASURED = "(no analysis of this kernel)"
FIRST_TRY = "Nothing yet."
LESSONS_HEADING = "# Attempts on this kernel and others like it, and what they taught"
RULE = re.compile(r"^[\s*#>`-]*Rule\b\**\s*:\s*[*`]*(R\d+)\b", re.MULTILINE | re.IGNORECASE)
TITLE = re.compile(r"^[\s*#>-]*Title\b", re.MULTILINE | re.IGNORECASE)
NOTHING = re.compile(r"^[\s*#>`-]*Nothing left\b\**\s*:\s*\**(.+)", re.MULTILINE | re.IGNORECASE)
ASKED = 2  # times for one plan: a refused schedule may be corrected once
REFUSED = "Your schedule was refused: {} Correct it, or answer with a plan."


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
        bench = self.toolbox.open(view) if self.toolbox else Bench()
        limit = self.toolbox.limit if self.toolbox else 0
        try:
            draft = await self._read(await self.model.ask(question, bench.tools, limit), view)
            if isinstance(draft, str):
                said = f"{question.user}\n\n{REFUSED.format(draft)}"
                again = question._replace(label=f"{question.label}/again", user=said)
                draft = await self._read(await self.model.ask(again, bench.tools, limit), view)
        except NO_ANSWER as error:
            draft = PlanDraft(None, reason=str(error), failed=True)
        found = PlanDraft(None, reason=draft) if isinstance(draft, str) else draft
        return found._replace(best=bench.best.source if bench.best else None)

    async def _read(self, answer: Answer, view: KernelView) -> PlanDraft | str:
        """What the answer wants done; a sentence for a schedule that the kernel does not have."""
        reasoning = answer.reasoning or answer.text
        if chosen := RULE.search(answer.text):
            for one in view.suggestions:
                if one.name == chosen[1].upper():
                    return PlanDraft(one.action.change, reasoning)
        if (done := NOTHING.search(answer.text)) and not TITLE.search(answer.text):
            return PlanDraft(None, reasoning, f"nothing is left: {done[1].strip()}")
        found = await self.scheduled(view.node, answer.text)
        if isinstance(found, str):
            return found
        if found is not None:
            return PlanDraft(found.change, reasoning)
        return PlanDraft(Plan.read(answer.text), reasoning)

    def question(self, view: KernelView, draw: int, draws: int = 1) -> Question:
        """The prompt of draw number `draw`: the same for the same view, seed and draw. Aspects go on
        where the last view of the run stopped, so all are seen in turn."""
        order = random.Random(f"{self.seed}/{view.service_name}/{draw}")
        metadata = view.profile.to_metadata() if view.profile else {}
        aspects = self.prompts.aspects
        simulated = bool(view.profile and view.profile.simulated and view.brief)
        profile = "" if simulated else profile_lines(metadata, self.prompts.displayed, order)
        aspect = aspects[(view.turn * draws + draw) % len(aspects)] if aspects else ""
        parts = "limits lines memory compiler prices schedules".split()
        slots = {
            **dict.fromkeys(parts, ""),
            **view.brief,
            "problem_code": quote(view.reference, "python"),
            "kernel_code": quote(view.kernel, "python"),
            "numbered_kernel": quote(numbered(view.kernel)),
            "profile": profile,
            "facts": bullet_list(view.facts, NOTHING_MEASURED),
            "tried": tried_list(view.tried),
            "suggestions": suggestion_list(view.suggestions),
            "lineage": lineage_list(view.lineage),
            "others": others_list(view.others),
            "aspect": aspect or "whatever limits it most.",
            "gate": view.gate,
            "tools": tools_text(self.toolbox),
        }
        prompt = self.prompts["planner"]
        system = system_text(prompt, view)
        return Question(
            role="planner",
            label=f"planner/{view.iteration}/{view.service_name}/{draw}",
            system=with_lessons(with_experiences(system, view.experiences), view),
            user=render_sections(prompt.user_template, slots),
            iteration=view.iteration,
            temperature=ROLES["planner"].temperature(draw),
        )


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


def system_text(pair: PromptPair, view: KernelView) -> str:
    """Who answers, with what it must know of machine and language."""
    nothing = dict.fromkeys(("machine", "language", "dialect"), "")
    return render(pair.system, {**nothing, **view.background})


def with_lessons(base_prompt: str, view: KernelView) -> str:
    """`base_prompt` followed by what workers and earlier runs found out that bears on the kernel."""
    if not view.findings and not view.recalled:
        return base_prompt
    lessons = lessons_text(view.findings, view.recalled)
    return "\n\n".join([base_prompt.rstrip(), LESSONS_HEADING, lessons]) + "\n"


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
