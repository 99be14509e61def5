"""The summarizer: from a slow and a fast kernel to a lesson for the planner."""

from __future__ import annotations

import re

from accelopt.agents.calls import NO_ANSWER, Model
from accelopt.agents.prompts import PromptPair, quote
from accelopt.agents.proposer import SlowFastPair
from accelopt.agents.questions import question
from accelopt.published import NO_OPTIMIZATION_TITLE, Experience

NOTHING_FOUND = "no optimization found"
_TITLE = re.compile(r"\*\*(.+?)\*\*")


class Summarizer:
    """Asks a model what made the difference."""

    def __init__(self, model: Model, prompts: PromptPair) -> None:
        self.model = model
        self.prompts = prompts

    async def summarize(self, pair: SlowFastPair) -> Experience:
        """What `pair` taught; an empty title and no summary when the model gives no answer."""
        known = pair.experience
        slots = {
            "slow_kernel": quote(known.slow_kernel, "python"),
            "fast_kernel": quote(known.fast_kernel, "python"),
            "speedup": f"{known.speedup:.3f}",
            "plan": quote(pair.plan) if pair.plan else "(not recorded)",
            "slow_profile": pair.slow_profile,
            "fast_profile": pair.fast_profile,
        }
        label = f"summarizer/{pair.iteration}/{known.service_name}/{known.id}"
        asked = question("summarizer", self.prompts, label, slots, pair.iteration)
        try:
            answer = await self.model.ask(asked)
        except NO_ANSWER as error:
            return pair.learned("", raw=str(error))
        raw = answer.reasoning or answer.text
        if NOTHING_FOUND in answer.text.lower():
            return pair.learned(NO_OPTIMIZATION_TITLE, raw=raw)
        title = _TITLE.search(answer.text)
        return pair.learned(title[0] if title else "", answer.text, raw)
