"""The planner: one view of a kernel to N one-step plans that differ on purpose."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from accelopt.agents.calls import NO_ANSWER, Model, Question
from accelopt.agents.lessons import lessons_text
from accelopt.agents.prompts import (
    PromptPair,
    bullet_list,
    profile_lines,
    quote,
    quote_words,
    render,
)
from accelopt.agents.proposer import KernelView, PlanDraft, Tried
from accelopt.nodes import Plan
from accelopt.published import NO_OPTIMIZATION_TITLE, Experience

TEMPERATURES = (0.7, 1.0, 0.9, 1.1)
NOTHING_MEASURED = "(no analysis of this kernel)"
FIRST_TRY = "Nothing yet."
EXPERIENCES_HEADING = "# Experiences"
LESSONS_HEADING = "# Attempts on this kernel and others like it, and what they taught"


class PlannerPrompts(NamedTuple):
    """The planner's texts, the profile fields it is shown, and the aspects its draws look at."""

    pair: PromptPair
    displayed: tuple[str, ...]
    aspects: tuple[str, ...] = ()


class Planner:
    """Draws plans from a model."""

    def __init__(self, model: Model, prompts: PlannerPrompts, seed: int = 0) -> None:
        self.model = model
        self.prompts = prompts
        self.seed = seed

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The plan of draw number `draw`; no plan when the model gives no answer."""
        try:
            answer = await self.model.ask(self.question(view, draw))
        except NO_ANSWER as error:
            return PlanDraft(None, reason=str(error), failed=True)
        return PlanDraft(Plan(sentence=answer.text), answer.reasoning or answer.text)

    def question(self, view: KernelView, draw: int) -> Question:
        """The prompt of draw number `draw`: the same for the same view, seed and draw."""
        order = random.Random(f"{self.seed}/{view.service_name}/{draw}")
        metadata = view.profile.to_metadata() if view.profile else {}
        aspects = self.prompts.aspects
        slots = {
            "problem_code": quote(view.reference, "python"),
            "kernel_code": quote(view.kernel, "python"),
            "profile": profile_lines(metadata, self.prompts.displayed, order),
            "facts": bullet_list(view.facts, NOTHING_MEASURED),
            "tried": tried_list(view.tried),
            "aspect": aspects[draw % len(aspects)] if aspects else "whatever limits it most.",
        }
        return Question(
            role="planner",
            label=f"planner/{view.iteration}/{view.service_name}/{draw}",
            system=with_lessons(with_experiences(self.prompts.pair.system, view.experiences), view),
            user=render(self.prompts.pair.user_template, slots),
            iteration=view.iteration,
            temperature=TEMPERATURES[draw % len(TEMPERATURES)],
        )


def tried_list(tried: Sequence[Tried]) -> str:
    """Earlier plans with their outcomes, plans quoted and cut short."""
    return bullet_list([f"{quote_words(t.change.sentence)}: {t.outcome}" for t in tried], FIRST_TRY)


def with_experiences(base_prompt: str, experiences: Sequence[Experience]) -> str:
    """`base_prompt` followed by what earlier pairs taught, newest first, each with its speedup."""
    learned = [
        f"Measured: {item.speedup:.2f} times as fast"
        f"{f', seen {item.seen} times' if item.seen > 1 else ''}.\n{item.summary.strip()}"
        for item in experiences
        if item.summary and item.title != NO_OPTIMIZATION_TITLE
    ]
    if not learned:
        return base_prompt
    return "\n\n".join([base_prompt.rstrip(), EXPERIENCES_HEADING, *learned]) + "\n"


def with_lessons(base_prompt: str, view: KernelView) -> str:
    """`base_prompt` followed by what workers and earlier runs found out that bears on the kernel."""
    if not view.findings and not view.recalled:
        return base_prompt
    lessons = lessons_text(view.findings, view.recalled)
    return "\n\n".join([base_prompt.rstrip(), LESSONS_HEADING, lessons]) + "\n"
