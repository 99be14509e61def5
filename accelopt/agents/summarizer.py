"""The summarizer: from a slow and a fast kernel to a lesson for the planner."""

from __future__ import annotations

import re

from accelopt.agents.calls import Answer, Model
from accelopt.agents.prompts import PromptPair, quote
from accelopt.agents.proposer import SlowFastPair
from accelopt.agents.questions import ask_and_read, question
from accelopt.replies import object_in, words_in
from accelopt.script_file_columns import NO_OPTIMIZATION_TITLE, Experience

NOTHING_FOUND = "no optimization found"
NO_TITLE = "it has no title between double asterisks"
_TITLE = re.compile(r"\*\*(.+?)\*\*|\A\s*(?:#+|Title *:) *(.+)")


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

        def read(answer: Answer) -> Experience | str:
            raw = answer.reasoning or answer.text
            if NOTHING_FOUND in answer.text.lower():
                return pair.learned(NO_OPTIMIZATION_TITLE, raw=raw)
            title, text = _titled(answer.text)
            return pair.learned(f"**{title}**", text, raw) if title else NO_TITLE

        found = await ask_and_read(self.model, asked, read)
        return pair.learned("", raw=found) if isinstance(found, str) else found


def _titled(reply: str) -> tuple[str, str]:
    """The title of a reply and its text, also of one in JSON; no title where it has none."""
    if found := object_in(reply, "title"):
        title = words_in(found.pop("title"))
        return title, "\n\n".join([f"**{title}**", *map(words_in, found.values())])
    match = _TITLE.search(reply)
    return (next(filter(None, match.groups())) if match else ""), reply
