"""The summarizer: from a slow and a fast kernel to a lesson for the planner."""

from __future__ import annotations

import re

from accelopt.agents.calls import NO_ANSWER, Model, Question
from accelopt.agents.prompts import PromptPair, quote, render_sections
from accelopt.agents.proposer import Lesson, SlowFastPair
from accelopt.published import NO_OPTIMIZATION_TITLE

NOTHING_FOUND = "no optimization found"
_TITLE = re.compile(r"\*\*(.+?)\*\*")


class Summarizer:
    """Asks a model what made the difference."""

    def __init__(self, model: Model, prompts: PromptPair) -> None:
        self.model = model
        self.prompts = prompts

    async def summarize(self, pair: SlowFastPair) -> Lesson:
        """The lesson of `pair`; an empty title and no summary when the model gives no answer."""
        slots = {
            "slow_kernel": quote(pair.slow_kernel, "python"),
            "fast_kernel": quote(pair.fast_kernel, "python"),
            "speedup": f"{pair.speedup:.3f}",
            "plan": quote(pair.plan) if pair.plan else "(not recorded)",
            "slow_profile": pair.slow_profile,
            "fast_profile": pair.fast_profile,
        }
        question = Question(
            role="summarizer",
            label=f"summarizer/{pair.iteration}/{pair.label}",
            system=self.prompts.system,
            user=render_sections(self.prompts.user_template, slots),
            iteration=pair.iteration,
        )
        try:
            answer = await self.model.ask(question)
        except NO_ANSWER as error:
            return Lesson("", None, str(error))
        raw = answer.reasoning or answer.text
        if NOTHING_FOUND in answer.text.lower():
            return Lesson(NO_OPTIMIZATION_TITLE, None, raw)
        title = _TITLE.search(answer.text)
        return Lesson(title[0] if title else "", answer.text, raw)
